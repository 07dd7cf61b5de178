//! What safe code may do with a second context, a second ring, a captured stream and a second thread.

use cudarc::driver::CudaContext;
use vulkan_cuda::shared_ring::{self, SharedRing, VulkanTurn};
use vulkan_cuda::{Cuda, Pair};

use super::*;

/// Another context of the same GPU.
fn second(gpu: &Gpu) -> Arc<CudaContext> {
    CudaContext::new_non_primary(gpu.pair.cuda().info().ordinal as usize, 0).unwrap()
}

fn both(family: u32) -> QueueUse {
    let access = vk::AccessFlags::TRANSFER_READ | vk::AccessFlags::TRANSFER_WRITE;
    QueueUse { family, stage: vk::PipelineStageFlags::TRANSFER, access }
}

fn buffers(gpu: &Gpu, count: usize) -> Vec<SharedBuffer> {
    let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
    (0..count).map(|_| SharedBuffer::new(&gpu.pair, BYTES, usage).unwrap()).collect()
}

/// A ring to Vulkan, on `stream`.
fn to_vulkan(gpu: &Gpu, stream: Arc<CudaStream>, count: usize) -> SharedRing<SharedBuffer> {
    SharedRing::new(&gpu.pair, stream, buffers(gpu, count), both(gpu.family)).unwrap()
}

/// Records a copy of the slot's words to the memory that the CPU reads.
fn record_copy(read: &VulkanTurn<SharedBuffer>, seen: &readback::Target) -> vk::CommandBuffer {
    let copy = [vk::BufferCopy::default().size(BYTES)];
    seen.record(|device, commands| {
        // SAFETY: being recorded for this family; both buffers have this many bytes.
        unsafe {
            read.record(commands, |slot| device.cmd_copy_buffer(commands, slot.vulkan(), seen.buffer, &copy))
        };
    })
    .unwrap()
}

fn submit_copy(gpu: &Gpu, read: VulkanTurn<SharedBuffer>, seen: &readback::Target) {
    let commands = record_copy(&read, seen);
    // SAFETY: recorded above, and submitted once; everything lives until both sides are idle.
    unsafe { read.submit(|wait, signal| seen.submit(gpu, commands, &[wait], &[signal])) }.unwrap();
}

fn idle(gpu: &Gpu) {
    // SAFETY: nobody else uses the queue.
    unsafe { gpu.device.queue_wait_idle(gpu.queue) }.unwrap();
}

/// Vulkan writes the next frame while the other context's copy of this one would still run.
fn copied_from_another(other: &Arc<CudaContext>) {
    let Some(mut bench) = Bench::new(1) else { return };
    let stream = other.new_stream().unwrap();
    for frame in 0..6 {
        bench.write(frame + 1);
        let read = bench.ring.next_read().unwrap().unwrap();
        let view = read.view::<u32>().unwrap();
        assert!(stream.clone_dtod(&view).is_err(), "nothing would wait for the copy");
        // Through the ring's stream it works.
        let ours = bench.stream.clone_dtod(&view).unwrap();
        read.finish().unwrap();
        let theirs = stream.clone_dtod(&ours).unwrap();
        bench.write(0xdead);
        bench.check(u64::from(2 * frame + 1), 0xdead);
        let words = stream.clone_dtoh(&theirs).unwrap();
        stream.synchronize().unwrap();
        compare(0, &words, |_| frame + 1);
    }
    // The other direction is ordered by the ring's stream.
    let theirs = stream.clone_htod(&[77_u32; WORDS]).unwrap();
    let seen = readback::Target::new(&bench.gpu, BYTES).unwrap();
    let mut ring = to_vulkan(&bench.gpu, bench.stream.clone(), 1);
    let write = ring.write().unwrap().unwrap();
    bench.stream.memcpy_dtod(&theirs, &mut write.view::<u32>().unwrap()).unwrap();
    submit_copy(&bench.gpu, write.finish().unwrap(), &seen);
    ring.wait_idle(LIMIT).unwrap();
    assert_eq!(seen.words().unwrap(), [77; WORDS]);
    // The ring is gone before the other context is done with anything.
    bench.write(5);
    drop(bench);
    stream.synchronize().unwrap();
}

