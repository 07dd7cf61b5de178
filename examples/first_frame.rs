//! A frame by hand: CUDA writes vertices, and Vulkan draws them from the same memory. The two wait for each other on the GPU.
//!
//! No library is used. Every call of Vulkan and CUDA is here, to read from top to bottom and to port call by call. ash writes
//! `vkCmdDraw` as `cmd_draw`; a call that can fail has its C name beside it.
//!
//! ```sh
//! cargo run --example first_frame -- --stage 1   # the UUIDs match
//! cargo run --example first_frame -- --stage 2   # CUDA wrote, Vulkan read: the CPU waits in between
//! cargo run --example first_frame -- --stage 3   # without a wait: wrong
//! cargo run --example first_frame -- --stage 4   # in order: the GPU waits
//! cargo run --example first_frame                # a picture, 100 frames: first_frame.png, or --output FILE
//! ```

#![allow(unsafe_op_in_unsafe_fn)] // As in C++, nearly every call is unsafe.

use std::error::Error;
use std::ffi::{CStr, OsString, c_void};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use ash::vk::{self, AccessFlags2 as Access, MemoryPropertyFlags as Kind, PipelineStageFlags2 as Stage};
use ash::{Device, khr};
use cudarc::driver::sys;

const FRAMES: u64 = 100;
const VERTICES: u32 = 1024;
const BYTES: u64 = VERTICES as u64 * size_of::<Vertex>() as u64;
const KERNEL: &str = concat!(include_str!("first_frame.ptx"), "\0"); // By hand, with its CUDA C++.
const FAMILY: u32 = 0; // With NVIDIA's driver, the first queue family can do everything.
type Vertex = [f32; 4]; // x, y, 0, and the frame's number, by which the check tells frames apart.
type Host = (vk::Buffer, vk::DeviceMemory, *const c_void); // What Vulkan copies for the CPU, and where the CPU sees it.
type Commands = vk::CommandBuffer;
type Result<T> = std::result::Result<T, Box<dyn Error>>;
/// Calls a function of CUDA. The error begins with its name.
macro_rules! cu {
    ($call:ident($($argument:expr),*)) => {
        sys::$call($($argument),*).result().map_err(of(stringify!($call)))
    };
}

/// For `map_err`: the same for a function of Vulkan.
fn of<E: std::fmt::Debug>(call: &str) -> impl Fn(E) -> Box<dyn Error> {
    move |error| format!("{call} failed: {error:?}").into()
}

/// The program. An error ends the process, and then the drivers free everything.
unsafe fn run(stage: u32, output: &Path) -> Result<()> {
    let gpu = open()?;
    let host = host_buffer(&gpu)?;
    match stage {
        1 => say("stage 1: the UUIDs match")?,
        2..=4 => check_frames(&gpu, &host, stage)?,
        _ => draw_frames(&gpu, &host, output)?,
    }
    cu!(cuModuleUnload(gpu.module))?;
    cu!(cuStreamDestroy_v2(gpu.stream))?;
    cu!(cuDevicePrimaryCtxRelease_v2(gpu.cuda))?;
    gpu.device.destroy_buffer(host.0, None);
    gpu.device.free_memory(host.1, None);
    gpu.device.destroy_command_pool(gpu.pool, None);
    gpu.device.destroy_device(None);
    gpu.instance.destroy_instance(None);
    Ok(())
}

