use std::path::{Path, PathBuf};

use wavefield_gpu::{Result, note, report::Failures, say};
use wavefield_run::Ended;

/// Prints the summary, even after a failure, and returns the failure.
pub(super) fn show(ended: Ended) -> Result<()> {
    say!("{}", ended.summary);
    ended.failure.map_or(Ok(()), Err)
}

pub(super) fn write(
    failures: &mut Failures,
    path: &Option<PathBuf>,
    write: impl FnOnce(&Path) -> Result<()>,
) {
    if let Some(path) = path
        && failures.catch(write(path)).is_some()
    {
        note!("wrote {}", path.display());
    }
}
