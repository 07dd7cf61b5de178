//! What goes wrong on users' machines, and what they get: one sentence that says what, where and what to do, and the
//! right exit code; never a panic, and nothing half-written.

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::{assert_exit, run, stderr, stdout, wavefield};

/// Small enough to be quick on a software device.
const SMALL: [&str; 4] = ["--headless", "--frames=1", "--grid=16x16", "--size=64x48"];

/// Asserts a failure whose message has all of `parts`.
fn assert_fails(output: &Output, code: i32, parts: &[&str]) {
    assert_exit(output, code);
    let text = stderr(output);
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
    assert!(!text.contains("panicked"), "{text}");
}

/// The program, with libraries in `folder` found before the system's.
fn with_libraries(folder: &Path) -> Command {
    let mut command = wavefield();
    let mut path = folder.as_os_str().to_owned();
    if let Some(usual) = std::env::var_os("LD_LIBRARY_PATH") {
        path.push(":");
        path.push(usual);
    }
    command.env("LD_LIBRARY_PATH", path);
    command
}

#[test]
fn no_vulkan_loader() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libvulkan.so.1"), "").unwrap();
    let output = with_libraries(folder.path()).args(SMALL).output().unwrap();
    assert_fails(&output, 1, &["the Vulkan loader", "install", "libvulkan1"]);
}

#[test]
fn no_vulkan_driver() {
    let mut command = wavefield();
    command.env("VK_DRIVER_FILES", "/nonexistent.json").env("VK_ICD_FILENAMES", "/nonexistent.json");
    let output = command.args(SMALL).output().unwrap();
    assert_fails(&output, 1, &["vkCreateInstance", "no Vulkan driver", "install"]);
}

/// A folder with libraries that cannot be opened, under the names of the CUDA driver.
fn without_cuda() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    folder
}

#[test]
fn no_cuda_driver() {
    let folder = without_cuda();
    let output = with_libraries(folder.path()).args(SMALL).arg("--producer=cuda").output().unwrap();
    assert_fails(&output, 1, &["--producer cuda", "CUDA driver", "install NVIDIA's driver"]);
}

#[test]
fn without_cuda_the_default_falls_back_and_says_why_in_one_line() {
    let folder = without_cuda();
    let output = with_libraries(folder.path()).args(SMALL).output().unwrap();
    assert_exit(&output, 0);
    let text = stderr(&output);
    let lines: Vec<_> = text.lines().filter(|line| line.contains("no CUDA")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(lines[0].contains("libcuda") && lines[0].contains("compute shader"), "{text}");
    assert!(stdout(&output).contains("producer      compute"), "{}", stdout(&output));
}

#[test]
fn a_kernel_needs_cuda() {
    let folder = without_cuda();
    let kernel = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/test/flat.ptx");
    let output = with_libraries(folder.path()).args(SMALL).args(["--kernel", kernel]).output().unwrap();
    assert_fails(&output, 1, &["--kernel needs the CUDA producer", "libcuda"]);
    let output = run(&[SMALL.as_slice(), &["--producer=host", "--kernel", kernel]].concat());
    assert_fails(&output, 1, &["--kernel needs the CUDA producer"]);
}

/// Builds the stand-in for the CUDA driver; `None` (a skip) where there is no C compiler.
fn fake_cuda(defines: &[&str]) -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_cuda/fake_cuda.c");
    // Under every name by which a driver may be looked for.
    let library = folder.path().join("libcuda.so");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .args(defines)
        .arg(source)
        .output();
    match built {
        Err(error) => {
            common::skip_without_tools(&format!("no C compiler `cc`: {error}"));
            None
        }
        Ok(output) => {
            assert!(output.status.success(), "{}", stderr(&output));
            std::fs::copy(&library, folder.path().join("libcuda.so.1")).unwrap();
            Some(folder)
        }
    }
}

#[test]
fn a_cuda_driver_that_is_too_old() {
    let Some(folder) = fake_cuda(&[]) else { return };
    let mut command = with_libraries(folder.path());
    command.env("FAKE_CUDA_VERSION", "11010");
    let output = command.args(SMALL).arg("--producer=cuda").output().unwrap();
    assert_fails(&output, 1, &["CUDA 11.1", "CUDA 11.2 or later", "update"]);
}

