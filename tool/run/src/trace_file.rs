//! `--trace`: the first frames of a run as a file for Perfetto.

use std::path::PathBuf;

use super::Config;
use super::engine::Engine;
use crate::watch::trace::{CpuSpans, write_trace};
use wavefield_gpu::report::{Failures, command_line};
use wavefield_gpu::{Error, Result};

/// The number of traced frames: enough to see the pattern, and few enough for a viewer.
const FRAMES: usize = 600;
/// The maximum number of CPU spans. A frame has fewer than ten, and startup has a few dozen.
const CPU_SPANS: usize = 10 * FRAMES;

/// A trace in progress, from before the first call to either API until the file is written.
pub struct Traced {
    path: PathBuf,
    cpu: CpuSpans,
}

impl Traced {
    pub fn begin(config: &Config) -> Result<Option<Self>> {
        let Some(path) = &config.trace else { return Ok(None) };
        let cpu = CpuSpans::new(CPU_SPANS);
        tracing::subscriber::set_global_default(cpu.clone())
            .map_err(|_| Error::Unsupported("a process can be traced only once".into()))?;
        Ok(Some(Self { path: path.clone(), cpu }))
    }

    pub fn follow(&self, engine: &mut Engine) -> Result<()> {
        engine.observers.start_trace(&mut engine.work, FRAMES)
    }

    /// Writes the file, even if the run failed.
    pub fn end(self, engine: &mut Engine, failures: &mut Failures) {
        let Engine { observers, drawer, work, .. } = engine;
        observers.collect_rest(work, failures);
        observers.cut_trace(work, drawer);
        let Some(track) = observers.traced.take() else { return };
        let cpu = self.cpu.take();
        if failures.catch(write_trace(&self.path, &command_line(), &cpu, &track)).is_some() {
            wavefield_gpu::note!("wrote {} (https://ui.perfetto.dev shows a .json)", self.path.display());
        }
    }
}
