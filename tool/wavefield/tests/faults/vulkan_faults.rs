//! Makes every Vulkan call that can fail do so in turn, the first time and the last time. A layer above the
//! driver (`tests/stand_in`) returns the error instead of the driver. The program does not know about the
//! layer.

use crate::common;
use wavefield_test_support::display;
use wavefield_test_support::page::{Page, Served, height, until};
use wavefield_test_support::stand_in;

use std::process::Command;

use ash::vk;
use common::stdout;
use display::Display;
use stand_in::{ALL, Report, Run, StandIn, each, run, say};

/// Little work, but every slot is used more than once.
const SMALL: [&str; 5] = ["--ring=2", "--grid=8x8", "--size=64x48", "--samples=4", "--validation=off"];

/// How to run the program: with the compute shader, with CUDA, with CUDA inline, or with the compute shader
/// in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Compute,
    Cuda,
    Inline,
    Window,
}

struct Bench {
    stand_in: StandIn,
    display: Option<Display>,
    pictures: tempfile::TempDir,
}

impl Bench {
    fn new() -> Option<Self> {
        let pictures = tempfile::tempdir().unwrap();
        Some(Self { stand_in: StandIn::new()?, display: Display::start(), pictures })
    }

    fn command(&self, way: Way) -> Option<Command> {
        let mut command = self.stand_in.command(&ALL);
        command.args(SMALL);
        let output = || {
            format!(
                "--output={}/{way:?}-{:?}.png",
                self.pictures.path().display(),
                std::thread::current().id()
            )
        };
        match way {
            Way::Compute => command.args(["--headless", "--producer=compute"]).arg(output()),
            Way::Cuda => command.args(["--headless", "--producer=cuda"]).arg(output()),
            Way::Inline => command.args(["--headless", "--producer=cuda", "--handoff=inline"]),
            Way::Window => self.display.as_ref()?.show(command.arg("--producer=compute")),
        };
        Some(command)
    }

    fn attempt(&self, way: Way, fail: &str) -> Option<Result<Run, String>> {
        Some(run(self.command(way)?.arg("--frames=5").env("STAND_IN_FAIL", fail)))
    }

    /// Does a run in which nothing fails. Returns its report.
    fn sound(&self, way: Way) -> Option<Report> {
        let done = self.attempt(way, "")?.unwrap();
        let report = done.check_clean(0).unwrap_or_else(|problem| panic!("{way:?}: {problem}"));
        assert!(stdout(&done.output).contains("frames        5\n"), "{}", stdout(&done.output));
        Some(report.clone())
    }
}

/// Whether a call can return an error.
fn can_fail(call: &str) -> bool {
    let silent = ["vkDestroy", "vkFree", "vkCmd", "vkUnmap"];
    call.starts_with("vk") && !silent.iter().any(|start| call.starts_with(start))
}

