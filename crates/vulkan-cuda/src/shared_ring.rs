//! Step 5: slots that go from CUDA to Vulkan and back, frame by frame. This is what most programs need of this crate.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use vulkan_cuda::{Pair, Result, SharedBuffer, SharedRing, Stream, shared_ring::Reads};
//! # use ash::vk;
//! # fn launch_kernel(_slot: &SharedBuffer) {}
//! # unsafe fn example(pair: Pair, stream: Arc<dyn Stream>, family: u32, commands: vk::CommandBuffer) -> Result<()> {
//! let reads = Reads {
//!     family,
//!     stage: vk::PipelineStageFlags::VERTEX_SHADER,
//!     access: vk::AccessFlags::SHADER_READ,
//! };
//! let slot = |_| SharedBuffer::new(&pair, 1 << 20, vk::BufferUsageFlags::STORAGE_BUFFER);
//! let slots = (0..3).map(slot).collect::<Result<_>>()?;
//! let mut ring = SharedRing::new(&pair, stream, slots, reads)?;
//!
//! // Each frame:
//! let write = ring.write()?; // CUDA waits for the slot, on the GPU
//! launch_kernel(write.slot()); // on the ring's stream
//! let read = write.finish()?; // CUDA signals
//! ring.record_acquire(&read, commands);
//! // … draw from ring.slots()[read.slot()] …
//! ring.record_release(&read, commands);
//! // … submit `commands`: wait for read.wait(), signal read.signal() …
//! read.submitted();
//! # Ok(())
//! # }
//! ```
//!
//! # What goes wrong, and what then
//!
//! - *A [`Write`] is dropped* (a kernel did not start, a `?` in between): nothing is signalled, and the frame's number is not
//!   used up. The next write takes the same slot.
//! - *A [`Read`] is dropped* (a submission failed, a window was minimised): the frame is given up. CUDA gets its slot back as
//!   soon as Vulkan has read the next frame. Where no read can signal in time, the CPU signals in Vulkan's place.
//! - *CUDA faults* while Vulkan waits for it: [`SharedRing::abort`].
//! - *The ring is dropped* while the GPU uses it: the drop waits for at most two seconds. What is not done by then is leaked,
//!   because the GPU may still use it.
//!
//! # What the CPU waits for
//!
//! Nothing: `write` and `finish` only enqueue. But CUDA runs at most as many frames ahead as the ring has slots, so a CPU that
//! enqueues faster than the GPU works fills the queues. Pace it as you pace your frames: on a fence or a timeline that
//! *Vulkan* signals, which wakes the CPU at once.
//!
//! # What it costs
//!
//! A GPU does not run CUDA's and Vulkan's work at once: it switches from one context to the other, which takes about 150 µs
//! each way on an H200 (driver 580), whatever the size of a slot. With one slot every frame pays for both switches. With K
//! slots about K frames share them; the price is latency, since a frame may be K frames old when it is drawn. Where a frame's
//! own work is longer than the switch, each freed slot lets CUDA in for one frame only: then write several frames in a row
//! ([`SharedRing::reserve`]).

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ash::vk;

use crate::cuda::{Stream, api};
use crate::error::cleanup_error;
use crate::image::MappedImage;
use crate::memory::SharedBuffer;
use crate::ownership::{self, Access, Owner};
use crate::pair::Pair;
use crate::ring::{MAX_DEPTH, Ring};
use crate::timeline::SharedTimeline;
use crate::{Error, Result};

/// What changes hands: one shared buffer or image, with whatever else belongs to a slot.
pub trait Slot {
    /// The Vulkan object that the barriers name.
    fn resource(&self) -> Resource;
}

/// A Vulkan object that changes hands.
#[derive(Clone, Copy, Debug)]
pub enum Resource {
    /// The whole buffer.
    Buffer(vk::Buffer),
    /// All levels and layers, in [`ownership::SHARED_LAYOUT`]. Before CUDA's first write it needs
    /// [`SharedRing::record_first_release`].
    Image(vk::Image),
}

impl Slot for SharedBuffer {
    fn resource(&self) -> Resource {
        Resource::Buffer(self.vulkan())
    }
}

impl Slot for MappedImage {
    fn resource(&self) -> Resource {
        Resource::Image(self.exported().raw())
    }
}

impl<S: Slot + ?Sized> Slot for Arc<S> {
    fn resource(&self) -> Resource {
        (**self).resource()
    }
}

