//! `bench --trace`: a few frames of every cell for Perfetto, each cell a process of its own, on one clock.
//!
//! A pass of its own after the rounds: a traced draw is cut into pieces with a timestamp between each, and no figure of the
//! table should have paid for that.

use std::path::Path;

use super::runner::Plan;
use super::strategy::Strategy;
use crate::app::{Choice, Config, Headless, Stop, retire};
use crate::cuda::Context;
use crate::trace::{CpuSpans, Lane, write_trace};
use crate::{Error, Result};

/// Frames before those that are traced, and frames that are.
const WARM_UP: u64 = 8;
const FRAMES: usize = 24;

/// Traces every cell of the plan that draws and that this machine can run, and writes the file.
///
/// # Errors
/// A place that cannot be written, or a failure in the midst of a cell.
pub fn write_traces(path: &Path, plan: &Plan, base: &Config, choice: &Choice, stop: &Stop) -> Result<()> {
    let spans = CpuSpans::new(64 * FRAMES);
    if !spans.install() {
        return Err(Error::Unsupported("a process can be traced once only".into()));
    }
    let context = choice.cuda.as_ref().map(|(driver, info)| Context::new(*driver, info)).transpose()?;
    let mut lanes = Vec::new();
    for cell in plan.cells.iter().filter(|cell| cell.strategy != Strategy::ProduceOnly) {
        if stop.requested() {
            return Err(Error::Stopped(
                "stopped before the last cell was traced; no trace was written".into(),
            ));
        }
        if super::runner::obstacle(cell, base.scene, choice, context.as_ref()).is_some() {
            continue;
        }
        let mut run = Headless::quietly(choice, &cell.config(base, plan.size))?;
        let traced = frames(&mut run, &spans, cell.name());
        retire(run);
        lanes.extend(traced?);
    }
    write_trace(path, &plan.command, &lanes)
}

fn frames(run: &mut Headless, spans: &CpuSpans, name: String) -> Result<Option<Lane>> {
    const STEP: f64 = 1.0 / 60.0;
    for _ in 0..WARM_UP {
        run.frame(STEP)?;
    }
    run.engine().start_trace(FRAMES)?;
    // What came before is not part of the trace.
    spans.take();
    for _ in 0..FRAMES {
        run.frame(STEP)?;
    }
    let track = run.engine().end_trace(name)?;
    let cpu = spans.take();
    Ok(track.map(|track| Lane { cpu, track }))
}
