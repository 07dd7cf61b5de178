//! Unusual Vulkan drivers, slow devices, and too few threads.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ash::vk;
use wavefield_gpu::Error;
use wavefield_gpu::vulkan::{Buffer, BufferDesc, DeviceDesc, Validation};
use wavefield_run::{DeviceTable, ProducerKind};

use crate::common::{self, assert_exit, stderr, stdout};
use crate::display::Display;
use crate::stand_in::{ALL, StandIn};

/// The path of SwiftShader's manifest, where `scripts/setup.sh` puts it. Returns `None` and reports a skip if
/// it is missing.
fn swiftshader() -> Option<PathBuf> {
    let path = Path::new(common::ROOT).join("target/swiftshader/vk_swiftshader_icd.json");
    if path.exists() {
        return Some(path);
    }
    // Not every distribution has it.
    common::skip(
        "SwiftShader is not installed: Debian has it in chromium-common, and scripts/test.sh fetches it",
    );
    None
}

/// The path of lavapipe's manifest among those of the system. Returns `None` and reports a skip if it is
/// missing.
fn lavapipe() -> Option<PathBuf> {
    let files = std::fs::read_dir("/usr/share/vulkan/icd.d").into_iter().flatten().flatten();
    let found = files.map(|file| file.path()).find(|path| path.to_string_lossy().contains("/lvp_icd"));
    if found.is_none() {
        common::skip_without_tools("lavapipe is not installed");
    }
    found
}

/// The program with only these drivers.
fn with_drivers(drivers: &[&Path]) -> Command {
    let mut command = common::wavefield();
    command.env("VK_DRIVER_FILES", std::env::join_paths(drivers).unwrap());
    command.env_remove("VK_ICD_FILENAMES").env_remove("VK_ADD_DRIVER_FILES");
    command
}

const SMALL: [&str; 4] = ["--frames=3", "--grid=64x64", "--size=64x48", "--validation=off"];

#[test]
fn lavapipe_is_preferred_to_swiftshader() {
    let (Some(swiftshader), Some(lavapipe)) = (swiftshader(), lavapipe()) else { return };
    let output = with_drivers(&[&swiftshader, &lavapipe]).arg("devices").output().unwrap();
    assert_exit(&output, 0);
    let table = stdout(&output);
    assert!(table.contains("SwiftShader"), "{table}");
    assert!(table.lines().any(|line| line.starts_with('>') && line.contains("llvmpipe")), "{table}");
}

/// SwiftShader does not support Xlib surfaces of X11, but reports that it can present to them. Further calls
/// crash it.
#[test]
fn a_driver_that_does_not_know_the_display_is_not_taken() {
    let (Some(swiftshader), Some(lavapipe)) = (swiftshader(), lavapipe()) else { return };
    let Some(display) = Display::start() else { return };
    let both = [&*swiftshader, &*lavapipe];
    let output = display.show(with_drivers(&both).args(SMALL)).output().unwrap();
    assert_exit(&output, 0);
    assert!(stdout(&output).contains("llvmpipe"), "{}", stdout(&output));

    let output = display.show(with_drivers(&both).args(SMALL).arg("--device=swiftshader")).output().unwrap();
    assert_exit(&output, 1);
    assert!(stderr(&output).contains("cannot present to this window"), "{}", stderr(&output));

    let output = display.show(with_drivers(&both[..1]).args(SMALL)).output().unwrap();
    assert_exit(&output, 1);
    assert!(stderr(&output).contains("VK_KHR_xlib_surface"), "{}", stderr(&output));
}

/// SwiftShader needs shader modules with one entry point each. Its sine is as coarse as Vulkan allows, so the
/// shaders have their own.
#[test]
fn swiftshader_fills_and_draws_everything_right() {
    let Some(swiftshader) = swiftshader() else { return };
    for scene in ["field", "texture"] {
        for producer in ["compute", "host"] {
            let mut command = with_drivers(&[&swiftshader]);
            let output =
                command.arg("verify").args(SMALL).args(["--scene", scene, "--producer", producer]).output();
            let output = output.unwrap();
            assert!(output.status.success(), "{scene}, {producer}: {}\n{}", output.status, stderr(&output));
            assert!(stdout(&output).contains("verdict       clean"), "{scene}: {}", stdout(&output));
        }
    }
}

/// SwiftShader has no 64-bit atomics.
#[test]
fn where_compute_shaders_cannot_draw_the_graphics_pipeline_does() {
    let Some(swiftshader) = swiftshader() else { return };
    let mut command = with_drivers(&[&swiftshader]);
    let output =
        command.args(SMALL).args(["--headless", "--producer=host", "--raster=compute"]).output().unwrap();
    assert_exit(&output, 0);
    assert!(stderr(&output).contains("no 64-bit atomics"), "{}", stderr(&output));
    let mut command = common::wavefield();
    command.args(SMALL).args(["--headless", "--producer=host", "--raster=compute", "--scene=texture"]);
    let output = command.output().unwrap();
    assert_exit(&output, 0);
    assert!(stderr(&output).contains("draw no texture"), "{}", stderr(&output));
}

/// winit and X11 store the size of a window in 16 bits.
#[test]
fn a_window_that_no_display_has_is_refused_in_words() {
    let Some(display) = Display::start() else { return };
    let arguments = ["--frames=1", "--grid=8x8", "--validation=off", "--size"];
    for size in ["65536x10", "10x65536", "4294967295x4294967295"] {
        let output = display.show(common::wavefield().args(arguments).arg(size)).output().unwrap();
        assert_exit(&output, 1);
        assert!(stderr(&output).contains("too large"), "{size}: {}", stderr(&output));
    }
    let output = display.show(common::wavefield().args(arguments).arg("65535x10")).output().unwrap();
    assert!(output.status.code().is_some_and(|code| code < 2), "{}: {}", output.status, stderr(&output));
}