/// How Vulkan reads a slot.
#[derive(Clone, Copy, Debug)]
pub struct Reads {
    /// The queue family that reads.
    pub family: u32,
    /// The stages that read. The submission waits for CUDA there and no earlier.
    pub stage: vk::PipelineStageFlags,
    /// How they read.
    pub access: vk::AccessFlags,
}

/// A ring of slots that one CUDA stream writes and Vulkan reads, in the same order, with the two timelines that hand them over.
///
/// It has one stream for good: the signals of two streams could overtake each other, and a timeline must only grow.
pub struct SharedRing<S: Slot> {
    // Given back by hand: see `Drop`.
    parts: ManuallyDrop<Parts<S>>,
    plan: Ring,
    reads: Reads,
    /// The next frame.
    frame: u64,
    /// The stream has waited for the slots of all frames below this one.
    reserved: u64,
    /// A write was dropped, and its kernel may still run.
    unfinished: bool,
}

struct Parts<S> {
    slots: Vec<S>,
    hand_over: Arc<HandOver>,
    stream: Arc<dyn Stream>,
    pair: Pair,
}

/// What ring and reads share.
struct HandOver {
    /// CUDA signals: a slot is written.
    ready: SharedTimeline,
    /// Vulkan signals: a slot was read.
    free: SharedTimeline,
    ledger: Mutex<Ledger>,
}

impl HandOver {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // A poisoned lock only says that another thread panicked; the ledger is whole.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signals from the CPU what CUDA waits for and no submission signals.
    fn settle(&self, ledger: &mut Ledger) -> Result<()> {
        while let Some(Stranded { after, value }) = ledger.stranded() {
            // A submission's signal must not come after a greater one.
            if !wait(|| Ok(self.free.value()? >= after))? {
                return Err(Error::Rule(format!(
                    "Vulkan has not read a frame that it was given a second ago (value {after} of `free`)"
                )));
            }
            // SAFETY: every signal below it has happened; those above it wait for CUDA, which waits for this one.
            unsafe { self.free.signal_from_host(value) }?;
        }
        Ok(())
    }
}

