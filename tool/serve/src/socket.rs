//! Connections: the peer's identity, and packets with descriptors. Every wait for a peer has a limit.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, Result};
use rustix::ioctl::{Getter, Opcode, ioctl};
use rustix::net::{self, SocketAddrUnix, SocketFlags};
use serde::Serialize;

use super::fd_reaper::ClientFd;
use super::listener::{Listener, check_folder, shared_folder};
use super::protocol::{MAX_MESSAGE, encode};
use wavefield_gpu::unix_packets::{self, seqpacket};

/// A connection. Dropping it ends the connection. The peer can still read what was sent before.
pub struct Connection {
    fd: ClientFd,
}

#[derive(Debug)]
pub enum Received {
    Nothing,
    Packet(Vec<u8>, Vec<OwnedFd>),
    /// The message is discarded, and its descriptors are closed.
    TooLong,
    Closed,
}

impl Connection {
    /// Connects a client to a renderer of the same user. Fails if no program listens at `path`. Also fails if
    /// another user's program listens there, or could: what it sends cannot be trusted.
    pub fn connect(path: &Path) -> std::io::Result<Self> {
        if path.parent() == Some(&shared_folder()) {
            match check_folder(&shared_folder()) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                checked => checked?,
            }
        }
        let fd = seqpacket()?;
        net::connect(&fd, &SocketAddrUnix::new(path)?)?;
        let connection = Self { fd: ClientFd::new(fd) };
        let ((_, user), own) = (connection.peer()?, rustix::process::getuid().as_raw());
        if user != own {
            let reason = format!(
                "user {user} listens there, and this program runs as user {own}: run both as the same user"
            );
            return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, reason));
        }
        Ok(connection)
    }

    pub fn accept(listener: &Listener, patience: Duration) -> Result<Option<Self>> {
        let listening = listener.as_fd();
        if !readable(listening, patience)? {
            return Ok(None);
        }
        match net::accept_with(listening, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(fd) => Ok(Some(Self { fd: ClientFd::new(fd) })),
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the peer's process and user IDs from the kernel. The process ID is 0 in another PID namespace.
    pub fn peer(&self) -> std::io::Result<(i32, u32)> {
        let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut size = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the socket is open, and the option writes at most `size` bytes, which is the size of
        // `found`. (rustix does not fit: its process ID cannot be 0, which Linux reports for a peer in
        // another PID namespace.)
        let code = unsafe {
            libc::getsockopt(
                self.fd.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut found).cast(),
                &mut size,
            )
        };
        match code {
            0 => Ok((found.pid, found.uid)),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    /// Sends one message, whole or not at all. Fails with `EAGAIN` if the buffer is full because the peer
    /// does not read, and with `EPIPE` if the peer is gone.
    pub fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        self.send_bytes(&encode(message), descriptors)
    }

    /// Sends an encoded message. Tests also send arbitrary bytes.
    pub fn send_bytes(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        unix_packets::send(self.as_fd(), bytes, descriptors)
    }

    pub fn receive(&self) -> Received {
        // Most calls find nothing, and then need no buffer.
        if !self.has_news() {
            return Received::Nothing;
        }
        let mut buffer = vec![0; MAX_MESSAGE];
        let (got, descriptors) = unix_packets::receive(self.as_fd(), &mut buffer);
        match got {
            Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
            Ok((bytes @ 1.., false)) => {
                buffer.truncate(bytes);
                Received::Packet(buffer, descriptors)
            }
            // An empty packet cannot be distinguished from the end of the connection, so treat it as closed.
            other => {
                drop(ClientFd::all(descriptors));
                if matches!(other, Ok((_, true))) { Received::TooLong } else { Received::Closed }
            }
        }
    }

    /// Returns how many sent bytes the peer has not read yet, or 0 if the kernel does not report it.
    pub fn unread(&self) -> u64 {
        // SAFETY: this request (also called SIOCOUTQ, see unix(7)) writes one int, as `Getter` expects.
        let unread = unsafe { ioctl(&self.fd, Getter::<{ libc::TIOCOUTQ as Opcode }, libc::c_int>::new()) };
        unread.map_or(0, |bytes| u64::try_from(bytes).unwrap_or(0))
    }

    /// Returns whether the peer is gone, without reading a message.
    pub fn is_closed(&self) -> bool {
        let mut look = [PollFd::from_borrowed_fd(self.fd.as_fd(), PollFlags::RDHUP)];
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        poll(&mut look, Some(&Timespec::default())).is_ok() && look[0].revents().intersects(gone)
    }

    pub(super) fn has_news(&self) -> bool {
        // On an error, let `receive` report it.
        readable(self.fd.as_fd(), Duration::ZERO).unwrap_or(true)
    }

    pub fn receive_within(&self, patience: Duration) -> Received {
        match readable(self.fd.as_fd(), patience) {
            Ok(_) => self.receive(),
            Err(_) => Received::Closed,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // End the connection at once, even if the reaper takes long to close earlier descriptors.
        let _ = net::shutdown(&self.fd, net::Shutdown::Both);
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn readable(fd: BorrowedFd<'_>, patience: Duration) -> Result<bool> {
    let timeout = Timespec::try_from(patience).ok();
    match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], timeout.as_ref()) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (tempfile::TempDir, Listener, Connection, Connection) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = Listener::bind(&path, false).unwrap();
        let client = Connection::connect(&path).unwrap();
        let server = Connection::accept(&listener, Duration::from_secs(5)).unwrap().unwrap();
        (folder, listener, client, server)
    }

    #[test]
    fn each_end_knows_the_others_process() {
        let (_folder, _listener, client, server) = pair();
        let me = (std::process::id() as i32, rustix::process::getuid().as_raw());
        assert_eq!(server.peer().unwrap(), me);
        assert_eq!(client.peer().unwrap(), me);
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
        assert!(matches!(server.receive(), Received::TooLong));
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
