//! Writes results. A file appears under its name complete or not at all. A FIFO, a device, a terminal or standard
//! output is written directly.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::{Builder, NamedTempFile};

use crate::{Error, Result, report};

/// Checks whether `path` can be written, before minutes are spent on its content. Leaves nothing behind. If `path` is
/// standard output, messages for people go to standard error from now on.
///
/// # Errors
/// The error that the write itself would give: a missing folder, no permission, a path that is a folder, a name too long.
pub fn check_writable(path: &Path) -> Result<()> {
    let tried = Place::of(path).and_then(|place| match &place {
        Place::Output => {
            report::spare_output();
            Ok(())
        }
        #[cfg(unix)]
        Place::Error => Ok(()),
        Place::Straight(path) => may_write(path),
        Place::File { path, old } => {
            if old.is_some() {
                OpenOptions::new().write(true).open(path)?;
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
    let mut seen: Vec<(Identity, &Path)> = Vec::new();
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
///
/// # Errors
/// The error of `fill` or of the operating system, with the path.
pub fn write(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    // In memory first, so that no half of it is ever written.
    let mut whole = Vec::new();
    let written = fill(&mut whole).and_then(|()| match Place::of(path)? {
        Place::Output => send(report::Output, &whole),
        #[cfg(unix)]
        Place::Error => send(io::stderr().lock(), &whole),
        Place::Straight(path) => send(open_straight(&path)?, &whole),
        Place::File { path, old } => replace(&path, old.as_ref(), &whole),
    });
    written.map_err(|error| cannot_write(path, error))
}

/// A result that is written piece by piece because all of it would need too much memory. A file appears under its name
/// with [`Growing::finish`], as with [`write()`].
pub(crate) struct Growing {
    path: PathBuf,
    to: Target,
}

#[allow(clippy::large_enum_variant)] // Only one exists at a time.
enum Target {
    Stream(Box<dyn Write + Send>),
    File { file: NamedTempFile, path: PathBuf, old: Option<Metadata>, length: u64 },
}

impl Growing {
    /// Opens the output.
    ///
    /// # Errors
    /// As [`write()`].
    pub(crate) fn begin(path: &Path) -> Result<Self> {
        let target = Place::of(path).and_then(|place| {
            Ok(match place {
                Place::Output => Target::Stream(Box::new(report::Output)),
                #[cfg(unix)]
                Place::Error => Target::Stream(Box::new(io::stderr())),
                Place::Straight(path) => Target::Stream(Box::new(open_straight(&path)?)),
                Place::File { path, old } => {
                    Target::File { file: beside(&path, old.as_ref())?, path, old, length: 0 }
                }
            })
        });
        let to = target.map_err(|error| cannot_write(path, error))?;
        Ok(Self { path: path.to_owned(), to })
    }

    /// Appends a piece. A file gets it complete or not at all.
    ///
    /// # Errors
    /// The error of the operating system. The earlier pieces are kept, and the file can still be finished.
    pub(crate) fn append(&mut self, piece: &[u8]) -> Result<()> {
        let appended = match &mut self.to {
            Target::Stream(stream) => send(stream, piece),
            Target::File { file, length, .. } => {
                let appended = file.write_all(piece);
                match appended {
                    Ok(()) => *length += piece.len() as u64,
                    Err(_) => {
                        cut(file.as_file_mut(), *length).map_err(|error| cannot_write(&self.path, error))?
                    }
                }
                appended
            }
        };
        appended.map_err(|error| cannot_write(&self.path, error))
    }

    /// Puts a file in its place. Does nothing for any other output.
    ///
    /// # Errors
    /// The error of the operating system; the old file is then unchanged.
    pub(crate) fn finish(self) -> Result<()> {
        match self.to {
            Target::Stream(_) => Ok(()),
            Target::File { file, path, old, .. } => {
                persist(file, &path, old.as_ref()).map_err(|error| cannot_write(&self.path, error))
            }
        }
    }
}

/// Cuts the file to `length`.
fn cut(file: &mut File, length: u64) -> io::Result<()> {
    file.set_len(length)?;
    file.seek(SeekFrom::Start(length)).map(drop)
}

/// [`write()`] of `value` as JSON.
///
/// # Errors
/// As there, and if a figure is not finite: JSON has no such number, and the file could not be read back.
pub(crate) fn write_json<T: Serialize + DeserializeOwned>(path: &Path, value: &T) -> Result<()> {
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
    /// Standard error.
    #[cfg(unix)]
    Error,
    /// A FIFO, a device or a terminal.
    Straight(PathBuf),
    /// A file that may not exist yet. The last component of the path is not a link.
    File { path: PathBuf, old: Option<Metadata> },
}

/// Identifies an output, to find two that are the same.
#[derive(PartialEq)]
enum Identity {
    Output,
    #[cfg(unix)]
    Node(u64, u64),
    Name(PathBuf, OsString),
}

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        // The last three lead to standard error after `report::keep_output`.
        if ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| path == Path::new(name)) {
            return Ok(Self::Output);
        }
        let found = match std::fs::metadata(path) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Self::new_file(path),
            Err(error) => return Err(error),
        };
        if found.is_dir() {
            return Err(ErrorKind::IsADirectory.into());
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::FileTypeExt;
            // `/dev/stdout` leads to the current standard output. If that is a file, opening it anew would overwrite it
            // from the start.
            if !found.file_type().is_char_device() {
                let kept = report::kept_output();
                if kept.map_or_else(|| is_open_as(&io::stdout(), &found), |kept| is_open_as(kept, &found)) {
                    return Ok(Self::Output);
                }
                if is_open_as(&io::stderr(), &found) {
                    return Ok(Self::Error);
                }
            }
            if found.file_type().is_socket() {
                return Err(io::Error::other("it is a socket"));
            }
        }
        Ok(match found.is_file() {
            true => Self::File { path: path.canonicalize()?, old: Some(found) },
            false => Self::Straight(path.to_owned()),
        })
    }

    /// The place of a file that does not exist yet. Dangling links are followed: the file is created where they point.
    fn new_file(path: &Path) -> io::Result<Self> {
        let mut path = path.to_owned();
        // This loop ends, because the system found no cycle of links.
        while let Ok(target) = std::fs::read_link(&path) {
            path = path.parent().unwrap_or(Path::new("")).join(target);
        }
        // `a/` and `a/.` name a folder, and it does not exist.
        let spelled = path.as_os_str().as_encoded_bytes();
        match path.file_name() {
            Some(name) if spelled.ends_with(name.as_encoded_bytes()) => Ok(Self::File { path, old: None }),
            _ => Err(ErrorKind::IsADirectory.into()),
        }
    }

    /// `None` for outputs that may be used more than once, such as a device or a terminal.
    fn identity(&self) -> io::Result<Option<Identity>> {
        Ok(match self {
            Self::Output => Some(Identity::Output),
            #[cfg(unix)]
            Self::Error => None,
            Self::Straight(_) => None,
            #[cfg(unix)]
            Self::File { old: Some(old), .. } => {
                use std::os::unix::fs::MetadataExt;
                Some(Identity::Node(old.dev(), old.ino()))
            }
            Self::File { path, .. } => {
                let name = path.file_name().unwrap_or_default().to_owned();
                Some(Identity::Name(folder(path).canonicalize()?, name))
            }
        })
    }
}

/// Whether `stream` is the open file that was `found` under a name.
#[cfg(unix)]
fn is_open_as(stream: &impl std::os::fd::AsFd, found: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    let open = stream.as_fd().try_clone_to_owned().and_then(|stream| File::from(stream).metadata());
    open.is_ok_and(|open| (open.dev(), open.ino()) == (found.dev(), found.ino()))
}

/// Refuses a mount point, because a rename cannot replace it. Containers mount single files this way.
fn check_replaceable(path: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
        let mounted = |found: rustix::fs::Statx| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        if statx(CWD, path, AtFlags::empty(), StatxFlags::empty()).is_ok_and(mounted) {
            let words = "it is a mount point, so no new file can take its place: mount its folder instead";
            return Err(io::Error::other(words));
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = path;
    Ok(())
}

/// Checks whether an output other than a file may be written. It is not opened: a FIFO's reader would see the end of its input.
fn may_write(path: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK)?;
    #[cfg(not(target_os = "linux"))]
    let _ = path;
    Ok(())
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
        if std::fs::metadata(path)?.file_type().is_fifo() {
            let began = Instant::now();
            let mut at_once = options.clone();
            at_once.custom_flags(libc::O_NONBLOCK);
            loop {
                match at_once.open(path) {
                    // Open it again without `O_NONBLOCK` while this one keeps the reader, so that writes wait as they should.
                    Ok(_held) => return options.open(path),
                    Err(error) if error.raw_os_error() != Some(libc::ENXIO) => return Err(error),
                    Err(_) if began.elapsed() > PATIENCE => {
                        return Err(io::Error::other("nothing reads from this FIFO"));
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(10)),
                }
            }
        }
    }
    options.open(path)
}

fn send(mut to: impl Write, whole: &[u8]) -> io::Result<()> {
    to.write_all(whole)?;
    to.flush()
}

/// Writes a file next to `path` and puts it in its place.
fn replace(path: &Path, old: Option<&Metadata>, whole: &[u8]) -> io::Result<()> {
    let mut file = beside(path, old)?;
    file.write_all(whole)?;
    persist(file, path, old)
}

/// Puts a file that was written next to `path` in its place.
fn persist(file: NamedTempFile, path: &Path, old: Option<&Metadata>) -> io::Result<()> {
    #[cfg(not(unix))]
    let _ = old;
    #[cfg(unix)]
    if let Some(old) = old {
        take_after(file.as_file(), path, old)?;
    }
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
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
