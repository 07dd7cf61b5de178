//! Signals, and stopping the program while it waits for something.

use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{self, assert_exit, process, stderr, stdout};
use crate::stand_in::{ALL, StandIn};

/// The longest wait for anything. Only a broken program takes this long.
const PATIENCE: Duration = Duration::from_secs(180);

/// A running program. It is killed when dropped.
struct Running {
    child: Child,
    folder: tempfile::TempDir,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| Stdio::from(std::fs::File::create(folder.path().join(name)).unwrap());
        let child = command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err")).spawn();
        Self { child: child.expect("the program starts"), folder }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the process is our own child, and nobody has waited for it yet.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    fn ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// What the program has written to standard error so far.
    fn said(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("err")).unwrap()
    }

    /// Waits until the program ends.
    fn output(&mut self) -> Output {
        let began = Instant::now();
        while !self.ended() {
            assert!(began.elapsed() < PATIENCE, "it did not end: {}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
        let read = |name: &str| std::fs::read(self.folder.path().join(name)).unwrap();
        let status = self.child.wait().unwrap();
        Output { status, stdout: read("out"), stderr: read("err") }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the NTH call of `call` in a program on the stand-in.
fn at_call(mut command: Command, call: &str, nth: u64) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("told");
    let mut running =
        Running::start(command.env("STAND_IN_TELL", format!("{call}:{nth}:{}", told.display())));
    process::wait_for(&mut running.child, call, |_| told.exists());
    running
}

/// A run on the stand-in whose first frame never ends: its kernel does not end, and the watchdog has a long
/// timeout.
fn never_finished(stand_in: &StandIn) -> Command {
    let spin = concat!(env!("CARGO_MANIFEST_DIR"), "/../handoff/kernels/test/spin.ptx");
    let mut command = stand_in.command(&ALL);
    command.args(["--headless", "--producer=cuda", "--frames=100", "--grid=8x8", "--size=32x24"]);
    command.args(["--validation=off", "--timeout=600", "--kernel", spin]);
    command
}

#[test]
fn a_stop_does_not_wait_for_a_frame_that_takes_long() {
    let Some(stand_in) = StandIn::new() else { return };
    let mut running = at_call(never_finished(&stand_in), "cuLaunchKernel", 1);
    running.signal(libc::SIGINT);
    let output = running.output();
    assert_exit(&output, 1);
    let text = stderr(&output);
    assert!(text.contains("stopped before the current frame was done"), "{text}");
}

/// The program is in a call that takes 5 s, so it cannot heed the first signal. (In a frame that takes long
/// it does, and may have ended before the second signal comes.)
#[test]
fn a_second_signal_ends_the_process_at_once() {
    let Some(stand_in) = StandIn::new() else { return };
    for (first, second) in [(libc::SIGINT, libc::SIGINT), (libc::SIGINT, libc::SIGTERM)] {
        let mut command = never_finished(&stand_in);
        // It waits for a call that nobody makes.
        command.env("STAND_IN_BESIDE", "cuInit+nothing");
        let mut running = at_call(command, "cuInit", 1);
        running.signal(first);
        // For 100 ms they count as one wish.
        while !running.ended() {
            running.signal(second);
            std::thread::sleep(Duration::from_millis(10));
        }
        let output = running.output();
        assert_eq!(output.status.signal(), Some(second), "{}, {}", output.status, stderr(&output));
    }
}

/// `timeout` sends SIGTERM to the program and to its group, and some shells send SIGHUP after it. That counts as one request.
#[test]
fn two_signals_at_once_are_one_wish() {
    let mut command = common::wavefield();
    command.args(["--headless", "--frames=1000000", "--grid=8x8", "--size=32x24", "--validation=off"]);
    let mut running = Running::start(&mut command);
    process::wait_for(&mut running.child, "frames", process::has_worked);
    // Both signals arrive when the program continues.
    running.signal(libc::SIGSTOP);
    running.signal(libc::SIGTERM);
    running.signal(libc::SIGHUP);
    running.signal(libc::SIGCONT);
    let output = running.output();
    assert_exit(&output, 0);
    assert!(stdout(&output).contains("frames  "), "{}", stdout(&output));
}

/// `nohup` ignores SIGHUP for its program, and a shell without job control ignores SIGINT for background programs.
#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    for (name, signal) in [("HUP", libc::SIGHUP), ("INT", libc::SIGINT)] {
        let folder = tempfile::tempdir().unwrap();
        let picture = folder.path().join("a.png");
        let mut command = Command::new("sh");
        command.args(["-c", &format!("trap '' {name}; exec \"$@\""), "sh"]);
        command.arg(common::wavefield().get_program());
        command.args(["--headless", "--frames=20", "--grid=8x8", "--size=32x24", "--validation=off"]);
        let mut running = Running::start(command.arg("--output").arg(&picture));
        process::wait_for(&mut running.child, name, |shell| process::ignores(shell, signal));
        while !running.ended() {
            running.signal(signal);
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_exit(&running.output(), 0);
        assert!(picture.exists(), "{name}");
    }
}

/// A display server that accepts connections but never answers, at an unlikely number.
struct SilentDisplay {
    path: PathBuf,
    number: u32,
    listener: UnixListener,
}

impl SilentDisplay {
    fn new(offset: u32) -> Option<Self> {
        let number = 20_000 + std::process::id() % 10_000 * 2 + offset;
        let path = PathBuf::from(format!("/tmp/.X11-unix/X{number}"));
        let _ = std::fs::create_dir(path.parent().unwrap());
        match UnixListener::bind(&path) {
            Ok(listener) => {
                listener.set_nonblocking(true).unwrap();
                Some(Self { path, number, listener })
            }
            Err(error) => {
                common::skip(&format!("{} cannot be made: {error}", path.display()));
                None
            }
        }
    }

    fn command(&self) -> Command {
        let mut command = common::wavefield();
        command.env("DISPLAY", format!(":{}", self.number));
        command.env_remove("WAYLAND_DISPLAY").env_remove("WAYLAND_SOCKET");
        command.args(["--frames=1", "--grid=8x8"]);
        command
    }
}

impl Drop for SilentDisplay {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[test]
fn a_silent_display_is_not_waited_for_without_end() {
    let Some(display) = SilentDisplay::new(0) else { return };
    let output = Running::start(display.command().arg("--timeout=1")).output();
    if stderr(&output).contains("libX11") {
        return common::skip_without_tools("the X11 libraries are not installed");
    }
    assert_exit(&output, 1);
    assert!(stderr(&output).contains("sent nothing for 1 s"), "{}", stderr(&output));
}

#[test]
fn a_signal_ends_the_wait_for_a_silent_display() {
    let Some(display) = SilentDisplay::new(1) else { return };
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let mut running = Running::start(display.command().arg("--timeout=600"));
        let mut connection = None;
        while connection.is_none() && !running.ended() {
            connection = display.listener.accept().ok();
            std::thread::sleep(Duration::from_millis(2));
        }
        running.signal(signal);
        let output = running.output();
        if stderr(&output).contains("libX11") {
            return common::skip_without_tools("the X11 libraries are not installed");
        }
        assert!(connection.is_some() && !output.status.success(), "{}", output.status);
        assert!(stderr(&output).contains("stopped while connecting"), "{}", stderr(&output));
    }
}

#[test]
fn a_stop_leaves_the_round_trips_before() {
    let Some(stand_in) = StandIn::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("l.json");
    let mut command = stand_in.command(&ALL);
    command.args(["bench", "latency", "--rounds=10000000", "--json"]).arg(&path);
    // Each of 250 round trips has two launches. After the second 250 there is something to show: the first
    // warm up.
    let mut running = at_call(command, "cuLaunchKernel", 1001);
    running.signal(libc::SIGINT);
    let output = running.output();
    assert_exit(&output, 1);
    assert!(stdout(&output).contains("INCOMPLETE"), "{}", stderr(&output));
    let record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert!(record["complete"] == false && record["rounds"].as_u64() > Some(0), "{record}");
    assert!(record["host_vulkan_us"].is_null(), "{record}");
}
