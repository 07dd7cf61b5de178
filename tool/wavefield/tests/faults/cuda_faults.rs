//! Makes every call to the CUDA driver fail in turn, with each code that a driver may return. The stand-in
//! for a GPU (`tests/stand_in`) simulates the device, up to drawn frames.

use crate::common;
// Nothing else here uses its copy of `01_match`.
#[allow(dead_code)]
#[path = "../../../../crates/vulkan-cuda/examples/08_cuda_memory.rs"]
mod cuda_memory;
use wavefield_test_support::stand_in;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{assert_exit, stderr, stdout};
use stand_in::{ALL, Report, Run, StandIn, each, run, say};
use wavefield_gpu::report::word;
use wavefield_handoff::Handoff;
use wavefield_run::Scene;

/// A short run with enough frames to use every slot twice.
const SMALL: [&str; 6] =
    ["--headless", "--producer=cuda", "--frames=5", "--grid=8x8", "--size=32x24", "--validation=off"];

/// The runs that together make every call: each hand-off, and those for the calls that no hand-off makes.
static RUNS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let names = Handoff::ALL.map(Handoff::name);
    let textures = common::handoffs(Scene::Texture).map(|handoff| format!("{TEXTURE}{}", handoff.name()));
    let others = [BENCH, LATENCY, CUDA_MEMORY];
    names.map(String::from).into_iter().chain(textures).chain(others.map(String::from)).collect()
});

/// The prefix of the runs that hand over images instead of buffers.
const TEXTURE: &str = "texture ";
/// Runs only the kernel.
const BENCH: &str = "bench";
const BENCH_ARGUMENTS: [&str; 6] =
    ["bench", "--strategies=produce-only", "--grids=8x8", "--rounds=1", "--round-ms=1", "--size=32x24"];
/// Ping-pongs.
const LATENCY: &str = "latency";
const LATENCY_ARGUMENTS: [&str; 3] = ["bench", "latency", "--rounds=1"];
/// The library's example of memory that CUDA allocates, as the test of this name. The program itself makes no
/// such calls.
const CUDA_MEMORY: &str = "the_example_of_cuda_memory";

/// The codes that a driver may return: out of memory, no device, bad PTX, PTX too new, no such sharing
/// (WSL2), illegal address, launch failed, fabric not ready, unknown, and a code that is not in this
/// program's headers.
const CODES: [u32; 10] = [2, 100, 218, 222, 304, 700, 719, 802, 999, 9999];

/// Every symbol that the program looks up, read from the table itself. So a new call is tested automatically.
fn symbols() -> Vec<&'static str> {
    let files = [
        include_str!("../../../../crates/vulkan-cuda/src/cuda/api.rs"),
        include_str!("../../../gpu/src/cuda/api.rs"),
    ];
    let symbols = files.iter().flat_map(|file| {
        // Start at the table, so that no quote in a comment counts.
        let table = file.split_once("\ncuda_functions! {\n").expect("the table").1;
        let table = table.split_once("\n}\n").expect("the table's end").0;
        table.split('"').skip(1).step_by(2)
    });
    // Only a program that adopts a context asks for its device. (`examples.rs` and `sound.rs` do.) The second
    // is the older form of a call.
    let elsewhere = ["cuCtxGetDevice", "cuStreamWriteValue32"];
    symbols.filter(|symbol| !elsewhere.contains(symbol)).collect()
}

/// The name of a symbol in errors.
fn shown(symbol: &str) -> &str {
    symbol.strip_suffix("_v2").unwrap_or(symbol)
}

