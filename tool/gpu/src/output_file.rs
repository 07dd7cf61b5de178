//! Writes output files. A file appears under its name complete or not at all: a temporary file in the same
//! folder is renamed once it is on disk. A FIFO, device, terminal or standard output (`-`) is written to
//! directly.

use std::collections::HashMap;
#[cfg(unix)]
use std::fs::File;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
#[cfg(unix)]
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::time::{Duration, Instant};

#[cfg(unix)]
use rustix::{fs, io::Errno};
use serde::{Serialize, de::DeserializeOwned};
use tempfile::{Builder, NamedTempFile};

use crate::{Error, Result, report};

/// Checks, before a long run, that every output can be written and that no two are the same file. Leaves no
/// file behind. If an output is standard output, messages go to standard error from now on.
pub fn check_outputs<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
    let mut seen = HashMap::new();
    for path in paths {
        let (_, identity) = writing(path, || open(path, true))?;
        if let Some(other) = identity.and_then(|identity| seen.insert(identity, path.display())) {
            let path = path.display();
            return Err(Error::Usage(format!("{other} and {path} are the same file: name another one")));
        }
    }
    Ok(())
}

pub fn write(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    // Collect the contents in memory first, so that nothing is written if `fill` fails.
    let mut whole = Vec::new();
    writing(path, || fill(&mut whole))?;
    let mut output = StreamedOutput::begin(path)?;
    output.append(&whole)?;
    output.finish()
}

/// Writes `value` as JSON. Fails if an `f64` is not finite; in an `Option`, such a number becomes `null`.
pub fn write_json<T: Serialize + DeserializeOwned>(path: &Path, value: &T) -> Result<()> {
    write(path, |file| {
        let text = serde_json::to_string_pretty(value)?;
        let read = serde_json::from_str::<T>(&text);
        read.map_err(|error| io::Error::other(format!("a figure is not a finite number ({error})")))?;
        writeln!(file, "{text}")
    })
}

/// An output that is written in pieces, because it may be too large to keep in memory.
pub struct StreamedOutput {
    path: PathBuf,
    to: OutputTarget,
}

enum OutputTarget {
    Stream(Box<dyn Write + Send>),
    /// A temporary file and its final path. It is removed unless [`StreamedOutput::finish`] renames it.
    File(NamedTempFile, PathBuf),
}

impl StreamedOutput {
    pub fn begin(path: &Path) -> Result<Self> {
        Ok(Self { path: path.to_owned(), to: writing(path, || open(path, false))?.0 })
    }

    /// Appends a piece. If that fails, truncates a file to its previous length, so that it can be finished.
    pub fn append(&mut self, piece: &[u8]) -> Result<()> {
        writing(&self.path, || match &mut self.to {
            OutputTarget::Stream(stream) => stream.write_all(piece).and_then(|()| stream.flush()),
            OutputTarget::File(part, _) => {
                let file = part.as_file_mut(); // `part`'s own errors would name the temporary file.
                let start = file.stream_position()?;
                file.write_all(piece).or_else(|error| {
                    file.set_len(start)?;
                    file.seek(SeekFrom::Start(start)).and(Err(error))
                })
            }
        })
    }

    /// Renames a file to its final path, with the rights of the file that it replaces. Does nothing for any
    /// other output.
    pub fn finish(self) -> Result<()> {
        let OutputTarget::File(part, place) = self.to else { return Ok(()) };
        writing(&self.path, || {
            #[cfg(unix)]
            take_after(part.as_file(), &place)?;
            part.as_file().sync_all()?;
            // On Windows a file that another program has open may not be replaced.
            let Err(failed) = part.persist(place) else { return Ok(()) };
            let name = failed.file.path().file_name().unwrap_or_default().display().to_string();
            Err(match failed.file.keep() {
                Ok(_) => io::Error::other(format!(
                    "{}; what was to be written is in {name}, beside it",
                    failed.error
                )),
                Err(_) => failed.error,
            })
        })
    }
}

/// Opens an output, or only checks that it can be opened. Also returns an identity, equal for all names of
/// one file; `None` for a FIFO, device or terminal, which may be named more than once.
#[cfg_attr(not(unix), allow(unused_variables))]
fn open(path: &Path, only_check: bool) -> io::Result<(OutputTarget, Option<PathBuf>)> {
    // Windows has `nul` and others in every folder.
    if std::path::absolute(path).is_ok_and(|path| path.as_os_str().as_encoded_bytes().starts_with(br"\\.\")) {
        return Err(io::Error::other("on Windows this is the name of a device: choose another one"));
    }
    // `try_exists` fails for a cycle of links, so the loop below ends.
    let old = path.try_exists()?.then(|| path.metadata()).transpose()?;
    let mut end = path.to_owned();
    loop {
        if ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| end == Path::new(name)) {
            report::spare_output();
            return Ok((OutputTarget::Stream(Box::new(io::stdout())), Some("-".into())));
        }
        let Ok(target) = end.read_link() else { break };
        end.set_file_name(target);
    }
    #[cfg(unix)]
    if old.as_ref().is_some_and(|old| !old.is_file() && !old.is_dir()) {
        fs::access(path, fs::Access::WRITE_OK)?;
        // A check must not open a FIFO: closing it would end the reader's input.
        let stream: Box<dyn Write + Send> =
            if only_check { Box::new(io::sink()) } else { Box::new(open_stream(path)?) };
        return Ok((OutputTarget::Stream(stream), None));
    }
    // `a/` and `a/.` name a folder, even if it does not exist.
    let is_last = |name: &[u8]| end.as_os_str().as_encoded_bytes().ends_with(name);
    let name = end.file_name().filter(|name| is_last(name.as_encoded_bytes()) && !path.is_dir());
    let folder = Path::new(".").join(end.parent().unwrap_or(&end)).canonicalize()?;
    let place = folder.join(name.ok_or(ErrorKind::IsADirectory)?);
    let mut options = OpenOptions::new();
    options.write(true);
    if old.is_some() {
        options.open(&place)?; // Do not replace a file that this user may not write.
        #[cfg(target_os = "linux")]
        if fs::statx(fs::CWD, &place, fs::AtFlags::empty(), fs::StatxFlags::empty())
            .is_ok_and(|found| found.stx_attributes.contains(fs::StatxAttributes::MOUNT_ROOT))
        {
            return Err(io::Error::other("it is a mount point and cannot be replaced: mount its folder"));
        }
    }
    // A new file gets the usual mode, limited by the umask. A replacement is private until it is finished.
    #[cfg(unix)]
    options.mode(if old.is_some() { 0o600 } else { 0o666 });
    options.create_new(true);
    let mut builder = Builder::new();
    let part = builder.prefix(".wavefield-").suffix(".part").make_in(folder, |part| options.open(part))?;
    let identity = match old {
        #[cfg(unix)]
        Some(old) => format!("{}:{}", old.dev(), old.ino()).into(),
        _ => place.clone(),
    };
    Ok((OutputTarget::File(part, place), Some(identity)))
}

