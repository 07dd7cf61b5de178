//! Misuse of the library by safe code, or by a program that cannot know better: each is refused in words. And
//! the guard before CUDA's signals. Runs on this machine's GPU, and on the stand-in.

#[allow(dead_code)] // The tests do not run the example.
#[path = "../../../../crates/vulkan-cuda/examples/01_match.rs"]
mod match_devices;
#[path = "../../../../crates/vulkan-cuda/examples/readback/mod.rs"]
mod readback;

use std::sync::{Arc, MutexGuard};

use ash::vk;
use cudarc::driver::{CudaStream, sys};
use match_devices::Gpu;
use vulkan_cuda::image::picture;
use vulkan_cuda::{
    Cuda, Driver, ImageRequest, Shape, SharedBinary, SharedBuffer, SharedImage, SharedTimeline, ViewType, Vk,
};
use wavefield_gpu::cuda::{Array, Stream};
use wavefield_test_support as common;
use wavefield_test_support::stand_in::{ALL, StandIn, run};

use crate::alone;

/// The device of one test at a time.
struct Alone {
    gpu: Gpu,
    _alone: MutexGuard<'static, ()>,
}

impl std::ops::Deref for Alone {
    type Target = Gpu;

    fn deref(&self) -> &Gpu {
        &self.gpu
    }
}

/// Returns `None` and reports a skip if there is no GPU.
fn open() -> Option<Alone> {
    let alone = alone();
    let gpu = common::opened(match_devices::open(), match_devices::is_unsupported)?;
    Some(Alone { gpu, _alone: alone })
}

/// A slot of 4 KiB that CUDA sets and Vulkan copies, frame by frame.
struct Memset {
    slot: SharedBuffer,
    ready: SharedTimeline,
    seen: readback::Target,
    stream: Arc<CudaStream>,
    gpu: Alone,
}

const WORDS: usize = 1024;

impl Memset {
    fn new() -> Option<Self> {
        let gpu = open()?;
        let bytes = 4 * WORDS as u64;
        Some(Self {
            slot: SharedBuffer::new(&gpu.pair, bytes, vk::BufferUsageFlags::TRANSFER_SRC).unwrap(),
            ready: SharedTimeline::new(&gpu.pair).unwrap(),
            seen: readback::Target::new(&gpu, bytes).unwrap(),
            stream: gpu.cuda.new_stream().unwrap(),
            gpu,
        })
    }

    /// Returns how many of some frames Vulkan read with old words, while another stream executes `others`
    /// memsets.
    fn wrong(&self, frames: std::ops::Range<u32>, others: usize, guarded: bool) -> usize {
        let other = self.gpu.cuda.new_stream().unwrap();
        // Memory that nothing else uses.
        let scratch =
            SharedBuffer::new(&self.gpu.pair, self.slot.size(), vk::BufferUsageFlags::TRANSFER_SRC).unwrap();
        let commands = self.seen.record(|device, commands| {
            let copy = [vk::BufferCopy::default().size(self.slot.size())];
            // SAFETY: the commands are being recorded, and the copy lies within both buffers.
            unsafe { device.cmd_copy_buffer(commands, self.slot.vulkan(), self.seen.buffer, &copy) };
        });
        let commands = commands.unwrap();
        let frames = frames.filter(|&frame| {
            let value = u64::from(frame) + 1;
            // SAFETY: both pointers have this many words, and live until the streams are idle; the values
            // rise.
            unsafe {
                for _ in 0..others {
                    sys::cuMemsetD32Async(scratch.cuda(), frame, WORDS, other.cu_stream()).result().unwrap();
                }
                sys::cuMemsetD32Async(self.slot.cuda(), frame, WORDS, self.stream.cu_stream())
                    .result()
                    .unwrap();
                match guarded {
                    true => self.ready.cuda_signal(&self.stream, value),
                    false => self.ready.cuda_signal_after_kernels(&self.stream, value),
                }
                .unwrap();
                self.seen.submit(&self.gpu, commands, &[self.ready.vulkan_wait(value)], &[]).unwrap();
                self.gpu.device.queue_wait_idle(self.gpu.queue).unwrap();
            }
            let wrong = self.seen.words().unwrap().iter().any(|&word| word != frame);
            self.stream.synchronize().unwrap();
            wrong
        });
        let wrong = frames.count();
        other.synchronize().unwrap();
        wrong
    }
}

