//! Every call to the CUDA driver fails in turn, with each code that a machine may answer. The stand-in for a GPU
//! (`tests/stand_in`) makes the program believe in a device, up to drawn frames.

#![cfg(target_os = "linux")]

mod common;
// It shares `01_match` with nobody here.
#[allow(dead_code)]
#[path = "../crates/vulkan-cuda/examples/08_cuda_memory.rs"]
mod cuda_memory;
#[path = "common/stand_in.rs"]
mod stand_in;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{assert_exit, stderr, stdout};
use stand_in::{ALL, IMAGE_VIEW_HANDLE, Report, Run, StandIn, each, run, say};
use wavefield::handoff::Handoff;

/// Enough frames for the ring to come round, with nothing that takes long.
const SMALL: [&str; 6] =
    ["--headless", "--producer=cuda", "--frames=5", "--grid=8x8", "--size=32x24", "--validation=off"];

/// Runs that together make every call: each hand-off, and what none of them does.
const RUNS: [&str; 15] = [
    "timeline",
    "inline",
    "binary",
    "cpu-sync",
    "device-copy",
    "host-copy",
    "texture timeline",
    "texture inline",
    "texture binary",
    "texture device-copy",
    "texture host-copy",
    BENCH,
    LATENCY,
    FORMATS,
    CUDA_MEMORY,
];

/// What the runs begin with that hand over images instead of buffers.
const TEXTURE: &str = "texture ";
/// The kernel alone.
const BENCH: &str = "bench";
const BENCH_ARGUMENTS: [&str; 6] =
    ["bench", "--strategies=produce-only", "--grids=8x8", "--rounds=1", "--round-ms=1", "--size=32x24"];
/// Ping-pongs, by a CUDA graph on an urgent stream.
const LATENCY: &str = "latency";
const LATENCY_ARGUMENTS: [&str; 5] =
    ["bench", "latency", "--rounds=1", "--graph", "--stream-priority=highest"];
/// Every image format through CUDA and back. The stand-in's arrays hold nothing, so this always ends with exit code 1.
const FORMATS: &str = "formats";
/// The library's example of memory that CUDA allocates, which the program itself never does: the test of that name.
const CUDA_MEMORY: &str = "the_example_of_cuda_memory";

/// What a driver may answer: out of memory, no device, bad PTX, PTX too new, no such sharing (WSL2), illegal address,
/// launch failed, fabric not ready, unknown, and a code that is not in the headers that this program was built with.
const CODES: [u32; 10] = [2, 100, 218, 222, 304, 700, 719, 802, 999, 9999];

/// Every symbol that the program looks up, read from the table itself: a new call is tested without further ado.
fn symbols() -> Vec<&'static str> {
    // The comments aside.
    let table = include_str!("../crates/vulkan-cuda/src/cuda/api.rs")
        .split_once("\nfunctions! {\n")
        .expect("the table")
        .1;
    let table = table.split_once("\n}\n").expect("the table's end").0;
    let symbols = table.split('"').skip(1).step_by(2);
    // Only whoever adopts a context asks for its device; this program makes its own. (`examples.rs` adopts.)
    symbols.filter(|&symbol| symbol != "cuCtxGetDevice").collect()
}

/// Those that only some runs need begin so.
const OPTIONAL: [&str; 3] = ["cuGraph", "cuCtxGetStreamPriorityRange", "cuStreamCreateWithPriority"];

/// The name by which errors call it.
fn shown(symbol: &str) -> &str {
    symbol.strip_suffix("_v2").unwrap_or(symbol)
}

fn attempt(stand_in: &StandIn, handoff: &str, fail: &str) -> Result<Run, String> {
    if handoff == CUDA_MEMORY {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", CUDA_MEMORY, "--ignored", "--nocapture"]);
        return run(stand_in.beneath(command, &ALL).env("STAND_IN_FAIL", fail));
    }
    let mut command = stand_in.command(&ALL);
    match handoff {
        BENCH => command.args(BENCH_ARGUMENTS),
        LATENCY => command.args(LATENCY_ARGUMENTS),
        FORMATS => command.args(["devices", "--formats", "--check"]),
        run => match run.strip_prefix(TEXTURE) {
            Some(handoff) => command.args(SMALL).args(["--scene=texture", "--handoff", handoff]),
            None => command.args(SMALL).args(["--handoff", run]),
        },
    };
    run(command.env("STAND_IN_FAIL", fail))
}

