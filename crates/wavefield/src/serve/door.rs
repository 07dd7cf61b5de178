//! Accepts clients: one thread accepts connections, and each newcomer has its own thread until its `hello` is read. The
//! renderer sees only clients that belong to its user, speak a known version, and have the seat.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::closing::{self, ClientFd};
use super::listener::Listener;
use super::protocol::{FromServer, RefusedCode};
use super::session::{Greeting, display_name, greet};
use super::socket::{Connection, Peer, Received};
use crate::app::Stop;
use crate::note;

/// How long a newcomer may take to say `hello`.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a newcomer waits for the seat.
const SEAT_PATIENCE: Duration = Duration::from_millis(500);
/// The most newcomers at the same time.
const MAX_NEWCOMERS: usize = 16;

/// A client that may draw as soon as the renderer has made its memory.
pub struct Visitor {
    /// Its connection.
    pub connection: Connection,
    /// Its `hello`.
    pub greeting: Greeting,
    /// Its name for people.
    pub name: String,
    /// Its right to draw.
    pub seat: Seated,
}

/// The socket, and the thread that accepts connections to it.
pub struct Door {
    visitors: Receiver<Visitor>,
    closing: Arc<AtomicBool>,
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Starts to accept connections, from processes of user `owner` only. As soon as `stop` is requested it closes and the
    /// socket is removed, since the process may be killed at any time from then on.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn open(listener: Listener, owner: u32, stop: &Stop) -> io::Result<Self> {
        closing::start()?;
        let (sender, visitors) = channel();
        let closing = Arc::new(AtomicBool::new(false));
        let hall = Hall {
            owner,
            seat: Seat::default(),
            newcomers: Arc::default(),
            sender,
            complaints: Complaints::default(),
        };
        let path = listener.path().to_owned();
        let thread = {
            let (closing, stop) = (closing.clone(), stop.clone());
            let closed = move || closing.load(Ordering::Relaxed) || stop.requested();
            Builder::new().name("door".into()).spawn(move || accept(&listener, &hall, closed))?
        };
        Ok(Self { visitors, closing, path, thread: Some(thread) })
    }

    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next client, if one is there.
    pub fn visitor(&self) -> Option<Visitor> {
        self.visitors.try_recv().ok()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What every newcomer's thread needs.
#[derive(Clone)]
struct Hall {
    owner: u32,
    seat: Seat,
    newcomers: Arc<AtomicUsize>,
    sender: Sender<Visitor>,
    complaints: Complaints,
}

/// Prints why newcomers are refused: at most five lines a second.
#[derive(Clone, Default)]
struct Complaints(Arc<Mutex<Option<Instant>>>);

impl Complaints {
    fn note(&self, text: impl FnOnce() -> String) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| last.elapsed() > Duration::from_millis(200)) {
            *last = Some(Instant::now());
            note!("note: {}", text());
        }
    }
}