#[test]
fn a_stream_of_another_context_cannot_copy_a_view() {
    let Some((alone, gpu)) = open() else { return };
    let other = second(&gpu);
    drop((gpu, alone));
    copied_from_another(&other);
}

#[test]
fn a_stream_of_another_gpu_cannot_copy_a_view() {
    let Some((alone, gpu)) = open() else { return };
    let ours = gpu.pair.cuda().info().ordinal as usize;
    let Ok(other) = CudaContext::new(usize::from(ours == 0)) else {
        return common::skip("there is no second CUDA device");
    };
    drop((gpu, alone));
    copied_from_another(&other);
}

/// Their handles are equal. Work on the other one is waited for, as on any other stream.
#[test]
fn the_default_streams_of_two_contexts_are_two() {
    let Some((_alone, gpu)) = open() else { return };
    let other = second(&gpu);
    let (theirs, ours) = (other.default_stream(), gpu.cuda.default_stream());
    assert_eq!(theirs.cu_stream(), ours.cu_stream());
    let pair = Pair::new(gpu.pair.vk().clone(), Cuda::from_cudarc(&other).unwrap()).unwrap();
    let gate = SharedTimeline::new(&pair).unwrap();
    let seen = readback::Target::new(&gpu, BYTES).unwrap();
    let mut ring = to_vulkan(&gpu, ours, 1);
    for frame in 0..4_u32 {
        let write = ring.write().unwrap().expect("it was read");
        // Their stream is busy until another thread opens the gate.
        // SAFETY: the gate lives until their stream is idle.
        unsafe { gate.cuda_wait(&theirs, u64::from(frame) + 1) }.unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(60));
                // SAFETY: nobody else signals the gate.
                unsafe { gate.signal_from_host(u64::from(frame) + 1) }.unwrap();
            });
            theirs.memcpy_htod(&[frame + 1; WORDS], &mut write.view::<u32>().unwrap()).unwrap();
            submit_copy(&gpu, write.finish().unwrap(), &seen);
            idle(&gpu);
        });
        assert_eq!(seen.words().unwrap(), [frame + 1; WORDS]);
    }
    theirs.synchronize().unwrap();
    ring.wait_idle(LIMIT).unwrap();
}

#[test]
fn slots_of_another_context_are_refused() {
    let Some((_alone, gpu)) = open() else { return };
    let other = second(&gpu);
    let pair = Pair::new(gpu.pair.vk().clone(), Cuda::from_cudarc(&other).unwrap()).unwrap();
    let buffer = || SharedBuffer::new(&pair, BYTES, vk::BufferUsageFlags::TRANSFER_SRC).unwrap();
    let request = picture(vk::Format::R32_UINT, SIDE, SIDE, 1).unwrap();
    let image = || {
        let (image, device) = (SharedImage::new(&pair, &request).unwrap(), gpu.device.clone());
        let (framebuffer, set, view) = Default::default();
        Picture { framebuffer, set, view, device, image }
    };
    let stream = gpu.cuda.new_stream().unwrap();
    let refused = [
        SharedRing::new(&gpu.pair, stream.clone(), vec![buffer()], both(gpu.family)).err(),
        SharedRing::new(&gpu.pair, stream.clone(), vec![image()], both(gpu.family)).err(),
        RingToCuda::new(&gpu.pair, stream.clone(), vec![buffer()], both(gpu.family)).err(),
        RingToCuda::new(&gpu.pair, stream, vec![image()], both(gpu.family)).err(),
    ];
    for error in refused {
        let text = error.expect("another context's memory").to_string();
        assert!(text.contains("objects of one CUDA context"), "{text}");
    }
}

