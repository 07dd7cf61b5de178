//! The CUDA kernel *inside the Vulkan command buffer*: no second context, no switch, no semaphore; the ring only
//! lets frames overlap.
//!
//! Two vendor extensions launch CUDA kernels from Vulkan. `VK_NV_cuda_kernel_launch` takes PTX; its predecessor
//! `VK_NVX_binary_import` takes machine code for the very GPU, which the CUDA driver's linker makes from the PTX. Both
//! are marked experimental and hardly documented, so this is an option with a fallback and not the default.
//!
//! The second was run on an H200 (driver 580). The first is written from its specification and was not run: no driver
//! that has it was at hand.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use ash::{nv, nvx, vk};
use gpu_allocator::MemoryLocation;

use crate::cuda::{Context, KernelSource, cubin};
use crate::interop::Ring;
use crate::interop::ownership::Owner;
use crate::producer::{Frame, FrameSync, Producer, barrier, check_grid, own_slots};
use crate::vulkan::{Buffer, Device, Queue, buffer_barrier};
use crate::wave::Grid;
use crate::{Error, Result};

/// Which extension launches CUDA kernels from Vulkan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InlineSupport {
    /// `VK_NV_cuda_kernel_launch`.
    KernelLaunch,
    /// `VK_NVX_binary_import`.
    BinaryImport,
}

impl InlineSupport {
    /// The device extension.
    pub fn extension(self) -> &'static std::ffi::CStr {
        match self {
            Self::KernelLaunch => nv::cuda_kernel_launch::NAME,
            Self::BinaryImport => nvx::binary_import::NAME,
        }
    }
}

/// Launches the kernel from the draw's own command buffer.
pub struct InlineHandoff {
    module: Module,
    /// Where frames are stamped: runs behind the kernel. See [`crate::verify::stamp`].
    stamp: Option<Module>,
    buffers: Vec<Buffer>,
    slots: Vec<vk::Buffer>,
    addresses: Vec<vk::DeviceAddress>,
    grid: Grid,
    context: Arc<Context>,
    device: Device,
}

impl InlineHandoff {
    /// The queue's device was made with `inline`. `context` is used to link kernels only.
    ///
    /// # Errors
    /// A device without either extension, a kernel that does not link, out of memory.
    pub fn new(
        queue: &Queue,
        context: &Arc<Context>,
        source: &KernelSource,
        grid: Grid,
        ring: Ring,
    ) -> Result<Self> {
        let device = queue.device();
        check_grid(device, grid)?;
        let module = Module::new(device, context, source)?;
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
}

impl Producer for InlineHandoff {
    fn name(&self) -> &'static str {
        match self.module.loaded {
            Loaded::Nv { .. } => "cuda, inline by VK_NV_cuda_kernel_launch",
            Loaded::Nvx { .. } => "cuda, inline by VK_NVX_binary_import",
        }
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
        self.module.launch(commands, self.addresses[slot], self.grid, frame);
        if let Some(stamp) = &self.stamp {
            // It reads and writes what the kernel has written.
            let again = (writes.0, writes.1 | vk::AccessFlags2::MEMORY_READ);
            barrier(&self.device, commands, buffer_barrier(buffer, writes, again));
            stamp.launch(commands, self.addresses[slot], self.grid, frame);
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
        self.stamp = Some(Module::new(&self.device, &self.context, &KernelSource::frame_stamp())?);
        Ok(())
    }
}

/// A kernel as Vulkan holds it.
struct Module {
    loaded: Loaded,
    device: Device,
}

enum Loaded {
    Nv { ext: nv::cuda_kernel_launch::Device, module: vk::CudaModuleNV, function: vk::CudaFunctionNV },
    Nvx { ext: nvx::binary_import::Device, module: vk::CuModuleNVX, function: vk::CuFunctionNVX },
}

impl Module {
    fn new(device: &Device, context: &Arc<Context>, source: &KernelSource) -> Result<Self> {
        let support = device.inline()?;
        let problem = |problem: &str| Error::Kernel { kernel: source.name.clone(), problem: problem.into() };
        let entry = CString::new(source.entry.as_str()).map_err(|_| problem("its entry has a zero byte"))?;
        let (instance, raw) = (device.instance().raw(), device.raw());
        let loaded = match support {
            InlineSupport::KernelLaunch => {
                let ptx = CString::new(source.ptx.as_str()).map_err(|_| problem("it has a zero byte"))?;
                Self::load_nv(device, nv::cuda_kernel_launch::Device::new(instance, raw), &ptx, &entry)?
            }
            InlineSupport::BinaryImport => {
                let cubin = match &source.cubin {
                    Some(cubin) => cubin.clone(),
                    None => cubin::link(context, source)?.into(),
                };
                Self::load_nvx(device, nvx::binary_import::Device::new(instance, raw), &cubin, &entry)?
            }
        };
        Ok(Self { loaded, device: device.clone() })
    }