// 1. The same GPU. Each API numbers the GPUs in an order of its own, and names repeat. The UUID is the same in both.
unsafe fn find_gpu() -> Result<(ash::Instance, vk::PhysicalDevice, sys::CUdevice)> {
    // Windows has no descriptors. cudarc would panic without the library, and at a function that the library lacks.
    if cfg!(windows) || !sys::is_culib_present() {
        return Err(skip("there is no CUDA driver for Linux (libcuda): install NVIDIA's"));
    }
    let (mut version, mut count, mut found) = (0, 0, Vec::new());
    cu!(cuInit(0)).map_err(skip)?;
    cu!(cuDriverGetVersion(&mut version))?;
    (version >= 11_040).then_some(()).ok_or_else(|| skip("the CUDA driver is older than 11.4: update it"))?;
    let entry = ash::Entry::load().map_err(|error| skip(format!("there is no Vulkan loader: {error}")))?;
    let entry = std::mem::ManuallyDrop::new(entry); // After an error the GPU may still run: do not unload drivers.
    let app = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
    let info = vk::InstanceCreateInfo::default().application_info(&app);
    let instance = entry.create_instance(&info, None).map_err(of("vkCreateInstance")).map_err(skip)?;
    for physical in instance.enumerate_physical_devices().map_err(of("vkEnumeratePhysicalDevices"))? {
        let mut id = vk::PhysicalDeviceIDProperties::default();
        let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut id);
        instance.get_physical_device_properties2(physical, &mut all);
        let (version, name) = (all.properties.api_version, all.properties.device_name);
        let uuid = u128::from_be_bytes(id.device_uuid);
        say(format!("Vulkan has {uuid:032x}, {:?}", CStr::from_ptr(name.as_ptr())))?;
        found.extend((version >= vk::API_VERSION_1_3).then_some((physical, uuid)));
    }
    cu!(cuDeviceGetCount(&mut count))?;
    for ordinal in 0..count {
        let (mut cuda, mut name, mut id) = (0, [0; 256], sys::CUuuid { bytes: [0; 16] });
        cu!(cuDeviceGet(&mut cuda, ordinal))?;
        cu!(cuDeviceGetName(name.as_mut_ptr(), 256, cuda))?;
        cu!(cuDeviceGetUuid_v2(&mut id, cuda))?;
        let uuid = u128::from_be_bytes(id.bytes.map(|byte| byte as u8));
        say(format!("CUDA has   {uuid:032x}, {:?}", CStr::from_ptr(name.as_ptr())))?;
        if let Some(&(physical, _)) = found.iter().find(|(_, other)| *other == uuid) {
            return Ok((instance, physical, cuda));
        }
    }
    Err(skip("no GPU with Vulkan 1.3 is a CUDA device too"))
}

// 2. A device of each API, on this GPU.
struct Gpu {
    instance: ash::Instance,
    device: Device,
    memory: vk::PhysicalDeviceMemoryProperties,
    pool: vk::CommandPool,
    cuda: sys::CUdevice,
    stream: sys::CUstream,
    module: sys::CUmodule,
    kernel: sys::CUfunction,
}

unsafe fn open() -> Result<Gpu> {
    let (instance, physical, cuda) = find_gpu()?;
    let names = [khr::external_memory_fd::NAME, khr::external_semaphore_fd::NAME].map(CStr::as_ptr);
    let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(FAMILY).queue_priorities(&[1.0])];
    let mut new = vk::PhysicalDeviceVulkan12Features::default().timeline_semaphore(true);
    let mut newer = vk::PhysicalDeviceVulkan13Features::default().synchronization2(true);
    newer.dynamic_rendering = vk::TRUE; // Only for the picture.
    let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_extension_names(&names);
    let info = info.push_next(&mut new).push_next(&mut newer);
    let device = instance.create_device(physical, &info, None).map_err(of("vkCreateDevice"))?;
    let memory = instance.get_physical_device_memory_properties(physical);
    let info = vk::CommandPoolCreateInfo::default().queue_family_index(FAMILY);
    let pool = device.create_command_pool(&info, None).map_err(of("vkCreateCommandPool"))?;
    let (mut context, mut stream, mut module, mut kernel) = (null_mut(), null_mut(), null_mut(), null_mut());
    cu!(cuDevicePrimaryCtxRetain(&mut context, cuda))?;
    cu!(cuCtxSetCurrent(context))?; // For this thread only.
    cu!(cuStreamCreate(&mut stream, 1))?; // CU_STREAM_NON_BLOCKING
    cu!(cuModuleLoadData(&mut module, KERNEL.as_ptr().cast()))?;
    cu!(cuModuleGetFunction(&mut kernel, module, c"first_wave".as_ptr()))?;
    Ok(Gpu { instance, device, memory, pool, cuda, stream, module, kernel })
}

// 3. One memory with two names: Vulkan allocates and exports, CUDA imports and maps.
struct Field {
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    imported: sys::CUexternalMemory,
    pointer: sys::CUdeviceptr,
}

