//! The program in a real window that the tests resize, hide, drag and close, and to which they send keys.
//!
//! These tests measure no durations: they wait for what must happen, however late. For the load of a hidden
//! window they read the process's CPU time, which does not depend on what else runs.

use crate::common;
use wavefield_test_support::display;
use wavefield_test_support::stand_in;

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use ash::vk;
use clap::ValueEnum;
use common::{SAME_PICTURE, assert_exit, assert_same_picture, is_same, read_png, stderr, stdout};
use display::{Display, Picture, poll};
use tempfile::TempDir;
use wavefield_draw::ColorMap;
use wavefield_run::write_png;
use wavefield_serve::protocol::{FromClient, FromServer, Hello, MemoryKind};
use wavefield_serve::socket::{Connection, Received};
use wavefield_test_support::PATIENCE;
use x11rb::connection::Connection as _;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{AtomEnum, ChangeWindowAttributesAux, ConnectionExt as _, EventMask, PropMode};
use x11rb::wrapper::ConnectionExt as _;

/// Small enough for a software device.
const GRID: &str = "--grid=40x40";
const SIZE: vk::Extent2D = vk::Extent2D { width: 320, height: 240 };

const OTHER_TITLE: &str = "of a test";

/// The argument for the validation layer, if it is installed.
fn validation() -> &'static str {
    static FLAG: LazyLock<&str> =
        LazyLock::new(|| if common::has_validation() { "--validation" } else { "--validation=off" });
    &FLAG
}

/// The running program, with its window on a display.
struct Shown<'a> {
    display: &'a Display,
    program: Child,
    // Files instead of pipes: nobody reads while the program runs, and a full pipe would stop it.
    outputs: [File; 2],
}

impl<'a> Shown<'a> {
    fn start(display: &'a Display, arguments: &[&str]) -> Self {
        Self::start_with(display, arguments, &[])
    }

    /// Like [`start`](Self::start), with these environment variables.
    fn start_with(display: &'a Display, arguments: &[&str], variables: &[(&str, &Path)]) -> Self {
        Self::start_command(display, common::wavefield(), arguments, variables)
    }

    fn start_command(
        display: &'a Display,
        mut command: Command,
        arguments: &[&str],
        variables: &[(&str, &Path)],
    ) -> Self {
        let outputs = [(); 2].map(|()| tempfile::tempfile().expect("the temporary folder is writable"));
        let [out, err] = outputs.each_ref().map(|file| Stdio::from(file.try_clone().expect("a descriptor")));
        // These arguments come first, because they may begin with a subcommand.
        command.args(arguments).arg(GRID);
        if !arguments.contains(&"--validation=off") {
            command.arg(validation());
        }
        if !arguments.iter().any(|argument| argument.starts_with("--size")) {
            command.arg(format!("--size={}x{}", SIZE.width, SIZE.height));
        }
        // Most tests compare the picture itself, with one that was drawn without a window.
        if !arguments.iter().any(|argument| argument.starts_with("--samples")) {
            command.arg("--samples=4");
        }
        if !arguments.iter().any(|argument| argument.starts_with("--overlay")) {
            command.arg("--overlay=off");
        }
        let command = display.show(&mut command).envs(variables.iter().copied());
        let program = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        Self { display, program: program.expect("the program starts"), outputs }
    }

    /// What the program has written so far.
    fn output(&mut self, status: ExitStatus) -> Output {
        let [stdout, stderr] = self.outputs.each_mut().map(|file| {
            let mut text = Vec::new();
            file.rewind().and_then(|()| file.read_to_end(&mut text)).expect("it is a file");
            text
        });
        Output { status, stdout, stderr }
    }

    /// Fails if the program has ended.
    fn assert_alive(&mut self) {
        if let Some(status) = self.program.try_wait().expect("it is our child") {
            let output = self.output(status);
            panic!("ended with {status}: {}{}", stdout(&output), stderr(&output));
        }
    }

    /// Calls `ask` until it answers. Panics if the program ends.
    fn poll<T>(&mut self, what: &str, mut ask: impl FnMut(&mut Self) -> Option<T>) -> T {
        let answer = poll(|| {
            self.assert_alive();
            ask(self)
        });
        answer.unwrap_or_else(|| panic!("{what}: not within {PATIENCE:?}"))
    }

    /// Waits until the program shows its window.
    fn window(&mut self) -> u32 {
        self.poll("a window", |shown| shown.display.window(shown.program.id(), true))
    }

    /// Runs an xdotool command on the window. `rest` follows the window's id.
    fn window_command(&mut self, command: &str, rest: &[&str]) -> String {
        let window = self.window_even_hidden().to_string();
        self.display.xdotool(&[&[command, &window], rest].concat())
    }

    fn window_even_hidden(&mut self) -> u32 {
        self.poll("a window", |shown| shown.display.window(shown.program.id(), false))
    }

    fn title(&mut self) -> String {
        self.window_command("getwindowname", &[])
    }

    /// Sets another title. It stays until the program sets its own, which it does each second with the rate,
    /// but only while it draws.
    fn retitle(&mut self) {
        let window = self.window_even_hidden().to_string();
        self.display.xdotool(&["set_window", "--name", OTHER_TITLE, &window]);
    }

    /// Waits until the program has drawn new frames.
    fn assert_frames_go_on(&mut self) {
        self.window();
        self.retitle();
        self.poll("a title with the rate", |shown| {
            let title = shown.title();
            (title.starts_with("wavefield: ") && title.ends_with(" frames/s")).then_some(())
        });
    }