#[test]
fn a_cuda_driver_that_lacks_a_function() {
    let Some(folder) = fake_cuda(&["-DWITHOUT_TIMELINES"]) else { return };
    let output = with_libraries(folder.path()).args(SMALL).arg("--producer=cuda").output().unwrap();
    assert_fails(&output, 1, &["it lacks cuImportExternalSemaphore", "update"]);
}

#[test]
fn a_cuda_driver_that_does_not_start() {
    let Some(folder) = fake_cuda(&[]) else { return };
    let mut command = with_libraries(folder.path());
    command.env("FAKE_CUDA_INIT", "100");
    let output = command.args(SMALL).arg("--producer=cuda").output().unwrap();
    assert_fails(&output, 1, &["cuInit", "CUDA_ERROR_NO_DEVICE, 100", "CUDA_VISIBLE_DEVICES"]);
}

#[test]
fn a_cuda_device_with_no_vulkan_twin() {
    let Some(folder) = fake_cuda(&[]) else { return };
    let output = with_libraries(folder.path()).args(SMALL).arg("--producer=cuda").output().unwrap();
    assert_fails(
        &output,
        1,
        &["Fake CUDA device: no Vulkan device has its UUID", "no CUDA device has its UUID"],
    );
    let output = with_libraries(folder.path()).arg("devices").output().unwrap();
    assert_exit(&output, 0);
    let table = stdout(&output);
    assert!(table.contains("Fake CUDA device") && table.contains("CUDA 12.0 driver"), "{table}");
}

/// The UUIDs match, but a software device exports nothing that CUDA could import.
#[test]
fn a_twin_that_cannot_export() {
    let Some(folder) = fake_cuda(&[]) else { return };
    let table = stdout(&run(&["devices"]));
    let Some(row) = table.lines().find(|line| line.contains("llvmpipe")) else {
        return common::skip_without_tools("no software Vulkan device (lavapipe) here");
    };
    let uuid = row.split_whitespace().find(|word| word.len() == 36 && word.matches('-').count() == 4);
    let mut command = with_libraries(folder.path());
    command.env("FAKE_CUDA_UUID", uuid.expect("the table has UUIDs").replace('-', ""));
    let output = command.args(SMALL).args(["--producer=cuda", "--device=llvmpipe"]).output().unwrap();
    assert_fails(&output, 1, &["llvmpipe", "cannot export a timeline semaphore as OPAQUE_FD"]);
}

#[test]
fn a_field_beyond_what_one_allocation_holds() {
    let table = stdout(&run(&["devices"]));
    if !table.contains("llvmpipe") {
        return common::skip_without_tools("no software Vulkan device (lavapipe) here");
    }
    let output = run(&["--headless", "--device=llvmpipe", "--grid=16384x16384", "--frames=1"]);
    assert_fails(&output, 1, &["16384x16384", "4294967296 bytes", "llvmpipe", "largest square --grid is"]);
}

#[test]
fn a_picture_beyond_what_the_device_draws() {
    let output = run(&["--headless", "--size=100000x10", "--frames=1", "--grid=2x2"]);
    assert_fails(&output, 1, &["100000x10", "maxImageDimension2D"]);
}

/// A limit on the process's address space stands for a full device: a software device takes its memory there. Whether
/// the driver itself survives that is its own affair: Mesa 22.3 does, 25.0 was seen to crash.
#[test]
fn out_of_device_memory() {
    if !stdout(&run(&["devices"])).contains("llvmpipe") {
        return common::skip_without_tools("no software Vulkan device (lavapipe) here");
    }
    let program = wavefield().get_program().to_owned();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 3000000; exec \"$@\"", "sh"]).arg(program);
    let output = command
        .args([
            "--headless",
            "--device=llvmpipe",
            "--frames=1",
            "--grid=2800x2800",
            "--ring=32",
            "--size=64x48",
        ])
        .output()
        .unwrap();
    match output.status.code() {
        Some(0) => common::skip("this lavapipe does not take its memory from the process's address space"),
        None => common::skip("this lavapipe crashes when memory runs out"),
        Some(_) => assert_fails(&output, 1, &["llvmpipe", "memory"]),
    }
}