fn attempt(stand_in: &StandIn, handoff: &str, fail: &str) -> Result<Run, String> {
    if handoff == CUDA_MEMORY {
        let command = common::test_process(module_path!(), CUDA_MEMORY);
        return run(stand_in.beneath(command, &ALL).env("STAND_IN_FAIL", fail));
    }
    let mut command = stand_in.command(&ALL);
    match handoff {
        BENCH => command.args(BENCH_ARGUMENTS),
        LATENCY => command.args(LATENCY_ARGUMENTS),
        run => match run.strip_prefix(TEXTURE) {
            Some(handoff) => command.args(SMALL).args(["--scene=texture", "--handoff", handoff]),
            None => command.args(SMALL).args(["--handoff", run]),
        },
    };
    run(command.env("STAND_IN_FAIL", fail))
}

#[test]
fn a_trace_shows_the_kernel_of_every_handoff() {
    let Some(stand_in) = StandIn::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.svg");
    for scene in [Scene::Field, Scene::Texture] {
        for handoff in common::handoffs(scene).map(Handoff::name) {
            let mut command = stand_in.command(&ALL);
            command.args(SMALL).args(["--handoff", handoff, "--scene", &word(scene), "--trace"]).arg(&path);
            run(&mut command).unwrap().check_clean(0).unwrap();
            let picture = std::fs::read_to_string(&path).unwrap();
            assert!(picture.contains(">CUDA<"), "{handoff} {scene:?}: {picture}");
        }
    }
}

/// Both failures are printed: the clean-up comes first, and the results are written after it.
#[test]
fn a_failed_cleanup_does_not_hide_a_full_standard_output() {
    let Some(stand_in) = StandIn::new() else { return };
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = stand_in.command(&ALL);
    command.args(SMALL).env("STAND_IN_FAIL", "cuStreamDestroy_v2:700");
    let output = command.stdout(full).stderr(std::process::Stdio::piped()).output().unwrap();
    assert_exit(&output, 1);
    let text = stderr(&output);
    for words in ["while cleaning up", "cannot write to standard output"] {
        assert_eq!(text.matches(words).count(), 1, "{words}: {text}");
    }
}

/// [`attempt`] starts this test in its own process. It ends as the program does: with exit code 1 after an error, even in a
/// `Drop`.
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
    if let Err(error) = cuda_memory::run(common::test_process(module_path!(), CUDA_MEMORY)) {
        FAILED.store(true, Ordering::Relaxed);
        eprintln!("{error}");
    }
    std::process::exit(FAILED.load(Ordering::Relaxed).into());
}

/// Does every run without a failure: it draws its frames and leaves nothing. Returns the report of each run.
fn sound_runs(stand_in: &StandIn) -> BTreeMap<&'static str, Report> {
    let mut reports = BTreeMap::new();
    for handoff in RUNS.iter().map(String::as_str) {
        let done = attempt(stand_in, handoff, "").unwrap();
        let report = done.check_clean(0).unwrap_or_else(|problem| panic!("{handoff}: {problem}"));
        let drawn = matches!(handoff, BENCH | LATENCY | CUDA_MEMORY)
            || stdout(&done.output).contains("frames        5\n");
        assert!(drawn, "{handoff}: {}", stdout(&done.output));
        reports.insert(handoff, report.clone());
    }
    reports
}

