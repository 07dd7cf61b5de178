//! `examples/first_frame_cpp`, which does in C++ what `examples/first_frame.rs` does.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use wavefield_test_support::{harness, skip_without_gpu, stand_in};

use crate::common::{self, PRETENDED, Run, each, finish, pixels, skip_without_tools, text};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The program, which the script compiles once for all tests. `None`, and a skip, if a compiler or header is
/// missing.
fn program() -> Option<Command> {
    static PROGRAM: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("first_frame_cpp");
        let script = Path::new(ROOT).join("scripts/first-frame-cpp.sh");
        let output = Command::new(script).arg(folder).output().expect("the script starts");
        let said = text(&output.stderr);
        match output.status.code() {
            Some(0) => Some(text(&output.stdout).trim_end().into()),
            Some(77) => {
                skip_without_tools(&said);
                None
            }
            _ => panic!("{said}"),
        }
    });
    PROGRAM.as_ref().map(Command::new)
}

/// Runs the program on the stand-in. `fail`: which calls fail, as `STAND_IN_FAIL` takes it.
fn on_stand_in(stand_in: &stand_in::StandIn, arguments: &[&str], fail: &str) -> Option<Result<Run, String>> {
    let mut command = stand_in.beneath(program()?, &PRETENDED);
    command.args(arguments).env("STAND_IN_FAIL", fail).env_remove("WAVEFIELD_REQUIRE_GPU");
    Some(harness::run(&mut command, common::PATIENCE))
}

#[test]
fn it_is_one_file_of_at_most_600_lines() {
    let text = include_str!("../../examples/first_frame_cpp/first_frame.cpp");
    assert!(text.lines().count() <= 600, "{} lines", text.lines().count());
}

/// Each stage shows what it promises, and gives everything back.
#[test]
fn every_stage_shows_what_it_promises() {
    let Some(stand_in) = stand_in::StandIn::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("a.png");
    let output = output.to_str().unwrap();
    let picture = format!("stage 5, a picture, 100 frames: {output}");
    for (stage, shown, waits) in [
        ("1", "stage 1: the UUIDs match", 0),
        ("2", "stage 2, CUDA wrote, Vulkan read: 0 of 1 frames are wrong (0 torn)", 0),
        ("3", "stage 3, without a wait: ", 0),
        ("4", "stage 4, in order: 0 of 100 frames are wrong (0 torn)", 99),
        ("5", &picture, 99),
    ] {
        let Some(run) = on_stand_in(&stand_in, &["--stage", stage, "--output", output], "") else { return };
        let run = run.unwrap();
        let report = run.check_clean(0).unwrap_or_else(|problem| panic!("stage {stage}: {problem}"));
        assert_eq!(report.count("cuWaitExternalSemaphoresAsync"), waits, "stage {stage}");
        // At the end the CPU waits for each frame with a limit of its own.
        let frames = report.count("cuLaunchKernel");
        assert_eq!(report.count("vkWaitSemaphores"), frames, "stage {stage}");
        let said = text(&run.output.stdout);
        let lines: Vec<_> = said.lines().collect();
        assert!(lines[0].starts_with("Vulkan has "), "{said}");
        assert!(lines[lines.len() - 2].starts_with("CUDA has   "), "{said}");
        let last = lines[lines.len() - 1];
        match stage {
            // The program fails if no frame is wrong. How many are depends on the machine.
            "3" => assert!(last.starts_with(shown) && last.ends_with(" torn)"), "{said}"),
            _ => assert_eq!(last, shown),
        }
    }
    is_the_wave(&pixels(Path::new(output)));
}

/// In each column, the topmost bright pixel is where the curve of the last frame is.
fn is_the_wave(([width, height], pixels): &([u32; 2], Vec<u8>)) {
    assert_eq!([*width, *height], [640, 360]);
    for x in 1..width - 1 {
        let column = (0..*height).map(|y| &pixels[4 * (y * width + x) as usize..][..4]);
        let top = column.clone().position(|pixel| pixel[0] > 200).expect("the curve is in every column");
        let t = 2.0 * (f64::from(x) + 0.5) / f64::from(*width);
        let want = 180.0 - 180.0 * 0.7 * (std::f64::consts::TAU * (t - 0.0125 * 100.0)).sin();
        assert!((top as f64 - want).abs() < 4.0, "column {x}: row {top}, not {want}");
        assert!(column.clone().all(|pixel| pixel[3] == 255), "column {x} is opaque");
    }
}