    /// Waits for a second in which the program uses at most this many hundredths of a core. Nothing tells of a rest, and the
    /// system counts hundredths of a second.
    fn assert_rests(&mut self, most: u64) {
        self.poll("a second of rest", |shown| {
            let before = shown.ticks();
            std::thread::sleep(Duration::from_secs(1));
            (shown.ticks() - before <= most).then_some(())
        });
    }

    /// The CPU time of the program so far, in hundredths of a second.
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.program.id())).expect("it runs");
        // proc_pid_stat(5): fields 14 and 15. The second, the name, may have spaces.
        let (_, fields) = stat.rsplit_once(") ").expect("the name's end");
        fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().expect("a number")).sum()
    }

    /// Sets or clears the state that a window manager sets on a minimised window.
    fn mark_minimised(&mut self, minimised: bool) {
        let window = self.window_even_hidden();
        let (connection, _) = x11rb::connect(Some(&self.display.name())).expect("the display exists");
        let atom = |name: &str| {
            let asked = connection.intern_atom(false, name.as_bytes()).expect("the display exists");
            asked.reply().expect("an atom").atom
        };
        let (state, hidden) = (atom("_NET_WM_STATE"), atom("_NET_WM_STATE_HIDDEN"));
        let atoms = if minimised { &[hidden][..] } else { &[] };
        connection
            .change_property32(PropMode::REPLACE, window, state, AtomEnum::ATOM, atoms)
            .expect("the display exists")
            .check()
            .expect("the window exists");
    }

    /// Presses and releases a key. The window gets the focus first, because keys go to the window that has
    /// it.
    fn key(&mut self, key: &str) {
        let window = self.window().to_string();
        self.display.xdotool(&["windowfocus", &window, "key", key]);
    }

    /// The visible part of the window.
    fn picture(&mut self) -> Picture {
        let window = self.window();
        let part = self.display.geometry(window);
        self.display.screenshot().crop(part)
    }

    /// Waits until the window shows the picture in the file `want`.
    fn assert_shows(&mut self, want: &Path) {
        let (size, pixels) = read_png(want).expect("the reference exists");
        let mut last = None;
        let matched = poll(|| {
            self.assert_alive();
            let picture = last.insert(self.picture());
            (picture.size == size && is_same(&picture.rgba, &pixels)).then_some(())
        });
        let last = last.expect("there was a first look");
        if matched.is_none() {
            // This fails with the difference, and keeps the last picture.
            let folder = tempfile::tempdir().expect("the temporary folder is writable");
            let got = folder.path().join("window.png");
            write_png(&got, last.size, &last.rgba, &[]).expect("the temporary folder is writable");
            assert_same_picture(&got, want, SAME_PICTURE);
        }
        assert!(last.colors() > 100, "the window shows only {} colours", last.colors());
    }

    /// Waits until the window shows a different picture than `was`.
    fn assert_differs(&mut self, was: &Picture) {
        self.poll("another picture", |shown| {
            let is = shown.picture();
            (is.size == was.size && !is_same(&is.rgba, &was.rgba)).then_some(())
        });
    }

    fn signal(&mut self, name: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.program.id())]).status();
        assert!(sent.expect("sh starts").success(), "kill -{name}");
    }

    /// Waits until the program ends.
    fn end(mut self) -> Output {
        let status = poll(|| self.program.try_wait().expect("it is our child"));
        let status = status.unwrap_or_else(|| panic!("the program did not end within {PATIENCE:?}"));
        self.output(status)
    }

    /// Waits until the program ends, and asserts exit code 0, a summary and no message of the validation
    /// layer. Returns the number of frames in the summary.
    fn assert_ends_well(self) -> u64 {
        let output = self.end();
        assert_exit(&output, 0);
        let (summary, notes) = (stdout(&output), stderr(&output));
        assert!(!notes.contains("validation error") && !notes.contains("validation warning"), "{notes}");
        if validation() == "--validation" {
            assert!(summary.contains("validation    no errors, 0 warnings"), "{summary}");
        }
        let frames = summary.strip_prefix("frames ").and_then(|rest| rest.split_whitespace().next());
        frames
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("no summary: {summary}{notes}"))
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        // If the test failed, the program may still run. If it has ended, these calls do nothing.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Headless pictures of the scene at standstill.
struct Headless(TempDir);

impl Headless {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("the temporary folder is writable"))
    }

    fn picture(&self, size: vk::Extent2D, colors: ColorMap) -> PathBuf {
        self.picture_of("field", size, colors)
    }

    fn picture_of(&self, scene: &str, size: vk::Extent2D, colors: ColorMap) -> PathBuf {
        let colors = colors.to_possible_value().expect("no colour map is hidden");
        let size = format!("{}x{}", size.width, size.height);
        let path = self.0.path().join(format!("{scene}-{size}-{}.png", colors.get_name()));
        if !path.exists() {
            let mut command = common::wavefield();
            command.args(["--headless", "--frames=1", "--speed=0", GRID, "--size", &size]);
            command.args(["--scene", scene, "--colormap", colors.get_name(), "--output"]).arg(&path);
            assert_exit(&command.output().expect("the program starts"), 0);
        }
        path
    }
}

