use std::os::fd::AsFd;
use std::time::Instant;

use ash::vk;
use vulkan_cuda::layout::Range;
use vulkan_cuda::{CudaBuffer, DeviceUuid};

use super::ServeSetup;
use super::client::{Client, ReceivedRequest, WantedPicture, WantedRender};
use super::client_producer::ClientState;
use super::fd_reaper::ClientFd;
use super::memory::sealed_copy;
use super::protocol::{self, FromClient, FromServer, RendererState, Request, SettingsChange};
use super::statistics::Watch;
use wavefield_draw::Camera;
use wavefield_gpu::{Error, Result, note, threads::Job};
use wavefield_handoff::producer::SLOT_USAGE;
use wavefield_run::{Engine, Parameters, child_process::ImportTrial};

/// A client with more unread bytes gets no picture and no events yet. The kernel counts about 800 bytes per message.
pub(super) const MAX_UNREAD: u64 = 32 << 10;

/// A descriptor from a client, and the size in bytes that the client claims for it.
type ImportChunk = (ClientFd, u64);

/// An import of a client's memory. A child process tries the memory first, and a thread waits for the result.
pub(super) struct Import {
    request: Request,
    job: Job<Vec<ImportChunk>>,
}

pub(super) struct RequestHandler<'a> {
    pub(super) client: &'a mut Client,
    pub(super) engine: &'a mut Engine,
    pub(super) parameters: &'a mut Parameters,
    pub(super) setup: &'a ServeSetup,
    pub(super) watch: &'a Watch,
    /// Whether the client's ring is in the engine.
    pub(super) draws: bool,
    /// Width and height of the last picture that was drawn to be seen.
    pub(super) picture: [u32; 2],
}