/// The errors that the specification lists for a call and that can occur in practice.
fn errors(call: &str) -> Vec<vk::Result> {
    use vk::Result as R;
    let memory = [R::ERROR_OUT_OF_HOST_MEMORY, R::ERROR_OUT_OF_DEVICE_MEMORY];
    match call {
        "vkEnumeratePhysicalDevices" | "vkEnumeratePhysicalDeviceGroups" | "vkCreateInstance" => {
            vec![R::ERROR_OUT_OF_HOST_MEMORY, R::ERROR_INITIALIZATION_FAILED]
        }
        "vkCreateDevice" => {
            [&memory[..], &[R::ERROR_INITIALIZATION_FAILED, R::ERROR_TOO_MANY_OBJECTS, R::ERROR_DEVICE_LOST]]
                .concat()
        }
        "vkGetMemoryFdKHR" | "vkGetSemaphoreFdKHR" => {
            vec![R::ERROR_TOO_MANY_OBJECTS, R::ERROR_OUT_OF_HOST_MEMORY]
        }
        "vkAllocateMemory" => [&memory[..], &[R::ERROR_TOO_MANY_OBJECTS]].concat(),
        "vkMapMemory" => [&memory[..], &[R::ERROR_MEMORY_MAP_FAILED]].concat(),
        "vkQueueSubmit"
        | "vkQueueSubmit2"
        | "vkQueueWaitIdle"
        | "vkDeviceWaitIdle"
        | "vkWaitSemaphores"
        | "vkWaitForFences"
        | "vkGetSemaphoreCounterValue"
        | "vkGetQueryPoolResults"
        | "vkAcquireNextImageKHR"
        | "vkQueuePresentKHR" => [&memory[..], &[R::ERROR_DEVICE_LOST]].concat(),
        "vkCreateSwapchainKHR" => [
            &memory[..],
            &[R::ERROR_DEVICE_LOST, R::ERROR_INITIALIZATION_FAILED, R::ERROR_NATIVE_WINDOW_IN_USE_KHR],
        ]
        .concat(),
        "vkGetPhysicalDeviceSurfaceFormatsKHR" | "vkGetPhysicalDeviceSurfacePresentModesKHR" => {
            [&memory[..], &[R::ERROR_SURFACE_LOST_KHR]].concat()
        }
        "vkEnumerateDeviceExtensionProperties" => vec![R::ERROR_OUT_OF_HOST_MEMORY],
        _ => memory.to_vec(),
    }
}

struct Case {
    way: Way,
    call: String,
    nth: u64,
    result: vk::Result,
}

impl Case {
    fn check(&self, bench: &Bench) -> Result<(), String> {
        let Self { way, ref call, nth, result } = *self;
        let fail = format!("{call}:{}:{nth}", result.as_raw());
        let problem = |what: String| format!("{call} {result:?} at {nth} in {way:?}: {what}");
        let done = bench.attempt(way, &fail).expect("it ran before").map_err(problem)?;
        // Only the overlay's library calls `vkQueueSubmit`. It leaves the image whose upload failed.
        let report = if call == "vkQueueSubmit" { done.check_end(1) } else { done.check_clean(1) };
        let report = report.map_err(problem)?;
        let text = done.text();
        let said = match &**call {
            "vkQueueSubmit" => {
                text.contains("drawing the overlay failed on ") && text.contains(&format!("{result:?}"))
            }
            // gpu-allocator reports what the memory was for, not which call failed.
            "vkAllocateMemory" | "vkMapMemory" => text.contains(call) || text.contains("no memory "),
            // The program treats this failure as the answer "no".
            "vkGetPhysicalDeviceSurfaceSupportKHR" => text.contains("cannot present to this window"),
            "vkCreateXlibSurfaceKHR" | "vkCreateXcbSurfaceKHR" => {
                text.contains("creating the window's surface")
            }
            call => text.contains(&format!("{call} failed on ")) && text.contains(&format!("{result:?}")),
        };
        if !said {
            return Err(problem(format!("call or code is missing: {text}")));
        }
        let explained =
            text.contains("VK_EXT_device_fault: the stand-in was told to fail, invalid read at 0xdead0000");
        if result == vk::Result::ERROR_DEVICE_LOST && call != "vkCreateDevice" && !explained {
            return Err(problem(format!("the device's description of its loss is missing: {text}")));
        }
        match report.count(call) >= nth {
            true => Ok(()),
            false => Err(problem(format!("it was called only {} times", report.count(call)))),
        }
    }
}

