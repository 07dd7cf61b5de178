//! The program on a machine without a GPU: on software OpenGL, alone, and with the stand-in for CUDA
//! (`tests/stand_in`).
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use wavefield_test_support::{harness, stderr, stdout};

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wavefield-opengl-example"));
    command.env_remove("WAVEFIELD_REQUIRE_GPU");
    command
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("opengl").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The program with the stand-in as `libcuda` and as a Vulkan layer.
fn on_stand_in(folder: &Path, arguments: &[&str]) -> Command {
    let extensions = ["VK_KHR_external_semaphore_fd"];
    harness::install_in(folder, &harness::library(), &extensions);
    let mut command = harness::beneath(program(), folder, &extensions);
    command
        .args(arguments)
        .env("STAND_IN_DRIVERS_MEMORY", "1")
        .env("STAND_IN_REPORT", folder.join("report"))
        // Slow enough that a read without a wait comes too early.
        .env("STAND_IN_KERNEL_MS", "5");
    command
}

/// Runs it. If Vulkan or OpenGL has another device than the software one, prints a note and returns `None`.
fn run_on_stand_in(folder: &Path, arguments: &[&str]) -> Option<Output> {
    let output = on_stand_in(folder, arguments).output().expect("the program starts");
    let text = stdout(&output);
    if !text.contains("llvmpipe") || text.contains("skipped: ") {
        eprintln!(
            "skipped: Vulkan and OpenGL do not share a software device (lavapipe, llvmpipe) here: {text}"
        );
        return None;
    }
    let report = std::fs::read_to_string(folder.join("report")).unwrap();
    // The calls, the values that the wave got, and the end.
    let is_fine = |line: &str| ["call ", "values ", "end"].iter().any(|kind| line.starts_with(kind));
    let bad = report.lines().filter(|line| !is_fine(line));
    assert_eq!(bad.collect::<Vec<_>>(), [""; 0], "left behind, or against the rules");
    Some(output)
}

/// Runs it without CUDA and Vulkan. If there is no OpenGL 4.5 either, prints a note and returns `None`.
fn run_alone(arguments: &[&str]) -> Option<Output> {
    let output = program().arg("--alone").args(arguments).output().unwrap();
    let text = stdout(&output);
    if text.starts_with("skipped: ") {
        eprint!("{text}");
        return None;
    }
    Some(output)
}

/// Without a shared GPU the program prints the reason and succeeds.
#[test]
fn without_a_gpu_it_is_skipped() {
    for mode in [&["--check"][..], &["--classic"], &["--output", "/nowhere/x.png"]] {
        let output = program().args(mode).args(["--frames", "3"]).output().unwrap();
        let text = stdout(&output);
        if text.contains(" 0 wrong") || stderr(&output).contains("/nowhere/x.png") {
            continue; // There is a GPU.
        }
        assert!(output.status.success() && text.starts_with("skipped: "), "{output:?}");
        let required = program().args(mode).env("WAVEFIELD_REQUIRE_GPU", "1").output().unwrap();
        assert_eq!(required.status.code(), Some(1), "{required:?}");
        assert!(stderr(&required).starts_with("error: "), "{required:?}");
    }
}

#[test]
fn without_egl_it_names_the_library() {
    let folder = folder("egl");
    for name in ["libEGL.so.1", "libEGL.so"] {
        std::fs::write(folder.join(name), "no library").unwrap();
    }
    let output = program().arg("--alone").env("LD_LIBRARY_PATH", &folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        stdout(&output).starts_with("skipped: there is no EGL 1.5 (libEGL.so.1; Debian: libegl1): "),
        "{output:?}"
    );
}

#[test]
fn without_a_driver_for_egl_it_says_where_drivers_are_named() {
    let none = folder("vendors").join("none.json");
    let output = program().arg("--alone").env("__EGL_VENDOR_LIBRARY_FILENAMES", &none).output().unwrap();
    let text = stdout(&output);
    assert!(output.status.success() && text.starts_with("skipped: "), "{output:?}");
    assert!(text.contains("is a driver named in /usr/share/glvnd/egl_vendor.d"), "{output:?}");
}

