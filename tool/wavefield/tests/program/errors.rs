//! What goes wrong on users' machines. The user gets one sentence that says what failed, where and what to
//! do, and the right exit code: never a panic, and never a half-written file.

use crate::common;
use wavefield_test_support::{harness, stand_in};

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use common::{assert_exit, process, read_png, run, stderr, stdout, wavefield};
use stand_in::{StandIn, with_libraries};

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

/// The loader refuses all manifests if one is cut short.
#[test]
fn a_driver_manifest_that_is_cut_short() {
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.json");
    std::fs::write(&cut, "{\"ICD\": {\"api_").unwrap();
    for variable in ["VK_DRIVER_FILES", "VK_ADD_DRIVER_FILES"] {
        let mut command = wavefield();
        // The first of them hides the other.
        command.env_remove("VK_DRIVER_FILES").env_remove("VK_ICD_FILENAMES").env(variable, &cut);
        let output = command.args(SMALL).output().unwrap();
        assert_fails(&output, 1, &[&format!("{} is no JSON: install that driver again", cut.display())]);
    }
}

#[test]
fn a_libstdcxx_with_which_no_driver_works() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libstdc++.so.6"), "").unwrap();
    let output = with_libraries(folder.path()).args(SMALL).output().unwrap();
    if output.status.success() {
        return common::skip("the driver here needs no libstdc++");
    }
    let words = format!("a libstdc++ of its own in {}, ", folder.path().display());
    assert_fails(&output, 1, &["no Vulkan driver answered", &words, "unset it"]);
}

