use std::time::Instant;

use ash::vk;

use super::ServeSetup;
use super::client::{Client, WantedPicture, WantedRender};
use super::client_producer::ClientState;
use super::fd_reaper::ClientFd;
use super::imports::Import;
use super::memory::sealed_copy;
use super::protocol::{self, FromClient, FromServer, RendererState, Request, SettingsChange};
use super::session::Validated;
use super::statistics::Watch;
use wavefield_draw::Camera;
use wavefield_gpu::Result;
use wavefield_run::{Engine, Parameters};

/// A client with more unread bytes gets no picture yet. The kernel counts about 800 bytes a message.
const MAX_UNREAD: u64 = 32 << 10;

pub(super) struct RequestHandler<'a> {
    pub(super) engine: &'a mut Engine,
    pub(super) parameters: &'a mut Parameters,
    pub(super) setup: &'a ServeSetup,
    pub(super) watch: &'a Watch,
    /// Whether the client's ring is in the engine.
    pub(super) draws: bool,
}

impl RequestHandler<'_> {
    pub(super) fn answer(
        &mut self,
        client: &mut Client,
        request: Request,
        validated: Validated,
        descriptors: Vec<ClientFd>,
    ) -> Result<()> {
        let message = match validated {
            Ok(message) => message,
            // A failed `render` is answered in its turn.
            Err(reason) if request.name == "render" => {
                client.wants(WantedRender { request, render: Err(reason) });
                return Ok(());
            }
            Err(reason) => {
                client.fail(request, reason);
                return Ok(());
            }
        };
        match message {
            // The session has done these. What was released is freed before the next frame.
            FromClient::Hello(_)
            | FromClient::Ready { .. }
            | FromClient::Show { .. }
            | FromClient::Release { .. } => {}
            FromClient::Bye => client.leaving = Some(Instant::now()),
            FromClient::Allocate { bytes } => self.allocate(client, request, bytes),
            FromClient::Import { chunks } => {
                let chunks = descriptors.into_iter().zip(chunks).collect();
                match Import::begin(self.setup, self.engine, request, chunks) {
                    Ok(import) => client.import = Some(import),
                    Err(error) => {
                        client.shared.borrow_mut().session.imported(false);
                        client.fail(request, error);
                    }
                }
            }
            FromClient::Timeline => self.timeline(client, request),
            FromClient::Render(render) => {
                client.wants(WantedRender { request, render: Ok(render) });
            }
            FromClient::Snapshot { .. } if client.wants_picture.is_some() => {
                client.fail(request, "a snapshot is on its way already");
            }
            FromClient::Snapshot { after } => client.wants_picture = Some(WantedPicture { request, after }),
            FromClient::Set { parameters, camera } => {
                let camera = camera.and_then(|place| place.camera().ok());
                self.set(client, request, &parameters, camera)?;
            }
            FromClient::Status => {
                let state = self.state(client);
                client.answer(request.id, &FromServer::State(state), &[]);
            }
        }
        Ok(())
    }

    fn set(
        &mut self,
        client: &mut Client,
        request: Request,
        change: &SettingsChange,
        camera: Option<Camera>,
    ) -> Result<()> {
        match change.apply(protocol::ClientParameters { field: *self.parameters, ..client.told }) {
            Ok(wanted) => {
                if wanted.field.colormap != self.parameters.colormap {
                    self.engine.set_color_map(wanted.field.colormap)?;
                }
                *self.parameters = wanted.field;
                // Until something of the client is drawn, the camera belongs to the renderer's own picture.
                if self.draws {
                    let view = &mut self.engine.drawer.view;
                    (view.limits, view.size) = (wanted.limits, wanted.size);
                    view.camera = camera.unwrap_or(view.camera);
                } else {
                    client.camera = camera.or(client.camera);
                }
                client.send_parameters(request.id, wanted);
            }
            Err(reason) => client.fail(request, reason),
        }
        Ok(())
    }

    fn allocate(&self, client: &mut Client, request: Request, bytes: u64) {
        let mut shared = client.shared.borrow_mut();
        let id = shared.session.next_id();
        let made = shared.memory.allocate(self.engine.device(), id, bytes);
        if made.is_ok() {
            shared.session.allocated(bytes);
        }
        drop(shared);
        match made {
            Ok((place, file)) => {
                client.answer(request.id, &FromServer::Allocated { id, place }, &[file]);
            }
            Err(error) => client.fail(request, error),
        }
    }

    fn timeline(&self, client: &mut Client, request: Request) {
        let made = client.shared.borrow_mut().memory.timeline(self.engine.device(), client.rendered);
        match made {
            Ok(timeline) => client.answer(request.id, &FromServer::Timeline { fd: 0 }, &[timeline]),
            Err(error) => client.fail(request, error),
        }
    }

    fn state(&self, client: &Client) -> RendererState {
        let shared = client.shared.borrow();
        let ledger = shared.session.ledger();
        RendererState {
            frames_drawn: self.engine.next_frame(),
            frame_shown: ledger.shown().map(|shown| shown.frame),
            ready: ledger.ready(),
            free: ledger.free(),
            producer: self.engine.work.producer.profile().name.into(),
            seconds: self.watch.seconds(),
            gaps_us: self.watch.draws.spread(),
            late_us: self.watch.late_us(),
            camera: match self.draws {
                true => self.engine.drawer.view.camera.into(),
                false => client.first_camera(&self.setup.config).into(),
            },
            picture: self.engine.drawer.picture_size().map_or([0, 0], |size| [size.width, size.height]),
            shown_at: client.shown_at,
        }
    }
}

