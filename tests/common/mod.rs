//! What several test files need: skips that can be made failures, the program, pictures.

#![allow(dead_code)] // Each test file uses its own part of this.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use wavefield::app::{DeviceTable, ProducerKind, read_png, write_png};
use wavefield::vulkan::Validation;

/// Says that a test did not run, and why.
pub fn skip(reason: &str) {
    // Not eprintln: the test harness would keep that to itself.
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
}

/// The same; with `variable=1` in the environment that is a failure instead.
fn skip_unless_required(variable: &str, reason: &str) {
    assert!(std::env::var(variable).as_deref() != Ok("1"), "{variable}=1, but: {reason}");
    skip(reason);
}

/// For tests that need CUDA and Vulkan on one GPU.
pub fn skip_without_gpu(reason: &str) {
    skip_unless_required("WAVEFIELD_REQUIRE_GPU", reason);
}

/// False where CUDA and Vulkan share no device here, which is a skip. Where they do, every error is a failure.
pub fn has_gpu() -> bool {
    let table = DeviceTable::headless(Validation::default())
        .expect("a Vulkan driver, for a software device at least");
    table.choose(None, ProducerKind::Cuda).map_err(|error| skip_without_gpu(&error.to_string())).is_ok()
}

/// For tests that need a program or layer which `scripts/test.sh` installs.
pub fn skip_without_tools(reason: &str) {
    skip_unless_required("WAVEFIELD_REQUIRE_TOOLS", reason);
}

/// The program under test. `WAVEFIELD_BIN` names another one, where the tests are not run by cargo.
pub fn wavefield() -> Command {
    // A shell ignores SIGINT for what it runs in the background, and `nohup` SIGHUP. The program keeps what it inherits, and so
    // would not end when a test asks it to.
    #[cfg(unix)]
    for signal in [libc::SIGINT, libc::SIGHUP] {
        // SAFETY: a valid signal, and its default action, with which every process starts.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let path = std::env::var_os("WAVEFIELD_BIN")
        .map_or(PathBuf::from(env!("CARGO_BIN_EXE_wavefield")), PathBuf::from);
    Command::new(path)
}

/// Runs it to its end.
pub fn run(arguments: &[&str]) -> Output {
    wavefield().args(arguments).output().expect("the program starts")
}

/// What it wrote to standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What it wrote to standard output.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Asserts the exit code, showing both outputs when it is another.
pub fn assert_exit(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "stdout: {}\nstderr: {}", stdout(output), stderr(output));
}

/// Whether the validation layer is installed here.
pub fn has_validation() -> bool {
    let output = run(&["--headless", "--validation", "--frames=1", "--grid=2x2", "--size=16x16"]);
    !stderr(&output).contains("the validation layer")
}

/// Where reference pictures are kept.
pub fn reference(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/references").join(name)
}

/// How far two pictures may differ: drivers round differently, and rasterise edges differently.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// The mean difference of all channels, in steps of 8 bits.
    pub mean: f64,
    /// The share of pixels with a channel that is off by more than 16 steps.
    pub off: f64,
}

/// Another driver, another rasteriser: edges may fall on the other side of a pixel.
pub const SAME_PICTURE: Tolerance = Tolerance { mean: 0.5, off: 0.005 };

/// Whether two pictures of one size are the same, within [`SAME_PICTURE`].
pub fn is_same(a: &[u8], b: &[u8]) -> bool {
    let difference = difference(a, b);
    difference.mean <= SAME_PICTURE.mean && difference.off <= SAME_PICTURE.off
}

/// The mean difference and the share of pixels that are off, of two RGBA pictures of the same size.
pub fn difference(a: &[u8], b: &[u8]) -> Tolerance {
    assert_eq!(a.len(), b.len(), "pictures of the same size");
    let pixels = a.chunks_exact(4).zip(b.chunks_exact(4));
    let (mut sum, mut off) = (0u64, 0u64);
    for (a, b) in pixels {
        let differences = a.iter().zip(b).map(|(a, b)| u64::from(a.abs_diff(*b)));
        sum += differences.clone().sum::<u64>();
        off += u64::from(differences.max() > Some(16));
    }
    Tolerance { mean: sum as f64 / a.len() as f64, off: off as f64 / (a.len() / 4) as f64 }
}

/// Asserts that two PNG files show the same.
pub fn assert_same_picture(got: &Path, want: &Path, tolerance: Tolerance) {
    let (got_size, got_pixels) = read_png(got).expect("a picture was written");
    let (want_size, want_pixels) = read_png(want).expect("the reference is there");
    assert_eq!(got_size, want_size, "sizes of {} and {}", got.display(), want.display());
    let difference = difference(&got_pixels, &want_pixels);
    if difference.mean > tolerance.mean || difference.off > tolerance.off {
        let kept =
            std::env::temp_dir().join(format!("wavefield-got-{}", want.file_name().unwrap().display()));
        write_png(&kept, got_size, &got_pixels, &[]).expect("the temporary folder is writable");
        panic!(
            "{} is not {}: {difference:?}, allowed {tolerance:?}; kept as {}",
            got.display(),
            want.display(),
            kept.display()
        );
    }
}

/// Open descriptors of this process; Linux only, else 0.
pub fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// How many descriptors of this process are open on `path`; Linux only, else 0.
pub fn descriptors_of(path: &Path) -> usize {
    let Ok(path) = path.canonicalize() else { return 0 };
    let links = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    links.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|link| link == path)).count()
}
