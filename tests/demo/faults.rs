//! Every call of CUDA and Vulkan is made to fail in turn, the first time and the last time: the program ends
//! with an error, without a crash, and without waiting for ever.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::display::Display;
use crate::common::{Run, StandIn, each};

/// Little work, but every slot is used more than once.
const SMALL: [&str; 4] = ["--frames=6", "--ring=2", "--grid=8x8", "--size=32x32"];

/// Vulkan's errors: host and device memory, initialization, a lost device.
const VULKAN: [i32; 4] = [-1, -2, -3, -4];
/// CUDA's: memory, an illegal address (which nothing survives), unknown.
const CUDA: [i32; 3] = [2, 700, 999];

/// What the program may survive.
const SURVIVED: [&str; 14] = [
    // Without CUDA, it says why, and a compute shader writes the field.
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetUuid_v2",
    "cuDeviceGetAttribute",
    // At the end everything is drawn already, and a wait is tried again.
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuStreamQuery",
    "vkQueueWaitIdle",
    "vkWaitSemaphores",
    // There may be other memory.
    "vkAllocateMemory",
    "vkMapMemory",
];

/// Parts of the names of calls that give something back. At the end everything is drawn already.
const GIVES_BACK: [&str; 5] = ["Destroy", "Free", "Release", "SetCurrent", "Unload"];

/// Nothing can be given back to a device that is lost, or to a context in which a kernel has faulted.
const LOST: [i32; 2] = [-4, 700];

fn can_fail(call: &str) -> bool {
    let silent = ["vkDestroy", "vkFree", "vkCmd", "vkUnmap", "cuGetError"];
    !silent.iter().any(|start| call.starts_with(start))
}

/// The window has changed, or its surface is lost: the program makes another swapchain.
const CHANGED: [(&str, i32); 6] = [
    ("vkAcquireNextImageKHR", SURFACE_LOST),
    ("vkAcquireNextImageKHR", OUT_OF_DATE),
    ("vkQueuePresentKHR", SURFACE_LOST),
    ("vkQueuePresentKHR", OUT_OF_DATE),
    ("vkGetPhysicalDeviceSurfaceCapabilitiesKHR", SURFACE_LOST),
    ("vkCreateSwapchainKHR", SURFACE_LOST),
];
const SURFACE_LOST: i32 = -1_000_000_000;
const OUT_OF_DATE: i32 = -1_000_001_004;

/// The program has ended with one of these exit codes, and broke no rule.
fn ends_well(run: &Run, codes: &[i32]) -> Result<(), String> {
    let code = run.output.status.code().filter(|code| codes.contains(code));
    run.check_end(code.unwrap_or(codes[0])).map(drop)
}

/// `tested` has the calls of earlier runs, which are not tested again.
fn every_call_fails_in_turn(more: &[&str], display: Option<&Display>, tested: &mut BTreeSet<String>) {
    let Some(stand_in) = StandIn::new() else { return };
    let arguments = [&SMALL[..], more].concat();
    let run = |fail: &str| {
        let mut command = stand_in.demo(&arguments);
        if let Some(display) = display {
            display.show(&mut command);
        }
        StandIn::finish(command.env("STAND_IN_FAIL", fail))
    };
    let sound = run("").unwrap();
    let calls = &sound.check_clean(0).unwrap().calls;
    assert!(calls.len() > 30, "{calls:?}");
    let new = |call: &str| can_fail(call) && !tested.contains(call);
    let calls: BTreeMap<_, _> = calls.iter().filter(|(call, _)| new(call)).collect();
    let mut cases = Vec::new();
    for (&call, &&count) in &calls {
        let codes = if call.starts_with("vk") { &VULKAN[..] } else { &CUDA[..] };
        for &code in codes {
            cases.push((call, code, 1));
            if count > 1 {
                cases.push((call, code, count));
            }
        }
    }
    let changed = CHANGED.map(|(call, code)| (call.to_owned(), code));
    let changed = changed.iter().filter(|(call, _)| calls.contains_key(call));
    cases.extend(changed.map(|(call, code)| (call, *code, 1)));
    let problems = each(&cases, |&(call, code, nth)| {
        let fail = format!("{call}:{code}:{nth}");
        let in_case = |problem: String| format!("{fail}: {problem}");
        let run = run(&fail).map_err(in_case)?;
        let report = run.report.as_ref().ok_or_else(|| in_case(format!("no report: {}", run.text())))?;
        if report.count(call) < nth {
            // How often the CPU looks depends on the machine's load.
            return ends_well(&run, &[0, 1]).map_err(|problem| in_case(format!("not reached: {problem}")));
        }
        let gives_back = GIVES_BACK.iter().any(|part| call.contains(part));
        let codes = match code {
            SURFACE_LOST | OUT_OF_DATE => &[0][..],
            _ if gives_back || SURVIVED.contains(&call.as_str()) => &[0, 1],
            _ => &[1],
        };
        ends_well(&run, codes).map_err(in_case)?;
        let status = run.output.status.code();
        if status != Some(0) && !run.text().contains("error: ") {
            return Err(in_case(format!("no error: {}", run.text())));
        }
        if !gives_back && !LOST.contains(&code) {
            run.check_clean(status.unwrap_or_default()).map_err(in_case)?;
        }
        Ok(())
    });
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), cases.len(), problems.join("\n"));
    println!("{more:?}: {} failures of {} calls", cases.len(), calls.len());
    tested.extend(calls.into_keys().cloned());
}

#[test]
fn every_call_fails_in_turn_without_a_window() {
    let mut tested = BTreeSet::new();
    for mode in ["--batch=2", "--cpu-sync"] {
        every_call_fails_in_turn(&["--headless", mode], None, &mut tested);
    }
}

#[test]
fn every_call_fails_in_turn_in_a_window() {
    let Some(display) = Display::start() else { return };
    every_call_fails_in_turn(&["--compute"], Some(&display), &mut BTreeSet::new());
}
