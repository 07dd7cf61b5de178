//! Imports a client's memory in a child process first.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ash::vk;
use vulkan_cuda::handle::Fd;
use vulkan_cuda::layout::Range;
use vulkan_cuda::{CudaAllocation, CudaBuffer, DeviceUuid};

use super::THIS_PROGRAM;
use super::child::{Attempt, context};
use wavefield_gpu::vulkan::{DeviceDesc, Instance, Validation};
use wavefield_gpu::{Error, Result, say, unix_packets};

const BEGINS: &str = "wavefield try-import: both devices are open";

pub struct ImportTrial {
    pub device: DeviceUuid,
    /// Two drivers may serve one GPU, and each imports only what it exported itself.
    pub driver: DeviceUuid,
    pub usage: vk::BufferUsageFlags,
    pub patience: Duration,
}

impl ImportTrial {
    /// Imports the chunks in a child and returns how long that took. Kills the child once `wanted` is false.
    pub fn run(&self, chunks: &[(impl AsFd, u64)], wanted: impl Fn() -> bool) -> Result<Duration> {
        let (input, own) = unix_packets::pair().map_err(unsent)?;
        // The packet waits in the socket until the child reads it.
        let sent: Vec<_> = chunks.iter().map(|(fd, _)| fd.as_fd()).collect();
        unix_packets::send(own.as_fd(), b"chunks", &sent).map_err(unsent)?;
        let sizes: Vec<_> = chunks.iter().map(|(_, size)| size.to_string()).collect();
        let attempt = Attempt {
            program: Path::new(THIS_PROGRAM),
            arguments: vec![
                "try-import".into(),
                format!("--device={}", self.device),
                format!("--driver={}", self.driver),
                format!("--usage={}", self.usage.as_raw()),
                format!("--chunks={}", sizes.join(",")),
            ],
            input: Stdio::from(input),
            begins: BEGINS,
            patience: self.patience,
            prefix: String::new(),
        };
        attempt.run(wanted).map_err(Error::Unsupported)
    }
}

fn unsent(error: rustix::io::Errno) -> Error {
    let error = std::io::Error::from(error);
    Error::Unsupported(format!("the descriptors could not be sent to the process that tries them: {error}"))
}

/// Runs in the child: receives the chunks' descriptors in one packet on standard input, and imports them,
/// first into CUDA, which checks the sizes, then into Vulkan, as the renderer will.
pub fn try_import(device: DeviceUuid, driver: DeviceUuid, usage: u32, sizes: &[u64]) -> Result<()> {
    let (got, received) = unix_packets::receive(std::io::stdin().as_fd(), &mut [0; 64]);
    got.map_err(|error| {
        Error::Unsupported(format!("no packet on standard input: {}", std::io::Error::from(error)))
    })?;
    if received.len() != sizes.len() {
        return Err(Error::Unsupported(format!("{} descriptors for {} chunks", received.len(), sizes.len())));
    }
    let chunks = || -> Result<Vec<(Fd, u64)>> {
        let copy = |(fd, &size): (&OwnedFd, _)| Ok((Fd::from(fd.try_clone()?), size));
        let copies: std::io::Result<_> = received.iter().zip(sizes).map(copy).collect();
        copies.map_err(|error| Error::Unsupported(format!("no copy of a descriptor: {error}")))
    };
    let instance = Instance::new(Validation::Off, None)?;
    let adapter = instance.adapters()?.into_iter().find(|adapter| {
        let sharing = &adapter.info().sharing;
        sharing.uuid == device && sharing.driver_uuid == driver.0
    });
    let adapter = adapter.ok_or_else(|| {
        Error::Unsupported(format!("Vulkan has no device with the UUID {device} and the driver {driver}"))
    })?;
    let (vulkan, mut queue) =
        adapter.request_device(&DeviceDesc { interop: true, ..DeviceDesc::default() })?;
    let cuda = context(device)?;
    say!("{BEGINS}");
    CudaAllocation::import(&cuda, &chunks()?)?;
    let (range, usage) =
        (Range { offset: 0, size: sizes.iter().sum() }, vk::BufferUsageFlags::from_raw(usage));
    // SAFETY: CUDA has verified that the memory is this GPU's and has these sizes. `request_device` enables
    // `sparseBinding` if the device has it. The queue is idle.
    unsafe {
        CudaBuffer::from_descriptors(
            vulkan.sharing()?,
            chunks()?,
            range,
            usage,
            (queue.raw(), queue.family()),
        )
    }?;
    Ok(())
}
