//! `wavefield bench` on this machine's devices: its files, its errors, its comparison.

use crate::common;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use common::{assert_exit, run, stderr, stdout};
use wavefield::bench::record::Cell;
use wavefield::bench::{Strategy, read_json};

/// Small enough for a software device.
const SMALL: [&str; 8] = [
    "bench",
    "--quick",
    "--grids=32x32,48x20",
    "--rings=1,3",
    "--batches=1,3",
    "--rounds=2",
    "--round-ms=40",
    "--size=64x48",
];

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

#[test]
fn it_measures_what_this_machine_has_and_names_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (json, page) = (path("a.json"), path("a.html"));
    let outputs = ["--json", text(&json), "--report", text(&page)];
    let output = run(&[SMALL.as_slice(), &outputs].concat());
    assert_exit(&output, 0);

    let note =
        stderr(&output).lines().find(|line| line.contains("measurements of")).expect("no note").to_owned();

    // Reading it back checks it against the schema.
    let report = read_json(&json).unwrap();
    assert!(report.complete && report.machine.threads > 0 && report.command.starts_with("wavefield bench"));
    let cells = |strategy: &str| report.cells.iter().filter(|cell| cell.strategy == strategy).count();
    assert_eq!((cells("compute"), cells("render-only")), (2, 2), "{:?}", report.cells);
    for cell in &report.cells {
        assert!(cell.frames > 0 && cell.frame_us.mean > 0.0 && cell.round_means_us.len() == 2, "{cell:?}");
        assert!(cell.frame_us.p50 <= cell.frame_us.p99 && cell.frame_us.p99 <= cell.frame_us.max, "{cell:?}");
    }
    if cfg!(target_os = "linux") {
        // Counts the program's own threads. On a software device, these include the threads that draw.
        let cores = |cell: &Cell| cell.cores.is_some_and(|cores| cores > 0.0);
        let measured = report.cells.iter().filter(|cell| cell.strategy != "produce-only");
        assert!(measured.clone().all(cores), "{:?}", report.cells);
    }
    if report.machine.cuda.is_none() {
        // Wine's Vulkan exports no memory.
        let cuda = report.skipped.iter().filter(|skipped| skipped.strategy != "render-shared");
        let skipped: Vec<_> = cuda.clone().map(|skipped| skipped.strategy.as_str()).collect();
        let wanted: Vec<_> =
            Strategy::value_variants().iter().filter(|strategy| strategy.uses_cuda()).collect();
        assert_eq!(skipped, wanted.iter().map(|strategy| strategy.name()).collect::<Vec<_>>());
        assert!(cuda.clone().all(|skipped| skipped.reason.contains("CUDA")));
    }
    for strategy in
        report.cells.iter().map(|cell| &cell.strategy).chain(report.skipped.iter().map(|s| &s.strategy))
    {
        assert!(stdout(&output).contains(strategy.as_str()), "{strategy} is missing in the table");
    }
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("<table>") && page.contains("<svg") == report.machine.cuda.is_some(), "{page}");

    assert_eq!(note, format!("note: {} measurements of 40 ms, in rounds: 2", 2 * report.cells.len()));
    // Without CUDA, there is no hand-off to choose.
    assert_eq!(stdout(&output).contains("\nUse `--"), report.machine.cuda.is_some(), "{}", stdout(&output));

    // A run compared with itself shows no difference.
    let output = run(&["bench", "--compare", text(&json), text(&json), "--fail-above", "1.1"]);
    assert_exit(&output, 0);
}

/// Images need another number of bytes than buffers, and cannot be compared with a field.
#[test]
fn the_scene_is_measured_and_kept_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (texture, field) = (path("texture.json"), path("field.json"));
    // These strategies have no ring to choose.
    let ringless =
        SMALL.into_iter().filter(|word| !word.starts_with("--rings") && !word.starts_with("--batches"));
    let small: Vec<_> = ringless.chain(["--strategies=compute,render-only,render-shared"]).collect();
    assert_exit(&run(&[small.as_slice(), &["--scene=texture", "--json", text(&texture)]].concat()), 0);
    assert_exit(&run(&[small.as_slice(), &["--json", text(&field)]].concat()), 0);
    let report = read_json(&texture).unwrap();
    assert_eq!(report.settings.scene, "texture");
    let cell = report.cells.iter().find(|cell| cell.strategy == "compute" && cell.grid == [32, 32]).unwrap();
    // All levels, with 8 bytes per texel.
    assert_eq!(cell.bytes, 8 * (1024 + 256 + 64 + 16 + 4 + 1));
    let output = run(&["bench", "--compare", text(&texture), text(&field)]);
    assert_exit(&output, 1);
    assert!(stderr(&output).contains("scene"), "{}", stderr(&output));
}

#[test]
fn nonsense_is_exit_code_2() {
    for (argument, part) in [
        ("--strategies=magic", "possible values"),
        ("--rings=0", "1 to 32"),
        ("--batches=99", "1 to 32"),
        ("--grids=1x1", "no surface"),
        ("--rounds=0", "`0` is not a whole number from 1 to 1000"),
        ("--fail-above=1.1", "--compare"),
        ("--fail-above=0", "not a number above 0"),
        ("--fail-above=nan", "not a number above 0"),
    ] {
        let output = run(&["bench", "--quick", argument]);
        assert_exit(&output, 2);
        assert!(stderr(&output).contains(part), "`{part}` is missing in: {}", stderr(&output));
    }
    let output = run(&["bench", "--strategies=timeline", "--rings=2", "--batches=3"]);
    assert_exit(&output, 2);
    assert!(stderr(&output).contains("nothing to measure"), "{}", stderr(&output));
}

