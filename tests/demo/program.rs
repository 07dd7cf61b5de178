//! The program without a window: its pictures, its options, its files.

use std::path::Path;
use std::process::Command;

use wavefield_test_support::harness;

use crate::common::{StandIn, demo, difference, ends, finish, pixels, skip_without_tools, text};

/// A small picture of the wave's start.
const SMALL: [&str; 3] = ["--grid=64x48", "--size=320x180", "--frames=4"];

fn reference() -> Vec<u8> {
    pixels(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wave.png")).1
}

#[test]
fn a_compute_shader_draws_the_wave() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.png");
    let output = format!("--output={}", path.display());
    let (_, said) = ends(0, &[&SMALL[..], &["--compute", &output]].concat());
    assert!(said.contains("without CUDA: --compute was given"), "{said}");
    let (size, picture) = pixels(&path);
    assert_eq!(size, [320, 180]);
    // Another driver rounds differently.
    let difference = difference(&picture, &reference());
    assert!(difference < 0.5, "{difference}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
}

/// CUDA's kernel and the compute shader are the same wave, by every hand-off, and for every ring and batch.
#[test]
fn cuda_draws_the_same_wave() {
    let Some(stand_in) = StandIn::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    for more in [&[][..], &["--ring=1"], &["--ring=5", "--batch=3"], &["--cpu-sync"]] {
        let path = folder.path().join("a.png");
        let output = format!("--output={}", path.display());
        let run = stand_in.run(&[&SMALL[..], more, &[&output]].concat(), "").unwrap();
        let report = run.check_end(0).unwrap_or_else(|problem| panic!("{more:?}: {problem}"));
        assert!(report.count("cuLaunchKernel") >= 4, "{more:?}");
        let difference = difference(&pixels(&path).1, &reference());
        assert!(difference < 0.5, "{more:?}: {difference}");
    }
}

#[test]
fn the_validation_layer_says_nothing() {
    let Some(stand_in) = StandIn::new() else { return };
    for more in [&[][..], &["--compute"], &["--ring=4", "--batch=4", "--samples=1"], &["--cpu-sync"]] {
        let run = stand_in.run(&[&SMALL[..], &["--headless", "--validation"], more].concat(), "").unwrap();
        let said = text(&run.output.stderr);
        if said.contains("needs the validation layer") {
            return skip_without_tools("the validation layer is not installed");
        }
        run.check_end(0).unwrap_or_else(|problem| panic!("{more:?}: {problem}"));
        assert!(!said.contains("validation:"), "{more:?}: {said}");
    }
}

#[test]
fn wrong_options_are_wrong_usage() {
    for (arguments, words) in [
        (&["--grid=1x5"][..], "at least 2"),
        (&["--grid=64"], "640x480"),
        (&["--grid=-4x4"], "640x480"),
        (&["--grid=65536x65536"], "2^28"),
        (&["--size=0x9"], "1 to 16384"),
        (&["--size=99999999999x9"], "640x480"),
        (&["--ring=0"], "1..=32"),
        (&["--ring=33"], "1..=32"),
        (&["--ring=2", "--batch=3"], "--ring 3"),
        (&["--samples=3"], "1, 2, 4 or 8"),
        (&["--frames=0"], "--frames"),
        (&["--present=later"], "mailbox"),
        (&["--json=a.json"], "--bench"),
        (&["--bench", "--output=a.png"], "--output"),
        (&["--no-such-option"], "--no-such-option"),
        (&["file.png"], "file.png"),
    ] {
        let (_, said) = ends(2, arguments);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

#[test]
fn what_a_machine_cannot_do_is_an_error() {
    let run = |more: &[&str]| ends(1, &[&["--headless", "--frames=1"], more].concat()).1;
    let said = run(&["--device=no such device"]);
    assert!(said.contains("there is no device `no such device`; there is 0: "), "{said}");
    assert!(run(&["--device=99"]).contains("there is no device `99`"));
    for (path, words) in
        [("/no/such/folder/a.png", "No such file"), ("/dev/null", "regular file"), ("/", "regular")]
    {
        let said = run(&["--output", path]);
        assert!(said.contains(&format!("cannot write {path}")) && said.contains(words), "{said}");
    }
    // Without drivers, and without the loader.
    let output =
        finish(demo(&["--headless"]).env("VK_DRIVER_FILES", "/none").env("VK_ICD_FILENAMES", "/none"));
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("error: ") && said.contains("river"), "{said}");
}

#[test]
fn without_a_display_it_draws_a_picture_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let output = finish(demo(&SMALL).current_dir(folder.path())).unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("There is no display") && said.contains("wavefield.png"), "{said}");
    assert_eq!(pixels(&folder.path().join("wavefield.png")).0, [320, 180]);
}

/// A library that cannot be loaded is as good as none.
#[test]
fn missing_libraries_are_named() {
    let run = |library: &str, more: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(library), "").unwrap();
        let mut command = demo(&[&SMALL[..], more].concat());
        // No such display: the libraries come first.
        command.env("LD_LIBRARY_PATH", folder.path()).env("DISPLAY", ":987").current_dir(folder.path());
        let output = finish(&mut command).unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let (code, said) = run("libvulkan.so.1", &["--headless"]);
    assert!(code == Some(1) && said.contains("error: no Vulkan loader: install it"), "{said}");
    let (code, said) = run("libcuda.so.1", &["--headless"]);
    assert!(code == Some(0) && said.contains("without CUDA: the CUDA driver: "), "{said}");
    for (library, package) in
        [("libX11.so.6", "libx11-6"), ("libXcursor.so.1", "libxcursor1"), ("libXi.so.6", "libxi6")]
    {
        let (code, said) = run(library, &[]);
        assert!(code == Some(0) && said.contains("There is no display: "), "{library}: {said}");
        // A build on a machine with the library's development package knows its path.
        assert!(!said.contains("shared libraries") || said.contains(package), "{library}: {said}");
        assert!(said.contains("wavefield.png") && !said.contains("panicked"), "{library}: {said}");
    }
}

