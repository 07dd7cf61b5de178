//! `examples/first_frame.rs`: what its five stages say, the picture, and that every failed call ends it well.

use std::collections::BTreeSet;

use crate::common::{PRETENDED, example, example_arguments};
use wavefield_test_support::stand_in::{Run, StandIn, each, finish, run};
use wavefield_test_support::{read_png, skip_without_gpu, stderr, stdout};

#[allow(dead_code)] // Its `main`.
#[path = "../../examples/first_frame.rs"]
mod by_hand;

/// The process in which the example runs. As an ordinary test it does nothing.
#[test]
fn in_its_own_process() {
    if let Some(arguments) = example_arguments() {
        std::process::exit(by_hand::start(&arguments).into());
    }
}

/// Runs a stage on the stand-in, to its good end.
fn stage(stand_in: &StandIn, arguments: &[&str], kernel_ms: &str) -> (Run, String) {
    let mut command = stand_in.beneath(example(module_path!(), arguments), &PRETENDED);
    let run = run(command.env("STAND_IN_KERNEL_MS", kernel_ms)).unwrap();
    run.check_clean(0).unwrap_or_else(|problem| panic!("{arguments:?}: {problem}"));
    let said = stdout(&run.output);
    (run, said)
}

#[test]
fn it_is_one_file_of_at_most_450_lines_without_the_library() {
    let text = include_str!("../../examples/first_frame.rs");
    assert!(text.lines().count() <= 450, "{} lines", text.lines().count());
    assert!(!text.contains("vulkan_cuda"));
}

#[test]
fn stage_1_shows_the_two_uuids() {
    let Some(stand_in) = StandIn::new() else { return };
    let (_, said) = stage(&stand_in, &["--stage", "1"], "0");
    let uuid = |start: &str| {
        let line = said.lines().find_map(|line| line.trim().strip_prefix(start)).expect(start).trim();
        line.split_once(", ").map(|(uuid, name)| (uuid.to_owned(), name.to_owned())).expect("a name")
    };
    let ((vulkan, llvmpipe), (cuda, stand_in)) = (uuid("Vulkan has"), uuid("CUDA has"));
    assert!(vulkan == cuda && vulkan.len() == 32, "{said}");
    assert!(llvmpipe.contains("llvmpipe") && stand_in.contains("Stand-in GPU"), "{said}");
    assert!(said.contains("stage 1: the UUIDs match"), "{said}");
}

#[test]
fn stage_2_reads_what_cuda_wrote() {
    let Some(stand_in) = StandIn::new() else { return };
    for kernel_ms in ["0", "50"] {
        let (run, said) = stage(&stand_in, &["--stage", "2"], kernel_ms);
        assert!(
            said.contains("stage 2, CUDA wrote, Vulkan read: 0 of 1 frames are wrong (0 torn)"),
            "{said}"
        );
        assert_eq!(run.report.unwrap().count("cuLaunchKernel"), 1);
    }
}

/// The two stages differ only in the waits, and only the second is right.
#[test]
fn stage_3_finds_wrong_frames_and_stage_4_none() {
    let Some(stand_in) = StandIn::new() else { return };
    for kernel_ms in ["0", "3"] {
        let (hurried, said) = stage(&stand_in, &["--stage", "3"], kernel_ms);
        let count = said.split_once("stage 3, without a wait: ").expect("the stage").1;
        let count: u32 = count.split(' ').next().unwrap().parse().unwrap();
        assert!((1..=100).contains(&count), "{said}");
        let (ordered, said) = stage(&stand_in, &["--stage", "4"], kernel_ms);
        assert!(said.contains("stage 4, in order: 0 of 100 frames are wrong (0 torn)"), "{said}");

        let (hurried, ordered) = (hurried.report.unwrap(), ordered.report.unwrap());
        for (call, count) in &ordered.calls {
            let (also, waits) = (hurried.count(call), if call.contains("cuWaitExternal") { 99 } else { 0 });
            assert_eq!(*count, also + waits, "{call}");
        }
        // The CPU waits at the end, for each frame with a limit of its own, and not before.
        for (call, count) in [("vkWaitSemaphores", 100), ("cuStreamSynchronize", 1), ("vkQueueWaitIdle", 0)] {
            assert_eq!(ordered.count(call), count, "{call}");
        }
    }
}

#[test]
fn stage_5_draws_the_last_frame() {
    let Some(stand_in) = StandIn::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.png");
    let (run, said) = stage(&stand_in, &["--output", path.to_str().unwrap()], "0");
    assert!(said.contains("stage 5, a picture, 100 frames: "), "{said}");
    assert_eq!(run.report.unwrap().count("vkQueueSubmit2"), 100);
    let (size, pixels) = read_png(&path).unwrap();
    assert_eq!((size.width, size.height), (640, 360));
    let pixel = |x: usize, y: usize| &pixels[4 * (640 * y + x)..][..4];
    let (background, line) = ([13, 15, 26, 255], [255, 217, 115, 255]);
    assert!(near(pixel(0, 0), &background), "{:?}", pixel(0, 0));
    // After 100 frames the wave has moved by 5 quarters, so the curve is a cosine upside down.
    let height = |x: f64| 180.0 + 180.0 * 0.7 * (2.0 * std::f64::consts::TAU * x / 640.0).cos();
    // The last vertex is at x = 639.4.
    for x in 0..639 {
        let top = (0..360).find(|&y| !near(pixel(x, y), &background)).expect("the curve is in every column");
        let places = [x as f64, x as f64 + 0.5, x as f64 + 1.0].map(height);
        let highest = places.into_iter().fold(f64::MAX, f64::min);
        let lowest = places.into_iter().fold(0.0, f64::max);
        let place = top as f64 + 0.5;
        assert!((highest - 1.5..lowest + 1.5).contains(&place), "column {x}: {place} for {places:?}");
        assert!(near(pixel(x, top), &line), "column {x}: {:?}", pixel(x, top));
    }
    // Below the curve it glows.
    assert!(pixel(160, 70)[2] > 100 && near(pixel(160, 200), &background));
}