impl RequestHandler<'_> {
    pub(super) fn answer(&mut self, (request, validated, descriptors): ReceivedRequest) -> Result<()> {
        match validated {
            // Queue even a failed `render`, so that renders are answered in order.
            Err(reason) if request.name == "render" => {
                self.client.wants(WantedRender { request, render: Err(reason) });
            }
            Err(reason) => self.client.fail(request, reason),
            // The session has already handled these. Released memory is freed before the next frame.
            Ok(
                FromClient::Hello(_)
                | FromClient::Ready { .. }
                | FromClient::Show { .. }
                | FromClient::Release { .. },
            ) => {}
            Ok(FromClient::Bye) => self.client.leaving = Some(Instant::now()),
            Ok(FromClient::Allocate { bytes }) => self.allocate(request, bytes),
            Ok(FromClient::Import { chunks }) => {
                match self.try_import(descriptors.into_iter().zip(chunks).collect()) {
                    Ok(job) => self.client.import = Some(Import { request, job }),
                    Err(error) => {
                        self.client.shared.borrow_mut().session.imported(false);
                        self.client.fail(request, error);
                    }
                }
            }
            Ok(FromClient::Timeline) => self.timeline(request),
            Ok(FromClient::Render(render)) => self.client.wants(WantedRender { request, render: Ok(render) }),
            Ok(FromClient::Snapshot { .. }) if self.client.wants_picture.is_some() => {
                self.client.fail(request, "a snapshot is on its way already");
            }
            Ok(FromClient::Snapshot { after, size }) => {
                self.client.wants_picture = Some(WantedPicture { request, after, size });
            }
            Ok(FromClient::Set { parameters, camera }) => {
                let camera = camera.and_then(|place| place.camera().ok());
                self.set(request, &parameters, camera)?;
            }
            Ok(FromClient::Panel(wish)) => {
                self.client.panel.set(wish);
                self.client.answer(request.id, &FromServer::Panel, &[]);
            }
            Ok(FromClient::Status) => {
                let state = self.state();
                self.client.answer(request.id, &FromServer::State(state), &[]);
            }
        }
        Ok(())
    }

    fn set(&mut self, request: Request, change: &SettingsChange, camera: Option<Camera>) -> Result<()> {
        let now = protocol::ClientParameters { field: *self.parameters, ..self.client.told };
        let looks = self.client.drawing.looks();
        let wanted = change.apply(now);
        match wanted.and_then(|wanted| Ok((wanted, change.looks(looks, wanted)?, change.names()?))) {
            Ok((wanted, looks, names)) => {
                if let Some(names) = names {
                    self.client.drawing.set_names(names);
                }
                let first = Some(wanted.field.colormap).filter(|map| *map != self.parameters.colormap);
                let before = self.client.drawing.looks();
                let more =
                    looks.iter().zip(before).map(|(now, before)| now.map.filter(|_| now.map != before.map));
                let maps = [first].into_iter().chain(more).enumerate();
                let changed: Vec<_> = maps.filter_map(|(number, map)| Some((number, map?))).collect();
                self.engine.set_color_maps(&changed)?;
                *self.parameters = wanted.field;
                if change.more.is_some() {
                    self.client.drawing.set_looks(&looks);
                    self.engine.drawer.forget_last();
                }
                // Until the engine has the client's ring, the view belongs to the renderer's own picture.
                if self.draws {
                    let view = &mut self.engine.drawer.view;
                    wanted.apply(view);
                    view.camera = camera.unwrap_or(view.camera);
                } else {
                    self.client.camera = camera.or(self.client.camera);
                }
                self.client.send_parameters(request.id, wanted);
            }
            Err(reason) => self.client.fail(request, reason),
        }
        Ok(())
    }

    fn allocate(&mut self, request: Request, bytes: u64) {
        let mut shared = self.client.shared.borrow_mut();
        let id = shared.session.next_id();
        let made = shared.memory.allocate(self.engine.device(), id, bytes);
        if made.is_ok() {
            shared.session.allocated(bytes);
        }
        drop(shared);
        match made {
            Ok((place, file)) => {
                self.client.answer(request.id, &FromServer::Allocated { id, place }, &[file]);
            }
            Err(error) => self.client.fail(request, error),
        }
    }

    fn try_import(&self, chunks: Vec<ImportChunk>) -> Result<Job<Vec<ImportChunk>>> {
        let sharing = &self.engine.device().info().sharing;
        let (device, driver) = (sharing.uuid, DeviceUuid(sharing.driver_uuid));
        let patience = self.setup.config.timeout / 2;
        Job::begin("import", move |wanted| {
            let trial = ImportTrial { device, driver, usage: SLOT_USAGE, patience };
            let took = trial.run(&chunks, wanted)?;
            note!(
                "note: memory of {} chunks passed its trial, which took {:.2} s",
                chunks.len(),
                took.as_secs_f64()
            );
            Ok(chunks)
        })
    }

    fn timeline(&mut self, request: Request) {
        let made =
            self.client.shared.borrow_mut().memory.timeline(self.engine.device(), self.client.rendered);
        match made {
            Ok(timeline) => self.client.answer(request.id, &FromServer::Timeline { fd: 0 }, &[timeline]),
            Err(error) => self.client.fail(request, error),
        }
    }

    fn state(&self) -> RendererState {
        let shared = self.client.shared.borrow();
        let ledger = &shared.session.ledger;
        RendererState {
            frames_drawn: self.engine.next_frame(),
            frame_shown: ledger.shown.map(|shown| shown.frame),
            ready: ledger.ready,
            free: ledger.free(),
            producer: self.engine.work.producer.profile().name.into(),
            seconds: self.watch.seconds(),
            gaps_us: self.watch.draws.spread(),
            late_us: self.watch.late_us(),
            camera: match self.draws {
                true => self.engine.drawer.view.camera.into(),
                false => self.client.first_camera(&self.setup.config).into(),
            },
            picture: self.picture,
            shown_at: self.client.shown_at,
        }
    }
}

/// Frees what the client released, once the GPU is done with it.
pub(super) fn free_released(engine: &mut Engine, client: &Client) -> Result<()> {
    if client.shared.borrow().session.has_released() {
        // If this fails, the session keeps its list of released memory, and the next call frees it.
        engine.work.drain()?;
        let ClientState { session, memory, .. } = &mut *client.shared.borrow_mut();
        session.take_released().into_iter().for_each(|id| memory.release(id));
        // Recorded commands may refer to a freed buffer.
        engine.drawer.recordings.forget();
    }
    Ok(())
}

