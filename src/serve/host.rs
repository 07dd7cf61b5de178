//! The render thread's side of `serve`: between two frames it looks at the client, and does what it asked for.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ash::vk;
use rustix::io::Errno;
use vulkan_cuda::Ring;

use super::absent::Absent;
use super::door::{Door, Seated, Visitor, refuse};
use super::foreign::{ForeignProducer, Shared};
use super::kernels::Kernels;
use super::memory::{ClientMemory, sealed_copy};
use super::pace::{Watch, cpu_time};
use super::protocol::{
    DeviceName, ErrorCode, FromClient, FromServer, MemoryKind, Parameters, RefusedCode, State, VERSION,
    Welcome, short,
};
use super::report::Report;
use super::session::{Action, Fault, Session, Terms};
use super::socket::{Connection, Received, discard, take_leave};
use super::stamps::Stamps;
use super::{FRAME_SECONDS, Options, Setup, frame_time};
use crate::app::{Choice, Companion, Config, Engine, Installed, field_producer};
use crate::cuda::KernelSource;
use crate::producer::{ComputeProducer, Producer};
use crate::report::Failures;
use crate::wave::Vertex;
use crate::{Error, Result, note};

/// Bytes that a client's ring may have, beyond which it gets fewer slots than it asked for.
const MAX_RING_BYTES: u64 = 8 << 30;
/// Messages that are read between two frames.
const MESSAGES_A_FRAME: usize = 64;
/// How long the GPU may take from one frame to the next for what a client wrote, once that has cost the client its place. A
/// draw always comes to its end, but only waiting tells a slow GPU from one that hangs.
const SLOW: Duration = Duration::from_secs(300);
/// How long the last frames of a client that said goodbye may take.
const FAREWELL: Duration = Duration::from_secs(1);
/// Without a draw for so long (a hidden window) a client's requests are not kept waiting for one.
const NO_DRAW: Duration = Duration::from_millis(100);
/// What a client may leave unread and still be sent a picture, in bytes as the kernel counts them (some 800 a message).
const MAX_UNREAD: u64 = 32 << 10;
/// Failed requests of one client that are worth a line, and how long that may be in bytes; the client gets all of it.
const MAX_COMPLAINTS: u32 = 20;
const MAX_NOTE: usize = 1000;
/// How often `ready` is read while frames come in quick succession, and while they do not.
const QUICK: Duration = Duration::from_micros(50);
const CALM: Duration = Duration::from_millis(1);
/// How long after a client's last frame the next one is looked for quickly.
const QUICK_FOR: Duration = Duration::from_millis(100);

/// Serves one client after another.
pub(crate) struct Host {
    /// Closed in the end, and with it the socket goes.
    door: Option<Door>,
    setup: Setup,
    kernels: Kernels,
    client: Option<Client>,
    /// The renderer's own producer, while another one is in the engine.
    built_in: Option<Installed>,
    /// What a client wrote is still being drawn, and has cost it its place.
    slow: Option<Slow>,
    report: Report,
    stamps: Stamps,
    /// Whose ring is drawn, or was last.
    ring_of: String,
    last_draw: Instant,
    frames_drawn: u64,
}

/// The client that has the seat.
struct Client {
    name: String,
    connection: Arc<Connection>,
    shared: Rc<RefCell<Shared>>,
    /// Its ring is in the engine.
    draws: bool,
    /// When its kernel was put into the engine, in frames drawn, until the client has been told that it runs.
    kernel_since: Option<u64>,
    wants_picture: bool,
    /// One heavy request a frame is enough.
    busy: bool,
    /// When it said goodbye: what it made ready before is still shown.
    leaving: Option<Instant>,
    told: Parameters,
    last_new: Instant,
    /// Why it is to be dropped.
    ended: Option<Ended>,
    complaints: u32,
    _seat: Seated,
}

/// A draw that takes longer than `--timeout`.
struct Slow {
    began: Instant,
    /// When the GPU was last seen to finish a frame, and how many it had finished then.
    progress: Instant,
    finished: u64,
    /// The CPU time of this process by then.
    cpu: Duration,
}

