//! A new kernel's first launch, in a process of its own.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use vulkan_cuda::DeviceUuid;

use super::child::{Attempt, context};
use crate::cuda::{CudaInfo, DeviceMemory, Kernel, KernelSource, Signature, Stream};
use crate::left_running::leave_running;
use crate::wave::Grid;
use crate::{Error, Result, say};

/// What the child says just before the launch.
const LAUNCHED: &str = "wavefield try-kernel: launched";

/// How a kernel is tried.
pub(crate) struct Trial<'a> {
    /// The program to start, which knows `try-kernel`.
    pub(crate) program: &'a Path,
    pub(crate) device: &'a CudaInfo,
    pub(crate) grid: Grid,
    /// How long the kernel may run. Shorter than what the renderer's own watchdog allows: a kernel that does not end may keep
    /// the renderer off the GPU, too.
    pub(crate) patience: Duration,
}

impl Trial<'_> {
    /// Tries the kernel in a child process, and waits for that; returns how long it took. Once it is not `wanted` any more the
    /// child is ended.
    ///
    /// # Errors
    /// The child's words; that it could not be started, or was not done in time.
    pub(crate) fn run(&self, source: &KernelSource, wanted: impl Fn() -> bool) -> Result<Duration> {
        let problem = |problem: String| Error::Kernel { kernel: source.name.clone(), problem };
        let input =
            in_memory(&source.ptx).map_err(|error| problem(format!("no memory for its text: {error}")))?;
        let attempt = Attempt {
            program: self.program,
            arguments: vec![
                "try-kernel".into(),
                format!("--device={}", self.device.uuid),
                format!("--grid={}x{}", self.grid.cols, self.grid.rows),
                format!("--entry={}", source.entry),
            ],
            input,
            begins: LAUNCHED,
            patience: self.patience,
            prefix: format!("kernel `{}`: ", source.entry),
        };
        attempt.run(wanted).map_err(problem)
    }
}

/// A file in memory, not a pipe: nobody has to write while the child reads.
fn in_memory(text: &str) -> std::io::Result<Stdio> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut input = File::from(rustix::fs::memfd_create("wavefield-trial", flags)?);
    input.write_all(text.as_bytes())?;
    input.rewind()?;
    Ok(input.into())
}

/// In the child: runs the kernel once, as frame 0 at time 0, on the device of that UUID and on memory of the grid's size that nobody sees;
/// returns when it has ended and everything is given back.
///
/// It waits for ever for a kernel that never ends: whoever starts this process ends it.
///
/// # Errors
/// No CUDA, no such device; the kernel does not load, has other parameters, or faults. After a fault the process is to be left at once
/// ([`crate::left_running()`]).
pub fn try_kernel(device: DeviceUuid, ptx: String, entry: String, grid: Grid) -> Result<()> {
    let context = context(device)?;
    let source = KernelSource { name: format!("`{entry}`"), ptx, entry, cubin: None, gallery: None };
    let kernel = Kernel::load(&context, &source)?;
    source.check_signature(Signature::Field)?;
    let memory = DeviceMemory::new(&context, grid.bytes())?;
    let stream = Stream::new(&context)?;
    say!("{LAUNCHED}");
    // SAFETY: memory for the whole grid that nobody else has, and a kernel of the documented signature.
    let launched = unsafe { kernel.launch(&stream, memory.pointer(), [grid.cols, grid.rows], 0, 0.0, &[]) };
    let ran = launched.and_then(|()| wait_for(&stream));
    if ran.is_err() {
        // A faulted context takes nothing back; the end of the process does.
        leave_running((stream, memory, kernel));
    }
    ran
}

/// Asks again and again, and does not occupy a processor as `cuStreamSynchronize` may.
fn wait_for(stream: &Stream) -> Result<()> {
    while !stream.is_idle()? {
        std::thread::sleep(Duration::from_micros(200));
    }
    stream.synchronize()
}
