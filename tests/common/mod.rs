//! Starts the program, on a real device or on the stand-in for a GPU (`tests/stand_in`).

#![allow(dead_code)] // Each test file uses its own part of this.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The program ends within this time, whatever fails. It waits for a GPU for 10 s at most.
pub const LIMIT: Duration = Duration::from_secs(40);

/// Prints that a test did not run. With `WAVEFIELD_REQUIRE_TOOLS=1` it fails instead.
pub fn skip(reason: &str) {
    assert!(std::env::var("WAVEFIELD_REQUIRE_TOOLS").as_deref() != Ok("1"), "{reason}");
    // Not `eprintln!`: the test harness would capture it.
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
}

/// The program, without a display.
pub fn demo(arguments: &[&str]) -> Command {
    // A shell starts background jobs with SIGINT ignored, and the program would inherit that.
    #[cfg(unix)]
    // SAFETY: the signal is valid, and its default action runs no code of this process.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_DFL)
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_wavefield-demo"));
    command.args(arguments);
    for variable in ["DISPLAY", "WAYLAND_DISPLAY", "WAYLAND_SOCKET"] {
        command.env_remove(variable);
    }
    command
}

/// Runs a command. An error if it does not end within [`LIMIT`].
pub fn finish(command: &mut Command) -> Result<Output, String> {
    // Files instead of pipes: nobody reads while the command runs.
    let mut files = [(); 2].map(|()| tempfile::tempfile().unwrap());
    let [out, err] = files.each_ref().map(|file| Stdio::from(file.try_clone().unwrap()));
    let mut child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().expect("the program starts");
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if began.elapsed() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let [stdout, stderr] = files.each_mut().map(|file| {
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).unwrap();
        bytes
    });
    let text = String::from_utf8_lossy(&stderr).into_owned();
    let status = status.ok_or(format!("it did not end within {LIMIT:?}: {text}"))?;
    Ok(Output { status, stdout, stderr })
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the program, which must end with this exit code. Returns what it printed to standard output and standard error.
pub fn ends(code: i32, arguments: &[&str]) -> (String, String) {
    let output = finish(&mut demo(arguments)).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {out}{err}");
    (out, err)
}

/// The size and the pixels of a PNG file.
pub fn pixels(path: &Path) -> ([u32; 2], Vec<u8>) {
    let file = std::io::BufReader::new(std::fs::File::open(path).expect("there is a picture"));
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Rgba, png::BitDepth::Eight));
    ([info.width, info.height], pixels)
}

/// The mean difference of two pictures, in steps of 8 bits.
pub fn difference(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len(), "pictures of the same size");
    a.iter().zip(b).map(|(a, b)| f64::from(a.abs_diff(*b))).sum::<f64>() / a.len() as f64
}

/// The stand-in: a CUDA driver whose kernels run on the CPU, and a Vulkan layer. Every call of both can be made to fail.
pub struct StandIn {
    folder: TempDir,
}

