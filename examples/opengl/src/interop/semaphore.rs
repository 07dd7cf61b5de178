//! Step 3 of the recipe: a semaphore that CUDA and GL import, each with its own descriptor.

use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use ash::vk::SemaphoreType;
use cudarc::driver::CudaStream;
use vulkan_cuda::handle::Operand;
use vulkan_cuda::{ExportedSemaphore, ImportedSemaphore};

use super::Gpu;
use crate::Unavailable;
use crate::gl::{Gl, Name, Named};

/// How the two sides wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Timeline semaphores, on the GPU: `GL_NV_timeline_semaphore`.
    Timeline,
    /// Binary semaphores, on the GPU: `GL_EXT_semaphore_fd`.
    Binary,
    /// The CPU waits for each side: for drivers that cannot import semaphores, and to measure the benefit of
    /// semaphores.
    Cpu,
}

impl By {
    /// The requested kind, or the best that GL supports.
    pub fn choose(asked: Option<Self>, gl: &Gl) -> Result<Self> {
        Self::choose_by(asked, |kind| gl.imports_semaphores(kind)).map_err(|extension| {
            let gl = &gl.name;
            anyhow!(Unavailable(format!(
                "{gl} has no {extension}, which imports semaphores; --by cpu needs none"
            )))
        })
    }

    /// `Err` names the missing extension.
    fn choose_by(
        asked: Option<Self>,
        imports: impl Fn(SemaphoreType) -> Result<(), &'static str>,
    ) -> Result<Self, &'static str> {
        let can = |by: Self| by.kind().map_or(Ok(by), |kind| imports(kind).map(|()| by));
        asked.map_or_else(|| can(Self::Timeline).or_else(|_| can(Self::Binary)), can)
    }

    fn kind(self) -> Option<SemaphoreType> {
        match self {
            Self::Timeline => Some(SemaphoreType::TIMELINE),
            Self::Binary => Some(SemaphoreType::BINARY),
            Self::Cpu => None,
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Self::Timeline => "timeline semaphores",
            Self::Binary => "binary semaphores",
            Self::Cpu => "waits of the CPU",
        }
    }
}

/// One semaphore with three names. GL and CUDA must release it first: see `Drop`.
pub struct Semaphore {
    cuda: ImportedSemaphore,
    gl: Name,
    context: Rc<Gl>,
    /// It is a timeline.
    counts: bool,
    /// Vulkan's side, which Vulkan neither waits for nor signals.
    exported: ExportedSemaphore,
}

impl Semaphore {
    pub fn new(gpu: &Gpu, by: By) -> Result<Self> {
        let pair = &gpu.vulkan.pair;
        let kind = by.kind().context("no semaphores are needed where the CPU waits")?;
        let exported = ExportedSemaphore::new(pair.vk(), kind)?;
        let cuda = ImportedSemaphore::import(pair.cuda(), exported.export()?)?;
        let gl = gpu.gl.import_semaphore(exported.export()?)?;
        Ok(Self { cuda, gl, context: gpu.gl.clone(), counts: by == By::Timeline, exported })
    }

    /// The value, if the semaphore can count.
    fn value(&self, value: u64) -> Option<u64> {
        self.counts.then_some(value)
    }

    pub fn cuda_wait(&self, stream: &Arc<CudaStream>, value: u64) -> Result<()> {
        let wait = self.value(value).map_or(Operand::Binary, Operand::Value);
        // SAFETY: `Frames` keeps it until the stream has passed this. For a binary semaphore, GL's signal was
        // flushed before.
        Ok(unsafe { self.cuda.wait(stream, wait) }?)
    }

    pub fn cuda_signal(&self, stream: &Arc<CudaStream>, value: u64) -> Result<()> {
        let signal = self.value(value).map_or(Operand::Binary, Operand::Value);
        // SAFETY: as above; each frame has a greater value. For a binary semaphore, GL has already waited for
        // the signal before: CUDA has just waited for GL's later signal.
        Ok(unsafe { self.cuda.signal(stream, signal) }?)
    }

    pub fn gl_wait(&self, gl: &Gl, value: u64, what: Named) {
        gl.wait(self.gl, self.value(value), what);
    }

    pub fn gl_signal(&self, gl: &Gl, value: u64, what: Named) {
        gl.signal(self.gl, self.value(value), what);
    }

    /// Signals a timeline in place of CUDA. Returns false if that is not possible.
    ///
    /// # Safety
    /// CUDA must have faulted, so that it executes nothing more.
    pub unsafe fn signal_from_host(&self, value: u64) -> bool {
        // SAFETY: the caller's promise. GL signals the other semaphore of the pair.
        unsafe { self.exported.signal_from_host(value) }.is_ok()
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        self.context.delete_semaphore(self.gl);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timelines_are_preferred_and_what_was_asked_for_is_taken() {
        let choose = |asked, timeline: bool, binary: bool| {
            By::choose_by(asked, |kind| match kind {
                SemaphoreType::TIMELINE if !timeline => Err("GL_NV_timeline_semaphore"),
                SemaphoreType::BINARY if !binary => Err("GL_EXT_semaphore"),
                _ => Ok(()),
            })
        };
        assert_eq!(choose(None, true, true), Ok(By::Timeline));
        assert_eq!(choose(None, false, true), Ok(By::Binary));
        assert_eq!(choose(None, false, false), Err("GL_EXT_semaphore"));
        assert_eq!(choose(Some(By::Binary), true, true), Ok(By::Binary));
        assert_eq!(choose(Some(By::Timeline), false, true), Err("GL_NV_timeline_semaphore"));
        assert_eq!(choose(Some(By::Cpu), false, false), Ok(By::Cpu));
    }
}
