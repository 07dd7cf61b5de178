//! The program on the stand-in for a GPU (`tests/stand_in`): it checks itself where every disc was seen.
#![cfg(target_os = "linux")]

use std::process::Command;

use wavefield_test_support::stand_in::{ALL, StandIn, run};
use wavefield_test_support::stdout;

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wavefield-render-to-cuda-example"));
    // As in the tests of `examples/wgpu`.
    command.env_remove("WAVEFIELD_REQUIRE_GPU").env("WGPU_VALIDATION", "0");
    command
}

#[test]
fn every_disc_is_seen_where_it_was_drawn() {
    let Some(stand_in) = StandIn::new() else { return };
    let done = run(stand_in.beneath(program(), &ALL).args(["--frames", "20"])).unwrap();
    done.check_clean(0).unwrap();
    let text = stdout(&done.output);
    assert!(text.contains("every disc was seen"), "{text}");
    let row = |start| text.lines().filter(|line: &&str| line.starts_with(start)).count();
    assert_eq!([row("84x84"), row("1280x720")], [2, 2], "{text}");
}

#[test]
fn without_a_gpu_it_is_skipped_and_wrong_arguments_are_code_2() {
    let output = program().args(["--frames", "3"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).starts_with("skipped: ") || stdout(&output).contains("every disc"), "{output:?}");
    for arguments in [&["--frames"][..], &["--frames", "0"], &["x"], &["--frames", "1", "x"]] {
        assert_eq!(program().args(arguments).output().unwrap().status.code(), Some(2), "{arguments:?}");
    }
}
