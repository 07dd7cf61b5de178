//! Signals, and whoever is to be ended while something else keeps the program waiting.

use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{self, assert_exit, stderr, stdout};
use crate::stand_in::{ALL, StandIn};

/// How long anything may take. Only a broken program ever takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A run that is not waited for yet. Ends with the test.
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
        // SAFETY: our own child, which was not waited for yet.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    fn ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// What it wrote to standard error so far.
    fn said(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("err")).unwrap()
    }

    /// Waits for its end.
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

/// A run whose first frame is never finished: its kernel does not end, and the watchdog is patient. Comes back once it waits,
/// as far as that can be told from outside; `after` is how long that is taken to be.
fn never_finished(stand_in: &StandIn, after: Duration) -> Running {
    let spin = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/test/spin.ptx");
    let mut command = stand_in.command(&ALL);
    command.args(["--headless", "--producer=cuda", "--frames=100", "--grid=8x8", "--size=32x24"]);
    command.args(["--validation=off", "--timeout=600", "--kernel", spin]);
    let running = Running::start(&mut command);
    std::thread::sleep(after);
    running
}

/// A busy machine may not have come so far in the first time that a test gives it.
const TIMES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(12)];

#[test]
fn a_stop_does_not_wait_for_a_frame_that_takes_long() {
    let Some(stand_in) = StandIn::new() else { return };
    let ends = TIMES.map(|after| {
        let mut running = never_finished(&stand_in, after);
        running.signal(libc::SIGINT);
        running.output()
    });
    let stopped = |output: &&Output| stderr(output).contains("stopped without the frame at hand");
    let output = ends.iter().find(stopped);
    assert_exit(output.unwrap_or_else(|| panic!("{}", stderr(&ends[2]))), 1);
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    let Some(stand_in) = StandIn::new() else { return };
    for (first, second) in [(libc::SIGINT, libc::SIGINT), (libc::SIGINT, libc::SIGTERM)] {
        let ends = TIMES.map(|after| {
            let mut running = never_finished(&stand_in, after);
            running.signal(first);
            std::thread::sleep(Duration::from_millis(300));
            running.signal(second);
            running.output()
        });
        let ended = ends.iter().any(|output| output.status.signal() == Some(second));
        assert!(ended, "{first}, {second}: {:?}", ends.map(|output| (output.status, stderr(&output))));
    }
}

/// `timeout` sends SIGTERM to the program and to its group, some shells SIGHUP after it: one wish, not two.
#[test]
fn two_signals_at_once_are_one_wish() {
    let mut command = common::wavefield();
    command.args(["--headless", "--frames=1000000", "--grid=8x8", "--size=32x24", "--validation=off"]);
    let mut running = Running::start(&mut command);
    std::thread::sleep(Duration::from_secs(3));
    // Both come when it goes on.
    running.signal(libc::SIGSTOP);
    running.signal(libc::SIGTERM);
    running.signal(libc::SIGHUP);
    running.signal(libc::SIGCONT);
    let output = running.output();
    assert_exit(&output, 0);
    assert!(stdout(&output).contains("frames  "), "{}", stdout(&output));
}

/// `nohup` ignores SIGHUP for what it runs, and a shell without job control SIGINT for what it runs in the background.
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
        // Give the shell the time to ignore it.
        std::thread::sleep(Duration::from_millis(500));
        while !running.ended() {
            running.signal(signal);
            std::thread::sleep(Duration::from_millis(150));
        }
        assert_exit(&running.output(), 0);
        assert!(picture.exists(), "{name}");
    }
}

/// A display server that takes connections and never says a word, at an unlikely number.
struct SilentDisplay {
    path: PathBuf,
    number: u32,
    _listener: UnixListener,
}

impl SilentDisplay {
    fn new(offset: u32) -> Option<Self> {
        let number = 20_000 + std::process::id() % 10_000 * 2 + offset;
        let path = PathBuf::from(format!("/tmp/.X11-unix/X{number}"));
        let _ = std::fs::create_dir(path.parent().unwrap());
        match UnixListener::bind(&path) {
            Ok(listener) => Some(Self { path, number, _listener: listener }),
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
    assert!(stderr(&output).contains("said nothing for 1 s"), "{}", stderr(&output));
}

#[test]
fn a_signal_ends_the_wait_for_a_silent_display() {
    let Some(display) = SilentDisplay::new(1) else { return };
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let mut running = Running::start(display.command().arg("--timeout=600"));
        std::thread::sleep(Duration::from_millis(1500));
        running.signal(signal);
        let output = running.output();
        if stderr(&output).contains("libX11") {
            return common::skip_without_tools("the X11 libraries are not installed");
        }
        assert!(!output.status.success(), "{}", output.status);
        // Before it listens for signals, one ends it without a word.
        let at_once = output.status.signal() == Some(signal);
        assert!(at_once || stderr(&output).contains("stopped while connecting"), "{}", stderr(&output));
    }
}

/// The children of a process.
fn children(process: u32) -> Vec<u32> {
    let list = format!("/proc/{process}/task/{process}/children");
    let list = std::fs::read_to_string(list).unwrap_or_default();
    list.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// The child stands still here, so it ends only if it is told to.
#[cfg(target_os = "linux")]
#[test]
fn a_stopped_startup_takes_its_child_along() {
    let mut command = common::wavefield();
    let mut running = Running::start(command.args(["bench", "startup", "--rounds=1000", "--grid=8x8"]));
    let began = Instant::now();
    let child = loop {
        // A child that was not waited for yet is still one.
        if let [child, ..] = children(running.child.id())[..]
            // Not before it runs its own program: until then the parent is held in vfork.
            && std::fs::read_to_string(format!("/proc/{child}/cmdline")).is_ok_and(|line| line.contains("--child"))
            // SAFETY: sends a signal, to a process that our child has started.
            && unsafe { libc::kill(child as libc::pid_t, libc::SIGSTOP) } == 0
        {
            std::thread::sleep(Duration::from_millis(50));
            let state = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            if state.contains(") T ") {
                break child;
            }
        }
        assert!(began.elapsed() < PATIENCE && !running.ended(), "no child: {}", running.said());
        std::thread::sleep(Duration::from_millis(1));
    };
    running.signal(libc::SIGINT);
    let output = running.output();
    assert_exit(&output, 1);
    assert!(stderr(&output).contains("stopped"), "{}", stderr(&output));
    assert!(!PathBuf::from(format!("/proc/{child}")).exists(), "the child is left");
}
