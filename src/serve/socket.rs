//! The socket: where it lies, who may connect, and packets with descriptors. Nothing here ever waits for a peer.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use serde::Serialize;

use super::protocol::{MAX_MESSAGE, encode};
use crate::Error;

type Result<T, E = Errno> = std::result::Result<T, E>;

/// Descriptors that one packet can carry (`SCM_MAX_FD` in `unix(7)`).
const MAX_DESCRIPTORS: usize = 253;

/// Where the socket lies, if nobody says otherwise.
pub fn default_path() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        Some(folder) => Path::new(&folder).join("wavefield.sock"),
        None => shared_folder().join("wavefield.sock"),
    }
}

/// The folder for those without `XDG_RUNTIME_DIR`.
fn shared_folder() -> PathBuf {
    format!("/tmp/wavefield-{}", rustix::process::getuid().as_raw()).into()
}

/// Makes that folder for its owner alone.
fn make_shared_folder() -> Result<(), Error> {
    let folder = shared_folder();
    let made = match rustix::fs::mkdir(&folder, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => check_folder(&folder),
        Err(error) => Err(error.into()),
    };
    made.map_err(|source| Error::Io { action: "make", path: folder, source })
}

/// An error unless this user alone can put something into `folder`. `/tmp` is everybody's: somebody else may have made a
/// folder there, and listen in it.
fn check_folder(folder: &Path) -> std::io::Result<()> {
    let found = rustix::fs::lstat(folder)?;
    let is_folder = rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir();
    if !is_folder || found.st_uid != rustix::process::getuid().as_raw() || found.st_mode & 0o077 != 0 {
        let reason = format!(
            "{} is there and not a folder of yours alone: remove it, set XDG_RUNTIME_DIR, or use --socket",
            folder.display()
        );
        return Err(std::io::Error::other(reason));
    }
    Ok(())
}

fn seqpacket() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// What lies in the file system as long as a renderer listens.
struct Files {
    socket: PathBuf,
    /// Device and inode of the socket: another one in its place is somebody else's.
    identity: (u64, u64),
    lock: PathBuf,
    /// The socket's folder, if it goes too once it is empty.
    folder: Option<PathBuf>,
}

/// Those of this process, for [`remove_files`].
static LISTENING: Mutex<Vec<Files>> = Mutex::new(Vec::new());

fn listening() -> MutexGuard<'static, Vec<Files>> {
    LISTENING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Files {
    /// To be called while the lock is held.
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

/// Removes the files of every [`Listener`] of this process: for an end that drops nothing.
pub fn remove_files() {
    listening().drain(..).for_each(|files| files.remove());
}

/// Device and inode of what lies at `path`.
fn identity(path: &Path) -> Result<(u64, u64)> {
    rustix::fs::lstat(path).map(|found| (found.st_dev, found.st_ino))
}

/// A socket that clients can connect to. Its files go when this does.
pub struct Listener {
    fd: OwnedFd,
    path: PathBuf,
    /// Which of [`LISTENING`] are its files.
    identity: (u64, u64),
    /// Held as long as this renderer listens here, against another that starts meanwhile.
    _lock: OwnedFd,
}

impl Listener {
    /// Listens at `path`. A socket that a dead renderer left there is replaced.
    ///
    /// # Errors
    /// Somebody listens there; a path that is too long, in no folder, or of something that is no socket.
    pub fn bind(path: Option<&Path>) -> Result<Self, Error> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => default_path(),
        };
        if path.starts_with(shared_folder()) {
            make_shared_folder()?;
        }
        let failed = |source: std::io::Error| Error::Io { action: "listen on", path: path.clone(), source };
        let address = SocketAddrUnix::new(&path).map_err(|error| match error {
            Errno::NAMETOOLONG => failed(std::io::Error::other("a socket's path has 107 bytes at most")),
            other => failed(other.into()),
        })?;
        if path.as_os_str().is_empty() {
            return Err(Error::Usage("--socket needs a path, and this one is empty".into()));
        }
        // Before the lock is made, so that a refusal leaves nothing beside what is there.
        look_at(&path, &address).map_err(failed)?;
        let (lock, lock_path) = lock(&path).map_err(failed)?;
        let listen = || -> std::io::Result<_> {
            // Once more: whoever had the lock until now may have bound it.
            if look_at(&path, &address)? == Found::LeftOver {
                rustix::fs::unlink(&path)?;
            }
            let fd = seqpacket()?;
            // Before `bind`: Linux gives the file the socket's own mode, so nobody else can ever open it.
            rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
            net::bind(&fd, &address)?;
            let identity = identity(&path)?;
            net::listen(&fd, 64)?;
            Ok((fd, identity))
        };
        match listen() {
            Ok((fd, identity)) => {
                listening().push(Files { socket: path.clone(), identity, lock: lock_path, folder: None });
                Ok(Self { fd, path, identity, _lock: lock })
            }
            Err(error) => {
                let _ = rustix::fs::unlink(&lock_path);
                Err(failed(error))
            }
        }
    }

    /// The socket's folder goes too in the end, if nothing else is in it: for one that was made for this socket.
    pub fn remove_folder_too(&self) {
        if let Some(own) = listening().iter_mut().find(|files| files.identity == self.identity) {
            own.folder = self.path.parent().map(Path::to_owned);
        }
    }

    /// Where.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next connection, if one comes within `patience`.
    pub fn accept(&self, patience: Duration) -> Result<Option<Connection>> {
        if !readable(self.fd.as_fd(), patience)? {
            return Ok(None);
        }
        match net::accept_with(&self.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(fd) => Ok(Some(Connection { fd })),
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Not a second time: another renderer may listen there by now.
        let mut all = listening();
        if let Some(own) = all.iter().position(|files| files.identity == self.identity) {
            all.remove(own).remove();
        }
    }
}