/// A page asks for a size for which there is no memory: the picture keeps its size.
#[test]
fn a_page_that_is_too_large_is_drawn_as_before() {
    let Some(bench) = Bench::new() else { return };
    // The glyphs' image comes first, then those of the first size, then those of the new one.
    for failing in ["vkCreateImage:-2:6", "vkCreateImage:-2:8"] {
        let mut command = bench.stand_in.command(&ALL);
        command.args(SMALL).args(["--producer=compute", "--web=0"]).env("STAND_IN_FAIL", failing);
        let served = Served::start(&mut command);
        let mut page = Page::new(&served.url);
        let show = |page: &mut Page| {
            let (number, jpeg) = page.picture();
            page.seen(number);
            height(&jpeg)
        };
        assert_eq!(show(&mut page), 48);
        page.say(r#"{"type":"size","width":200,"height":100,"scale":1}"#);
        assert!(served.line("note: the picture cannot have ").starts_with("200x100 pixels: "));
        assert_eq!(show(&mut page), 48);
        page.say(r#"{"type":"size","width":200,"height":101,"scale":1}"#);
        until("another size", || show(&mut page) == 101);
        served.interrupt();
    }
}

#[test]
fn every_call_fails_in_turn() {
    let Some(bench) = Bench::new() else { return };
    let mut cases: Vec<Case> = Vec::new();
    let mut table = String::new();
    for way in [Way::Compute, Way::Cuda, Way::Inline, Way::Window] {
        let Some(report) = bench.sound(way) else { continue };
        for (call, &count) in report.calls.iter().filter(|(call, _)| can_fail(call)) {
            if cases.iter().any(|case| case.call == *call) {
                continue;
            }
            let before = cases.len();
            let case = |nth, result| Case { way, call: call.clone(), nth, result };
            let errors = errors(call);
            cases.extend(errors.iter().map(|&result| case(1, result)));
            // Also fail the last call. Three kinds are excluded: the number of waits and reads of the counter
            // depends on timing, the last instance only keeps the drivers loaded and may fail, and the loader
            // makes the last query for extensions.
            let late = !matches!(
                &**call,
                "vkGetSemaphoreCounterValue"
                    | "vkWaitSemaphores"
                    | "vkCreateInstance"
                    | "vkEnumerateDeviceExtensionProperties"
            );
            if late
                && count > 1
                && let Some(&result) = errors.last()
            {
                cases.push(case(count, result));
            }
            table += &format!("{call:44} {way:?} {count:4} calls {:2} failed\n", cases.len() - before);
        }
    }
    let problems = each(&cases, |case| case.check(&bench));
    say(&format!("{table}{} failures of {} Vulkan calls", cases.len(), table.lines().count()));
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), cases.len(), problems.join("\n"));
}

/// The results that a window may return at any time are not failures.
#[test]
fn what_a_window_answers_is_no_failure() {
    let Some(bench) = Bench::new() else { return };
    if bench.sound(Way::Window).is_none() {
        return;
    }
    use vk::Result as R;
    let mut cases = Vec::new();
    for nth in [1, 2, 3, 5] {
        for result in
            [R::SUBOPTIMAL_KHR, R::ERROR_OUT_OF_DATE_KHR, R::ERROR_SURFACE_LOST_KHR, R::TIMEOUT, R::NOT_READY]
        {
            cases.push(("vkAcquireNextImageKHR", result, nth, 1));
        }
        for result in [R::SUBOPTIMAL_KHR, R::ERROR_OUT_OF_DATE_KHR, R::ERROR_SURFACE_LOST_KHR] {
            cases.push(("vkQueuePresentKHR", result, nth, 1));
        }
    }
    for call in ["vkGetPhysicalDeviceSurfaceCapabilitiesKHR", "vkCreateSwapchainKHR"] {
        cases.push((call, R::ERROR_SURFACE_LOST_KHR, 1, 1));
    }
    // Several times in a row, but not for ever.
    cases.push(("vkAcquireNextImageKHR", R::ERROR_SURFACE_LOST_KHR, 2, 4));
    cases.push(("vkAcquireNextImageKHR", R::ERROR_OUT_OF_DATE_KHR, 2, 4));
    cases.push(("vkQueuePresentKHR", R::SUBOPTIMAL_KHR, 1, 4));
    let problems = each(&cases, |&(call, result, nth, times)| {
        let fail = format!("{call}:{}:{nth}:{times}", result.as_raw());
        let problem = |what: String| format!("{call} {result:?} at {nth}, {times} times: {what}");
        let done = bench.attempt(Way::Window, &fail).expect("it ran before").map_err(problem)?;
        let report = done.check_clean(0).map_err(problem)?;
        let surfaces = report.count("vkCreateXlibSurfaceKHR") + report.count("vkCreateXcbSurfaceKHR");
        let (lost, swapchains) = (result == R::ERROR_SURFACE_LOST_KHR, report.count("vkCreateSwapchainKHR"));
        // After the last present, nothing needs to be remade.
        let remade = !matches!(result, R::TIMEOUT | R::NOT_READY) && nth < 5;
        if !stdout(&done.output).starts_with("frames        5") {
            return Err(problem(format!("not five frames: {}", stdout(&done.output))));
        }
        if lost && remade && surfaces < 2 {
            return Err(problem("the surface was not made anew".into()));
        }
        let first = call.starts_with("vkGetPhysical");
        if remade && !first && swapchains < 2 {
            return Err(problem("the images were not made anew".into()));
        }
        Ok(())
    });
    say(&format!("the program handled {} results of a window", cases.len()));
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), cases.len(), problems.join("\n"));
}

