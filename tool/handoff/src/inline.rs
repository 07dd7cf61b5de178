//! Runs the CUDA kernel *inside the Vulkan command buffer*: no second context, no switch, no semaphore. The
//! ring only lets frames overlap.

use std::ffi::c_void;

use ash::{nvx, vk};
use gpu_allocator::MemoryLocation;

use super::HandoffEntry;
use crate::contents::{built_in, wave::Grid};
use crate::producer::{Frame, Producer, ProducerDesc, Profile, Source, Vertices, check_grid, own_slots};
use wavefield_gpu::Result;
use wavefield_gpu::cuda::{Cuda, Kernel, KernelParameters, KernelSource, Signature, blocks, cubin};
use wavefield_gpu::vulkan::{Buffer, Device, Queue, buffer_barrier, cuda_inside_vulkan, pipeline_barrier};

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
}

impl InlineHandoff {
    /// Links the kernels with `context` and loads them. The queue's device must have been made with `inline`.
    fn new(queue: &Queue, context: &Cuda, source: &KernelSource, desc: &ProducerDesc) -> Result<Self> {
        let (device, grid) = (queue.device(), desc.grid);
        check_grid(device, grid)?;
        device.require_inline()?;
        let load = |source: &KernelSource| Module::new(device, context, source);
        let module = load(source)?;
        source.check_signature(Signature::Field)?;
        let stamp = desc.stamped.then(|| load(&built_in::frame_stamp())).transpose()?;
        let addressed = vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS;
        let buffers = own_slots(device, grid, desc.ring, addressed, MemoryLocation::GpuOnly)?;
        let address = |buffer: &Buffer| {
            let info = vk::BufferDeviceAddressInfo::default().buffer(buffer.raw());
            // SAFETY: a live buffer with the usage `addressed`, on a device with the feature enabled.
            unsafe { device.raw().get_buffer_device_address(&info) }
        };
        let addresses = buffers.iter().map(address).collect();
        let slots = buffers.iter().map(|buffer| buffer.raw().into()).collect();
        let parameters = module.parameters.clone();
        let usual = Profile::of_queue("cuda, inline by VK_NVX_binary_import", slots);
        let profile = Profile { uses_cuda: true, in_queue: true, parameters, ..usual };
        Ok(Self { module, stamp, _buffers: buffers, addresses, grid, profile })
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
            unsafe {
                pipeline_barrier(&self.module.device, commands, &[buffer_barrier(buffer, from, to)], &[])
            };
        };
        let launch = |kernel: &Module| {
            // SAFETY: producers record outside a render pass. `new` checked the kernel's signature, and the
            // stamp has the same. The slot lives as long as `self`, and the barriers order its memory.
            unsafe { kernel.launch(commands, self.addresses[slot], self.grid, frame) };
        };
        let kernels = vk::PipelineStageFlags2::COMPUTE_SHADER;
        let writes = (kernels, vk::AccessFlags2::SHADER_STORAGE_WRITE | vk::AccessFlags2::MEMORY_WRITE);
        barrier((frame.reads.stage, vk::AccessFlags2::NONE), writes);
        launch(&self.module);
        if let Some(stamp) = &self.stamp {
            // The stamp kernel reads and writes what the scene's kernel has written.
            barrier(writes, (kernels, writes.1 | vk::AccessFlags2::MEMORY_READ));
            launch(stamp);
        }
        barrier(writes, (frame.reads.stage, frame.reads.access));
    }
}

/// The maximum local memory of a thread, in bytes: half of what worked. Vulkan's driver reports no limit. On
/// an H100 and an H200 (driver 580), correct kernels ran with up to 12288 bytes. With 16384, the GPU stopped
/// drawing for every process, though the same kernel ran correctly on a CUDA stream.
const MOST_LOCAL_BYTES: u32 = 12288 / 2;

/// A CUDA kernel that Vulkan has loaded.
///
/// `VK_NVX_binary_import` takes machine code for one kind of GPU, which the CUDA driver's linker makes from
/// the PTX. The extension is experimental and hardly documented, so the hand-off has a fallback. It ran on an
/// H200 (driver 580). No driver was found that has its successor, `VK_NV_cuda_kernel_launch`.
struct Module {
    ext: nvx::binary_import::Device,
    module: vk::CuModuleNVX,
    function: vk::CuFunctionNVX,
    parameters: KernelParameters,
    block: u32,
    device: Device,
}

