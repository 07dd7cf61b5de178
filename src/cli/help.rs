//! What all commands' `--help` has in common.

// The groups of options, in this order.
pub const WHAT: &str = "What is shown";
pub const HOW: &str = "How it is done";
pub const OUTPUT: &str = "What comes out";
pub const DIAGNOSIS: &str = "Diagnosis";

/// Below a command's options: examples, and what its exit code says.
pub fn end(examples: &str) -> String {
    format!("Examples:\n{examples}\n\nExit codes: 0 done, 1 failed, 2 wrong usage.")
}