unsafe fn share_memory(gpu: &Gpu) -> Result<Field> {
    // Both the buffer and its memory must say that they will be exported.
    let fd = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
    let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(fd);
    let usage = vk::BufferUsageFlags::VERTEX_BUFFER | vk::BufferUsageFlags::TRANSFER_SRC;
    let info = vk::BufferCreateInfo::default().size(BYTES).usage(usage).push_next(&mut external);
    let buffer = gpu.device.create_buffer(&info, None).map_err(of("vkCreateBuffer"))?;
    let required = gpu.device.get_buffer_memory_requirements(buffer);
    let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(fd);
    let mut dedicated = vk::MemoryDedicatedAllocateInfo::default().buffer(buffer);
    let info = memory(gpu, &required, Kind::DEVICE_LOCAL)?.push_next(&mut export).push_next(&mut dedicated);
    let memory = gpu.device.allocate_memory(&info, None).map_err(of("vkAllocateMemory"))?;
    gpu.device.bind_buffer_memory(buffer, memory, 0).map_err(of("vkBindBufferMemory"))?;
    // ANCHOR: import
    // The descriptor carries the memory over. After a successful import it is CUDA's: do not close it.
    let get = vk::MemoryGetFdInfoKHR::default().memory(memory).handle_type(fd);
    let exporter = khr::external_memory_fd::Device::new(&gpu.instance, &gpu.device);
    let fd = exporter.get_memory_fd(&get).map_err(of("vkGetMemoryFdKHR"))?;
    let type_ = sys::CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    let handle = sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1 { fd };
    // The allocation may be larger than the buffer. CUDA imports the one and maps the other.
    let (size, flags) = (required.size, sys::CUDA_EXTERNAL_MEMORY_DEDICATED);
    let whole = sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC { type_, handle, size, flags, reserved: [0; 16] };
    let part = sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC { offset: 0, size: BYTES, flags: 0, reserved: [0; 16] };
    let (mut imported, mut pointer) = (null_mut(), 0);
    cu!(cuImportExternalMemory(&mut imported, &whole))?;
    cu!(cuExternalMemoryGetMappedBuffer(&mut pointer, imported, &part))?;
    // ANCHOR_END: import
    Ok(Field { buffer, memory, imported, pointer })
}

// 4. Two timelines. CUDA signals `ready` when it has written a frame, and Vulkan signals `free` when it has read it. Both signal
// the frame's number. A timeline starts at 0 and must grow, so frames are counted from 1.
unsafe fn share_timeline(gpu: &Gpu) -> Result<(vk::Semaphore, sys::CUexternalSemaphore)> {
    let fd = vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;
    let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
    let mut export = vk::ExportSemaphoreCreateInfo::default().handle_types(fd);
    let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind).push_next(&mut export);
    let vulkan = gpu.device.create_semaphore(&info, None).map_err(of("vkCreateSemaphore"))?;
    let get = vk::SemaphoreGetFdInfoKHR::default().semaphore(vulkan).handle_type(fd);
    let exporter = khr::external_semaphore_fd::Device::new(&gpu.instance, &gpu.device);
    let fd = exporter.get_semaphore_fd(&get).map_err(of("vkGetSemaphoreFdKHR"))?;
    let type_ = sys::CUexternalSemaphoreHandleType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
    let handle = sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st__bindgen_ty_1 { fd };
    let desc = sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC { type_, handle, flags: 0, reserved: [0; 16] };
    let mut cuda = null_mut();
    cu!(cuImportExternalSemaphore(&mut cuda, &desc))?;
    Ok((vulkan, cuda))
}

// 5. CUDA's half of a frame: the call only enqueues the kernel. The kernel writes half a millisecond late, as a larger one would.
unsafe fn launch(gpu: &Gpu, field: &Field, frame: u64) -> Result<()> {
    let (mut out, mut count, mut number, mut late) = (field.pointer, VERTICES, frame as u32, 1_000_000u64);
    let mut all: [*mut c_void; 4] =
        [(&raw mut out).cast(), (&raw mut count).cast(), (&raw mut number).cast(), (&raw mut late).cast()];
    cu!(cuLaunchKernel(gpu.kernel, count / 256, 1, 1, 256, 1, 1, 0, gpu.stream, all.as_mut_ptr(), null_mut()))
}