#[test]
fn a_scale_that_no_display_has_is_refused_in_words() {
    let Some(display) = Display::start() else { return };
    for scale in ["0", "nan", "1e-6", "1000", "1e300"] {
        let mut command = common::wavefield();
        let command = command.args(SMALL).env("WINIT_X11_SCALE_FACTOR", scale);
        let output = display.show(command).output().unwrap();
        assert_exit(&output, 1);
        let text = stderr(&output);
        assert!(text.contains("WINIT_X11_SCALE_FACTOR") && !text.contains("panicked"), "{scale}: {text}");
    }
}

/// A library that cannot be loaded is as good as none.
#[test]
fn a_library_that_keeps_the_window_away_is_named() {
    let Some(display) = Display::start() else { return };
    for (library, code, words) in [
        ("libxkbcommon-x11.so.0", 0, "Debian's package is libxkbcommon-x11-0"),
        ("libstdc++.so.6", 1, "LD_LIBRARY_PATH has a libstdc++ of its own"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(library), "").unwrap();
        let mut command = crate::stand_in::with_libraries(folder.path());
        let output = display.show(command.args(SMALL).current_dir(&folder)).output().unwrap();
        assert_exit(&output, code);
        assert!(stderr(&output).contains(words), "{library}: {}", stderr(&output));
    }
}

/// With any limit on threads, the program ends with a result or an error, but does not panic.
#[cfg(target_os = "linux")]
#[test]
fn few_threads_are_no_panic() {
    for scene in ["field", "texture"] {
        for most in 2..10 {
            let mut command = common::wavefield();
            command.args(["--headless", "--producer=host", "--scene", scene]).args(SMALL);
            // The limit does not apply to the superuser. No other process has this user id.
            command.uid(54_321).gid(54_321);
            let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
            // SAFETY: the closure makes one system call between fork and exec, on its own value.
            unsafe {
                command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_NPROC, &limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                })
            };
            let Ok(output) = command.output() else {
                return common::skip("the program cannot be run by another user here");
            };
            let (code, text) = (output.status.code(), stderr(&output));
            assert!(matches!(code, Some(0 | 1)), "{most} threads, {scene}: {}: {text}", output.status);
            assert!(!text.contains("panicked"), "{most} threads, {scene}: {text}");
            assert!(code == Some(0) || text.contains("error: "), "{most} threads, {scene}: {text}");
        }
    }
}

/// On a software device, a frame that takes longer than `--timeout` is not a hang.
#[test]
fn a_slow_frame_of_a_software_device_is_no_hang() {
    let Some(lavapipe) = lavapipe() else { return };
    let mut command = with_drivers(&[&lavapipe]);
    command.args(["--headless", "--producer=compute", "--frames=3", "--ring=1", "--timeout=0.5"]);
    let output = command.args(["--grid=1024x1024", "--size=64x48", "--validation=off"]).output().unwrap();
    assert_exit(&output, 0);
    assert!(stdout(&output).contains("frames        3\n"), "{}", stdout(&output));
}

/// Before the first frame, the program waits for the copy that fills an image.
#[cfg(target_os = "linux")]
#[test]
fn a_copy_that_is_never_finished_ends_in_words() {
    let Some(stand_in) = StandIn::new() else { return };
    let mut command = stand_in.command(&ALL);
    command.args(["--headless", "--producer=cuda", "--validation=off", "--frames=2", "--grid=8x8"]);
    // The first wait returns VK_TIMEOUT.
    let done =
        crate::stand_in::run(command.args(["--size=32x24"]).env("STAND_IN_FAIL", "vkWaitSemaphores:2:1"));
    let done = done.unwrap();
    done.check_exit(1).unwrap();
    assert!(done.text().contains("did not become idle"), "{}", done.text());
}

/// The queue waits for ever for a semaphore. The wait for the queue ends with an error, and nothing that the
/// GPU may use is destroyed.
#[test]
fn a_queue_that_never_comes_to_rest_is_not_waited_for_without_end() {
    let made = DeviceTable::headless(Validation::default()).and_then(|table| {
        let choice = table.choose(None, ProducerKind::Compute)?;
        choice.adapter.request_device(&DeviceDesc::default())
    });
    let (device, mut queue) = made.unwrap();
    queue.patience = std::time::Duration::from_millis(300);
    let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
    let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
    // SAFETY: the device is alive, with timeline semaphores enabled.
    let never = unsafe { device.raw().create_semaphore(&info, None) }.unwrap();
    let waits = [vk::SemaphoreSubmitInfo::default()
        .semaphore(never)
        .value(1)
        .stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)];
    // SAFETY: the batch has no commands; the semaphore lives until the queue is idle, below.
    unsafe { queue.submit(&[vk::SubmitInfo2::default().wait_semaphore_infos(&waits)]) }.unwrap();
    let stuck = queue.wait_idle().unwrap_err();
    assert!(matches!(stuck, Error::Stuck { .. }), "{stuck}");

    let desc = BufferDesc {
        label: "a test's",
        size: 16,
        usage: vk::BufferUsageFlags::STORAGE_BUFFER,
        location: gpu_allocator::MemoryLocation::GpuOnly,
    };
    drop(Buffer::new(&device, &desc).unwrap());
    let info = vk::SemaphoreSignalInfo::default().semaphore(never).value(1);
    // SAFETY: the semaphore is alive and its value grows. The device lives until the process ends.
    unsafe { device.raw().signal_semaphore(&info) }.unwrap();
    queue.patience = std::time::Duration::from_secs(60);
    queue.wait_idle().unwrap();
}