#[test]
fn an_output_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    for path in ["no/such/folder/a.png", "."] {
        let path = folder.path().join(path);
        let output = run(&[SMALL.as_slice(), &["--output", path.to_str().unwrap()]].concat());
        assert_fails(&output, 1, &["cannot write", path.to_str().unwrap()]);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn a_device_that_is_not_there() {
    let output = run(&[SMALL.as_slice(), &["--device=nothing of the kind"]].concat());
    assert_fails(&output, 1, &["no device is called `nothing of the kind`", "0: "]);
    let output = run(&[SMALL.as_slice(), &["--device=99"]].concat());
    assert_fails(&output, 1, &["there is no device 99", "0: "]);
}

#[test]
fn nonsense_on_the_command_line() {
    for (argument, part) in [
        ("--grid=1x1", "no surface"),
        ("--grid=many", "two whole numbers"),
        ("--grid=99999x99999", "2^28"),
        ("--size=0x0", "no pixels"),
        ("--size=12", "two whole numbers"),
        ("--ring=0", "1 to 32"),
        ("--ring=33", "1 to 32"),
        ("--frames=0", "0 is not in"),
        ("--speed=nan", "number between"),
        ("--producer=magic", "possible values"),
        ("--colormap=jet", "possible values"),
        ("--no-such-flag", "unexpected argument"),
    ] {
        let output = run(&["--headless", argument]);
        assert_fails(&output, 2, &[part]);
    }
    assert_fails(&run(&["--output=a.png"]), 2, &["--headless"]);
}

#[test]
fn a_kernel_file_that_is_none() {
    for (argument, part) in [
        ("/no/such/file.ptx", "cannot read /no/such/file.ptx"),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "is this PTX text?"),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/wave.ptx:nothing"), "no entry `nothing`"),
    ] {
        let output = run(&[SMALL.as_slice(), &["--kernel", argument]].concat());
        assert_fails(&output, 1, &[part]);
    }
}

/// The driver's compiler says what is wrong, with the line.
#[test]
fn a_kernel_that_does_not_compile() {
    let kernel = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/test/broken.ptx");
    let output = run(&[SMALL.as_slice(), &["--producer=cuda", "--kernel", kernel]].concat());
    if stderr(&output).contains("share no device") {
        return common::skip_without_gpu(&stderr(&output));
    }
    assert_fails(&output, 1, &["broken.ptx", "cuModuleLoadDataEx", "line"]);
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let mut command = Command::new("sh");
    command.args(["-c", "\"$0\" devices | true"]).arg(wavefield().get_program());
    let output = command.output().unwrap();
    assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
}

#[test]
fn a_signal_ends_a_headless_run_and_leaves_nothing_half_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.png");
    let arguments = ["--headless", "--frames=1000000", "--grid=16x16", "--size=64x48", "--output"];
    let mut child = wavefield()
        .args(arguments)
        .arg(&path)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Long after the handler is in place, which is the first thing that the program does.
    std::thread::sleep(std::time::Duration::from_secs(2));
    // A shell has `kill` built in; the program of that name is not on every system.
    let killed = Command::new("sh").args(["-c", &format!("kill -TERM {}", child.id())]).status().unwrap();
    assert!(killed.success() && child.wait().is_ok());
    let output = child.wait_with_output().unwrap();
    assert_fails(&output, 1, &["stopped after frame", "of 1000000", "no picture was written"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_texture_has_nothing_to_verify() {
    let output = run(&["verify", "--scene=texture", "--frames=1", "--grid=16x16", "--size=64x48"]);
    assert_fails(&output, 2, &["--scene texture", "stamps of vertices"]);
}

#[test]
fn a_texture_beyond_what_the_device_has() {
    let output =
        run(&["--headless", "--producer=compute", "--scene=texture", "--grid=100000x2", "--frames=1"]);
    assert_fails(&output, 1, &["100000x2", "maxImageDimension2D"]);
}
