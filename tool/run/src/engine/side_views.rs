//! Draws clients' pictures in separate submissions, or copies the one on screen. Only `Work::drain`, `finish` and `quiesce` wait for them.

use ash::vk;
use vulkan_cuda::ownership::{Access, Owner};

use super::Engine;
use wavefield_draw::{Picture, PictureKind, PicturePlace, Views, Wanted};
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{Pacer, begin, copy_of_level, end, pipeline_barrier, to_host};
use wavefield_handoff::producer::{OwnershipTransfer, Source, reads};

const FLIGHTS: usize = 3;

const COPY: Access =
    Access { stage: vk::PipelineStageFlags2::ALL_TRANSFER, access: vk::AccessFlags2::TRANSFER_WRITE };

pub(super) struct SideViews {
    pub(super) pacer: Pacer,
    pub(super) views: Views,
}

impl Engine {
    /// Draws pictures of a slot into a buffer, then signals `signal`. A picture that is on screen is copied
    /// instead. Slot and buffer come with their owner between
    /// Vulkan's uses. Waits if too many are in flight, and before the first picture of a new size. After an error,
    /// nothing is submitted or signalled.
    ///
    /// # Safety
    /// The slot holds the array of the engine's current producer. The buffer has room for `wanted` and the
    /// usage `TRANSFER_DST`. Until [`Work::drain`](super::Work::drain) both stay alive, nothing writes to the
    /// slot, and nothing uses the buffer.
    pub unsafe fn render_views(
        &mut self,
        wanted: &Wanted<'_>,
        source: (Source, Owner),
        into: (vk::Buffer, Owner),
        signal: Option<vk::SemaphoreSubmitInfo<'static>>,
    ) -> Result<()> {
        let Self { drawer, work, .. } = self;
        let fits = |picture: &&Picture| picture.extent == wanted.size && wanted.views == [drawer.view];
        let on_screen = drawer.on_screen().filter(fits);
        let is_copied = |(kind, _): &PicturePlace| *kind == PictureKind::Color && on_screen.is_some();
        let (copied, drawn): (Vec<_>, Vec<_>) = wanted.places.iter().copied().partition(is_copied);
        let wanted = &Wanted { places: &drawn, ..*wanted };
        if work.side_views.is_none() {
            work.side_views =
                Some(SideViews { pacer: Pacer::new(&work.queue, FLIGHTS)?, views: Views::new(FLIGHTS) });
        }
        if work
            .side_views
            .as_ref()
            .is_some_and(|side| side.views.needs(work.queue.device(), &drawer.renderer, wanted))
        {
            work.drain()?;
        }
        let (producer, wait_limit) = (work.producer.get(), &work.wait_limit);
        let (Some(SideViews { pacer, views }), queue) = (&mut work.side_views, &mut work.queue) else {
            return Ok(());
        };
        views.prepare(queue, &drawer.renderer, wanted)?;
        let (device, family) = (queue.device().clone(), queue.family());
        let waited = pacer.begin(wait_limit.watch(producer, &device, pacer.slowest));
        let flight = match waited {
            Ok(flight) => flight,
            waited => return work.record_health(waited).map(drop),
        };
        let reads = reads(drawer.scene, false);
        let barrier = |barrier| {
            // SAFETY: recording; the buffers live (the caller's promise).
            unsafe { pipeline_barrier(&device, flight.draw, &[barrier], &[]) };
        };
        let transfer = |transfer: OwnershipTransfer| {
            if source.1 == Owner::External && !drawn.is_empty() {
                // SAFETY: as above; outside a render pass.
                unsafe { transfer.record(&device, flight.draw, family, source.0, reads) };
            }
        };
        begin(&device, flight.draw, vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT)?;
        transfer(OwnershipTransfer::Acquire);
        barrier(into.1.acquire(into.0, family, COPY));
        // SAFETY: the pacer says that the flight is free; the rest is the caller's promise.
        unsafe {
            views.record((&device, &drawer.renderer), flight.draw, (flight.index, source.0), wanted, into.0)
        }?;
        if let Some(Picture { image, final_layout, extent, .. }) = on_screen.filter(|_| !copied.is_empty()) {
            for &(_, offset) in &copied {
                // SAFETY: recording; the picture stays, its draw made it readable for copies, and the next draw waits
                // for them; the rest is the caller's promise.
                unsafe {
                    match drawer.renderer.pixels() {
                        Some((pixels, bytes)) => {
                            let copy = [vk::BufferCopy::default().dst_offset(offset).size(bytes)];
                            device.raw().cmd_copy_buffer(flight.draw, pixels, into.0, &copy);
                        }
                        None => {
                            let copy = [copy_of_level(0, *extent, offset)];
                            device.raw().cmd_copy_image_to_buffer(
                                flight.draw,
                                *image,
                                *final_layout,
                                into.0,
                                &copy,
                            );
                        }
                    }
                }
            }
        }
        barrier(match into.1 {
            Owner::External => into.1.release(into.0, family, COPY),
            Owner::Queue => to_host(into.0),
        });
        transfer(OwnershipTransfer::Release);
        end(&device, flight.draw)?;
        let signals: Vec<_> = [pacer.signal()].into_iter().chain(signal).collect();
        let commands = [vk::CommandBufferSubmitInfo::default().command_buffer(flight.draw)];
        let batch =
            vk::SubmitInfo2::default().command_buffer_infos(&commands).signal_semaphore_infos(&signals);
        // SAFETY: recorded and not pending; what it uses stays alive until `Work::drain`, as promised.
        unsafe { queue.submit(&[batch]) }?;
        pacer.end();
        Ok(())
    }
}
