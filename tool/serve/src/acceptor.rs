//! Accepts connections between two frames, without blocking. Admits one client at a time, of the same user
//! and protocol version.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::fd_reaper::{self, ClientFd};
use super::listener::Listener;
use super::protocol::{FromServer, Hello, MAX_NAME, RefusedCode, short};
use super::session::greet;
use super::socket::{Connection, Received};
use wavefield_gpu::{Result, note};
use wavefield_handoff::contents::things::Things;
use wavefield_run::Stop;

/// How long a new client may take to send its `hello`.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a new client waits for the current client to leave.
const SEAT_PATIENCE: Duration = Duration::from_millis(500);
const MAX_PENDING: usize = 16;
/// The pause after a connection could not be accepted. The usual cause is too many open descriptors, of which
/// some will be closed soon.
const PAUSE: Duration = Duration::from_millis(50);

/// A client that has sent a valid `hello`.
pub(super) struct Greeted {
    pub(super) connection: Connection,
    pub(super) hello: Hello,
    /// `None` means a mesh of the renderer's own grid.
    pub(super) things: Option<Box<Things>>,
    /// The name that the client reports, with its process ID from the kernel.
    pub(super) name: String,
}

enum Pending {
    /// A connection without a `hello` yet, the process ID of its peer, and the deadline for the `hello`.
    Silent(Connection, i32, Instant),
    /// A client that waits until no other client draws, at most until this deadline.
    Waiting(Greeted, Instant),
}

pub(super) struct Acceptor {
    /// `None` after [`Acceptor::shut`].
    listener: Option<Listener>,
    owner: u32,
    stop: Stop,
    pending: Vec<Pending>,
    /// Nothing is accepted before this time. Set after a failure.
    pause: Option<Instant>,
    printed: Option<Instant>,
}

impl Acceptor {
    /// Begins to accept connections. Refuses those of processes that do not belong to user `owner`.
    pub(super) fn open(listener: Listener, owner: u32, stop: &Stop) -> Result<Self> {
        fd_reaper::start()?;
        let (listener, stop, pending) = (Some(listener), stop.clone(), Vec::new());
        Ok(Self { listener, owner, stop, pending, pause: None, printed: None })
    }

    /// Accepts connections, reads each `hello`, and returns the next client. `draws` is the name of the
    /// current client. While there is one, returns `None`: new clients then wait, for at most
    /// [`SEAT_PATIENCE`], because the current one may be leaving.
    pub(super) fn look(&mut self, draws: Option<&str>) -> Option<Greeted> {
        self.accept();
        let mut next = None;
        for newcomer in std::mem::take(&mut self.pending) {
            match newcomer.read_hello() {
                None => {}
                Some(Pending::Waiting(greeted, _)) if draws.is_none() && next.is_none() => {
                    next = Some(greeted)
                }
                Some(Pending::Waiting(greeted, until)) if Instant::now() >= until => {
                    let first = draws.or(next.as_ref().map(|next| next.name.as_str())).unwrap_or_default();
                    let reason = format!(
                        "{first} draws, and one client draws at a time: end it, or start another renderer"
                    );
                    self.print(|| format!("told {} that {first} draws already", greeted.name));
                    refuse(greeted.connection, RefusedCode::Busy, reason);
                }
                Some(newcomer) => self.pending.push(newcomer),
            }
        }
        next
    }

