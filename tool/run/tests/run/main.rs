//! Producers, the check and semaphores, on a GPU if there is one.

#[path = "../common/mod.rs"]
mod common;

mod checker;
mod gallery;
mod pacing;
mod producers;
#[cfg(unix)]
mod semaphores;
