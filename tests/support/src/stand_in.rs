//! Runs the program on the stand-in for a GPU (`tests/stand_in`) and reads the stand-in's report.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use ash::vk;
use tempfile::{TempDir, TempPath};

use crate::{PATIENCE, harness, skip_without_tools, test_process, wavefield};

pub use harness::{Report, Run, each};

/// Every extension that the layer can pretend to have.
pub const ALL: [&str; 4] =
    ["VK_KHR_external_semaphore_fd", "VK_EXT_device_fault", "VK_EXT_memory_budget", "VK_NVX_binary_import"];

/// The stand-in's library, installed as `libcuda`, as `libnvrtc` and as a Vulkan layer.
pub struct StandIn {
    library: PathBuf,
    folder: TempDir,
    /// The patched copy of the library that [`StandIn::lacking`] makes.
    patched: Option<TempPath>,
}

impl StandIn {
    /// Returns `None` and reports a skip if the first Vulkan device is not a software device. A CUDA driver
    /// that runs on the CPU can write only to the memory of a software device.
    pub fn new() -> Option<Self> {
        let library = harness::library();
        if !library.exists() {
            skip_without_tools(&format!("{} does not exist", library.display()));
            return None;
        }
        if !is_lavapipe() {
            skip_without_tools("the first Vulkan device is not lavapipe");
            return None;
        }
        Some(Self::of(library))
    }

    fn of(library: PathBuf) -> Self {
        let folder = harness::install(&library, &ALL);
        Self { library, folder, patched: None }
    }

    /// The shared library.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// The program with the CUDA half and the Vulkan layer. The layer pretends to have `extensions`.
    pub fn command(&self, extensions: &[&str]) -> Command {
        self.beneath(wavefield(), extensions)
    }

    /// Like [`command`](Self::command), for any program.
    pub fn beneath(&self, program: Command, extensions: &[&str]) -> Command {
        harness::beneath(program, self.folder.path(), extensions)
    }

    /// Like [`command`](Self::command), for one test of this binary, where a skip is a failure. `module` is the
    /// test's `module_path!()`.
    pub fn test(&self, module: &str, name: &str, extensions: &[&str]) -> Command {
        let mut test = test_process(module, name);
        test.env("WAVEFIELD_REQUIRE_GPU", "1");
        self.beneath(test, extensions)
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

/// The program, which finds the libraries in `folder` before the system's.
pub fn with_libraries(folder: &Path) -> Command {
    harness::finding(wavefield(), folder)
}

/// Runs a command and reads its report. Returns an error if it does not end within [`PATIENCE`].
pub fn run(command: &mut Command) -> Result<Run, String> {
    harness::run(command, PATIENCE)
}

/// Like [`run`], without a report.
pub fn finish(command: &mut Command) -> Result<Output, String> {
    harness::finish(command, PATIENCE)
}

/// Prints text that is shown even if the test passes.
pub fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Whether the first Vulkan device is lavapipe. The stand-in's kernels write only to its memory.
pub fn is_lavapipe() -> bool {
    static IS_LAVAPIPE: LazyLock<bool> = LazyLock::new(|| {
        // SAFETY: the loader is the system's. The instance is never destroyed: another test may be using
        // Vulkan at that time, and unloading a driver then can hang.
        unsafe {
            let Ok(entry) = ash::Entry::load() else { return false };
            let made = entry.create_instance(&vk::InstanceCreateInfo::default(), None);
            std::mem::forget(entry);
            let Ok(instance) = made else { return false };
            let devices = instance.enumerate_physical_devices().unwrap_or_default();
            let first = devices.first().map(|&device| instance.get_physical_device_properties(device));
            first.is_some_and(|device| {
                device.device_name_as_c_str().is_ok_and(|name| name.to_bytes().starts_with(b"llvmpipe"))
            })
        }
    });
    *IS_LAVAPIPE
}
