//! The render thread's part of `serve` between two frames: reads counters and messages, answers requests.

use std::time::{Duration, Instant};

use ash::vk;
use rustix::event::{Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

use super::acceptor::{Acceptor, refuse};
use super::client::Client;
use super::client_producer::ClientProducer;
use super::handshake::welcome;
use super::protocol::{self, ErrorCode, RefusedCode};
use super::renders::{answer_renders, draw_sized};
use super::requests::{
    RequestHandler, answer_import, due_picture, free_released, send_picture, takes_picture,
};
use super::socket::Connection;
use super::stamps::Stamps;
use super::statistics::ServeReport;
use super::stuck_draw::StuckDraw;
use super::{ServeOptions, ServeSetup, frame_time};
use wavefield_gpu::{Error, Result, note, report::Failures};
use wavefield_run::{Choice, ClientPanel, Config, Engine, FrameHook, Parameters, ParkedProducer};

const MESSAGES_A_FRAME: usize = 64;
/// If nothing is drawn for this long, messages stop waiting for a draw. They still wait for a pending
/// picture, because they could change what it shows. Even a hidden window draws such a picture.
const NO_DRAW: Duration = Duration::from_millis(100);
/// How often to run the acceptor without a client, even if nothing arrives: a deadline may have passed.
const NO_CLIENT: Duration = Duration::from_millis(20);

pub(crate) struct ServeHook {
    acceptor: Acceptor,
    setup: ServeSetup,
    client: Option<Client>,
    /// The connection of a dismissed client. It stays open while the queue still holds signals of `free`:
    /// once the connection is closed, the client may signal `free` itself.
    ending: Option<Connection>,
    /// The renderer's own producer, parked while a client's ring is in the engine.
    own: Option<ParkedProducer>,
    /// The client whose ring is in the engine, or was last.
    ring_of: String,
    /// Set while the GPU still draws what a dropped client wrote. Nothing else is drawn meanwhile.
    stuck: Option<StuckDraw>,
    stamps: Stamps,
    report: ServeReport,
    last_draw: Instant,
    /// Width and height of the last picture that was drawn to be seen; 0 before the first.
    picture: [u32; 2],
}

impl ServeHook {
    pub(crate) fn new(
        acceptor: Acceptor,
        choice: Choice,
        config: &Config,
        options: &ServeOptions,
        window: bool,
    ) -> Self {
        note!("note: listening on {}", options.socket().display());
        wavefield_gpu::threads::sleep_exactly();
        let setup = ServeSetup { choice, config: config.clone(), options: options.clone(), window };
        Self {
            acceptor,
            setup,
            client: None,
            ending: None,
            own: None,
            ring_of: String::new(),
            stuck: None,
            stamps: Stamps::default(),
            report: ServeReport::new(),
            last_draw: Instant::now(),
            picture: [0; 2],
        }
    }

    pub(crate) fn has_ring(&self) -> bool {
        self.own.is_some()
    }

    fn look(&mut self, engine: &mut Engine, parameters: &mut Parameters) -> Result<()> {
        if !self.is_ready() {
            self.dismiss(engine);
            self.turn_away();
            return self.restore(engine);
        }
        if self.ending.is_some() {
            // The previous `restore` failed, and its error was handled. Try again.
            self.restore(engine)?;
        }
        let draws = self.client.as_ref().map(|client| client.name.as_str());
        if let Some(greeted) = self.acceptor.look(draws) {
            self.client = welcome(greeted, engine, &self.setup, *parameters);
            if self.client.is_some() {
                let producer = engine.work.producer.profile().name;
                self.report.end(producer, None, "a client came", self.last_draw);
            }
        }
        self.listen(engine, parameters)?;
        self.take_ring(engine)?;
        if let Some(client) = &mut self.client {
            answer_renders(engine, client, self.own.is_some())?;
            answer_sized(engine, client, self.own.is_some())?;
            answer_import(engine, client)?;
            free_released(engine, client)?;
            let mut now = protocol::ClientParameters { field: *parameters, ..client.told };
            if self.own.is_some() {
                // The user changes these in the panel.
                let view = &engine.drawer.view;
                (now.limits, now.size, now.look) = (view.limits, view.size, view.look);
            }
            if client.told != now {
                client.send_parameters(None, now);
            }
            client.send_events();
            if client.ended.is_some() {
                self.dismiss(engine);
                self.restore(engine)?;
            }
        }
        Ok(())
    }

    fn turn_away(&mut self) {
        let Some(stuck) = &self.stuck else { return };
        let seconds = stuck.began.elapsed().as_secs_f64();
        let reason = format!(
            "the GPU still draws what {} wrote, for {seconds:.0} s so far: try again later",
            self.ring_of
        );
        while let Some(greeted) = self.acceptor.look(None) {
            refuse(greeted.connection, RefusedCode::Busy, reason.clone());
        }
    }

    fn wait_for_news(&self, left: Duration) {
        let client = self.client.as_ref();
        let quiet = client.map_or(NO_CLIENT, |client| client.quiet_time(self.has_ring()));
        let client = client.and_then(Client::watched);
        let mut watched: Vec<_> = self.acceptor.watched().chain(client).collect();
        // An error only ends the wait early.
        let _ = poll(&mut watched, Timespec::try_from(left.min(quiet)).ok().as_ref());
    }

    fn due(&self) -> Instant {
        match self.setup.options.pace {
            pace if pace > 0.0 => self.last_draw + Duration::from_secs_f64(1.0 / pace),
            _ if self.has_ring() => self.last_draw + frame_time(),
            _ => self.last_draw,
        }
    }

    /// Returns whether a renderer without a window has nothing to draw: nobody would see the same picture
    /// once more, or the renderer's own.
    pub(crate) fn rests(&self, engine: &Engine) -> bool {
        let ServeSetup { config, window, .. } = &self.setup;
        let counts_frames = config.frames.is_some() || config.verify;
        let draws = *window || counts_frames || self.measures(engine);
        !draws && engine.next_frame() > 0 && self.has_nothing_to_draw()
    }

    /// Returns whether renders are due: they show the frame that is on screen, so they come before the next.
    pub(crate) fn answers_first(&self, engine: &Engine) -> bool {
        !self.measures(engine)
            && self.client.as_ref().is_some_and(|client| client.has_due_render(self.has_ring()))
    }

    /// Returns whether frames are drawn again to choose what draws a client's views.
    pub(crate) fn measures(&self, engine: &Engine) -> bool {
        self.has_ring() && self.is_ready() && engine.needs_frames()
    }

    fn has_nothing_to_draw(&self) -> bool {
        let waits = |client: &Client| client.busy || client.leaving.is_some();
        self.is_ready()
            && !self.client.as_ref().is_some_and(waits)
            && !self.has_new()
            && !self.wants_picture()
    }

    fn listen(&mut self, engine: &mut Engine, parameters: &mut Parameters) -> Result<()> {
        let Some(client) = &mut self.client else { return Ok(()) };
        if self.last_draw.elapsed() >= NO_DRAW {
            client.busy &= client.awaits_picture();
            client.notice_end();
        }
        let counters = client.counters()?;
        if let Some(since) = client.leaving {
            client.see_off(counters, since);
            return Ok(());
        }
        let draws = self.own.is_some();
        let (watch, picture, setup) = (&self.report.watch, self.picture, &self.setup);
        let mut handler = RequestHandler { client, engine, parameters, setup, watch, draws, picture };
        for _ in 0..MESSAGES_A_FRAME {
            let Some(received) = handler.client.next_request(counters) else { break };
            handler.answer(received)?;
        }
        Ok(())
    }

    /// Puts the client's ring into the engine once its first frame is ready. Before that, the engine draws
    /// the renderer's own field.
    fn take_ring(&mut self, engine: &mut Engine) -> Result<()> {
        let Some(client) = &mut self.client else { return Ok(()) };
        // Draw a frame of the renderer first: on a software device, its time decides how long a later frame
        // may take.
        if engine.next_frame() == 0 || self.own.is_some() || !client.shared.borrow().session.ledger.has_next()
        {
            return Ok(());
        }
        let camera = client.first_camera(&self.setup.config);
        let producer = ClientProducer::new(engine.queue(), &client.name, &client.shared);
        let mut ring = ParkedProducer::new(Box::new(producer), client.drawing.clone(), camera);
        engine.exchange(&mut ring)?;
        self.own = Some(ring);
        self.ring_of.clone_from(&client.name);
        self.stamps.begin(engine, &client.name);
        client.camera = None;
        client.told.apply(&mut engine.drawer.view);
        Ok(())
    }

    /// Drops the client after `seconds` without a finished frame. [`ServeHook::restore`] then waits for the
    /// GPU.
    fn give_up(&mut self, engine: &Engine, seconds: f64) -> Result<()> {
        match &mut self.client {
            Some(client) => client.give_up(seconds),
            None => note!(
                "note: what {} wrote is still being drawn after {seconds:.0} s: waiting for the GPU",
                self.ring_of
            ),
        }
        self.stuck = Some(StuckDraw::begin(engine)?);
        Ok(())
    }

    /// Puts the renderer's own producer back and ends the connection, once the GPU is done with the client's
    /// frames. Fails if the GPU makes no progress for a long time: see [`StuckDraw::goes_on`].
    fn restore(&mut self, engine: &mut Engine) -> Result<()> {
        if let Some(stuck) = &mut self.stuck
            && stuck.goes_on(engine, &self.ring_of)?
        {
            return Ok(());
        }
        if let Some(own) = &mut self.own {
            engine.exchange(own)?;
            self.own = None;
            self.stamps.end(engine);
        }
        if let Some(stuck) = self.stuck.take() {
            let seconds = stuck.began.elapsed().as_secs_f64();
            note!(
                "note: {seconds:.1} s later the GPU is done with what {} wrote, and the field goes on",
                self.ring_of
            );
        }
        self.ending = None;
        Ok(())
    }

    /// Ends the client's session. Call [`ServeHook::restore`] next: it takes the client's ring out of the
    /// engine and closes the connection.
    fn dismiss(&mut self, engine: &Engine) {
        let Some(mut client) = self.client.take() else { return };
        let why = client.part();
        let producer = engine.work.producer.profile().name;
        self.report.end(producer, Some(&client.name), &why, self.last_draw);
        self.ending = Some(client.connection);
    }
}

/// Answers the pending `snapshot`, if its frame is shown and it has a size of its own.
fn answer_sized(engine: &mut Engine, client: &mut Client, draws: bool) -> Result<()> {
    let size = due_picture(client, draws).and_then(|picture| picture.size);
    let Some([width, height]) = size else { return Ok(()) };
    let extent = vk::Extent2D { width, height };
    let pixels = draw_sized(engine, client, extent, draws);
    if engine.work.has_failed() {
        // `drain` returns the error of the failed work.
        return engine.work.drain();
    }
    send_picture(engine, client, draws, extent, pixels);
    Ok(())
}

impl FrameHook for ServeHook {
    fn before_frame(&mut self, engine: &mut Engine, parameters: &mut Parameters) -> Result<()> {
        self.look(engine, parameters).or_else(|error| self.rescue(engine, error))
    }

    /// Checks for messages until there is something new to draw or a redraw is due. Returns now and then while
    /// the renderer rests, so that the caller can check whether a stop was requested.
    fn wait(&mut self, engine: &mut Engine, parameters: &mut Parameters) -> Result<()> {
        loop {
            self.before_frame(engine, parameters)?;
            if !self.is_ready() {
                // Return to the caller, which checks whether a stop was requested.
                std::thread::sleep(Duration::from_millis(2));
                return Ok(());
            }
            if self.answers_first(engine) || self.measures(engine) {
                return Ok(());
            }
            if self.rests(engine) {
                self.report.watch.ignore_gap();
                self.wait_for_news(NO_CLIENT);
                return Ok(());
            }
            let left = self.due().saturating_duration_since(Instant::now());
            if left.is_zero() || self.has_ring() && self.has_new() || self.wants_picture() {
                return Ok(());
            }
            self.wait_for_news(left);
        }
    }

    fn drawn(&mut self, seen: Option<vk::Extent2D>) {
        self.picture = seen.map_or(self.picture, |size| [size.width, size.height]);
        self.last_draw = Instant::now();
        let Some(client) = &mut self.client else {
            return self.report.watch.drawn(true);
        };
        client.drawn();
        let new = self.own.is_some() && client.shared.borrow().current.is_some_and(|current| current.new);
        self.report.watch.drawn(new);
        if new {
            client.last_new = self.last_draw;
            let now = clock_gettime(ClockId::Monotonic);
            client.shown_at = Some(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64);
        }
    }

    fn is_ready(&self) -> bool {
        self.stuck.is_none()
    }

    fn shown_client(&self) -> Option<&str> {
        // Omit the process ID, which is meant for messages.
        let (name, _) = self.ring_of.rsplit_once(" (process ")?;
        self.has_ring().then_some(name)
    }

    fn panel(&mut self) -> Option<&mut ClientPanel> {
        let has_ring = self.has_ring();
        self.client.as_mut().filter(|_| has_ring).map(|client| &mut client.panel)
    }

    fn has_new(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.shared.borrow().session.ledger.has_next())
    }

    fn is_still(&self) -> bool {
        self.has_ring() && self.client.is_some() && self.has_nothing_to_draw()
    }

    fn ignore_gap(&mut self) {
        self.report.watch.ignore_gap();
    }

    fn wants_picture(&self) -> bool {
        self.client.as_ref().is_some_and(|client| takes_picture(client, self.has_ring()))
    }

    fn send_picture(&mut self, engine: &mut Engine, extent: vk::Extent2D, pixels: Result<Vec<u8>>) {
        let draws = self.has_ring();
        if let Some(client) = &mut self.client {
            send_picture(engine, client, draws, extent, pixels);
        }
    }

    /// Drops a client whose array takes too long to draw, so that a retry can succeed. Returns other errors.
    fn rescue(&mut self, engine: &mut Engine, error: Error) -> Result<()> {
        match error {
            Error::Stuck { seconds, .. } if self.has_ring() && self.is_ready() => {
                self.give_up(engine, seconds)
            }
            error => Err(error),
        }
    }

    fn shut(&mut self) {
        self.acceptor.shut();
    }

    fn close(&mut self, engine: &Engine, reason: &str) -> Result<()> {
        self.acceptor.shut();
        let producer = engine.work.producer.profile().name;
        let client = self.client.take().map(|client| {
            client.send_error(ErrorCode::Ended, reason.into());
            client.name
        });
        self.report.end(producer, client.as_deref(), reason, self.last_draw);
        self.stamps.end(engine);
        self.report.print();
        let mut failures = Failures::default();
        failures.catch(self.report.write(engine, &self.setup));
        failures.catch(self.stamps.verdict(engine));
        failures.outcome()
    }
}