/// Asks for a second whether something is done.
fn wait(mut is_done: impl FnMut() -> Result<bool>) -> Result<bool> {
    let begin = Instant::now();
    while !is_done()? {
        if begin.elapsed() > Duration::from_secs(1) {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(true)
}

impl<S: Slot> SharedRing<S> {
    /// Hands over `slots` from `stream` to Vulkan. CUDA owns all of them at first.
    ///
    /// # Errors
    /// No slots or more than [`MAX_DEPTH`], a stream of another context, and those of [`SharedTimeline::new`].
    pub fn new(pair: &Pair, stream: Arc<dyn Stream>, slots: Vec<S>, reads: Reads) -> Result<Self> {
        pair.cuda().require_same(stream.context(), "SharedRing::new")?;
        let depth = u32::try_from(slots.len()).ok().and_then(Ring::new);
        let plan = depth.ok_or_else(|| {
            Error::Rule(format!("a ring has 1 to {MAX_DEPTH} slots, and {} were given", slots.len()))
        })?;
        let hand_over = Arc::new(HandOver {
            ready: SharedTimeline::new(pair)?,
            free: SharedTimeline::new(pair)?,
            ledger: Mutex::default(),
        });
        let parts = Parts { slots, hand_over, stream, pair: pair.clone() };
        Ok(Self { parts: ManuallyDrop::new(parts), plan, reads, frame: 0, reserved: 0, unfinished: false })
    }

    /// The slots, to be indexed by [`Read::slot`].
    pub fn slots(&self) -> &[S] {
        &self.parts.slots
    }

    /// Begins the next frame: CUDA's stream waits, on the GPU, until Vulkan has read what was in its slot.
    ///
    /// # Errors
    /// What either driver answers.
    pub fn write(&mut self) -> Result<Write<'_, S>> {
        if self.reserved <= self.frame {
            self.reserve(1)?;
        }
        self.unfinished = true;
        Ok(Write { slot: self.plan.turn(self.frame).slot, ring: self })
    }

    /// Begins a batch: the stream waits now for the slots of the next `count` frames, and the next `count` writes wait for
    /// nothing more. The GPU then switches to CUDA once for all of them.
    ///
    /// # Errors
    /// More frames than slots, or none; what either driver answers.
    pub fn reserve(&mut self, count: usize) -> Result<()> {
        let depth = self.plan.depth();
        if !(1..=depth).contains(&count) {
            return Err(Error::Rule(format!(
                "a batch of a ring of {depth} has 1 to {depth} frames, not {count}"
            )));
        }
        let end = self.frame + count as u64;
        // The last of them has the greatest value to wait for: see `Ring::turn`.
        if let Some(value) = self.plan.turn(end - 1).wait_free {
            let hand_over = &self.parts.hand_over;
            let mut ledger = hand_over.ledger();
            ledger.waits(value, self.frame);
            hand_over.settle(&mut ledger)?;
            drop(ledger);
            // SAFETY: the timeline lives until the stream has passed this: `Drop` sees to it.
            unsafe { hand_over.free.cuda_wait(&*self.parts.stream, value) }?;
        }
        self.reserved = self.reserved.max(end);
        Ok(())
    }

    /// Records the way of new images into CUDA's hands: submit it, and wait for it, before the first write. Buffers need nothing.
    ///
    /// # Safety
    /// As [`SharedRing::record_acquire`]; no slot was written yet.
    pub unsafe fn record_first_release(&self, commands: vk::CommandBuffer) {
        for slot in self.slots() {
            let Resource::Image(image) = slot.resource() else { continue };
            for barrier in ownership::first_release(image, self.reads.family) {
                // In the older form, as in `record`.
                let older = vk::ImageMemoryBarrier::default()
                    .image(image)
                    .subresource_range(barrier.subresource_range)
                    .old_layout(barrier.old_layout)
                    .new_layout(barrier.new_layout)
                    .src_queue_family_index(barrier.src_queue_family_index)
                    .dst_queue_family_index(barrier.dst_queue_family_index);
                let all = vk::PipelineStageFlags::ALL_COMMANDS;
                let flags = vk::DependencyFlags::empty();
                let device = self.parts.pair.vk().device();
                // SAFETY: the caller's promise; the slot is alive.
                unsafe { device.cmd_pipeline_barrier(commands, all, all, flags, &[], &[], &[older]) };
            }
        }
    }

    /// Records Vulkan's way of taking the slot from CUDA, before its first use of it.
    ///
    /// # Safety
    /// `commands` is being recorded, outside a render pass, for a queue of [`Reads::family`].
    pub unsafe fn record_acquire(&self, read: &Read, commands: vk::CommandBuffer) {
        // SAFETY: the caller's promise.
        unsafe { self.record(read, commands, Owner::acquire, self.reads.stage, self.reads.stage) }
    }

    /// Records Vulkan's way of giving the slot back, after its last use of it.
    ///
    /// # Safety
    /// As [`SharedRing::record_acquire`].
    pub unsafe fn record_release(&self, read: &Read, commands: vk::CommandBuffer) {
        let behind = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: the caller's promise.
        unsafe { self.record(read, commands, Owner::release, self.reads.stage, behind) }
    }

    /// # Safety
    /// As [`SharedRing::record_acquire`].
    unsafe fn record(
        &self,
        read: &Read,
        commands: vk::CommandBuffer,
        half: fn(Owner, vk::Buffer, u32, Access) -> vk::BufferMemoryBarrier2<'static>,
        from: vk::PipelineStageFlags,
        to: vk::PipelineStageFlags,
    ) {
        let access = Access {
            // The older flags have the same bits.
            stage: vk::PipelineStageFlags2::from_raw(self.reads.stage.as_raw().into()),
            access: vk::AccessFlags2::from_raw(self.reads.access.as_raw().into()),
        };
        let barrier = half(Owner::External, vk::Buffer::null(), self.reads.family, access);
        // In the older form, which a device without `synchronization2` has too.
        let (src, dst) = (older(barrier.src_access_mask), older(barrier.dst_access_mask));
        let (buffers, images) = match self.slots()[read.slot].resource() {
            Resource::Buffer(buffer) => (
                Some(
                    vk::BufferMemoryBarrier::default()
                        .buffer(buffer)
                        .size(vk::WHOLE_SIZE)
                        .src_access_mask(src)
                        .dst_access_mask(dst)
                        .src_queue_family_index(barrier.src_queue_family_index)
                        .dst_queue_family_index(barrier.dst_queue_family_index),
                ),
                None,
            ),
            Resource::Image(image) => (
                None,
                Some(
                    vk::ImageMemoryBarrier::default()
                        .image(image)
                        .subresource_range(ownership::whole_image())
                        .old_layout(ownership::SHARED_LAYOUT)
                        .new_layout(ownership::SHARED_LAYOUT)
                        .src_access_mask(src)
                        .dst_access_mask(dst)
                        .src_queue_family_index(barrier.src_queue_family_index)
                        .dst_queue_family_index(barrier.dst_queue_family_index),
                ),
            ),
        };
        let flags = vk::DependencyFlags::empty();
        let device = self.parts.pair.vk().device();
        // SAFETY: the caller's promise; the slot is alive.
        unsafe {
            device.cmd_pipeline_barrier(
                commands,
                from,
                to,
                flags,
                &[],
                buffers.as_slice(),
                images.as_slice(),
            );
        }
    }

    /// Signals from the CPU what CUDA will never signal, so that Vulkan's submissions end. What they read is not whole.
    ///
    /// # Errors
    /// What Vulkan answers.
    ///
    /// # Safety
    /// The stream executes nothing more: a kernel has faulted, and the context with it.
    pub unsafe fn abort(&self) -> Result<()> {
        let ready = &self.parts.hand_over.ready;
        // SAFETY: the caller's promise: nobody else signals it any more.
        unsafe { ready.signal_from_host(ready.promised()) }
    }

    /// Whether the GPU has done everything that it was given, asked for at most two seconds.
    fn comes_to_rest(&self) -> Result<bool> {
        let HandOver { ready, free, .. } = &*self.parts.hand_over;
        let expected = self.parts.hand_over.ledger().expected;
        let (cuda, stream) = (self.parts.pair.cuda(), self.parts.stream.raw());
        let read = wait(|| Ok(free.value()? >= expected))?;
        // After a fault the stream runs nothing, whatever it is asked.
        let written = cuda.has_faulted()
            || wait(|| {
                if !self.unfinished {
                    return Ok(ready.value()? >= ready.promised());
                }
                cuda.bind()?;
                // SAFETY: a live stream of the current context.
                match unsafe { api::cuStreamQuery(stream) } {
                    api::Code::NOT_READY => Ok(false),
                    code => cuda.check("cuStreamQuery", code).map(|()| true),
                }
            })?;
        Ok(read && written)
    }
}

/// An access mask of the older barriers.
fn older(access: vk::AccessFlags2) -> vk::AccessFlags {
    // The low 32 bits are the same; what is here came from them.
    vk::AccessFlags::from_raw(access.as_raw() as u32)
}

impl<S: Slot> Drop for SharedRing<S> {
    fn drop(&mut self) {
        match self.comes_to_rest() {
            // SAFETY: never touched again.
            Ok(true) => unsafe { ManuallyDrop::drop(&mut self.parts) },
            Ok(false) => cleanup_error(&Error::Rule(
                "a ring was dropped while the GPU used it, and was leaked: wait for the queue and the stream first".into(),
            )),
            Err(error) => cleanup_error(&error),
        }
    }
}

/// A frame that CUDA is to write. Dropped, it is as if it had never begun.
#[must_use = "nothing is handed over before `finish`"]
pub struct Write<'a, S: Slot> {
    ring: &'a mut SharedRing<S>,
    slot: usize,
}