/// Frees what the client gave back, once the GPU is done with it.
pub(super) fn free_released(engine: &mut Engine, client: &Client) -> Result<()> {
    if client.shared.borrow().session.has_released() {
        // If that fails, the session still has them, and they are freed next time.
        engine.work.drain()?;
        let ClientState { session, memory, .. } = &mut *client.shared.borrow_mut();
        session.take_released().into_iter().for_each(|id| memory.release(id));
        // Recorded commands may refer to a freed buffer.
        engine.drawer.recordings.forget();
    }
    Ok(())
}

pub(super) fn takes_picture(client: &Client, draws: bool) -> bool {
    let Some(WantedPicture { after, .. }) = client.wants_picture else { return false };
    let session = &client.shared.borrow().session;
    let drawn = match after {
        // If the client's first frame is ready, that is drawn next, and belongs in the picture.
        None => draws || !session.has_next(),
        Some(frame) => draws && session.ledger().shown().is_some_and(|shown| shown.frame >= frame),
    };
    // Each unread picture takes memory.
    drawn && client.connection.unread() <= MAX_UNREAD
}

/// Sends the picture: four bytes a pixel, sRGB.
pub(super) fn send_picture(client: &mut Client, draws: bool, extent: vk::Extent2D, pixels: Result<Vec<u8>>) {
    let Some(WantedPicture { request, .. }) = client.wants_picture.take() else { return };
    client.busy = false;
    match pixels.and_then(|pixels| Ok((pixels.len() as u64, sealed_copy("wavefield picture", &pixels)?))) {
        Ok((bytes, file)) => {
            let vk::Extent2D { width, height } = extent;
            let format = "rgba8-srgb".into();
            let shown = client.shared.borrow().session.ledger().shown();
            let frame = shown.filter(|_| draws).map(|shown| shown.frame);
            let picture = FromServer::Picture { width, height, format, bytes, frame };
            client.answer(request.id, &picture, &[file]);
        }
        Err(error) => client.fail(request, error),
    }
}

/// Imports the memory once it passed its trial, and answers the client.
pub(super) fn answer_import(engine: &mut Engine, client: &mut Client) -> Result<()> {
    if !client.import.as_ref().is_some_and(|import| import.job.is_done()) {
        return Ok(());
    }
    // The import waits for the queue without a limit, so drain it first. If that fails, the import stays.
    engine.work.drain()?;
    let Some(import) = client.import.take() else { return Ok(()) };
    let (request, made) = import.finish(engine);
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
