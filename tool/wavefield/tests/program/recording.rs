//! `--record`: what the film contains, and that recording does not disturb the run.

use crate::common;
#[cfg(target_os = "linux")]
use wavefield_test_support::display;

use std::fs::File;
use std::path::Path;

use common::{assert_exit, run, stderr, stdout};

const SMALL: [&str; 4] = ["--headless", "--grid=32x32", "--size=96x60", "--frames=31"];

fn validation() -> &'static str {
    if common::has_validation() { "--validation" } else { "--validation=off" }
}

/// The frames of a GIF, each with its duration in hundredths of a second. Panics if the file is cut off.
fn frames(path: &Path) -> Vec<(u16, Vec<u8>)> {
    let mut options = gif::DecodeOptions::new();
    options.set_color_output(gif::ColorOutput::RGBA);
    let mut decoder = options.read_info(File::open(path).expect("a film")).expect("a GIF");
    let mut frames = Vec::new();
    while let Some(frame) = decoder.read_next_frame().expect("a whole GIF") {
        frames.push((frame.delay, frame.buffer.to_vec()));
    }
    frames
}

/// Without a window, no frame is dropped, however slow the encoder is. So two runs record the same film, if
/// the graphics pipeline draws both: compute shaders round differently, and `auto` chooses in the middle.
#[test]
fn a_headless_run_is_recorded_whole() {
    let folder = tempfile::tempdir().unwrap();
    let record = |name: &str, more: &[&str]| {
        let path = folder.path().join(name);
        let text = path.to_str().unwrap().to_owned();
        let output =
            run(&[&SMALL[..], &["--raster=graphics", "--record", &text, validation()], more].concat());
        assert_exit(&output, 0);
        (path, stdout(&output))
    };
    let (path, said) = record("a.gif", &[]);
    assert!(said.contains("a.gif (11 frames of 96x60)"), "{said}");
    let film = frames(&path);
    let delays: Vec<_> = film.iter().map(|(delay, _)| *delay).collect();
    // The film has every third frame of 60 per second.
    assert_eq!(delays, [&[5; 10][..], &[4]].concat());
    assert!(film.windows(2).all(|pair| pair[0].1 != pair[1].1), "the field moves");
    let (again, _) = record("b.gif", &["--ring=1"]);
    assert!(std::fs::read(&path).unwrap() == std::fs::read(again).unwrap(), "two runs, two films");

    let (path, said) = record("small.gif", &["--record-side=40"]);
    assert!(said.contains("11 frames of 32x20"), "{said}");
    assert_eq!(frames(&path)[0].1.len(), 32 * 20 * 4);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "only the films are left");
}

#[test]
fn raw_frames_go_to_standard_output_and_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last.png");
    let output = run(&[&SMALL[..], &["--record=-", "--output", path.to_str().unwrap()]].concat());
    assert_exit(&output, 0);
    let frame = 96 * 60 * 4;
    // 31 frames at 60 per second are 16 at 30 per second.
    assert_eq!(output.stdout.len(), 16 * frame);
    let said = stderr(&output);
    assert!(
        said.contains("standard output (16 frames of 96x60)") && said.contains("frames        31"),
        "{said}"
    );
    assert!(said.contains("ffmpeg -f rawvideo -pix_fmt rgba -s 96x60 -r 30 -i -"), "{said}");
    let (_, pixels) = common::read_png(&path).unwrap();
    assert!(output.stdout[15 * frame..] == pixels, "the last frame is the picture");
}

#[test]
fn what_cannot_be_recorded_is_said_at_once() {
    for (arguments, code, words) in [
        (&["--record=a.mp4"][..], 2, "must end with .gif"),
        (&["--record-side=99"], 2, "--record-side is for --record FILE.gif"),
        (&["--record=-", "--record-side=99"], 2, "--record-side is for --record FILE.gif"),
        (&["--record=a.gif", "--record-side=3"], 2, "from 16 to 4096"),
        (&["--record=-", "--output=-"], 2, "the same file"),
        (&["--record=/no/such/folder/a.gif"], 1, "cannot write /no/such/folder/a.gif"),
    ] {
        let output = run(&[&SMALL[..], arguments].concat());
        assert_exit(&output, code);
        assert!(stderr(&output).contains(words), "{arguments:?}: {}", stderr(&output));
    }
}

