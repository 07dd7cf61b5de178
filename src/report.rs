//! Lines for people. A closed pipe at the other end is no reason to panic, as `println!` would.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// A line on standard output: results. Where they cannot be written, for want of space say, that is told once.
pub fn line(text: Arguments<'_>) {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Ok(()) => {}
        // Whoever closed it wants no more.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(error) => {
            if !FAILED.swap(true, Ordering::Relaxed) {
                crate::note!("cannot write to standard output: {error}");
            }
        }
    }
}

/// A line on standard error: notes and errors.
pub fn note(text: Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// [`line()`] with a format string.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::report::line(format_args!($($text)*)) };
}

/// [`note()`] with a format string.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => { $crate::report::note(format_args!($($text)*)) };
}

/// Something went wrong that could not be returned as an error.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Says what went wrong while something was given back, where no error can be returned any more.
pub(crate) fn cleanup_error(error: &crate::Error) {
    crate::note!("while cleaning up: {error}");
    FAILED.store(true, Ordering::Relaxed);
}

/// Whether anything went wrong in this process that could not be returned as an error: something was not given back, or
/// results were not written. It was said on stderr; a program that ends should not claim success.
pub fn failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}