impl StandIn {
    /// `None`, and a skip, if the first Vulkan device is not a software device: the stand-in writes only to its memory.
    pub fn new() -> Option<Self> {
        let tests = std::env::current_exe().expect("a test knows its own path");
        let library = tests.with_file_name("libwavefield_stand_in.so");
        let stand_in = Self { folder: tempfile::tempdir().unwrap() };
        for name in ["libcuda.so", "libcuda.so.1"] {
            std::os::unix::fs::symlink(&library, stand_in.folder.path().join(name)).unwrap();
        }
        let manifest = format!(
            r#"{{"file_format_version": "1.2.0", "layer": {{
                "name": "VK_LAYER_WAVEFIELD_stand_in", "type": "GLOBAL", "library_path": {library:?},
                "api_version": "1.3.0", "implementation_version": "1", "description": "A GPU that fails on request",
                "device_extensions": [
                    {{"name": "VK_KHR_external_semaphore_fd", "spec_version": "1", "entrypoints": []}}
                ]}}}}"#
        );
        std::fs::write(stand_in.folder.path().join("stand_in.json"), manifest).unwrap();
        let run = stand_in.run(&["--headless", "--frames=2", "--grid=2x2", "--size=8x8"], "");
        let said = text(&run.as_ref().expect("it ends").output.stderr);
        match said.contains("llvmpipe") && said.contains("CUDA's device 0") {
            true => Some(stand_in),
            false => {
                skip(&format!("the first Vulkan device is not lavapipe with the stand-in: {said}"));
                None
            }
        }
    }

    /// The program on the stand-in.
    pub fn demo(&self, arguments: &[&str]) -> Command {
        let mut command = demo(arguments);
        let mut libraries = self.folder.path().as_os_str().to_owned();
        if let Some(usual) = std::env::var_os("LD_LIBRARY_PATH") {
            libraries.push(":");
            libraries.push(usual);
        }
        command
            .env("LD_LIBRARY_PATH", libraries)
            .env("VK_ADD_LAYER_PATH", self.folder.path())
            .env("VK_INSTANCE_LAYERS", "VK_LAYER_WAVEFIELD_stand_in")
            // Mesa's own layer does not survive all of the failures.
            .env("NODEVICE_SELECT", "1")
            .env("STAND_IN_PRETEND", "VK_KHR_external_semaphore_fd");
        command
    }

    /// Runs the program. `fail`: which calls fail, as `STAND_IN_FAIL` takes it.
    pub fn run(&self, arguments: &[&str], fail: &str) -> Result<Run, String> {
        Self::finish(self.demo(arguments).env("STAND_IN_FAIL", fail))
    }

    /// Runs a command on the stand-in.
    pub fn finish(command: &mut Command) -> Result<Run, String> {
        let report = tempfile::NamedTempFile::new().unwrap();
        let output = finish(command.env("STAND_IN_REPORT", report.path()))?;
        Ok(Run { output, report: std::fs::read_to_string(report.path()).unwrap_or_default() })
    }
}

/// A run on the stand-in that has ended.
pub struct Run {
    pub output: Output,
    /// What the stand-in wrote when the process ended.
    report: String,
}

impl Run {
    /// How often each call was made.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        let calls = self.report.lines().filter_map(|line| line.strip_prefix("call ")?.rsplit_once(' '));
        calls.map(|(name, count)| (name.to_owned(), count.parse().unwrap())).collect()
    }

    /// What is wrong with the way in which the program ended: a panic, a signal, a broken rule of an API. `codes`: the exit
    /// codes that are right.
    pub fn problem(&self, codes: &[i32]) -> Option<String> {
        let said = text(&self.output.stderr);
        let is_right = self.output.status.code().is_some_and(|code| codes.contains(&code));
        if !is_right || said.contains("panicked") {
            return Some(format!("{}: {said}", self.output.status));
        }
        let offences: Vec<_> = self.lines("offence").collect();
        let is_whole = self.report.trim_end().ends_with("end");
        (!is_whole || !offences.is_empty()).then(|| format!("{offences:?}, report {is_whole}: {said}"))
    }

    /// What the program did not give back: objects and exported handles.
    pub fn left(&self) -> Vec<&str> {
        self.lines("left").chain(self.lines("descriptor")).collect()
    }

    fn lines(&self, kind: &'static str) -> impl Iterator<Item = &str> {
        self.report.lines().filter(move |line| line.split(' ').next() == Some(kind))
    }
}

/// An X server without a screen. It is killed when dropped.
pub struct Display {
    server: Child,
    name: String,
}

impl Display {
    /// `None`, and a skip, if a tool is missing.
    pub fn start() -> Option<Self> {
        for (tool, argument) in [("Xvfb", "-help"), ("xdotool", "version")] {
            if Command::new(tool).arg(argument).stdin(Stdio::null()).output().is_err() {
                skip(&format!("{tool} is not installed"));
                return None;
            }
        }
        // The server chooses its number, and prints it once it listens. -noreset: it does not reset after its last client. -r: no
        // key repeats, however slow the test is.
        let mut server = Command::new("Xvfb")
            .args("-displayfd 1 -screen 0 1280x720x24 -nolisten tcp -noreset -r".split(' '))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("Xvfb starts");
        let mut number = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut number).unwrap();
        assert!(!number.trim().is_empty(), "Xvfb listens");
        Some(Self { server, name: format!(":{}", number.trim()) })
    }

    /// Makes a command draw here.
    pub fn show<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("DISPLAY", &self.name)
    }

    /// Runs xdotool. Returns what it prints.
    pub fn xdotool(&self, arguments: &[&str]) -> String {
        let output = self.show(Command::new("xdotool").args(arguments)).output().unwrap();
        text(&output.stdout).trim().to_owned()
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Asks until there is an answer, or fails after [`LIMIT`].
pub fn poll<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(began.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