/// How a client's time ends.
enum Ended {
    /// By itself.
    Left(&'static str),
    /// It is told why.
    Dropped(Fault),
}

impl Client {
    /// Sends, and remembers when that cannot be done: a renderer waits for nobody who does not read.
    fn send(&mut self, message: &FromServer, descriptors: &[OwnedFd]) {
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let ended = match self.connection.send(message, &descriptors) {
            Ok(()) => return,
            Err(Errno::AGAIN) => Ended::Dropped(Fault {
                code: ErrorCode::Slow,
                reason: "the client does not read what it is sent".into(),
            }),
            Err(_) => Ended::Left("its connection broke"),
        };
        self.ended.get_or_insert(ended);
    }

    /// Of a client that said goodbye the frames are still shown that were ready then: a ring of them at most.
    fn see_off(&mut self, seen: Result<(), Fault>, since: Instant) {
        let has_next = self.shared.borrow().session.has_next();
        self.ended = match seen {
            Err(fault) => Some(Ended::Dropped(fault)),
            // In a hidden window nothing is drawn.
            Ok(()) if has_next && since.elapsed() < FAREWELL => None,
            Ok(()) => Some(Ended::Left("it said goodbye")),
        };
    }

    fn fail(&mut self, request: &str, reason: impl ToString) {
        let reason = reason.to_string();
        if self.complaints < MAX_COMPLAINTS {
            self.complaints += 1;
            // A compiler's log quotes what the client sent, and this goes to a terminal.
            note!("note: {}: {request} failed: {}", self.name, short(&reason, MAX_NOTE));
        }
        self.send(&FromServer::Failed { request: request.into(), reason }, &[]);
    }
}

impl Host {
    /// Begins to listen to whoever connects.
    pub(crate) fn new(door: Door, choice: Choice, config: &Config, options: &Options) -> Self {
        note!("note: listening on {}", door.path().display());
        // Linux lets a sleep of 50 µs take twice that, unless told otherwise; nothing is lost without.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
        Self {
            door: Some(door),
            kernels: Kernels::new(&choice, config, options),
            setup: Setup { choice, config: config.clone(), options: options.clone() },
            client: None,
            built_in: None,
            slow: None,
            report: Report::new(),
            stamps: Stamps::default(),
            ring_of: String::new(),
            last_draw: Instant::now(),
            frames_drawn: 0,
        }
    }

    fn look(&mut self, engine: &mut Engine, parameters: &mut Parameters) -> Result<()> {
        if self.slow.is_some() {
            self.dismiss(engine)?;
            self.turn_away();
            return self.restore(engine);
        }
        if self.client.is_none()
            && let Some(visitor) = self.visitor()
        {
            self.admit(engine, visitor, *parameters);
        }
        self.listen(engine, parameters)?;
        self.take_kernel(engine)?;
        self.take_ring(engine)?;
        self.free_released(engine)?;
        self.tell(*parameters);
        if self.client.as_ref().is_some_and(|client| client.ended.is_some()) {
            self.dismiss(engine)?;
            self.restore(engine)?;
        }
        Ok(())
    }

    fn visitor(&self) -> Option<Visitor> {
        self.door.as_ref()?.visitor()
    }

    /// When to draw the same again, at the latest.
    fn due(&self) -> Instant {
        let waits_for_client = self.client.as_ref().is_some_and(|client| client.draws);
        match self.setup.options.pace {
            pace if pace > 0.0 => self.last_draw + Duration::from_secs_f64(1.0 / pace),
            _ if waits_for_client => self.last_draw + frame_time(),
            _ => self.last_draw,
        }
    }

    fn has_new(&self) -> bool {
        self.client
            .as_ref()
            .is_some_and(|client| client.draws && client.shared.borrow().session.may_advance())
    }

