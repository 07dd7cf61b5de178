//! The recipe: OpenGL reads what a CUDA kernel writes, without a copy. Neither exports anything that the
//! other could import, so both import what Vulkan exports. Six steps, in order.

mod give_back;
pub mod semaphore;
pub mod texture;

use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use ash::vk;
use cudarc::driver::CudaStream;
use vulkan_cuda::{ExportedBuffer, MappedMemory, Ring};

use crate::gl::{Gl, Ids, Name, Named};
use crate::{Unavailable, match_devices};
use semaphore::{By, Semaphore};

/// One GPU, in three APIs.
pub struct Gpu {
    pub gl: Rc<Gl>,
    pub stream: Arc<CudaStream>,
    pub vulkan: match_devices::Gpu,
}

/// Step 1: matches Vulkan's device and CUDA's by UUID (the library's `01_match.rs`), and GL's by UUIDs of
/// device and driver.
pub fn open() -> Result<Gpu> {
    let vulkan = match_devices::open().map_err(|error| match match_devices::is_unsupported(&*error) {
        true => Unavailable(error.to_string()).into(),
        false => anyhow!("{error}"),
    })?;
    let vk = vulkan.pair.vk();
    // SAFETY: the device that the pair was made with.
    let ids = unsafe { Ids::of_vulkan(vk.instance(), vk.physical()) };
    Ok(Gpu { gl: Gl::open(Some(ids))?, stream: vulkan.cuda.new_stream()?, vulkan })
}

/// A buffer or texture that CUDA writes and GL reads.
pub trait Slot {
    /// GL's name for it.
    fn named(&self) -> Named;
}

/// The number of bytes past a buffer's end that OpenGL may read. Mesa's software driver does.
const BEHIND: u64 = 64;

/// One memory with three names. GL and CUDA must release it before Vulkan frees it: see `Drop`.
pub struct Buffer {
    pub gl: glow::Buffer,
    pub cuda: MappedMemory,
    memory: Name,
    context: Rc<Gl>,
    _exported: ExportedBuffer,
}

impl Buffer {
    /// Step 2: Vulkan allocates memory for this one buffer and exports it twice. Each importer then owns its
    /// descriptor.
    pub fn new(gpu: &Gpu, size: u64) -> Result<Self> {
        let pair = &gpu.vulkan.pair;
        let exported = ExportedBuffer::new(pair.vk(), size + BEHIND, vk::BufferUsageFlags::STORAGE_BUFFER)?;
        let whole = exported.allocation_size();
        // SAFETY: the exported buffer's own, dedicated allocation.
        let cuda = unsafe { MappedMemory::import(pair.cuda(), exported.export()?, whole, size) }?;
        let memory = gpu.gl.import_memory(exported.export()?, whole)?;
        let gl = gpu.gl.buffer_on(memory, size)?;
        Ok(Self { gl, cuda, memory, context: gpu.gl.clone(), _exported: exported })
    }
}

impl Slot for Buffer {
    fn named(&self) -> Named {
        Named::Buffer(self.gl)
    }
}

/// A ring of slots that CUDA writes and GL reads, frame by frame.
pub struct Frames<'a, S: Slot> {
    pub slots: Vec<S>,
    /// `ready`, which CUDA signals, and `free`, which GL signals. One pair of timelines serves all slots. Binary
    /// semaphores cannot count, so each slot has its own pair. If the CPU waits, there are none.
    semaphores: Vec<(Semaphore, Semaphore)>,
    plan: Ring,
    frame: u64,
    gpu: &'a Gpu,
}

impl<'a, S: Slot> Frames<'a, S> {
    /// Step 3: Vulkan makes the semaphores and exports each twice, too.
    pub fn new(gpu: &'a Gpu, slots: Vec<S>, by: By) -> Result<Self> {
        let plan = Ring::new(slots.len() as u32).ok_or_else(|| anyhow!("a ring has 1 to 32 slots"))?;
        let pairs = match by {
            By::Timeline => 1,
            By::Binary => slots.len(),
            By::Cpu => 0,
        };
        let pair = |_| Ok((Semaphore::new(gpu, by)?, Semaphore::new(gpu, by)?));
        let semaphores = (0..pairs).map(pair).collect::<Result<_>>()?;
        Ok(Self { slots, semaphores, plan, frame: 0, gpu })
    }

    /// Steps 4 to 6: `write` launches the kernel, `read` makes GL read the slot. `wait` can be left out as a
    /// test.
    pub fn frame(
        &mut self,
        wait: bool,
        write: impl FnOnce(&S, u64) -> Result<()>,
        read: impl FnOnce(&S),
    ) -> Result<glow::Fence> {
        let Gpu { gl, stream, .. } = self.gpu;
        let turn = self.plan.turn(self.frame);
        let slot = &self.slots[turn.slot];
        let pairs = self.semaphores.len();
        let semaphores = (pairs > 0).then(|| &self.semaphores[turn.slot % pairs]);

        // Step 4: CUDA waits, on the GPU, until GL has read the slot; writes it; signals.
        if let (Some((_, free)), Some(value)) = (semaphores, turn.wait_free) {
            free.cuda_wait(stream, value)?;
        }
        write(slot, self.frame)
            .with_context(|| format!("CUDA could not write frame {} on {}", self.frame, gl.name))?;
        match semaphores {
            Some((ready, _)) => ready.cuda_signal(stream, turn.signal_ready)?,
            None if wait => stream.synchronize().context("CUDA could not finish a frame")?,
            None => (),
        }
        self.frame += 1;

        // Step 5: GL waits, on the GPU, until CUDA has written the slot; reads it; signals.
        if let Some((ready, _)) = semaphores.filter(|_| wait) {
            ready.gl_wait(gl, turn.wait_ready, slot.named());
        }
        read(slot);
        if let Some((_, free)) = semaphores {
            free.gl_signal(gl, turn.signal_free, slot.named());
        }

        // Step 6: flush, or CUDA waits in vain for commands that GL has not sent.
        let fence = gl.fence()?;
        match semaphores {
            Some(_) => gl.flush(),
            None => gl.finish(),
        }
        Ok(fence)
    }
}
