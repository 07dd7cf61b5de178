//! Runs the program on the stand-in for a GPU (`tests/stand_in`) and reads the stand-in's report.

#![allow(dead_code)] // Each test file uses its own part of this.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tempfile::{TempDir, TempPath};

use vulkan_cuda::DeviceUuid;

use crate::common::{self, stderr, stdout, wavefield};

/// The program promises to end within this time, whatever fails.
pub const LIMIT: Duration = Duration::from_secs(10);

/// Every extension that the layer can pretend to have.
pub const ALL: [&str; 5] = [
    "VK_KHR_external_semaphore_fd",
    "VK_EXT_device_fault",
    "VK_EXT_memory_budget",
    "VK_NVX_binary_import",
    IMAGE_VIEW_HANDLE,
];

/// The extension through which kernels in a command buffer get their images.
pub const IMAGE_VIEW_HANDLE: &str = "VK_NVX_image_view_handle";

/// The stand-in's library, installed as `libcuda`, as `libnvrtc` and as a Vulkan layer.
pub struct StandIn {
    library: PathBuf,
    folder: TempDir,
    /// The patched copy of the library that [`StandIn::lacking`] makes.
    patched: Option<TempPath>,
}

impl StandIn {
    /// Returns `None` and reports a skip if the first Vulkan device is not a software device. A CUDA driver that runs on
    /// the CPU can write only to the memory of a software device.
    pub fn new() -> Option<Self> {
        // Cargo builds it beside the tests.
        let tests = std::env::current_exe().expect("a test knows its own path");
        let library = tests.with_file_name("libwavefield_stand_in.so");
        if !library.exists() {
            common::skip_without_tools(&format!("{} does not exist", library.display()));
            return None;
        }
        let stand_in = Self::of(library);
        let devices = stand_in.command(&ALL).arg("devices").output().expect("the program starts");
        assert!(devices.status.code().is_some(), "{}: {}", devices.status, stderr(&devices));
        let table = stdout(&devices);
        if table.lines().any(|line| line.starts_with(">  0") && line.contains("llvmpipe")) {
            assert!(table.contains("shares with CUDA"), "{table}{}", stderr(&devices));
            return Some(stand_in);
        }
        common::skip_without_tools("the first Vulkan device is not a software device (lavapipe)");
        None
    }

    /// Makes the links and the manifest through which the loaders find `library`.
    fn of(library: PathBuf) -> Self {
        let stand_in = Self { library, folder: tempfile::tempdir().unwrap(), patched: None };
        // Every name under which a program may look for a driver.
        for name in ["libcuda.so", "libcuda.so.1", "libnvrtc.so.12"] {
            std::os::unix::fs::symlink(&stand_in.library, stand_in.folder.path().join(name)).unwrap();
        }
        let extensions: Vec<_> = ALL
            .iter()
            .map(|name| serde_json::json!({"name": name, "spec_version": "1", "entrypoints": []}))
            .collect();
        let manifest = serde_json::json!({"file_format_version": "1.2.0", "layer": {
            "name": "VK_LAYER_WAVEFIELD_stand_in",
            "type": "GLOBAL",
            "library_path": stand_in.library,
            "api_version": "1.3.0",
            "implementation_version": "1",
            "description": "A GPU that fails on request",
            "device_extensions": extensions,
        }});
        std::fs::write(stand_in.folder.path().join("stand_in.json"), manifest.to_string()).unwrap();
        stand_in
    }

    /// The program with the CUDA half and the Vulkan layer. The layer pretends to have `extensions`.
    pub fn command(&self, extensions: &[&str]) -> Command {
        self.beneath(wavefield(), extensions)
    }

    /// Like [`command`](Self::command), for any program.
    pub fn beneath(&self, program: Command, extensions: &[&str]) -> Command {
        let mut command = finding(program, self.folder.path());
        command
            .env("VK_ADD_LAYER_PATH", self.folder.path())
            .env("VK_INSTANCE_LAYERS", "VK_LAYER_WAVEFIELD_stand_in")
            // Mesa's own layer does not survive all of the failures here.
            .env("NODEVICE_SELECT", "1")
            .env("STAND_IN_PRETEND", extensions.join(","));
        command
    }

    /// The program with the CUDA half only. Its device is then unknown to Vulkan.
    pub fn cuda_alone(&self) -> Command {
        with_libraries(self.folder.path())
    }

    /// A copy of the stand-in without some of CUDA's functions.
    pub fn lacking(&self, symbols: &[&str]) -> Self {
        let mut library = std::fs::read(&self.library).unwrap();
        for symbol in symbols {
            // Changes one letter in the table of names, so that nobody finds the function any more.
            let name: Vec<u8> = [b"\0", symbol.as_bytes(), b"\0"].concat();
            let places: Vec<_> =
                (0..library.len() - name.len()).filter(|&at| library[at..].starts_with(&name)).collect();
            assert!(!places.is_empty(), "the stand-in has no {symbol}");
            places.into_iter().for_each(|at| library[at + 1] = b'x');
        }
        let mut file = tempfile::Builder::new().suffix(".so").tempfile().unwrap();
        std::io::Write::write_all(&mut file, &library).unwrap();
        let mut made = Self::of(file.path().to_owned());
        made.patched = Some(file.into_temp_path());
        made
    }
}