#[test]
fn the_validation_layer_says_nothing() {
    let Some(stand_in) = stand_in::StandIn::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("a.png");
    for stage in ["1", "2", "4", "5"] {
        let Some(program) = program() else { return };
        let mut command = stand_in.beneath(program, &PRETENDED);
        command.args(["--stage", stage, "--output"]).arg(&output);
        // The layer prints to standard output. Two layers: the one above, and the stand-in's below it.
        command.env("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation:VK_LAYER_WAVEFIELD_stand_in");
        let run = harness::run(&mut command, common::PATIENCE).unwrap();
        if run.text().contains("VK_ERROR_LAYER_NOT_PRESENT") {
            return skip_without_tools("the validation layer is not installed");
        }
        run.check_clean(0).unwrap();
        let said = text(&run.output.stdout);
        assert!(!said.contains("VUID"), "stage {stage}: {said}");
    }
}

#[test]
fn a_failed_call_is_named_and_nothing_hangs() {
    let Some(stand_in) = stand_in::StandIn::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.png");
    let (mut cases, mut tested) = (Vec::new(), BTreeSet::new());
    // Stage 4 is the fastest: only the picture's calls are left for stage 5.
    for stage in ["4", "5"] {
        let Some(sound) = on_stand_in(&stand_in, &["--stage", stage, "--output", path.to_str().unwrap()], "")
        else {
            return;
        };
        for (call, count) in sound.unwrap().check_clean(0).unwrap().calls.clone() {
            // These cannot fail, or Vulkan's loader calls them.
            let silent = [
                "vkDestroy",
                "vkFree",
                "vkCmd",
                "vkGetPhysical",
                "vkGetDevice",
                "cuGetError",
                "vkEnumerateDevice",
            ];
            if !silent.iter().any(|start| call.starts_with(start)) && tested.insert(call.clone()) {
                cases.extend([1, count].map(|nth| (stage, call.clone(), nth)));
            }
        }
    }
    cases.dedup();
    assert!(cases.len() > 40, "{cases:?}");
    let problems = each(&cases, |(stage, call, nth)| {
        let (code, answer) = match call.starts_with("vk") {
            true => (-2, "VK_ERROR_OUT_OF_DEVICE_MEMORY"),
            false => (2, "CUDA_ERROR_OUT_OF_MEMORY"),
        };
        let (fail, skips) =
            (format!("{call}:{code}:{nth}"), ["cuInit", "vkCreateInstance"].contains(&call.as_str()));
        let run = on_stand_in(&stand_in, &["--stage", stage, "--output", path.to_str().unwrap()], &fail);
        let run = run.expect("there is a program").map_err(|problem| format!("{fail}: {problem}"))?;
        run.check_end(if skips { 0 } else { 1 }).map_err(|problem| format!("{fail}: {problem}"))?;
        let want = format!("{}: {call} failed: {answer}\n", if skips { "skipped" } else { "error" });
        if run.text() == want { Ok(()) } else { Err(format!("{fail}: {}", run.text())) }
    });
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), cases.len(), problems.join("\n"));
}

/// After a kernel's fault, CUDA signals nothing more, and Vulkan waits for it. The program must end all the
/// same.
#[test]
fn a_fault_of_cuda_ends_it() {
    let Some(stand_in) = stand_in::StandIn::new() else { return };
    for fail in
        ["cuLaunchKernel:700:50", "cuSignalExternalSemaphoresAsync:719:50", "cuStreamSynchronize:700:1"]
    {
        let Some(run) = on_stand_in(&stand_in, &["--stage", "4"], fail) else { return };
        let run = run.unwrap();
        run.check_end(1).unwrap_or_else(|problem| panic!("{fail}: {problem}"));
        assert!(run.text().contains(fail.split(':').next().unwrap()), "{fail}: {}", run.text());
    }
}