    /// Makes a newcomer's memory and bids it welcome.
    fn admit(&mut self, engine: &mut Engine, visitor: Visitor, parameters: Parameters) {
        let Visitor { connection, hello, name, seat } = visitor;
        let terms = Terms {
            memory: hello.memory,
            depth: self.ring_for(hello.ring).depth(),
            frame_bytes: self.setup.config.grid.bytes(),
            largest_allocation: engine.device().info().largest_buffer.0,
            offset_alignment: engine.device().storage_alignment().max(size_of::<Vertex>() as u64),
            trust: self.setup.options.trust && hello.memory == MemoryKind::Cuda,
        };
        let made = self.welcome(engine, terms, parameters);
        let sent = made.map_err(|error| error.to_string()).and_then(|(welcome, memory, descriptors)| {
            let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            let welcome = FromServer::Welcome(Box::new(welcome));
            connection.send(&welcome, &descriptors).map_err(|error| error.to_string())?;
            Ok(memory)
        });
        match sent {
            Ok(memory) => {
                note!("note: {name} draws, with memory {} in a ring of {}", hello.memory.name(), terms.depth);
                self.report.end(engine.producer().name(), None, "a client came");
                self.report.begin(self.last_draw);
                let connection = Arc::new(connection);
                self.client = Some(Client {
                    name,
                    shared: Shared::new(Session::new(terms), memory, &connection),
                    connection,
                    draws: false,
                    kernel_since: None,
                    wants_picture: false,
                    busy: false,
                    leaving: None,
                    told: parameters,
                    last_new: Instant::now(),
                    ended: None,
                    complaints: 0,
                    _seat: seat,
                });
            }
            Err(reason) => {
                note!("note: refused {name}: {reason}");
                refuse(connection, RefusedCode::Memory, reason);
            }
        }
    }

    fn ring_for(&self, wanted: Option<u32>) -> Ring {
        let own = self.setup.config.ring.depth() as u32;
        let most = (MAX_RING_BYTES / self.setup.config.grid.bytes().max(1)).clamp(2, 32) as u32;
        let depth = wanted.unwrap_or(own).clamp(2, most.max(own).max(2));
        Ring::new(depth).unwrap_or_default()
    }

    fn welcome(
        &self,
        engine: &mut Engine,
        terms: Terms,
        parameters: Parameters,
    ) -> Result<(Welcome, ClientMemory, Vec<OwnedFd>)> {
        let (device, grid) = (engine.device().clone(), self.setup.config.grid);
        let info = device.info();
        if terms.memory == MemoryKind::Cuda && !self.setup.choice.can_export() {
            return Err(Error::Unsupported(format!(
                "{} cannot export memory and timeline semaphores, which memory `cuda` needs: ask for memory `host`",
                info.name
            )));
        }
        let ring = Ring::new(terms.depth as u32).unwrap_or_default();
        let memory = ClientMemory::new(&device, terms.memory, grid, ring)?;
        if self.setup.config.verify {
            memory.blank(engine)?;
        }
        let (slots, descriptors) = memory.export(grid)?;
        let semaphore = |place: u32| (terms.memory == MemoryKind::Cuda).then_some(terms.depth as u32 + place);
        let welcome = Welcome {
            protocol: VERSION,
            server: concat!("wavefield ", env!("CARGO_PKG_VERSION")).into(),
            device: DeviceName {
                name: info.name.clone(),
                uuid: info.sharing.uuid.to_string().replace('-', ""),
            },
            memory: terms.memory,
            grid: [grid.cols, grid.rows],
            components: 4,
            dtype: "<f4".into(),
            vertex_bytes: size_of::<Vertex>() as u64,
            row_bytes: u64::from(grid.cols) * size_of::<Vertex>() as u64,
            offset_alignment: terms.offset_alignment,
            ring: terms.depth as u32,
            slots,
            ready: semaphore(0),
            free: semaphore(1),
            frame_seconds: FRAME_SECONDS,
            trust: terms.trust,
            parameters,
        };
        Ok((welcome, memory, descriptors))
    }