/// Fails on an H200 and an H100 (driver 580.159.04) if the library does not guard its signals.
#[test]
fn a_signal_does_not_overtake_a_memset() {
    let Some(memset) = Memset::new() else { return };
    // The stand-in overtakes nothing.
    let (frames, others) = if std::env::var_os("STAND_IN_PRETEND").is_some() { (3, 1) } else { (400, 2000) };
    assert_eq!(memset.wrong(0..frames, others, true), 0, "of {frames} frames");
    let unguarded = memset.wrong(frames..2 * frames, others, false);
    println!("without the guard, {unguarded} of {frames} frames were wrong");
}

/// A wait or a signal in a graph would happen at each of its launches.
#[test]
fn a_captured_stream_is_refused() {
    let Some(gpu) = open() else { return };
    let timeline = SharedTimeline::new(&gpu.pair).unwrap();
    let binary = SharedBinary::new(&gpu.pair).unwrap();
    let stream = gpu.cuda.new_stream().unwrap();
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    // SAFETY: refused, so that nothing is enqueued.
    let refused = unsafe {
        [
            timeline.cuda_signal(&stream, 1),
            timeline.cuda_signal_after_kernels(&stream, 1),
            timeline.cuda_wait(&stream, 1),
            binary.cuda_signal(&stream),
        ]
    };
    for error in refused.map(Result::unwrap_err) {
        assert!(error.to_string().contains("is being captured"), "{error}");
    }
    stream
        .end_capture(sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)
        .unwrap();
    // The refusals used nothing up.
    // SAFETY: both live until the stream is idle.
    unsafe { timeline.cuda_signal(&stream, 1) }.unwrap();
    // SAFETY: as above.
    unsafe { binary.cuda_signal(&stream) }.unwrap();
    // SAFETY: as above.
    unsafe { binary.cuda_wait(&stream) }.unwrap();
    // SAFETY: refused, because this wait would never end.
    let text = unsafe { binary.cuda_wait(&stream) }.unwrap_err().to_string();
    assert!(text.contains("no such signal now"), "{text}");
    stream.synchronize().unwrap();
}

/// The fields of a description are public, but a context of another device than described would pass as a
/// twin.
#[test]
fn a_forged_description_is_refused() {
    let Some(gpu) = open() else { return };
    let driver = Driver::load().unwrap();
    let true_one = gpu.pair.cuda().info().clone();
    assert_eq!(Cuda::primary(driver, &true_one).unwrap().info(), &true_one);
    let mut forged = true_one;
    forged.uuid.0[0] ^= 1;
    let text = Cuda::primary(driver, &forged).err().unwrap().to_string();
    assert!(text.contains(&forged.uuid.to_string()) && text.contains("Driver::devices"), "{text}");
}

/// Only the program knows which features it enabled. It can promise them for a buffer, and not for an image.
#[test]
fn usages_that_need_a_feature_are_promised() {
    let Some(gpu) = open() else { return };
    let usage = vk::BufferUsageFlags::STORAGE_BUFFER | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS;
    let error = SharedBuffer::new(&gpu.pair, 64, usage).err().unwrap();
    let text = error.to_string();
    assert!(text.contains("SHADER_DEVICE_ADDRESS") && text.contains("allow_usages"), "{text}");
    assert!(!text.contains("STORAGE_BUFFER"), "{text}");
    let request = ImageRequest {
        shape: Shape::new(ViewType::D2, vk::Extent3D { width: 16, height: 16, depth: 1 }, 1, 1).unwrap(),
        format: vk::Format::R32_UINT,
        usage: vk::ImageUsageFlags::SAMPLED | vk::ImageUsageFlags::FRAGMENT_DENSITY_MAP_EXT,
        surface: false,
    };
    let error = SharedImage::new(&gpu.pair, &request).err().unwrap();
    let text = error.to_string();
    assert!(
        text.contains("FRAGMENT_DENSITY_MAP_EXT") && text.contains("use only those of Vulkan 1.0"),
        "{text}"
    );
}