/// A folder with libraries that cannot be opened, under the names of the CUDA driver. `None`, and a skip, if
/// the program would then find the driver in its usual folder.
fn without_cuda() -> Option<tempfile::TempDir> {
    if ["x86_64-linux-gnu", "aarch64-linux-gnu", "../lib64", ".", "wsl/lib"]
        .iter()
        .any(|folder| Path::new("/usr/lib").join(folder).join("libcuda.so.1").exists())
    {
        common::skip("CUDA's driver is installed here");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    Some(folder)
}

#[test]
fn no_cuda_driver() {
    let Some(folder) = without_cuda() else { return };
    let output = with_libraries(folder.path()).args(SMALL).arg("--producer=cuda").output().unwrap();
    assert_fails(
        &output,
        1,
        &["--producer cuda", "CUDA driver", "libcuda.so.1: file too short", "install NVIDIA's driver"],
    );
}

#[test]
fn without_cuda_the_default_falls_back_and_says_why_in_one_line() {
    let Some(folder) = without_cuda() else { return };
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
    let Some(folder) = without_cuda() else { return };
    let kernel = concat!(env!("CARGO_MANIFEST_DIR"), "/../handoff/kernels/test/flat.ptx");
    let output = with_libraries(folder.path()).args(SMALL).args(["--kernel", kernel]).output().unwrap();
    assert_fails(&output, 1, &["flat.ptx needs CUDA", "libcuda", "choose another kernel"]);
    let output = run(&[SMALL.as_slice(), &["--producer=host", "--kernel", kernel]].concat());
    assert_fails(&output, 2, &["--kernel is for the CUDA producer", "--producer host"]);
}

/// Kernels that also exist as a compute shader run without CUDA. The others report that they need it.
#[test]
fn a_kernel_of_the_gallery_needs_cuda_or_a_shader() {
    let Some(folder) = without_cuda() else { return };
    let kernel = |name, more: &[&str]| {
        let mut command = with_libraries(folder.path());
        command.args(SMALL).args(["--kernel", name]).args(more).output().unwrap()
    };
    for name in ["wave", "ripples", "ocean", "swarm"] {
        assert_exit(&kernel(name, &[]), 0);
        assert_exit(&kernel(name, &["--producer=compute"]), 0);
    }
    assert_fails(
        &kernel("pond", &[]),
        1,
        &["the built-in pond needs CUDA", "libcuda", "choose another kernel, wave, ripples, ocean, swarm"],
    );
    let compute = ["--kernel is for the CUDA producer", "--producer compute"];
    assert_fails(&kernel("pond", &["--producer=compute"]), 2, &compute);
    assert_fails(
        &kernel("ocean", &["--producer=host"]),
        2,
        &["--kernel is for the CUDA producer", "--producer host"],
    );
    assert_fails(
        &kernel("ocean", &["--scene=texture"]),
        2,
        &["--kernel ocean fills a field", "--scene texture"],
    );
    assert_fails(
        &kernel("oceans", &[]),
        2,
        &["the gallery has no such kernel", "wave, ripples, ocean, pond, swarm", ".cu"],
    );
    assert_fails(
        &kernel("ocean", &["--param=height=1"]),
        2,
        &["the built-in ocean has no parameter `height`", "chop (0 to 1"],
    );
    // A file of the same name is named by its path.
    assert_fails(&kernel("./ocean", &[]), 1, &["cannot read ./ocean"]);
}

/// A built-in kernel is no risk, so it needs no consent.
#[test]
fn a_kernel_of_the_gallery_runs_inline() {
    let Some(stand_in) = StandIn::new() else { return };
    let mut command = stand_in.command(&stand_in::ALL);
    let output = command.args(SMALL).args(["--kernel=pond", "--handoff=inline"]).output().unwrap();
    assert_exit(&output, 0);
    assert!(stdout(&output).contains("inline"), "{}", stdout(&output));
}

#[test]
fn a_cuda_driver_that_is_too_old() {
    let Some(stand_in) = StandIn::new() else { return };
    let mut command = stand_in.cuda_alone();
    command.env("STAND_IN_CUDA_VERSION", "11010");
    let output = command.args(SMALL).arg("--producer=cuda").output().unwrap();
    assert_fails(&output, 1, &["CUDA 11.1", "CUDA 11.2 or later", "update"]);
}

#[test]
fn a_cuda_driver_that_does_not_start() {
    let Some(stand_in) = StandIn::new() else { return };
    let mut command = stand_in.cuda_alone();
    command.env("STAND_IN_FAIL", "cuInit:100");
    let output = command.args(SMALL).arg("--producer=cuda").output().unwrap();
    assert_fails(&output, 1, &["cuInit", "CUDA_ERROR_NO_DEVICE, 100", "CUDA_VISIBLE_DEVICES"]);
}

/// The GPU is in exclusive-process mode.
#[test]
fn a_gpu_that_another_process_has_to_itself() {
    let Some(stand_in) = StandIn::new() else { return };
    let flat = common::kernel("test/flat.ptx");
    for (more, code, words) in [
        (&[][..], 0, "a Vulkan compute shader fills the field"),
        (&["--producer=cuda"], 1, "error: cuDevicePrimaryCtxRetain failed on Stand-in GPU"),
        (&["--kernel", flat.to_str().unwrap()], 1, "flat.ptx needs CUDA"),
    ] {
        let mut command = stand_in.command(&stand_in::ALL);
        command.env("STAND_IN_FAIL", "cuDevicePrimaryCtxRetain:46").args(SMALL).args(more);
        let output = command.output().unwrap();
        assert_fails(&output, code, &[words, "another process has this GPU to itself", "nvidia-smi -c 0"]);
        assert_eq!(stdout(&output).contains("producer      compute"), code == 0, "{}", stdout(&output));
    }
}

/// A toolkit's `libcuda`, or one that lacks functions, comes first. The driver's is found all the same, or
/// all are named.
#[test]
fn a_wrong_libcuda_does_not_cost_cuda() {
    let Some(stand_in) = StandIn::new() else { return };
    let lacking = stand_in.lacking(&["cuMemCreate"]);
    for library in [stand_in.library(), lacking.library()] {
        for names in [&["libcuda.so"][..], &["libcuda.so.1"]] {
            let folder = tempfile::tempdir().unwrap();
            let stubs = harness::stubs(folder.path(), library, names);
            let mut command = harness::finding(stand_in.command(&stand_in::ALL), &stubs);
            let run = stand_in::run(command.args(SMALL).arg("--producer=cuda")).unwrap();
            run.check_clean(0).unwrap();
        }
    }
    // Two that are wrong.
    let folder = tempfile::tempdir().unwrap();
    let stubs = harness::stubs(folder.path(), stand_in.library(), &["libcuda.so.1"]);
    let mut command = harness::finding(lacking.cuda_alone(), &stubs);
    let output = command.args(SMALL).arg("--producer=cuda").output().unwrap();
    let stub = "cuInit failed on the CUDA driver, libcuda.so.1: ";
    assert_fails(&output, 1, &["no libcuda works: ", stub, ", 34); ", "it lacks cuMemCreate"]);
}

#[test]
fn a_cuda_device_with_no_vulkan_twin() {
    let Some(stand_in) = StandIn::new() else { return };
    let output = stand_in.cuda_alone().args(SMALL).arg("--producer=cuda").output().unwrap();
    assert_fails(&output, 1, &["Stand-in GPU: no Vulkan device has its UUID", "no CUDA device has its UUID"]);
    let output = stand_in.cuda_alone().arg("devices").output().unwrap();
    assert_exit(&output, 0);
    let table = stdout(&output);
    assert!(table.contains("Stand-in GPU") && table.contains("CUDA 12.0 driver"), "{table}");
}

#[test]
fn devices_says_which_gpus_reach_each_other() {
    let Some(stand_in) = StandIn::new() else { return };
    let lines = |count: &str, failure: &str| {
        let mut command = stand_in.cuda_alone();
        command.env("STAND_IN_CUDA_DEVICES", count).env("STAND_IN_FAIL", failure);
        let output = command.arg("devices").output().unwrap();
        assert_exit(&output, 0);
        let reaches = |line: &&str| line.contains(" reaches");
        stdout(&output).lines().filter(reaches).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(lines("1", "").is_empty());
    assert_eq!(
        lines("3", ""),
        [
            "CUDA 0 reaches CUDA 1 directly",
            "CUDA 1 reaches CUDA 0 directly",
            "CUDA 2 reaches no other GPU: copies go through the CPU's memory",
        ]
    );
    let unknown =
        "CUDA 0: which GPUs it reaches is unknown: cuDeviceCanAccessPeer answered 999 for CUDA 0 and 1";
    assert_eq!(lines("2", "cuDeviceCanAccessPeer:999"), [unknown, "CUDA 1 reaches CUDA 0 directly"]);
}

/// The UUIDs match, but a software device exports nothing that CUDA could import.
#[test]
fn a_twin_that_cannot_export() {
    let Some(stand_in) = StandIn::new() else { return };
    let mut command = stand_in.command(&[]);
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

/// Unless `--grid` is given. One line says what is drawn.
#[test]
fn a_software_device_gets_a_small_field_unless_told_otherwise() {
    if !stdout(&run(&["devices"])).contains("llvmpipe") {
        return common::skip_without_tools("no software Vulkan device (lavapipe) here");
    }
    let draw = |more: &[&str]| {
        let output =
            run(&[&["--headless", "--device=llvmpipe", "--frames=1", "--size=64x48"], more].concat());
        assert_exit(&output, 0);
        let said = stderr(&output);
        (stdout(&output), said.lines().filter(|line| line.contains("--grid 128x128")).count())
    };
    let (report, lines) = draw(&[]);
    assert!(report.contains("128x128") && lines == 1, "{report}");
    let (report, lines) = draw(&["--grid=24x16"]);
    assert!(report.contains("24x16") && lines == 0, "{report}");
}

#[test]
fn a_picture_beyond_what_the_device_draws() {
    let output = run(&["--headless", "--size=100000x10", "--frames=1", "--grid=2x2"]);
    assert_fails(&output, 1, &["100000x10", "maxImageDimension2D"]);
}

/// Simulates a full device by a limit on the address space, from which a software device takes its memory.
/// Some drivers do not survive that: Mesa 22.3 does, but 25.0 has crashed.
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
        ("--frames=0", "`0` is not a whole number from 1 on"),
        ("--speed=nan", "number between"),
        ("--producer=magic", "possible values"),
        ("--colormap=jet", "possible values"),
        ("--style=fog", "possible values"),
        ("--camera=1,2,3", "not six numbers"),
        ("--camera=0,0,x,0,0,0", "not six numbers"),
        ("--camera=nan,0,3,0,0,0", "is not a direction"),
        ("--camera=0,1.6,3,0,0,0", "an elevation of 1.6"),
        ("--camera=0,0,0,0,0,0", "a distance of 0"),
        ("--camera=0,0,3,9,0,0", "farther than 3"),
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
        (concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/wave.ptx:nothing"), "no entry `nothing`"),
    ] {
        let output = run(&[SMALL.as_slice(), &["--kernel", argument]].concat());
        assert_fails(&output, 1, &[part]);
    }
}

/// The error has the message of the driver's compiler, with the line.
#[test]
fn a_kernel_that_does_not_compile() {
    let kernel = concat!(env!("CARGO_MANIFEST_DIR"), "/../handoff/kernels/test/broken.ptx");
    let output = run(&[SMALL.as_slice(), &["--producer=cuda", "--kernel", kernel]].concat());
    if stderr(&output).contains("a device that CUDA and Vulkan share, and there is none") {
        return common::skip_without_gpu(&stderr(&output));
    }
    assert_fails(&output, 1, &["broken.ptx", "cuModuleLoadDataEx", "line"]);
}

/// The reader who closed the pipe wants no more output. The program still does the rest of its work.
#[test]
fn a_closed_pipe_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("a.png");
    for arguments in
        [&["devices"][..], &[SMALL.as_slice(), &["--output", picture.to_str().unwrap()]].concat()]
    {
        let mut child =
            wavefield().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert_fails(&child.wait_with_output().unwrap(), 0, &[]);
    }
    assert!(read_png(&picture).is_ok());
}

#[cfg(target_os = "linux")]
#[test]
fn standard_output_on_a_full_disk() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = wavefield().arg("devices").stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_fails(&output, 1, &["cannot write to standard output", "No space left"]);
}

