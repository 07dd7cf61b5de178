//! The socket that clients connect to, its folder, and the lock file that keeps other renderers away.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{self, SocketAddrUnix};

use wavefield_gpu::{Error, Result, unix_packets::seqpacket};

struct Files {
    socket: PathBuf,
    /// The socket's device and inode numbers. A file with different numbers belongs to another program.
    identity: (u64, u64),
    lock: PathBuf,
    /// Set if the socket's folder is to be removed too, once it is empty.
    folder: Option<PathBuf>,
}

static LISTENING: Mutex<Vec<Files>> = Mutex::new(Vec::new());

fn listening() -> MutexGuard<'static, Vec<Files>> {
    LISTENING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Files {
    /// Removes the files. Call this only while this process holds the lock on the lock file.
    fn remove(&self) {
        if identity(&self.socket).is_ok_and(|found| found == self.identity) {
            let _ = rustix::fs::unlink(&self.socket);
        }
        let _ = rustix::fs::unlink(&self.lock);
        if let Some(folder) = &self.folder {
            let _ = rustix::fs::rmdir(folder);
        }
    }
}

/// Removes the files of every [`Listener`] of this process. For an exit that runs no destructors.
pub fn remove_files() {
    listening().drain(..).for_each(|files| files.remove());
}

fn identity(path: &Path) -> Result<(u64, u64), Errno> {
    rustix::fs::lstat(path).map(|found| (found.st_dev, found.st_ino))
}

/// A listening socket. Dropping it removes its files.
pub struct Listener {
    fd: OwnedFd,
    identity: (u64, u64),
    /// Keeps other renderers from listening at this path.
    _lock: OwnedFd,
}

impl Listener {
    /// Listens at `path`. Replaces a socket that a dead renderer left behind. Fails if another program
    /// listens there, or if the path is empty, too long, in no existing folder, or not a socket.
    /// `remove_folder`: later removes the socket's folder together with the files, if it is empty.
    pub fn bind(path: &Path, remove_folder: bool) -> Result<Self> {
        if path.starts_with(shared_folder()) {
            make_shared_folder()?;
        }
        let failed =
            |source: std::io::Error| Error::Io { action: "listen on", path: path.to_owned(), source };
        let address = SocketAddrUnix::new(path).map_err(|error| match error {
            Errno::NAMETOOLONG => failed(std::io::Error::other("a socket's path has 107 bytes at most")),
            other => failed(other.into()),
        })?;
        if path.as_os_str().is_empty() {
            return Err(Error::Usage("--socket needs a path, and this one is empty".into()));
        }
        // Check before making the lock, so that a refusal leaves no file behind.
        look_at(path, &address).map_err(failed)?;
        let (lock, lock_path) = lock(path).map_err(failed)?;
        let listen = || -> std::io::Result<_> {
            // Check again: the lock's last holder may have bound the socket in the meantime.
            if look_at(path, &address)? {
                rustix::fs::unlink(path)?;
            }
            let fd = seqpacket()?;
            // Set the mode before `bind`: Linux gives the file the socket's mode, so no other user can ever
            // open it.
            rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
            net::bind(&fd, &address)?;
            let identity = identity(path)?;
            net::listen(&fd, 64)?;
            Ok((fd, identity))
        };
        match listen() {
            Ok((fd, identity)) => {
                let folder = path.parent().filter(|_| remove_folder).map(Path::to_owned);
                listening().push(Files { socket: path.to_owned(), identity, lock: lock_path, folder });
                Ok(Self { fd, identity, _lock: lock })
            }
            Err(error) => {
                let _ = rustix::fs::unlink(&lock_path);
                Err(failed(error))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Skip this if `remove_files` has removed the files already: another renderer may be listening there
        // by now.
        listening().extract_if(.., |files| files.identity == self.identity).for_each(|files| files.remove());
    }
}

/// Returns `true` if `path` is a socket that nobody listens on, and `false` if nothing is there. Fails if
/// `path` is something else, or if a program listens there. Holding the lock does not rule that out: a
/// program other than a renderer takes no lock.
fn look_at(path: &Path, address: &SocketAddrUnix) -> std::io::Result<bool> {
    match rustix::fs::lstat(path) {
        Err(Errno::NOENT) => return Ok(false),
        Err(error) => return Err(error.into()),
        Ok(found) if !rustix::fs::FileType::from_raw_mode(found.st_mode).is_socket() => {
            return Err(std::io::Error::other("it exists already, and is not a socket"));
        }
        Ok(_) => {}
    }
    match net::connect(seqpacket()?, address) {
        Err(Errno::CONNREFUSED) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error @ (Errno::ACCESS | Errno::PERM)) => Err(error.into()),
        // A socket with a full queue or of another type is in use too.
        _ => Err(std::io::Error::other(IN_USE)),
    }
}

const IN_USE: &str =
    "another renderer listens there, or another program: end it, or choose another place with --socket";

/// Takes the lock. Also returns the lock file's path, because the file is removed together with the socket.
fn lock(path: &Path) -> std::io::Result<(OwnedFd, PathBuf)> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    loop {
        let file = rustix::fs::open(&name, flags, Mode::RUSR | Mode::WUSR)?;
        let opened = rustix::fs::fstat(&file)?;
        if !rustix::fs::FileType::from_raw_mode(opened.st_mode).is_file() || opened.st_size != 0 {
            // For `--socket Cargo`, this is `Cargo.lock`, which must not be removed later.
            let reason = format!("{} beside it is not a renderer's lock", name.display());
            return Err(std::io::Error::other(reason));
        }
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(std::io::Error::other(IN_USE)),
            other => other?,
        }
        // The previous holder may have removed the file before it was locked here. A lock on a removed file
        // protects nothing.
        if identity(&name).is_ok_and(|named| named == (opened.st_dev, opened.st_ino)) {
            return Ok((file, name));
        }
    }
}

