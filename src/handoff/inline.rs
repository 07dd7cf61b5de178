//! The CUDA kernel *inside the Vulkan command buffer*: no second context, no switch, no semaphore; the ring only
//! lets frames overlap.
//!
//! [`Module`] is the kernel as Vulkan holds it; what launches it is experimental, so this is an option with a fallback.

use std::ffi::c_void;

use ash::vk;
use gpu_allocator::MemoryLocation;
use vulkan_cuda::Ring;
use vulkan_cuda::ownership::Owner;

use super::module::Module;
use crate::Result;
use crate::cuda::{Cuda, KernelSource, Signature};
use crate::producer::{Frame, FrameSync, Producer, barrier, check_grid, own_slots};
use crate::vulkan::{Buffer, Device, Queue, buffer_barrier};
use crate::wave::Grid;

/// Launches the kernel from the draw's own command buffer.
pub struct InlineHandoff {
    module: Module,
    /// Where frames are stamped: runs behind the kernel. See [`crate::stamp`].
    stamp: Option<Module>,
    buffers: Vec<Buffer>,
    slots: Vec<vk::Buffer>,
    addresses: Vec<vk::DeviceAddress>,
    grid: Grid,
    context: Cuda,
    device: Device,
}

impl InlineHandoff {
    /// The queue's device was made with `inline`. `context` is used to link kernels, and to ask for their blocks.
    ///
    /// # Errors
    /// A device without either extension, a kernel that does not link or has another signature, out of memory.
    pub fn new(queue: &Queue, context: &Cuda, source: &KernelSource, grid: Grid, ring: Ring) -> Result<Self> {
        let device = queue.device();
        check_grid(device, grid)?;
        let module = Module::new(device, device.inline()?, context, source)?;
        source.check_signature(Signature::Field)?;
        let addressed = vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS;
        let buffers = own_slots(device, grid, ring, addressed, MemoryLocation::GpuOnly)?;
        let slots: Vec<_> = buffers.iter().map(Buffer::raw).collect();
        let address = |&slot| {
            let info = vk::BufferDeviceAddressInfo::default().buffer(slot);
            // SAFETY: a live buffer with the usage for it, on a device with the feature enabled.
            unsafe { device.raw().get_buffer_device_address(&info) }
        };
        let addresses = slots.iter().map(address).collect();
        Ok(Self {
            module,
            stamp: None,
            buffers,
            slots,
            addresses,
            grid,
            context: context.clone(),
            device: device.clone(),
        })
    }

    /// Records the launch of a kernel with the documented signature, one thread a vertex.
    fn launch(&self, kernel: &Module, commands: vk::CommandBuffer, slot: usize, frame: &Frame) {
        let (vertices, grid) = (self.addresses[slot], self.grid);
        let parameters: [*const c_void; 5] = [
            (&raw const vertices).cast(),
            (&raw const grid.cols).cast(),
            (&raw const grid.rows).cast(),
            (&raw const frame.index).cast(),
            (&raw const frame.time).cast(),
        ];
        // SAFETY: producers record outside a render pass; the parameters have the types of the signature that was
        // checked; the slot lives as long as this does, and the barriers around this order its memory.
        unsafe { kernel.launch(commands, grid, &parameters) };
    }
}

impl Producer for InlineHandoff {
    fn name(&self) -> &'static str {
        self.module.support().producer_name()
    }

    fn slots(&self) -> &[vk::Buffer] {
        &self.slots
    }

    fn produce(&mut self, _frame: &Frame) -> Result<()> {
        // All of it is in the command buffer.
        Ok(())
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame) {
        let slot = self.slot_of(frame.index);
        let buffer = self.buffers[slot].raw();
        let writes = (
            vk::PipelineStageFlags2::COMPUTE_SHADER,
            vk::AccessFlags2::SHADER_STORAGE_WRITE | vk::AccessFlags2::MEMORY_WRITE,
        );
        let reads = (frame.reads.stage, frame.reads.access);
        barrier(
            &self.device,
            commands,
            buffer_barrier(buffer, (frame.reads.stage, vk::AccessFlags2::NONE), writes),
        );
        self.launch(&self.module, commands, slot, frame);
        if let Some(stamp) = &self.stamp {
            // It reads and writes what the kernel has written.
            let again = (writes.0, writes.1 | vk::AccessFlags2::MEMORY_READ);
            barrier(&self.device, commands, buffer_barrier(buffer, writes, again));
            self.launch(stamp, commands, slot, frame);
        }
        barrier(&self.device, commands, buffer_barrier(buffer, writes, reads));
    }

    fn record_after_draw(&self, _commands: vk::CommandBuffer, _frame: &Frame) {}

    fn sync(&mut self, _frame: &Frame) -> Result<FrameSync> {
        Ok(FrameSync::default())
    }

    fn owner(&self) -> Owner {
        Owner::Queue
    }

    fn runs_in_queue(&self) -> bool {
        true
    }

    fn stamp_frames(&mut self) -> Result<()> {
        let (support, source) = (self.module.support(), KernelSource::frame_stamp());
        self.stamp = Some(Module::new(&self.device, support, &self.context, &source)?);
        Ok(())
    }
}
