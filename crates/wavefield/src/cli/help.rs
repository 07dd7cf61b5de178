//! The parts of `--help` that all commands share.

// The groups of options, in this order.
pub const WHAT: &str = "What is shown";
pub const HOW: &str = "How it is done";
pub const OUTPUT: &str = "What comes out";
pub const DIAGNOSIS: &str = "Diagnosis";

/// The text below a command's options: examples, and the exit codes.
pub fn end(examples: &str) -> String {
    format!("Examples:\n{examples}\n\nExit codes: 0 done, 1 failed, 2 wrong usage.")
}