/// What lies where a socket is to be.
#[derive(PartialEq, Eq)]
enum Found {
    Nothing,
    /// A socket that nobody listens on any more.
    LeftOver,
}

/// Looks whether a socket can be made at `path`, in the place of a left-over one perhaps.
///
/// # Errors
/// Something else is there, or somebody listens: no lock is held by programs that are no renderers.
fn look_at(path: &Path, address: &SocketAddrUnix) -> std::io::Result<Found> {
    match rustix::fs::lstat(path) {
        Err(Errno::NOENT) => return Ok(Found::Nothing),
        Err(error) => return Err(error.into()),
        Ok(found) if !rustix::fs::FileType::from_raw_mode(found.st_mode).is_socket() => {
            return Err(std::io::Error::other("it is there already, and is no socket"));
        }
        Ok(_) => {}
    }
    match net::connect(seqpacket()?, address) {
        Err(Errno::CONNREFUSED) => Ok(Found::LeftOver),
        Err(Errno::NOENT) => Ok(Found::Nothing),
        Err(error @ (Errno::ACCESS | Errno::PERM)) => Err(error.into()),
        // A queue that is full, or a socket of another type, is somebody's too.
        _ => Err(std::io::Error::other(IN_USE)),
    }
}

const IN_USE: &str =
    "another renderer listens there, or another program: end it, or choose another place with --socket";

/// Takes the lock beside the socket; its file goes with the socket. Returns its path too.
fn lock(path: &Path) -> std::io::Result<(OwnedFd, PathBuf)> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    loop {
        let file = rustix::fs::open(&name, flags, Mode::RUSR | Mode::WUSR)?;
        let opened = rustix::fs::fstat(&file)?;
        if !rustix::fs::FileType::from_raw_mode(opened.st_mode).is_file() || opened.st_size != 0 {
            // `--socket Cargo`, say: what is not a lock is not removed in the end.
            let reason = format!("{} beside it is no lock of a renderer", name.display());
            return Err(std::io::Error::other(reason));
        }
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(std::io::Error::other(IN_USE)),
            other => other?,
        }
        // Whoever had it may have removed the file meanwhile: a file without a name locks nothing.
        if identity(&name).is_ok_and(|named| named == (opened.st_dev, opened.st_ino)) {
            return Ok((file, name));
        }
    }
}

/// One end of a connection.
pub struct Connection {
    fd: OwnedFd,
}

/// Who is at the other end, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process; 0 if it lives in another PID namespace.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
}

/// What a look at the socket found.
#[derive(Debug)]
pub enum Received {
    /// Nothing is there now.
    Nothing,
    /// One message and its descriptors.
    Packet(Vec<u8>, Vec<OwnedFd>),
    /// A message that is longer than allowed; its descriptors.
    TooLong(Vec<OwnedFd>),
    /// The other end is gone.
    Closed,
}