    /// Reads the client's counter and its messages.
    fn listen(&mut self, engine: &mut Engine, parameters: &mut Parameters) -> Result<()> {
        let Some(client) = &mut self.client else { return Ok(()) };
        client.busy &= self.last_draw.elapsed() < NO_DRAW;
        // The counters first: what was said before `ready` was signalled has arrived, and is read below before it counts.
        let counters = match &client.shared.borrow().memory {
            ClientMemory::Cuda(memory) => Some((memory.ready.value()?, memory.free.value()?)),
            ClientMemory::Host(_) => None,
        };
        let see = |session: &mut Session| match counters {
            Some((ready, free)) => session.see_free(free).and_then(|()| session.see_ready(ready)),
            None => Ok(()),
        };
        if let Some(since) = client.leaving {
            let seen = see(&mut client.shared.borrow_mut().session);
            client.see_off(seen, since);
            return Ok(());
        }
        for _ in 0..MESSAGES_A_FRAME {
            let Some(client) = self
                .client
                .as_mut()
                .filter(|client| !client.busy && client.leaving.is_none() && client.ended.is_none())
            else {
                return Ok(());
            };
            let (packet, descriptors) = match client.connection.receive() {
                Received::Packet(packet, descriptors) => (packet, descriptors),
                Received::Nothing => {
                    client.ended = see(&mut client.shared.borrow_mut().session).err().map(Ended::Dropped);
                    return Ok(());
                }
                Received::Closed => {
                    client.ended = Some(Ended::Left("its connection closed"));
                    return Ok(());
                }
                Received::TooLong(descriptors) => {
                    discard(descriptors);
                    let reason = "a message longer than 65536 bytes".into();
                    client.ended = Some(Ended::Dropped(Fault { code: ErrorCode::Message, reason }));
                    return Ok(());
                }
            };
            let parsed = FromClient::parse(&packet).map_err(Fault::new(ErrorCode::Message));
            let judged = parsed
                .and_then(|message| client.shared.borrow_mut().session.receive(message, descriptors.len()));
            match judged {
                Ok(action) => {
                    client.busy = action.is_heavy();
                    self.act(engine, parameters, action, descriptors)?;
                }
                Err(fault) => {
                    discard(descriptors);
                    client.ended = Some(Ended::Dropped(fault));
                }
            }
        }
        Ok(())
    }

