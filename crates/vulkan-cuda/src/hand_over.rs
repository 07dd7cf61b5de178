//! The state that a ring and its turns share and keep alive: the slots, the two timelines, and the ledger,
//! which tracks the use of the slots. This module calls the drivers; [`crate::ledger`] only does arithmetic.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ash::vk;

use crate::cuda::{Stream, api};
use crate::error::cleanup_error;
use crate::ledger::Ledger;
use crate::pair::Pair;
use crate::ring::{MAX_DEPTH, Ring};
use crate::slot::{QueueUse, Resource, Slot, Transfer};
use crate::timeline::SharedTimeline;
use crate::{Error, Result};

/// The maximum length of one wait for a timeline. `come_to_rest` checks for a fault of CUDA between waits.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) struct RingCore<S: Slot, C: Stream> {
    pub(crate) ring: Ring,
    /// Dropped with the ring if the GPU has finished. Otherwise leaked, because the GPU may still use it.
    pub(crate) owned: ManuallyDrop<Owned<S, C>>,
    ledger: Mutex<Ledger>,
    /// Whether the ring is a `RingToCuda`: Vulkan writes and CUDA reads.
    to_cuda: bool,
}

pub(crate) struct Owned<S, C> {
    pub(crate) slots: Vec<S>,
    /// The timeline that CUDA signals when it is done with a slot: `ready`, or `free` in a `RingToCuda`.
    pub(crate) cuda: SharedTimeline,
    /// The timeline that Vulkan signals when it is done with a slot: `free`, or `ready` in a `RingToCuda`.
    pub(crate) vulkan: SharedTimeline,
    pub(crate) stream: C,
    pub(crate) queue: QueueUse,
    pub(crate) pair: Pair,
}

impl<S: Slot, C: Stream> RingCore<S, C> {
    /// Checks the slots, the stream and the queue, and creates the timelines.
    pub(crate) fn of_ring(
        pair: &Pair,
        stream: C,
        slots: Vec<S>,
        queue: QueueUse,
        to_cuda: bool,
    ) -> Result<Self> {
        let caller = if to_cuda { "RingToCuda::new" } else { "SharedRing::new" };
        pair.cuda().require_stream(&stream, caller)?;
        queue.check(pair.vk())?;
        let depth = slots.len();
        let Some(ring) = u32::try_from(depth).ok().and_then(Ring::new) else {
            return Err(Error::Rule(format!("a ring has 1 to {MAX_DEPTH} slots, and {depth} were given")));
        };
        let mut ledger = Ledger::new(ring);
        for (index, resource) in slots.iter().map(Slot::resource).enumerate() {
            let (Resource::Buffer { device, context, .. } | Resource::Image { device, context, .. }) =
                resource;
            if device != pair.vk().device().handle() {
                return Err(Error::Rule(format!(
                    "slot {index} of a ring is of another device than the ring's pair"
                )));
            }
            if let Some(context) = context {
                pair.cuda().require_same(context, caller)?;
            }
            ledger.released &= matches!(resource, Resource::Buffer { .. });
        }
        let (cuda, vulkan) = (SharedTimeline::new(pair)?, SharedTimeline::new(pair)?);
        Ok(Self {
            ring,
            owned: ManuallyDrop::new(Owned { slots, cuda, vulkan, stream, queue, pair: pair.clone() }),
            ledger: Mutex::new(ledger),
            to_cuda,
        })
    }

    pub(crate) fn index(&self, frame: u64) -> usize {
        self.ring.turn(frame).slot
    }

    pub(crate) fn slot(&self, frame: u64) -> &S {
        &self.owned.slots[self.index(frame)]
    }