// 6. Vulkan's half: it takes the buffer over from CUDA, uses it, and gives it back. CUDA has no call for its part of this.
unsafe fn submit(gpu: &Gpu, field: &Field, how: vk::SubmitInfo2, work: impl Fn(Commands)) -> Result<()> {
    let info = vk::CommandBufferAllocateInfo::default().command_pool(gpu.pool).command_buffer_count(1);
    let commands = gpu.device.allocate_command_buffers(&info).map_err(of("vkAllocateCommandBuffers"))?[0];
    gpu.device.begin_command_buffer(commands, &Default::default()).map_err(of("vkBeginCommandBuffer"))?;
    // ANCHOR: ownership
    let stage = Stage::COPY | Stage::VERTEX_ATTRIBUTE_INPUT; // Stages 2 to 4 copy the buffer, stage 5 draws it.
    let access = Access::TRANSFER_READ | Access::VERTEX_ATTRIBUTE_READ;
    let all = vk::BufferMemoryBarrier2::default().buffer(field.buffer).size(vk::WHOLE_SIZE);
    let all = all.src_stage_mask(stage).src_access_mask(access).dst_stage_mask(stage).dst_access_mask(access);
    let acquire = [all.src_queue_family_index(vk::QUEUE_FAMILY_EXTERNAL).dst_queue_family_index(FAMILY)];
    let release = [all.src_queue_family_index(FAMILY).dst_queue_family_index(vk::QUEUE_FAMILY_EXTERNAL)];
    let info = vk::DependencyInfo::default();
    gpu.device.cmd_pipeline_barrier2(commands, &info.buffer_memory_barriers(&acquire));
    work(commands);
    let copy = vk::MemoryBarrier2::default().src_stage_mask(Stage::COPY).dst_stage_mask(Stage::HOST);
    let copy = [copy.src_access_mask(Access::TRANSFER_WRITE).dst_access_mask(Access::HOST_READ)];
    gpu.device.cmd_pipeline_barrier2(commands, &info.buffer_memory_barriers(&release).memory_barriers(&copy));
    // ANCHOR_END: ownership
    gpu.device.end_command_buffer(commands).map_err(of("vkEndCommandBuffer"))?;
    let commands = [vk::CommandBufferSubmitInfo::default().command_buffer(commands)];
    let batch = [how.command_buffer_infos(&commands)];
    let queue = gpu.device.get_device_queue(FAMILY, 0);
    gpu.device.queue_submit2(queue, &batch, vk::Fence::null()).map_err(of("vkQueueSubmit2"))
}

// 7. The frames. The stages differ only in who waits: the CPU in stage 2, nobody in stage 3, the GPU in stages 4 and 5.
unsafe fn enqueue(gpu: &Gpu, stage: u32, last: u64, work: impl Fn(Commands, vk::Buffer, u64)) -> Result<()> {
    let (field, ready, free) = (share_memory(gpu)?, share_timeline(gpu)?, share_timeline(gpu)?);
    let mut wait: sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS = std::mem::zeroed();
    let mut signal: sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS = std::mem::zeroed();
    let at = vk::SemaphoreSubmitInfo::default().stage_mask(Stage::ALL_COMMANDS); // Less does not order the ownership.
    for frame in 1..=last {
        // ANCHOR: frame
        if stage >= 4 && frame > 1 {
            wait.params.fence.value = frame - 1; // Vulkan has read the frame before.
            cu!(cuWaitExternalSemaphoresAsync(&free.1, &wait, 1, gpu.stream))?;
        }
        launch(gpu, &field, frame)?;
        signal.params.fence.value = frame; // CUDA has written this frame.
        cu!(cuSignalExternalSemaphoresAsync(&ready.1, &signal, 1, gpu.stream))?;
        if stage == 2 {
            cu!(cuStreamSynchronize(gpu.stream))?;
        }
        let written = (stage >= 4).then_some(at.semaphore(ready.0).value(frame));
        let read = [at.semaphore(free.0).value(frame)];
        let batch = vk::SubmitInfo2::default().wait_semaphore_infos(written.as_slice());
        let batch = batch.signal_semaphore_infos(&read);
        submit(gpu, &field, batch, |commands| work(commands, field.buffer, frame))?;
        // ANCHOR_END: frame
    }
    // At the end the CPU waits, up to 10 seconds for each frame. Not for ever: after a fault, CUDA signals nothing more.
    for frame in 1..=last {
        let wait = |info| gpu.device.wait_semaphores(&info, 10_000_000_000).map_err(of("vkWaitSemaphores"));
        wait(vk::SemaphoreWaitInfo::default().semaphores(&[free.0]).values(&[frame]))?;
    }
    cu!(cuStreamSynchronize(gpu.stream))?;
    // First CUDA lets go, of the mapping before the import. Then Vulkan.
    for (vulkan, cuda) in [ready, free] {
        cu!(cuDestroyExternalSemaphore(cuda))?;
        gpu.device.destroy_semaphore(vulkan, None);
    }
    cu!(cuMemFree_v2(field.pointer))?;
    cu!(cuDestroyExternalMemory(field.imported))?;
    gpu.device.destroy_buffer(field.buffer, None);
    gpu.device.free_memory(field.memory, None);
    Ok(())
}