#[test]
fn a_use_of_nothing_is_refused() {
    let Some((_alone, gpu)) = open() else { return };
    let stream = gpu.cuda.new_stream().unwrap();
    let fine = both(gpu.family);
    for (queue, why) in [
        (QueueUse { family: 77, ..fine }, "queue families"),
        (QueueUse { stage: vk::PipelineStageFlags::empty(), ..fine }, "a stage"),
        (QueueUse { access: vk::AccessFlags::empty(), ..fine }, "an access"),
    ] {
        let text =
            SharedRing::new(&gpu.pair, stream.clone(), buffers(&gpu, 1), queue).err().unwrap().to_string();
        assert!(text.contains(why), "{why} is missing in: {text}");
        assert!(RingToCuda::new(&gpu.pair, stream.clone(), buffers(&gpu, 1), queue).is_err(), "{why}");
    }
    let usage = |raw| {
        SharedBuffer::new(&gpu.pair, BYTES, vk::BufferUsageFlags::from_raw(raw)).err().unwrap().to_string()
    };
    for raw in [0x200, 0x8000_0000, u32::MAX] {
        assert!(usage(raw).contains("allow_usages"), "{}", usage(raw));
    }
    let transient = vk::ImageUsageFlags::TRANSIENT_ATTACHMENT | vk::ImageUsageFlags::COLOR_ATTACHMENT;
    let request = ImageRequest { usage: transient, ..picture(vk::Format::R8G8B8A8_UNORM, 8, 8, 1).unwrap() };
    let text = SharedImage::new(&gpu.pair, &request).err().unwrap().to_string();
    assert!(text.contains("TRANSIENT_ATTACHMENT") && text.contains("keep"), "{text}");
}

/// What the stand-in must do as a driver does: read host memory, also with gaps, and name a kernel that it
/// does not have.
#[test]
fn copies_from_host_memory_and_unknown_kernels() {
    let Some(mut bench) = BenchOf::<Picture>::new(1) else { return };
    let stream = bench.stream.clone();
    bench.write(7);
    let read = bench.ring.next_read().unwrap().unwrap();
    let array = read.slot().image.level(0).unwrap();
    let (row, rows) = (4 * SIDE as usize, SIDE as usize);
    let from: Vec<u32> = (0..2 * WORDS as u32).collect(); // each row is followed by as many words that are not copied
    // SAFETY: a plain description, whose null is valid.
    let mut copy: sys::CUDA_MEMCPY2D = unsafe { std::mem::MaybeUninit::zeroed().assume_init_read() };
    copy.srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
    copy.srcHost = from.as_ptr().cast();
    copy.srcPitch = 2 * row;
    copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array.raw();
    (copy.WidthInBytes, copy.Height) = (row, rows);
    // SAFETY: both sides have these rows, and the slot is CUDA's.
    unsafe { sys::cuMemcpy2DAsync_v2(&copy, stream.cu_stream()) }.result().unwrap();
    drop(from); // pageable memory was read before the call returned
    let linear = stream.alloc_zeros::<u32>(WORDS).unwrap();
    // SAFETY: as many bytes, which live until the stream is idle.
    unsafe { read.slot().copy(&stream, linear.device_ptr(&stream).0) }.unwrap();
    read.finish().unwrap();
    let words = stream.clone_dtoh(&linear).unwrap();
    stream.synchronize().unwrap();
    for (place, word) in words.into_iter().enumerate() {
        assert_eq!(word as usize, place / SIDE as usize * 2 * SIDE as usize + place % SIDE as usize);
    }
    let ptx = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nobody_knows(.param .u64 p)\n{ ret; }";
    let module = bench.gpu.cuda.load_module(cudarc::nvrtc::Ptx::from_src(ptx)).unwrap();
    let is_stand_in = std::env::var_os("STAND_IN_PRETEND").is_some();
    assert_eq!(module.load_function("nobody_knows").is_err(), is_stand_in);
}