/// The run goes on to its last frame, the film keeps what fitted, and the exit code reports the failure.
#[cfg(target_os = "linux")]
#[test]
fn a_film_that_does_not_fit_keeps_what_did() {
    let folder = tempfile::tempdir().unwrap();
    let film = folder.path().join("a.gif");
    let Some(stand_in) = wavefield_test_support::stand_in::StandIn::new() else { return };
    let mut program = stand_in.command(&[]);
    program.args(["--headless", "--grid=32x32", "--size=320x180", "--frames=31", "--record"]).arg(&film);
    // A software driver's memory may be a file too, so the limit comes with the fifth submission.
    let output = program.env("STAND_IN_FILE_LIMIT", "vkQueueSubmit2:5:51200").output().expect("it starts");
    assert_exit(&output, 1);
    assert!(stderr(&output).contains("ulimit -f"), "{}", stderr(&output));
    assert!(stdout(&output).contains("frames        31"), "{}", stdout(&output));
    let kept = frames(&film).len();
    assert!((1..11).contains(&kept), "{kept} frames");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// The reader leaves, like a player that is closed.
#[cfg(unix)]
#[test]
fn a_reader_that_leaves_ends_the_film_and_not_the_run() {
    use std::io::Read;
    let mut command = common::wavefield();
    command.args(["--headless", "--grid=32x32", "--size=96x60", "--frames=200", "--record=-"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut program = command.spawn().unwrap();
    let mut some = [0; 100];
    program.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let output = program.wait_with_output().unwrap();
    assert_exit(&output, 1);
    let said = stderr(&output);
    assert!(said.contains("frames        200") && said.contains("Broken pipe"), "{said}");
}

/// Without the panel, the film of a window shows what a headless one shows.
#[cfg(target_os = "linux")]
#[test]
fn a_window_is_recorded() {
    let Some(display) = display::Display::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("window.gif");
    let arguments = [
        "--grid=32x32",
        "--size=96x60",
        "--samples=4",
        "--speed=0",
        "--frames=200",
        "--overlay=off",
        validation(),
    ];
    let mut command = common::wavefield();
    display.show(&mut command).args(arguments).arg("--record").arg(&path);
    let output = command.output().expect("the program starts");
    assert_exit(&output, 0);
    assert!(stdout(&output).contains("recording"), "{}", stdout(&output));
    let film = frames(&path);
    assert!(film.len() > 1 && film.iter().all(|(delay, _)| *delay >= 2), "{} frames", film.len());

    // A headless film of one frame shows the same moment.
    let headless = folder.path().join("headless.gif");
    let arguments = ["--headless", "--grid=32x32", "--size=96x60", "--frames=1", "--record"];
    assert_exit(&run(&[&arguments[..], &[headless.to_str().unwrap()]].concat()), 0);
    let (want, got) = (&frames(&headless)[0].1, &film.last().unwrap().1);
    let apart = common::difference(want, got);
    assert!(apart.mean < 1.0 && apart.off < 0.01, "{apart:?}");

    let mut command = common::wavefield();
    display.show(&mut command).args(arguments.map(|argument| match argument {
        "--headless" => "--overlay=off",
        "--frames=1" => "--frames=30",
        other => other,
    }));
    let output = command.arg("-").output().expect("the program starts");
    assert_exit(&output, 0);
    assert!(
        !output.stdout.is_empty() && output.stdout.len().is_multiple_of(96 * 60 * 4),
        "{}",
        output.stdout.len()
    );
    assert!(stderr(&output).contains("frames        30"), "{}", stderr(&output));
}