    pub(super) fn watched(&self) -> impl Iterator<Item = PollFd<'_>> {
        let open = self.listener.as_ref().filter(|_| self.pause.is_none() && !fd_reaper::is_full());
        let silent = self.pending.iter().filter_map(|newcomer| match newcomer {
            Pending::Silent(connection, ..) => Some(PollFd::new(connection, PollFlags::IN)),
            Pending::Waiting(..) => None,
        });
        open.map(|listener| PollFd::new(listener, PollFlags::IN)).into_iter().chain(silent)
    }

    /// Stops listening, removes the socket's files, and closes the connections that wait. Call this as soon as
    /// a stop is requested, because the process may then be killed at any time.
    pub(super) fn shut(&mut self) {
        self.listener = None;
        self.pending.clear();
    }

    fn accept(&mut self) {
        if self.stop.requested() {
            self.shut();
        }
        for _ in 0..MAX_PENDING {
            let Some(listener) = &self.listener else { return };
            if self.pause.is_some_and(|until| Instant::now() < until) {
                return;
            }
            let accepted = match fd_reaper::is_full() {
                true => Err(fd_reaper::FULL.to_owned()),
                false => Connection::accept(listener, Duration::ZERO).map_err(|error| error.to_string()),
            };
            match accepted {
                Ok(Some(connection)) => self.admit(connection),
                Ok(None) => return self.pause = None,
                Err(reason) => {
                    if self.pause.replace(Instant::now() + PAUSE).is_none() {
                        note!("note: a client cannot be let in: {reason}");
                    }
                }
            }
        }
    }

    fn admit(&mut self, connection: Connection) {
        match connection.peer() {
            Ok((_, uid)) if uid == self.owner && self.pending.len() >= MAX_PENDING => {
                refuse(connection, RefusedCode::Limit, "too many connections at once: try again");
            }
            Ok((pid, uid)) if uid == self.owner => {
                self.pending.push(Pending::Silent(connection, pid, Instant::now() + PATIENCE));
            }
            Ok((pid, uid)) => {
                let owner = self.owner;
                self.print(|| format!("refused process {pid} of user {uid}: not this renderer's user"));
                let reason = format!(
                    "this renderer belongs to user {owner} and the client to user {uid}: run both as the same user"
                );
                refuse(connection, RefusedCode::User, reason);
            }
            Err(_) => {}
        }
    }

    /// Prints a refusal, at most five per second.
    fn print(&mut self, text: impl FnOnce() -> String) {
        if self.printed.is_none_or(|last| last.elapsed() > Duration::from_millis(200)) {
            self.printed = Some(Instant::now());
            note!("note: {}", text());
        }
    }
}

impl Pending {
    /// Reads the `hello` if it has arrived. Returns `None` if the client has left or was refused.
    fn read_hello(self) -> Option<Self> {
        let Self::Silent(connection, pid, until) = self else { return Some(self) };
        let late = Instant::now() >= until;
        let greeted = match connection.receive() {
            Received::Packet(packet, descriptors) => {
                let count = descriptors.len();
                drop(ClientFd::all(descriptors));
                greet(&packet, count)
            }
            Received::Closed => return None,
            Received::TooLong => {
                Err((RefusedCode::Hello, "the first message is too long for a hello".into()))
            }
            Received::Nothing if late => Err((RefusedCode::Hello, "no hello within 2 seconds".into())),
            Received::Nothing => return Some(Self::Silent(connection, pid, until)),
        };
        match greeted {
            Ok((hello, things)) => {
                let name = format!("{} (process {pid})", short(&hello.client, MAX_NAME));
                let greeted = Greeted { connection, hello, things: things.map(Box::new), name };
                Some(Self::Waiting(greeted, Instant::now() + SEAT_PATIENCE))
            }
            Err((code, reason)) => {
                refuse(connection, code, reason);
                None
            }
        }
    }
}