/// Only the context itself tells of a fault: what the GPU used is freed without a wait after one.
#[test]
fn no_code_makes_up_a_fault() {
    let Some(mut bench) = Bench::new(1) else { return };
    let cuda = bench.gpu.pair.cuda().clone();
    for code in [700, 719] {
        assert!(cuda.check("cuCtxSynchronize", vulkan_cuda::cuda::api::Code(code)).is_err());
    }
    assert!(!cuda.has_faulted());
    bench.ring.check().unwrap();
    bench.write(3);
    bench.check(0, 3);
}

/// The frame would go into a graph, and every launch of that would repeat it. So none begins, and the capture
/// stays whole.
#[test]
fn a_captured_stream_gets_no_frame() {
    let Some(mut bench) = Bench::new(2) else { return };
    let mut ring = to_vulkan(&bench.gpu, bench.stream.clone(), 2);
    bench.write(1);
    let capture = |stream: &CudaStream| {
        stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
    };
    let end = |stream: &CudaStream| {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is being captured.
        unsafe { sys::cuStreamEndCapture(stream.cu_stream(), &mut graph) }.result().unwrap();
    };
    capture(&bench.stream);
    for text in [
        ring.write().err().unwrap().to_string(),
        ring.write_batch(2, |write| write.finish()).unwrap_err().to_string(),
        bench.ring.next_read().err().unwrap().to_string(),
    ] {
        assert!(text.contains("is being captured"), "{text}");
    }
    end(&bench.stream);
    // Or the capture begins in the middle of a frame.
    let write = ring.write().unwrap().unwrap();
    capture(&bench.stream);
    assert!(write.view::<u32>().err().unwrap().to_string().contains("is being captured"));
    drop(write);
    end(&bench.stream);
    let read = bench.ring.next_read().unwrap().unwrap();
    capture(&bench.stream);
    assert!(read.view::<u32>().err().unwrap().to_string().contains("is being captured"));
    end(&bench.stream);
    drop(read);
    // Or after the view was made.
    let write = ring.write().unwrap().unwrap();
    let mut view = write.view::<u32>().unwrap();
    capture(&bench.stream);
    assert!(bench.stream.memcpy_htod(&[1_u32; WORDS], &mut view).is_err(), "it would go into the graph");
    end(&bench.stream);
    drop(write);
    bench.write(2);
    bench.check(1, 2);
    assert_eq!(ring.write().unwrap().unwrap().frame(), 0);
}

/// Nothing would order the other stream's copy: so it does not begin.
#[test]
#[ignore = "needs a driver that fails"]
fn a_stream_that_cannot_wait_is_refused() {
    let Some(mut bench) = Bench::new(1) else { return };
    let other = bench.gpu.cuda.new_stream().unwrap();
    bench.write(1);
    let read = bench.ring.next_read().unwrap().unwrap();
    assert!(other.clone_dtoh(&read.view::<u32>().unwrap()).is_err());
    drop(read);
    bench.ring.wait_idle(LIMIT).unwrap();
}

