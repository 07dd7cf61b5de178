//! Launches a new kernel in a child process first.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use vulkan_cuda::DeviceUuid;

use super::child::{Attempt, context};
use wavefield_gpu::cuda::{CudaInfo, DeviceMemory, Kernel, KernelSource, Signature, Stream};
use wavefield_gpu::{Error, Result, say, stuck_gpu};
use wavefield_handoff::contents::wave::Grid;

const LAUNCHED: &str = "wavefield try-kernel: launched";

pub struct Trial<'a> {
    pub program: &'a Path,
    pub device: &'a CudaInfo,
    pub grid: Grid,
    /// Shorter than the renderer's timeout, because an endless kernel may keep the renderer off the GPU.
    pub patience: Duration,
}

impl Trial<'_> {
    /// Runs the kernel in a child and returns how long that took. Kills the child once `wanted` is false.
    pub fn run(&self, source: &KernelSource, wanted: impl Fn() -> bool) -> Result<Duration> {
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

/// Puts the text in an in-memory file, which unlike a pipe needs no writer while the child reads.
fn in_memory(text: &str) -> std::io::Result<Stdio> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut input = File::from(rustix::fs::memfd_create("wavefield-trial", flags)?);
    input.write_all(text.as_bytes())?;
    input.rewind()?;
    Ok(input.into())
}

/// Runs in the child: launches the kernel once, as frame 0 at time 0, on private memory of the grid's size.
/// If the kernel never ends, the parent must kill this process. Fails without CUDA or the device, or if the
/// kernel does not load, has other parameters, or faults. After a fault, exit at once
/// ([`wavefield_gpu::stuck_gpu::leaked`]).
pub fn try_kernel(device: DeviceUuid, ptx: String, entry: String, grid: Grid) -> Result<()> {
    let context = context(device)?;
    let source = KernelSource { name: format!("`{entry}`"), ptx, entry, cubin: None, built_in: None };
    let kernel = Kernel::load(&context, &source)?;
    source.check_signature(Signature::Field)?;
    let memory = DeviceMemory::new(&context, grid.bytes())?;
    let stream = Stream::new(&context)?;
    say!("{LAUNCHED}");
    // SAFETY: the memory holds the whole grid, only this uses it, and the signature is the documented one.
    let launched = unsafe { kernel.launch(&stream, memory.pointer(), [grid.cols, grid.rows], 0, 0.0, &[]) };
    let ran = launched.and_then(|()| {
        // Poll with pauses, because `cuStreamSynchronize` may keep a CPU core busy.
        while !stream.is_idle()? {
            std::thread::sleep(Duration::from_micros(200));
        }
        stream.synchronize()
    });
    if ran.is_err() {
        // A context cannot release anything after a fault; the end of the process does.
        stuck_gpu::leak((stream, memory, kernel));
    }
    ran
}