impl Module {
    /// Links the kernel with `context` and loads it. The device must have been made with `inline`.
    fn new(device: &Device, context: &Cuda, source: &KernelSource) -> Result<Self> {
        let entry = source.entry_name()?;
        let cubin = match &source.cubin {
            Some(cubin) => cubin.clone(),
            None => cubin::link(context, source)?,
        };
        // Vulkan does not report a kernel's allowed block sizes, but CUDA does, for the same code.
        let linked = KernelSource { cubin: Some(cubin.clone()), ..source.clone() };
        let kernel = Kernel::load(context, &linked)?;
        let bytes = kernel.local_bytes()?;
        if bytes > MOST_LOCAL_BYTES {
            return Err(source.problem(format!(
                "each thread needs {bytes} bytes of local memory, and --handoff inline allows {MOST_LOCAL_BYTES}: inside \
                 Vulkan's command buffer, kernels with 16384 stopped drawing on the GPU for every process \
                 (docs/reliability.md). Use another --handoff, or give the kernel smaller arrays"
            )));
        }
        let (parameters, block) = (kernel.parameters.clone(), kernel.block);

        let ext = nvx::binary_import::Device::new(device.instance().raw(), device.raw());
        let _alone = cuda_inside_vulkan();
        let raw = device.raw().handle();
        let info = vk::CuModuleCreateInfoNVX::default().data(cubin.bytes());
        let mut module = vk::CuModuleNVX::null();
        // SAFETY: the extension is enabled; `info` points to the machine code, which outlives the call.
        unsafe { (ext.fp().create_cu_module_nvx)(raw, &info, std::ptr::null(), &mut module) }
            .result()
            .map_err(device.failed("vkCreateCuModuleNVX"))?;
        let info = vk::CuFunctionCreateInfoNVX::default().module(module).name(&entry);
        let mut function = vk::CuFunctionNVX::null();
        // SAFETY: as above; the module was created above, and `entry` outlives the call.
        let made = unsafe { (ext.fp().create_cu_function_nvx)(raw, &info, std::ptr::null(), &mut function) };
        if let Err(result) = made.result() {
            // SAFETY: created above, and nothing refers to it.
            unsafe { (ext.fp().destroy_cu_module_nvx)(raw, module, std::ptr::null()) };
            return Err(device.failed("vkCreateCuFunctionNVX")(result));
        }
        Ok(Self { ext, module, function, parameters, block, device: device.clone() })
    }

    /// Records a launch with one thread for each vertex of the grid at the address `vertices`. The launch
    /// sees what earlier launches wrote to the module's memory, so a kernel may keep state there.
    ///
    /// # Safety
    /// `commands` must be recording, outside a render pass. The kernel must have the signature of a field
    /// kernel. The vertices must live until the GPU is done. Barriers must order all work on them.
    unsafe fn launch(
        &self,
        commands: vk::CommandBuffer,
        vertices: vk::DeviceAddress,
        grid: Grid,
        frame: &Frame,
    ) {
        let kernels = vk::PipelineStageFlags2::COMPUTE_SHADER;
        let both = vk::AccessFlags2::MEMORY_READ | vk::AccessFlags2::MEMORY_WRITE;
        // Covers all memory, because no Vulkan object represents the module's memory.
        let state = [vk::MemoryBarrier2::default()
            .src_stage_mask(kernels)
            .src_access_mask(vk::AccessFlags2::MEMORY_WRITE)
            .dst_stage_mask(kernels)
            .dst_access_mask(both)];
        let state = vk::DependencyInfo::default().memory_barriers(&state);
        // SAFETY: recording, outside a render pass (the caller's promise).
        unsafe { self.device.raw().cmd_pipeline_barrier2(commands, &state) };
        let mut values = self.parameters.values(&frame.parameters);
        let arguments: [*const c_void; 6] = [
            (&raw const vertices).cast(),
            (&raw const grid.cols).cast(),
            (&raw const grid.rows).cast(),
            (&raw const frame.index).cast(),
            (&raw const frame.time).cast(),
            values.pointer(),
        ];
        let arguments = &arguments[..if self.parameters.is_empty() { 5 } else { 6 }];
        let info = vk::CuLaunchInfoNVX {
            function: self.function,
            grid_dim_x: blocks(grid.count(), self.block),
            grid_dim_y: 1,
            grid_dim_z: 1,
            block_dim_x: self.block,
            block_dim_y: 1,
            block_dim_z: 1,
            param_count: arguments.len(),
            p_params: arguments.as_ptr(),
            ..Default::default()
        };
        // SAFETY: the arguments match the kernel's signature, and the vertices live (the caller's promise).
        // The extension is enabled, and copies the arguments while recording.
        unsafe { (self.ext.fp().cmd_cu_launch_kernel_nvx)(commands, &info) };
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.device.is_stuck() {
            return;
        }
        let (raw, none) = (self.device.raw().handle(), std::ptr::null());
        let _alone = cuda_inside_vulkan();
        // SAFETY: created from this device, and the GPU is done with both: see the module `vulkan`.
        unsafe {
            (self.ext.fp().destroy_cu_function_nvx)(raw, self.function, none);
            (self.ext.fp().destroy_cu_module_nvx)(raw, self.module, none);
        }
    }
}
