//! `bench --trace`: a few frames of every cell for Perfetto, on one clock, with each cell shown as a process.
//!
//! This is a separate pass after the rounds, because tracing has a cost: a traced draw is cut into pieces with timestamps
//! between them.

use std::path::Path;

use super::runner::Plan;
use super::strategy::Strategy;
use crate::app::{Choice, Config, Headless, Stop};
use crate::progress::Progress;
use crate::report::Failures;
use crate::trace::{CpuSpans, Lane, write_trace};
use crate::{Error, Result};

const WARM_UP: u64 = 8;
const FRAMES: usize = 24;

/// Traces every cell of the plan that draws and that this machine can run, and writes the file. After a stop, or a failure
/// within a cell, the file has what was traced before it.
pub fn write_traces(path: &Path, plan: &Plan, base: &Config, choice: &Choice, stop: &Stop) -> Result<()> {
    let spans = CpuSpans::new(64 * FRAMES);
    spans.install()?;
    let (mut lanes, mut failures) = (Vec::new(), Failures::default());
    let cells: Vec<_> = plan.cells.iter().filter(|cell| cell.strategy != Strategy::ProduceOnly).collect();
    let progress = Progress::new("tracing");
    for (done, cell) in cells.iter().enumerate() {
        progress.at(done as u64, cells.len() as u64);
        if stop.requested() {
            let words = "stopped before the last cell was traced; the others are in the file";
            failures.add(Error::Stopped(words.into()));
            break;
        }
        if super::runner::obstacle(cell, base.scene, choice).is_some() {
            continue;
        }
        let made = Headless::quietly(choice, &cell.config(base, plan.size));
        let Some(mut run) = failures.catch(made) else { break };
        failures.catch(frames(&mut run, &spans));
        let track = run.engine().end_trace(cell.name(), &mut failures);
        drop(run);
        lanes.extend(track.map(|track| Lane { cpu: spans.take(), track }));
        if failures.first().is_some() {
            break;
        }
    }
    if !lanes.is_empty() || failures.first().is_none() {
        failures.catch(write_trace(path, &plan.command, &lanes));
    }
    failures.outcome()
}

fn frames(run: &mut Headless, spans: &CpuSpans) -> Result<()> {
    const STEP: f64 = 1.0 / 60.0;
    for _ in 0..WARM_UP {
        run.frame(STEP)?;
    }
    run.engine().start_trace(FRAMES)?;
    // Spans of the warm-up are not part of the trace.
    spans.take();
    for _ in 0..FRAMES {
        run.frame(STEP)?;
    }
    Ok(())
}
