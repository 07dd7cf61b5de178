//! The CUDA kernel *inside the Vulkan command buffer*: no second context, no switch, no semaphore. The ring
//! only lets frames overlap. The extension is experimental, so this hand-off has a fallback.

use ash::vk;
use gpu_allocator::MemoryLocation;

use super::HandoffEntry;
use super::module::Module;
use crate::contents::wave::Grid;
use crate::producer::{Frame, Producer, ProducerDesc, Profile, Source, Vertices, check_grid, own_slots};
use wavefield_gpu::Result;
use wavefield_gpu::cuda::{Cuda, KernelSource, Signature};
use wavefield_gpu::vulkan::{Buffer, Device, Queue, buffer_barrier, pipeline_barrier};

pub(super) const INLINE: HandoffEntry = HandoffEntry {
    name: "inline",
    brief: "CUDA in Vulkan's commands",
    help: "The CUDA kernel inside Vulkan's command buffer (VK_NVX_binary_import), for fields only; falls \
           back to timeline. A kernel that faults there stops drawing on this GPU for every process: \
           see --risk-the-gpu",
    one_slot: false,
    supports: |info| info.inline.then_some(()).ok_or("the driver does not have VK_NVX_binary_import"),
    field: |queue, context, source, desc| Ok(Box::new(InlineHandoff::new(queue, context, source, desc)?)),
    texture: None,
};

struct InlineHandoff {
    module: Module,
    stamp: Option<Module>,
    _buffers: Vec<Buffer>,
    addresses: Vec<vk::DeviceAddress>,
    grid: Grid,
    profile: Profile,
    device: Device,
}

impl InlineHandoff {
    /// Loads the kernels, which `context` links. The queue's device was made with `inline`.
    pub(crate) fn new(
        queue: &Queue,
        context: &Cuda,
        source: &KernelSource,
        desc: &ProducerDesc,
    ) -> Result<Self> {
        let (device, grid) = (queue.device(), desc.grid);
        check_grid(device, grid)?;
        device.require_inline()?;
        let load = |source: &KernelSource| Module::new(device, context, source);
        let module = load(source)?;
        source.check_signature(Signature::Field)?;
        let stamp = desc.stamped.then(|| load(&crate::contents::built_in::frame_stamp())).transpose()?;
        let addressed = vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS;
        let buffers = own_slots(device, grid, desc.ring, addressed, MemoryLocation::GpuOnly)?;
        let address = |buffer: &Buffer| {
            let info = vk::BufferDeviceAddressInfo::default().buffer(buffer.raw());
            // SAFETY: a live buffer with the usage that this needs, on a device with the feature enabled.
            unsafe { device.raw().get_buffer_device_address(&info) }
        };
        let addresses = buffers.iter().map(address).collect();
        let slots = buffers.iter().map(|buffer| buffer.raw().into()).collect();
        let parameters = module.parameters.clone();
        let usual = Profile::of_queue("cuda, inline by VK_NVX_binary_import", slots);
        let profile = Profile { uses_cuda: true, in_queue: true, parameters, ..usual };
        let device = device.clone();
        Ok(Self { module, stamp, _buffers: buffers, addresses, grid, profile, device })
    }
}

impl Producer for InlineHandoff {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        let Source::Vertices(Vertices { buffer, .. }) = source else { return };
        let slot = self.profile.slot_of(frame.index);
        let barrier = |from, to| {
            // SAFETY: producers record outside a render pass; the barrier names one of this producer's slots.
            unsafe { pipeline_barrier(&self.device, commands, &[buffer_barrier(buffer, from, to)], &[]) };
        };
        let launch = |kernel: &Module| {
            // SAFETY: producers record outside a render pass. The signature was checked; the stamp has it too.
            // The slot lives as long as `self`, and the barriers order its memory.
            unsafe { kernel.launch(commands, self.addresses[slot], self.grid, frame) };
        };
        let kernels = vk::PipelineStageFlags2::COMPUTE_SHADER;
        let writes = (kernels, vk::AccessFlags2::SHADER_STORAGE_WRITE | vk::AccessFlags2::MEMORY_WRITE);
        barrier((frame.reads.stage, vk::AccessFlags2::NONE), writes);
        launch(&self.module);
        if let Some(stamp) = &self.stamp {
            // The stamp reads and writes what the kernel has written.
            barrier(writes, (kernels, writes.1 | vk::AccessFlags2::MEMORY_READ));
            launch(stamp);
        }
        barrier(writes, (frame.reads.stage, frame.reads.access));
    }
}
