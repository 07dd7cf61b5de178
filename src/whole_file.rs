//! Files that appear under their name whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use crate::{Error, Result};

/// Tries whether `path` can be written, before minutes are spent on what goes there. Leaves nothing behind.
///
/// # Errors
/// What the write itself would answer: a folder that is missing or not ours, a path that is a folder.
pub fn check_writable(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Err(cannot_write(path, io::Error::from(io::ErrorKind::IsADirectory)));
    }
    beside(path).map(drop)
}

/// Writes `path` with what `fill` puts into it.
///
/// The file is written beside its place first and renamed once it is complete and on the disk. A failure leaves what
/// was there before.
///
/// # Errors
/// What `fill` or the operating system answered, with the path.
pub fn write(path: &Path, fill: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>) -> Result<()> {
    let failed = |error| cannot_write(path, error);
    let mut file = beside(path)?;
    let mut buffered = BufWriter::new(file.as_file_mut());
    fill(&mut buffered).and_then(|()| buffered.flush()).map_err(failed)?;
    drop(buffered);
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// A new file in the same folder, so that the rename stays within one file system. Removed unless it is persisted.
fn beside(path: &Path) -> Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut builder = Builder::new();
    builder.prefix(".wavefield-").suffix(".part");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // What a new file usually gets; the process's umask still applies.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder).map_err(|error| cannot_write(path, error))
}

fn cannot_write(path: &Path, source: io::Error) -> Error {
    Error::Io { action: "write", path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_replaces_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, "old and longer").unwrap();
        write(&path, |file| file.write_all(b"new")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, "old").unwrap();
        let failed = write(&path, |file| {
            file.write_all(b"half of it")?;
            Err(io::Error::other("the other half is missing"))
        });
        let text = failed.unwrap_err().to_string();
        assert!(text.contains("a.txt") && text.contains("the other half"), "{text}");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_unwritable_place_is_known_beforehand() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check_writable(&folder.path().join("no/such/folder.png")).is_err());
        let text = check_writable(folder.path()).unwrap_err().to_string();
        assert!(text.contains("cannot write") && text.contains("directory"), "{text}");
        assert!(check_writable(&folder.path().join("fine.png")).is_ok());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
