//! `--until-closed`: stops the renderer when the program that started it ends, for whatever reason.
//!
//! The program holds one end of a pipe or socket pair, and the renderer inherits the other end. Linux closes
//! the program's end when its process ends. (`PR_SET_PDEATHSIG` does not fit: it already fires when the
//! *thread* that started the renderer ends.)

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::listener::remove_files;
use wavefield_gpu::{Result, note, threads::Job};
use wavefield_run::Stop;

/// Requests `stop` once the other end of `parent` is closed. If the process still runs after `patience`, for
/// example in a driver call, removes the socket's files and exits with code 1.
pub fn end_when_closed(parent: OwnedFd, stop: &Stop, patience: Duration) -> Result<()> {
    let stop = stop.clone();
    let watch = move |_: &dyn Fn() -> bool| -> Result<()> {
        // `poll` reports the hang-up (HUP for a pipe, RDHUP for a socket) even if there is nothing to read.
        while poll(&mut [PollFd::new(&parent, PollFlags::RDHUP)], None) == Err(Errno::INTR) {}
        note!("note: the program that started this renderer has ended, so the renderer ends too");
        stop.request();
        std::thread::sleep(patience);
        remove_files();
        // SAFETY: ends the process; nothing of it runs afterwards.
        unsafe { libc::_exit(1) }
    };
    Job::begin("until closed", watch).map(drop)
}
