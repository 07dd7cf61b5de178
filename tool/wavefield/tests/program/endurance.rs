//! Draws two thousand frames in a window that is resized, hidden and shown all the time. Every vertex of
//! every frame is right, and at the end the process holds no more than after it had settled.

use crate::common;
use wavefield_test_support::display;

use std::process::Stdio;

use common::{assert_exit, stderr, stdout};
use display::{Display, poll};

const FRAMES: u64 = 2000;

/// The growth of memory that the program itself allows for pictures of the same size, because pools vary. All
/// pictures here are small.
const ALLOWANCE: u64 = 16 << 20;

/// Resizes, hides and shows the window until its program has ended. Sizes change faster than it can draw, and
/// while hidden it rests.
fn storm(display: &Display, window: u32, mut ended: impl FnMut() -> bool) -> u32 {
    let window = window.to_string();
    let mut rounds = 0;
    while !ended() {
        let mut commands = Vec::new();
        for step in 0..10 {
            let step = rounds * 10 + step;
            let (width, height) = (60 + step * 37 % 200, 40 + step * 53 % 150);
            commands.push(format!("windowsize {window} {width} {height}"));
            commands.push("sleep 0.01".to_owned());
        }
        // A window manager minimises a window by unmapping it. There is none here, so unmap it directly.
        commands.push(format!("windowunmap {window} sleep 0.02 windowmap {window} sleep 0.05"));
        let words: Vec<String> = commands.join(" ").split(' ').map(String::from).collect();
        display.try_xdotool(&words.iter().map(String::as_str).collect::<Vec<_>>());
        rounds += 1;
    }
    rounds
}

#[test]
fn two_thousand_frames_in_a_storm_leave_nothing_behind() {
    let Some(display) = Display::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("verify.json");
    let mut command = common::wavefield();
    command.args(["verify", "--window", "--grid=32x32", "--size=160x120"]);
    // The layer records what it has seen, and its memory must not count here.
    command.args(["--validation=off", &format!("--frames={FRAMES}"), "--json"]).arg(&path);
    let program =
        display.show(&mut command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = program.spawn().expect("the program starts");
    let window = poll(|| display.window(program.id(), true)).expect("a window");
    let rounds = storm(&display, window, || program.try_wait().expect("it is our child").is_some());
    let output = program.wait_with_output().expect("it is our child");
    assert_exit(&output, 0);
    println!("{rounds} rounds of the storm\n{}", stdout(&output));
    assert!(rounds >= 10, "only {rounds} rounds of the storm happened during the run");
    assert!(!stderr(&output).contains("error"), "{}", stderr(&output));

    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!((&json["frames"], &json["verdict"]), (&FRAMES.into(), &"clean".into()));
    let figure = |when: &str, what: &str| {
        json[when][what].as_u64().unwrap_or_else(|| panic!("no {what} {when} in {json:#}"))
    };
    assert!(figure("end", "descriptors") <= figure("settled", "descriptors"), "{json:#}");
    assert!(figure("end", "resident_bytes") <= figure("settled", "resident_bytes") + ALLOWANCE, "{json:#}");
}
