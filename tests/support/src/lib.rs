//! What the tests of several crates share: skips that can become failures, the program under test, pictures.

#[cfg(unix)]
pub mod display;
#[cfg(target_os = "linux")]
pub mod harness;
#[cfg(target_os = "linux")]
pub mod page;
#[cfg(unix)]
pub mod process;
#[cfg(target_os = "linux")]
pub mod stand_in;

use std::env::consts::EXE_EXTENSION;
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use ash::vk;

/// The longest wait for something that must come. Long, because a machine may be busy with other work.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Prints that a test did not run, and why.
pub fn skip(reason: &str) {
    // Not `eprintln!`: the test harness would capture it.
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
}

/// Like [`skip`], but panics if the environment has `variable=1`.
fn skip_unless_required(variable: &str, reason: &str) {
    assert!(std::env::var(variable).as_deref() != Ok("1"), "{variable}=1, but: {reason}");
    skip(reason);
}

/// Skips a test that needs CUDA and Vulkan on one GPU. With `WAVEFIELD_REQUIRE_GPU=1` the test fails instead.
pub fn skip_without_gpu(reason: &str) {
    skip_unless_required("WAVEFIELD_REQUIRE_GPU", reason);
}

/// What an example opened. `None`, and a skip, if the machine lacks what it needs; any other error fails the
/// test.
pub fn opened<T>(
    outcome: Result<T, Box<dyn std::error::Error>>,
    is_unsupported: impl Fn(&(dyn std::error::Error + 'static)) -> bool,
) -> Option<T> {
    match outcome {
        Ok(opened) => Some(opened),
        Err(error) if is_unsupported(&*error) => {
            skip_without_gpu(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Skips a test that needs a program or layer from `scripts/test.sh`. With `WAVEFIELD_REQUIRE_TOOLS=1` the
/// test fails instead.
pub fn skip_without_tools(reason: &str) {
    skip_unless_required("WAVEFIELD_REQUIRE_TOOLS", reason);
}

/// The program under test, which cargo builds for the tests of its own package. `WAVEFIELD_BIN` overrides its
/// path, for tests that run without cargo.
pub fn wavefield() -> Command {
    // A shell starts background jobs with SIGINT ignored, and `nohup` ignores SIGHUP. The program would
    // inherit that, and would not end when a test asks it to.
    #[cfg(unix)]
    for signal in [libc::SIGINT, libc::SIGHUP] {
        // SAFETY: the signal is valid, and its default action runs no code of this process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let tests = std::env::current_exe().expect("a test knows its own path");
    let built = tests.parent().expect("a folder").with_file_name("wavefield").with_extension(EXE_EXTENSION);
    Command::new(std::env::var_os("WAVEFIELD_BIN").map_or(built, PathBuf::from))
}

/// Runs the program under test and waits for its end.
pub fn run(arguments: &[&str]) -> Output {
    wavefield().args(arguments).output().expect("the program starts")
}

/// One test of this binary, for a process of its own. `module` is the test's `module_path!()`.
pub fn test_process(module: &str, name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own path"));
    // The binary's own name is not part of the test's.
    let name = module.split_once("::").map_or(name.to_owned(), |(_, module)| format!("{module}::{name}"));
    command.args(["--exact", &name, "--include-ignored", "--nocapture"]);
    command
}

/// The program's standard error, as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The program's standard output, as text.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Asserts the exit code. On failure, the message shows both outputs.
pub fn assert_exit(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "stdout: {}\nstderr: {}", stdout(output), stderr(output));
}

/// Whether the validation layer is installed here.
pub fn has_validation() -> bool {
    let output = run(&["--headless", "--validation", "--frames=1", "--grid=2x2", "--size=16x16"]);
    !stderr(&output).contains("the validation layer")
}

/// The repository.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The path of a kernel's file, such as `pond.cu`. The wave is the demo's.
pub fn kernel(file: &str) -> PathBuf {
    let folder = if file.starts_with("wave.") { "kernels" } else { "tool/handoff/kernels" };
    Path::new(ROOT).join(folder).join(file)
}

/// The path of a reference picture.
pub fn reference(name: &str) -> PathBuf {
    Path::new(ROOT).join("tool/wavefield/tests/references").join(name)
}

/// How far two pictures may differ: drivers round differently, and rasterise edges differently.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// The mean difference of all channels, in steps of 8 bits.
    pub mean: f64,
    /// The share of pixels with a channel that is off by more than 16 steps.
    pub off: f64,
}

/// For another driver or rasteriser: an edge may fall on the other side of a pixel.
pub const SAME_PICTURE: Tolerance = Tolerance { mean: 0.5, off: 0.005 };

/// Whether two pictures of the same size differ by no more than [`SAME_PICTURE`].
pub fn is_same(a: &[u8], b: &[u8]) -> bool {
    let difference = difference(a, b);
    difference.mean <= SAME_PICTURE.mean && difference.off <= SAME_PICTURE.off
}

/// How far two RGBA pictures of the same size differ.
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

/// The size and the pixels of an 8-bit RGBA PNG.
pub fn read_png(path: &Path) -> io::Result<(vk::Extent2D, Vec<u8>)> {
    let mut reader = png::Decoder::new(BufReader::new(File::open(path)?)).read_info()?;
    let mut pixels = vec![0; reader.output_buffer_size().unwrap_or(0)];
    let info = reader.next_frame(&mut pixels)?;
    assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Rgba, png::BitDepth::Eight));
    Ok((vk::Extent2D { width: info.width, height: info.height }, pixels))
}

/// Asserts that two PNG files show the same picture. On failure, it keeps `got` in the temporary folder.
pub fn assert_same_picture(got: &Path, want: &Path, tolerance: Tolerance) {
    let (got_size, got_pixels) = read_png(got).expect("a picture was written");
    let (want_size, want_pixels) = read_png(want).expect("the reference exists");
    assert_eq!(got_size, want_size, "sizes of {} and {}", got.display(), want.display());
    let difference = difference(&got_pixels, &want_pixels);
    if difference.mean > tolerance.mean || difference.off > tolerance.off {
        let kept =
            std::env::temp_dir().join(format!("wavefield-got-{}", want.file_name().unwrap().display()));
        std::fs::copy(got, &kept).expect("the temporary folder is writable");
        panic!(
            "{} differs from {}: {difference:?}, allowed {tolerance:?}; kept as {}",
            got.display(),
            want.display(),
            kept.display()
        );
    }
}

/// The number of open descriptors of this process. Always 0 except on Linux.
pub fn open_descriptors() -> usize {
    // Wine shows Linux's files to programs of Windows.
    std::fs::read_dir("/proc/self/fd").ok().filter(|_| cfg!(unix)).map_or(0, Iterator::count)
}

/// The number of descriptors of this process that are open on `path`. Always 0 except on Linux.
pub fn descriptors_of(path: &Path) -> usize {
    let Ok(path) = path.canonicalize() else { return 0 };
    let links = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    links.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|link| link == path)).count()
}
