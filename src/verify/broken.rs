//! What a hand-off can be told to leave out, to show that it is needed.

use std::fmt;

use ash::vk;
use vulkan_cuda::{Ring, Turn};

use crate::handoff::TIMELINE;
use crate::producer::{Fill, Frame, Plan, Produced, Producer, Profile, Source};
use crate::{Error, Result};

/// A part of the synchronization that is left out on purpose: `wavefield verify --break`.
///
/// A check that cannot fail proves nothing. With one of these the same check, on the same machine, must find frames that
/// are wrong; and it tells which part of the hand-off is what keeps them right.
///
/// This is for timelines, whose values go on growing in order whoever is late. A binary semaphore must be waited for
/// before it is signalled again, and each of the two waits is what guarantees that for the *other* semaphore: without
/// one, the run would not be wrong but stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Broken {
    /// Vulkan's submission does not wait until CUDA has written the slot.
    Ready,
    /// CUDA does not wait until Vulkan has read the slot.
    Free,
    /// Vulkan neither acquires the slot from CUDA nor releases it: the queue family ownership transfers.
    Barrier,
}

impl Broken {
    /// What a producer must be to have such a part.
    pub const NEEDS: &'static str = "is for --producer cuda with --handoff timeline";

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Free => "free",
            Self::Barrier => "barrier",
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The plan of a run that leaves out `broken`: without it, [`Ring::turn`].
pub(crate) fn plan(broken: Option<Broken>) -> Plan {
    match broken {
        Some(Broken::Free) => |ring: Ring, frame| Turn { wait_free: None, ..ring.turn(frame) },
        _ => Ring::turn,
    }
}

/// A producer of [`plan`] with the rest of what `broken` leaves out.
pub(crate) struct BrokenProducer {
    whole: Box<dyn Producer>,
    broken: Broken,
    profile: Profile,
}

impl BrokenProducer {
    /// # Errors
    /// `whole` has no such part.
    pub(crate) fn new(whole: Box<dyn Producer>, broken: Broken) -> Result<Self> {
        let mut profile = whole.profile().clone();
        if profile.name != TIMELINE {
            return Err(Error::Usage(format!(
                "--break {broken} {}, not for {}",
                Broken::NEEDS,
                profile.name
            )));
        }
        if broken == Broken::Free {
            // The pacer's bound is K frames too: the CPU's wait would stand in for the one that is left out.
            profile.max_in_flight *= 2;
        }
        Ok(Self { whole, broken, profile })
    }
}

impl Producer for BrokenProducer {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn produce(&mut self, frame: &Frame) -> Result<Produced> {
        let mut produced = self.whole.produce(frame)?;
        if self.broken == Broken::Ready {
            produced.sync.wait = None;
        }
        Ok(produced)
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        if self.broken != Broken::Barrier {
            self.whole.record_before_draw(commands, frame, source);
        }
    }

    fn record_after_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        if self.broken != Broken::Barrier {
            self.whole.record_after_draw(commands, frame, source);
        }
    }

    fn submitted(&mut self) {
        self.whole.submitted();
    }

    fn fill(&self) -> Option<&Fill> {
        self.whole.fill()
    }

    fn is_idle(&self) -> Result<bool> {
        self.whole.is_idle()
    }

    fn progress(&self) -> Option<String> {
        self.whole.progress()
    }

    fn abandon(&mut self) {
        self.whole.abandon();
    }
}