#[test]
fn it_survives_resizing_moving_and_hiding_until_escape() {
    let Some(display) = Display::start() else { return };
    let mut shown = Shown::start(&display, &[]);
    shown.assert_frames_go_on();

    for (width, height) in [("500", "300"), ("90", "400"), ("1", "1"), ("640", "480")] {
        shown.window_command("windowsize", &[width, height]);
        shown.assert_frames_go_on();
    }
    let window = shown.window();
    assert_eq!(display.geometry(window).extent, vk::Extent2D { width: 640, height: 480 });

    // Faster than it can draw.
    let window = window.to_string();
    let mut storm = Vec::new();
    for step in 0..200 {
        let (width, height) = (100 + step * 37 % 500, 80 + step * 53 % 400);
        storm.extend(["windowsize", &window].map(String::from));
        storm.extend([width.to_string(), height.to_string(), "sleep".into(), "0.002".into()]);
    }
    display.xdotool(&storm.iter().map(String::as_str).collect::<Vec<_>>());
    shown.assert_frames_go_on();

    shown.window_command("windowmove", &["200", "100"]);
    shown.assert_frames_go_on();
    // Partly outside, then wholly.
    for x in ["-50", "3000", "40"] {
        shown.window_command("windowmove", &[x, "40"]);
    }
    shown.assert_frames_go_on();

    // A window manager minimises a window by unmapping it. There is none here, so unmap it directly.
    for size in ["320", "330"] {
        shown.window_command("windowunmap", &[]);
        shown.poll("no window", |shown| match shown.display.window(shown.program.id(), true) {
            None => Some(()),
            Some(_) => None,
        });
        // While it is hidden it may draw or rest, but it must not end.
        shown.window_command("windowsize", &[size, "240"]);
        shown.assert_alive();
        shown.window_command("windowmap", &[]);
        shown.assert_frames_go_on();
    }

    shown.assert_alive();
    shown.key("Escape");
    assert!(shown.assert_ends_well() > 0);
}

/// X11 allows windows that are wider than any image of a device.
#[test]
fn a_window_that_is_too_large_becomes_as_large_as_the_device_can_draw() {
    let Some(display) = Display::start() else { return };
    let mut shown = Shown::start(&display, &["--size=20000x60"]);
    let fits = |shown: &mut Shown| {
        let window = shown.window();
        (shown.display.geometry(window).extent.width < 20000).then_some(())
    };
    shown.poll("a smaller window", fits);
    shown.assert_frames_go_on();
    shown.window_command("windowsize", &["30000", "50"]);
    shown.poll("a smaller window", fits);
    shown.assert_frames_go_on();
    shown.key("Escape");
    shown.assert_ends_well();
}

#[test]
fn the_window_shows_the_headless_picture() {
    let Some(display) = Display::start() else { return };
    let headless = Headless::new();
    let mut shown = Shown::start(&display, &["--speed=0"]);
    shown.assert_shows(&headless.picture(SIZE, ColorMap::default()));

    for (width, height) in [(500, 300), (200, 333)] {
        shown.window_command("windowsize", &[&width.to_string(), &height.to_string()]);
        shown.assert_shows(&headless.picture(vk::Extent2D { width, height }, ColorMap::default()));
    }
    shown.window_command("windowmove", &["300", "200"]);
    let window = shown.window();
    assert_eq!(display.geometry(window).offset, vk::Offset2D { x: 300, y: 200 });
    shown.assert_shows(&headless.picture(vk::Extent2D { width: 200, height: 333 }, ColorMap::default()));

    shown.key("Escape");
    shown.assert_ends_well();
}

/// The texture has other slots, another pipeline and another camera than the field.
#[test]
fn the_texture_is_shown_through_resizes_until_it_is_closed() {
    let Some(display) = Display::start() else { return };
    let headless = Headless::new();
    for producer in ["--producer=compute", "--producer=host"] {
        let mut shown = Shown::start(&display, &["--scene=texture", "--speed=0", producer]);
        shown.assert_shows(&headless.picture_of("texture", SIZE, ColorMap::default()));
        for (width, height) in [(500, 300), (200, 333)] {
            shown.window_command("windowsize", &[&width.to_string(), &height.to_string()]);
            let size = vk::Extent2D { width, height };
            shown.assert_shows(&headless.picture_of("texture", size, ColorMap::default()));
        }
        shown.window_command("windowsize", &["1", "1"]);
        shown.assert_frames_go_on();
        let window = shown.window();
        display.ask_to_close(window);
        assert!(shown.assert_ends_well() > 0);
    }
}

#[test]
fn a_covered_window_rests_until_it_is_seen_again() {
    let Some(display) = Display::start() else { return };
    let headless = Headless::new();
    let mut shown = Shown::start(&display, &["--speed=0"]);
    let reference = headless.picture(SIZE, ColorMap::default());
    shown.assert_shows(&reference);

    let mut cover = Shown::start(&display, &["--size=640x480"]);
    cover.assert_frames_go_on();
    shown.poll("no frames", |shown| {
        shown.retitle();
        // Two new titles of the cover take more than a second. If this window drew, it would set its title in
        // that time.
        cover.assert_frames_go_on();
        cover.assert_frames_go_on();
        (shown.title() == OTHER_TITLE).then_some(())
    });

    cover.key("Escape");
    cover.assert_ends_well();
    shown.assert_frames_go_on();
    shown.assert_shows(&reference);

    let mut cover = Shown::start(&display, &["--size=640x480"]);
    cover.assert_frames_go_on();
    shown.signal("TERM");
    shown.assert_ends_well();
    cover.assert_alive();
}