pub fn default_path() -> PathBuf {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| is_own(folder));
    folder.unwrap_or_else(shared_folder).join("wavefield.sock")
}

/// Returns whether `folder` is a folder of this user. After `su`, `XDG_RUNTIME_DIR` is another user's. In a
/// container or under cron, it may not exist.
fn is_own(folder: &Path) -> bool {
    let own = rustix::process::getuid().as_raw();
    folder.is_absolute() && std::fs::metadata(folder).is_ok_and(|found| found.is_dir() && found.uid() == own)
}

pub(super) fn shared_folder() -> PathBuf {
    format!("/tmp/wavefield-{}", rustix::process::getuid().as_raw()).into()
}

fn make_shared_folder() -> Result<()> {
    let folder = shared_folder();
    let made = match rustix::fs::mkdir(&folder, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => check_folder(&folder),
        Err(error) => Err(error.into()),
    };
    made.map_err(|source| Error::Io { action: "make", path: folder, source })
}

/// Fails unless `folder` is a folder that only this user can access. In `/tmp`, another user may have created
/// it.
pub(super) fn check_folder(folder: &Path) -> std::io::Result<()> {
    let found = std::fs::symlink_metadata(folder)?;
    let own = rustix::process::getuid().as_raw();
    if !found.is_dir() || found.uid() != own || found.mode() & 0o077 != 0 {
        let reason = format!(
            "{} exists, but is not a folder that only you can use: remove it, set XDG_RUNTIME_DIR, or use --socket",
            folder.display()
        );
        return Err(std::io::Error::other(reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::socket::Connection;
    use super::*;

    #[test]
    fn the_socket_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = Listener::bind(&path, false).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_live_renderer_is_left_alone_and_a_dead_ones_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let first = Listener::bind(&path, false).unwrap();
        let error = Listener::bind(&path, false).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("another renderer") && error.contains("--socket"), "{error}");
        drop(first);
        // What a renderer that was killed leaves.
        let left = seqpacket().unwrap();
        net::bind(&left, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        drop(left);
        assert!(path.exists());
        let _second = Listener::bind(&path, false).unwrap();
        assert!(Connection::connect(&path).is_ok());
    }

    #[test]
    fn what_is_no_socket_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        std::fs::write(&path, "data").unwrap();
        let error = Listener::bind(&path, false).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("not a socket"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
        let long = folder.path().join("x".repeat(200));
        let error = Listener::bind(&long, false).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("107 bytes"), "{error}");
    }

    #[test]
    fn only_a_folder_of_this_user_is_for_sockets() {
        let folder = tempfile::tempdir().unwrap();
        assert!(is_own(folder.path()));
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        for other in ["", ".", "/no/such/folder", file.to_str().unwrap()] {
            assert!(!is_own(Path::new(other)), "{other}");
        }
        // Only root can give a folder away, and only for others is the root folder another user's.
        let other = match std::os::unix::fs::chown(folder.path(), Some(4711), None) {
            Ok(()) => folder.path(),
            Err(_) => Path::new("/"),
        };
        assert!(!is_own(other), "{}", other.display());
    }

    #[test]
    fn a_folder_of_ones_own_is_nobody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let set = |mode| std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(mode)).unwrap();
        for (mode, fine) in [(0o700, true), (0o755, false), (0o777, false), (0o1777, false), (0o770, false)] {
            set(mode);
            assert_eq!(check_folder(&inner).is_ok(), fine, "{mode:o}");
        }
        set(0o700);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&inner, &link).unwrap();
        assert!(check_folder(&link).unwrap_err().to_string().contains("not a folder that only you can use"));
        assert!(check_folder(&folder.path().join("missing")).is_err());
    }
}