/// Opens a FIFO, device or terminal. Polls for a FIFO's reader for 5 s: a blocking `open` has no timeout.
#[cfg(unix)]
fn open_stream(path: &Path) -> io::Result<File> {
    let flags = fs::OFlags::WRONLY | fs::OFlags::NOCTTY | fs::OFlags::NONBLOCK | fs::OFlags::CLOEXEC;
    let end = Instant::now() + Duration::from_secs(5);
    let file = loop {
        match fs::open(path, flags, fs::Mode::empty()) {
            Err(Errno::NXIO) if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            Err(Errno::NXIO) => return Err(io::Error::other("nothing reads from it")),
            opened => break opened?,
        }
    };
    fs::fcntl_setfl(&file, fs::OFlags::empty())?; // From here on, writes block.
    Ok(file.into())
}

/// Copies owner, group, ACL and mode from the file at `place`, as far as this user may. Never adds rights.
#[cfg(unix)]
fn take_after(file: &File, place: &Path) -> io::Result<()> {
    let Some(old) = place.try_exists()?.then(|| place.metadata()).transpose()? else { return Ok(()) };
    let owned = fchown(file, Some(old.uid()), Some(old.gid())).is_ok();
    let kept = owned || fchown(file, None, Some(old.gid())).is_ok();
    #[cfg(target_os = "linux")]
    let kept = kept && {
        const ACL: &str = "system.posix_acl_access";
        let mut acl = [0; 64 << 10]; // The maximum size of an extended attribute.
        match fs::getxattr(place, ACL, &mut acl) {
            Ok(size) => fs::fsetxattr(file, ACL, &acl[..size], fs::XattrFlags::empty()).is_ok(),
            // The old file has no ACL. The new file may have got one from its folder's default ACL.
            Err(Errno::NODATA) => matches!(fs::fremovexattr(file, ACL), Ok(()) | Err(Errno::NODATA)),
            Err(error) => error == Errno::OPNOTSUPP,
        }
    };
    let rights = match (owned, kept) {
        (true, true) => 0o7777,
        (false, true) => 0o777, // Drop the set-user-ID, set-group-ID and sticky bits: the owner differs.
        // The old group or ACL could not be kept, so its members now count as others. Give the new group
        // nothing, and others no more than the group had. With an ACL, the group bits are its mask.
        (_, false) => 0o700 | old.mode() >> 3 & 7,
    };
    // Set the mode last, because a change of owner clears bits.
    file.set_permissions(PermissionsExt::from_mode(old.mode() & rights))
}

fn writing<T>(path: &Path, action: impl FnOnce() -> io::Result<T>) -> Result<T> {
    action().map_err(|mut source| {
        if source.kind() == ErrorKind::FileTooLarge {
            let hint = "the shell's `ulimit -f`, or the file system, allows no more";
            source = io::Error::new(source.kind(), format!("{source}; {hint}"));
        }
        Error::Io { action: "write", path: path.to_owned(), source }
    })
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

    /// A folder plays the file that another program has open on Windows.
    #[test]
    fn what_cannot_get_its_name_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        let mut output = StreamedOutput::begin(&path).unwrap();
        output.append(b"measured").unwrap();
        std::fs::create_dir(&path).unwrap();
        let text = output.finish().unwrap_err().to_string();
        let (_, named) = text.split_once("is in ").expect("a name");
        let (name, _) = named.split_once(',').expect("a name");
        assert_eq!(std::fs::read(folder.path().join(name)).unwrap(), b"measured", "{text}");
    }

    #[test]
    fn an_unwritable_place_is_known_beforehand() {
        let folder = tempfile::tempdir().unwrap();
        let check_writable = |path: &Path| check_outputs([&path.to_owned()]);
        assert!(check_writable(&folder.path().join("no/such/folder.png")).is_err());
        let text = check_writable(folder.path()).unwrap_err().to_string();
        assert!(text.contains("cannot write") && text.contains("directory"), "{text}");
        assert!(check_writable(&folder.path().join("fine.png")).is_ok());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
