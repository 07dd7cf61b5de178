//! Prints lines for the user. Unlike `println!`, it does not panic when the reader has closed the pipe.

use std::env::consts::EXE_SUFFIX;
use std::ffi::OsStr;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;

use crate::{Error, Result};

/// Prints a line of results to standard output. The first failure, such as a full disk, prints a note.
pub fn line(text: Arguments<'_>) {
    if SPARED.load(Ordering::Relaxed) {
        return note(text);
    }
    // A reader that closed the pipe is not a failure.
    if let Err(error) = io::stdout().write_all(format!("{text}\n").as_bytes())
        && error.kind() != ErrorKind::BrokenPipe
    {
        FAILED.store(true, Ordering::Relaxed);
        if !NOTED.swap(true, Ordering::Relaxed) {
            crate::note!("cannot write to standard output: {error}");
        }
    }
}

pub fn note(text: Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::report::line(format_args!($($text)*)) };
}

#[macro_export]
macro_rules! note {
    ($($text:tt)*) => { $crate::report::note(format_args!($($text)*)) };
}

static NOTED: AtomicBool = AtomicBool::new(false);

static SPARED: AtomicBool = AtomicBool::new(false);

/// Reserves standard output for the contents of an output. From now on, [`line()`] writes to standard error.
pub fn spare_output() {
    SPARED.store(true, Ordering::Relaxed);
}

/// Returns the command line, to be stored with results. Leaves out the program's folder, which is private.
pub fn command_line() -> String {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or(OsStr::new("wavefield")).to_string_lossy();
    let name = name.strip_suffix(EXE_SUFFIX).unwrap_or(&name).to_owned();
    let words = words.map(|word| word.to_string_lossy().into_owned());
    std::iter::once(name).chain(words).collect::<Vec<_>>().join(" ")
}

/// Wraps a line at spaces to `width` columns and indents the continuation lines. Never breaks a word.
pub fn wrap(line: &str, width: usize, indent: usize) -> String {
    let (mut text, mut column, mut rest) = (String::new(), 0, line);
    // Each step takes a word with the spaces before it. A new line drops those spaces.
    while !rest.is_empty() {
        let word = rest.trim_start_matches(' ');
        let end = rest.len() - word.len() + word.find(' ').unwrap_or(word.len());
        let mut piece = &rest[..end];
        if column > indent && column + piece.chars().count() > width {
            text += &format!("\n{:indent$}", "");
            column = indent;
            piece = piece.trim_start_matches(' ');
        }
        text += piece;
        column += piece.chars().count();
        rest = &rest[end..];
    }
    text
}

/// Returns a value's name on the command line; empty for a value that the command line does not offer.
pub fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |word| word.get_name().to_owned())
}

/// Collects failures while work continues. The first is the outcome; later ones are printed at once.
#[derive(Default)]
pub struct Failures(Option<Error>);

impl Failures {
    pub fn add(&mut self, error: Error) {
        match &self.0 {
            None => self.0 = Some(error),
            Some(_) => crate::note!("error: {error}"),
        }
    }

    /// Returns the value of a success, or [adds](Self::add) a failure.
    pub fn catch<T>(&mut self, outcome: Result<T>) -> Option<T> {
        outcome.map_err(|error| self.add(error)).ok()
    }

    pub fn first(&self) -> Option<&Error> {
        self.0.as_ref()
    }

    pub fn outcome(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

static FAILED: AtomicBool = AtomicBool::new(false);

/// Prints an error from cleaning up, where no error can be returned, and makes [`failed`] true.
pub fn cleanup_error(error: &crate::Error) {
    crate::note!("while cleaning up: {error}");
    FAILED.store(true, Ordering::Relaxed);
}

/// Returns whether a clean-up failed or results could not be written. The exit code must then not be 0.
pub fn failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("one two three", 7, 0), "one two\nthree");
        assert_eq!(wrap("one two three", 8, 0), "one two\nthree");
        assert_eq!(wrap("very-long-word a b", 3, 0), "very-long-word\na b");
        assert_eq!((wrap("µµ µµ", 5, 0), wrap("", 5, 0)), ("µµ µµ".into(), String::new()));
        assert_eq!(wrap("one two three", 8, 2), "one two\n  three");
        assert_eq!(wrap("incomprehensibilities, say", 8, 2), "incomprehensibilities,\n  say");
    }

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
