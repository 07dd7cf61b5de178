//! Checks the answers to the guide's exercises, one at the end of each of its chapters 2 to 7: the solutions,
//! or with `EXERCISES=yours` your answers in `exercises/yours.rs`.

#![allow(dead_code)] // `Debug` reads the fields of the answers.

mod solutions;
mod yours;

use std::fmt::Debug;

use crate::ledger::Ledger;
use ash::vk;
use cudarc::driver::sys::CUDA_ARRAY3D_DESCRIPTOR;
use vulkan_cuda::handle::ExportType;
use vulkan_cuda::{ArrayFormat, CudaInfo, DeviceUuid, Ring, Shape, Turn, ViewType, VkInfo, find_twin};

/// What CUDA is told about a buffer of Vulkan's, by `CUDA_EXTERNAL_MEMORY_HANDLE_DESC` and
/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[derive(Debug)]
pub struct Told {
    pub import_size: u64,
    pub dedicated: bool,
    pub offset: u64,
    pub mapping_size: u64,
}

/// A signal of the only timeline, by CUDA or by Vulkan, at the end of this frame.
#[derive(Clone, Copy, Debug)]
pub enum Signal {
    Cuda(u64),
    Vulkan(u64),
}

/// The numbers of a frame.
#[derive(Debug)]
pub struct Prediction {
    pub slot: usize,
    pub waits_for: Option<u64>,
    pub has_waited_for: u64,
    pub signals_ready: u64,
    pub signals_free: u64,
}

/// What a minimised window leads to.
#[derive(Debug)]
pub struct Minimised {
    pub stuck: u64,
    pub waits_for: u64,
    pub free: u64,
    pub ring_at_13: Option<u64>,
    pub ring_at_17: Option<u64>,
}

/// Checks the solution, and that the start value is wrong. With `EXERCISES=yours` it checks the reader's
/// answer.
fn judge<A>(check: fn(A) -> Result<(), String>, yours: A, solution: A) {
    if std::env::var("EXERCISES").is_ok_and(|which| which == "yours") {
        return check(yours).unwrap_or_else(|why| panic!("{why}"));
    }
    check(solution).unwrap();
    check(yours).expect_err("yours.rs has an answer; EXERCISES=yours checks it");
}

/// Names the first field that is wrong, but not the right value.
fn compare(answer: impl Debug, right: impl Debug) -> Result<(), String> {
    let (answer, right) = (format!("{answer:?}"), format!("{right:?}"));
    let wrong = answer.split(", ").zip(right.split(", ")).find(|(answer, right)| answer != right);
    wrong.map_or(Ok(()), |(field, _)| Err(format!("not right: {field}")))
}

fn check_device(choose: fn(&VkInfo, &[CudaInfo]) -> Option<i32>) -> Result<(), String> {
    let vulkan = |id| VkInfo {
        name: "NVIDIA H200".into(),
        uuid: DeviceUuid([id; 16]),
        driver_uuid: [0; 16],
        luid: None,
        group_size: 1,
        buffer_export: Some(ExportType::HERE[0]),
        timeline_export: Some(ExportType::HERE[0]),
        binary_export: Some(ExportType::HERE[0]),
    };
    let cuda = |ordinal, id| CudaInfo {
        ordinal,
        name: "NVIDIA H200".into(),
        uuid: DeviceUuid([id; 16]),
        luid: None,
        compute_capability: (9, 0),
        timeline_interop: true,
    };
    let two = || vec![cuda(0, 1), cuda(1, 2)];
    for (case, vulkan, cuda) in [
        ("two devices of one name", vulkan(2), two()),
        ("CUDA's numbers swapped", vulkan(1), vec![cuda(0, 2), cuda(1, 1)]),
        ("a list without CUDA's device 0", vulkan(2), vec![cuda(1, 1), cuda(2, 2)]),
        ("a device that CUDA does not have", vulkan(3), two()),
        ("a device group", VkInfo { group_size: 2, ..vulkan(1) }, two()),
        ("no export of buffers", VkInfo { buffer_export: None, ..vulkan(1) }, two()),
        ("no export of timelines", VkInfo { timeline_export: None, ..vulkan(1) }, two()),
        ("no import of timelines", vulkan(1), vec![CudaInfo { timeline_interop: false, ..cuda(0, 1) }]),
    ] {
        let right = find_twin(&vulkan, &cuda).ok().map(|twin| twin.ordinal);
        compare(choose(&vulkan, &cuda), right).map_err(|why| format!("{case}: {why}"))?;
    }
    Ok(())
}

fn check_memory([alone, second]: [Told; 2]) -> Result<(), String> {
    let (size, required) = (1000, vk::MemoryRequirements::default().size(1008).alignment(256));
    let right = Told { import_size: required.size, dedicated: true, offset: 0, mapping_size: size };
    compare(alone, right).map_err(|why| format!("alone: {why}"))?;
    // As `ExportedAllocation` packs them.
    let offset = required.size.next_multiple_of(required.alignment);
    let right = Told { import_size: offset + required.size, dedicated: false, offset, mapping_size: size };
    compare(second, right).map_err(|why| format!("second: {why}"))
}

