//! Closes what came from clients, on one thread for all. `close` can block as long as a client likes: the descriptor may be
//! a file of a file system that the client itself serves, or a socket that lingers. Nothing else in the renderer waits for it.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use crate::Result;
use crate::threads::not_started;

/// With so many descriptors that wait to be closed, newcomers wait, and a client that sends one more is dropped.
const MOST: usize = 256;
/// What the user and such a client are told.
pub(super) const FULL: &str =
    "256 descriptors that clients sent take long to close: send none whose close blocks";
/// The most connections that wait for their other ends.
const MOST_LEAVING: usize = 64;
const PATIENCE: Duration = Duration::from_secs(1);

static CLOSER: OnceLock<Sender<Closing>> = OnceLock::new();
/// How much is on that way, and in the call that closes.
static WAITING: AtomicUsize = AtomicUsize::new(0);

enum Closing {
    Now(OwnedFd),
    /// A connection whose other end may not have read the last message.
    Leaving(OwnedFd),
}

/// Starts the thread, unless it runs. (Without it, as in a client, descriptors are closed where they are dropped.)
pub(super) fn start() -> Result<()> {
    if CLOSER.get().is_some() {
        return Ok(());
    }
    let (give, queue) = channel();
    let closing = Builder::new().name("closing".into());
    closing.spawn(move || close_all(&queue)).map_err(|error| not_started("closing", error))?;
    // If another thread was faster, this `give` is dropped, and its thread ends.
    let _ = CLOSER.set(give);
    Ok(())
}

pub(super) fn is_full() -> bool {
    WAITING.load(Ordering::Relaxed) >= MOST
}

/// A descriptor that a client sent. Dropping it never blocks.
pub(super) struct ClientFd(ManuallyDrop<OwnedFd>);

impl ClientFd {
    pub(super) fn all(descriptors: Vec<OwnedFd>) -> Vec<Self> {
        descriptors.into_iter().map(|fd| Self(ManuallyDrop::new(fd))).collect()
    }
}

impl AsFd for ClientFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for ClientFd {
    fn drop(&mut self) {
        // SAFETY: taken once, since nothing comes after `drop`.
        give(Closing::Now(unsafe { ManuallyDrop::take(&mut self.0) }));
    }
}

/// Ends a connection, and closes it once the other end has closed it or has had a second to read the last message. If a
/// socket is closed with unread messages in it, Linux reports a reset to the other end first.
pub(super) fn take_leave(connection: OwnedFd) {
    let _ = shutdown(&connection, Shutdown::Write);
    give(Closing::Leaving(connection));
}

fn give(closing: Closing) {
    if let Some(closer) = CLOSER.get() {
        WAITING.fetch_add(1, Ordering::Relaxed);
        let _ = closer.send(closing);
    }
}

fn close_all(queue: &Receiver<Closing>) {
    let mut leaving: Vec<(OwnedFd, Instant)> = Vec::new();
    loop {
        let patience = if leaving.is_empty() { Duration::MAX } else { Duration::from_millis(20) };
        let next = queue.recv_timeout(patience);
        let taken = usize::from(next.is_ok());
        match next {
            Ok(Closing::Leaving(connection)) if leaving.len() < MOST_LEAVING => {
                leaving.push((connection, Instant::now() + PATIENCE));
            }
            Ok(Closing::Now(fd) | Closing::Leaving(fd)) => drop(fd),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        WAITING.fetch_sub(taken, Ordering::Relaxed);
        leaving.retain(|(connection, until)| !is_over(connection) && Instant::now() < *until);
    }
}

/// Whether the other end has closed the connection. Reads a few of its messages, and lets the kernel drop their descriptors.
fn is_over(connection: &OwnedFd) -> bool {
    for _ in 0..64 {
        match recv(connection, &mut [0u8; 1], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return true,
            Ok(_) => {}
            Err(error) => return !matches!(error, Errno::AGAIN | Errno::INTR),
        }
    }
    false
}