/// Started by [`attempt`], in a process of its own. It ends as the program does: with exit code 1 after an error, one of a `Drop`
/// included.
#[test]
#[ignore = "runs on the stand-in, where the other tests start it"]
fn the_example_of_cuda_memory() {
    static FAILED: AtomicBool = AtomicBool::new(false);
    vulkan_cuda::on_cleanup_error(|error| {
        FAILED.store(true, Ordering::Relaxed);
        eprintln!("{error}");
    });
    if cuda_memory::stranger::is_child() {
        cuda_memory::stranger::be_child();
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", CUDA_MEMORY, "--ignored", "--nocapture"]);
    if let Err(error) = cuda_memory::run(child) {
        FAILED.store(true, Ordering::Relaxed);
        eprintln!("{error}");
    }
    std::process::exit(FAILED.load(Ordering::Relaxed).into());
}

/// Everything works before anything is made to fail: drawn frames, nothing left. Returns what each run called.
fn sound_runs(stand_in: &StandIn) -> BTreeMap<&'static str, Report> {
    let mut reports = BTreeMap::new();
    for handoff in RUNS {
        let done = attempt(stand_in, handoff, "").unwrap();
        let code = i32::from(handoff == FORMATS);
        let report = done.check_clean(code).unwrap_or_else(|problem| panic!("{handoff}: {problem}"));
        let drawn = matches!(handoff, BENCH | LATENCY | FORMATS | CUDA_MEMORY)
            || stdout(&done.output).contains("frames        5\n");
        assert!(drawn, "{handoff}: {}", stdout(&done.output));
        reports.insert(handoff, report.clone());
    }
    reports
}

/// One call, in one run, and how it fails.
struct Case {
    symbol: &'static str,
    handoff: &'static str,
    nth: u64,
    code: u32,
}

impl Case {
    fn check(&self, stand_in: &StandIn) -> Result<(), String> {
        let Self { symbol, handoff, nth, code } = *self;
        let mut fail = format!("{symbol}:{code}:{nth}");
        let named = match shown(symbol) {
            // These are asked when another call has failed.
            "cuGetErrorName" | "cuGetErrorString" => {
                fail += ",cuInit:802";
                "cuInit"
            }
            named => named,
        };
        let problem = |what: String| format!("{fail} in {handoff}: {what}");
        let done = attempt(stand_in, handoff, &fail).map_err(problem)?;
        done.check_exit(1).map_err(problem)?;
        // There a refusal is an answer, and stands in the table.
        let table = if handoff == FORMATS { stdout(&done.output) } else { String::new() };
        let text = done.text() + &table;
        let code = if named == shown(symbol) { code } else { 802 };
        let device =
            ["Stand-in GPU", "CUDA device 0", "the CUDA driver"].iter().any(|name| text.contains(name));
        if !text.contains(&format!("{named} failed on ")) || !text.contains(&format!(", {code})")) || !device
        {
            return Err(problem(format!("call, device or code is missing: {text}")));
        }
        // A ping-pong that breaks off leaves each side waiting for the other, and the process ends at once.
        if handoff == LATENCY && done.report.is_none() {
            return Ok(());
        }
        let report = done.check_end(1).map_err(problem)?;
        // What CUDA refused to take back is left, and after a fault it refuses everything.
        let faulted = matches!(code, 700 | 719);
        let refused = |kind: &str| {
            let takes_back: &[&str] = match kind {
                "primary context" => &["cuDevicePrimaryCtxRelease_v2"],
                "stream" => &["cuStreamDestroy_v2"],
                "event" => &["cuEventDestroy_v2"],
                "graph" => &["cuGraphDestroy", "cuGraphExecDestroy"],
                "mipmapped array" => &["cuMipmappedArrayDestroy"],
                "surface object" => &["cuSurfObjectDestroy"],
                "texture object" => &["cuTexObjectDestroy"],
                "module" => &["cuModuleUnload"],
                "linker" => &["cuLinkDestroy"],
                "CUDA memory" => &["cuMemFree_v2"],
                "memory of CUDA's" => &["cuMemRelease"],
                "mapping" => &["cuMemUnmap"],
                // Not while something is mapped there.
                "address range" => &["cuMemAddressFree", "cuMemUnmap"],
                "external memory" => &["cuDestroyExternalMemory"],
                "external semaphore" => &["cuDestroyExternalSemaphore"],
                _ => return false,
            };
            // Nothing is given back in a context that cannot be made current.
            faulted || takes_back.contains(&symbol) || symbol == "cuCtxSetCurrent"
        };
        if let Some((kind, count)) = report.left.iter().find(|(kind, _)| !refused(kind)) {
            return Err(problem(format!("left {count} of {kind}: {text}")));
        }
        // A descriptor is CUDA's from a successful import until the import is destroyed, and else it is closed.
        let owned = |kind| report.left.get(kind).copied().unwrap_or(0);
        let owned = owned("external memory") + owned("external semaphore");
        if report.descriptors as i64 != owned {
            return Err(problem(format!(
                "{} descriptors are open, CUDA has {owned}: {text}",
                report.descriptors
            )));
        }
        Ok(())
    }
}