/// There is no window manager, so only the display server reports that the window is hidden.
#[test]
fn a_hidden_window_rests_until_it_is_shown_again() {
    let Some(display) = Display::start() else { return };
    let headless = Headless::new();
    let mut shown = Shown::start(&display, &["--speed=0"]);
    let reference = headless.picture(SIZE, ColorMap::default());
    shown.assert_shows(&reference);
    for _ in 0..2 {
        shown.window_command("windowunmap", &[]);
        shown.assert_rests(1);
        shown.window_command("windowmap", &[]);
        shown.assert_frames_go_on();
    }
    shown.mark_minimised(true);
    shown.assert_rests(1);
    shown.mark_minimised(false);
    shown.assert_frames_go_on();
    shown.assert_shows(&reference);

    shown.window_command("windowunmap", &[]);
    shown.assert_rests(1);
    shown.signal("INT");
    shown.assert_ends_well();
}

#[test]
fn a_window_that_was_hidden_still_stops_after_the_frames_it_was_told() {
    let Some(display) = Display::start() else { return };
    let mut shown = Shown::start(&display, &["--frames=150"]);
    shown.window_command("windowunmap", &[]);
    shown.assert_rests(1);
    shown.window_command("windowmap", &[]);
    assert_eq!(shown.assert_ends_well(), 150);
}

#[test]
fn a_client_is_answered_while_the_window_is_hidden() {
    let Some(display) = Display::start() else { return };
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let socket = folder.path().join("socket");
    let mut shown = Shown::start(&display, &["serve", &format!("--socket={}", socket.display())]);
    shown.assert_frames_go_on();
    shown.window_command("windowunmap", &[]);
    shown.assert_rests(1);

    let client = Connection::connect(&socket).expect("it listens");
    let hear = || match client.receive_within(PATIENCE) {
        Received::Packet(packet, _) => serde_json::from_slice::<FromServer>(&packet).expect("a message"),
        other => panic!("no message, but {other:?}"),
    };
    let hello =
        Hello { protocol: 2, client: "test".into(), memory: MemoryKind::Host, ring: None, array: None };
    client.send(&FromClient::Hello(hello), &[]).expect("it is connected");
    assert!(matches!(hear(), FromServer::Welcome(_)));
    // Nobody sees these frames, but more than the ring has are handed over.
    for frame in 0..20 {
        client.send(&FromClient::Ready { frame }, &[]).expect("it is connected");
        assert!(matches!(hear(), FromServer::Free { frame: free } if free == frame), "frame {frame}");
    }
    client.send(&FromClient::Status, &[]).expect("it is connected");
    assert!(matches!(hear(), FromServer::State(_)));
    client.send(&FromClient::Snapshot { after: None, size: None }, &[]).expect("it is connected");
    assert!(matches!(hear(), FromServer::Picture { .. }));
    shown.signal("TERM");
    assert_exit(&shown.end(), 0);
}

#[test]
fn the_close_button_ends_it() {
    let Some(display) = Display::start() else { return };
    let mut shown = Shown::start(&display, &[]);
    shown.assert_frames_go_on();
    let window = shown.window();
    display.ask_to_close(window);
    assert!(shown.assert_ends_well() > 0);
}

#[test]
fn it_may_be_closed_before_the_first_frame() {
    let Some(display) = Display::start() else { return };
    let mut shown = Shown::start(&display, &[]);
    // The window exists before the program has a device to draw with.
    let window = shown.window_even_hidden();
    display.ask_to_close(window);
    shown.assert_ends_well();
}

/// Presses the close button as soon as the window is shown, or a little later.
#[test]
fn it_may_be_closed_in_the_first_frames() {
    let Some(display) = Display::start() else { return };
    for milliseconds in [0, 5, 20, 60] {
        let mut shown = Shown::start(&display, &[]);
        let window = shown.window();
        std::thread::sleep(Duration::from_millis(milliseconds));
        display.ask_to_close(window);
        shown.assert_ends_well();
    }
}

/// If another program destroys the window, this one ends, with or without an error.
#[test]
fn a_window_that_is_destroyed_ends_it() {
    let Some(display) = Display::start() else { return };
    for is_stopped in [false, true, true, true] {
        let mut shown = Shown::start(&display, &[]);
        shown.assert_frames_go_on();
        let window = shown.window().to_string();
        // Stopped in a frame, the program presents to a window that is gone, before it knows of it.
        if is_stopped {
            shown.signal("STOP");
        }
        display.xdotool(&["windowclose", &window]);
        if is_stopped {
            shown.signal("CONT");
        }
        let output = shown.end();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}: {}", output.status, stderr(&output));
        assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    }
}

/// The program still writes what it has checked and traced so far.
#[test]
fn a_window_that_is_destroyed_leaves_record_and_trace() {
    let Some(display) = Display::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [record, trace] = ["v.json", "t.json"].map(|name| folder.path().join(name));
    let named = |option: &str, path: &Path| format!("{option}={}", path.display());
    let outputs = [named("--json", &record), named("--trace", &trace)];
    let arguments = ["verify", "--window", "--frames=1000000", &outputs[0], &outputs[1]];
    let mut shown = Shown::start(&display, &arguments);
    shown.assert_frames_go_on();
    let window = shown.window().to_string();
    display.xdotool(&["windowclose", &window]);
    let output = shown.end();
    assert_exit(&output, 1);
    let read = |path: &Path| -> serde_json::Value {
        let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
        serde_json::from_slice(&bytes).unwrap()
    };
    let record = read(&record);
    assert_eq!((&record["complete"], &record["verdict"]), (&false.into(), &"clean".into()), "{record}");
    assert!(record["tally"]["frames"].as_u64().unwrap() > 0, "{record}");
    assert!(stdout(&output).contains("checked  "), "{}", stdout(&output));
    assert!(!read(&trace)["traceEvents"].as_array().unwrap().is_empty());
}