/// One failure of one call in one run.
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
            // The program calls these two after another call has failed.
            "cuGetErrorName" | "cuGetErrorString" => {
                fail += ",cuInit:802";
                "cuInit"
            }
            named => named,
        };
        let problem = |what: String| format!("{fail} in {handoff}: {what}");
        let done = attempt(stand_in, handoff, &fail).map_err(problem)?;
        done.check_exit(1).map_err(problem)?;
        let text = done.text();
        let code = if named == shown(symbol) { code } else { 802 };
        let device =
            ["Stand-in GPU", "CUDA device 0", "the CUDA driver"].iter().any(|name| text.contains(name));
        if !text.contains(&format!("{named} failed on ")) || !text.contains(&format!(", {code})")) || !device
        {
            return Err(problem(format!("call, device or code is missing: {text}")));
        }
        // If a ping-pong fails, each side waits for the other, and the process ends at once, without a
        // report.
        if handoff == LATENCY && done.report.is_none() {
            return Ok(());
        }
        let report = done.check_end(1).map_err(problem)?;
        // The program cannot give back what CUDA refuses to take. After a fault, CUDA refuses everything.
        let faulted = matches!(code, 700 | 719);
        let refused = |kind: &str| {
            let takes_back: &[&str] = match kind {
                "primary context" => &["cuDevicePrimaryCtxRelease_v2"],
                "stream" => &["cuStreamDestroy_v2"],
                "event" => &["cuEventDestroy_v2"],
                "mipmapped array" => &["cuMipmappedArrayDestroy"],
                "surface object" => &["cuSurfObjectDestroy"],
                "module" => &["cuModuleUnload"],
                "linker" => &["cuLinkDestroy"],
                "CUDA memory" => &["cuMemFree_v2"],
                "memory of CUDA's" => &["cuMemRelease"],
                "mapping" => &["cuMemUnmap"],
                // CUDA keeps the range while something is mapped there.
                "address range" => &["cuMemAddressFree", "cuMemUnmap"],
                "external memory" => &["cuDestroyExternalMemory"],
                "external semaphore" => &["cuDestroyExternalSemaphore"],
                _ => return false,
            };
            // Nothing can be given back if the context cannot be made current.
            faulted || takes_back.contains(&symbol) || symbol == "cuCtxSetCurrent"
        };
        if let Some((kind, count)) = report.left.iter().find(|(kind, _)| !refused(kind)) {
            return Err(problem(format!("left {count} of {kind}: {text}")));
        }
        // CUDA owns a descriptor from a successful import until the import is destroyed. Every other
        // descriptor must be closed.
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
    let (mut table, mut missing) = (String::new(), Vec::new());
    for (number, symbol) in symbols().into_iter().enumerate() {
        // Other tests cover these. The program calls cuDeviceGetLuid on Windows only, and cuEventQuery only
        // in `wavefield serve` with a client that CUDA serves, which no run here has.
        if matches!(symbol, "cuDeviceGetUuid" | "cuDeviceGetLuid" | "cuMemGetInfo_v2" | "cuEventQuery") {
            continue;
        }
        // With several devices only: see program/errors.rs.
        if symbol == "cuDeviceCanAccessPeer" {
            continue;
        }
        // Only the trial of an import calls these: see serving/imports.rs.
        if matches!(symbol, "cuMemImportFromShareableHandle" | "cuMemGetAllocationPropertiesFromHandle") {
            continue;
        }
        let text = matches!(symbol, "cuGetErrorName" | "cuGetErrorString");
        let found = RUNS.iter().find(|run| text || reports[run.as_str()].count(symbol) > 0);
        let Some(handoff) = found.map(String::as_str) else {
            missing.push(symbol);
            continue;
        };
        let count = reports[handoff].count(symbol).max(1);
        let before = cases.len();
        // Three of the codes for each call, and each code for every third call: a process for all of them
        // takes a minute.
        let codes = CODES.iter().cycle().skip(3 * number).take(3);
        cases.extend(codes.map(|&code| Case { symbol, handoff, nth: 1, code }));
        if symbol == "cuStreamQuery" {
            // The number of these calls depends on timing. At the second and third call, everything is drawn.
            cases.push(Case { symbol, handoff, nth: 2, code: 999 });
            cases.push(Case { symbol, handoff, nth: 3, code: 719 });
        } else if count > 1 {
            // Each cuStreamQuery makes the context current first, so the number of these calls varies too. At
            // 10 before the last, the program is giving everything back.
            let nth = if symbol == "cuCtxSetCurrent" { count - 10 } else { count };
            cases.push(Case { symbol, handoff, nth, code: 999 });
        }
        if count > 2 && symbol != "cuStreamQuery" {
            cases.push(Case { symbol, handoff, nth: count / 2 + 1, code: 719 });
        }
        table += &format!("{:32} {handoff:12} {count:5} calls {:3} failed\n", symbol, cases.len() - before);
    }
    assert!(missing.is_empty(), "no run calls {missing:?}");
    let problems = each(&cases, |case| case.check(&stand_in));
    say(&format!("{table}{} failures of {} CUDA calls", cases.len(), table.lines().count()));
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), cases.len(), problems.join("\n"));
}

