//! Lines for people. A closed pipe at the other end is no reason to panic, as `println!` would.

use std::fmt::Arguments;
use std::io::Write;

/// A line on standard output: results.
pub fn line(text: Arguments<'_>) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
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