    fn load_nv(
        device: &Device,
        ext: nv::cuda_kernel_launch::Device,
        ptx: &std::ffi::CStr,
        entry: &std::ffi::CStr,
    ) -> Result<Loaded> {
        let raw = device.raw().handle();
        let info = vk::CudaModuleCreateInfoNV::default().data(ptx.to_bytes_with_nul());
        let mut module = vk::CudaModuleNV::null();
        // SAFETY: the extension is enabled; `info` points to the text, which outlives the call.
        unsafe { (ext.fp().create_cuda_module_nv)(raw, &info, std::ptr::null(), &mut module) }
            .result()
            .map_err(device.failed("vkCreateCudaModuleNV"))?;
        let info = vk::CudaFunctionCreateInfoNV::default().module(module).name(entry);
        let mut function = vk::CudaFunctionNV::null();
        // SAFETY: as above.
        let made = unsafe { (ext.fp().create_cuda_function_nv)(raw, &info, std::ptr::null(), &mut function) };
        if let Err(result) = made.result() {
            // SAFETY: made above, and nothing refers to it.
            unsafe { (ext.fp().destroy_cuda_module_nv)(raw, module, std::ptr::null()) };
            return Err(device.failed("vkCreateCudaFunctionNV")(result));
        }
        Ok(Loaded::Nv { ext, module, function })
    }

    fn load_nvx(
        device: &Device,
        ext: nvx::binary_import::Device,
        cubin: &[u8],
        entry: &std::ffi::CStr,
    ) -> Result<Loaded> {
        let raw = device.raw().handle();
        let info = vk::CuModuleCreateInfoNVX::default().data(cubin);
        let mut module = vk::CuModuleNVX::null();
        // SAFETY: the extension is enabled; `info` points to the machine code, which outlives the call.
        unsafe { (ext.fp().create_cu_module_nvx)(raw, &info, std::ptr::null(), &mut module) }
            .result()
            .map_err(device.failed("vkCreateCuModuleNVX"))?;
        let info = vk::CuFunctionCreateInfoNVX::default().module(module).name(entry);
        let mut function = vk::CuFunctionNVX::null();
        // SAFETY: as above.
        let made = unsafe { (ext.fp().create_cu_function_nvx)(raw, &info, std::ptr::null(), &mut function) };
        if let Err(result) = made.result() {
            // SAFETY: made above, and nothing refers to it.
            unsafe { (ext.fp().destroy_cu_module_nvx)(raw, module, std::ptr::null()) };
            return Err(device.failed("vkCreateCuFunctionNVX")(result));
        }
        Ok(Loaded::Nvx { ext, module, function })
    }

    /// Records the launch with the documented signature, one thread a vertex.
    fn launch(&self, commands: vk::CommandBuffer, vertices: vk::DeviceAddress, grid: Grid, frame: &Frame) {
        let blocks = crate::cuda::blocks(grid.cols, grid.rows);
        let parameters: [*const c_void; 5] = [
            (&raw const vertices).cast(),
            (&raw const grid.cols).cast(),
            (&raw const grid.rows).cast(),
            (&raw const frame.index).cast(),
            (&raw const frame.time).cast(),
        ];
        match &self.loaded {
            Loaded::Nv { ext, function, .. } => {
                let info = vk::CudaLaunchInfoNV {
                    function: *function,
                    grid_dim_x: blocks,
                    grid_dim_y: 1,
                    grid_dim_z: 1,
                    block_dim_x: crate::cuda::BLOCK,
                    block_dim_y: 1,
                    block_dim_z: 1,
                    param_count: parameters.len(),
                    p_params: parameters.as_ptr(),
                    ..Default::default()
                };
                // SAFETY: recording, outside a render pass; the parameters have the documented types and are copied
                // while recording; the barriers around this order the memory.
                unsafe { (ext.fp().cmd_cuda_launch_kernel_nv)(commands, &info) };
            }
            Loaded::Nvx { ext, function, .. } => {
                let info = vk::CuLaunchInfoNVX {
                    function: *function,
                    grid_dim_x: blocks,
                    grid_dim_y: 1,
                    grid_dim_z: 1,
                    block_dim_x: crate::cuda::BLOCK,
                    block_dim_y: 1,
                    block_dim_z: 1,
                    param_count: parameters.len(),
                    p_params: parameters.as_ptr(),
                    ..Default::default()
                };
                // SAFETY: as above.
                unsafe { (ext.fp().cmd_cu_launch_kernel_nvx)(commands, &info) };
            }
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let raw = self.device.raw().handle();
        let none = std::ptr::null();
        // SAFETY: made from this device; whoever drops a resource waits for the GPU first (see the module `vulkan`).
        unsafe {
            match &self.loaded {
                Loaded::Nv { ext, module, function } => {
                    (ext.fp().destroy_cuda_function_nv)(raw, *function, none);
                    (ext.fp().destroy_cuda_module_nv)(raw, *module, none);
                }
                Loaded::Nvx { ext, module, function } => {
                    (ext.fp().destroy_cu_function_nvx)(raw, *function, none);
                    (ext.fp().destroy_cu_module_nvx)(raw, *module, none);
                }
            }
        }
    }
}
