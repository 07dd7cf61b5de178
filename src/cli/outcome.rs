//! What a command leaves behind: its outputs, and what it says in the end.

use std::path::{Path, PathBuf};

use wavefield::app::Ended;
use wavefield::report::Failures;
use wavefield::{Result, note, say};

/// Prints the summary, whatever failed, and hands the failure on.
pub fn show(ended: Ended) -> Result<()> {
    say!("{}", ended.summary);
    ended.failure.map_or(Ok(()), Err)
}

/// Writes an output if it was asked for, and says so.
pub fn write(failures: &mut Failures, path: &Option<PathBuf>, write: impl FnOnce(&Path) -> Result<()>) {
    if let Some(path) = path
        && failures.catch(write(path)).is_some()
    {
        note!("wrote {}", path.display());
    }
}