/// A window that is gone loses every surface. The program must end with an error.
#[test]
fn a_surface_that_stays_lost_is_an_error() {
    let Some(bench) = Bench::new() else { return };
    for call in ["vkAcquireNextImageKHR", "vkQueuePresentKHR", "vkGetPhysicalDeviceSurfaceCapabilitiesKHR"] {
        let fail = format!("{call}:{}:2:1000", vk::Result::ERROR_SURFACE_LOST_KHR.as_raw());
        // Makes the program ask for the window's size a second time.
        let fail = format!("{fail},vkQueuePresentKHR:{}:1:1", vk::Result::ERROR_OUT_OF_DATE_KHR.as_raw());
        let Some(mut command) = bench.command(Way::Window) else { return };
        let done = run(command.arg("--frames=50").env("STAND_IN_FAIL", fail)).unwrap();
        done.check_clean(1).unwrap_or_else(|problem| panic!("{call}: {problem}"));
        let text = done.text();
        assert!(
            text.contains(&format!("{call} failed on")) && text.contains("ERROR_SURFACE_LOST_KHR"),
            "{text}"
        );
    }
}

/// The error after the loss of a surface names what is wrong with the new one.
#[test]
fn a_new_surface_without_presentation_is_an_error() {
    let Some(bench) = Bench::new() else { return };
    let Some(report) = bench.sound(Way::Window) else { return };
    let call = "vkGetPhysicalDeviceSurfaceSupportKHR";
    let lost = vk::Result::ERROR_SURFACE_LOST_KHR.as_raw();
    let fail = format!("vkAcquireNextImageKHR:{lost}:2:1,{call}:{lost}:{}:1000", report.count(call) + 1);
    let done = bench.attempt(Way::Window, &fail).expect("it ran before").unwrap();
    done.check_clean(1).unwrap();
    let text = done.text();
    assert!(text.contains("cannot present to it") && !text.contains("instead of"), "{text}");
}

/// The loss of a device without `VK_EXT_device_fault` is an error too.
#[test]
fn a_lost_device_that_says_nothing() {
    let Some(stand_in) = StandIn::new() else { return };
    let mut command = stand_in.command(&["VK_KHR_external_semaphore_fd"]);
    command
        .args(SMALL)
        .args(["--headless", "--frames=5", "--producer=cuda"])
        .env("STAND_IN_FAIL", "vkQueueSubmit2:-4:3");
    let done = run(&mut command).unwrap();
    done.check_clean(1).unwrap();
    let text = done.text();
    assert!(
        text.contains("vkQueueSubmit2 failed on llvmpipe") && text.contains("ERROR_DEVICE_LOST"),
        "{text}"
    );
    assert!(!text.contains("VK_EXT_device_fault"), "{text}");
}

