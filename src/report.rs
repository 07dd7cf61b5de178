//! Lines for people. A closed pipe at the other end is no reason to panic, as `println!` would.

use std::ffi::OsStr;
use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, Result};

/// A line on standard output: results. Where they cannot be written, for want of space say, that is told once.
pub fn line(text: Arguments<'_>) {
    if SPARED.load(Ordering::Relaxed) {
        return note(text);
    }
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

/// Standard output is a result's own.
static SPARED: AtomicBool = AtomicBool::new(false);

/// Leaves standard output to a file's contents: every line goes to standard error from now on.
pub(crate) fn spare_output() {
    SPARED.store(true, Ordering::Relaxed);
}

/// The command line for a record, without the folder that the program lies in, which is nobody's business. What is not
/// Unicode in it is replaced.
pub fn command_line() -> String {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or(OsStr::new("wavefield"));
    let words = std::iter::once(name.to_owned()).chain(words);
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// What fails while the rest goes on: the first failure is the outcome, every later one is said at once.
#[derive(Default)]
pub struct Failures(Option<Error>);

impl Failures {
    /// Remembers the failure, or says it if it is not the first.
    pub fn add(&mut self, error: Error) {
        match &self.0 {
            None => self.0 = Some(error),
            Some(_) => crate::note!("error: {error}"),
        }
    }

    /// What came out; a failure is [added](Self::add).
    pub fn catch<T>(&mut self, outcome: Result<T>) -> Option<T> {
        outcome.map_err(|error| self.add(error)).ok()
    }

    /// The first failure so far.
    pub fn first(&self) -> Option<&Error> {
        self.0.as_ref()
    }

    /// The first failure, if there was any.
    ///
    /// # Errors
    /// That one.
    pub fn outcome(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_the_outcome() {
        let mut failures = Failures::default();
        assert_eq!(failures.catch(Ok(7)), Some(7));
        assert!(failures.first().is_none());
        assert_eq!(failures.catch::<u32>(Err(Error::Usage("first".into()))), None);
        failures.add(Error::Stopped("second".into()));
        assert_eq!(failures.outcome().unwrap_err().to_string(), "first");
        assert!(Failures::default().outcome().is_ok());
    }
}
