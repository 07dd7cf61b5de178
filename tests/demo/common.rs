//! Starts the program, on a real device or on the stand-in for a GPU (`tests/stand_in`).

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output};

pub use wavefield_test_support::stand_in::{Run, each};
pub use wavefield_test_support::{display, read_png, skip_without_tools};
use wavefield_test_support::{harness, stand_in, test_process};

pub use wavefield_test_support::PATIENCE;

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

/// Runs a command. An error if it does not end within [`PATIENCE`].
pub fn finish(command: &mut Command) -> Result<Output, String> {
    harness::finish(command, PATIENCE)
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the program, which must end with this exit code. Returns what it printed to standard output and
/// standard error.
pub fn ends(code: i32, arguments: &[&str]) -> (String, String) {
    let output = finish(&mut demo(arguments)).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {out}{err}");
    (out, err)
}

/// The size and the pixels of a PNG file.
pub fn pixels(path: &Path) -> ([u32; 2], Vec<u8>) {
    let (size, pixels) = read_png(path).expect("there is a picture");
    ([size.width, size.height], pixels)
}

/// The mean difference of two pictures, in steps of 8 bits.
pub fn difference(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len(), "pictures of the same size");
    a.iter().zip(b).map(|(a, b)| f64::from(a.abs_diff(*b))).sum::<f64>() / a.len() as f64
}

/// What the stand-in's layer pretends to have.
pub const PRETENDED: [&str; 1] = ["VK_KHR_external_semaphore_fd"];

/// The stand-in: a CUDA driver whose kernels run on the CPU, and a Vulkan layer. Every call of both can be
/// made to fail.
pub struct StandIn(stand_in::StandIn);

impl StandIn {
    /// `None`, and a skip, if the first Vulkan device is not a software device: the stand-in writes only to its memory.
    pub fn new() -> Option<Self> {
        stand_in::StandIn::new().map(Self)
    }

    /// The program on the stand-in.
    pub fn demo(&self, arguments: &[&str]) -> Command {
        self.0.beneath(demo(arguments), &PRETENDED)
    }

    /// Runs the program. `fail`: which calls fail, as `STAND_IN_FAIL` takes it.
    pub fn run(&self, arguments: &[&str], fail: &str) -> Result<Run, String> {
        Self::finish(self.demo(arguments).env("STAND_IN_FAIL", fail))
    }

    /// Runs a command on the stand-in.
    pub fn finish(command: &mut Command) -> Result<Run, String> {
        harness::run(command, PATIENCE)
    }
}

/// The arguments of an example, in the process in which it runs.
const ARGUMENTS: &str = "EXAMPLE_ARGUMENTS";

/// The test `in_its_own_process` of this module, which runs an example with these arguments. A skip is a failure there.
pub fn example(module: &str, arguments: &[&str]) -> Command {
    let mut command = test_process(module, "in_its_own_process");
    command.env(ARGUMENTS, arguments.iter().map(|argument| format!("\n{argument}")).collect::<String>());
    command.env("WAVEFIELD_REQUIRE_GPU", "1");
    command
}

/// Returns the arguments of [`example`], or `None` in an ordinary test.
pub fn example_arguments() -> Option<Vec<OsString>> {
    let arguments = std::env::var(ARGUMENTS).ok()?;
    Some(arguments.split('\n').skip(1).map(OsString::from).collect())
}
