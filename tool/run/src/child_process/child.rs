//! Runs one trial in a child process, which runs this program again.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use vulkan_cuda::DeviceUuid;

use wavefield_gpu::cuda::{Cuda, load_driver};
use wavefield_gpu::{Error, Result};

/// The time limit until the child [begins](Attempt::begins): starting CUDA and compiling leave the GPU free.
const START: Duration = Duration::from_secs(30);
/// The bytes kept per pipe. JSON may escape each as six bytes, and a message has at most 131072.
const WORDS: usize = 8 * 1024;
const TICK: Duration = Duration::from_millis(10);

pub(super) struct Attempt<'a> {
    /// Must support the command in `arguments`.
    pub(super) program: &'a Path,
    pub(super) arguments: Vec<String>,
    pub(super) input: Stdio,
    /// The line that the child prints just before the step that may hang. `patience` starts with this line.
    pub(super) begins: &'static str,
    pub(super) patience: Duration,
    /// Removed from the front of the child's error, because the caller's error repeats it.
    pub(super) prefix: String,
}

impl Attempt<'_> {
    /// Runs the child to its end and returns how long that took. Kills the child once `wanted` returns false.
    pub(super) fn run(self, wanted: impl Fn() -> bool) -> Result<Duration, String> {
        let Self { program, arguments, input, begins, patience, prefix } = self;
        let began = Instant::now();
        close_all_on_exec();
        let child = Command::new(program)
            .arg0("wavefield")
            .args(arguments)
            .arg(format!("--parent={}", std::process::id()))
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| {
            let program = program.display();
            format!("it must be tried in a process of its own first, and {program} did not start: {error}")
        })?;
        let mut said = Said::new(&mut child, begins);
        match said.listen(&mut child, patience, wanted) {
            Ok(status) => said.verdict(status, &prefix).map(|()| began.elapsed()),
            Err(reason) => {
                let _ = child.kill();
                // Wait on a thread, because a process inside the driver may take long to die.
                let _ = std::thread::Builder::new().name("trial".into()).spawn(move || child.wait());
                Err(reason)
            }
        }
    }
}

/// Marks all descriptors close-on-exec, including those that drivers opened or that this process inherited.
fn close_all_on_exec() {
    const FIRST: libc::c_uint = 3;
    // Needs Linux 5.11; before that, the child inherits unmarked descriptors. A direct system call, because
    // older C libraries lack the function.
    // SAFETY: only sets a flag of the open descriptors; closes none.
    let _ =
        unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

struct Said {
    /// Standard output and standard error; `None` once closed.
    pipes: [Option<OwnedFd>; 2],
    text: [Vec<u8>; 2],
    cut: bool,
    begins: &'static str,
    begun: Option<Instant>,
}

impl Said {
    fn new(child: &mut Child, begins: &'static str) -> Self {
        let pipes = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        Self { pipes, text: Default::default(), cut: false, begins, begun: None }
    }

    /// Reads until the child has ended. Fails if that takes too long, or once `wanted` returns false.
    fn listen(
        &mut self,
        child: &mut Child,
        patience: Duration,
        wanted: impl Fn() -> bool,
    ) -> Result<ExitStatus, String> {
        let unread = |error: std::io::Error| format!("cannot read from the process that tries it: {error}");
        for pipe in self.pipes.iter().flatten() {
            rustix::io::ioctl_fionbio(pipe, true).map_err(|error| unread(error.into()))?;
        }
        let began = Instant::now();
        loop {
            // Check for the end before reading: an ended child has written everything. Do not wait for the
            // pipes to close: the child's own children may still have them open.
            let status = child.try_wait().map_err(unread)?;
            self.read();
            if let Some(status) = status {
                return Ok(status);
            }
            match self.begun {
                Some(at) if at.elapsed() > patience => {
                    return Err(format!(
                        "it did not end within {} s (half of --timeout) in the process that tried it, so that process \
                         was killed",
                        patience.as_secs_f64()
                    ));
                }
                None if began.elapsed() > START => {
                    return Err(format!(
                        "the process that was to try it did not begin within {} s, so it was killed",
                        START.as_secs()
                    ));
                }
                _ if !wanted() => return Err("nobody waits for it any more".into()),
                _ => std::thread::sleep(TICK),
            }
        }
    }

    /// Reads what is available. The limit keeps a child that writes without end from blocking this.
    fn read(&mut self) {
        let mut buffer = [0; 4096];
        for (pipe, text) in self.pipes.iter_mut().zip(&mut self.text) {
            for _ in 0..64 {
                let Some(open) = pipe else { break };
                match rustix::io::read(open, &mut buffer) {
                    Err(Errno::AGAIN | Errno::INTR) => break,
                    Ok(0) | Err(_) => *pipe = None,
                    Ok(count) => {
                        let room = count.min(WORDS - text.len());
                        text.extend_from_slice(&buffer[..room]);
                        self.cut |= room < count;
                    }
                }
            }
        }
        if self.begun.is_none()
            && String::from_utf8_lossy(&self.text[0]).lines().any(|line| line == self.begins)
        {
            self.begun = Some(Instant::now());
        }
    }

    fn verdict(&self, status: ExitStatus, prefix: &str) -> Result<(), String> {
        let words = String::from_utf8_lossy(&self.text[1]);
        let more = if self.cut { "…" } else { "" };
        // Skip what a library may have printed before the error.
        let error = words.find("error: ").map(|at| &words[at + "error: ".len()..]);
        let said = error.unwrap_or(&words).trim();
        let said = said.strip_prefix(prefix).unwrap_or(said);
        Err(match status.code() {
            Some(0) if self.begun.is_some() => return Ok(()),
            Some(1) if !said.is_empty() => format!("tried in a process of its own: {said}{more}"),
            None => format!("the process that tried it was killed ({status}) {said}{more}"),
            // Wrong usage, or success without the begin line: the program does not support this command.
            Some(_) => format!(
                "the program that was to try it ended with {status}: is that a wavefield of the same release? {said}{more}"
            ),
        })
    }
}

/// Has this process killed when the *thread* of `parent` that started it ends (`PR_SET_PDEATHSIG`).
pub fn end_with_parent(parent: u32) -> Result<()> {
    let refused =
        |error| Error::Unsupported(format!("cannot arrange to end together with process {parent}: {error}"));
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).map_err(refused)?;
    // The parent may have ended before the signal was set.
    let now = rustix::process::getppid().map(|process| process.as_raw_pid() as u32);
    match now == Some(parent) {
        true => Ok(()),
        false => {
            Err(Error::Unsupported(format!("process {parent}, for which this trial was started, has ended")))
        }
    }
}