fn near(a: &[u8], b: &[u8]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.abs_diff(*b) <= 2)
}

/// On a real GPU, if there is one.
#[test]
fn every_stage_runs_here() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.png");
    for stage in ["1", "2", "3", "4", "5"] {
        let arguments = ["--stage", stage, "--output", path.to_str().unwrap()];
        let output = finish(example(module_path!(), &arguments).env_remove("WAVEFIELD_REQUIRE_GPU")).unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}{said}", stdout(&output));
        if let Some((_, reason)) = said.split_once("skipped: ") {
            return skip_without_gpu(reason.trim());
        }
        assert!(stdout(&output).contains(&format!("stage {stage}")), "{}", stdout(&output));
    }
}

/// A machine without a shared GPU.
#[test]
fn it_skips_what_it_cannot_do() {
    let Some(stand_in) = StandIn::new() else { return };
    let empty = tempfile::tempdir().unwrap();
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::fs::write(empty.path().join(name), "").unwrap();
    }
    let lacking = |variable: &str, value: &str| {
        let mut command = stand_in.beneath(example(module_path!(), &["--stage", "1"]), &PRETENDED);
        command.env(variable, value);
        command
    };
    let mut cases = [
        (lacking("STAND_IN_UUID", "1"), "skipped: no GPU with Vulkan 1.3 is a CUDA device too"),
        (lacking("STAND_IN_CUDA_VERSION", "11030"), "skipped: the CUDA driver is older than 11.4"),
        (lacking("STAND_IN_FAIL", "cuInit:100"), "skipped: cuInit failed: "),
        (lacking("STAND_IN_FAIL", "vkCreateInstance:-9"), "skipped: vkCreateInstance failed: "),
        (lacking("LD_LIBRARY_PATH", empty.path().to_str().unwrap()), "skipped: there is no CUDA driver"),
    ];
    for (command, reason) in &mut cases {
        for (required, code) in [("0", 0), ("1", 1)] {
            let output = finish(command.env("WAVEFIELD_REQUIRE_GPU", required)).unwrap();
            assert_eq!(output.status.code(), Some(code), "{reason}: {}", stderr(&output));
            assert!(stderr(&output).contains(*reason), "{reason}: {}", stderr(&output));
        }
    }
}

#[test]
fn wrong_usage_ends_with_2() {
    for arguments in
        [&["--stage", "0"][..], &["--stage", "6"], &["--stage", "x"], &["--stage"], &["--grid", "1"]]
    {
        let output = finish(&mut example(module_path!(), arguments)).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains("usage: first_frame"), "{arguments:?}");
    }
}

#[test]
fn a_failed_call_is_named_and_nothing_hangs() {
    let Some(stand_in) = StandIn::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.png");
    let (mut cases, mut tested) = (Vec::new(), BTreeSet::new());
    // Stage 4 is the fastest: only the picture's calls are left for stage 5.
    for number in ["4", "2", "5"] {
        let arguments = ["--stage", number, "--output", path.to_str().unwrap()];
        let report = stage(&stand_in, &arguments, "0").0.report.unwrap();
        for (call, count) in report.calls {
            let silent = ["vkDestroy", "vkFree", "vkEnumerateDeviceExtension"];
            if !silent.iter().any(|start| call.starts_with(start)) && tested.insert(call.clone()) {
                cases.extend([1, count].map(|nth| (number, call.clone(), nth)));
            }
        }
    }
    cases.dedup();
    let problems = each(&cases, |(number, call, nth)| {
        let fail = format!("{call}:{}:{nth}", if call.starts_with("vk") { -2 } else { 2 });
        let arguments = ["--stage", number, "--output", path.to_str().unwrap()];
        let mut command = stand_in.beneath(example(module_path!(), &arguments), &PRETENDED);
        let done =
            run(command.env("STAND_IN_FAIL", &fail)).map_err(|problem| format!("{fail}: {problem}"))?;
        done.check_end(1).map_err(|problem| format!("{fail}: {problem}"))?;
        match done.text().contains(&format!(": {call} failed: ")) {
            true => Ok(()),
            false => Err(format!("{fail}: it is not named: {}", done.text())),
        }
    });
    assert!(cases.len() > 40, "{cases:?}");
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), cases.len(), problems.join("\n"));
}

/// After a kernel's fault, CUDA signals nothing more, and Vulkan waits for it. The program must end all the
/// same.
#[test]
fn a_fault_of_cuda_ends_it() {
    let Some(stand_in) = StandIn::new() else { return };
    for fail in
        ["cuLaunchKernel:700:50", "cuSignalExternalSemaphoresAsync:719:50", "cuStreamSynchronize:700:1"]
    {
        let mut command = stand_in.beneath(example(module_path!(), &["--stage", "4"]), &PRETENDED);
        let done = run(command.env("STAND_IN_FAIL", fail)).unwrap();
        done.check_end(1).unwrap_or_else(|problem| panic!("{fail}: {problem}"));
        assert!(done.text().contains(fail.split(':').next().unwrap()), "{fail}: {}", done.text());
    }
}