#[test]
fn a_driver_without_the_extension_is_refused_by_name() {
    let folder = folder("extension");
    if run_on_stand_in(&folder, &["--by", "cpu", "--frames", "2", "--size", "65536"]).is_none() {
        return;
    }
    let without = |extension: &str, arguments: &[&str]| {
        let mut command = on_stand_in(&folder, arguments);
        stdout(&command.env("MESA_EXTENSION_OVERRIDE", format!("-{extension}")).output().unwrap())
    };
    let text = without("GL_EXT_memory_object_fd", &["--by", "cpu"]);
    assert!(text.contains("skipped: OpenGL cannot be used: EGL device 0: llvmpipe"), "{text}");
    assert!(text.contains("has no GL_EXT_memory_object_fd, which imports memory"), "{text}");
    // Mesa's software driver cannot import semaphores anyway.
    let text = without("GL_EXT_semaphore_fd", &[]);
    assert!(text.contains("has no GL_EXT_semaphore") && text.contains("--by cpu needs none"), "{text}");
}

#[test]
fn wrong_arguments_are_code_2() {
    for (arguments, words) in [
        (&["--frames", "0"][..], "--frames is a number from 1 to 4294967296, not `0`"),
        (&["--size"], "--size needs a value"),
        (&["--ring", "33"], "--ring is a number from 1 to 32, not `33`"),
        (&["--by", "hope"], "--by is timeline, binary or cpu, not `hope`"),
        (&["--break", "free"], "--break can leave out `ready`, not `free`"),
        (&["--by", "binary", "--break", "ready"], "cannot be signalled again"),
        (&["--alone", "--break", "ready"], "--alone has no wait"),
        (&["--classic", "--break", "ready"], "--classic has no wait"),
        (&["--check", "--output", "x.png"], "exclude each other"),
        (&["--classic", "--alone"], "exclude each other"),
        (&["--classic", "--texture"], "excludes --texture"),
        (&["--classic", "--output", "x.png"], "excludes --output"),
        (&["--classic", "--by", "cpu"], "excludes --by"),
        (&["--alone", "--by", "cpu"], "excludes --by"),
        (&["--compare", "x.png"], "--compare needs --output"),
        (&["x"], "x is not an option; see --help"),
    ] {
        let output = program().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let text = stderr(&output);
        assert!(text.starts_with("error: ") && text.contains(words), "{arguments:?}: {text}");
    }
}

#[test]
fn opengl_alone_checks_what_it_wrote() {
    for kind in [&[][..], &["--texture"], &["--ring", "1"]] {
        let Some(output) = run_alone(&[&["--frames", "20", "--size", "65000"], kind].concat()) else {
            return;
        };
        assert!(output.status.success(), "{output:?}");
        assert!(
            stdout(&output).contains("20 frames, ") && stdout(&output).contains(" 0 wrong, "),
            "{output:?}"
        );
    }
}

/// CUDA (the stand-in), Vulkan (lavapipe) and OpenGL (llvmpipe) on one memory. The CPU waits: llvmpipe
/// imports no semaphores.
#[test]
fn every_word_arrives() {
    let folder = folder("words");
    for kind in [&[][..], &["--texture"], &["--ring", "1"], &["--texture", "--ring", "1"]] {
        let arguments = [&["--by", "cpu", "--frames", "12", "--size", "65000"], kind].concat();
        let Some(output) = run_on_stand_in(&folder, &arguments) else { return };
        assert!(output.status.success(), "{kind:?}: {output:?}");
        assert!(
            stdout(&output).contains("12 frames, ") && stdout(&output).contains(" 0 wrong, "),
            "{output:?}"
        );
    }
}