pub(super) fn refuse(connection: Connection, code: RefusedCode, reason: impl Into<String>) {
    let _ = connection.send(&FromServer::Refused { code, reason: reason.into() }, &[]);
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{FromClient, Hello, MemoryKind, encode};
    use super::*;

    fn open(owner: u32) -> (tempfile::TempDir, std::path::PathBuf, Acceptor) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let acceptor =
            Acceptor::open(Listener::bind(&path, false).unwrap(), owner, &Stop::default()).unwrap();
        (folder, path, acceptor)
    }

    fn me() -> u32 {
        rustix::process::getuid().as_raw()
    }

    fn hello(name: &str) -> Vec<u8> {
        let (client, memory) = (name.to_owned(), MemoryKind::Host);
        encode(&FromClient::Hello(Hello { protocol: 2, client, memory, ring: None, array: None }))
    }

    /// Asks until this connection is answered, which must be a refusal. Nobody is let in meanwhile.
    fn refusal(
        acceptor: &mut Acceptor,
        draws: Option<&str>,
        connection: &Connection,
    ) -> Option<(RefusedCode, String)> {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            assert!(acceptor.look(draws).is_none());
            match connection.receive_within(Duration::from_millis(1)) {
                Received::Nothing => {}
                Received::Packet(packet, _) => match serde_json::from_slice(&packet) {
                    Ok(FromServer::Refused { code, reason }) => return Some((code, reason)),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        }
        None
    }

    #[test]
    fn another_user_is_refused() {
        let (_folder, path, mut acceptor) = open(me() + 1);
        let connection = Connection::connect(&path).unwrap();
        let (code, reason) = refusal(&mut acceptor, None, &connection).unwrap();
        assert_eq!(code, RefusedCode::User);
        assert!(reason.contains(&me().to_string()) && reason.contains("same user"), "{reason}");
    }

    #[test]
    fn the_socket_goes_when_a_stop_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let (path, stop) = (folder.path().join("s"), Stop::default());
        let mut acceptor = Acceptor::open(Listener::bind(&path, false).unwrap(), me(), &stop).unwrap();
        assert!(acceptor.look(None).is_none() && path.exists());
        stop.request();
        acceptor.look(None);
        assert!(std::fs::read_dir(&folder).unwrap().next().is_none(), "the socket or its lock is left");
    }

    #[test]
    fn one_sits_and_the_next_is_told_who() {
        let (_folder, path, mut acceptor) = open(me());
        let first = Connection::connect(&path).unwrap();
        first.send_bytes(&hello("first"), &[]).unwrap();
        let seated = acceptor.look(None).unwrap();
        assert!(seated.name.starts_with("first (process "), "{}", seated.name);
        let second = Connection::connect(&path).unwrap();
        second.send_bytes(&hello("second"), &[]).unwrap();
        let (code, reason) = refusal(&mut acceptor, Some(&seated.name), &second).unwrap();
        assert!(code == RefusedCode::Busy && reason.contains("first (process"), "{reason}");
        // A newcomer that comes while the first leaves gets its place.
        let third = Connection::connect(&path).unwrap();
        third.send_bytes(&hello("third"), &[]).unwrap();
        assert!(acceptor.look(Some(&seated.name)).is_none());
        assert!(acceptor.look(None).unwrap().name.starts_with("third"));
    }

    #[test]
    fn what_is_no_hello_is_refused() {
        let (_folder, path, mut acceptor) = open(me());
        let versioned = String::from_utf8(hello("x")).unwrap().replace("\"protocol\":2", "\"protocol\":3");
        for (packet, want) in [
            (b"rubbish".to_vec(), RefusedCode::Hello),
            (br#"{"type":"bye"}"#.to_vec(), RefusedCode::Hello),
            (vec![b' '; 100_000], RefusedCode::Hello),
            (versioned.into_bytes(), RefusedCode::Version),
        ] {
            let connection = Connection::connect(&path).unwrap();
            connection.send_bytes(&packet, &[]).unwrap();
            assert_eq!(refusal(&mut acceptor, None, &connection).map(|(code, _)| code), Some(want));
        }
        // Neither silence nor leaving is a client.
        drop(Connection::connect(&path).unwrap());
        let silent = Connection::connect(&path).unwrap();
        assert_eq!(refusal(&mut acceptor, None, &silent).map(|(code, _)| code), Some(RefusedCode::Hello));
    }

    #[test]
    fn a_hundred_connections_leave_it_open() {
        let (_folder, path, mut acceptor) = open(me());
        let crowd: Vec<_> = (0..100)
            .filter_map(|_| {
                assert!(acceptor.look(None).is_none());
                Connection::connect(&path).ok()
            })
            .collect();
        let told = crowd.iter().filter(|connection| matches!(connection.receive(), Received::Packet(..)));
        assert!(told.count() >= 80, "they are told to try again");
        drop(crowd);
        acceptor.look(None);
        let patient = Connection::connect(&path).unwrap();
        patient.send_bytes(&hello("patient"), &[]).unwrap();
        assert!(acceptor.look(None).unwrap().name.starts_with("patient"));
    }
}