/// Frames of rings of both directions, and two of one ring, in one submission: all of them count, or none.
#[test]
fn several_turns_go_in_one_submission() {
    let Some(mut bench) = Bench::new(2) else { return };
    let BenchOf { ring: to_cuda, commands: seen, stream, gpu, .. } = &mut bench;
    let (mut left, mut right) = (to_vulkan(gpu, stream.clone(), 2), to_vulkan(gpu, stream.clone(), 3));
    let write = |ring: &mut SharedRing<SharedBuffer>, value: u32| {
        let write = ring.write().unwrap().expect("every frame was read");
        stream.memcpy_htod(&[value; WORDS], &mut write.view::<u32>().unwrap()).unwrap();
        write.finish().unwrap()
    };
    let held = |ring: &SharedRing<SharedBuffer>| ring.progress().unwrap().held.len();
    for round in 0..10_u32 {
        // One failing submission gives all frames up, and nobody waits for them.
        let (read, to) = (write(&mut left, 1), to_cuda.write().unwrap());
        // SAFETY: nothing is submitted.
        let failed: Result<(), Error> =
            unsafe { shared_ring::submit((read, to), |_, _| Err(Error::Rule("no".into()))) };
        assert_eq!(failed.unwrap_err().to_string(), "no");
        assert_eq!((held(&left), to_cuda.unread()), (0, 0));

        let read = write(&mut left, round);
        let others = vec![write(&mut right, 100), write(&mut right, 200 + round)];
        let to = to_cuda.write().unwrap();
        let copy = [vk::BufferCopy::default().size(BYTES)];
        let commands = seen.record(|device, commands| {
            // SAFETY: being recorded for this family; the buffers have this many bytes.
            unsafe {
                read.record(commands, |from| {
                    to.record(commands, |to| {
                        device.cmd_copy_buffer(commands, from.vulkan(), to.vulkan(), &copy)
                    });
                });
                for other in &others {
                    other.record(commands, |from| {
                        device.cmd_copy_buffer(commands, from.vulkan(), seen.buffer, &copy);
                    });
                }
            }
        });
        let commands = commands.unwrap();
        // SAFETY: recorded above, and submitted once with all semaphores; everything lives until both sides
        // are idle.
        unsafe {
            shared_ring::submit((read, (others, to)), |waits, signals| {
                // Two frames of one ring have one timeline.
                assert_eq!((waits.len(), signals.len()), (3, 3));
                seen.submit(gpu, commands, waits, signals)
            })
        }
        .unwrap();
        let turn = to_cuda.next_read().unwrap().expect("it was submitted");
        let words = stream.clone_dtoh(&turn.view::<u32>().unwrap()).unwrap();
        turn.finish().unwrap();
        stream.synchronize().unwrap();
        compare(0, &words, |_| round);
        assert_eq!(seen.words().unwrap(), [200 + round; WORDS]);
        assert_eq!((held(&left), held(&right)), (0, 0));
    }
    // One that may not be submitted takes the others with it, and nothing is submitted.
    let (first, second) = (write(&mut left, 1), write(&mut left, 2));
    submit_copy(gpu, second, seen);
    let refused: Result<(), Error> =
        // SAFETY: nothing is submitted.
        unsafe { shared_ring::submit((write(&mut right, 3), first), |_, _| panic!("the order is wrong")) };
    assert!(refused.unwrap_err().to_string().contains("submitted after frame"));
    assert_eq!((held(&left), held(&right)), (0, 0));
    for ring in [&mut left, &mut right] {
        let read = write(ring, 7);
        submit_copy(gpu, read, seen);
        ring.wait_idle(LIMIT).unwrap();
    }
}

/// A host's signal must raise the counter (`VUID-VkSemaphoreSignalInfo-value-03258`): only one thread may
/// make it.
#[test]
#[ignore = "spoils the context"]
fn two_threads_may_check_after_a_fault() {
    let Some((_alone, gpu)) = open() else { return };
    let (stream, seen) = (gpu.cuda.new_stream().unwrap(), readback::Target::new(&gpu, BYTES).unwrap());
    let gate = SharedTimeline::new(&gpu.pair).unwrap();
    let mut rings: Vec<_> = (0..16).map(|_| to_vulkan(&gpu, stream.clone(), 1)).collect();
    // SAFETY: the gate lives until the process ends.
    unsafe { gate.cuda_wait(&stream, 1) }.unwrap();
    for ring in &mut rings {
        let read = ring.write().unwrap().unwrap().finish().unwrap();
        submit_copy(&gpu, read, &seen);
    }
    // The stand-in lets the first question for the stream report a fault.
    for ring in &rings {
        let together = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    together.wait();
                    assert!(ring.check().is_err());
                });
            }
        });
    }
    idle(&gpu);
    std::mem::forget(gate);
}