    /// Does what the client asked for.
    fn act(
        &mut self,
        engine: &mut Engine,
        parameters: &mut Parameters,
        action: Action,
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<()> {
        let Some(client) = &mut self.client else { return Ok(()) };
        match action {
            // What was released is freed at the end of the turn.
            Action::None | Action::Release { .. } => {}
            Action::Leave => client.leaving = Some(Instant::now()),
            Action::Fail { request, reason } => {
                discard(descriptors);
                client.fail(request, reason);
            }
            Action::Kernel { entry, bytes } => {
                let Some(file) = descriptors.pop() else { return Ok(()) };
                if let Err(error) = self.kernels.compile(&client.name, entry, file, bytes) {
                    client.fail("kernel", error);
                }
            }
            Action::Allocate { bytes } => {
                let mut shared = client.shared.borrow_mut();
                let id = shared.session.next_id();
                let made = shared.memory.allocate(engine.device(), id, bytes);
                if made.is_ok() {
                    shared.session.allocated(bytes);
                }
                drop(shared);
                match made {
                    Ok((place, file)) => client.send(&FromServer::Allocated { id, place }, &[file]),
                    Err(error) => client.fail("allocate", error),
                }
            }
            Action::Snapshot if client.wants_picture => client.fail("snapshot", "one is on its way already"),
            Action::Snapshot => client.wants_picture = true,
            Action::Set(wishes) => match wishes.apply(*parameters) {
                Ok(wanted) => {
                    if wanted.colormap != parameters.colormap {
                        engine.set_color_map(wanted.colormap)?;
                    }
                    *parameters = wanted;
                    client.told = wanted;
                    client.send(&FromServer::Parameters { parameters: wanted }, &[]);
                }
                Err(reason) => client.fail("set", reason),
            },
            Action::Status => {
                let state = client.state(engine, &self.report.watch, self.frames_drawn);
                client.send(&FromServer::State(state), &[]);
            }
        }
        Ok(())
    }

    /// Tells the client what the user has changed.
    fn tell(&mut self, parameters: Parameters) {
        if let Some(client) = self.client.as_mut().filter(|client| client.told != parameters) {
            client.told = parameters;
            client.send(&FromServer::Parameters { parameters }, &[]);
        }
    }

    /// Puts the client's ring into the engine once its first frame is there; until then the picture goes on.
    fn take_ring(&mut self, engine: &mut Engine) -> Result<()> {
        let Some(client) = &mut self.client else { return Ok(()) };
        // Not before a frame of the renderer's own: what that takes tells how long one may take here.
        if self.frames_drawn == 0 || client.draws || !client.shared.borrow().session.has_next() {
            return Ok(());
        }
        let producer = ForeignProducer::new(engine.queue(), &client.name, &client.shared);
        let old = exchange(engine, Box::new(producer))?;
        client.draws = true;
        self.ring_of.clone_from(&client.name);
        self.stamps.begin(engine, &client.name);
        // It has no kernel running, so what was there is the renderer's own.
        self.built_in = Some(old);
        Ok(())
    }

    /// Frees what the client gave back, once the GPU is done with it.
    fn free_released(&mut self, engine: &mut Engine) -> Result<()> {
        let Some(client) = &mut self.client else { return Ok(()) };
        if client.shared.borrow().session.has_released() {
            // If that fails they stay on the books, and are freed next time.
            engine.drain()?;
            let Shared { session, memory, .. } = &mut *client.shared.borrow_mut();
            session.take_released().into_iter().for_each(|id| memory.release(id));
            // Recorded commands may name what is gone.
            engine.forget_recorded();
        }
        Ok(())
    }

    /// Puts a kernel that was tried and compiled into the engine.
    fn take_kernel(&mut self, engine: &mut Engine) -> Result<()> {
        match self.kernels.compiled() {
            None => Ok(()),
            Some(Ok(source)) => self.run_kernel(engine, source),
            Some(Err(error)) => {
                if let Some(client) = &mut self.client {
                    client.fail("kernel", error);
                }
                Ok(())
            }
        }
    }

    fn run_kernel(&mut self, engine: &mut Engine, source: KernelSource) -> Result<()> {
        let Some(client) = &mut self.client else { return Ok(()) };
        let producer = match self.kernels.producer(engine.queue(), &source) {
            Ok(producer) => producer,
            Err(error) => {
                client.fail("kernel", error);
                return Ok(());
            }
        };
        let old = match exchange_own(engine, producer) {
            Ok(old) => old,
            // The kernel that ran until now has faulted just now.
            Err(error) => return self.rescue(engine, error),
        };
        self.stamps.end(engine);
        let Some(client) = &mut self.client else { return Ok(()) };
        if self.built_in.is_none() {
            self.built_in = Some(old);
        }
        client.draws = false;
        client.shared.borrow_mut().session.kernel_runs();
        client.kernel_since = Some(self.frames_drawn);
        self.kernels.runs(source);
        Ok(())
    }

    /// After a fault: takes down everything of CUDA, makes it anew, and goes on with `next`, or the renderer's own kernel.
    fn renew(&mut self, engine: &mut Engine, error: Error, next: Option<KernelSource>) -> Result<()> {
        // Everything that holds the faulted context has to go before there can be a new one.
        let Some(faulted) = engine.swap_failed(Installed::new(Box::new(Absent))) else { return Err(error) };
        drop(faulted);
        self.built_in = None;
        let given_up = self.kernels.forget_context();

        let made = field_producer(engine.queue(), &self.setup.choice, &self.setup.config);
        let built_in = match made {
            Ok(producer) => producer,
            Err(again) => {
                note!(
                    "note: CUDA does not come back after that fault ({again}); a Vulkan compute shader takes over"
                );
                self.kernels.give_up(format!("CUDA did not come back after a kernel's fault: {again}"));
                Box::new(ComputeProducer::new(
                    engine.device(),
                    self.setup.config.grid,
                    self.setup.config.ring,
                )?)
            }
        };
        exchange_own(engine, built_in)?;
        if let Some(client) = &mut self.client {
            client.kernel_since = None;
            // If it was its ring that was drawn, that comes back with its next frame.
            client.draws = false;
            client.fail("kernel", error);
            if given_up {
                let reason = "the kernel that ran before it faulted meanwhile, so it was not tried to the end: send it again";
                client.fail("kernel", reason);
            }
        }
        if let Some(source) = next {
            self.run_kernel(engine, source)?;
            if let Some(client) = &mut self.client {
                // It was told of this one before.
                client.kernel_since = None;
            }
        }
        Ok(())
    }

    fn say_stuck(&mut self, error: &Error) {
        if let Some(client) = &self.client {
            let reason =
                format!("{error}; a kernel that does not end cannot be taken back, so the renderer ends");
            let _ = client.connection.send(&FromServer::Error { code: ErrorCode::Stuck, reason }, &[]);
        }
    }

    /// The client's time is over: its memory goes, and the renderer's own producer comes back.
    fn dismiss(&mut self, engine: &mut Engine) -> Result<()> {
        let Some(client) = self.client.take() else { return Ok(()) };
        let why = match client.ended {
            Some(Ended::Dropped(fault)) => {
                let why = format!("dropped: {}", fault.reason);
                let _ = client
                    .connection
                    .send(&FromServer::Error { code: fault.code, reason: fault.reason }, &[]);
                why
            }
            Some(Ended::Left(why)) => why.into(),
            None => "the renderer let it go".into(),
        };
        note!("note: {}: {why}", client.name);
        self.report.end(engine.producer().name(), Some(&client.name), &why);
        client.shared.borrow().let_go();
        if self.built_in.is_some() && self.kernels.running().is_some() {
            match engine.swap(&mut self.built_in) {
                Ok(old) => drop(old),
                // Its kernel faulted with its last frames; without the client `rescue` goes back to the built-in.
                Err(error) => self.rescue(engine, error)?,
            }
        }
        self.kernels.clear();
        if let Some(connection) = Arc::into_inner(client.connection) {
            take_leave(connection);
        }
        self.report.begin(self.last_draw);
        Ok(())
    }

    /// Brings the renderer's own producer back in the place of a client's ring that has left, once the GPU is done with that.
    ///
    /// # Errors
    /// The GPU does not finish what the client wrote, and finishes nothing else either.
    fn restore(&mut self, engine: &mut Engine) -> Result<()> {
        if let Some(slow) = &mut self.slow {
            let finished = engine.frames_finished()?;
            // Of a software device it can be seen that it works.
            let works = engine.device().info().kind == vk::PhysicalDeviceType::CPU
                && cpu_time() > slow.cpu + SLOW / 10;
            if finished > slow.finished || works {
                (slow.finished, slow.progress, slow.cpu) = (finished, Instant::now(), cpu_time());
            }
            if finished < engine.next_frame() {
                if slow.progress.elapsed() < SLOW {
                    return Ok(());
                }
                return Err(Error::Stuck {
                    device: engine.device().info().name.clone(),
                    seconds: slow.progress.elapsed().as_secs_f64(),
                    progress: format!("it was given what {} wrote, and may hang", self.ring_of),
                });
            }
        }
        if self.built_in.is_some() {
            drop(engine.swap(&mut self.built_in)?);
            self.stamps.end(engine);
        }
        if let Some(slow) = self.slow.take() {
            let seconds = slow.began.elapsed().as_secs_f64();
            note!(
                "note: {seconds:.1} s later the GPU is done with what {} wrote, and the field goes on",
                self.ring_of
            );
        }
        Ok(())
    }

    /// What a client wrote takes too long to draw, or (with `--trust`) does not come: that costs it its place. The GPU cannot
    /// be stopped, so the renderer waits for it, in [`Host::restore`].
    fn give_up(&mut self, engine: &mut Engine, seconds: f64) -> Result<()> {
        match &mut self.client {
            Some(client) => {
                let reason = match client.shared.borrow().session.terms().trust {
                    true => format!(
                        "no frame was finished for {seconds:.0} s (--timeout): a promised one did not come"
                    ),
                    false => format!(
                        "drawing its vertices takes too long: no frame was finished for {seconds:.0} s (--timeout). \
                         Thousands of triangles that each cover much of the picture do that: vertices that are neighbours \
                         in the grid should be neighbours in space"
                    ),
                };
                client.ended = Some(Ended::Dropped(Fault { code: ErrorCode::Stuck, reason }));
            }
            None => note!(
                "note: what {} wrote is still being drawn after {seconds:.0} s: waiting for the GPU",
                self.ring_of
            ),
        }
        let (now, finished) = (Instant::now(), engine.frames_finished()?);
        self.slow = Some(Slow { began: now, progress: now, finished, cpu: cpu_time() });
        Ok(())
    }

    /// Newcomers while nothing can be drawn are told why.
    fn turn_away(&self) {
        while let (Some(slow), Some(visitor)) = (&self.slow, self.visitor()) {
            let reason = format!(
                "the GPU still draws what {} wrote, for {:.0} s so far: try again later",
                self.ring_of,
                slow.began.elapsed().as_secs_f64()
            );
            refuse(visitor.connection, RefusedCode::Busy, reason);
        }
    }
}

impl Companion for Host {
    fn turn(&mut self, engine: &mut Engine, parameters: &mut Parameters) -> Result<()> {
        match self.look(engine, parameters) {
            Ok(()) => Ok(()),
            Err(error) => self.rescue(engine, error),
        }
    }