/// Returns whether the picture on screen is to be sent.
pub(super) fn takes_picture(client: &Client, draws: bool) -> bool {
    due_picture(client, draws).is_some_and(|picture| picture.size.is_none())
}

/// Returns the pending `snapshot`, if its frame is shown.
pub(super) fn due_picture(client: &Client, draws: bool) -> Option<WantedPicture> {
    // Each unread picture occupies memory.
    let is_due = |picture: &WantedPicture| client.shows(picture.after, draws);
    client.wants_picture.filter(is_due).filter(|_| client.connection.unread() <= MAX_UNREAD)
}

/// Answers the pending `snapshot` with the picture and its marks: four bytes per pixel, sRGB.
pub(super) fn send_picture(
    engine: &mut Engine,
    client: &mut Client,
    draws: bool,
    extent: vk::Extent2D,
    pixels: Result<Vec<u8>>,
) {
    let Some(WantedPicture { request, .. }) = client.wants_picture.take() else { return };
    client.busy = false;
    let pixels = pixels.and_then(|pixels| engine.marked(client.told.field.colormap, extent, pixels));
    match pixels.and_then(|pixels| Ok((pixels.len() as u64, sealed_copy("wavefield picture", &pixels)?))) {
        Ok((bytes, file)) => {
            let vk::Extent2D { width, height } = extent;
            let format = "rgba8-srgb".into();
            let shown = client.shared.borrow().session.ledger.shown;
            let frame = shown.filter(|_| draws).map(|shown| shown.frame);
            let picture = FromServer::Picture { width, height, format, bytes, frame };
            client.answer(request.id, &picture, &[file]);
        }
        Err(error) => client.fail(request, error),
    }
}

/// Once the trial is over, imports the memory if it passed, and answers the client.
pub(super) fn answer_import(engine: &mut Engine, client: &mut Client) -> Result<()> {
    if !client.import.as_ref().is_some_and(|import| import.job.is_done()) {
        return Ok(());
    }
    // The import waits for the queue without a timeout, so drain first. On failure, the import stays pending.
    engine.work.drain()?;
    let Some(Import { request, job }) = client.import.take() else { return Ok(()) };
    let made = job.finish().and_then(|chunks| import(engine, chunks));
    let id = client.shared.borrow_mut().session.imported(made.is_ok()).unwrap_or_default();
    match made {
        Ok(buffer) => {
            let bytes = buffer.size();
            client.shared.borrow_mut().memory.keep(id, buffer);
            client.answer(request.id, &FromServer::Imported { id, bytes }, &[]);
        }
        Err(error) => client.fail(request, error),
    }
    Ok(())
}

/// Imports memory that passed its trial. Drain the queue first: binding waits for it without a timeout.
fn import(engine: &mut Engine, chunks: Vec<ImportChunk>) -> Result<CudaBuffer> {
    let range = Range { offset: 0, size: chunks.iter().map(|(_, size)| size).sum() };
    // CUDA and Vulkan take ownership of the descriptors that they import, so pass duplicates.
    let copy = |(fd, size): (ClientFd, u64)| Ok((fd.as_fd().try_clone_to_owned()?.into(), size));
    let chunks = chunks.into_iter().map(copy).collect::<std::io::Result<_>>();
    let chunks = chunks.map_err(|error| Error::Unsupported(format!("no copy of a descriptor: {error}")))?;
    let device = engine.device().clone();
    let queue = engine.queue();
    let place = (queue.raw(), queue.family());
    // SAFETY: the trial has shown that the memory belongs to this GPU and has these sizes. The device has
    // `sparseBinding` if that is supported. Only this thread uses the queue, and the caller has drained it.
    Ok(unsafe { CudaBuffer::from_descriptors(device.sharing()?, chunks, range, SLOT_USAGE, place) }?)
}