/// Without a check, an instance of 1.0 or 1.1 aborts at the first question for a counter. NVIDIA's driver
/// gives such an instance the function all the same, and then it is not refused.
#[test]
fn an_older_instance_is_refused() {
    let _alone = alone();
    // SAFETY: the loader is the system's own.
    let Ok(entry) = (unsafe { ash::Entry::load() }) else {
        return common::skip_without_tools("there is no Vulkan loader");
    };
    for (version, may) in
        [(vk::API_VERSION_1_0, false), (vk::API_VERSION_1_1, false), (vk::API_VERSION_1_2, true)]
    {
        let app = vk::ApplicationInfo::default().api_version(version);
        let create = vk::InstanceCreateInfo::default().application_info(&app);
        // SAFETY: (all) live objects and descriptions of locals; destroyed once, last of all.
        unsafe {
            let instance = entry.create_instance(&create, None).unwrap();
            let Some(&physical) = instance.enumerate_physical_devices().unwrap().first() else {
                instance.destroy_instance(None);
                return common::skip_without_tools("there is no Vulkan device");
            };
            let priorities = [1.0];
            let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&priorities)];
            let mut timeline =
                vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
            let create = vk::DeviceCreateInfo::default().queue_create_infos(&queues);
            let create = if may { create.push_next(&mut timeline) } else { create };
            let device = instance.create_device(physical, &create, None).unwrap();
            let name = c"vkGetSemaphoreCounterValue";
            let has = instance.get_device_proc_addr(device.handle(), name.as_ptr()).is_some();
            match Vk::from_raw(instance.clone(), physical, device.clone(), Arc::new(())) {
                Ok(_) => assert!(has, "{version:#x}"),
                Err(error) => {
                    let expected = !may && !has && error.to_string().contains("apiVersion");
                    assert!(expected, "{version:#x}: {error}")
                }
            }
            device.destroy_device(None);
            instance.destroy_instance(None);
        }
    }
}

/// Copies between two contexts are undefined behaviour. A GPU has no second context here; the stand-in takes
/// any.
#[test]
fn a_copy_between_two_contexts_is_refused() {
    if std::env::var_os("STAND_IN_PRETEND").is_none() {
        return;
    }
    let gpu = open().unwrap();
    wavefield_gpu::cuda::load_driver().unwrap();
    let ours = gpu.pair.cuda();
    // SAFETY: the stand-in never looks at a context.
    let theirs = unsafe { Cuda::from_raw(std::ptr::without_provenance_mut(64), Arc::new(())) }.unwrap();
    let [stream, other] = [ours, &theirs].map(|cuda| Stream::new(cuda).unwrap());
    let request = picture(vk::Format::R32_UINT, 4, 4, 1).unwrap();
    let image = SharedImage::new(&gpu.pair, &request).unwrap();
    let level = image.level(0).unwrap();
    // SAFETY: the image owns the mipmapped array.
    let foreign = unsafe { Array::of_level(image.cuda(), 0, &theirs, image.clone()) }.unwrap();
    let mut bytes = [0; 16];
    // SAFETY: all are refused before the driver is called.
    let refused = unsafe {
        [
            level.copy_to_array(&other, &level, [16, 1]),
            level.copy_to_array(&stream, &foreign, [16, 1]),
            level.copy_to_host(&other, &mut bytes, 16),
        ]
    };
    for error in refused.map(Result::unwrap_err) {
        let text = error.to_string();
        assert!(text.contains("cuMemcpy2DAsync") && text.contains("one CUDA context"), "{text}");
    }
}

/// CUDA would map the buffer's size, and so more than the memory has. Only the stand-in says such a thing.
#[test]
fn memory_that_is_smaller_than_its_buffer_is_refused() {
    if std::env::var_os("STAND_IN_SMALL_BUFFERS").is_none() {
        return;
    }
    let gpu = open().unwrap();
    let usage = vk::BufferUsageFlags::STORAGE_BUFFER;
    let text = SharedBuffer::new(&gpu.pair, 4096, usage).err().expect("it is refused").to_string();
    assert!(text.contains("4096 bytes only 2048 bytes"), "{text}");
}

/// Runs the tests above on the stand-in. They give everything back.
#[test]
fn all_of_them_on_the_stand_in() {
    let Some(stand_in) = StandIn::new() else { return };
    let names = [
        "a_signal_does_not_overtake_a_memset",
        "a_captured_stream_is_refused",
        "a_forged_description_is_refused",
        "usages_that_need_a_feature_are_promised",
        "a_copy_between_two_contexts_is_refused",
        "memory_that_is_smaller_than_its_buffer_is_refused",
    ];
    for name in names {
        let mut test = stand_in.test(module_path!(), name, &ALL);
        if name == "memory_that_is_smaller_than_its_buffer_is_refused" {
            test.env("STAND_IN_SMALL_BUFFERS", "1");
        }
        let done = run(&mut test).unwrap();
        let report = done.check_clean(0).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        assert!(common::stdout(&done.output).contains("1 passed"), "{name}");
        if name == "a_signal_does_not_overtake_a_memset" {
            // Three of the six frames are guarded.
            assert_eq!(report.count("cuStreamWriteValue32_v2"), 3);
            assert_eq!(report.count("cuSignalExternalSemaphoresAsync"), 6);
        }
    }
}
