//! What the program does without a window: options, files, errors, pictures, checks.

#[path = "../common/mod.rs"]
mod common;

mod bench;
mod dependencies;
#[cfg(target_os = "linux")]
mod endurance;
#[cfg(unix)]
mod errors;
#[cfg(target_os = "linux")]
mod first_minutes;
mod formats;
mod guide;
#[cfg(target_os = "linux")]
mod nvrtc;
mod parameters;
mod pictures;
mod recording;
mod switching;
mod trace;
mod verify;