/// Simulates a full disk by a limit on the size of files. The program reaches it at the end, when it writes
/// the picture. A software driver's memory may be a file too, so the limit comes with the last submission,
/// which copies the picture.
#[test]
fn a_disk_that_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("a.png");
    std::fs::write(&picture, "the picture of yesterday").unwrap();
    let Some(stand_in) = StandIn::new() else { return };
    let mut command = stand_in.command(&[]);
    command.env("STAND_IN_FILE_LIMIT", "vkQueueSubmit2:3:2048");
    let arguments =
        ["--headless", "--frames=1", "--grid=64x64", "--size=640x480", "--validation=off", "--output"];
    let output = command.args(arguments).arg(&picture).output().unwrap();
    assert_fails(&output, 1, &["cannot write", "a.png", "File too large"]);
    assert_eq!(std::fs::read_to_string(&picture).unwrap(), "the picture of yesterday");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing half-written is left behind");
}

#[test]
fn an_output_folder_that_may_not_be_written() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o555)).unwrap();
    let mut command = wavefield();
    if std::fs::write(folder.path().join("probe"), "").is_ok() {
        // The superuser may write everywhere, so run the program as the user `nobody`.
        command.uid(65534).gid(65534);
    }
    let picture = folder.path().join("a.png");
    let Ok(output) = command.args(SMALL).arg("--output").arg(picture).output() else {
        return common::skip("the program cannot be run as another user here");
    };
    assert_fails(&output, 1, &["cannot write", "a.png", "Permission denied"]);
}