pub(super) fn context(device: DeviceUuid) -> Result<Cuda> {
    let driver = load_driver()?;
    let info = driver.devices()?.into_iter().find(|info| info.uuid == device);
    let info =
        info.ok_or_else(|| Error::Unsupported(format!("CUDA has no device with the UUID {device}")))?;
    Ok(Cuda::primary(driver, &info)?)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::Trial;
    use super::*;
    use wavefield_gpu::cuda::{CudaInfo, KernelSource};
    use wavefield_handoff::contents::wave::Grid;

    /// Runs `tests/try_kernel.sh`. `entry` selects what it does.
    fn attempt(entry: &str, patience: Duration, wanted: impl Fn() -> bool) -> Result<Duration, String> {
        let program = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/try_kernel.sh"));
        run(&program, entry, patience, wanted)
    }

    fn run(
        program: &Path,
        entry: &str,
        patience: Duration,
        wanted: impl Fn() -> bool,
    ) -> Result<Duration, String> {
        let device = CudaInfo {
            ordinal: 0,
            name: "a GPU".into(),
            uuid: DeviceUuid([7; 16]),
            luid: None,
            compute_capability: (9, 0),
            timeline_interop: true,
        };
        let source = KernelSource {
            name: "`x` of y".into(),
            entry: entry.into(),
            ..wavefield_handoff::contents::built_in::wave()
        };
        let grid = Grid { cols: 8, rows: 8 };
        Trial { program, device: &device, grid, patience }
            .run(&source, wanted)
            .map_err(|error| error.to_string())
    }

    fn words(entry: &str) -> String {
        attempt(entry, Duration::from_secs(60), || true).unwrap_err()
    }

    /// The children of this process that are not reaped yet.
    fn children() -> Vec<String> {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        lists.flat_map(|list| list.split_whitespace().map(String::from).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn what_the_child_says_is_the_verdict() {
        assert!(attempt("fine", Duration::from_secs(60), || true).is_ok());
        assert_eq!(words("words"), "kernel `x` of y: tried in a process of its own: it is broken\nand how");
        for (entry, parts) in [
            // It succeeded without launching anything.
            ("nothing", ["exit status: 0", "wavefield of the same release"]),
            ("usage", ["exit status: 2", "unexpected argument"]),
            ("dies", ["was killed", "SIGSEGV"]),
        ] {
            let words = words(entry);
            assert!(parts.iter().all(|part| words.contains(part)), "{words}");
        }
    }

    #[test]
    fn a_flood_is_cut() {
        let words = words("flood");
        assert!(words.contains("own: much") && words.ends_with('…'), "{}", &words[..100]);
        assert!(words.len() < 2 * WORDS, "{} bytes", words.len());
    }

    #[test]
    fn pipes_that_stay_open_are_not_waited_for() {
        let words = words("leaves");
        let id = words.rsplit(' ').next().unwrap().to_owned();
        let killed = Command::new("sh").args(["-c", &format!("kill -KILL {id}")]).status().unwrap();
        assert!(killed.success(), "{words}");
    }

    #[test]
    fn what_does_not_end_is_ended() {
        let words = attempt("endless", Duration::from_millis(200), || true).unwrap_err();
        assert!(words.contains("did not end within 0.2 s"), "{words}");
        // It is also killed when it is no longer wanted.
        let began = Instant::now();
        let wanted = || began.elapsed() < Duration::from_millis(100);
        let words = attempt("endless", Duration::from_secs(1000), wanted).unwrap_err();
        assert!(words.contains("nobody waits"), "{words}");
        // Other tests of this program may have their own children for a while.
        let until = Instant::now() + Duration::from_secs(60);
        while !children().is_empty() {
            assert!(Instant::now() < until, "left: {:?}", children());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_program_that_cannot_be_started_is_named() {
        let words = run(Path::new("/no/such/program"), "x", Duration::from_secs(1), || true).unwrap_err();
        assert!(words.contains("/no/such/program did not start: No such file"), "{words}");
    }

    #[test]
    fn the_child_inherits_nothing_but_the_standard_three() {
        // Not close-on-exec.
        let _open = rustix::fs::memfd_create("forgotten", rustix::fs::MemfdFlags::empty()).unwrap();
        let words = words("descriptors");
        assert!(words.contains("wavefield-trial") && words.contains("pipe:"), "{words}");
        assert!(!words.contains("forgotten") && !words.contains("socket:"), "{words}");
    }
}
