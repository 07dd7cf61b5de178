//! `--until-closed`: a renderer ends with the program that started it, however that program ends.
//!
//! The program holds one end of a pipe (or of a socket pair), and the renderer inherits the other. Linux closes the program's
//! end when its process is gone. (`PR_SET_PDEATHSIG` would already come when the *thread* that started the renderer ends.)

use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::thread::Builder;
use std::time::Duration;

use super::listener::remove_files;
use wavefield_base::{Result, note, threads::not_started};
use wavefield_engine::Stop;

/// Requests `stop` once the other end of `parent` is closed. If the process still runs after `patience` (a driver's call may
/// hang), removes the socket's files and exits with code 1.
pub fn end_when_closed(parent: OwnedFd, stop: &Stop, patience: Duration) -> Result<()> {
    let stop = stop.clone();
    let watch = move || {
        wait_for_end(parent);
        note!("note: the program that started this renderer has ended, so the renderer ends too");
        stop.request();
        std::thread::sleep(patience);
        remove_files();
        // SAFETY: ends the process; nothing of it runs afterwards.
        unsafe { libc::_exit(1) }
    };
    Builder::new()
        .name("until closed".into())
        .spawn(watch)
        .map(drop)
        .map_err(|error| not_started("until closed", error))
}

fn wait_for_end(parent: OwnedFd) {
    let mut parent = std::fs::File::from(parent);
    let mut nothing = [0; 64];
    loop {
        match parent.read(&mut nothing) {
            Ok(1..) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The descriptor is non-blocking.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(0) | Err(_) => return,
        }
    }
}