// 8. The check. Stages 2 to 4 copy the vertices of each frame, and the CPU looks at them all at the end.
// In stage 3 nothing holds the copies back. The CPU has soon enqueued all of them, but the 100 kernels take 50 milliseconds. So
// most copies find an older frame. The GPU may switch between CUDA and Vulkan, but not frame by frame.
unsafe fn check_frames(gpu: &Gpu, host: &Host, stage: u32) -> Result<()> {
    let frames = if stage == 2 { 1 } else { FRAMES };
    enqueue(gpu, stage, frames, |commands, buffer, frame| {
        let copy = vk::BufferCopy::default().dst_offset((frame - 1) * BYTES).size(BYTES);
        gpu.device.cmd_copy_buffer(commands, buffer, host.0, &[copy]);
    })?;
    let seen = std::slice::from_raw_parts(host.2.cast::<[Vertex; VERTICES as usize]>(), frames as usize);
    let wrong = (1..).zip(seen).filter(|(frame, seen)| !is_right(&seen[..], *frame)).count();
    let torn = seen.iter().filter(|seen| seen.iter().any(|vertex| vertex[3] != seen[0][3])).count();
    let who = ["CUDA wrote, Vulkan read", "without a wait", "in order"][stage as usize - 2];
    say(format!("stage {stage}, {who}: {wrong} of {frames} frames are wrong ({torn} torn)"))?;
    let unexpected = || "stages 2 and 4 must have no wrong frame, and stage 3 some: run it again".into();
    ((stage == 3) == (wrong > 0)).then_some(()).ok_or_else(unexpected)
}

fn is_right(seen: &[Vertex], frame: u64) -> bool {
    (0..).zip(seen).all(|(i, &[x, y, zero, number])| {
        let t = 2.0 * i as f32 / VERTICES as f32;
        let want = 0.7 * (std::f32::consts::TAU * (t - 0.0125 * frame as f32)).sin();
        x == t - 1.0 && (y - want).abs() < 1e-3 && zero == 0.0 && number == frame as f32
    })
}

unsafe fn host_buffer(gpu: &Gpu) -> Result<Host> {
    let info = vk::BufferCreateInfo::default().size(FRAMES * BYTES).usage(vk::BufferUsageFlags::TRANSFER_DST);
    let buffer = gpu.device.create_buffer(&info, None).map_err(of("vkCreateBuffer"))?;
    let required = gpu.device.get_buffer_memory_requirements(buffer);
    let info = memory(gpu, &required, Kind::HOST_VISIBLE | Kind::HOST_COHERENT)?;
    let memory = gpu.device.allocate_memory(&info, None).map_err(of("vkAllocateMemory"))?;
    gpu.device.bind_buffer_memory(buffer, memory, 0).map_err(of("vkBindBufferMemory"))?;
    let mapped = gpu.device.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty());
    Ok((buffer, memory, mapped.map_err(of("vkMapMemory"))?))
}

fn memory(gpu: &Gpu, need: &vk::MemoryRequirements, kind: Kind) -> Result<vk::MemoryAllocateInfo<'static>> {
    let all = gpu.memory.memory_types_as_slice();
    let suits = |i: &usize| need.memory_type_bits >> i & 1 == 1 && all[*i].property_flags.contains(kind);
    let found = (0..all.len()).find(suits).ok_or_else(|| format!("the GPU has no memory of {kind:?}"))?;
    Ok(vk::MemoryAllocateInfo::default().allocation_size(need.size).memory_type_index(found as u32))
}

// 9. The picture of stage 5. This is Vulkan alone: an image, a draw, a copy, a pipeline (with shaders/first_frame.wgsl).
const SIZE: vk::Extent2D = vk::Extent2D { width: 640, height: 360 };
const FORMAT: vk::Format = vk::Format::R8G8B8A8_UNORM;