impl Connection {
    /// Connects to a renderer of this user; for clients.
    ///
    /// # Errors
    /// Nobody listens at `path`, or another user may: what that sends is not to be trusted.
    pub fn connect(path: &Path) -> std::io::Result<Self> {
        if path.parent() == Some(&shared_folder()) {
            match check_folder(&shared_folder()) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                checked => checked?,
            }
        }
        let fd = seqpacket()?;
        net::connect(&fd, &SocketAddrUnix::new(path)?)?;
        let connection = Self { fd };
        let (peer, own) = (connection.peer()?, rustix::process::getuid().as_raw());
        if peer.uid != own {
            let reason = format!(
                "user {} listens there, and this program runs as user {own}: run both as the same user",
                peer.uid
            );
            return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, reason));
        }
        Ok(connection)
    }

    /// Who is at the other end.
    pub fn peer(&self) -> std::io::Result<Peer> {
        let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut size = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: an open socket; the option writes one `ucred`, whose size is given. (Not by rustix, whose process id
        // cannot be the 0 that Linux gives for a peer in another PID namespace.)
        let code = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut found).cast(),
                &mut size,
            )
        };
        match code {
            0 => Ok(Peer { pid: found.pid, uid: found.uid }),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    /// Sends one message, whole or not at all.
    ///
    /// # Errors
    /// `EAGAIN`: the other end does not read, and the buffer is full. `EPIPE`: it is gone.
    pub fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        self.send_bytes(&encode(message), descriptors)
    }

    /// The same with any bytes: for those who test what becomes of nonsense.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub fn send_bytes(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::TOOMANYREFS);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        net::sendmsg(&self.fd, &[IoSlice::new(bytes)], &mut control, flags).map(|_| ())
    }

    /// Looks for a message; does not wait.
    pub fn receive(&self) -> Received {
        let mut buffer = vec![0; MAX_MESSAGE];
        // Room for as many descriptors as there can be: what did not fit would be closed by the kernel, in this thread.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut look =
            |control: &mut _| net::recvmsg(&self.fd, &mut [IoSliceMut::new(&mut buffer)], control, flags);
        let got = match look(&mut control) {
            // The other end closed without having read everything; what it said before is still to be read.
            Err(Errno::CONNRESET) => look(&mut control),
            got => got,
        };
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                descriptors.extend(more);
            }
        }
        match got {
            Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
            Err(_) => Received::Closed,
            Ok(got) if got.flags.contains(ReturnFlags::TRUNC) => Received::TooLong(descriptors),
            // An empty packet looks like the end, and is taken for it.
            Ok(got) if got.bytes == 0 => {
                discard(descriptors);
                Received::Closed
            }
            Ok(got) => {
                buffer.truncate(got.bytes);
                Received::Packet(buffer, descriptors)
            }
        }
    }

    /// Memory that the kernel holds for messages of ours which the other end has not read, in bytes; 0 where it does not say.
    pub fn unread(&self) -> u64 {
        // SAFETY: this request (SIOCOUTQ by its older name; unix(7) has both) writes one int, which is what `Getter` gives it
        // room for.
        let unread = unsafe { ioctl(&self.fd, Getter::<{ libc::TIOCOUTQ as Opcode }, libc::c_int>::new()) };
        unread.map_or(0, |bytes| u64::try_from(bytes).unwrap_or(0))
    }

    /// Whether the other end is gone; does not take anything that is still to be read.
    pub fn is_closed(&self) -> bool {
        let mut look = [PollFd::from_borrowed_fd(self.fd.as_fd(), PollFlags::RDHUP)];
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        poll(&mut look, Some(&Timespec::default())).is_ok() && look[0].revents().intersects(gone)
    }

    /// Waits until there is something to receive, the end included, but not longer than `patience`.
    pub fn wait(&self, patience: Duration) {
        // Whatever goes wrong here, `receive` finds out.
        let _ = readable(self.fd.as_fd(), patience);
    }

    /// Waits for a message, but not longer than `patience`.
    pub fn receive_within(&self, patience: Duration) -> Received {
        match readable(self.fd.as_fd(), patience) {
            Ok(true) => self.receive(),
            Ok(false) => Received::Nothing,
            Err(_) => Received::Closed,
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether there is something to read, or the end, within `patience`.
fn readable(fd: BorrowedFd<'_>, patience: Duration) -> Result<bool> {
    let timeout = Timespec {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: patience.subsec_nanos().into(),
    };
    match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Closes what came from a client, on a thread of its own: `close` can wait for the other side (a descriptor may be a file
/// of a file system that the client itself serves), and a renderer must not.
pub(super) fn discard<T: Send + 'static>(closed: T) {
    // If no thread can be started, it is closed here.
    let _ = std::thread::Builder::new().name("closing".into()).spawn(move || drop(closed));
}

/// Connections that are being closed.
static LEAVING: AtomicUsize = AtomicUsize::new(0);

/// Closes a connection once the other end has had time to read what it was told last: a socket that is closed with something
/// unread in it makes Linux tell the other end of a reset first. On a thread of its own, like [`discard`].
pub(super) fn take_leave(connection: Connection) {
    if LEAVING.fetch_add(1, Ordering::Relaxed) >= 64 {
        LEAVING.fetch_sub(1, Ordering::Relaxed);
        return discard(connection);
    }
    let leave = move || {
        let _ = net::shutdown(&connection.fd, net::Shutdown::Write);
        let until = Instant::now() + Duration::from_secs(1);
        while !matches!(connection.receive_within(Duration::from_millis(100)), Received::Closed)
            && Instant::now() < until
        {}
        LEAVING.fetch_sub(1, Ordering::Relaxed);
    };
    if std::thread::Builder::new().name("closing".into()).spawn(leave).is_err() {
        LEAVING.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn pair() -> (tempfile::TempDir, Listener, Connection, Connection) {
        let folder = tempfile::tempdir().unwrap();
        let listener = Listener::bind(Some(&folder.path().join("s"))).unwrap();
        let client = Connection::connect(listener.path()).unwrap();
        let server = listener.accept(Duration::from_secs(5)).unwrap().unwrap();
        (folder, listener, client, server)
    }

    #[test]
    fn the_socket_is_its_owners_alone() {
        let (_folder, listener, client, server) = pair();
        let mode = std::fs::metadata(listener.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let me = Peer { pid: std::process::id() as i32, uid: rustix::process::getuid().as_raw() };
        assert_eq!(server.peer().unwrap(), me);
        assert_eq!(client.peer().unwrap(), me);
        let path = listener.path().to_owned();
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_live_renderer_is_left_alone_and_a_dead_ones_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let first = Listener::bind(Some(&path)).unwrap();
        let error = Listener::bind(Some(&path)).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("another renderer") && error.contains("--socket"), "{error}");
        drop(first);
        // What a renderer that was killed leaves.
        let left = seqpacket().unwrap();
        net::bind(&left, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        drop(left);
        assert!(path.exists());
        let second = Listener::bind(Some(&path)).unwrap();
        assert!(Connection::connect(second.path()).is_ok());
    }

    #[test]
    fn what_is_no_socket_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        std::fs::write(&path, "data").unwrap();
        let error = Listener::bind(Some(&path)).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("no socket"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
        let long = folder.path().join("x".repeat(200));
        let error = Listener::bind(Some(&long)).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("107 bytes"), "{error}");
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
        assert!(check_folder(&link).unwrap_err().to_string().contains("not a folder of yours alone"));
        assert!(check_folder(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn packets_and_descriptors_stay_together() {
        let (_folder, _listener, client, server) = pair();
        assert!(matches!(server.receive(), Received::Nothing));
        let file = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        client.send_bytes(b"one", &[file.as_fd(), file.as_fd()]).unwrap();
        client.send_bytes(b"two", &[]).unwrap();
        assert!(
            matches!(server.receive(), Received::Packet(bytes, fds) if bytes == b"one" && fds.len() == 2)
        );
        assert!(
            matches!(server.receive(), Received::Packet(bytes, fds) if bytes == b"two" && fds.is_empty())
        );
        client.send_bytes(&vec![b'x'; MAX_MESSAGE + 1], &[file.as_fd()]).unwrap();
        assert!(matches!(server.receive(), Received::TooLong(fds) if fds.len() == 1));
        drop(client);
        assert!(matches!(server.receive(), Received::Closed));
    }

    #[test]
    fn a_peer_that_does_not_read_never_blocks() {
        let (_folder, _listener, client, server) = pair();
        let error = (0..1_000_000).find_map(|_| server.send_bytes(&[b'x'; 1000], &[]).err());
        assert_eq!(error, Some(Errno::AGAIN));
        drop(client);
        assert!(matches!(server.send_bytes(b"x", &[]), Err(Errno::PIPE | Errno::CONNRESET)));
    }
}