fn accept(listener: &Listener, hall: &Hall, closed: impl Fn() -> bool) {
    let mut complained = false;
    while !closed() {
        let accepted = match closing::is_full() {
            true => Err(closing::FULL.to_owned()),
            false => listener.accept(Duration::from_millis(50)).map_err(|error| error.to_string()),
        };
        match accepted {
            Ok(Some(connection)) => {
                complained = false;
                admit(connection, hall);
            }
            Ok(None) => {}
            Err(reason) => {
                // Most likely no descriptors are left. Some will be closed.
                if !complained {
                    note!("note: a client cannot be let in: {reason}");
                    complained = true;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Sends `refused`, and closes the connection.
pub(super) fn refuse(connection: Connection, code: RefusedCode, reason: impl Into<String>) {
    let _ = connection.send(&FromServer::Refused { code, reason: reason.into() }, &[]);
    connection.leave();
}

fn admit(connection: Connection, hall: &Hall) {
    let peer = match connection.peer() {
        Ok(peer) if peer.uid == hall.owner => peer,
        Ok(peer) => {
            let Peer { pid, uid } = peer;
            hall.complaints.note(|| format!("refused process {pid} of user {uid}: not this renderer's user"));
            let reason = format!(
                "this renderer belongs to user {} and the client to user {}: run both as the same user",
                hall.owner, peer.uid
            );
            return refuse(connection, RefusedCode::User, reason);
        }
        Err(_) => return connection.leave(),
    };
    if hall.newcomers.fetch_add(1, Ordering::Relaxed) >= MAX_NEWCOMERS {
        hall.newcomers.fetch_sub(1, Ordering::Relaxed);
        return refuse(connection, RefusedCode::Limit, "too many connections at once: try again");
    }
    let newcomer = hall.clone();
    let spawned = Builder::new().name("newcomer".into()).spawn(move || {
        greet_one(connection, peer.pid, &newcomer);
        newcomer.newcomers.fetch_sub(1, Ordering::Relaxed);
    });
    if spawned.is_err() {
        hall.newcomers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for one newcomer's `hello`.
fn greet_one(connection: Connection, pid: i32, hall: &Hall) {
    let deadline = Instant::now() + PATIENCE;
    let (packet, descriptors) = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match connection.receive_within(left) {
            Received::Packet(packet, descriptors) => break (packet, descriptors),
            Received::Closed => return,
            Received::TooLong(descriptors) => {
                drop(ClientFd::all(descriptors));
                return refuse(connection, RefusedCode::Hello, "the first message is too long for a hello");
            }
            Received::Nothing if left.is_zero() => {
                return refuse(connection, RefusedCode::Hello, "no hello within 2 seconds");
            }
            Received::Nothing => {}
        }
    };
    let count = descriptors.len();
    drop(ClientFd::all(descriptors));
    let greeting = match greet(&packet, count) {
        Ok(greeting) => greeting,
        Err((code, reason)) => return refuse(connection, code, reason),
    };
    let name = display_name(&greeting.hello.client, pid);
    // A newcomer that follows a leaving client should get the seat: the renderer notices within a frame that it is free.
    let until = Instant::now() + SEAT_PATIENCE;
    let mut seat = hall.seat.take(&name);
    while seat.is_err() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
        seat = hall.seat.take(&name);
    }
    match seat {
        Ok(seat) => drop(hall.sender.send(Visitor { connection, greeting, name, seat })),
        Err(holder) => {
            hall.complaints.note(|| format!("told {name} that {holder} draws already"));
            let reason =
                format!("{holder} draws, and one client draws at a time: end it, or start another renderer");
            refuse(connection, RefusedCode::Busy, reason);
        }
    }
}

/// The seat: only one client draws at a time. Holds that client's name.
#[derive(Clone, Default)]
struct Seat(Arc<Mutex<Option<String>>>);

impl Seat {
    fn holder(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the seat. Fails with the name of the client that has it.
    fn take(&self, name: &str) -> Result<Seated, String> {
        let mut holder = self.holder();
        match &*holder {
            Some(other) => Err(other.clone()),
            None => {
                *holder = Some(name.to_owned());
                Ok(Seated(self.clone()))
            }
        }
    }
}

/// The right to draw, until it is dropped.
pub struct Seated(Seat);

impl Drop for Seated {
    fn drop(&mut self) {
        *self.0.holder() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{FromClient, Hello, MemoryKind, encode};
    use super::*;

    fn open(owner: u32) -> (tempfile::TempDir, std::path::PathBuf, Door) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let door = Door::open(Listener::bind(Some(&path)).unwrap(), owner, &Stop::default()).unwrap();
        (folder, path, door)
    }

    fn me() -> u32 {
        rustix::process::getuid().as_raw()
    }

    fn hello(name: &str) -> Vec<u8> {
        let (client, memory) = (name.to_owned(), MemoryKind::Host);
        encode(&FromClient::Hello(Hello { protocol: 2, client, memory, ring: None, array: None }))
    }

    fn answer(connection: &Connection) -> Option<FromServer> {
        match connection.receive_within(Duration::from_secs(20)) {
            Received::Packet(packet, _) => serde_json::from_slice(&packet).ok(),
            _ => None,
        }
    }

    fn refusal(connection: &Connection) -> Option<(RefusedCode, String)> {
        match answer(connection) {
            Some(FromServer::Refused { code, reason }) => Some((code, reason)),
            _ => None,
        }
    }

    /// The next visitor; they come on threads of their own.
    fn visitor(door: &Door) -> Visitor {
        loop {
            if let Some(visitor) = door.visitor() {
                return visitor;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn another_user_is_refused() {
        let (_folder, path, door) = open(me() + 1);
        let connection = Connection::connect(&path).unwrap();
        let (code, reason) = refusal(&connection).unwrap();
        assert_eq!(code, RefusedCode::User);
        assert!(reason.contains(&me().to_string()) && reason.contains("same user"), "{reason}");
        assert!(door.visitor().is_none());
    }

    #[test]
    fn the_socket_goes_when_a_stop_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let (path, stop) = (folder.path().join("s"), Stop::default());
        let _door = Door::open(Listener::bind(Some(&path)).unwrap(), me(), &stop).unwrap();
        assert!(path.exists());
        stop.request();
        let until = Instant::now() + Duration::from_secs(60);
        while std::fs::read_dir(&folder).unwrap().next().is_some() {
            assert!(Instant::now() < until, "the socket or its lock is left");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn one_sits_and_the_next_is_told_who() {
        let (_folder, path, door) = open(me());
        let first = Connection::connect(&path).unwrap();
        first.send_bytes(&hello("first"), &[]).unwrap();
        let seated = visitor(&door);
        assert!(seated.name.starts_with("first (process "), "{}", seated.name);
        let second = Connection::connect(&path).unwrap();
        second.send_bytes(&hello("second"), &[]).unwrap();
        let (code, reason) = refusal(&second).unwrap();
        assert!(code == RefusedCode::Busy && reason.contains("first (process"), "{reason}");
        // A newcomer that comes while the first leaves gets the seat.
        let third = Connection::connect(&path).unwrap();
        third.send_bytes(&hello("third"), &[]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        drop(seated);
        assert!(visitor(&door).name.starts_with("third"));
    }

    #[test]
    fn what_is_no_hello_is_refused() {
        let (_folder, path, door) = open(me());
        let versioned = String::from_utf8(hello("x")).unwrap().replace("\"protocol\":2", "\"protocol\":3");
        for (packet, want) in [
            (b"rubbish".to_vec(), RefusedCode::Hello),
            (br#"{"type":"bye"}"#.to_vec(), RefusedCode::Hello),
            (vec![b' '; 100_000], RefusedCode::Hello),
            (versioned.into_bytes(), RefusedCode::Version),
        ] {
            let connection = Connection::connect(&path).unwrap();
            connection.send_bytes(&packet, &[]).unwrap();
            assert_eq!(refusal(&connection).map(|(code, _)| code), Some(want));
        }
        // Neither silence nor leaving takes the seat.
        drop(Connection::connect(&path).unwrap());
        let silent = Connection::connect(&path).unwrap();
        assert_eq!(refusal(&silent).map(|(code, _)| code), Some(RefusedCode::Hello));
        assert!(door.visitor().is_none());
    }

    #[test]
    fn a_hundred_connections_leave_the_door_open() {
        let (_folder, path, door) = open(me());
        let crowd: Vec<_> = (0..100).filter_map(|_| Connection::connect(&path).ok()).collect();
        let limited = crowd.iter().filter_map(|connection| match connection.receive_within(Duration::ZERO) {
            Received::Packet(..) => Some(()),
            _ => None,
        });
        let _ = limited.count();
        drop(crowd);
        // Some may find the door crowded; they are told to try again.
        let (_connection, _visitor) = loop {
            let Ok(connection) = Connection::connect(&path) else { continue };
            if connection.send_bytes(&hello("patient"), &[]).is_err() {
                continue;
            }
            std::thread::sleep(Duration::from_millis(20));
            if let Some(visitor) = door.visitor() {
                break (connection, visitor);
            }
        };
    }
}