    /// Without a display's beat: takes turns until there is something new to draw, or it is time to draw again anyway.
    fn wait(&mut self, engine: &mut Engine, parameters: &mut Parameters) -> Result<()> {
        loop {
            self.turn(engine, parameters)?;
            if !self.is_ready() {
                // Back to the caller, who may have been asked to stop.
                std::thread::sleep(Duration::from_millis(2));
                return Ok(());
            }
            let left = self.due().saturating_duration_since(Instant::now());
            if left.is_zero() || self.has_new() {
                return Ok(());
            }
            match &self.client {
                Some(client) => client.rest(left),
                None => std::thread::sleep(left.min(Duration::from_millis(2))),
            }
        }
    }

    /// A frame was submitted.
    fn drawn(&mut self, engine: &Engine) -> Result<()> {
        self.last_draw = Instant::now();
        self.frames_drawn += 1;
        let Some(client) = &mut self.client else {
            self.report.watch.drawn(true);
            return Ok(());
        };
        client.busy = client.wants_picture;
        let copied = std::mem::take(&mut client.shared.borrow_mut().copied);
        for frame in copied {
            client.send(&FromServer::Free { frame }, &[]);
        }
        let kernel = self.kernels.running().is_some();
        let new = kernel || (client.draws && client.shared.borrow().drew_new());
        self.report.watch.drawn(new);
        if new {
            client.last_new = self.last_draw;
        }
        if let Some(since) = client.kernel_since
            && engine.frames_finished()? > since
        {
            client.kernel_since = None;
            let name = self.kernels.running().map_or("", |source| &source.name);
            let producer = format!("{}, {name}", engine.producer().name());
            note!("note: {producer} runs");
            client.send(&FromServer::Running { producer }, &[]);
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.slow.is_none()
    }

    /// Whether the client waits for a picture.
    fn wants_picture(&self) -> bool {
        let Some(client) = self.client.as_ref().filter(|client| client.wants_picture) else { return false };
        // Its first frame, if that is ready, is drawn next, and belongs in it.
        let drawn = client.draws || !client.shared.borrow().session.has_next();
        // Each unread one would be a picture's worth of memory.
        drawn && client.connection.unread() <= MAX_UNREAD
    }

    /// Sends it: four bytes a pixel, sRGB.
    fn send_picture(&mut self, extent: vk::Extent2D, pixels: Result<Vec<u8>>) {
        let Some(client) = &mut self.client else { return };
        (client.wants_picture, client.busy) = (false, false);
        match pixels.and_then(|pixels| Ok((pixels.len() as u64, sealed_copy("wavefield picture", &pixels)?)))
        {
            Ok((bytes, file)) => {
                let vk::Extent2D { width, height } = extent;
                let format = "rgba8-srgb".into();
                client.send(&FromServer::Picture { width, height, format, bytes }, &[file]);
            }
            Err(error) => client.fail("snapshot", error),
        }
    }

    /// A frame could not be made. If a client's kernel is to blame, everything of CUDA is taken down and made anew, and the
    /// frames go on; then `Ok`, and the frame is to be tried again.
    ///
    /// # Errors
    /// Whatever else it was.
    fn rescue(&mut self, engine: &mut Engine, error: Error) -> Result<()> {
        if self.kernels.running().is_none() {
            // It is a client's ring that is drawn.
            let foreign = self.built_in.is_some() && self.slow.is_none();
            return match error {
                Error::Stuck { seconds, .. } if foreign => self.give_up(engine, seconds),
                error => Err(error),
            };
        }
        if matches!(error, Error::Stuck { .. }) {
            self.say_stuck(&error);
        }
        if !matches!(error, Error::Kernel { .. }) {
            return Err(error);
        }
        let last_good = self.kernels.take_last_good();
        self.renew(engine, error, last_good)
    }

    fn close(&mut self, engine: &Engine, reason: &str) -> Result<()> {
        self.door = None;
        let producer = engine.producer().name();
        match self.client.take() {
            Some(client) => {
                let message = FromServer::Error { code: ErrorCode::Ended, reason: reason.into() };
                let _ = client.connection.send(&message, &[]);
                self.report.end(producer, Some(&client.name), reason);
            }
            None => self.report.end(producer, None, reason),
        }
        self.stamps.end(engine);
        self.report.print();
        let mut failures = Failures::default();
        failures.catch(self.report.write(engine, &self.setup));
        failures.catch(self.stamps.verdict(engine));
        failures.outcome()
    }
}

impl Client {
    /// Sleeps until there may be news, but not longer than `left`.
    fn rest(&self, left: Duration) {
        let by_semaphore = self.shared.borrow().session.terms().memory == MemoryKind::Cuda;
        match by_semaphore {
            // What it says next waits for the next draw.
            _ if self.busy => std::thread::sleep(left.min(CALM)),
            true if self.draws && self.last_new.elapsed() < QUICK_FOR => std::thread::sleep(left.min(QUICK)),
            true => std::thread::sleep(left.min(CALM)),
            // All of its news comes by the socket.
            false => self.connection.wait(left.min(CALM)),
        }
    }