/// The UUID of the first Vulkan device. A child process that tries kernels without Vulkan needs it in `STAND_IN_UUID`.
pub fn first_uuid() -> String {
    let table = common::stdout(&common::run(&["devices"]));
    let uuid = table.split_whitespace().find(|word| DeviceUuid::parse(word).is_some());
    uuid.unwrap_or_else(|| panic!("{table}")).to_owned()
}

/// The program, which finds the libraries in `folder` before the system's.
pub fn with_libraries(folder: &Path) -> Command {
    finding(wavefield(), folder)
}

fn finding(mut command: Command, folder: &Path) -> Command {
    let mut path = folder.as_os_str().to_owned();
    if let Some(usual) = std::env::var_os("LD_LIBRARY_PATH") {
        path.push(":");
        path.push(usual);
    }
    command.env("LD_LIBRARY_PATH", path);
    command
}

/// The report that the stand-in writes when the process ends.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How often each call was made.
    pub calls: BTreeMap<String, u64>,
    /// How many objects of each kind were not given back.
    pub left: BTreeMap<String, i64>,
    /// Exported handles that are still open.
    pub descriptors: usize,
    /// The rules that the program broke.
    pub offences: Vec<String>,
    /// The parameter values of the launched kernels, in order.
    pub values: Vec<String>,
}

impl Report {
    fn read(path: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(path).ok()?;
        let mut report = Self::default();
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            let (name, count) = rest.rsplit_once(' ').unwrap_or((rest, "0"));
            match kind {
                "call" => drop(report.calls.insert(name.into(), count.parse().unwrap())),
                "left" => drop(report.left.insert(name.into(), count.parse().unwrap())),
                "descriptor" => report.descriptors += 1,
                "offence" => report.offences.push(rest.into()),
                "values" => report.values.push(rest.into()),
                "end" => return Some(report),
                _ => panic!("not a line of a report: {line}"),
            }
        }
        None
    }

    /// How often a call was made.
    pub fn count(&self, call: &str) -> u64 {
        self.calls.get(call).copied().unwrap_or(0)
    }
}

/// A run that has ended.
pub struct Run {
    pub output: Output,
    /// `None` if the process ended without running its exit handlers.
    pub report: Option<Report>,
}

impl Run {
    /// The program's standard error.
    pub fn text(&self) -> String {
        stderr(&self.output)
    }

    /// Returns an error if the exit code is not `code`, or if the program panicked.
    pub fn check_exit(&self, code: i32) -> Result<(), String> {
        let text = self.text();
        if self.output.status.code() != Some(code) {
            return Err(format!("{} instead of {code}: {text}", self.output.status));
        }
        if text.contains("panicked") { Err(format!("a panic: {text}")) } else { Ok(()) }
    }

    /// Like [`check_exit`](Self::check_exit). Also returns an error if there is no report or the program broke a rule.
    pub fn check_end(&self, code: i32) -> Result<&Report, String> {
        self.check_exit(code)?;
        let text = self.text();
        let report = self.report.as_ref().ok_or_else(|| format!("no report: {text}"))?;
        match report.offences.as_slice() {
            [] => Ok(report),
            offences => Err(format!("{}: {text}", offences.join(", "))),
        }
    }

    /// Like [`check_end`](Self::check_end). Also returns an error if the program left an object or a descriptor.
    pub fn check_clean(&self, code: i32) -> Result<&Report, String> {
        let report = self.check_end(code)?;
        if report.left.is_empty() && report.descriptors == 0 {
            return Ok(report);
        }
        Err(format!("left {:?} and {} descriptors: {}", report.left, report.descriptors, self.text()))
    }
}

/// Runs a command and reads its report. Returns an error if it does not end within [`LIMIT`].
pub fn run(command: &mut Command) -> Result<Run, String> {
    let report = tempfile::NamedTempFile::new().unwrap();
    command.env("STAND_IN_REPORT", report.path());
    let output = finish(command)?;
    Ok(Run { output, report: Report::read(report.path()) })
}

/// Like [`run`], without a report.
pub fn finish(command: &mut Command) -> Result<Output, String> {
    // Files instead of pipes: nobody reads while the command runs.
    let files = [(); 2].map(|()| tempfile::tempfile().unwrap());
    let [out, err] = files.each_ref().map(|file| Stdio::from(file.try_clone().unwrap()));
    let mut child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().expect("the program starts");
    let began = Instant::now();
    let status: Option<ExitStatus> = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if began.elapsed() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let [stdout, stderr] = files.map(|mut file| {
        use std::io::{Read, Seek};
        let mut text = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut text)).unwrap();
        text
    });
    match status {
        Some(status) => Ok(Output { status, stdout, stderr }),
        None => Err(format!("it did not end within {LIMIT:?}: {}", String::from_utf8_lossy(&stderr))),
    }
}

/// Does `work` for each of `cases` on all processors. Returns the problems in the order of the cases.
pub fn each<T: Sync>(cases: &[T], work: impl Fn(&T) -> Result<(), String> + Sync) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let worker = || {
        let mut problems = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(index) else { return problems };
            if let Err(problem) = work(case) {
                problems.push((index, problem));
            }
        }
    };
    let mut problems: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    problems.sort();
    problems.into_iter().map(|(_, problem)| problem).collect()
}

/// Prints text that is shown even if the test passes.
pub fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}
