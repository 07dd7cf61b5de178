//! Writes results. A file appears under its name complete or not at all. A FIFO, a device, a terminal or standard
//! output is written directly.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::{Builder, NamedTempFile};

use crate::{Error, Result, report};

/// Checks whether `path` can be written, before minutes are spent on its content. Leaves nothing behind. If `path` is
/// standard output, messages for people go to standard error from now on.
pub fn check_writable(path: &Path) -> Result<()> {
    let tried = Place::of(path).and_then(|place| match &place {
        Place::Output => {
            report::spare_output();
            Ok(())
        }
        // Not opened: a FIFO's reader would see the end of its input.
        #[cfg(target_os = "linux")]
        Place::Straight(path) => Ok(rustix::fs::access(path, rustix::fs::Access::WRITE_OK)?),
        #[cfg(not(target_os = "linux"))]
        Place::Straight(_) => Ok(()),
        Place::File { path, old } => {
            if old.is_some() {
                OpenOptions::new().write(true).open(path)?;
                #[cfg(target_os = "linux")]
                check_replaceable(path)?;
            }
            beside(path, old.as_ref()).map(drop)
        }
    });
    tried.map_err(|error| cannot_write(path, error))
}

/// [`check_writable`] for every output of a run.
///
/// # Errors
/// As there, and [`Error::Usage`] if two of them are the same file, even under different names.
pub fn check_outputs<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
    let mut seen: Vec<(PathBuf, &Path)> = Vec::new();
    for path in paths {
        check_writable(path)?;
        let identity = Place::of(path).and_then(|place| place.identity());
        let Some(identity) = identity.map_err(|error| cannot_write(path, error))? else { continue };
        if let Some((_, other)) = seen.iter().find(|(seen, _)| *seen == identity) {
            let (other, path) = (other.display(), path.display());
            return Err(Error::Usage(format!(
                "{other} and {path} are the same file, and the second output would replace the first: name another"
            )));
        }
        seen.push((identity, path));
    }
    Ok(())
}

/// Writes the output of `fill` to `path`.
///
/// A file is first written next to its place and renamed once it is complete and on the disk. After a failure the old
/// file is unchanged. The new file has the old one's mode and ACL, and its owner and group if this user may set them. Links are
/// followed. Anything else than a file is written directly; `-` is standard output.
pub fn write(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    // In memory first, so that no half of it is ever written.
    let mut whole = Vec::new();
    fill(&mut whole).map_err(|error| cannot_write(path, error))?;
    let mut output = Growing::begin(path)?;
    output.append(&whole)?;
    output.finish()
}

/// A result that is written piece by piece because all of it would need too much memory. A file appears under its name
/// with [`Growing::finish`].
pub struct Growing {
    path: PathBuf,
    to: Target,
}

#[allow(clippy::large_enum_variant)] // Only one exists at a time.
enum Target {
    Stream(Box<dyn Write + Send>),
    File { file: NamedTempFile, path: PathBuf, old: Option<Metadata>, length: u64 },
}

impl Growing {
    pub fn begin(path: &Path) -> Result<Self> {
        let to = Place::of(path).and_then(|place| {
            Ok(match place {
                Place::Output => Target::Stream(Box::new(io::stdout())),
                Place::Straight(path) => Target::Stream(Box::new(open_straight(&path)?)),
                Place::File { path, old } => {
                    Target::File { file: beside(&path, old.as_ref())?, path, old, length: 0 }
                }
            })
        });
        let to = to.map_err(|error| cannot_write(path, error))?;
        Ok(Self { path: path.to_owned(), to })
    }

    /// Appends a piece. A file gets it complete or not at all: after a failure it can still be finished.
    pub fn append(&mut self, piece: &[u8]) -> Result<()> {
        let appended = match &mut self.to {
            Target::Stream(stream) => stream.write_all(piece).and_then(|()| stream.flush()),
            Target::File { file, length, .. } => match file.write_all(piece) {
                Ok(()) => {
                    *length += piece.len() as u64;
                    Ok(())
                }
                Err(error) => {
                    let cut = file.as_file().set_len(*length);
                    cut.and_then(|()| file.seek(SeekFrom::Start(*length))).and(Err(error))
                }
            },
        };
        appended.map_err(|error| cannot_write(&self.path, error))
    }

    /// Puts a file in its place. Does nothing for any other output.
    pub fn finish(self) -> Result<()> {
        let Target::File { file, path, old, .. } = self.to else { return Ok(()) };
        let taken = old.map_or(Ok(()), |old| take_after(file.as_file(), &path, &old));
        let kept = taken.and_then(|()| file.as_file().sync_all());
        let placed = kept.and_then(|()| file.persist(path).map_err(|error| error.error));
        placed.map(drop).map_err(|error| cannot_write(&self.path, error))
    }
}

/// Writes `value` as JSON, as `write` does. Fails if a figure is not finite: JSON has no such number, and the file could not be read back.
pub fn write_json<T: Serialize + DeserializeOwned>(path: &Path, value: &T) -> Result<()> {
    let text = serde_json::to_string_pretty(value).and_then(|text| {
        serde_json::from_str::<T>(&text)?;
        Ok(text)
    });
    write(path, |file| {
        let text =
            text.map_err(|error| io::Error::other(format!("a figure is not a finite number ({error})")))?;
        writeln!(file, "{text}")
    })
}