    pub(crate) fn check_batch(&self, count: usize) -> Result<()> {
        let depth = self.ring.depth();
        if (1..=depth).contains(&count) {
            return Ok(());
        }
        Err(Error::Rule(format!("a batch of a ring of {depth} has 1 to {depth} frames, not {count}")))
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // A poisoned lock means only that another thread panicked. The ledger is intact.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Safety
    /// Same as [`Resource::record`](crate::shared_ring::Resource), for a slot of this ring.
    pub(crate) unsafe fn record(&self, slot: &S, commands: vk::CommandBuffer, transfer: Transfer) {
        let (device, queue) = (self.owned.pair.vk().device(), self.owned.queue);
        // SAFETY: the slot belongs to this device (checked in `of_ring`). The caller promises the rest.
        unsafe { slot.resource().record(device, commands, queue, transfer) };
    }

    /// Begins CUDA's work on a frame. Unless `value` is 0, makes the stream wait until Vulkan's timeline has
    /// reached `value`, without blocking the CPU.
    pub(crate) fn begin_cuda(&self, value: u64, call: &'static str) -> Result<()> {
        // Refuses capture, because each launch of the graph would repeat the frame's wait and signal.
        self.owned.pair.cuda().require_uncaptured(&self.owned.stream, call)?;
        self.ledger().begins();
        if value > 0 {
            // SAFETY: `Drop` keeps the timeline until the stream has passed the wait, or leaks it.
            unsafe { self.owned.vulkan.cuda_wait(&self.owned.stream, value) }?;
            self.ledger().waits(value, self.owned.cuda.promised());
        }
        Ok(())
    }

    /// Enqueues the next signal on CUDA's stream, and returns its value. If `guarded`, a guard comes before
    /// the signal, so that it cannot overtake a memset.
    pub(crate) fn signal_cuda(&self, guarded: bool) -> Result<u64> {
        let (timeline, value) = (&self.owned.cuda, self.owned.cuda.promised() + 1);
        // SAFETY: `Drop` keeps the timeline until the stream has passed the signal, or leaks it. Only this
        // stream signals the timeline, so the values increase.
        unsafe { timeline.signal(&self.owned.stream, value, guarded) }?;
        Ok(value)
    }

    /// Fails if CUDA reports an error. If CUDA has faulted, also ends Vulkan's waits for CUDA.
    pub(crate) fn check(&self) -> Result<()> {
        let cuda = self.owned.pair.cuda();
        // SAFETY: a live stream of this context, which is current.
        let answer =
            cuda.bind().and_then(|()| match unsafe { api::cuStreamQuery(self.owned.stream.raw()) } {
                api::Code::NOT_READY => Ok(()),
                code => cuda.check("cuStreamQuery", code),
            });
        if !cuda.has_faulted() {
            return answer;
        }
        // SAFETY: after a fault, a context executes nothing more, so CUDA will not signal.
        answer.and(unsafe { self.abort() })
    }

    /// Returns whether neither API uses the ring any more: `error` says that the Vulkan device is lost, and
    /// CUDA has faulted or is idle.
    fn is_dead(&self, error: &Error) -> bool {
        let lost = matches!(error, Error::Vulkan { result: vk::Result::ERROR_DEVICE_LOST, .. });
        // SAFETY: a live stream of this context, which is current when this is called.
        let done = || unsafe { api::cuStreamQuery(self.owned.stream.raw()) } == api::Code::SUCCESS;
        let cuda = self.owned.pair.cuda();
        lost && (cuda.has_faulted() || cuda.bind().is_ok() && done())
    }

    /// Signals, from the CPU, the last value that CUDA was asked to signal, which ends Vulkan's waits.
    ///
    /// # Safety
    /// CUDA must not signal any more.
    pub(crate) unsafe fn abort(&self) -> Result<()> {
        self.ledger().aborted = true;
        // SAFETY: CUDA no longer signals the timeline (the caller's promise), and Vulkan never does.
        unsafe { self.owned.cuda.signal_from_host(self.owned.cuda.promised()) }
    }

    /// Blocks until the GPU has finished the ring's work. If CUDA has faulted, waits only for Vulkan's work.
    /// Fails if that takes longer than `limit`, if a driver call fails, or if the ring was aborted without a
    /// fault.
    fn come_to_rest(&self, limit: Duration) -> Result<()> {
        let begin = Instant::now();
        let cuda = self.owned.pair.cuda();
        if self.ledger().aborted && !cuda.has_faulted() {
            return Err(Error::Timeout(format!("a stream on {} was given up", cuda.info().name)));
        }
        if !self.ledger().busy {
            return Ok(());
        }
        // The error is ignored: what matters here is that `check` sets `has_faulted`.
        let _ = self.check();
        if self.ledger().unfinished && !cuda.has_faulted() {
            // Signals once more, because the stream may have work after its last signal.
            let signalled = self.signal_cuda(true);
            let _ = self.check();
            match signalled {
                Err(error) if !cuda.has_faulted() => return Err(error),
                _ => self.ledger().unfinished = false,
            }
        }
        let submitted = self.ledger().submitted;
        loop {
            let slice = LOOK.min(limit.saturating_sub(begin.elapsed()));
            if self.owned.vulkan.wait_from_host(submitted, slice)?
                && (cuda.has_faulted()
                    || self.owned.cuda.wait_from_host(self.owned.cuda.promised(), slice)?)
            {
                let mut ledger = self.ledger();
                // If another thread has submitted a turn in the meantime, the ring is still busy.
                ledger.busy = ledger.submitted != submitted;
                return Ok(());
            }
            let _ = self.check();
            if begin.elapsed() >= limit {
                let (name, progress) = (&cuda.info().name, self.progress()?);
                return Err(Error::Timeout(format!("{name} did not finish a ring in {limit:?}: {progress}")));
            }
        }
    }

    pub(crate) fn wait_idle(&self, limit: Duration) -> Result<()> {
        self.come_to_rest(limit)?;
        self.check()
    }

    pub(crate) fn progress(&self) -> Result<Progress> {
        let (cuda, vulkan) = (self.owned.cuda.value()?, self.owned.vulkan.value()?);
        let ledger = self.ledger();
        Ok(Progress {
            cuda,
            promised: self.owned.cuda.promised(),
            vulkan,
            awaited: ledger.awaited(cuda),
            submitted: ledger.submitted,
            held: ledger.held(),
            to_cuda: self.to_cuda,
        })
    }
}

impl<S: Slot, C: Stream> Drop for RingCore<S, C> {
    fn drop(&mut self) {
        let patience = self.ledger().patience;
        match self.come_to_rest(patience) {
            Err(error) if !self.is_dead(&error) => cleanup_error(&Error::Timeout(format!(
                "a ring was dropped while the GPU used it, and was leaked: {error}"
            ))),
            // SAFETY: the GPU no longer uses `owned`, and nothing accesses the field after this.
            _ => unsafe { ManuallyDrop::drop(&mut self.owned) },
        }
    }
}

/// The progress of CUDA and Vulkan in a ring. `Display` says which of them has not signalled yet: "Vulkan did
/// not signal: CUDA's `ready` is at 3 of 3, Vulkan's `free` at 1 of 2".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The value of CUDA's timeline. Each frame that CUDA writes, or reads in a
    /// [`RingToCuda`](crate::RingToCuda), uses one value. So does each signal that failed, and the extra
    /// signal of a wait until the ring is idle.
    pub cuda: u64,
    /// The value that CUDA's stream was last asked to signal.
    pub promised: u64,
    /// The value of Vulkan's timeline: one more than the number of the last frame read. In a `RingToCuda`,
    /// each submission that writes a frame uses one value, even if it fails.
    pub vulkan: u64,
    /// The value that Vulkan's timeline must reach before CUDA can continue.
    pub awaited: u64,
    /// The value that Vulkan's last submission signals.
    pub submitted: u64,
    /// The frames that were handed to Vulkan, neither submitted nor given up. CUDA cannot use their slots.
    pub held: Vec<u64>,
    /// Whether the ring is a `RingToCuda`, where the names of the two timelines are swapped.
    pub(crate) to_cuda: bool,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cuda, promised, vulkan, awaited, submitted, ref held, to_cuda } = *self;
        let (cudas, vulkans) = if to_cuda { ("free", "ready") } else { ("ready", "free") };
        let late = match (cuda < promised, vulkan < submitted) {
            (true, _) if vulkan >= awaited => "CUDA did not signal",
            (false, false) => "both sides have signalled",
            _ => "Vulkan did not signal",
        };
        write!(
            f,
            "{late}: CUDA's `{cudas}` is at {cuda} of {promised}, Vulkan's `{vulkans}` at {vulkan} of {submitted}"
        )?;
        if held.is_empty() {
            Ok(())
        } else {
            write!(f, "; these frames are neither submitted nor given up: {held:?}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_late_side_is_the_one_that_the_other_waits_for() {
        let late = |cuda, promised, vulkan, awaited, submitted| {
            let progress =
                Progress { cuda, promised, vulkan, awaited, submitted, held: vec![], to_cuda: false };
            progress.to_string().split(" did").next().unwrap().to_owned()
        };
        // Nothing written yet; everything written, nothing read; CUDA waits for a slot; CUDA has its slot.
        assert_eq!(late(0, 3, 0, 0, 3), "CUDA");
        assert_eq!(late(3, 3, 0, 0, 3), "Vulkan");
        assert_eq!(late(3, 4, 0, 1, 3), "Vulkan");
        assert_eq!(late(3, 4, 1, 1, 3), "CUDA");
        // All frames of a batch wait for its last slot.
        assert_eq!(late(3, 6, 2, 3, 3), "Vulkan");
        assert_eq!(late(4, 6, 3, 3, 3), "CUDA");
    }
}
