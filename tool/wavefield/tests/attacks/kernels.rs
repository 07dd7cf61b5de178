//! PTX that does not follow `tool/handoff/kernels/README.md`.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use wavefield_handoff::Handoff;
use wavefield_run::Scene;

use crate::common::{self, assert_exit, stderr, wavefield};
use crate::stand_in::{ALL, StandIn, each, run};

const SMALL: [&str; 6] =
    ["--headless", "--producer=cuda", "--frames=5", "--grid=8x8", "--size=32x24", "--validation=off"];

/// The option that accepts that a fault in Vulkan's command buffer may cost the GPU.
const RISK: &str = "--risk-the-gpu";

const FLAT: &str = include_str!("../../../handoff/kernels/test/flat.ptx");
const BOUNDED: &str = include_str!("../../../handoff/kernels/test/bounded.ptx");
const PAINT: &str = include_str!("../../../handoff/kernels/texture.ptx");

fn file(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// The PTX of `flat` with other parameters.
fn flat_with(parameters: &str) -> String {
    let (before, rest) = FLAT.split_once("flat(").unwrap();
    let (_, after) = rest.split_once("\n)").unwrap();
    format!("{before}flat({parameters})\n{after}")
}

#[test]
fn a_kernel_with_other_parameters_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (name, parameters, found) in [
        // With one parameter more, the driver would read past the arguments.
        (
            "more.ptx",
            ".param .u64 a, .param .u32 b, .param .u32 c, .param .u64 d, .param .f64 e, .param .u64 f",
            "found (.u64, .u32, .u32, .u64, .f64, .u64)",
        ),
        ("two.ptx", ".param .u64 a, .param .u32 b", "found (.u64, .u32)"),
        ("none.ptx", "", "found ()"),
        (
            "wide.ptx",
            ".param .u64 a, .param .u64 b, .param .u32 c, .param .u64 d, .param .f64 e",
            "found (.u64, .u64,",
        ),
        (
            "order.ptx",
            ".param .u64 a, .param .u32 b, .param .u32 c, .param .f64 e, .param .u64 d",
            ".u32, .f64, .u64)",
        ),
        (
            "float.ptx",
            ".param .u64 a, .param .u32 b, .param .f32 c, .param .u64 d, .param .f64 e",
            "found (.u64, .u32, .f32,",
        ),
        (
            "array.ptx",
            ".param .align 8 .b8 a[32], .param .u32 b, .param .u32 c, .param .u64 d, .param .f64 e",
            "found (.b8[32],",
        ),
    ] {
        let path = file(&folder, name, &flat_with(parameters));
        for command in [&[][..], &["verify"], &["bench", "--strategies=timeline"], &["serve"]] {
            for scene in ["field", "texture"] {
                let mut program = wavefield();
                program.args(command).arg("--kernel").arg(&path).args(["--scene", scene]);
                let output = program.output().unwrap();
                assert_exit(&output, 1);
                let text = stderr(&output);
                let first = if scene == "field" { "float4 *vertices" } else { "unsigned long long surface" };
                for part in [name, "`flat`", "expected (.u64, .u32, .u32, .u64, .f64)", first, found] {
                    assert!(text.contains(part), "{part} is missing in: {text}");
                }
            }
        }
    }
}

/// The process that tries a kernel also refuses other parameters.
#[test]
fn a_trial_refuses_other_parameters() {
    let Some(stand_in) = StandIn::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "more.ptx", &flat_with(".param .u64 a, .param .u32 b"));
    let mut command = stand_in.cuda_alone();
    command.args([
        "try-kernel",
        "--grid=8x8",
        "--entry=flat",
        "--device=00000000-0000-0000-0000-000000000007",
    ]);
    command.env("STAND_IN_UUID", "00000000-0000-0000-0000-000000000007");
    let output = command.stdin(std::fs::File::open(path).unwrap()).output().unwrap();
    assert_exit(&output, 1);
    assert!(stderr(&output).contains("found (.u64, .u32)"), "{}", stderr(&output));
}

fn draw(stand_in: &StandIn, kernel: &Path, more: &[&str]) -> Result<String, String> {
    let mut command = stand_in.command(&ALL);
    command.args(SMALL).arg("--kernel").arg(kernel).args(more);
    let done = run(&mut command)?;
    done.check_clean(0).map_err(|problem| format!("{} {more:?}: {problem}", kernel.display()))?;
    Ok(done.text())
}

