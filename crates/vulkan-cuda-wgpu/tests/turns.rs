//! What goes wrong between wgpu and a ring, and what then. Runs on this machine's GPU, and on the stand-in.
#![cfg(target_os = "linux")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use vulkan_cuda_wgpu::{Error, Gpu, RingToCuda, WgpuBuffer, WgpuTurn, extend, picture};
use wavefield_test_support as common;
use wavefield_test_support::stand_in::{ALL, StandIn, run};
use wgpu::hal::vulkan::CreateDeviceCallbackArgs;
use wgpu::{BufferUsages, TextureUsages};

const BYTES: u64 = 1024;

/// Lets only one test run at a time: the stand-in has one device.
static ALONE: Mutex<()> = Mutex::new(());

/// Returns `None` and reports a skip if there is no GPU.
fn open() -> Option<(Gpu, MutexGuard<'static, ()>)> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    common::opened(another().map_err(Into::into), |error| {
        error.downcast_ref().is_some_and(Error::is_unavailable)
    })
    .map(|gpu| (gpu, alone))
}

fn another() -> Result<Gpu, Error> {
    Gpu::open(&adapter()?, &wgpu::DeviceDescriptor::default())
}

fn adapter() -> Result<wgpu::Adapter, Error> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: wgpu::Backends::VULKAN,
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    ready(vulkan_cuda_wgpu::find(&instance))
}

/// The result of a future that waits for nothing, as wgpu's are outside a browser.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(done) => done,
        std::task::Poll::Pending => panic!("wgpu waits"),
    }
}

fn buffers(gpu: &Gpu, count: usize) -> Vec<WgpuBuffer> {
    let usage = BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
    let desc = wgpu::BufferDescriptor { label: None, size: BYTES, usage, mapped_at_creation: false };
    (0..count).map(|_| gpu.buffer(&desc).unwrap()).collect()
}

fn ring(gpu: &Gpu, count: usize) -> RingToCuda<WgpuBuffer> {
    gpu.ring_to_cuda(gpu.context().new_stream().unwrap(), buffers(gpu, count)).unwrap()
}

/// wgpu writes zeros.
fn clear(gpu: &Gpu, turn: impl WgpuTurn<Slot = WgpuBuffer>) -> Result<wgpu::SubmissionIndex, Error> {
    gpu.submit(turn, |slot, encoder| encoder.clear_buffer(slot.wgpu(), 0, None))
}

/// CUDA reads the next frame.
fn read(ring: &mut RingToCuda<WgpuBuffer>) -> Vec<u32> {
    let turn = ring.next_read().unwrap().expect("a frame was written");
    let words = turn.stream().clone_dtoh(&turn.view::<u32>().unwrap()).unwrap();
    let stream = turn.stream().clone();
    turn.finish().unwrap();
    stream.synchronize().unwrap();
    words
}

#[test]
fn what_cannot_be_shared_is_refused() {
    let Some((gpu, _alone)) = open() else { return };
    let desc = |usage, mapped_at_creation| {
        gpu.buffer(&wgpu::BufferDescriptor { label: None, size: BYTES, usage, mapped_at_creation })
    };
    for (usage, mapped) in [(BufferUsages::MAP_READ, false), (BufferUsages::COPY_DST, true)] {
        let text = desc(usage, mapped).err().unwrap().to_string();
        assert!(text.contains("cannot be mapped"), "{text}");
    }
    let picture = picture((16, 8), wgpu::TextureFormat::Rgba8Unorm, TextureUsages::TEXTURE_BINDING);
    gpu.texture(&picture).unwrap();
    let layers = wgpu::Extent3d { depth_or_array_layers: 2, ..picture.size };
    for (refused, why) in [
        (wgpu::TextureDescriptor { size: layers, ..picture.clone() }, "one layer"),
        (wgpu::TextureDescriptor { sample_count: 4, ..picture.clone() }, "one sample"),
        (
            wgpu::TextureDescriptor { usage: TextureUsages::STORAGE_ATOMIC, ..picture.clone() },
            "no usages other",
        ),
        (wgpu::TextureDescriptor { format: wgpu::TextureFormat::Bc1RgbaUnorm, ..picture.clone() }, "BC1"),
    ] {
        let text = gpu.texture(&refused).err().unwrap().to_string();
        assert!(text.contains(why), "{why} is missing in: {text}");
    }
}

#[test]
fn another_gpus_turn_is_refused() {
    let Some((gpu, _alone)) = open() else { return };
    let other = another().unwrap();
    let mut ring = ring(&gpu, 1);
    let text = clear(&other, ring.write().unwrap()).unwrap_err().to_string();
    assert!(text.contains("not made by this Gpu"), "{text}");
    clear(&gpu, ring.write().unwrap()).unwrap();
    assert_eq!(read(&mut ring), [0; 256]);
}