#[test]
fn every_call_fails_in_turn() {
    let Some(stand_in) = StandIn::new() else { return };
    let reports = sound_runs(&stand_in);
    let mut cases = Vec::new();
    let mut table = String::new();
    for symbol in symbols() {
        // These are tests of their own; cuDeviceGetLuid is asked on Windows only, and cuEventQuery by `wavefield serve` with a
        // client that CUDA serves, which no run here has.
        if matches!(symbol, "cuDeviceGetUuid" | "cuDeviceGetLuid" | "cuMemGetInfo_v2" | "cuEventQuery") {
            continue;
        }
        // These are called where an import is tried, and nowhere else: tests/imports.rs.
        if matches!(symbol, "cuMemImportFromShareableHandle" | "cuMemGetAllocationPropertiesFromHandle") {
            continue;
        }
        let text = matches!(symbol, "cuGetErrorName" | "cuGetErrorString");
        let found = RUNS.iter().find(|run| text || reports[*run].count(symbol) > 0);
        let Some(handoff) = found else { panic!("no run calls {symbol}") };
        let count = reports[handoff].count(symbol).max(1);
        let before = cases.len();
        cases.extend(CODES.map(|code| Case { symbol, handoff, nth: 1, code }));
        if symbol == "cuStreamQuery" {
            // How often it is asked depends on how long things take; the second and third time everything is drawn.
            cases.push(Case { symbol, handoff, nth: 2, code: 999 });
            cases.push(Case { symbol, handoff, nth: 3, code: 719 });
        } else if count > 1 {
            // Each such question makes the context current first; 10 before the end everything is being given back.
            let nth = if symbol == "cuCtxSetCurrent" { count - 10 } else { count };
            cases.push(Case { symbol, handoff, nth, code: 999 });
        }
        if count > 2 && symbol != "cuStreamQuery" {
            cases.push(Case { symbol, handoff, nth: count / 2 + 1, code: 719 });
        }
        table += &format!("{:32} {handoff:12} {count:5} calls {:3} failed\n", symbol, cases.len() - before);
    }
    let problems = each(&cases, |case| case.check(&stand_in));
    say(&format!("{table}{} failures of {} CUDA calls", cases.len(), table.lines().count()));
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), cases.len(), problems.join("\n"));
}