impl<S: Slot> Write<'_, S> {
    /// What to write to, on the ring's stream.
    pub fn slot(&self) -> &S {
        &self.ring.slots()[self.slot]
    }

    /// The frame's number, from 0.
    pub fn frame(&self) -> u64 {
        self.ring.frame
    }

    /// The ring's stream.
    pub fn stream(&self) -> &dyn Stream {
        &*self.ring.parts.stream
    }

    /// Hands the frame to Vulkan: CUDA's stream signals once everything enqueued on it so far is done. The signal is enqueued
    /// when this returns, as it must be before Vulkan submits the wait for it.
    ///
    /// # Errors
    /// What CUDA answers. The frame is then lost, and the next write takes the next slot.
    pub fn finish(self) -> Result<Read> {
        let Self { ring, slot } = self;
        let turn = ring.plan.turn(ring.frame);
        ring.frame += 1;
        let hand_over = &ring.parts.hand_over;
        // SAFETY: the timeline lives until the stream has passed this: `Drop` of the ring sees to it.
        let signalled = unsafe { hand_over.ready.cuda_signal(&*ring.parts.stream, turn.signal_ready) };
        hand_over.ledger().issue();
        if let Err(error) = signalled {
            hand_over.ledger().ends(turn.signal_free, Fate::GivenUp);
            return Err(error);
        }
        ring.unfinished = false;
        let stage = vk::PipelineStageFlags2::from_raw(ring.reads.stage.as_raw().into());
        let wait = hand_over.ready.vulkan_wait(turn.wait_ready, stage);
        let signal = hand_over.free.vulkan_signal(turn.signal_free, vk::PipelineStageFlags2::ALL_COMMANDS)?;
        Ok(Read {
            frame: ring.frame - 1,
            slot,
            wait: (wait.semaphore, wait.value, ring.reads.stage),
            signal: (signal.semaphore, signal.value),
            open: true,
            hand_over: hand_over.clone(),
        })
    }
}