/// Drivers are installed, but a damaged manifest, or another libstdc++, keeps them from working.
#[test]
fn drivers_that_do_not_work_are_looked_for_with_the_loader() {
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.json");
    std::fs::write(&cut, "{\"ICD\": {\"api_").unwrap();
    std::fs::write(folder.path().join("libstdc++.so.6"), "").unwrap();
    for (variable, value) in [("VK_ADD_DRIVER_FILES", cut.as_path()), ("LD_LIBRARY_PATH", folder.path())] {
        let run = |debug: &str| {
            let mut command = demo(&["--headless"]);
            let output = finish(command.env(variable, value).env("VK_LOADER_DEBUG", debug)).unwrap();
            assert_eq!(output.status.code(), Some(1), "{variable}");
            text(&output.stderr)
        };
        let said = run("");
        assert!(said.contains("VK_LOADER_DEBUG=error"), "{said}");
        // The advice is right.
        assert!(run("error").contains(value.to_str().unwrap()), "{}", run("error"));
    }
}

/// Another process has the GPU to itself (46), or the kernel is for newer GPUs (209).
#[test]
fn a_gpu_that_refuses_says_what_to_do() {
    let Some(stand_in) = StandIn::new() else { return };
    for (fail, words) in
        [("cuDevicePrimaryCtxRetain:46", "nvidia-smi -c 0"), ("cuModuleLoadData:209", "for other GPUs")]
    {
        let run = stand_in.run(&[&SMALL[..], &["--headless"]].concat(), fail).unwrap();
        run.check_clean(1).unwrap();
        let said = run.text();
        assert!(said.contains(words) && said.contains("--compute does without it"), "{said}");
    }
}

/// cudarc, which the demo calls, opens `libcuda.so` first and never looks further.
#[test]
fn a_wrong_libcuda_is_passed_over_or_named() {
    let Some(stand_in) = StandIn::new() else { return };
    for (name, words) in
        [("libcuda.so.1", "which is CUDA's device 0"), ("libcuda.so", "cudarc finds another libcuda first")]
    {
        let folder = tempfile::tempdir().unwrap();
        let stubs = harness::stubs(folder.path(), &harness::library(), &[name]);
        let mut command = harness::finding(stand_in.demo(&[&SMALL[..], &["--headless"]].concat()), &stubs);
        let run = StandIn::finish(&mut command).unwrap();
        run.check_clean(0).unwrap();
        assert!(run.text().contains(words), "{name}: {}", run.text());
    }
}

/// The tests run on a software device.
#[test]
fn a_software_device_gets_a_small_field_unless_told_otherwise() {
    let (_, said) = ends(0, &["--headless", "--frames=2", "--size=16x16"]);
    assert!(said.contains("small: --grid 128x128"), "{said}");
    let (_, said) = ends(0, &["--headless", "--frames=2", "--size=16x16", "--grid=8x8"]);
    assert!(!said.contains("--grid"), "{said}");
}

#[test]
fn frame_times_are_printed_at_the_end() {
    let (out, _) = ends(0, &["--headless", "--frames=20", "--grid=8x8", "--size=16x16"]);
    assert!(out.contains("frames: mean ") && out.contains("p50 ") && out.contains("p99 "), "{out}");
}

#[test]
fn the_bench_tells_what_a_hand_off_costs() {
    let Some(stand_in) = StandIn::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    let json = format!("--json={}", path.display());
    for batch in ["--batch=1", "--batch=3"] {
        let arguments = ["--bench", "--frames=20", "--grid=8x8", "--size=16x16", batch, &json];
        let run = stand_in.run(&arguments, "").unwrap();
        run.check_end(0).unwrap();
        assert!(text(&run.output.stdout).contains("A hand-off costs "), "{}", text(&run.output.stdout));
        let json = std::fs::read_to_string(&path).unwrap();
        for key in ["gpu", "cpu_sync", "drawn_again", "kernel_ms", "handoff_ms", "p99_ms"] {
            assert!(json.contains(&format!("\"{key}\": ")), "{json}");
        }
    }
    let (_, said) = ends(1, &["--bench", "--grid=8x8", "--size=16x16", "--device=0"]);
    assert!(said.contains("--bench needs CUDA: it measures what a hand-off costs"), "{said}");
}

/// Ctrl-C ends the run well: the picture is written.
#[test]
fn ctrl_c_ends_it_well() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.png");
    let output = format!("--output={}", path.display());
    let mut command = demo(&["--grid=8x8", "--size=16x16", "--frames=1000000000", &output]);
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    // It says which device it uses just before it draws.
    let mut said = std::io::BufReader::new(child.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut said, &mut String::new()).unwrap();
    let sent = Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status().unwrap();
    assert!(sent.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(pixels(&path).0, [16, 16]);
}