    fn state(&self, engine: &Engine, watch: &Watch, frames_drawn: u64) -> State {
        let shared = self.shared.borrow();
        let ledger = shared.session.ledger();
        let copied = match shared.memory {
            ClientMemory::Host(_) => ledger.next(),
            ClientMemory::Cuda(_) => ledger.free(),
        };
        State {
            frames_drawn,
            frame_shown: ledger.shown().map(|shown| shown.frame),
            ready: ledger.ready(),
            free: copied,
            producer: engine.producer().name().into(),
            seconds: watch.seconds(),
            gaps_us: watch.draws.spread(),
            late_us: watch.late_us(),
        }
    }
}

/// [`exchange`] with a producer that fills its slots itself, and so stamps them where frames are checked.
fn exchange_own(engine: &mut Engine, mut producer: Box<dyn Producer>) -> Result<Installed> {
    if let Err(error) = engine.follow(&mut *producer) {
        if matches!(error, Error::Stuck { .. } | Error::Stopped(_)) {
            std::mem::forget(producer);
        }
        return Err(error);
    }
    exchange(engine, producer)
}

/// [`Engine::swap`] with a new producer. Where nothing comes to rest the new one is not dropped either.
fn exchange(engine: &mut Engine, producer: Box<dyn Producer>) -> Result<Installed> {
    let mut incoming = Some(Installed::new(producer));
    let swapped = engine.swap(&mut incoming);
    if matches!(swapped, Err(Error::Stuck { .. } | Error::Stopped(_))) {
        std::mem::forget(incoming.take());
    }
    swapped
}
