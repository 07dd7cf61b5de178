//! A new kernel's first launch, in a process of its own: the child's side. [`super::Trial`] is the other one.

use std::time::Duration;

use vulkan_cuda::DeviceUuid;

use crate::cuda::{Cuda, DeviceMemory, Driver, Kernel, KernelSource, Signature, Stream};
use crate::left_running::leave_running;
use crate::wave::Grid;
use crate::{Error, Result, say};

/// What the child says on standard output just before the launch: from then on its time is counted.
pub(super) const LAUNCHED: &str = "wavefield try-kernel: launched";

/// Ends with `parent`, the process that started this one: a kernel that does not end must not outlive the renderer.
///
/// For the system the parent ends with the *thread* that started this process (`PR_SET_PDEATHSIG`).
///
/// # Errors
/// The parent has ended already; the system refuses.
pub fn end_with_parent(parent: u32) -> Result<()> {
    let refused = |error| Error::Unsupported(format!("cannot end with process {parent}: {error}"));
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).map_err(refused)?;
    // It may have ended before that.
    let now = rustix::process::getppid().map(|process| process.as_raw_pid() as u32);
    match now == Some(parent) {
        true => Ok(()),
        false => {
            Err(Error::Unsupported(format!("process {parent}, for which this was to be tried, has ended")))
        }
    }
}

/// Runs the kernel once, as frame 0 at time 0, on the device of that UUID and on memory of the grid's size that nobody sees;
/// returns when it has ended and everything is given back.
///
/// It waits for ever for a kernel that never ends: whoever starts this process ends it.
///
/// # Errors
/// No CUDA, no such device; the kernel does not load, has other parameters, or faults. After a fault the process is to be left at once
/// ([`crate::left_running()`]).
pub fn try_kernel(device: DeviceUuid, ptx: String, entry: String, grid: Grid) -> Result<()> {
    let driver = Driver::load()?;
    let info = driver.devices()?.into_iter().find(|info| info.uuid == device);
    let info =
        info.ok_or_else(|| Error::Unsupported(format!("CUDA has no device with the UUID {device}")))?;
    let context = Cuda::primary(driver, &info)?;
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