/// The message says what was asked for, what is available and what would fit. What it says would fit does
/// fit.
#[test]
fn a_ring_that_does_not_fit_says_what_would() {
    let Some(stand_in) = StandIn::new() else { return };
    let attempt = |producer: &str, extensions: &[&str], ring: &str, grid: &str| {
        let mut command = stand_in.command(extensions);
        command.args(["--headless", "--frames=2", "--size=16x16", "--validation=off"]);
        command.args([producer, "--ring", ring, "--grid", grid]).env("STAND_IN_MEMORY", "400000000");
        run(&mut command).unwrap()
    };
    let (timeline, budget) = ("VK_KHR_external_semaphore_fd", "VK_EXT_memory_budget");
    for (producer, extensions) in [
        ("--producer=cuda", &[timeline][..]),
        ("--producer=compute", &[timeline, budget]),
        ("--producer=compute", &[timeline]),
        ("--producer=host", &[timeline, budget]),
    ] {
        let done = attempt(producer, extensions, "32", "1000x1000");
        done.check_clean(1).unwrap();
        let text = done.text();
        let says_free = text.contains(" bytes are free");
        assert_eq!(says_free, producer == "--producer=cuda" || extensions.contains(&budget), "{text}");
        for part in ["llvmpipe", "32 slots of 1000x1000 vertices, 16000000 bytes each, 512000000 in all"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        let after = |mark: &str| {
            let rest = text.split_once(mark).unwrap_or_else(|| panic!("{mark} is missing in: {text}")).1;
            rest.split(|c: char| !c.is_ascii_digit() && c != 'x').next().unwrap().to_owned()
        };
        let (ring, grid) =
            (after("the deepest that fits is --ring "), after("the largest square is --grid "));
        assert!((20..=25).contains(&ring.parse::<u32>().unwrap()), "{text}");
        // Leaves some memory for the rest of what a picture needs.
        let done = attempt(producer, extensions, &ring, "990x990");
        done.check_clean(0).unwrap_or_else(|problem| panic!("--ring {ring}: {problem}"));
        let side: u32 = grid.split('x').next().unwrap().parse().unwrap();
        let done = attempt(producer, extensions, "32", &format!("{0}x{0}", side - 10));
        done.check_clean(0).unwrap_or_else(|problem| panic!("--grid {grid}: {problem}"));
        assert!(
            attempt(producer, extensions, "32", &format!("{0}x{0}", side + 20)).output.status.code()
                == Some(1)
        );
    }
}

/// A kernel faults or never ends. The error names the kernel, or the side that did not finish.
#[test]
fn a_kernel_that_goes_wrong_is_named() {
    let Some(stand_in) = StandIn::new() else { return };
    let mut cases = Vec::new();
    for handoff in common::on_a_stream() {
        cases.push((handoff, "trap", "(CUDA_ERROR_LAUNCH_FAILED, 719)"));
        cases.push((handoff, "illegal", "(CUDA_ERROR_ILLEGAL_ADDRESS, 700)"));
        cases.push((handoff, "spin", "no frame was finished for"));
    }
    let problems = each(&cases, |&(handoff, kernel, part)| {
        let path = format!("{}/../handoff/kernels/test/{kernel}.ptx", env!("CARGO_MANIFEST_DIR"));
        let mut command = stand_in.command(&ALL);
        // Without `--ring`: some of these hand-offs have one slot.
        command.args(&SMALL[1..]).args([
            "--headless",
            "--frames=5",
            "--producer=cuda",
            "--timeout=0.5",
            "--handoff",
            handoff.name(),
        ]);
        // A GPU that never stops is left running. The process then skips its exit handlers, so there is no
        // report.
        let output = stand_in::finish(command.args(["--kernel", &path]))?;
        let text = common::stderr(&output);
        let side = match (common::cpu_waits(handoff), handoff.has_one_slot()) {
            (true, _) => "CUDA did not finish ",
            (false, true) => "CUDA did not signal: it has not finished ",
            (false, false) => "CUDA did not signal: CUDA's `ready` is at 0 of ",
        };
        let named =
            if kernel == "spin" { text.contains(side) } else { text.contains(&format!("{kernel}.ptx: ")) };
        if output.status.code() == Some(1) && text.contains(part) && named && !text.contains("panicked") {
            return Ok(());
        }
        Err(format!("{kernel} with {handoff:?}: {}: {text}", output.status))
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