/// The folder exists at the start, when the program checks it, and is gone when the picture is done.
#[test]
fn an_output_folder_that_vanishes() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let child = long_run(&inner.join("a.png"), "--frames=300");
    std::fs::remove_dir(&inner).unwrap();
    assert_fails(&child.wait_with_output().unwrap(), 1, &["cannot write", "inner/a.png", "No such file"]);
    assert!(!inner.exists());
}

/// Starts a run that takes a while, and waits until it has checked its arguments and opens the drivers.
fn long_run(output: &Path, frames: &str) -> Child {
    let mut command = wavefield();
    command
        .args(["--headless", "--device=0", frames, "--grid=16x16", "--size=64x48", "--output"])
        .arg(output);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    process::wait_for(&mut child, "Vulkan", |process| process::has_opened(process, "libvulkan"));
    child
}

fn signal(child: &Child, name: &str) {
    // `kill` is built into every shell, but not every system has the program.
    let killed = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status().unwrap();
    assert!(killed.success());
}

#[test]
fn a_signal_ends_a_headless_run_and_leaves_nothing_half_written() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["TERM", "INT", "HUP"] {
        let mut child = long_run(&folder.path().join("a.png"), "--frames=1000000");
        process::wait_for(&mut child, "frames", process::has_worked);
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert_fails(&output, 1, &["stopped after frame", "of 1000000", "no picture was written"]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

/// A signal may come at any moment: while the program starts, draws, writes or ends. The picture is whole, or
/// there is none.
#[test]
fn signals_at_random_moments() {
    const ROUNDS: u32 = 48;
    let start = |picture: &Path| {
        let mut command = wavefield();
        command.args([
            "--headless",
            "--frames=40",
            "--grid=16x16",
            "--size=64x48",
            "--validation=off",
            "--output",
        ]);
        command.arg(picture).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    // How long a run takes here without a signal.
    let undisturbed = || {
        let (folder, began) = (tempfile::tempdir().unwrap(), Instant::now());
        assert_fails(&start(&folder.path().join("a.png")).wait_with_output().unwrap(), 0, &[]);
        began.elapsed()
    };
    let whole = undisturbed().max(undisturbed());
    let done = AtomicU32::new(0);
    let rounds: Vec<u32> = (0..ROUNDS).collect();
    let problems = stand_in::each(&rounds, |&round| {
        let folder = tempfile::tempdir().unwrap();
        let picture = folder.path().join("a.png");
        let child = start(&picture);
        // More signals come near the start, where a run passes from one stage to the next.
        std::thread::sleep(whole * 2 * round * round / (ROUNDS * ROUNDS));
        signal(&child, if round % 2 == 0 { "INT" } else { "TERM" });
        let output = child.wait_with_output().unwrap();
        let (text, files) = (stderr(&output), std::fs::read_dir(folder.path()).unwrap().count());
        let good = match output.status.code() {
            Some(0) => {
                done.fetch_add(1, Ordering::Relaxed);
                files == 1 && read_png(&picture).is_ok()
            }
            Some(1) => files == 0 && text.contains("no picture was written") && !text.contains("panicked"),
            // The signal came before the handler was installed, so the system ended the process.
            None => files == 0,
            Some(_) => false,
        };
        if good { Ok(()) } else { Err(format!("round {round}: {}, {files} files: {text}", output.status)) }
    });
    stand_in::say(&format!("{ROUNDS} signals, {} of which came too late", done.into_inner()));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Several instances share the devices and even the output. The last one wins, and the file is whole at any
/// time.
#[test]
fn two_instances_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("a.png");
    let start = || {
        let mut command = wavefield();
        command
            .args(["--headless", "--frames=30", "--grid=16x16", "--size=320x240", "--output"])
            .arg(&picture);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for child in [start(), start(), start()] {
        assert_fails(&child.wait_with_output().unwrap(), 0, &[]);
        assert!(read_png(&picture).is_ok(), "a whole picture");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_texture_beyond_what_the_device_has() {
    let output =
        run(&["--headless", "--producer=compute", "--scene=texture", "--grid=100000x2", "--frames=1"]);
    assert_fails(&output, 1, &["100000x2", "maxImageDimension2D"]);
}