/// The program calls `cuDeviceGetUuid` only if the driver lacks the newer form.
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

/// Linux has no LUIDs, so the program does not ask the driver for one: compute-sanitizer would report the
/// refusal as a fault. The test `a_refused_luid_is_none` covers the answers of the driver on Windows.
#[test]
fn no_luid_is_asked_for_on_linux() {
    let Some(stand_in) = StandIn::new() else { return };
    let done = run(stand_in.command(&ALL).args(SMALL)).unwrap();
    let report = done.check_clean(0).unwrap();
    assert_eq!((report.count("cuDeviceGetUuid_v2"), report.count("cuDeviceGetLuid")), (2, 0));
}

#[test]
fn every_symbol_is_missing_in_turn() {
    let Some(stand_in) = StandIn::new() else { return };
    let mut cases: Vec<Vec<&str>> = symbols().into_iter().map(|symbol| vec![symbol]).collect();
    cases.retain(|symbols| !symbols[0].starts_with("cuDeviceGetUuid"));
    cases.push(vec!["cuDeviceGetUuid_v2", "cuDeviceGetUuid"]);
    cases.extend([vec!["cuCtxGetDevice"], vec!["cuStreamWriteValue32_v2"]]);
    let problems = each(&cases, |symbols| {
        let lacking = stand_in.lacking(symbols);
        let name = shown(symbols[0]);
        let problem = |what: String| format!("{symbols:?}: {what}");
        let (mut command, says) = (lacking.command(&ALL), format!("lacks {name}"));
        let done = run(command.args(SMALL)).map_err(problem)?;
        done.check_clean(1).map_err(problem)?;
        if done.text().contains(&says) { Ok(()) } else { Err(problem(done.text())) }
    });
    say(&format!("{} symbols were missing", cases.len()));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The argument for the validation layer, if it is installed. The layer does not see the signals of the
/// stand-in's CUDA, but expects to see those of a binary semaphore: 1.3.239 waits for ten seconds, reports
/// "most likely a validation bug" and goes on. `scripts/gpu-check.sh` runs the binary hand-off under the
/// layer with real drivers.
fn validation(handoff: &str) -> &'static str {
    static INSTALLED: LazyLock<bool> = LazyLock::new(common::has_validation);
    if handoff != "binary" && *INSTALLED { "--validation=on" } else { "--validation=off" }
}

/// Every vertex of every frame arrives, and the check notices when one of the waits is missing.
#[test]
fn every_hand_off_is_verified() {
    verify_scene("field", "2");
}

/// Like [`every_hand_off_is_verified`], for every texel of every level.
#[test]
fn every_hand_off_of_images_is_verified() {
    // One millisecond is enough for fourteen kernels per frame.
    verify_scene("texture", "1");
}