/// A device that an engine has opened, with [`extend`] or without.
#[test]
fn a_device_that_is_open_is_adopted() {
    let Some((gpu, _alone)) = open() else { return };
    let adapter = adapter().unwrap();
    let (device, queue) = ready(adapter.request_device(&Default::default())).unwrap();
    let text = Gpu::adopt(&adapter, device.clone(), queue.clone()).err().unwrap().to_string();
    for part in ["VK_KHR_external_semaphore_fd", "Existing", "vulkan_cuda_wgpu::extend", "raw_vulkan_init"] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    assert!(!text.contains("VK_KHR_external_memory_fd"), "wgpu has enabled it: {text}");
    let (other_device, other_queue) = (gpu.device().clone(), gpu.queue().clone());
    for (device, queue) in [(device, other_queue), (other_device, queue)] {
        let text = Gpu::adopt(&adapter, device, queue).err().unwrap().to_string();
        assert!(text.contains("belong together"), "{text}");
    }

    // SAFETY: the adapter has the features and limits, and the extensions that are added.
    let (device, queue) = unsafe {
        let raw = adapter.as_hal::<wgpu::hal::vulkan::Api>().unwrap();
        let add = Box::new(|mut args: CreateDeviceCallbackArgs| extend(&mut args, &raw));
        let desc = wgpu::DeviceDescriptor::default();
        let (features, limits) = (desc.required_features, &desc.required_limits);
        let opened = raw.open_with_callback(features, limits, &desc.memory_hints, Some(add)).unwrap();
        adapter.create_device_from_hal(opened, &desc).unwrap()
    };
    let adopted = Gpu::adopt(&adapter, device, queue).unwrap();
    let mut ring = ring(&adopted, 1);
    clear(&adopted, ring.write().unwrap()).unwrap();
    assert_eq!(read(&mut ring), [0; 256]);
}

