//! The parts of `--help` that all commands share.

pub(super) use wavefield_run::{DIAGNOSIS, HOW, OUTPUT, WHAT};

/// Ends a command's help with examples and the exit codes.
pub(super) fn end(examples: &str) -> String {
    format!("Examples:\n{examples}\n\nExit codes: 0 done, 1 failed, 2 wrong usage.")
}
