//! Step 3 of the recipe: a semaphore that CUDA and GL know, each by a descriptor of its own.

use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Result, bail};
use cudarc::driver::CudaStream;
use vulkan_cuda::handle::{SemaphoreHandle, SemaphoreKind, Signal, Wait};
use vulkan_cuda::{ExportedBinary, ExportedTimeline, ImportedSemaphore, Vk};

use super::Gpu;
use crate::Unavailable;
use crate::gl::{Gl, Name, Named};

/// By what the two wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Timeline semaphores, on the GPU: `GL_NV_timeline_semaphore`.
    Timeline,
    /// Binary semaphores, on the GPU: `GL_EXT_semaphore_fd`.
    Binary,
    /// The CPU waits for each side: for drivers that import no semaphores, and to see what semaphores are worth.
    Cpu,
}

impl By {
    /// What was asked for, or the best that the driver has.
    pub fn choose(asked: Option<Self>, gl: &Gl) -> Result<Self> {
        let lacks = |by: Self| by.kind().and_then(|kind| gl.imports_semaphores(kind).err());
        let lacking = match asked {
            Some(by) => match lacks(by) {
                None => return Ok(by),
                Some(extension) => extension,
            },
            None => match [Self::Timeline, Self::Binary].map(|by| (by, lacks(by))) {
                [(timeline, None), _] => return Ok(timeline),
                [_, (binary, None)] => return Ok(binary),
                [_, (_, Some(extension))] => extension,
            },
        };
        bail!(Unavailable(format!(
            "{} has no {lacking}, by which semaphores are imported; --by cpu does without",
            gl.name
        )))
    }

    fn kind(self) -> Option<SemaphoreKind> {
        match self {
            Self::Timeline => Some(SemaphoreKind::Timeline),
            Self::Binary => Some(SemaphoreKind::Binary),
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

/// Vulkan's side, which nobody waits for or signals.
enum Exported {
    Timeline(ExportedTimeline),
    Binary(ExportedBinary),
}

impl Exported {
    fn new(vk: &Vk, by: By) -> Result<Self> {
        Ok(match by {
            By::Timeline => Self::Timeline(ExportedTimeline::new(vk)?),
            By::Binary => Self::Binary(ExportedBinary::new(vk)?),
            By::Cpu => bail!("no semaphores are needed where the CPU waits"),
        })
    }

    fn export(&self) -> Result<SemaphoreHandle> {
        Ok(match self {
            Self::Timeline(timeline) => timeline.export()?,
            Self::Binary(binary) => binary.export()?,
        })
    }
}

/// One semaphore with three names. GL and CUDA let go first: see `Drop`.
pub struct Semaphore {
    cuda: ImportedSemaphore,
    gl: Name,
    context: Rc<Gl>,
    exported: Exported,
}

impl Semaphore {
    pub fn new(gpu: &Gpu, by: By) -> Result<Self> {
        let pair = &gpu.vulkan.pair;
        let exported = Exported::new(pair.vk(), by)?;
        let cuda = ImportedSemaphore::import(pair.cuda(), exported.export()?)?;
        let gl = gpu.gl.import_semaphore(exported.export()?)?;
        Ok(Self { cuda, gl, context: gpu.gl.clone(), exported })
    }

    /// A value, if it can count.
    fn value(&self, value: u64) -> Option<u64> {
        matches!(self.exported, Exported::Timeline(_)).then_some(value)
    }

    pub fn cuda_wait(&self, stream: &Arc<CudaStream>, value: u64) -> Result<()> {
        let wait = self.value(value).map_or(Wait::Binary, Wait::Value);
        // SAFETY: `Frames` keeps it until the stream has passed this. Of a binary semaphore, GL's signal was flushed before.
        Ok(unsafe { self.cuda.wait(stream, wait) }?)
    }

    pub fn cuda_signal(&self, stream: &Arc<CudaStream>, value: u64) -> Result<()> {
        let signal = self.value(value).map_or(Signal::Binary, Signal::Value);
        // SAFETY: as above; each frame has a greater value. Of a binary semaphore, GL has waited for the signal before: CUDA has just
        // waited for what GL signalled after it.
        Ok(unsafe { self.cuda.signal(stream, signal) }?)
    }

    pub fn gl_wait(&self, gl: &Gl, value: u64, what: Named) {
        gl.wait(self.gl, self.value(value), what);
    }

    pub fn gl_signal(&self, gl: &Gl, value: u64, what: Named) {
        gl.signal(self.gl, self.value(value), what);
    }

    /// Signals a timeline in place of CUDA, which has faulted. False if that is not possible.
    pub fn signal_for_cuda(&self, value: u64) -> bool {
        match &self.exported {
            // SAFETY: CUDA executes nothing more, and GL signals the other one.
            Exported::Timeline(timeline) => unsafe { timeline.signal_from_host(value) }.is_ok(),
            Exported::Binary(_) => false,
        }
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        self.context.delete_semaphore(self.gl);
    }
}