fn verify_scene(scene: &str, kernel_ms: &str) {
    let Some(stand_in) = StandIn::new() else { return };
    let verify = |frames: &str, arguments: &[&str]| {
        let mut command = stand_in.command(&ALL);
        command.args(["verify", "--producer=cuda", "--grid=64x64", "--size=64x48", "--scene", scene]);
        // Kernels this slow let Vulkan be early.
        command.args(["--frames", frames]).env("STAND_IN_KERNEL_MS", kernel_ms);
        run(command.args(arguments))
    };
    for handoff in common::on_a_stream().map(Handoff::name) {
        let done = verify("60", &["--handoff", handoff, "--validation=off"]).unwrap();
        done.check_clean(0).unwrap_or_else(|problem| panic!("{handoff}: {problem}{}", stdout(&done.output)));
        // A few frames under the layer. The stand-in signals timelines from other threads, and the layer may
        // miss such a signal: about once in ten runs on a busy machine, and never without the layer. It then
        // waits as for a binary semaphore, and may call itself wrong. So try again.
        let arguments = ["--handoff", handoff, validation(handoff)];
        let mut runs = (0..5).filter_map(|_| verify("5", &arguments).ok());
        let done = runs.find(|done| !done.text().contains("most likely a validation bug"));
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

/// Every hand-off draws the same picture as Vulkan alone. The stand-in runs the kernels on the CPU.
#[test]
fn every_hand_off_draws_the_picture() {
    let Some(stand_in) = StandIn::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let draw = |name: &str, arguments: &[&str]| {
        let path = folder.path().join(format!("{name}.png"));
        let mut command = stand_in.command(&ALL);
        command.args(["--headless", "--frames=7", "--grid=64x48", "--size=160x120", "--output"]).arg(&path);
        // Without the layer, which may miss a signal of the stand-in's threads (see above).
        let done = run(command.arg("--validation=off").args(arguments));
        let done = done.unwrap_or_else(|problem| panic!("{name}: {problem}"));
        done.check_clean(0).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        path
    };
    for scene in ["--scene=field", "--scene=texture"] {
        let want = draw("compute", &[scene, "--producer=compute"]);
        let batch = [scene, "--producer=cuda", "--ring=4", "--batch=2"];
        common::assert_same_picture(&draw("batch", &batch), &want, common::SAME_PICTURE);
        for handoff in common::on_a_stream().map(Handoff::name) {
            let arguments = [scene, "--producer=cuda", "--handoff", handoff];
            common::assert_same_picture(&draw(handoff, &arguments), &want, common::SAME_PICTURE);
        }
    }
}

/// Checks the launches and barriers of a field that kernels fill in Vulkan's command buffer, under the
/// validation layer. Only a GPU can show what the kernels write.
#[test]
fn a_field_is_filled_in_the_command_buffer() {
    let Some(stand_in) = StandIn::new() else { return };
    let inline = |arguments: &[&str]| {
        let mut command = stand_in.command(&ALL);
        command.args(arguments).args(["--producer=cuda", "--grid=8x8", "--ring=2", "--size=32x24"]);
        run(command.args(["--handoff=inline", "--frames=5", validation("inline")])).unwrap()
    };
    let done = inline(&["--headless"]);
    let report = done.check_clean(0).unwrap();
    let text = stdout(&done.output);
    assert!(text.contains("cuda, inline by VK_NVX_binary_import, 8x8 vertices"), "{text}");
    assert!(!done.text().contains("validation error:"), "{}", done.text());
    assert_eq!(report.count("vkCmdCuLaunchKernelNVX"), 5);
    // Each frame is stamped too. Nothing is written here, so the check finds missing frames.
    let done = inline(&["verify"]);
    let (report, text) = (done.check_clean(1).unwrap(), done.text());
    assert_eq!(report.count("vkCmdCuLaunchKernelNVX"), 5 * 2, "{text}");
    assert!(!text.contains("validation error:"), "{text}");
}

/// CUDA and Vulkan start in parallel. Each call of a pair waits for the other, so a sequential start would
/// fail.
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
    // Exception: a context and a device with CUDA inside are made one after the other.
    let done = small(CONTEXT, &["--handoff=inline"]);
    let offences = done.report.unwrap().offences;
    assert!(matches!(offences.as_slice(), [one] if one.contains("was not called beside")), "{offences:?}");
    assert_exit(&done.output, 0);
}

/// A context takes memory of the GPU, so a run that does not use CUDA makes none.
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

/// If both drivers fail, the program reports Vulkan's error. CUDA's context is given back.
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