/// Replays the signals of one timeline that both sides of a ring of `depth` share. `Ok` if only the last
/// signal breaks the rule. With two slots it must not be that of frame 0, which the chapter has.
fn replay(order: &[Signal], depth: u64) -> Result<(), String> {
    let (mut counter, mut cuda, mut vulkan) = (0, 0, 0);
    for (place, &signal) in order.iter().enumerate() {
        let (frame, next, wait, value) = match signal {
            Signal::Cuda(n) => (n, &mut cuda, (2 * n + 2).saturating_sub(2 * depth), 2 * n + 1),
            Signal::Vulkan(n) => (n, &mut vulkan, 2 * n + 1, 2 * n + 2),
        };
        let why = match (value <= counter, place + 1 == order.len()) {
            _ if frame != *next => format!("each side takes its frames in order, and {next} is next"),
            _ if counter < wait => format!("it waits for {wait}, and the counter is {counter}"),
            (false, true) => format!("it signals {value} after {counter}, which is allowed"),
            (true, false) => "it breaks the rule already".into(),
            (true, true) if frame + 1 < depth => "it breaks the rule too early".into(),
            (true, true) => return Ok(()),
            (false, false) => {
                (counter, *next) = (value, *next + 1);
                continue;
            }
        };
        return Err(format!("{signal:?} at place {place}: {why}"));
    }
    Err("no signals".into())
}

fn check_ring(answer: Prediction) -> Result<(), String> {
    let Turn { slot, wait_free, signal_ready, signal_free, .. } = Ring::new(4).unwrap().turn(11);
    let right = Prediction {
        slot,
        // The batch has waited at frame 10, for what frame 11 needs.
        waits_for: None,
        has_waited_for: wait_free.unwrap(),
        signals_ready: signal_ready,
        signals_free: signal_free,
    };
    compare(answer, right)
}

fn check_frame(answer: Minimised) -> Result<(), String> {
    let ring = Ring::new(4).unwrap();
    let wait = |frame| ring.turn(frame).wait_free;
    let free = ring.turn(8).signal_free;
    let stuck = (9..).find(|&frame| wait(frame) > Some(free)).unwrap();
    let mut ledger = Ledger::new(ring);
    let mut waits = Vec::new();
    for frame in 0..=17 {
        waits.push(ledger.wait_for(1).filter(|&value| value > 0));
        waits[frame as usize].inspect(|&value| ledger.waits(value, frame));
        assert_eq!(ledger.hand_over(), frame);
        match frame {
            9..=12 => ledger.give_up(frame),
            _ => ledger.submitted(frame),
        }
    }
    let (waits_for, ring_at_13, ring_at_17) = (wait(stuck).unwrap(), waits[13], waits[17]);
    compare(answer, Minimised { stuck, waits_for, free, ring_at_13, ring_at_17 })
}

fn check_images((array, levels): (CUDA_ARRAY3D_DESCRIPTOR, u32)) -> Result<(), String> {
    let extent = vk::Extent3D { width: 256, height: 256, depth: 1 };
    let format = ArrayFormat::of(vk::Format::B8G8R8A8_UNORM).unwrap();
    let usage = vk::ImageUsageFlags::SAMPLED | vk::ImageUsageFlags::COLOR_ATTACHMENT;
    let shape = Shape::new(ViewType::CubeArray, extent, 12, 9).unwrap();
    let right = shape.mipmapped_array(format, usage, true);
    compare(array, right.arrayDesc)?;
    compare(format!("levels: {levels}"), format!("levels: {}", right.numLevels))
}

#[test]
fn device() {
    judge(check_device, yours::device, solutions::device);
}

#[test]
fn memory() {
    judge(check_memory, yours::memory(), solutions::memory());
}

#[test]
fn order() {
    judge(|order| replay(&order, 2), yours::order(), solutions::order());
}

#[test]
fn ring() {
    judge(check_ring, yours::ring(), solutions::ring());
}

#[test]
fn frame() {
    judge(check_frame, yours::frame(), solutions::frame());
}

#[test]
fn images() {
    judge(check_images, yours::images(), solutions::images());
}

/// Tries every order of up to eight signals.
#[test]
fn one_timeline_is_enough_for_one_slot() {
    for length in 1..=8 {
        for choice in 0..1_u32 << length {
            let (mut cuda, mut vulkan) = (0.., 0..);
            let signal = |place: u32| match (choice >> place) & 1 {
                0 => Signal::Cuda(cuda.next().unwrap()),
                _ => Signal::Vulkan(vulkan.next().unwrap()),
            };
            let order: Vec<_> = (0..length).map(signal).collect();
            assert!(replay(&order, 1).is_err(), "{order:?}");
        }
    }
}

/// A check is useful only if it can fail.
#[test]
fn wrong_answers_are_refused() {
    use Signal::{Cuda, Vulkan};
    let ([alone, second], (array, levels)) = (solutions::memory(), solutions::images());
    for (verdict, part) in [
        (check_device(|v, cuda| Some(cuda.iter().position(|it| it.uuid == v.uuid)? as i32)), "device 0"),
        (check_device(|v, cuda| Some(cuda.iter().find(|it| it.uuid == v.uuid)?.ordinal)), "group"),
        (check_memory([alone, Told { dedicated: true, ..second }]), "second: not right: dedicated: true"),
        (check_ring(Prediction { waits_for: Some(8), ..solutions::ring() }), "waits_for: Some(8)"),
        (check_frame(Minimised { ring_at_13: Some(10), ..solutions::frame() }), "ring_at_13: Some(10)"),
        (check_images((array, levels - 1)), "levels: 8"),
        (replay(&[Cuda(0), Vulkan(0)], 2), "allowed"),
        (replay(&[Vulkan(0)], 2), "waits for 1"),
        (replay(&[Cuda(1)], 2), "0 is next"),
        (replay(&[Cuda(0), Cuda(1), Vulkan(0)], 2), "too early"),
        (replay(&[Cuda(0), Cuda(1), Vulkan(0), Cuda(2)], 2), "already"),
    ] {
        let why = verdict.unwrap_err();
        assert!(why.contains(part), "{why}");
    }
}