/// A kernel may limit the size of its blocks, or demand one size.
#[test]
fn blocks_are_as_large_as_the_kernel_takes_them() {
    let Some(stand_in) = StandIn::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let bounds = |text: &str, bounds: &str| text.replace(".maxntid 64, 1, 1", bounds);
    let mut cases = Vec::new();
    for (name, text) in [
        ("64.ptx", BOUNDED.to_owned()),
        ("1.ptx", bounds(BOUNDED, ".maxntid 1")),
        ("exactly-64.ptx", bounds(BOUNDED, ".reqntid 64, 1, 1")),
        ("exactly-512.ptx", bounds(BOUNDED, ".reqntid 512")),
    ] {
        let path = file(&folder, name, &text);
        cases.extend(
            Handoff::ALL.map(|handoff| (path.clone(), ["--scene=field", "--handoff", handoff.name(), RISK])),
        );
    }
    for (name, bounds) in [("paint-64.ptx", ".maxntid 64, 1, 1"), ("paint-96.ptx", ".reqntid 96, 1, 1")] {
        let (before, rest) = PAINT.split_once(".entry paint(").unwrap();
        let text = format!("{before}.entry paint({}", rest.replacen(")\n{", &format!(")\n{bounds}\n{{"), 1));
        let path = PathBuf::from(format!("{}:paint", file(&folder, name, &text).display()));
        cases.extend(
            common::handoffs(Scene::Texture)
                .map(|handoff| (path.clone(), ["--scene=texture", "--handoff", handoff.name(), RISK])),
        );
    }
    let problems = each(&cases, |(path, arguments)| draw(&stand_in, path, arguments).map(drop));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn blocks_that_no_device_has_are_refused() {
    let Some(stand_in) = StandIn::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (block, words) in [("8, 8, 1", "blocks of 8x8x1 threads"), ("0", "blocks of 0x1x1 threads")] {
        let text = BOUNDED.replace(".maxntid 64, 1, 1", &format!(".reqntid {block}"));
        let path = file(&folder, "block.ptx", &text);
        for handoff in Handoff::ALL.map(Handoff::name) {
            let problem = draw(&stand_in, &path, &["--handoff", handoff, RISK]).unwrap_err();
            assert!(problem.contains("exit status: 1"), "{problem}");
            assert!(problem.contains("block.ptx: ") && problem.contains(words), "{problem}");
        }
    }
}

/// A fault in Vulkan's command buffer stops Vulkan on that GPU for every process, so no kernel may get there
/// by accident.
#[test]
fn no_kernel_is_put_into_vulkans_command_buffer_without_consent() {
    let flat = concat!(env!("CARGO_MANIFEST_DIR"), "/../handoff/kernels/test/flat.ptx");
    for command in [
        &["--handoff=inline"][..],
        &["run", "--handoff=inline", "--producer=cuda", "--headless"],
        &["verify", "--handoff=inline"],
        &["serve", "--handoff=inline"],
        &["bench", "--strategies=timeline,inline"],
    ] {
        let output = wavefield().args(command).args(["--kernel", flat]).output().unwrap();
        assert_exit(&output, 2);
        let text = stderr(&output);
        assert!(text.contains(RISK) && text.contains("GPU"), "{text}");
    }
    // If `inline` is one of many strategies, it is left out.
    let small = ["--grids=8x8", "--rings=1", "--batches=1", "--rounds=1", "--round-ms=1", "--size=32x24"];
    let output = wavefield().args(["bench", "--kernel", flat]).args(small).output().unwrap();
    assert_exit(&output, 0);
    assert!(stderr(&output).contains("inline is left out"), "{}", stderr(&output));
    assert!(!common::stdout(&output).contains("inline"), "{}", common::stdout(&output));
    for command in ["run", "verify", "serve", "bench"] {
        let help = wavefield().args([command, "--help"]).output().unwrap();
        assert!(common::stdout(&help).contains(RISK), "{command}");
    }
    let Some(stand_in) = StandIn::new() else { return };
    draw(&stand_in, Path::new(flat), &["--handoff=inline", RISK]).unwrap();
}

/// The driver would take it for machine code, and trust the sizes in it.
#[test]
fn text_that_begins_like_machine_code_is_refused() {
    let Some(stand_in) = StandIn::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (start, what) in [("\x7fELF", "it is machine code"), ("\x7f", "it has the control character 0x7f")] {
        let path = file(&folder, "elf.ptx", &format!("{start}{FLAT}"));
        for handoff in ["timeline", "inline"] {
            let problem = draw(&stand_in, &path, &["--handoff", handoff, RISK]).unwrap_err();
            assert!(problem.contains(&format!("elf.ptx: {what}")), "{problem}");
        }
    }
}

/// A correct kernel with 16 KiB of local memory a thread stopped drawing on an H100 and an H200, if it ran
/// inside Vulkan's command buffer.
#[test]
fn much_local_memory_is_kept_out_of_vulkans_command_buffer() {
    let Some(stand_in) = StandIn::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (scene, text, entry) in [("field", FLAT, "flat"), ("texture", PAINT, "paint")] {
        let with = |bytes| {
            let (before, rest) = text.split_once(&format!(".entry {entry}(")).unwrap();
            let depot = format!("\n{{\n\t.local .align 16 .b8 depot[{bytes}];\n");
            file(
                &folder,
                "local.ptx",
                &format!("{before}.entry {entry}({}", rest.replacen("\n{\n", &depot, 1)),
            )
        };
        let draw = |bytes, handoff| {
            let kernel = PathBuf::from(format!("{}:{entry}", with(bytes).display()));
            draw(&stand_in, &kernel, &["--scene", scene, "--handoff", handoff, RISK])
        };
        draw(16384, "timeline").unwrap();
        if scene == "texture" {
            // No kernel paints one inside Vulkan's command buffer.
            continue;
        }
        let problem = draw(16384, "inline").unwrap_err();
        for part in ["exit status: 1", "local.ptx", "16384 bytes of local memory", "use another --handoff"] {
            assert!(problem.to_lowercase().contains(part), "{part} is missing in: {problem}");
        }
        draw(6144, "inline").unwrap();
    }
}

#[test]
fn many_entries_are_not_all_listed() {
    let folder = tempfile::tempdir().unwrap();
    let entries: Vec<_> =
        (0..100_000).map(|index| format!(".visible .entry kernel{index}()\n{{ ret; }}")).collect();
    let path = file(&folder, "many.ptx", &entries.join("\n"));
    for argument in [path.display().to_string(), format!("{}:other", path.display())] {
        let output = common::run(&["--headless", "--kernel", &argument]);
        assert_exit(&output, 1);
        let text = stderr(&output);
        assert!(text.contains("kernel0, kernel1") && text.contains("100000"), "{}", text.len());
        assert!(text.len() < 1000, "{} bytes", text.len());
    }
    // A single name may be long too.
    let path = file(&folder, "long.ptx", &format!(".entry {}() {{}} .entry b() {{}}", "a".repeat(1_000_000)));
    let output = common::run(&["--headless", "--kernel", path.to_str().unwrap()]);
    assert!(stderr(&output).len() < 1000, "{} bytes", stderr(&output).len());
}

#[test]
fn an_empty_name_is_wrong_usage() {
    let flat = concat!(env!("CARGO_MANIFEST_DIR"), "/../handoff/kernels/test/flat.ptx:");
    for (argument, part) in [(flat, "names no entry"), ("", "the name is empty"), (":flat", "names no file")]
    {
        let output = common::run(&["--headless", "--kernel", argument]);
        assert_exit(&output, 2);
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
}

/// When a launch is refused, the error names the kernel, and the advice is about the kernel.
#[test]
fn a_launch_that_is_refused_names_the_kernel() {
    let Some(stand_in) = StandIn::new() else { return };
    let flat = concat!(env!("CARGO_MANIFEST_DIR"), "/../handoff/kernels/test/flat.ptx");
    for (call, code) in
        [("cuLaunchKernel", 1), ("cuLaunchKernel", 2), ("cuLaunchKernel", 701), ("cuModuleLoadDataEx", 2)]
    {
        let mut command = stand_in.command(&ALL);
        command.args(SMALL).args(["--kernel", flat]).env("STAND_IN_FAIL", format!("{call}:{code}"));
        let done = run(&mut command).unwrap();
        done.check_end(1).unwrap();
        let text = done.text();
        assert!(text.contains("flat.ptx: ") && text.contains(&format!("{call} failed on")), "{text}");
        assert!(!text.contains("--grid"), "a smaller grid does not help: {text}");
        assert!(code == 1 || text.contains("the kernel"), "{text}");
    }
}