/// A frame that Vulkan is to read: plain numbers for one submission. Submit reads in the order of their frames.
///
/// Dropped without [`submitted`](Read::submitted), the frame is given up: see the [module](self).
#[must_use = "say `submitted` once the submission that reads it has succeeded"]
pub struct Read {
    frame: u64,
    slot: usize,
    wait: (vk::Semaphore, u64, vk::PipelineStageFlags),
    signal: (vk::Semaphore, u64),
    open: bool,
    hand_over: Arc<HandOver>,
}

impl Read {
    /// The frame's number, from 0.
    pub fn frame(&self) -> u64 {
        self.frame
    }

    /// The slot's index.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// What the submission waits for: `ready`, its value, and the stages that must wait.
    pub fn wait(&self) -> (vk::Semaphore, u64, vk::PipelineStageFlags) {
        self.wait
    }

    /// What the submission signals once all its commands are done: `free` and its value.
    pub fn signal(&self) -> (vk::Semaphore, u64) {
        self.signal
    }

    /// [`Read::wait`] for `vkQueueSubmit2`.
    pub fn wait_info(&self) -> vk::SemaphoreSubmitInfo<'static> {
        let (semaphore, value, stage) = self.wait;
        let stage = vk::PipelineStageFlags2::from_raw(stage.as_raw().into());
        vk::SemaphoreSubmitInfo::default().semaphore(semaphore).value(value).stage_mask(stage)
    }

    /// [`Read::signal`] for `vkQueueSubmit2`.
    pub fn signal_info(&self) -> vk::SemaphoreSubmitInfo<'static> {
        let (semaphore, value) = self.signal;
        let all = vk::PipelineStageFlags2::ALL_COMMANDS;
        vk::SemaphoreSubmitInfo::default().semaphore(semaphore).value(value).stage_mask(all)
    }

    /// A submission that waits and signals as this read says was accepted.
    pub fn submitted(mut self) {
        self.hand_over.ledger().ends(self.signal.1, Fate::Submitted);
        self.open = false;
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        let mut ledger = self.hand_over.ledger();
        ledger.ends(self.signal.1, Fate::GivenUp);
        if let Err(error) = self.hand_over.settle(&mut ledger) {
            cleanup_error(&error);
        }
    }
}

/// What becomes of the values of `free`, one for each frame: so that none for which CUDA waits is left to nobody.
#[derive(Debug, Default)]
struct Ledger {
    /// Of the values from `first` on, as far as frames were handed to Vulkan.
    fates: VecDeque<Fate>,
    /// One less than the value of `fates[0]`.
    before: u64,
    /// The greatest value up to `before` that is signalled by a submission or was by the CPU.
    signalled: u64,
    /// CUDA's waits that may not be fulfilled yet: the value, and the last that was handed out before the wait.
    waits: VecDeque<(u64, u64)>,
    /// What the counter reaches if nothing more happens: the greatest value that is waited for or submitted.
    expected: u64,
}

/// What becomes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Its read may yet be submitted.
    Open,
    /// A submission signals it.
    Submitted,
    /// Its read was dropped.
    GivenUp,
}

/// A value that CUDA waits for and no submission signals, nor a greater one in time. The CPU may signal it once the counter
/// has reached `after`.
#[derive(Debug, PartialEq, Eq)]
struct Stranded {
    after: u64,
    value: u64,
}

impl Ledger {
    /// The next frame is handed to Vulkan.
    fn issue(&mut self) {
        self.fates.push_back(Fate::Open);
    }