/// `cuDeviceGetUuid` is called only where the driver has no newer form.
#[test]
fn an_older_driver_has_the_first_form_of_the_uuid() {
    let Some(stand_in) = StandIn::new() else { return };
    let older = stand_in.lacking(&["cuDeviceGetUuid_v2"]);
    for code in CODES {
        let mut command = older.command(&ALL);
        command.args(SMALL).env("STAND_IN_FAIL", format!("cuDeviceGetUuid:{code}"));
        let output = command.output().unwrap();
        assert_exit(&output, 1);
        let text = stderr(&output);
        assert!(text.contains("cuDeviceGetUuid failed on Stand-in GPU"), "{text}");
        assert!(text.contains(&format!(", {code})")), "{text}");
    }
    run(older.command(&ALL).args(SMALL)).unwrap().check_clean(0).unwrap();
}

/// Linux knows no LUIDs, so the driver is not asked for one: compute-sanitizer takes the refusal for a fault. What Windows'
/// driver answers is told apart by `a_refused_luid_is_none`.
#[test]
fn no_luid_is_asked_for_on_linux() {
    let Some(stand_in) = StandIn::new() else { return };
    let done = run(stand_in.command(&ALL).args(SMALL)).unwrap();
    let report = done.check_clean(0).unwrap();
    assert_eq!((report.count("cuDeviceGetUuid_v2"), report.count("cuDeviceGetLuid")), (1, 0));
}

#[test]
fn every_symbol_is_missing_in_turn() {
    let Some(stand_in) = StandIn::new() else { return };
    let mut cases: Vec<Vec<&str>> = symbols().into_iter().map(|symbol| vec![symbol]).collect();
    cases.retain(|symbols| !symbols[0].starts_with("cuDeviceGetUuid"));
    cases.push(vec!["cuDeviceGetUuid_v2", "cuDeviceGetUuid"]);
    let problems = each(&cases, |symbols| {
        let lacking = stand_in.lacking(symbols);
        let name = shown(symbols[0]);
        let problem = |what: String| format!("{symbols:?}: {what}");
        let (mut command, says) = (lacking.command(&ALL), format!("lacks {name}"));
        if OPTIONAL.iter().any(|start| name.starts_with(start)) {
            // Only the run that needs it does without.
            run(lacking.command(&ALL).args(SMALL))
                .and_then(|done| done.check_clean(0).map(drop))
                .map_err(problem)?;
            command.args(LATENCY_ARGUMENTS);
        } else {
            command.args(SMALL);
        }
        let done = run(&mut command).map_err(problem)?;
        done.check_clean(1).map_err(problem)?;
        if done.text().contains(&says) { Ok(()) } else { Err(problem(done.text())) }
    });
    say(&format!("{} symbols were missing", cases.len()));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The layer that checks the use of Vulkan, where it is installed. It sees no signal of the stand-in's CUDA, and of a
/// binary semaphore it wants to: 1.3.239 was seen to wait for ten seconds, to call that "most likely a validation bug",
/// and to go on. With real drivers `scripts/gpu-check.sh` runs that hand-off under it.
fn validation(handoff: &str) -> &'static str {
    static INSTALLED: LazyLock<bool> = LazyLock::new(common::has_validation);
    if handoff != "binary" && *INSTALLED { "--validation=on" } else { "--validation=off" }
}

/// Every vertex of every frame arrives, and without one of the waits that is seen: without a GPU, too.
#[test]
fn every_hand_off_is_verified() {
    verify_scene("field", "2");
}

/// Every texel of every level likewise.
#[test]
fn every_hand_off_of_images_is_verified() {
    // Fourteen kernels a frame.
    verify_scene("texture", "1");
}

