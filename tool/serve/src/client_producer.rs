//! Produces the frames that a client in another process wrote.

use std::cell::RefCell;
use std::rc::Rc;

use ash::vk;
use vulkan_cuda::ownership::Owner;

use super::memory::ClientMemory;
use super::session::Session;
use wavefield_gpu::vulkan::{Device, Queue};
use wavefield_gpu::{Error, Result};
use wavefield_handoff::producer::{
    Batch, Frame, FrameSync, OwnershipTransfer, Produced, Producer, Profile, Source, Submit, Vertices,
};

/// Shared by the producer and the [`Client`](super::client::Client), both on the render thread.
pub(super) struct ClientState {
    pub(super) session: Session,
    pub(super) memory: ClientMemory,
    /// The frame that is currently shown.
    pub(super) current: Option<Current>,
    /// With memory `host`: copied frames that are not yet reported as `free`.
    pub(super) copied: Vec<u64>,
}

#[derive(Clone, Copy)]
pub(super) struct Current {
    pub(super) frame: u64,
    pub(super) vertices: Vertices,
    /// Whether this draw is the frame's first.
    pub(super) new: bool,
}

impl ClientState {
    fn choose(&mut self) -> Result<Current> {
        let Some((shown, new)) = self.session.choose() else {
            return Err(Error::Unsupported("the client has no frame yet".into()));
        };
        let vertices = match self.current {
            Some(current) if !new => current.vertices,
            _ => {
                let (buffer, offset) = self.memory.prepare(shown.origin)?;
                if matches!(self.memory, ClientMemory::Host(_)) {
                    self.copied.push(shown.frame);
                }
                Vertices { buffer, offset }
            }
        };
        let current = Current { frame: shown.frame, vertices, new };
        self.current = Some(current);
        Ok(current)
    }
}

/// Produces each new frame once it is ready, and repeats the previous frame until the next one is.
pub(super) struct ClientProducer {
    shared: Rc<RefCell<ClientState>>,
    /// The client's name, for messages after the client is gone.
    client: String,
    profile: Profile,
    device: Device,
    family: u32,
}

impl ClientProducer {
    pub(super) fn new(queue: &Queue, client: &str, shared: &Rc<RefCell<ClientState>>) -> Self {
        let inner = shared.borrow();
        let name = match &inner.memory {
            ClientMemory::Cuda(_) => "client, cuda",
            ClientMemory::Host(_) => "client, host",
        };
        let slots = inner.memory.slots();
        let profile = Profile {
            owner: inner.memory.owner(),
            // At most one frame in flight for each slot, as [`ClientMemory::prepare`] requires.
            max_in_flight: slots.len(),
            ..Profile::of_queue(name, slots)
        };
        let (device, family) = (queue.device().clone(), queue.family());
        Self { client: client.to_owned(), profile, device, family, shared: shared.clone() }
    }

    fn record(
        &self,
        transfer: OwnershipTransfer,
        commands: vk::CommandBuffer,
        frame: &Frame,
        source: Source,
    ) {
        // With memory `host` there is nothing to transfer: the submission makes the host's writes visible.
        if self.profile.owner == Owner::External {
            // SAFETY: the engine calls this while `commands` is recording, outside a render pass, for the
            // queue of `family`. `shared` keeps the client's memory alive.
            unsafe { transfer.record(&self.device, commands, self.family, source, frame.reads) };
        }
    }
}

impl Producer for ClientProducer {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn produce(&mut self, frame: &Frame) -> Result<Produced> {
        let mut shared = self.shared.borrow_mut();
        let current = shared.choose()?;
        Ok(Produced {
            source: Source::Vertices(current.vertices),
            // The client numbers its frames. Each frame is drawn until the next one is ready.
            number: current.frame,
            batch: Batch::of_one(frame.index),
            blocked: None,
        })
    }

    unsafe fn submit(&mut self, submit: Submit<'_>) -> Result<()> {
        // The submission waits for no semaphore. `ready` was already read, and a wait might never end,
        // because a client could set the counter back.
        let mut sync = FrameSync::default();
        if let ClientState { memory: ClientMemory::Cuda(memory), current: Some(current), .. } =
            &*self.shared.borrow()
        {
            // The slots of earlier frames are free only once everything submitted so far is done. Value 0 is
            // the timeline's start and cannot be signalled.
            let free = current.new && current.frame > 0;
            sync.signal_before = free.then(|| memory.free.submit_info(current.frame));
        }
        submit(sync)
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        self.record(OwnershipTransfer::Acquire, commands, frame, source);
    }

    fn record_after_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        self.record(OwnershipTransfer::Release, commands, frame, source);
    }

    fn progress(&self) -> Option<String> {
        let shared = self.shared.borrow();
        let whose = format!("it draws what {} wrote", self.client);
        let ClientMemory::Cuda(memory) = &shared.memory else { return Some(whose) };
        let (ready, free) = (memory.ready.value().ok()?, memory.free.value().ok()?);
        Some(format!("{whose}; the client's `ready` is at {ready}, Vulkan's `free` at {free}"))
    }
}