/// Whoever ends the window, a recording has the frames so far, and no part of a file stays.
#[test]
fn a_recording_outlives_its_window() {
    for is_killed in [false, true] {
        let Some(display) = Display::start() else { return };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("film.gif");
        let mut shown = Shown::start(&display, &[&format!("--record={}", file.display())]);
        shown.assert_frames_go_on();
        let window = shown.window().to_string();
        match is_killed {
            true => display.kill(),
            false => drop(display.xdotool(&["windowclose", &window])),
        }
        let output = shown.end();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}: {}", output.status, stderr(&output));
        assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
        let kept: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(kept, ["film.gif"], "{}", stderr(&output));
        assert!(std::fs::read(&file).unwrap().starts_with(b"GIF89a"));
    }
}

#[test]
fn a_display_server_that_is_killed_ends_it() {
    for hidden in [false, true] {
        let Some(display) = Display::start() else { return };
        let mut shown = Shown::start(&display, &[]);
        shown.assert_frames_go_on();
        if hidden {
            shown.window_command("windowunmap", &[]);
        }
        display.kill();
        let output = shown.end();
        assert_eq!(output.status.code(), Some(1), "{}: {}", output.status, stderr(&output));
        assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    }
}

#[test]
fn signals_end_it() {
    let Some(display) = Display::start() else { return };
    for name in ["TERM", "INT", "HUP"] {
        let mut shown = Shown::start(&display, &[]);
        shown.window();
        shown.signal(name);
        shown.assert_ends_well();
    }
    let mut shown = Shown::start(&display, &[]);
    shown.window_command("windowunmap", &[]);
    shown.signal("TERM");
    shown.assert_ends_well();
}

#[test]
fn it_stops_after_the_frames_it_was_told() {
    let Some(display) = Display::start() else { return };
    let shown = Shown::start(&display, &["--frames=30"]);
    assert_eq!(shown.assert_ends_well(), 30);
}

#[test]
fn keys_and_pointer_change_the_picture() {
    let Some(display) = Display::start() else { return };
    let headless = Headless::new();
    let mut shown = Shown::start(&display, &["--speed=0"]);
    let mut colors = ColorMap::default();
    shown.assert_shows(&headless.picture(SIZE, colors));

    for _ in 0..2 {
        shown.key("c");
        colors = colors.next(None);
        shown.assert_shows(&headless.picture(SIZE, colors));
    }

    let first = headless.picture(SIZE, colors);
    let still = shown.picture();
    let window = shown.window().to_string();
    let at = |x: &'static str, y: &'static str| ["mousemove", "--window", &window, x, y].map(String::from);
    let drag = [&at("100", "100")[..], &words("mousedown 1"), &at("180", "60"), &words("mouseup 1")].concat();
    let wheel = |button: &str| [&at("100", "100")[..], &words(&format!("click {button}"))].concat();
    let pan = [&at("100", "100")[..], &words("mousedown 3"), &at("180", "60"), &words("mouseup 3")].concat();
    for gesture in [drag, pan, wheel("4"), wheel("5")] {
        display.xdotool(&gesture.iter().map(String::as_str).collect::<Vec<_>>());
        shown.assert_differs(&still);
        shown.key("r");
        shown.assert_shows(&first);
    }

    // The camera turns by itself until the key is pressed again.
    shown.key("a");
    shown.assert_differs(&still);
    let turned = shown.picture();
    shown.assert_differs(&turned);
    shown.key("A");
    shown.poll("a standing picture", |shown| {
        let before = shown.picture();
        shown.assert_frames_go_on();
        (before == shown.picture()).then_some(())
    });
    shown.key("Home");
    shown.assert_shows(&first);

    // Moving the pointer without a button does not turn the camera.
    display.xdotool(&at("10", "20").each_ref().map(String::as_str));
    display.xdotool(&at("200", "150").each_ref().map(String::as_str));
    shown.assert_frames_go_on();
    shown.assert_shows(&first);

    shown.key("q");
    shown.assert_ends_well();
}

#[test]
fn a_key_that_is_held_when_the_focus_comes_is_not_meant_for_it() {
    let Some(display) = Display::start() else { return };
    let mut shown = Shown::start(&display, &[]);
    let window = shown.window().to_string();
    // At first the focus follows the pointer, so the key goes to the background.
    display.xdotool(&["mousemove", "1000", "600", "keydown", "Escape", "windowfocus", &window]);
    shown.assert_frames_go_on();
    display.xdotool(&["keyup", "Escape"]);
    shown.assert_frames_go_on();
    shown.key("Escape");
    shown.assert_ends_well();
}

