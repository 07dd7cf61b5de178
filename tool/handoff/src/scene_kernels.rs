//! CUDA's work for a frame: the trait that each scene's kernels implement, and the kernels of a field.

use tracing::trace_span;
use vulkan_cuda::SharedBuffer;
use vulkan_cuda::shared_ring::Slot;

use crate::contents::{built_in, scene::Scene, wave::Grid};
use crate::producer::{CudaTimeline, Frame, ProducerDesc, SLOT_USAGE, Source, check_grid, each_slot};
use wavefield_gpu::Result;
use wavefield_gpu::cuda::{Cuda, DeviceMemory, Kernel, KernelParameters, KernelSource, Signature, Stream};
use wavefield_gpu::vulkan::Device;

/// The kernels of a scene. The stream must be idle when they or their memory are dropped.
pub trait SceneKernels: Sized + 'static {
    type Slot: Slot;
    type Scratch;

    /// Loads the kernels. `context` must belong to the device's GPU: see [`vulkan_cuda::find_twin`].
    fn new(device: &Device, context: &Cuda, source: &KernelSource, desc: &ProducerDesc) -> Result<Self>;

    /// Makes the slots of a ring, after `new`, so that a bad kernel fails before gigabytes are allocated.
    fn slots(&self, device: &Device, context: &Cuda, depth: usize) -> Result<Vec<Self::Slot>>;

    /// Allocates CUDA's own memory for one frame.
    fn scratch(&self, context: &Cuda) -> Result<Self::Scratch>;

    fn source(slot: &Self::Slot) -> Source;

    fn parameters(&self) -> &KernelParameters;

    /// Enqueues a frame's kernels. Its two events are around all but the kernels that stamp it.
    ///
    /// # Safety
    /// Nothing else may use the destination until the stream has passed this point.
    unsafe fn enqueue(
        &self,
        timeline: &CudaTimeline,
        frame: &Frame,
        into: Destination<'_, Self>,
    ) -> Result<()>;

    /// Enqueues a copy of CUDA's own memory into a slot.
    ///
    /// # Safety
    /// Both must come from one value of this type. Nothing else may use the slot, or write the memory, until
    /// the stream has passed this point.
    unsafe fn copy(scratch: &Self::Scratch, slot: &Self::Slot, stream: &Stream) -> Result<()>;

    /// Copies CUDA's own memory into `bytes`, and waits for the stream.
    fn read(scratch: &Self::Scratch, stream: &Stream, bytes: &mut [u8]) -> Result<()>;
}

pub enum Destination<'a, K: SceneKernels> {
    Slot(&'a K::Slot),
    /// CUDA's own memory, used by one stream only.
    Scratch(&'a K::Scratch),
}

pub(super) fn load(context: &Cuda, source: &KernelSource, signature: Signature) -> Result<Kernel> {
    let kernel = Kernel::load(context, source)?;
    // Check this last, because for text that is not PTX the error of `load` is better.
    source.check_signature(signature)?;
    Ok(kernel)
}

/// A kernel that writes 16 bytes for each vertex of a buffer, and optionally a kernel that stamps them.
pub struct FieldKernels {
    kernel: Kernel,
    stamp: Option<Kernel>,
    grid: Grid,
}

impl SceneKernels for FieldKernels {
    type Slot = SharedBuffer;
    type Scratch = DeviceMemory;

    fn new(device: &Device, context: &Cuda, source: &KernelSource, desc: &ProducerDesc) -> Result<Self> {
        let grid = desc.grid;
        check_grid(device, grid)?;
        let kernel = load(context, source, Signature::Field)?;
        let stamp = desc.stamped.then(|| Kernel::load(context, &built_in::frame_stamp())).transpose()?;
        Ok(Self { kernel, stamp, grid })
    }

    fn slots(&self, device: &Device, context: &Cuda, depth: usize) -> Result<Vec<SharedBuffer>> {
        let pair = device.pair(context)?;
        let share = || {
            let _span = trace_span!("memory").entered();
            Ok(SharedBuffer::new(&pair, self.grid.bytes(), SLOT_USAGE)?)
        };
        each_slot(device, Some(context), (Scene::Field, self.grid), depth, share)
    }

    fn scratch(&self, context: &Cuda) -> Result<DeviceMemory> {
        DeviceMemory::new(context, self.grid.bytes())
    }

    fn source(slot: &SharedBuffer) -> Source {
        slot.vulkan().into()
    }

    fn parameters(&self) -> &KernelParameters {
        &self.kernel.parameters
    }

    unsafe fn enqueue(
        &self,
        timeline: &CudaTimeline,
        frame: &Frame,
        into: Destination<'_, Self>,
    ) -> Result<()> {
        let vertices = match into {
            Destination::Slot(slot) => slot.cuda(),
            Destination::Scratch(scratch) => scratch.pointer(),
        };
        let Grid { cols, rows } = self.grid;
        let launch = |kernel: &Kernel, stream: &Stream| {
            // SAFETY: both kernels have the signature of a field; the rest is the caller's promise.
            unsafe {
                kernel.launch(stream, vertices, [cols, rows], frame.index, frame.time, &frame.parameters)
            }
        };
        timeline.timed(frame.index, |stream| launch(&self.kernel, stream))?;
        self.stamp.as_ref().map_or(Ok(()), |stamp| launch(stamp, timeline.stream()))
    }

    unsafe fn copy(scratch: &DeviceMemory, slot: &SharedBuffer, stream: &Stream) -> Result<()> {
        // SAFETY: both have the grid's size in bytes; the rest is the caller's promise.
        unsafe { scratch.copy_to(stream, slot.cuda()) }
    }

    fn read(scratch: &DeviceMemory, stream: &Stream, bytes: &mut [u8]) -> Result<()> {
        scratch.read(stream, bytes)
    }
}