    /// The read that signals `value` was submitted or dropped.
    fn ends(&mut self, value: u64, fate: Fate) {
        if fate == Fate::Submitted {
            self.expected = self.expected.max(value);
        }
        match value.checked_sub(self.before + 1) {
            Some(index) => self.fates[index as usize] = fate,
            None if fate == Fate::Submitted => self.signalled = self.signalled.max(value),
            None => {}
        }
    }

    /// CUDA waits for `value`; `last` is the last value that was handed out before. Those behind it cannot fulfil the wait:
    /// their frames are written after it.
    fn waits(&mut self, value: u64, last: u64) {
        self.waits.push_back((value, last));
        self.expected = self.expected.max(value);
    }

    /// The first wait that nobody is going to fulfil. It counts as fulfilled from then on.
    fn stranded(&mut self) -> Option<Stranded> {
        loop {
            let &(value, last) = self.waits.front()?;
            while self.before + 1 < value {
                self.before += 1;
                if self.fates.pop_front() == Some(Fate::Submitted) {
                    self.signalled = self.before;
                }
            }
            let mut candidates = self.fates.iter().take((last - self.before) as usize);
            if candidates.clone().all(|&fate| fate == Fate::GivenUp) {
                self.waits.pop_front();
                let after = std::mem::replace(&mut self.signalled, value);
                return Some(Stranded { after, value });
            }
            if candidates.all(|&fate| fate != Fate::Submitted) {
                // One may yet be. CUDA's later waits are behind this one.
                return None;
            }
            self.waits.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring of two that has handed out `fates`, in which CUDA then waits for the first slot again.
    fn ledger(fates: &[Fate]) -> Ledger {
        let mut ledger = Ledger::default();
        for (value, &fate) in (1..).zip(fates) {
            ledger.issue();
            ledger.ends(value, fate);
        }
        ledger.waits(fates.len() as u64 - 1, fates.len() as u64);
        ledger
    }

    /// A renderer may own them, on any thread.
    #[test]
    fn everything_may_change_threads() {
        fn owned<T: Send + Sync + 'static>() {}
        owned::<SharedRing<SharedBuffer>>();
        owned::<SharedRing<Arc<MappedImage>>>();
        owned::<Read>();
        owned::<SharedTimeline>();
    }

    #[test]
    fn only_what_nobody_signals_is_stranded() {
        use Fate::{GivenUp, Open, Submitted};
        for (fates, stranded) in [
            (&[Submitted, Submitted][..], None),
            (&[Submitted, Open], None),
            (&[Open, Open], None),
            // A greater value will do.
            (&[GivenUp, Submitted], None),
            (&[GivenUp, Open], None),
            (&[GivenUp, GivenUp], Some(Stranded { after: 0, value: 1 })),
            // Not before what is submitted.
            (&[Submitted, GivenUp, GivenUp], Some(Stranded { after: 1, value: 2 })),
        ] {
            let mut ledger = ledger(fates);
            assert_eq!(ledger.stranded(), stranded, "{fates:?}");
            assert_eq!(ledger.stranded(), None, "{fates:?}");
        }
    }

    /// The frame that waits for a value cannot be the one to signal it.
    #[test]
    fn a_later_frame_does_not_fulfil_an_earlier_wait() {
        let mut ledger = ledger(&[Fate::Open, Fate::Open]);
        assert_eq!(ledger.stranded(), None);
        ledger.issue();
        ledger.ends(3, Fate::Submitted);
        ledger.ends(1, Fate::GivenUp);
        assert_eq!(ledger.stranded(), None, "2 is open");
        ledger.ends(2, Fate::GivenUp);
        assert_eq!(ledger.stranded(), Some(Stranded { after: 0, value: 1 }));
        assert_eq!(ledger.expected, 3);
    }

    /// It does not grow while frames come and go.
    #[test]
    fn what_is_done_is_forgotten() {
        let mut ledger = Ledger::default();
        for frame in 0..1000_u64 {
            if let Some(value) = (frame + 1).checked_sub(3).filter(|&value| value > 0) {
                ledger.waits(value, frame);
            }
            assert_eq!(ledger.stranded(), None);
            ledger.issue();
            ledger.ends(frame + 1, Fate::Submitted);
        }
        assert!(ledger.fates.len() <= 4 && ledger.waits.is_empty(), "{ledger:?}");
    }
}
