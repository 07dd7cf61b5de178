//! A descriptor from another process may not be what its sender says, so a child process tries it first. With
//! NVIDIA's driver (580) one refused import made every later import of the process fail.

use std::error::Error;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};

use vulkan_cuda::handle::Fd;
use vulkan_cuda::layout::Range;
use vulkan_cuda::{CudaAllocation, CudaBuffer};

use super::match_devices::Gpu;
use super::{USAGE, check, open, write};

/// Set in the child: the descriptor's size in bytes, as its sender says.
const BYTES: &str = "VULKAN_CUDA_TRY_BYTES";
/// The range that is imported.
const RANGE: Range = Range { offset: 0, size: 4096 };

/// `child` is a command that starts this program again.
pub fn show(gpu: &Gpu, mut child: Command) -> Result<(), Box<dyn Error>> {
    let allocation = CudaAllocation::new(gpu.pair.cuda(), RANGE.size)?;
    let size = allocation.chunks()[0];
    write(gpu, allocation.pointer(), RANGE.size, 3)?;

    // In a real program these two come over a socket.
    let file = OwnedFd::from(File::open("/dev/null")?);
    let memory = OwnedFd::from(allocation.export(0)?);
    match is_taken(&mut child, &file, size)? {
        Ok(()) => return Err("a file was taken for memory".into()),
        Err(words) => println!("refused, in a process of its own: {words}"),
    }
    is_taken(&mut child, &memory, size)??;
    // SAFETY: the child has shown that it is memory of this GPU; its sender says that it has this size.
    let view = unsafe { CudaBuffer::from_descriptor(gpu.pair.vk(), memory.into(), size, RANGE, USAGE) }?;
    // The sender may drop its allocation: Vulkan's import keeps the memory. Only CUDA's address is gone.
    drop(allocation);
    check(gpu, view.vulkan(), RANGE.size, 3)?;
    println!("tried in a process of its own, then imported here: Vulkan read {RANGE}");
    Ok(())
}

/// Returns whether a child process can import the descriptor, or its reason why not. (A program that must not
/// hang needs a time limit here.)
fn is_taken(child: &mut Command, descriptor: &OwnedFd, size: u64) -> std::io::Result<Result<(), String>> {
    let stdin = Stdio::from(descriptor.try_clone()?);
    let output = child.env(BYTES, size.to_string()).stdin(stdin).output()?;
    // Otherwise the command would keep the descriptor open.
    child.stdin(Stdio::null());
    let words = String::from_utf8_lossy(&output.stderr);
    Ok(match output.status.success() {
        true => Ok(()),
        false => Err(format!("{} ({})", words.trim(), output.status)),
    })
}

/// Returns whether this process is the child.
pub fn is_child() -> bool {
    std::env::var_os(BYTES).is_some()
}

/// The child: imports its standard input on the same GPU, and exits.
pub fn be_child() -> ! {
    let taken = attempt();
    if let Err(error) = &taken {
        eprintln!("{error}");
    }
    std::process::exit(taken.is_err().into())
}

fn attempt() -> Result<(), Box<dyn Error>> {
    let size = std::env::var(BYTES)?.parse()?;
    let gpu = open()?;
    let fd = Fd::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    // SAFETY: unknown. Any damage ends with this process.
    unsafe { CudaBuffer::from_descriptor(gpu.pair.vk(), fd, size, RANGE, USAGE) }?;
    Ok(())
}
