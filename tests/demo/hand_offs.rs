//! `examples/hand_offs.rs`: every way hands every word over, and each wait that is left out is found.

use crate::common::{PRETENDED, example, example_arguments};
use wavefield_test_support::stand_in::{Run, StandIn, each, finish, run};
use wavefield_test_support::{skip_without_gpu, stderr, stdout};

#[path = "../../examples/hand_offs.rs"]
mod six_ways;

/// The process in which the example runs. As an ordinary test it does nothing.
#[test]
fn in_its_own_process() {
    if let Some(arguments) = example_arguments() {
        std::process::exit(six_ways::start(arguments).into());
    }
}

fn on_stand_in(stand_in: &StandIn, arguments: &[&str], fail: &str) -> Result<Run, String> {
    run(stand_in.beneath(example(module_path!(), arguments), &PRETENDED).env("STAND_IN_FAIL", fail))
}

/// The wrong frames of each row of the table.
fn wrong_frames(table: &str) -> Vec<u64> {
    let rows = table.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
    rows.filter_map(|row| row.rsplit_once(" of ")?.0.split(' ').next_back()?.parse().ok()).collect()
}

#[test]
fn each_way_is_a_function_of_at_most_40_lines() {
    let text = include_str!("../../examples/hand_offs.rs");
    assert!(text.lines().count() <= 500, "{} lines", text.lines().count());
    for name in ["copy_through_host", "cpu_waits", "binary_semaphores", "timelines", "ring", "batches"] {
        let (_, function) = text.split_once(&format!("\nfn {name}(run: &mut Run<'_>)")).expect(name);
        let length = 1 + function.lines().position(|line| line == "}").expect("its end");
        assert!(length <= 40, "{name}: {length} lines");
    }
}

/// More words than a workgroup of the shader, and frames that are no whole batches.
const SMALL: [&str; 4] = ["--words", "5000", "--frames", "43"];

#[test]
fn no_way_has_a_wrong_frame() {
    let Some(stand_in) = StandIn::new() else { return };
    let run = on_stand_in(&stand_in, &SMALL, "").unwrap();
    run.check_clean(0).unwrap();
    let table = stdout(&run.output);
    assert_eq!(wrong_frames(&table), [0; 6], "{table}");
    assert!(table.contains(" of 43"), "{table}");
}

#[test]
fn each_wait_that_is_left_out_is_found() {
    let Some(stand_in) = StandIn::new() else { return };
    let ways = ["1", "2", "3", "4", "5", "6"];
    let cases: Vec<_> = ways.iter().flat_map(|way| ["ready", "free"].map(|wait| (*way, wait))).collect();
    let problems = each(&cases, |(way, wait)| {
        let arguments = [&SMALL[..], &[way, "--without", wait]].concat();
        let run = on_stand_in(&stand_in, &arguments, "")?;
        run.check_end(0)?;
        let table = stdout(&run.output);
        match wrong_frames(&table)[..] {
            [wrong] if wrong > 0 => Ok(()),
            _ => Err(format!("{way} without {wait}: {table}")),
        }
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// After a kernel's fault, CUDA signals nothing more.
#[test]
fn a_failed_call_ends_it() {
    let Some(stand_in) = StandIn::new() else { return };
    for fail in ["cuLaunchKernel:700:60", "cuSignalExternalSemaphoresAsync:719:60", "vkQueueSubmit2:-4:60"] {
        let run = on_stand_in(&stand_in, &SMALL, fail).unwrap();
        run.check_end(1).unwrap_or_else(|problem| panic!("{fail}: {problem}"));
        assert!(run.text().contains("error: "), "{fail}: {}", run.text());
    }
}

/// On a real GPU, if there is one.
#[test]
fn every_way_runs_here() {
    let output =
        finish(example(module_path!(), &["--frames", "100"]).env_remove("WAVEFIELD_REQUIRE_GPU")).unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{}{said}", stdout(&output));
    if let Some((_, reason)) = said.split_once("skipped: ") {
        skip_without_gpu(reason.trim());
    }
}

#[test]
fn wrong_usage_ends_with_2() {
    for arguments in [&["0"][..], &["7"], &["--without", "both"], &["--words", "0"], &["--frames", "0"]] {
        assert_eq!(
            finish(&mut example(module_path!(), arguments)).unwrap().status.code(),
            Some(2),
            "{arguments:?}"
        );
    }
}
