//! Runs programs on the stand-in and reads its report.

use std::collections::BTreeMap;
use std::io::{Read, Seek};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The stand-in's library, which cargo builds beside the tests.
pub fn library() -> PathBuf {
    let tests = std::env::current_exe().expect("a test knows its own path");
    tests.with_file_name("libwavefield_stand_in.so")
}

/// Makes the links and the manifest through which the loaders find `library`: as `libcuda`, as `libnvrtc`,
/// and as a Vulkan layer that has `extensions`.
pub fn install(library: &Path, extensions: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    install_in(folder.path(), library, extensions);
    folder
}

/// [`install`] in a folder of the caller's.
pub fn install_in(folder: &Path, library: &Path, extensions: &[&str]) {
    // Every name under which a program may look for a driver.
    for name in ["libcuda.so", "libcuda.so.1", "libnvrtc.so.12"] {
        if let Err(error) = symlink(library, folder.join(name)) {
            assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{error}");
        }
    }
    let extension = |name| format!(r#"{{"name": "{name}", "spec_version": "1", "entrypoints": []}}"#);
    let extensions: Vec<_> = extensions.iter().map(extension).collect();
    let manifest = format!(
        r#"{{"file_format_version": "1.2.0", "layer": {{
            "name": "VK_LAYER_WAVEFIELD_stand_in", "type": "GLOBAL", "library_path": {library:?},
            "api_version": "1.3.0", "implementation_version": "1", "description": "A GPU that fails on request",
            "device_extensions": [{}]}}}}"#,
        extensions.join(", ")
    );
    std::fs::write(folder.join("stand_in.json"), manifest).unwrap();
}

/// A program with the CUDA half and the Vulkan layer that were installed in `folder`. The layer pretends to
/// have `extensions`.
pub fn beneath(program: Command, folder: &Path, extensions: &[&str]) -> Command {
    let mut command = finding(program, folder);
    command
        .env("VK_ADD_LAYER_PATH", folder)
        .env("VK_INSTANCE_LAYERS", "VK_LAYER_WAVEFIELD_stand_in")
        // Mesa's own layer does not survive all of the failures here.
        .env("NODEVICE_SELECT", "1")
        // Such a program draws little: let lavapipe compile its shaders quickly instead of well.
        .env("GALLIVM_PERF", "nopt")
        .env("STAND_IN_PRETEND", extensions.join(","));
    command
}

/// A program that finds the libraries in `folder` before those that it, or this process, would find.
pub fn finding(mut program: Command, folder: &Path) -> Command {
    let mut path = folder.as_os_str().to_owned();
    let given = program.get_envs().find(|(name, _)| *name == "LD_LIBRARY_PATH");
    let given = given.and_then(|(_, value)| value).map(ToOwned::to_owned);
    if let Some(usual) = given.or_else(|| std::env::var_os("LD_LIBRARY_PATH")) {
        path.push(":");
        path.push(usual);
    }
    program.env("LD_LIBRARY_PATH", path);
    program
}

/// Makes a folder `stubs` in `folder`, in which a copy of `library` has these names. As a toolkit's, its
/// `cuInit` returns `CUDA_ERROR_STUB_LIBRARY` (34).
pub fn stubs(folder: &Path, library: &Path, names: &[&str]) -> PathBuf {
    let stubs = folder.join("stubs");
    std::fs::create_dir(&stubs).unwrap();
    let copy = stubs.join("copy.so");
    std::fs::copy(library, &copy).unwrap();
    names.iter().for_each(|name| symlink(&copy, stubs.join(name)).unwrap());
    stubs
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
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// Returns an error if the exit code is not `code`, or if the program panicked.
    pub fn check_exit(&self, code: i32) -> Result<(), String> {
        let text = self.text();
        if self.output.status.code() != Some(code) {
            return Err(format!("{} instead of {code}: {text}", self.output.status));
        }
        if text.contains("panicked") { Err(format!("a panic: {text}")) } else { Ok(()) }
    }

    /// Like [`check_exit`](Self::check_exit). Also returns an error if there is no report or the program
    /// broke a rule.
    pub fn check_end(&self, code: i32) -> Result<&Report, String> {
        self.check_exit(code)?;
        let text = self.text();
        let report = self.report.as_ref().ok_or_else(|| format!("no report: {text}"))?;
        match report.offences.as_slice() {
            [] => Ok(report),
            offences => Err(format!("{}: {text}", offences.join(", "))),
        }
    }

    /// Like [`check_end`](Self::check_end). Also returns an error if the program left an object or a
    /// descriptor.
    pub fn check_clean(&self, code: i32) -> Result<&Report, String> {
        let report = self.check_end(code)?;
        if report.left.is_empty() && report.descriptors == 0 {
            return Ok(report);
        }
        Err(format!("left {:?} and {} descriptors: {}", report.left, report.descriptors, self.text()))
    }
}

/// Runs a command and reads its report. Returns an error if it does not end within `limit`.
pub fn run(command: &mut Command, limit: Duration) -> Result<Run, String> {
    let report = tempfile::NamedTempFile::new().unwrap();
    command.env("STAND_IN_REPORT", report.path());
    let output = finish(command, limit)?;
    Ok(Run { output, report: Report::read(report.path()) })
}

/// Like [`run`], without a report.
pub fn finish(command: &mut Command, limit: Duration) -> Result<Output, String> {
    // Files instead of pipes: nobody reads while the command runs.
    let files = [(); 2].map(|()| tempfile::tempfile().unwrap());
    let [out, err] = files.each_ref().map(|file| Stdio::from(file.try_clone().unwrap()));
    let mut child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().expect("the program starts");
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if began.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let [stdout, stderr] = files.map(|mut file| {
        let mut text = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut text)).unwrap();
        text
    });
    match status {
        Some(status) => Ok(Output { status, stdout, stderr }),
        None => Err(format!("it did not end within {limit:?}: {}", String::from_utf8_lossy(&stderr))),
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