/// Without this, the check above would prove nothing.
#[test]
fn without_the_wait_the_check_finds_wrong_words() {
    let folder = folder("break");
    for kind in [&[][..], &["--texture"]] {
        let arguments =
            [&["--by", "cpu", "--frames", "12", "--size", "65000", "--break", "ready"], kind].concat();
        let Some(output) = run_on_stand_in(&folder, &arguments) else { return };
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(stdout(&output).contains(" wrong") && !stdout(&output).contains(" 0 wrong"), "{output:?}");
    }
}

/// A failure in the middle is reported in the driver's words, and nothing is left behind.
#[test]
fn a_kernel_that_fails_is_an_error_in_words() {
    let folder = folder("fault");
    let arguments = ["--by", "cpu", "--frames", "12", "--size", "65000"];
    if run_on_stand_in(&folder, &arguments).is_none() {
        return;
    }
    let output =
        on_stand_in(&folder, &arguments).env("STAND_IN_FAIL", "cuLaunchKernel:719:3").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = stderr(&output);
    let error = text.lines().find(|line| line.starts_with("error: ")).unwrap();
    for words in ["CUDA could not write frame 2 on llvmpipe", "LAUNCH_FAILED", "compute-sanitizer"] {
        assert!(error.contains(words), "{error}");
    }
}

/// The references are Vulkan's pictures: `tool/wavefield/tests/program/pictures.rs` draws them.
#[test]
fn opengl_draws_what_vulkan_draws() {
    let references = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tool/wavefield/tests/references");
    let own = folder("references").join("own.png");
    for (name, frames, kind) in [
        ("start.png", "1", &["--size", "1048576"][..]),
        ("texture.png", "31", &["--texture", "--size", "524288"]),
    ] {
        let reference = references.join(name);
        let compared = ["--output", own.to_str().unwrap(), "--compare", reference.to_str().unwrap()];
        let draw = |frames| run_alone(&[&compared[..], kind, &["--frames", frames]].concat());
        let Some(output) = draw(frames) else { return };
        assert!(output.status.success() && stdout(&output).contains("compared: "), "{output:?}");
        let Some(output) = draw("2") else { return };
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(stderr(&output).contains("the pictures do not show the same"), "{output:?}");
    }
}

/// CUDA writes the same frame that the CPU computes, and exactly this one.
#[test]
fn pictures_show_the_right_frame() {
    let folder = folder("pictures");
    for (name, kind) in
        [("field.png", &["--size", "1048576"][..]), ("texture.png", &["--texture", "--size", "524288"])]
    {
        let (path, own) = (folder.join(name), folder.join(format!("alone-{name}")));
        let (path, own) = (path.to_str().unwrap(), own.to_str().unwrap());
        let Some(output) = run_alone(&[&["--frames", "4", "--output", own], kind].concat()) else { return };
        assert!(output.status.success(), "{output:?}");
        let shared = |frames: &str| {
            let arguments = ["--by", "cpu", "--frames", frames, "--output", path, "--compare", own];
            run_on_stand_in(&folder, &[&arguments[..], kind].concat())
        };
        let Some(output) = shared("4") else { return };
        assert!(output.status.success() && stdout(&output).contains("compared: "), "{output:?}");
        assert!(std::fs::metadata(path).unwrap().len() > 100_000, "{name} is nearly empty");
        let Some(output) = shared("5") else { return };
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(stderr(&output).contains("the pictures do not show the same"), "{output:?}");
    }
}

#[test]
fn what_is_no_picture_is_named() {
    let folder = folder("no-picture");
    let (file, output) = (folder.join("text.png"), folder.join("output.png"));
    std::fs::write(&file, "text").unwrap();
    let (file, output) = (file.to_str().unwrap(), output.to_str().unwrap());
    let refused = program().args(["--alone", "--output", output, "--compare", file]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(stderr(&refused).contains("text.png is not a readable PNG picture"), "{refused:?}");
}
