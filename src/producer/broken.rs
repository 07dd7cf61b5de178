//! What a hand-off can be told to leave out, to show that it is needed.

use std::fmt;

use crate::Error;

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

    /// What `producer` answers that has no such part.
    pub(crate) fn not_for(self, producer: &str) -> Error {
        Error::Usage(format!("--break {self} {}, not for {producer}", Self::NEEDS))
    }

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
