//! Imports memory from clients. A child process tries each import first, and a thread waits for that.

use std::os::fd::AsFd;

use vulkan_cuda::layout::Range;
use vulkan_cuda::{CudaBuffer, DeviceUuid};

use super::ServeSetup;
use super::fd_reaper::ClientFd;
use super::protocol::Request;
use wavefield_gpu::{Error, Result, note, threads::Job};
use wavefield_handoff::producer::SLOT_USAGE;
use wavefield_run::{Engine, child_process::ImportTrial};

type ImportChunk = (ClientFd, u64);

pub(super) struct Import {
    request: Request,
    pub(super) job: Job<Vec<ImportChunk>>,
}

impl Import {
    pub(super) fn begin(
        setup: &ServeSetup,
        engine: &Engine,
        request: Request,
        chunks: Vec<ImportChunk>,
    ) -> Result<Self> {
        let sharing = &engine.device().info().sharing;
        let (device, driver) = (sharing.uuid, DeviceUuid(sharing.driver_uuid));
        let patience = setup.config.timeout / 2;
        let job = move |wanted: &dyn Fn() -> bool| {
            let trial = ImportTrial { device, driver, usage: SLOT_USAGE, patience };
            let took = trial.run(&chunks, wanted)?;
            note!(
                "note: memory of {} chunks passed its trial, which took {:.2} s",
                chunks.len(),
                took.as_secs_f64()
            );
            Ok(chunks)
        };
        Ok(Self { request, job: Job::begin("import", job)? })
    }

    /// Imports tried memory. Drain the queue first, because binding waits for it without a limit.
    pub(super) fn finish(self, engine: &mut Engine) -> (Request, Result<CudaBuffer>) {
        (self.request, self.job.finish().and_then(|chunks| import(engine, chunks)))
    }
}

fn import(engine: &mut Engine, chunks: Vec<ImportChunk>) -> Result<CudaBuffer> {
    let range = Range { offset: 0, size: chunks.iter().map(|(_, size)| size).sum() };
    // CUDA and Vulkan own what they import, so they get copies.
    let copy = |(fd, size): (ClientFd, u64)| Ok((fd.as_fd().try_clone_to_owned()?.into(), size));
    let chunks = chunks.into_iter().map(copy).collect::<std::io::Result<_>>();
    let chunks = chunks.map_err(|error| Error::Unsupported(format!("no copy of a descriptor: {error}")))?;
    let device = engine.device().clone();
    let queue = engine.queue();
    let place = (queue.raw(), queue.family());
    // SAFETY: the trial has shown memory of this GPU and of these sizes; the device was made with
    // `sparseBinding` where it has that. The queue is this thread's, and everything submitted is done.
    Ok(unsafe { CudaBuffer::from_descriptors(device.sharing()?, chunks, range, SLOT_USAGE, place) }?)
}
