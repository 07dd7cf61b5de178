//! The field's work: one kernel, which writes 16 bytes for each vertex of a buffer.

use cudarc::driver::sys::CUdeviceptr;
use tracing::trace_span;
use vulkan_cuda::SharedBuffer;

use super::work::{Memory, Place, Work, load};
use crate::cuda::{Cuda, DeviceMemory, Kernel, KernelParameters, KernelSource, Signature, Stream};
use crate::producer::{Fill, Frame, ProducerDesc, SLOT_USAGE, Source, check_grid, each_slot};
use crate::vulkan::Device;
use crate::wave::Grid;
use crate::{Error, Result};

pub(super) struct FieldWork {
    kernel: Kernel,
    /// Runs after the kernel if frames are stamped: see [`crate::stamp`].
    stamp: Option<Kernel>,
    slots: Vec<SharedBuffer>,
    own: Option<DeviceMemory>,
    grid: Grid,
}

impl FieldWork {
    pub(super) fn new(
        device: &Device,
        context: &Cuda,
        source: &KernelSource,
        desc: &ProducerDesc,
        memory: Memory,
    ) -> Result<Self> {
        let grid = desc.grid;
        check_grid(device, grid)?;
        // The kernel first: a bad one should fail before gigabytes are allocated.
        let kernel = load(context, source, Signature::Field)?;
        let stamp = desc.stamped.then(|| Kernel::load(context, &KernelSource::frame_stamp())).transpose()?;
        let slots = match memory.slots {
            0 => Vec::new(),
            depth => {
                let pair = device.pair(context)?;
                let share = || {
                    let _span = trace_span!("memory").entered();
                    Ok(SharedBuffer::new(&pair, grid.bytes(), SLOT_USAGE)?)
                };
                each_slot(device, Some(context), grid, depth, share)?
            }
        };
        let own = memory.own.then(|| DeviceMemory::new(context, grid.bytes())).transpose()?;
        Ok(Self { kernel, stamp, slots, own, grid })
    }

    fn own(&self) -> Result<&DeviceMemory> {
        self.own.as_ref().ok_or_else(|| Error::Rule("the field has no memory of CUDA's own".into()))
    }
}

impl Work for FieldWork {
    fn slots(&self) -> Vec<Source> {
        self.slots.iter().map(|slot| slot.vulkan().into()).collect()
    }

    fn parameters(&self) -> &KernelParameters {
        self.kernel.parameters()
    }

    unsafe fn enqueue(&self, fill: &Fill, frame: &Frame, into: Place) -> Result<()> {
        let vertices = match into {
            Place::Slot(slot) => self.slots[slot].cuda(),
            Place::Own => self.own()?.pointer(),
        };
        let Grid { cols, rows } = self.grid;
        let launch = |kernel: &Kernel, stream: &Stream| {
            // SAFETY: both kernels have the documented signature; 16 bytes a vertex, which nobody else touches (the caller's
            // promise).
            unsafe {
                kernel.launch(stream, vertices, [cols, rows], frame.index, frame.time, &frame.parameters)
            }
        };
        fill.timed(frame.index, |stream| launch(&self.kernel, stream))?;
        self.stamp.as_ref().map_or(Ok(()), |stamp| launch(stamp, fill.stream()))
    }

    unsafe fn copy_to_slot(&self, stream: &Stream, slot: usize) -> Result<()> {
        // SAFETY: both have the grid's size in bytes; the rest is the caller's promise.
        unsafe { self.own()?.copy_to(stream, self.slots[slot].cuda()) }
    }

    fn read_own(&self, stream: &Stream, bytes: &mut [u8]) -> Result<()> {
        self.own()?.read(stream, bytes)
    }

    fn address(&self, slot: usize) -> Option<CUdeviceptr> {
        Some(self.slots[slot].cuda())
    }
}