fn verify_scene(scene: &str, kernel_ms: &str) {
    let Some(stand_in) = StandIn::new() else { return };
    let verify = |frames: &str, arguments: &[&str]| {
        let mut command = stand_in.command(&ALL);
        command.args(["verify", "--producer=cuda", "--grid=64x64", "--size=64x48", "--scene", scene]);
        // Slow enough for Vulkan to be early.
        command.args(["--frames", frames]).env("STAND_IN_KERNEL_MS", kernel_ms);
        run(command.args(arguments))
    };
    for handoff in on_the_stand_in() {
        let done = verify("60", &["--handoff", handoff, "--validation=off"]).unwrap();
        done.check_clean(0).unwrap_or_else(|problem| panic!("{handoff}: {problem}{}", stdout(&done.output)));
        // A few frames under the layer. A timeline's signal that comes from another thread, as the stand-in's do, it may miss
        // (seen about once in ten such runs of a busy machine, and never without the layer), and then it waits as for a
        // binary semaphore's: another try.
        let arguments = ["--handoff", handoff, validation(handoff)];
        let done = (0..5).find_map(|_| verify("5", &arguments).ok());
        let done =
            done.unwrap_or_else(|| panic!("{handoff}: did not end in any of five runs under the layer"));
        done.check_clean(0).unwrap_or_else(|problem| panic!("{handoff}: {problem}{}", stdout(&done.output)));
    }
    let done = verify("60", &["--ring=4", "--batch=4", "--validation=off"]).unwrap();
    done.check_clean(0).unwrap_or_else(|problem| panic!("batch: {problem}"));
    for part in ["ready", "free"] {
        let done = verify("60", &["--ring=1", "--validation=off", "--break", part]).unwrap();
        done.check_clean(0).unwrap_or_else(|problem| panic!("{part}: {problem}{}", stdout(&done.output)));
        assert!(stdout(&done.output).contains("caught"), "{}", stdout(&done.output));
    }
}

/// All but `inline`: the stand-in does not run kernels inside a command buffer.
fn on_the_stand_in() -> impl Iterator<Item = &'static str> {
    Handoff::ALL.into_iter().filter(|&handoff| handoff != Handoff::Inline).map(Handoff::name)
}

/// With the stand-in's kernels on the CPU and Vulkan's semaphores below, every hand-off draws the same picture as Vulkan
/// alone.
#[test]
fn every_hand_off_draws_the_picture() {
    let Some(stand_in) = StandIn::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let draw = |name: &str, arguments: &[&str]| {
        let path = folder.path().join(format!("{name}.png"));
        let mut command = stand_in.command(&ALL);
        command.args(["--headless", "--frames=7", "--grid=64x48", "--size=160x120", "--output"]).arg(&path);
        // Without the layer: it may miss a signal of the stand-in's threads (see above).
        let done = run(command.arg("--validation=off").args(arguments));
        let done = done.unwrap_or_else(|problem| panic!("{name}: {problem}"));
        done.check_clean(0).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        path
    };
    for scene in ["--scene=field", "--scene=texture"] {
        let want = draw("compute", &[scene, "--producer=compute"]);
        let batch = [scene, "--producer=cuda", "--ring=4", "--batch=2"];
        common::assert_same_picture(&draw("batch", &batch), &want, common::SAME_PICTURE);
        for handoff in on_the_stand_in() {
            let arguments = [scene, "--producer=cuda", "--handoff", handoff];
            common::assert_same_picture(&draw(handoff, &arguments), &want, common::SAME_PICTURE);
        }
    }
}

/// Handles, launches, barriers and layouts of a texture that is painted in Vulkan's command buffer, under the validation layer;
/// what the kernels would paint only a GPU can show.
#[test]
fn a_texture_is_painted_in_the_command_buffer() {
    let Some(stand_in) = StandIn::new() else { return };
    let inline = |arguments: &[&str], validation: &str| {
        let mut command = stand_in.command(&ALL);
        command.args(arguments).args(["--producer=cuda", "--grid=8x8", "--ring=2", "--size=32x24"]);
        run(command.args(["--scene=texture", "--handoff=inline", "--frames=5", validation])).unwrap()
    };
    let done = inline(&["--headless"], validation("inline"));
    let report = done.check_clean(0).unwrap();
    let text = stdout(&done.output);
    assert!(text.contains("cuda, inline by VK_NVX_binary_import, 8x8 texels"), "{text}");
    assert!(!done.text().contains("validation error:"), "{}", done.text());
    // 8x8, 4x4, 2x2 and 1x1: of each slot a handle, in each frame a kernel.
    assert_eq!(report.count("vkGetImageViewHandleNVX"), 2 * 4);
    assert_eq!(report.count("vkCmdCuLaunchKernelNVX"), 5 * 4);
    // Each level is stamped too; since nothing paints, the check finds frames that are not there.
    let done = inline(&["verify"], validation("inline"));
    let (report, text) = (done.check_clean(1).unwrap(), done.text());
    assert_eq!(report.count("vkCmdCuLaunchKernelNVX"), 5 * 8, "{text}");
    assert!(!text.contains("validation error:"), "{text}");
}