unsafe fn draw_frames(gpu: &Gpu, host: &Host, output: &Path) -> Result<()> {
    let (device, color) = (&gpu.device, vk::ImageAspectFlags::COLOR);
    let usage = vk::ImageUsageFlags::COLOR_ATTACHMENT | vk::ImageUsageFlags::TRANSFER_SRC;
    let info = vk::ImageCreateInfo::default().image_type(vk::ImageType::TYPE_2D).format(FORMAT).usage(usage);
    let info = info.extent(SIZE.into()).mip_levels(1).array_layers(1).samples(vk::SampleCountFlags::TYPE_1);
    let image = device.create_image(&info, None).map_err(of("vkCreateImage"))?;
    let info = memory(gpu, &device.get_image_memory_requirements(image), Kind::DEVICE_LOCAL)?;
    let memory = device.allocate_memory(&info, None).map_err(of("vkAllocateMemory"))?;
    device.bind_image_memory(image, memory, 0).map_err(of("vkBindImageMemory"))?;
    let all = vk::ImageSubresourceRange::default().aspect_mask(color).level_count(1).layer_count(1);
    let info = vk::ImageViewCreateInfo::default().image(image).view_type(vk::ImageViewType::TYPE_2D);
    let info = info.format(FORMAT).subresource_range(all);
    let view = device.create_image_view(&info, None).map_err(of("vkCreateImageView"))?;
    let (pipeline, layout) = make_pipeline(device)?;
    let general = vk::ImageLayout::GENERAL;
    let (stage, access) = (Stage::ALL_COMMANDS, Access::MEMORY_READ | Access::MEMORY_WRITE);
    let barrier = |commands, from| {
        let barrier = vk::ImageMemoryBarrier2::default().image(image).subresource_range(all);
        let barrier = barrier.src_stage_mask(stage).src_access_mask(access).old_layout(from);
        let barrier = [barrier.dst_stage_mask(stage).dst_access_mask(access).new_layout(general)];
        let barrier = vk::DependencyInfo::default().image_memory_barriers(&barrier);
        device.cmd_pipeline_barrier2(commands, &barrier);
    };
    enqueue(gpu, 5, FRAMES, |commands, vertices, frame| {
        barrier(commands, vk::ImageLayout::UNDEFINED);
        let target = vk::RenderingAttachmentInfo::default().image_view(view).image_layout(general);
        let clear = vk::ClearValue { color: vk::ClearColorValue { float32: [0.05, 0.06, 0.1, 1.0] } };
        let target = [target.load_op(vk::AttachmentLoadOp::CLEAR).clear_value(clear)];
        let info =
            vk::RenderingInfo::default().render_area(SIZE.into()).layer_count(1).color_attachments(&target);
        device.cmd_begin_rendering(commands, &info);
        device.cmd_bind_pipeline(commands, vk::PipelineBindPoint::GRAPHICS, pipeline);
        device.cmd_bind_vertex_buffers(commands, 0, &[vertices], &[0]);
        device.cmd_draw(commands, VERTICES, 64, 0, 0); // 64 times: see the shader.
        device.cmd_end_rendering(commands);
        if frame == FRAMES {
            barrier(commands, general);
            let layer = vk::ImageSubresourceLayers::default().aspect_mask(color).layer_count(1);
            let copy = vk::BufferImageCopy::default().image_subresource(layer).image_extent(SIZE.into());
            device.cmd_copy_image_to_buffer(commands, image, general, host.0, &[copy]);
        }
    })?;
    let pixels = std::slice::from_raw_parts(host.2.cast(), 4 * (SIZE.width * SIZE.height) as usize);
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, SIZE.width, SIZE.height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.write_header()?.write_image_data(pixels)?;
    std::fs::write(output, file).map_err(|error| format!("cannot write {}: {error}", output.display()))?;
    device.destroy_pipeline(pipeline, None);
    device.destroy_pipeline_layout(layout, None);
    device.destroy_image_view(view, None);
    device.destroy_image(image, None);
    device.free_memory(memory, None);
    say(format!("stage 5, a picture, {FRAMES} frames: {}", output.display()))
}