/// A machine without a shared GPU.
#[test]
fn it_skips_what_it_cannot_do() {
    let Some(stand_in) = stand_in::StandIn::new() else { return };
    let old = stand_in.lacking(&["cuDeviceGetUuid_v2"]);
    let empty = tempfile::tempdir().unwrap();
    std::fs::write(empty.path().join("libcuda.so.1"), "").unwrap();
    for (stand_in, variable, value, reason) in [
        (&stand_in, "STAND_IN_UUID", "1", "no GPU with Vulkan 1.3 is a CUDA device too"),
        (
            &old,
            "STAND_IN_FAIL",
            "",
            "the CUDA driver is older than 11.4: update it (it has no cuDeviceGetUuid_v2)",
        ),
        (&stand_in, "STAND_IN_FAIL", "cuInit:100", "cuInit failed: CUDA_ERROR_NO_DEVICE"),
        (
            &stand_in,
            "STAND_IN_FAIL",
            "vkCreateInstance:-9",
            "vkCreateInstance failed: VK_ERROR_INCOMPATIBLE_DRIVER",
        ),
        (
            &stand_in,
            "LD_LIBRARY_PATH",
            empty.path().to_str().unwrap(),
            "there is no CUDA driver (libcuda): install NVIDIA's",
        ),
    ] {
        for (required, code) in [("0", 0), ("1", 1)] {
            let Some(program) = program() else { return };
            let mut command = stand_in.beneath(program, &PRETENDED);
            let output = finish(command.env(variable, value).env("WAVEFIELD_REQUIRE_GPU", required)).unwrap();
            assert_eq!(text(&output.stderr), format!("skipped: {reason}\n"));
            assert_eq!(output.status.code(), Some(code), "{reason}");
        }
    }
}

/// On a real GPU, if there is one.
#[test]
fn every_stage_runs_here() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.png");
    for stage in ["1", "2", "3", "4", "5"] {
        let Some(mut program) = program() else { return };
        program.args(["--stage", stage, "--output"]).arg(&path).env_remove("WAVEFIELD_REQUIRE_GPU");
        let output = finish(&mut program).unwrap();
        let said = text(&output.stderr);
        if let Some(reason) = said.strip_prefix("skipped: ") {
            return skip_without_gpu(reason.trim());
        }
        assert_eq!(output.status.code(), Some(0), "{}{said}", text(&output.stdout));
    }
    is_the_wave(&pixels(&path));
}

#[test]
fn wrong_options_are_wrong_usage() {
    for arguments in
        [&["--stage"][..], &["--stage", "0"], &["--stage", "6"], &["--stage", "one"], &["--output"], &["4"]]
    {
        let Some(mut command) = program() else { return };
        let output = finish(command.args(arguments)).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).starts_with("usage: "), "{arguments:?}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_an_error() {
    let Some(stand_in) = stand_in::StandIn::new() else { return };
    let Some(run) = on_stand_in(&stand_in, &["--output", "/nowhere/a.png"], "") else { return };
    let run = run.unwrap();
    run.check_end(1).unwrap();
    assert_eq!(run.text(), "error: cannot write /nowhere/a.png: No such file or directory\n");
}

/// `first_frame_spv.h` is what naga makes of the shader now. `WAVEFIELD_WRITE=1` writes it.
#[test]
fn the_header_has_the_shader_of_today() {
    let array = |name: &str, spirv: &[u8]| {
        let (words, _) = spirv.as_chunks::<4>();
        let row = |row: &[[u8; 4]]| -> String {
            row.iter().map(|&word| format!(" {:#010x},", u32::from_ne_bytes(word))).collect()
        };
        let rows: Vec<_> = words.chunks(10).map(|words| format!("   {}\n", row(words))).collect();
        format!("const uint32_t {name}[] = {{\n{}}};\n", rows.concat())
    };
    let want = [
        "// Made of shaders/first_frame.wgsl with naga. To make it again: WAVEFIELD_WRITE=1 cargo test --test demo header\n",
        "#include <stdint.h>\n\n",
        &array("vertex_main", include_bytes!(concat!(env!("OUT_DIR"), "/first_frame.vertex_main.spv"))),
        &array("fragment_main", include_bytes!(concat!(env!("OUT_DIR"), "/first_frame.fragment_main.spv"))),
    ];
    let path = Path::new(ROOT).join("examples/first_frame_cpp/first_frame_spv.h");
    if std::env::var("WAVEFIELD_WRITE").as_deref() == Ok("1") {
        std::fs::write(&path, want.concat()).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap() == want.concat(),
        "make the header again: see its first line"
    );
}
