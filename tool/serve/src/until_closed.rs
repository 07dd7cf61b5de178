//! `--until-closed`: a renderer ends with the program that started it, however that program ends.
//!
//! The program holds one end of a pipe or socket pair, and the renderer inherits the other. Linux closes the
//! program's end with its process. (`PR_SET_PDEATHSIG` would come with the end of a *thread*.)

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::listener::remove_files;
use wavefield_gpu::{Result, note, threads::Job};
use wavefield_run::Stop;

/// Requests `stop` once the other end of `parent` is closed. If the process still runs after `patience`, in a
/// driver's call for example, removes the socket's files and exits with code 1.
pub fn end_when_closed(parent: OwnedFd, stop: &Stop, patience: Duration) -> Result<()> {
    let stop = stop.clone();
    let watch = move |_: &dyn Fn() -> bool| -> Result<()> {
        // `poll` tells of the end (of a pipe HUP, of a socket RDHUP) even if there is nothing to read.
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