unsafe fn make_pipeline(device: &Device) -> Result<(vk::Pipeline, vk::PipelineLayout)> {
    let shader = |bytes: &[u8]| -> Result<_> {
        let code = ash::util::read_spv(&mut io::Cursor::new(bytes))?;
        let info = vk::ShaderModuleCreateInfo::default().code(&code);
        device.create_shader_module(&info, None).map_err(of("vkCreateShaderModule"))
    };
    let vertex = shader(include_bytes!(concat!(env!("OUT_DIR"), "/first_frame.vertex_main.spv")))?;
    let fragment = shader(include_bytes!(concat!(env!("OUT_DIR"), "/first_frame.fragment_main.spv")))?;
    let stage = vk::PipelineShaderStageCreateInfo::default();
    let first = stage.stage(vk::ShaderStageFlags::VERTEX).module(vertex).name(c"vertex_main");
    let stages = [first, stage.stage(vk::ShaderStageFlags::FRAGMENT).module(fragment).name(c"fragment_main")];
    let binding = [vk::VertexInputBindingDescription::default().stride(size_of::<Vertex>() as u32)];
    let place = [vk::VertexInputAttributeDescription::default().format(vk::Format::R32G32_SFLOAT)];
    let input = vk::PipelineVertexInputStateCreateInfo::default().vertex_binding_descriptions(&binding);
    let input = input.vertex_attribute_descriptions(&place);
    let strip = vk::PrimitiveTopology::LINE_STRIP;
    let strip = vk::PipelineInputAssemblyStateCreateInfo::default().topology(strip);
    let view = vk::Viewport::default().width(SIZE.width as f32).height(SIZE.height as f32).max_depth(1.0);
    let (view, area) = ([view], [SIZE.into()]);
    let view = vk::PipelineViewportStateCreateInfo::default().viewports(&view).scissors(&area);
    let raster = vk::PipelineRasterizationStateCreateInfo::default().line_width(1.0);
    let one = vk::SampleCountFlags::TYPE_1;
    let samples = vk::PipelineMultisampleStateCreateInfo::default().rasterization_samples(one);
    let all = vk::ColorComponentFlags::RGBA;
    let target = [vk::PipelineColorBlendAttachmentState::default().color_write_mask(all)];
    let blend = vk::PipelineColorBlendStateCreateInfo::default().attachments(&target);
    let mut formats = vk::PipelineRenderingCreateInfo::default().color_attachment_formats(&[FORMAT]);
    let layout =
        device.create_pipeline_layout(&<_>::default(), None).map_err(of("vkCreatePipelineLayout"))?;
    let info = vk::GraphicsPipelineCreateInfo::default().layout(layout).stages(&stages);
    let info = info.vertex_input_state(&input).input_assembly_state(&strip).viewport_state(&view);
    let info = info.rasterization_state(&raster).multisample_state(&samples).color_blend_state(&blend);
    let info = [info.push_next(&mut formats)];
    let made = device.create_graphics_pipelines(vk::PipelineCache::null(), &info, None);
    let made = made.map_err(|(_, result)| result).map_err(of("vkCreateGraphicsPipelines"))?;
    device.destroy_shader_module(vertex, None);
    device.destroy_shader_module(fragment, None);
    Ok((made[0], layout))
}

// 10. What is left: output, errors, options.
fn say(text: impl AsRef<str>) -> Result<()> {
    Ok(writeln!(io::stdout(), "{}", text.as_ref())?)
}

fn skip(reason: impl ToString) -> Box<dyn Error> {
    io::Error::new(io::ErrorKind::Unsupported, reason.to_string()).into()
}

pub fn start(arguments: &[OsString]) -> u8 {
    let (mut stage, mut output) = (5, PathBuf::from("first_frame.png"));
    for pair in arguments.chunks(2) {
        match pair {
            [name, number] if name == "--stage" => stage = number.to_string_lossy().parse().unwrap_or(0),
            [name, file] if name == "--output" => output = file.into(),
            _ => stage = 0,
        }
    }
    if !(1..=5).contains(&stage) {
        eprintln!("usage: first_frame [--stage 1 to 5] [--output FILE]");
        return 2;
    }
    // SAFETY: one thread makes all calls, in the order that the two APIs ask for, with handles that live until `run` ends.
    let Err(error) = (unsafe { run(stage, &output) }) else { return 0 };
    let skipped = error.downcast_ref().is_some_and(|e: &io::Error| e.kind() == io::ErrorKind::Unsupported);
    eprintln!("{}: {error}", if skipped { "skipped" } else { "error (see docs/guide/src/questions.md)" });
    u8::from(!skipped || std::env::var("WAVEFIELD_REQUIRE_GPU").as_deref() == Ok("1"))
}

fn main() -> std::process::ExitCode {
    start(&std::env::args_os().skip(1).collect::<Vec<_>>()).into()
}