#[test]
fn the_default_fields_suit_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("a.json");
    let quick = [
        "bench",
        "--quick",
        "--strategies=render-only",
        "--rings=3",
        "--rounds=1",
        "--round-ms=1",
        "--size=64x48",
    ];
    let output = run(&[quick.as_slice(), &["--json", text(&json)]].concat());
    assert_exit(&output, 0);
    let report = read_json(&json).unwrap();
    let grids: Vec<_> = report.cells.iter().map(|cell| cell.grid).collect();
    let said = stderr(&output).contains("draws in software");
    assert_eq!(grids, if said { [[64, 64], [128, 128]] } else { [[256, 256], [1024, 1024]] });
    assert!(said || !report.machine.gpu.contains("llvmpipe"), "{}", stderr(&output));

    let output = run(&[quick.as_slice(), &["--grids=32x32"]].concat());
    assert_exit(&output, 0);
    assert!(
        !stderr(&output).contains("draws in software"),
        "a note about the default although --grids was given"
    );
}

/// The run on an H200 that the documents show. The published package does not have it.
fn committed_run() -> Option<PathBuf> {
    let path = Path::new(common::ROOT).join("docs/measurements/h200-bench.json");
    if !path.exists() {
        common::skip("the published package has no measurements");
        return None;
    }
    Some(path)
}

/// Writes a copy of that run, as one that started some seconds later.
fn another_run(path: &Path, seconds: u64, change: impl FnOnce(&mut wavefield::bench::record::Report)) {
    let mut report = read_json(&committed_run().unwrap()).unwrap();
    report.started += seconds;
    change(&mut report);
    std::fs::write(path, serde_json::to_string(&report).unwrap()).unwrap();
}

#[test]
fn a_saved_run_says_which_handoff_to_use() {
    let Some(committed) = committed_run() else { return };
    let folder = tempfile::tempdir().unwrap();
    let without_auto = folder.path().join("without-auto.json");
    another_run(&without_auto, 0, |report| report.cells.retain(|cell| cell.strategy != "auto"));
    for (saved, use_this, cost) in [
        (committed, "Use `--batch auto` here: ", "25.34 µs (2.6 % of the frame) at 256x256"),
        (without_auto, "Use `--ring 8 --batch 8` here: ", "44.42 µs (4.6 % of the frame) at 256x256"),
    ] {
        let output = run(&["bench", "--from", text(&saved)]);
        assert_exit(&output, 0);
        let table = stdout(&output);
        let (_, last) = table.rsplit_once("\n\n").unwrap();
        assert!(last.starts_with(use_this), "{table}");
        assert!(last.contains(cost), "{table}");
        assert!(!stderr(&output).contains("measurements of"), "{}", stderr(&output));
    }
}

#[test]
fn several_runs_a_side_are_compared() {
    let Some(committed) = committed_run() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| text(&folder.path().join(name)).to_owned();
    another_run(Path::new(&file("old-2")), 100, |_| {});
    another_run(Path::new(&file("new-1")), 200, |_| {});
    // The two new runs lie so far apart in one cell that nobody can tell whether it became slower.
    another_run(Path::new(&file("new-2")), 300, |report| {
        let cell = &mut report.cells[0];
        cell.frame_us.mean *= 1.3;
        cell.round_means_us.iter_mut().for_each(|mean| *mean *= 1.3);
    });
    let old = format!("{},{}", text(&committed), file("old-2"));
    let new = format!("{},{}", file("new-1"), file("new-2"));
    let output = run(&["bench", "--compare", &old, &new, "--fail-above=1.05"]);
    assert_exit(&output, 0);
    let said = stdout(&output);
    for part in
        ["old       2026-11-23 14:51:39", "over runs", "0 slower, 0 faster, 93 same, 3 noisy", "passed"]
    {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }

    let alone = file("new-1");
    for (old, part) in [
        (format!("{alone},{alone}"), "old run 1 and old run 2 are the same run"),
        (format!("{alone},"), "a file name is missing before or after a comma"),
        (format!(",{alone}"), "a file name is missing before or after a comma"),
    ] {
        let output = run(&["bench", "--compare", &old, &alone]);
        assert_exit(&output, 2);
        assert!(stderr(&output).contains(part), "`{part}` is missing in: {}", stderr(&output));
    }
    // One side alone has a run of another scene.
    another_run(Path::new(&file("texture")), 400, |report| report.settings.scene = "texture".into());
    let other = format!("{alone},{}", file("texture"));
    let output = run(&["bench", "--compare", &other, &alone]);
    assert_exit(&output, 1);
    assert!(stderr(&output).contains("scene was field or texture, is field"), "{}", stderr(&output));
}

#[test]
fn files_that_are_none_are_exit_code_1() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.json");
    std::fs::write(&broken, "{\"schema\": \"wavefield-bench/2\", \"complete\": tr").unwrap();
    let output = run(&["bench", "--compare", text(&broken), text(&broken)]);
    assert_exit(&output, 1);
    assert!(stderr(&output).contains("broken.json"), "{}", stderr(&output));
    let output = run(&["bench", "--quick", "--json", "/no/such/folder/a.json"]);
    assert_exit(&output, 1);
    assert!(stderr(&output).contains("cannot write /no/such/folder/a.json"), "{}", stderr(&output));
}