/// The frame never was, and neither its wait nor its signal goes with other work.
#[test]
fn commands_that_wgpu_refuses_give_the_frame_up() {
    let Some((gpu, _alone)) = open() else { return };
    let errors = Arc::new(AtomicU32::new(0));
    let count = errors.clone();
    gpu.device().on_uncaptured_error(Arc::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    let mut ring = ring(&gpu, 1);
    let wrong = gpu.submit(ring.write().unwrap(), |slot, encoder| {
        encoder.clear_buffer(slot.wgpu(), BYTES, Some(4)); // past the end
    });
    let text = wrong.unwrap_err().to_string();
    assert!(text.contains("wgpu refused"), "{text}");
    assert!(errors.load(Ordering::SeqCst) > 0);
    gpu.queue().submit([]);
    assert!(ring.next_read().unwrap().is_none());
    clear(&gpu, ring.write().unwrap()).unwrap();
    assert_eq!(read(&mut ring), [0; 256]);
    ring.wait_idle(Duration::from_secs(8)).unwrap();
}

/// wgpu's default error handler panics, and so may a callback. Neither the wait nor the signal goes with
/// other work, and a frame counts if it was submitted.
#[test]
fn a_panic_of_wgpu_leaves_nothing_behind() {
    let Some((gpu, _alone)) = open() else { return };
    let mut ring = ring(&gpu, 2);
    let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
    let desc = wgpu::BufferDescriptor { label: None, size: BYTES, usage, mapped_at_creation: false };
    let unmoved = AssertUnwindSafe(&gpu);
    if std::env::var_os("STAND_IN_PRETEND").is_some() {
        // This process runs no other test, and a panic in its output would be a failure.
        std::panic::set_hook(Box::new(|_| ()));
    }
    for frame in 0..4 {
        // A buffer that was destroyed makes the submission itself invalid.
        let gone = gpu.device().create_buffer(&desc);
        let turn = ring.write().unwrap();
        let submitted = catch_unwind(AssertUnwindSafe(|| {
            unmoved.submit(turn, |slot, encoder| {
                encoder.copy_buffer_to_buffer(slot.wgpu(), 0, &gone, 0, BYTES);
                gone.destroy();
            })
        }));
        assert!(submitted.is_err(), "wgpu's handler panics");
        gpu.queue().submit([]);
        assert!(ring.next_read().unwrap().is_none());
        clear(&gpu, ring.write().unwrap()).unwrap();
        assert_eq!(read(&mut ring), [0; 256]);
        // A callback that panics after the submission: `read` has seen that the GPU is done with the frame
        // before.
        let called = Arc::new(AtomicU32::new(0));
        let count = called.clone();
        gpu.queue().on_submitted_work_done(move || {
            count.fetch_add(1, Ordering::SeqCst);
            panic!("a callback");
        });
        for _ in 0..100 {
            let turn = ring.write().unwrap();
            let submitted = catch_unwind(AssertUnwindSafe(|| clear(&unmoved, turn)));
            assert_eq!(read(&mut ring), [0; 256], "frame {frame} was submitted: {}", submitted.is_ok());
            if called.load(Ordering::SeqCst) > 0 {
                break;
            }
        }
        assert_eq!(called.load(Ordering::SeqCst), 1);
    }
    ring.wait_idle(Duration::from_secs(8)).unwrap();
}

/// A callback that wgpu calls during `submit` cannot submit the next frame: it is refused, and nothing waits
/// for itself.
#[test]
fn a_callback_is_refused_a_submission() {
    let Some((gpu, _alone)) = open() else { return };
    let (mut ring, gpu) = (ring(&gpu, 2), Arc::new(gpu));
    let stream = gpu.context().new_stream().unwrap();
    let mut to_wgpu = gpu.shared_ring(stream, buffers(&gpu, 1)).unwrap();
    let next = to_wgpu.write().unwrap().unwrap().finish().unwrap();
    clear(&gpu, ring.write().unwrap()).unwrap();
    assert_eq!(read(&mut ring), [0; 256]);
    let answer = Arc::new(Mutex::new(None));
    let (tell, weak) = (answer.clone(), Arc::downgrade(&gpu));
    gpu.queue().on_submitted_work_done(move || {
        let gpu = weak.upgrade().expect("it is in use");
        *tell.lock().unwrap() = Some(clear(&gpu, next).map_err(|error| error.to_string()));
    });
    for _ in 0..100 {
        clear(&gpu, ring.write().unwrap()).unwrap();
        assert_eq!(read(&mut ring), [0; 256]);
        if answer.lock().unwrap().is_some() {
            break;
        }
    }
    let text = answer.lock().unwrap().take().expect("the callback was called").unwrap_err();
    assert!(text.contains("inside Gpu::submit"), "{text}");
    // The frame was given up.
    let next = to_wgpu.write().unwrap().unwrap().finish().unwrap();
    clear(&gpu, next).unwrap();
    to_wgpu.wait_idle(Duration::from_secs(8)).unwrap();
}

/// wgpu's buffer keeps its memory alive, and its device.
#[test]
fn a_buffer_may_outlive_its_ring() {
    let Some((gpu, _alone)) = open() else { return };
    let mut ring = ring(&gpu, 2);
    clear(&gpu, ring.write().unwrap()).unwrap();
    assert_eq!(read(&mut ring), [0; 256]);
    let buffer = ring.slots()[0].wgpu().clone();
    drop(ring);
    let mut encoder = gpu.device().create_command_encoder(&Default::default());
    encoder.clear_buffer(&buffer, 0, None);
    gpu.queue().submit([encoder.finish()]);
    let device = gpu.device().clone();
    drop(gpu);
    drop(device);
    drop(buffer);
}

/// Frames in both directions, and a frame that is given up.
#[test]
fn frames_go_both_ways() {
    let Some((gpu, _alone)) = open() else { return };
    let mut to_cuda = ring(&gpu, 2);
    let stream = gpu.context().new_stream().unwrap();
    let mut to_wgpu = gpu.shared_ring(stream.clone(), buffers(&gpu, 2)).unwrap();
    for frame in 0..20u32 {
        let turn = to_wgpu.write().unwrap().unwrap();
        stream.memcpy_htod(&[frame; 256], &mut turn.view::<u32>().unwrap()).unwrap();
        let written = turn.finish().unwrap();
        if frame % 5 == 4 {
            drop(written);
            continue;
        }
        // One copy takes the frame from one ring to the other.
        let from = written.slot().wgpu().clone();
        gpu.submit(written, |_, _| ()).unwrap();
        gpu.submit(to_cuda.write().unwrap(), |slot, encoder| {
            encoder.copy_buffer_to_buffer(&from, 0, slot.wgpu(), 0, BYTES);
        })
        .unwrap();
        assert_eq!(read(&mut to_cuda), [frame; 256]);
    }
}

#[test]
fn all_of_them_on_the_stand_in() {
    let Some(stand_in) = StandIn::new() else { return };
    for name in [
        "what_cannot_be_shared_is_refused",
        "another_gpus_turn_is_refused",
        "a_device_that_is_open_is_adopted",
        "commands_that_wgpu_refuses_give_the_frame_up",
        "a_panic_of_wgpu_leaves_nothing_behind",
        "a_callback_is_refused_a_submission",
        "a_buffer_may_outlive_its_ring",
        "frames_go_both_ways",
    ] {
        let mut test = std::process::Command::new(std::env::current_exe().unwrap());
        test.args(["--exact", name, "--nocapture"]).env("WAVEFIELD_REQUIRE_GPU", "1");
        let done = run(&mut stand_in.beneath(test, &ALL)).unwrap();
        done.check_clean(0).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        assert!(common::stdout(&done.output).contains("1 passed"), "{name}");
    }
}