/// Without such handles there are no images to write: that is said, and another way taken.
#[test]
fn a_texture_by_inline_falls_back_to_timeline() {
    let Some(stand_in) = StandIn::new() else { return };
    let mut command = stand_in.command(&ALL.map(|name| if name == IMAGE_VIEW_HANDLE { "" } else { name }));
    let done = run(command.args(SMALL).args(["--scene=texture", "--handoff=inline"])).unwrap();
    done.check_clean(0).unwrap();
    let text = stderr(&done.output);
    assert!(text.contains("falls back to timeline") && text.contains("VK_NVX_image_view_handle"), "{text}");
    assert!(stdout(&done.output).contains("producer      cuda, 8x8 texels"), "{}", stdout(&done.output));
}

/// CUDA starts while Vulkan does: each call waits for the other, so none of the two may come first.
#[test]
fn cuda_and_vulkan_start_beside_each_other() {
    let Some(stand_in) = StandIn::new() else { return };
    let small = |pair: &str, more: &[&str]| {
        run(stand_in.command(&ALL).args(SMALL).args(more).env("STAND_IN_BESIDE", pair)).unwrap()
    };
    const CONTEXT: &str = "vkCreateDevice+cuDevicePrimaryCtxRetain";
    for pair in ["vkCreateInstance+cuInit", CONTEXT] {
        small(pair, &[]).check_clean(0).unwrap_or_else(|problem| panic!("{pair}: {problem}"));
    }
    // But not a context and a device that has CUDA inside.
    let done = small(CONTEXT, &["--handoff=inline"]);
    let offences = done.report.unwrap().offences;
    assert!(matches!(offences.as_slice(), [one] if one.contains("was not called beside")), "{offences:?}");
    assert_exit(&done.output, 0);
}

/// A context takes memory of the GPU, so whoever does not use it makes none.
#[test]
fn a_run_without_cuda_makes_no_context() {
    let Some(stand_in) = StandIn::new() else { return };
    for producer in ["compute", "host"] {
        let mut command = stand_in.command(&ALL);
        command.args(["--headless", "--frames=2", "--grid=8x8", "--size=32x24", "--validation=off"]);
        let done = run(command.args(["--producer", producer])).unwrap();
        let report = done.check_clean(0).unwrap_or_else(|problem| panic!("{producer}: {problem}"));
        assert_eq!((report.count("cuInit"), report.count("cuDevicePrimaryCtxRetain")), (1, 0), "{producer}");
    }
}

/// Both drivers fail at once: the error is Vulkan's, and CUDA's context is given back.
#[test]
fn a_failure_of_vulkan_comes_before_one_of_cuda() {
    let Some(stand_in) = StandIn::new() else { return };
    for (vulkan, cuda) in [
        ("vkCreateInstance:-3", "cuInit:999"),
        ("vkCreateInstance:-3", ""),
        ("vkCreateDevice:-3", "cuDevicePrimaryCtxRetain:2:1:9"),
        ("vkCreateDevice:-3", ""),
    ] {
        let mut command = stand_in.command(&ALL);
        command.args(SMALL).env("STAND_IN_FAIL", format!("{vulkan},{cuda}"));
        let done = run(&mut command).unwrap();
        done.check_clean(1).unwrap_or_else(|problem| panic!("{vulkan}, {cuda}: {problem}"));
        let (text, call) = (done.text(), vulkan.split(':').next().unwrap());
        assert!(text.contains(&format!("error: {call} failed")), "{text}");
        assert_eq!(text.matches("error:").count(), 1, "{text}");
    }
}
