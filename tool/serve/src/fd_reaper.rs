//! Closes descriptors that came from clients, on a thread of its own. `close` can block for as long as a
//! client likes: the descriptor may belong to a file system that the client serves, or to a socket that
//! lingers.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

use wavefield_gpu::{Result, threads::Job};

/// The maximum number of descriptors that wait to be closed. At that number, no client is accepted, and a
/// client that sends a descriptor is dropped.
const MOST: usize = 256;
pub(super) const FULL: &str = "256 descriptors of clients take long to close: send none whose close blocks";

static REAPER: OnceLock<Sender<OwnedFd>> = OnceLock::new();
/// The number of descriptors that are queued for the thread or being closed by it.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Starts the thread, unless it runs already. In a process without the thread, such as a client, dropping a
/// [`ClientFd`] closes its descriptor directly.
pub(super) fn start() -> Result<()> {
    if REAPER.get().is_some() {
        return Ok(());
    }
    let (give, queue) = channel();
    Job::begin("closer", move |_| {
        for fd in queue {
            drop::<OwnedFd>(fd);
            WAITING.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    })?;
    let _ = REAPER.set(give);
    Ok(())
}

pub(super) fn is_full() -> bool {
    WAITING.load(Ordering::Relaxed) >= MOST
}

/// A descriptor from a client, or a connection, which may hold unread descriptors. After [`start`], dropping
/// it does not block.
pub(super) struct ClientFd(ManuallyDrop<OwnedFd>);

impl ClientFd {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self(ManuallyDrop::new(fd))
    }

    pub(super) fn all(descriptors: Vec<OwnedFd>) -> Vec<Self> {
        descriptors.into_iter().map(Self::new).collect()
    }
}

impl AsFd for ClientFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for ClientFd {
    fn drop(&mut self) {
        // SAFETY: only this line takes the descriptor, and nothing uses the field after `drop`.
        let fd = unsafe { ManuallyDrop::take(&mut self.0) };
        if let Some(reaper) = REAPER.get() {
            WAITING.fetch_add(1, Ordering::Relaxed);
            let _ = reaper.send(fd);
        }
    }
}
