//! Runs the library's examples to their end: on this machine's GPU, and on the stand-in. (`serve.rs` runs
//! `client`.)

#![allow(dead_code)] // The examples run without their `main`.

#[path = "../../examples/04_another_library.rs"]
mod another_library;
#[path = "../../examples/08_cuda_memory.rs"]
mod cuda_memory;
#[path = "../../examples/09_formats.rs"]
mod formats;
#[path = "../../examples/03_hand_over.rs"]
mod hand_over;
#[path = "../../examples/05_read_back.rs"]
mod read_back;
#[path = "../../examples/02_share.rs"]
mod share;
#[path = "../../examples/07_your_cuda.rs"]
mod your_cuda;

use wavefield_test_support as common;
#[cfg(target_os = "linux")]
use wavefield_test_support::stand_in;

use crate::{match_devices, your_device};

/// Runs an example. Its error fails the test, unless it reports that the machine lacks something: that is a
/// skip.
fn finish(run: impl FnOnce() -> Result<(), Box<dyn std::error::Error>>) {
    let _alone = crate::alone();
    common::opened(run(), match_devices::is_unsupported);
}

macro_rules! runs {
    ($($name:ident: $example:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            finish($example::run);
        }
    )*};
}

runs! {
    a_device_is_matched: match_devices,
    a_buffer_is_shared: share,
    frames_are_handed_over: hand_over,
    another_library_takes_a_slot: another_library,
    a_picture_goes_to_cuda: read_back,
    an_engine_keeps_its_own_device: your_device,
    a_kernel_of_cudarc_fills_the_slots: your_cuda,
    every_format_arrives: formats,
}

/// The part of `08_cuda_memory` that runs in its own process. As an ordinary test it does nothing.
#[cfg(unix)]
#[test]
fn a_descriptor_is_tried() {
    if cuda_memory::stranger::is_child() {
        cuda_memory::stranger::be_child();
    }
}

#[test]
fn memory_of_cuda_is_imported() {
    // Its child process runs the test above.
    let child = common::test_process(module_path!(), "a_descriptor_is_tried");
    finish(|| cuda_memory::run(child));
}

/// Runs the tests above on the stand-in. They pass and give everything back.
#[cfg(target_os = "linux")]
#[test]
fn all_of_them_run_on_the_stand_in() {
    use stand_in::{ALL, StandIn, run};
    let Some(stand_in) = StandIn::new() else { return };
    let names = [
        "a_device_is_matched",
        "a_buffer_is_shared",
        "frames_are_handed_over",
        "another_library_takes_a_slot",
        "a_picture_goes_to_cuda",
        "an_engine_keeps_its_own_device",
        "a_kernel_of_cudarc_fills_the_slots",
        "memory_of_cuda_is_imported",
    ];
    for name in names {
        let done = run(&mut stand_in.test(module_path!(), name, &ALL)).unwrap();
        done.check_clean(0).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        let said = common::stdout(&done.output);
        assert!(said.contains("1 passed"), "{name}: {said}");
    }
}

/// After a fault, CUDA signals nothing more. Wherever the example then returns, Vulkan's queue must not wait
/// for CUDA for ever.
#[cfg(target_os = "linux")]
#[test]
fn an_example_outlives_a_fault_of_cuda() {
    use stand_in::{ALL, StandIn, each, run};
    let Some(stand_in) = StandIn::new() else { return };
    let cases = [
        ("frames_are_handed_over", "cuLaunchKernel:700:6"),
        ("frames_are_handed_over", "cuWaitExternalSemaphoresAsync:719:2"),
        ("a_picture_goes_to_cuda", "cuLaunchKernel:700:6"),
        ("a_picture_goes_to_cuda", "cuWaitExternalSemaphoresAsync:719:2"),
        ("a_kernel_of_cudarc_fills_the_slots", "cuLaunchKernel:700:6"),
        ("a_kernel_of_cudarc_fills_the_slots", "cuSignalExternalSemaphoresAsync:719:3"),
    ];
    let problems = each(&cases, |&(name, fail)| {
        let done = run(stand_in.test(module_path!(), name, &ALL).env("STAND_IN_FAIL", fail));
        // The test in the child process must fail, but end.
        match done {
            Ok(done) if done.output.status.code() == Some(101) => Ok(()),
            Ok(done) => Err(format!("{name}, {fail}: {}", done.output.status)),
            Err(problem) => Err(format!("{name}, {fail}: {problem}")),
        }
    });
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), cases.len(), problems.join("\n"));
}
