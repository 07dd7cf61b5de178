//! Vulkan uses memory that CUDA allocated: what the example `08_cuda_memory` does not show. Also checks that
//! nothing is left when a Vulkan call of an import, or of the engine in `06_your_device`, fails.

use std::error::Error;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ash::vk;
use cudarc::driver::sys;
use vulkan_cuda::handle::Fd;
use vulkan_cuda::layout::Range;
use vulkan_cuda::shared_ring::{QueueUse, Resource};
use vulkan_cuda::{CudaAllocation, CudaBuffer, SharedRing, Slot};
use wavefield_test_support as common;
use wavefield_test_support::stand_in::{ALL, Run, StandIn, each, run};

use crate::{fill, match_devices, open, open_with, readback, your_device};

const USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::TRANSFER_SRC;
const RANGE: Range = Range { offset: 0, size: 4096 };

/// Its range is its own.
struct Part(CudaBuffer);

// SAFETY: it owns the buffer, and no other part overlaps it.
unsafe impl Slot for Part {
    fn resource(&self) -> Resource {
        self.0.resource()
    }
}

/// Buffers in CUDA's memory work as slots. CUDA allocates all of them in one allocation and hands them over
/// frame by frame.
#[test]
fn a_ring_hands_over_memory_of_cuda() {
    let Some((_alone, gpu)) = open() else { return };
    const FRAMES: u64 = 20;
    let words = RANGE.size as usize / 4;
    let seen = readback::Target::new(&gpu, FRAMES * RANGE.size).unwrap();
    let allocation = CudaAllocation::new(gpu.pair.cuda(), 3 * RANGE.size).unwrap();
    let slot = |index| {
        let range = Range { offset: index * RANGE.size, ..RANGE };
        CudaBuffer::new(&gpu.pair, &allocation, range, USAGE).map(Part)
    };
    let slots = (0..3).map(slot).collect::<vulkan_cuda::Result<_>>().unwrap();
    drop(allocation);
    let stage = vk::PipelineStageFlags::TRANSFER;
    let reader = QueueUse { family: gpu.family, stage, access: vk::AccessFlags::TRANSFER_READ };
    let (kernel, stream) = (fill::load(&gpu.cuda).unwrap(), gpu.cuda.new_stream().unwrap());
    let mut ring: SharedRing<Part> = SharedRing::new(&gpu.pair, stream.clone(), slots, reader).unwrap();
    for frame in 0..FRAMES {
        let write = ring.write().unwrap().unwrap();
        let address = write.slot().0.cuda().unwrap();
        // SAFETY: the slot has this many words, and CUDA owns it until `finish`.
        unsafe { fill::launch(&kernel, &stream, address, words, frame) }.unwrap();
        let read = write.finish().unwrap();
        let commands = seen.record(|device, commands| {
            let copy = [vk::BufferCopy::default().dst_offset(frame * RANGE.size).size(RANGE.size)];
            // SAFETY: the commands are being recorded for this family, and the copy lies within both buffers.
            unsafe {
                read.record(commands, |slot| {
                    device.cmd_copy_buffer(commands, slot.0.vulkan(), seen.buffer, &copy);
                });
            }
        });
        // SAFETY: the commands were recorded above, and everything lives until both sides are idle.
        unsafe { read.submit(|wait, signal| seen.submit(&gpu, commands.unwrap(), &[wait], &[signal])) }
            .unwrap();
    }
    stream.synchronize().unwrap();
    // SAFETY: nobody else uses the queue.
    unsafe { gpu.device.queue_wait_idle(gpu.queue) }.unwrap();
    let all = seen.words().unwrap();
    let wrong: Vec<_> = (0..FRAMES)
        .zip(all.chunks(words))
        .filter_map(|(frame, words)| {
            let at = fill::wrong(words, frame)?;
            // An earlier frame was read too early, a later one too late.
            let was = (0..FRAMES).find(|&other| words[at] == fill::word(at as u32, other));
            Some(format!("frame {frame}: word {at} is {:#x}, of frame {was:?}", words[at]))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// An impossible range is refused before the driver is asked for an import, and the error says why.
#[test]
fn ranges_that_no_buffer_can_have_are_refused_in_words() {
    let Some((_alone, gpu)) = open() else { return };
    let allocation = CudaAllocation::in_chunks(gpu.pair.cuda(), &[1, 1]).unwrap();
    let all = allocation.size();
    let refused = |range, part: &str| {
        let error = CudaBuffer::new(&gpu.pair, &allocation, range, USAGE).err();
        let text = error.unwrap_or_else(|| panic!("{range} was taken")).to_string();
        assert!(text.contains(part), "{text}");
    };
    refused(Range { offset: 0, size: 0 }, "0 bytes");
    refused(Range { offset: 0, size: all + 1 }, &format!("in memory of {all} bytes"));
    refused(Range { offset: 0, size: all }, "span 2 chunks");
    refused(Range { offset: 1, size: 64 }, "VkMemoryRequirements::alignment");
    assert!(allocation.export(2).unwrap_err().to_string().contains("no chunk 2 in memory of 2"));
    // None of these refusals prevents a later import.
    CudaBuffer::new(&gpu.pair, &allocation, Range { offset: all / 2, ..RANGE }, USAGE).unwrap();
    let view = CudaBuffer::new(&gpu.pair, &allocation, RANGE, USAGE).unwrap();
    assert_eq!((view.cuda(), view.size()), (Some(allocation.pointer()), RANGE.size));
    // The view keeps the allocation alive.
    assert_eq!(Arc::strong_count(&allocation), 2);
    drop(view);
    assert_eq!(Arc::strong_count(&allocation), 1);
}

/// Binds a buffer whose bytes lie in two chunks, and one whose bytes lie in the second chunk only.
#[test]
fn a_buffer_over_two_chunks_is_bound_sparsely() {
    let sparse = |has: vk::PhysicalDeviceFeatures| {
        vk::PhysicalDeviceFeatures::default().sparse_binding(has.sparse_binding == vk::TRUE)
    };
    let Some((_alone, gpu)) = open_with(sparse) else { return };
    let allocation = CudaAllocation::in_chunks(gpu.pair.cuda(), &[1, 1]).unwrap();
    let (chunk, block) = (allocation.chunks()[0], 64 << 10);
    // CUDA numbers the words around the seam.
    let around = Range { offset: chunk - block, size: 2 * block };
    let stream = gpu.cuda.new_stream().unwrap();
    let words = (around.size / 4) as u32;
    for word in 0..words {
        let address = allocation.pointer() + around.offset + 4 * u64::from(word);
        // SAFETY: the word is mapped at this address.
        unsafe { sys::cuMemsetD32Async(address, word, 1, stream.cu_stream()) }.result().unwrap();
    }
    stream.synchronize().unwrap();
    let bound = |range| {
        // SAFETY: the feature is enabled if the device has it, else this is an error; the queue is idle and
        // used by nobody else.
        unsafe { CudaBuffer::spanning(&gpu.pair, &allocation, range, USAGE, (gpu.queue, gpu.family)) }
    };
    for (range, first) in [(around, 0), (Range { offset: chunk, size: block }, words / 2)] {
        let view = match bound(range) {
            Ok(view) => view,
            Err(vulkan_cuda::Error::DeviceLacks(why)) => return common::skip_without_gpu(&why),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(view.cuda(), Some(allocation.pointer() + range.offset));
        let target = readback::Target::new(&gpu, range.size).unwrap();
        let copied = target.run(&gpu, |device, commands| {
            let copy = [vk::BufferCopy::default().size(range.size)];
            // SAFETY: the commands are being recorded, both buffers have this many bytes, and CUDA is done.
            unsafe { device.cmd_copy_buffer(commands, view.vulkan(), target.buffer, &copy) };
        });
        copied.unwrap();
        let wrong = (first..).zip(target.words().unwrap()).find(|(word, seen)| word != seen);
        assert_eq!(wrong, None, "{range}");
    }
    let text = bound(Range { offset: 16, ..around }).err().unwrap().to_string();
    assert!(text.contains("16") && text.contains("VkMemoryRequirements::alignment"), "{text}");
}

/// Shows why a stranger's descriptor is tried in its own process. The stand-in imitates NVIDIA's driver.
#[test]
#[ignore = "spoils imports for its process, so it runs on the stand-in alone"]
fn a_refused_import_costs_every_later_one() {
    let (_alone, gpu) = open().expect("the stand-in");
    let allocation = CudaAllocation::new(gpu.pair.cuda(), 1).unwrap();
    let size = allocation.size();
    let import = |fd: Fd| {
        // SAFETY: the descriptor is memory of this size, or the stand-in refuses it.
        unsafe { CudaBuffer::from_descriptor(gpu.pair.vk(), fd, size, RANGE, USAGE) }
    };
    drop(import(allocation.export(0).unwrap()).unwrap());
    let file = Fd::from(OwnedFd::from(File::open("/dev/null").unwrap()));
    let text = import(file).err().unwrap().to_string();
    assert!(text.contains("import of a file descriptor") && text.contains("llvmpipe"), "{text}");
    assert!(import(allocation.export(0).unwrap()).is_err());
}

/// Runs the tests above on the stand-in. They pass and give everything back.
#[test]
fn all_of_them_run_on_the_stand_in() {
    let Some(stand_in) = StandIn::new() else { return };
    for name in [
        "a_ring_hands_over_memory_of_cuda",
        "ranges_that_no_buffer_can_have_are_refused_in_words",
        "a_buffer_over_two_chunks_is_bound_sparsely",
        "a_refused_import_costs_every_later_one",
    ] {
        let done = attempt(&stand_in, name, "").unwrap();
        done.check_clean(0).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        let said = common::stdout(&done.output);
        assert!(said.contains("1 passed"), "{name}: {said}");
    }
}

/// Runs one test of this file in its own process, on the stand-in.
fn attempt(stand_in: &StandIn, name: &str, fail: &str) -> Result<Run, String> {
    let extensions = [&ALL[..], &["sparseBinding"]].concat();
    run(stand_in.test(module_path!(), name, &extensions).env("STAND_IN_FAIL", fail))
}

/// Ends the process as the program does: with exit code 1 after an error.
fn end(outcome: Result<(), Box<dyn Error>>) -> ! {
    if let Err(error) = &outcome {
        eprintln!("{error}");
    }
    std::process::exit(outcome.is_err().into())
}

#[test]
#[ignore = "ends its process"]
fn one_import() {
    let import = || {
        let gpu = match_devices::open()?;
        let allocation = CudaAllocation::new(gpu.pair.cuda(), RANGE.size)?;
        CudaBuffer::new(&gpu.pair, &allocation, RANGE, USAGE)?;
        Ok(())
    };
    end(import());
}

#[test]
#[ignore = "ends its process"]
fn one_sparse_import() {
    let import = || {
        let gpu = match_devices::open_with(|_| vk::PhysicalDeviceFeatures::default().sparse_binding(true))?;
        let allocation = CudaAllocation::in_chunks(gpu.pair.cuda(), &[1, 1])?;
        let all = Range { offset: 0, size: allocation.size() };
        let queue = (gpu.queue, gpu.family);
        // SAFETY: the device has the feature; the queue is idle, and nobody else uses it.
        unsafe { CudaBuffer::spanning(&gpu.pair, &allocation, all, USAGE, queue) }?;
        Ok(())
    };
    end(import());
}

/// CUDA imports what it exported. Ends with exit code 1 if memory runs out, and with 101 after any other
/// error.
#[test]
#[ignore = "ends its process"]
fn one_import_by_cuda() {
    let gpu = match_devices::open().unwrap();
    let cuda = gpu.pair.cuda();
    let allocation = CudaAllocation::new(cuda, RANGE.size).unwrap();
    let imported = CudaAllocation::import(cuda, &[(allocation.export(0).unwrap(), allocation.size())]);
    if let Err(error) = &imported {
        assert!(error.is_out_of_memory(), "{error:?}");
    }
    // `end` drops nothing.
    drop((allocation, gpu));
    end(imported.map(drop).map_err(Into::into));
}

#[test]
#[ignore = "ends its process"]
fn one_engine() {
    end(your_device::run());
}

/// After each failure, everything is given back and every descriptor is closed.
#[test]
fn every_vulkan_call_fails_in_turn() {
    let Some(stand_in) = StandIn::new() else { return };
    let mut cases = Vec::new();
    for name in ["one_import", "one_sparse_import", "one_engine"] {
        let done = attempt(&stand_in, name, "").unwrap();
        let report = done.check_clean(0).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        let silent = ["vkDestroy", "vkFree", "vkCmd", "vkUnmap"];
        // A `Drop` makes these two calls. If they fail, the engine still destroys what it has, and the ring
        // leaks its slots.
        let in_drop = ["vkDeviceWaitIdle", "vkGetSemaphoreCounterValue"];
        let can_fail = |call: &&String| {
            let starts = |start: &&str| call.starts_with(*start);
            call.starts_with("vk") && !silent.iter().chain(&in_drop).any(starts)
        };
        for call in report.calls.keys().filter(can_fail) {
            cases.push((name, call.clone(), 1));
            cases.push((name, call.clone(), report.count(call)));
        }
    }
    let problems = each(&cases, |(name, call, nth)| {
        let fail = format!("{call}:{}:{nth}", vk::Result::ERROR_OUT_OF_DEVICE_MEMORY.as_raw());
        let done = attempt(&stand_in, name, &fail)?;
        done.check_clean(1).map_err(|problem| format!("{name}, {fail}: {problem}")).map(drop)
    });
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), cases.len(), problems.join("\n"));
}

/// If CUDA runs out of memory during an import, the error says so, and everything is given back.
#[test]
fn an_import_says_that_memory_ran_out() {
    let Some(stand_in) = StandIn::new() else { return };
    attempt(&stand_in, "one_import_by_cuda", "").unwrap().check_clean(0).unwrap();
    let cases = [
        "cuMemImportFromShareableHandle:2:1",
        "cuMemGetAllocationPropertiesFromHandle:2:1",
        // The first mapping is the allocation's own. The second and third check the size.
        "cuMemMap:2:2",
        "cuMemMap:2:3",
        "cuMemMap:2:4",
    ];
    let problems = each(&cases, |fail| {
        let done = attempt(&stand_in, "one_import_by_cuda", fail)?;
        done.check_clean(1).map_err(|problem| format!("{fail}: {problem}")).map(drop)
    });
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), cases.len(), problems.join("\n"));
}

/// After a fault, CUDA signals nothing more. The engine's queue must not wait for CUDA for ever.
#[test]
fn an_engine_outlives_a_fault_of_cuda() {
    let Some(stand_in) = StandIn::new() else { return };
    let cases = [
        "cuLaunchKernel:700:1",
        "cuLaunchKernel:700:6",
        "cuSignalExternalSemaphoresAsync:719:3",
        "cuWaitExternalSemaphoresAsync:719:2",
        "cuStreamQuery:719:1",
    ];
    let problems = each(&cases, |fail| {
        let done = attempt(&stand_in, "one_engine", fail)?;
        done.check_exit(1).map_err(|problem| format!("{fail}: {problem}"))
    });
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), cases.len(), problems.join("\n"));
}