#[test]
fn space_pauses_and_goes_on() {
    let Some(display) = Display::start() else { return };
    let mut shown = Shown::start(&display, &["--speed=4"]);
    shown.assert_frames_go_on();
    let was = shown.picture();
    shown.assert_differs(&was);

    shown.key("space");
    shown.poll("a title with `paused`", |shown| shown.title().contains(", paused").then_some(()));
    // The key may arrive some frames later.
    let paused = shown.poll("a standing picture", |shown| {
        let before = shown.picture();
        shown.assert_frames_go_on();
        (before == shown.picture()).then_some(before)
    });
    assert!(paused.colors() > 100, "the window shows only {} colours", paused.colors());

    shown.key("space");
    shown.assert_differs(&paused);
    shown.poll("a title without it", |shown| (!shown.title().contains("paused")).then_some(()));
    shown.key("Escape");
    shown.assert_ends_well();
}

#[test]
fn a_pause_goes_on_by_single_steps() {
    let Some(display) = Display::start() else { return };
    // Each step advances the field by one second.
    let mut shown = Shown::start(&display, &["--speed=60"]);
    shown.assert_frames_go_on();
    shown.key("space");
    shown.poll("a title with `paused`", |shown| shown.title().contains(", paused").then_some(()));
    shown.assert_frames_go_on();
    for key in ["period", "n"] {
        let before = shown.picture();
        shown.key(key);
        shown.assert_differs(&before);
        shown.assert_frames_go_on();
        let after = shown.picture();
        shown.assert_frames_go_on();
        assert!(after == shown.picture(), "it goes on by itself");
    }
    shown.key("Escape");
    shown.assert_ends_well();
}

/// The time axis of the panel stands still with the field.
#[test]
fn a_pause_freezes_the_lanes() {
    let Some(display) = Display::start() else { return };
    let mut shown = Shown::start(&display, &["--size=640x480", "--samples=1", "--overlay=on"]);
    shown.assert_frames_go_on();
    let lanes = |shown: &mut Shown| {
        let part = vk::Rect2D {
            offset: vk::Offset2D { x: 360, y: 360 },
            extent: vk::Extent2D { width: 270, height: 60 },
        };
        shown.picture().crop(part)
    };
    let before = lanes(&mut shown);
    shown.poll("other lanes", |shown| (lanes(shown) != before).then_some(()));
    shown.key("space");
    shown.poll("lanes that stand still", |shown| {
        let before = lanes(shown);
        shown.assert_frames_go_on();
        shown.assert_frames_go_on();
        (before == lanes(shown)).then_some(())
    });
    let paused = lanes(&mut shown);
    shown.key("space");
    shown.poll("other lanes", |shown| (lanes(shown) != paused).then_some(()));
    shown.key("Escape");
    shown.assert_ends_well();
}

/// There is no window manager to do it, so the test checks the request to the window manager.
#[test]
fn f_asks_for_the_whole_screen_and_back() {
    let Some(display) = Display::start() else { return };
    let mut shown = Shown::start(&display, &[]);
    shown.assert_frames_go_on();
    let (connection, screen) = x11rb::connect(Some(&display.name())).expect("the display exists");
    let root = connection.setup().roots[screen].root;
    let listen = ChangeWindowAttributesAux::new().event_mask(EventMask::SUBSTRUCTURE_NOTIFY);
    connection.change_window_attributes(root, &listen).expect("the display exists").check().unwrap();
    let atom = connection.intern_atom(false, b"_NET_WM_STATE_FULLSCREEN").unwrap().reply().unwrap().atom;
    // What the window asks of the window manager: 1 for full screen, 0 for its end.
    let asked = || loop {
        if let Event::ClientMessage(message) = connection.poll_for_event().expect("the display exists")? {
            let data = message.data.as_data32();
            if data[1] == atom {
                return Some(data[0]);
            }
        }
    };
    let ask = |shown: &mut Shown, key, wanted| {
        shown.key(key);
        shown.poll("a message to the window manager", |_| asked().filter(|asked| *asked == wanted));
        shown.assert_frames_go_on();
    };
    for (key, wanted) in [("f", 1), ("f", 0), ("f", 1)] {
        ask(&mut shown, key, wanted);
    }
    // Escape closes the list of keys first, then leaves full screen, and only then the program.
    shown.key("F1");
    shown.key("Escape");
    shown.assert_frames_go_on();
    assert_eq!(asked(), None, "the list of keys was closed");
    ask(&mut shown, "Escape", 0);
    shown.key("Escape");
    shown.assert_ends_well();
}

#[test]
fn f1_shows_the_keys() {
    let Some(display) = Display::start() else { return };
    let headless = Headless::new();
    let mut shown = Shown::start(&display, &["--speed=0"]);
    let first = headless.picture(SIZE, ColorMap::default());
    shown.assert_shows(&first);
    let still = shown.picture();
    for (key, back) in [("F1", "F1"), ("question", "question"), ("F1", "Escape")] {
        shown.key(key);
        shown.assert_differs(&still);
        shown.key(back);
        shown.assert_shows(&first);
    }
    shown.key("Escape");
    shown.assert_ends_well();
}

#[test]
fn other_present_modes_work_or_say_what_is_used() {
    let Some(display) = Display::start() else { return };
    for (mode, name) in [("mailbox", "Mailbox"), ("immediate", "Immediate")] {
        let output = Shown::start(&display, &["--frames=10", "--present", mode]).end();
        assert_exit(&output, 0);
        assert!(stdout(&output).starts_with("frames        10\n"), "{}", stdout(&output));
        let notes = stderr(&output);
        assert!(!notes.contains("validation error") && !notes.contains("validation warning"), "{notes}");
        let fallback = format!("note: this window does not offer {name} presentation, using Fifo\n");
        assert!(!notes.contains("does not offer") || notes.contains(&fallback), "{notes}");
    }
}