/// The kind of output that a path names.
enum Place {
    /// Standard output.
    Output,
    /// A FIFO, a device or a terminal.
    Straight(PathBuf),
    /// A file that may not exist yet. The last component of the path is not a link.
    File { path: PathBuf, old: Option<Metadata> },
}

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        // Fails for a circle of links, so that following them ends.
        let old = match std::fs::metadata(path) {
            Ok(old) if old.is_dir() => return Err(ErrorKind::IsADirectory.into()),
            Ok(old) => Some(old),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut end = path.to_owned();
        loop {
            if ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| end == Path::new(name))
            {
                return Ok(Self::Output);
            }
            let Ok(target) = std::fs::read_link(&end) else { break };
            end = folder(&end).join(target);
        }
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            return Ok(Self::Straight(path.to_owned()));
        }
        // `a/` and `a/.` name a folder, and it does not exist.
        let spelled = end.as_os_str().as_encoded_bytes();
        match end.file_name() {
            Some(name) if spelled.ends_with(name.as_encoded_bytes()) => Ok(Self::File { path: end, old }),
            _ => Err(ErrorKind::IsADirectory.into()),
        }
    }

    /// What all names of an output have in common; `None` if it may be used more than once, such as a terminal.
    fn identity(&self) -> io::Result<Option<PathBuf>> {
        Ok(match self {
            Self::Output => Some("-".into()),
            Self::Straight(_) => None,
            #[cfg(unix)]
            Self::File { old: Some(old), .. } => {
                use std::os::unix::fs::MetadataExt;
                Some(format!("{}:{}", old.dev(), old.ino()).into())
            }
            Self::File { path, .. } => {
                Some(folder(path).canonicalize()?.join(path.file_name().unwrap_or_default()))
            }
        })
    }
}

/// Refuses a mount point, because a rename cannot replace it. Containers mount single files this way.
#[cfg(target_os = "linux")]
fn check_replaceable(path: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::empty());
    match found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)) {
        true => Err(io::Error::other(
            "it is a mount point, so no new file can take its place: mount its folder instead",
        )),
        false => Ok(()),
    }
}

/// Opens an output other than a file.
fn open_straight(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
        use std::time::{Duration, Instant};
        // How long to wait for a FIFO's reader. A blocking open would wait for ever, and no signal would end it.
        const PATIENCE: Duration = Duration::from_secs(5);
        options.custom_flags(libc::O_NOCTTY);
        let began = Instant::now();
        while std::fs::metadata(path)?.file_type().is_fifo() {
            match options.clone().custom_flags(libc::O_NONBLOCK).open(path) {
                // This one keeps the reader until the FIFO is open for writes that wait.
                Ok(_held) => return options.open(path),
                Err(error) if error.raw_os_error() != Some(libc::ENXIO) => return Err(error),
                Err(_) if began.elapsed() > PATIENCE => {
                    return Err(io::Error::other("nothing reads from this FIFO"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
    options.open(path)
}

/// Gives the new file the old one's mode, owner, group and ACL, and nobody more rights than before. Only the superuser may
/// give a file to another user; anyone may give their file to a group of theirs.
#[cfg(unix)]
fn take_after(file: &File, path: &Path, old: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    let owned = fchown(file, Some(old.uid()), Some(old.gid())).is_ok();
    let grouped = owned || fchown(file, None, Some(old.gid())).is_ok();
    let kept = grouped && take_acl(file, path)?;
    let mode = match (owned, kept) {
        (true, true) => old.mode() & 0o7777,
        // The set-user-ID bit and its like do not apply to another owner.
        (false, true) => old.mode() & 0o777,
        // The group's rights do not apply to another group, and its members are among the others now. With an ACL, the
        // group's bits are the most that anyone in the ACL may do.
        (_, false) => old.mode() & 0o700 | old.mode() >> 3 & old.mode() & 7,
    };
    // Set last, because a change of owner clears bits.
    file.set_permissions(std::fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn take_after(_: &File, _: &Path, _: &Metadata) -> io::Result<()> {
    Ok(())
}

/// Gives the new file the ACL of the old one at `path`, or none. False if it has one that cannot be set.
#[cfg(target_os = "linux")]
fn take_acl(file: &File, path: &Path) -> io::Result<bool> {
    use rustix::fs::{XattrFlags, fremovexattr, fsetxattr, getxattr};
    use rustix::io::Errno;
    const ACL: &str = "system.posix_acl_access";
    let mut acl = [0; 64 << 10]; // The most that an attribute can have.
    match getxattr(path, ACL, &mut acl) {
        Ok(size) => Ok(fsetxattr(file, ACL, &acl[..size], XattrFlags::empty()).is_ok()),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => match fremovexattr(file, ACL) {
            // The folder may have given it one.
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(true),
            Err(error) => Err(error.into()),
        },
        Err(_) => Ok(false),
    }
}

#[cfg(all(unix, not(target_os = "linux")))]
fn take_acl(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

/// Creates a file in the same folder, so that the rename stays within one file system. It is removed unless it is persisted.
fn beside(path: &Path, old: Option<&Metadata>) -> io::Result<NamedTempFile> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // A new file gets the usual mode, by the process's umask. One that replaces another stays private until it gets
        // the other one's mode.
        options.mode(if old.is_some() { 0o600 } else { 0o666 });
    }
    #[cfg(not(unix))]
    let _ = old;
    Builder::new().prefix(".wavefield-").suffix(".part").make_in(folder(path), |path| options.open(path))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

fn cannot_write(path: &Path, source: io::Error) -> Error {
    let source = match source.kind() {
        ErrorKind::FileTooLarge => io::Error::new(
            ErrorKind::FileTooLarge,
            format!("{source}; the shell's `ulimit -f`, or the file system, allows no more"),
        ),
        _ => source,
    };
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
