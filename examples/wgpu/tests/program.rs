//! The program on a machine without a GPU: alone, and with the stand-in for a GPU (`tests/stand_in`).
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Output};

use wavefield_test_support::{harness, stdout};

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wavefield-wgpu-example"));
    // In a debug build wgpu turns the validation layer on, and that of Debian 12 (1.3.239) often blocks for
    // 10 seconds when CUDA signals while wgpu asks for a counter.
    command.env_remove("WAVEFIELD_REQUIRE_GPU").env("WGPU_VALIDATION", "0");
    command
}

/// Runs the program with the stand-in as `libcuda` and as a Vulkan layer. Without lavapipe it prints a note
/// and returns `None`.
fn on_stand_in(folder: &Path, arguments: &[&str]) -> Option<Output> {
    // Slow enough that a read without a wait comes too early.
    with_kernels_of(5, folder, arguments)
}

/// As [`on_stand_in`]. A kernel takes at least so many milliseconds.
fn with_kernels_of(ms: u32, folder: &Path, arguments: &[&str]) -> Option<Output> {
    let extensions = ["VK_KHR_external_semaphore_fd"];
    harness::install_in(folder, &harness::library(), &extensions);
    let output = harness::beneath(program(), folder, &extensions)
        .args(arguments)
        .env("STAND_IN_REPORT", folder.join("report"))
        .env("STAND_IN_KERNEL_MS", ms.to_string())
        .output()
        .expect("the program starts");
    let text = stdout(&output);
    let software = text.contains("llvmpipe");
    if !software {
        eprintln!("skipped: the first Vulkan device here is no software device (lavapipe): {text}");
    } else {
        let report = std::fs::read_to_string(folder.join("report")).expect("a report");
        // The calls, the values that the wave got, and the end.
        let is_fine = |line: &str| ["call ", "values ", "end"].iter().any(|kind| line.starts_with(kind));
        let bad = report.lines().filter(|line| !is_fine(line));
        assert_eq!(bad.collect::<Vec<_>>(), [""; 0], "left behind, or against the rules");
    }
    software.then_some(output)
}

fn stderr_end(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned()
}

fn folder(name: &str) -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Without a shared GPU the program prints the reason and succeeds.
#[test]
fn without_a_gpu_it_is_skipped() {
    for mode in ["--check", "--plain"] {
        let output = program().args([mode, "--frames", "3"]).output().unwrap();
        let text = stdout(&output);
        assert!(output.status.success(), "{output:?}");
        assert!(text.starts_with("skipped: ") || text.contains(" 0 wrong"), "{output:?}");
        if text.starts_with("skipped: ") {
            let required = program().args([mode]).env("WAVEFIELD_REQUIRE_GPU", "1").output().unwrap();
            assert_eq!(required.status.code(), Some(1), "{required:?}");
        }
    }
}

#[test]
fn wrong_arguments_are_code_2() {
    for arguments in [
        &["--frames", "0"][..],
        &["--size"],
        &["--break", "ready"],
        &["--alone", "--break", "ready"],
        &["--check", "--alone"],
        &["--check", "--plain"],
        &["--plain", "--break", "free"],
        &["--to-cuda"],
        &["--check", "--attachment"],
        &["--plain", "--output", "x.png"],
        &["x"],
    ] {
        let output = program().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    }
}

/// What goes through a ring, in both directions.
const RINGS: [&[&str]; 5] = [
    &["--check"],
    &["--check", "--texture"],
    &["--check", "--to-cuda"],
    &["--check", "--to-cuda", "--texture"],
    &["--check", "--to-cuda", "--attachment"],
];

#[test]
fn every_word_arrives() {
    let folder = folder("words");
    for kind in RINGS.into_iter().chain([&["--plain"][..], &["--plain", "--texture"]]) {
        let arguments = [&["--frames", "20", "--size", "65536"], kind].concat();
        let Some(output) = on_stand_in(&folder, &arguments) else { return };
        assert!(output.status.success(), "{output:?}");
        assert!(stdout(&output).contains("20 frames") && stdout(&output).contains(" 0 wrong"), "{output:?}");
    }
}

/// Without this, the check above would prove nothing.
#[test]
fn without_a_wait_the_check_finds_wrong_words() {
    let folder = folder("break");
    let broken = RINGS.into_iter().flat_map(|kind| [(kind, "ready"), (kind, "free")]);
    for (kind, wait) in broken.chain([(&["--plain"][..], "ready")]) {
        let arguments = [&["--frames", "20", "--size", "65536", "--break", wait], kind].concat();
        // Without its wait, a fast kernel comes too early. Without wgpu's, wgpu overtakes a slow kernel.
        let cudas = (wait == "free") != kind.contains(&"--to-cuda");
        let ms = if cudas { 0 } else { 5 };
        let Some(output) = with_kernels_of(ms, &folder, &arguments) else { return };
        assert_eq!(output.status.code(), Some(1), "{kind:?}, {wait}: {}", stdout(&output));
        assert!(stdout(&output).contains(" wrong"), "{kind:?}, {wait}: {}", stderr_end(&output));
    }
}

#[test]
fn pictures_are_drawn() {
    let folder = folder("pictures");
    for (name, kind) in [("field.png", &[][..]), ("texture.png", &["--texture"])] {
        let path = folder.join(name);
        let picture = ["--output", path.to_str().unwrap(), "--frames", "2", "--size", "65536"];
        let Some(output) = on_stand_in(&folder, &[&picture[..], kind].concat()) else { return };
        assert!(output.status.success(), "{output:?}");
        assert!(std::fs::metadata(&path).unwrap().len() > 10_000, "{name} is nearly empty");
    }
}