#[test]
fn without_a_display_it_goes_headless_and_says_so() {
    // This needs no tools. The last case names a socket on which nobody listens.
    for (display, wayland) in [(None, None), (Some(":4242"), None), (None, Some("wavefield-test-nobody"))] {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        let mut command = common::wavefield();
        command.args(["--frames=2", "--grid=16x16", "--size=64x64"]).current_dir(&folder);
        for (name, value) in [("DISPLAY", display), ("WAYLAND_DISPLAY", wayland), ("WAYLAND_SOCKET", None)] {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let output = command.output().expect("the program starts");
        assert_exit(&output, 0);
        let (summary, notes) = (stdout(&output), stderr(&output));
        assert!(notes.contains("note: no display: "), "{notes}");
        assert!(notes.contains("running headless, the last frame goes to wavefield.png"), "{notes}");
        assert!(
            notes.contains("`wavefield --web`") && notes.contains("`ssh -L 127.0.0.1:8090:127.0.0.1:8090 "),
            "{notes}"
        );
        assert!(!notes.contains(".rs:"), "a note must not name a source line: {notes}");
        assert!(summary.contains("frames        2\n"), "{summary}");
        assert!(summary.contains("picture       wavefield.png\n"), "{summary}");
        let (size, _) = read_png(&folder.path().join("wavefield.png")).expect("a picture was written");
        assert_eq!(size, vk::Extent2D { width: 64, height: 64 });
    }
}

/// The socket is left over, or never existed.
#[test]
fn a_dead_wayland_socket_is_no_reason_to_go_without_a_window() {
    let Some(display) = Display::start() else { return };
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let left = folder.path().join("left");
    drop(std::os::unix::net::UnixListener::bind(&left).expect("the temporary folder is writable"));
    for name in [Path::new("nobody"), Path::new("left"), &left] {
        let variables = [("XDG_RUNTIME_DIR", folder.path()), ("WAYLAND_DISPLAY", name)];
        let mut shown = Shown::start_with(&display, &[], &variables);
        shown.assert_frames_go_on();
        shown.key("Escape");
        let output = shown.end();
        assert_exit(&output, 0);
        assert!(stderr(&output).contains("note: no Wayland: "), "{}", stderr(&output));
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(String::from).collect()
}

/// The rows of the panel that are lists.
const ROWS: [&str; 7] = ["scene", "kernel", "producer", "hand-off", "ring", "batch", "grid"];

/// Picks a choice from a list of the panel, in a window of the display's size whose field stands still.
fn choose(shown: &mut Shown, row: &str, choice: i32) {
    let row = ROWS.iter().position(|name| *name == row).expect("a row") as i32;
    let y = 66 + 23 * row;
    let display = shown.display;
    let click = |y: i32| display.xdotool(&["mousemove", "150", &y.to_string(), "click", "1"]);
    // The list is over the rows below it, which do not change.
    let offset = vk::Offset2D { x: 80, y: y + 26 };
    let below = vk::Rect2D { offset, extent: vk::Extent2D { width: 140, height: 40 } };
    let closed = shown.picture().crop(below);
    click(y);
    shown.poll("the list", |shown| (shown.picture().crop(below) != closed).then_some(()));
    click(y + 25 + 21 * choice);
}

#[test]
fn the_panel_switches_what_is_drawn() {
    let Some(display) = Display::start() else { return };
    let still = ["--size=1280x720", "--samples=1", "--overlay=on", "--speed=0"];
    let mut shown = Shown::start(&display, &still);
    shown.poll("the compute shader", |shown| shown.title().contains("compute on").then_some(()));
    shown.assert_frames_go_on();
    let title = |shown: &mut Shown, want: &str| {
        shown.poll(want, |shown| shown.title().contains(want).then_some(()));
    };
    choose(&mut shown, "producer", 3);
    title(&mut shown, "wavefield: host on");
    choose(&mut shown, "producer", 2);
    title(&mut shown, "wavefield: compute on");
    choose(&mut shown, "grid", 0);
    title(&mut shown, ", 64x64");
    let before = shown.picture();
    choose(&mut shown, "scene", 1);
    shown.assert_differs(&before);
    shown.key("Escape");
    assert!(shown.assert_ends_well() > 0);
}

/// Escape closes a list of the panel, not the window.
#[test]
fn escape_closes_a_list_first() {
    let Some(display) = Display::start() else { return };
    let mut shown = Shown::start(&display, &["--size=640x480", "--speed=0", "--samples=1", "--overlay=on"]);
    shown.assert_frames_go_on();
    // The list of grids is over the rows below it, which do not change.
    let rows = |shown: &mut Shown| {
        let part = vk::Rect2D {
            offset: vk::Offset2D { x: 80, y: 230 },
            extent: vk::Extent2D { width: 140, height: 70 },
        };
        shown.picture().crop(part)
    };
    let closed = rows(&mut shown);
    display.xdotool(&["mousemove", "150", "204", "click", "1"]);
    shown.poll("the list", |shown| (rows(shown) != closed).then_some(()));
    shown.key("Escape");
    shown.poll("no list", |shown| (rows(shown) == closed).then_some(()));
    shown.assert_frames_go_on();
    shown.key("Escape");
    shown.assert_ends_well();
}

#[test]
fn a_key_starts_and_stops_a_recording() {
    let Some(display) = Display::start() else { return };
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let mut command = common::wavefield();
    command.current_dir(&folder);
    let mut shown = Shown::start_command(&display, command, &[], &[]);
    for film in ["wavefield-1.gif", "wavefield-2.gif"] {
        shown.assert_frames_go_on();
        let recording = |shown: &mut Shown| shown.title().contains(", recording");
        assert!(!recording(&mut shown));
        shown.key("v");
        shown.poll("a title with `recording`", |shown| recording(shown).then_some(()));
        shown.assert_frames_go_on();
        shown.key("v");
        shown.poll("a title without it", |shown| (!recording(shown)).then_some(()));
        let mut options = gif::DecodeOptions::new();
        options.set_color_output(gif::ColorOutput::RGBA);
        let film = File::open(folder.path().join(film)).expect("a film");
        let mut film = options.read_info(film).expect("a GIF");
        assert_eq!((film.width(), film.height()), (SIZE.width as u16, SIZE.height as u16));
        assert!(film.read_next_frame().expect("a whole GIF").is_some());
    }
    shown.key("Escape");
    let output = shown.end();
    assert_exit(&output, 0);
    let notes = stderr(&output);
    assert!(notes.contains("note: recording wavefield-1.gif, with the panel if it is shown"), "{notes}");
    assert!(notes.contains("note: saved wavefield-2.gif ("), "{notes}");
}

#[test]
fn a_still_image_has_its_own_title_and_costs_nothing() {
    assert_rests_and_has_values("image", "an image of [2, 2]");
}

#[test]
fn a_still_surface_has_its_own_title_and_costs_nothing() {
    assert_rests_and_has_values("surface", "a surface of [2, 2]");
}

/// Shows a client's array, as `show` in Python does: one frame, which stays.
fn assert_rests_and_has_values(kind: &str, in_words: &str) {
    let Some(display) = Display::start() else { return };
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let socket = folder.path().join("socket");
    let socket_text = format!("--socket={}", socket.display());
    let mut shown = Shown::start(&display, &["serve", &socket_text, "--overlay=legend"]);
    shown.assert_frames_go_on();

    let client = Connection::connect(&socket).expect("it listens");
    let hello: FromClient = serde_json::from_value(serde_json::json!({
        "type": "hello", "protocol": 2, "client": "my picture", "memory": "host",
        "array": { "kind": kind, "shape": [2, 2], "dtype": "|u1" },
    }))
    .expect("a message");
    client.send(&hello, &[]).expect("it is connected");
    let welcome = match client.receive_within(PATIENCE) {
        Received::Packet(packet, descriptors) => {
            assert!(matches!(serde_json::from_slice(&packet), Ok(FromServer::Welcome(_))));
            descriptors
        }
        other => panic!("no welcome, but {other:?}"),
    };
    let memory = File::from(welcome.into_iter().next().expect("memory"));
    std::os::unix::fs::FileExt::write_all_at(&memory, &[110, 120, 130, 213], 0).expect("it is writable");
    client.send(&FromClient::Ready { frame: 0 }, &[]).expect("it is connected");
    let title = format!("wavefield: my picture, {in_words}");
    shown.poll("the array's title", |shown| shown.title().starts_with(&title).then_some(()));
    // With nothing new to draw, it rests, and so it has no rate.
    shown.poll("a title without a rate", |shown| (!shown.title().contains("frames/s")).then_some(()));
    shown.assert_rests(5);

    // A pointer over the array wakes it up, and shows the value there.
    let was = shown.picture();
    let window = shown.window().to_string();
    display.xdotool(&["mousemove", "--window", &window, "200", "160"]);
    shown.assert_differs(&was);
    shown.signal("TERM");
    assert_exit(&shown.end(), 0);
}

#[test]
fn the_summary_has_the_parts_of_a_frame() {
    let Some(display) = Display::start() else { return };
    let parts = |command: Command, frames: u64, more: &[&str]| {
        let frames_text = format!("--frames={frames}");
        let arguments = [&["--present=immediate", "--samples=1", &*frames_text], more].concat();
        let on = if more.contains(&"--overlay=off") { &[][..] } else { &["--overlay=on"] };
        let arguments = [&arguments[..], on].concat();
        let output = Shown::start_command(&display, command, &arguments, &[]).end();
        assert_exit(&output, 0);
        let summary = stdout(&output);
        assert!(summary.starts_with(&format!("frames        {frames}\n")), "{summary}");
        summary.lines().find_map(|line| line.strip_prefix("last frames   ").map(str::to_owned))
    };
    // However fast the frames are, enough of them take long enough.
    let assert_measures = |command: &dyn Fn() -> Command, more: &[&str]| {
        let parts =
            (6..14).find_map(|power| parts(command(), 1 << power, more)).expect("the parts are known");
        assert!(parts.starts_with("kernel ") && parts.contains(", overlay "), "{parts}");
    };
    assert_measures(&common::wavefield, &[]);
    assert_eq!(parts(common::wavefield(), 40, &["--overlay=off"]), None);
    let Some(stand_in) = stand_in::StandIn::new() else { return };
    let uuid = common::first_uuid();
    let command = || {
        let mut command = stand_in.command(&stand_in::ALL);
        command.env("STAND_IN_UUID", &uuid);
        command
    };
    for handoff in
        [&["--handoff=binary"][..], &["--handoff=timeline", "--ring=3", "--batch=1"], &["--handoff=cpu-sync"]]
    {
        assert_measures(&command, &[handoff, &["--producer=cuda", "--validation=off"]].concat());
    }
}
