//! `wavefield --web`, and a page of it without a browser.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use tungstenite::client::IntoClientRequest;
use tungstenite::{Error, HandshakeError, Message, WebSocket};

use crate::PATIENCE;

/// A process that does not outlive its test, and what it says on standard error.
pub struct Process(pub Child, Receiver<String>);

impl Process {
    /// Starts it and waits for a line on standard error that begins with `prefix`. Returns that line's rest.
    pub fn start(command: &mut Command, prefix: &str) -> std::io::Result<(Self, String)> {
        let (tell, told) = std::sync::mpsc::channel();
        let mut process = Self(command.stderr(Stdio::piped()).spawn()?, told);
        let lines = BufReader::new(process.0.stderr.take().unwrap()).lines().map_while(Result::ok);
        std::thread::spawn(move || {
            for line in lines {
                // It reads on when nobody wants to know: a full pipe would stop the process.
                let _ = tell.send(line);
            }
        });
        let rest = process.line(prefix);
        Ok((process, rest))
    }

    /// Waits for the next line that begins with `prefix`. Returns that line's rest.
    pub fn line(&self, prefix: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.1.recv_timeout(left).unwrap_or_else(|_| panic!("no line begins with {prefix}"));
            if let Some(rest) = line.strip_prefix(prefix) {
                return rest.to_owned();
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program with a page.
pub struct Served {
    process: Process,
    pub url: String,
}

impl Served {
    /// Starts the program, which prints the address of its page.
    pub fn start(command: &mut Command) -> Self {
        let (process, url) = Process::start(command.stdout(Stdio::null()), "note: open ").unwrap();
        Self { process, url }
    }

    /// Like [`Served::start`], with what it will write to standard output.
    pub fn start_counted(command: &mut Command) -> (Self, ChildStdout) {
        let (mut process, url) = Process::start(command.stdout(Stdio::piped()), "note: open ").unwrap();
        let output = process.0.stdout.take().unwrap();
        (Self { process, url }, output)
    }

    /// Waits for a line on standard error that begins with `prefix`.
    pub fn line(&self, prefix: &str) -> String {
        self.process.line(prefix)
    }

    pub fn id(&self) -> u32 {
        self.process.0.id()
    }

    pub fn has_ended(&mut self) -> bool {
        self.process.0.try_wait().unwrap().is_some()
    }

    /// Ends it as Ctrl-C does. Panics if it ends with a failure, such as an error of the validation layer.
    pub fn interrupt(mut self) {
        // SAFETY: the process is our own child, and nobody has waited for it yet.
        unsafe { libc::kill(self.id() as libc::pid_t, libc::SIGINT) };
        until("the end after an interrupt", || self.has_ended());
        let status = self.process.0.wait().unwrap();
        assert!(status.success(), "{status}: {:?}", self.process.1.iter().collect::<Vec<_>>());
    }
}

/// What a page receives.
#[derive(Debug, PartialEq)]
pub enum Heard {
    News(String),
    /// Its number, and the JPEG.
    Picture(u32, Vec<u8>),
}

/// A stream whose reads go on after an interruption: where a time limit is set, Linux interrupts a read when the
/// process was stopped and continues (`signal(7)`), and `tungstenite` passes that on.
#[derive(Debug)]
pub struct Uninterrupted(pub TcpStream);

impl Read for Uninterrupted {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.0.read(bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

impl Write for Uninterrupted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

pub struct Page(pub WebSocket<Uninterrupted>);

impl Page {
    /// The page at an address like `http://127.0.0.1:8090/#token=…`, which has said the token.
    ///
    /// # Panics
    /// If it cannot connect.
    pub fn new(url: &str) -> Self {
        let (origin, token) = url.split_once("/#token=").unwrap();
        let mut page = Self::stranger(origin).unwrap();
        // The proof, which Chromium checks in `browser.rs`.
        page.news();
        page.say(token);
        page
    }

    /// A page that has not said the token.
    #[allow(clippy::result_large_err)]
    pub fn stranger(origin: &str) -> tungstenite::Result<Self> {
        let host = origin.strip_prefix("http://").unwrap();
        let stream = TcpStream::connect(host)?;
        stream.set_read_timeout(Some(PATIENCE)).and(stream.set_write_timeout(Some(PATIENCE)))?;
        // As browsers do.
        stream.set_nodelay(true)?;
        let mut request = format!("ws://{host}/socket?a-number-used-once").into_client_request()?;
        request.headers_mut().insert("Origin", origin.parse().unwrap());
        match tungstenite::client(request, Uninterrupted(stream)) {
            Ok((socket, _)) => Ok(Self(socket)),
            Err(HandshakeError::Failure(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }

    pub fn say(&mut self, text: &str) {
        self.0.send(Message::text(text)).unwrap();
    }

    /// Takes a picture, so that the next may come.
    pub fn seen(&mut self, picture: u32) {
        self.say(&format!(r#"{{"type":"seen","picture":{picture}}}"#));
    }

    pub fn hear(&mut self) -> Heard {
        self.hear_within(PATIENCE).expect("something comes")
    }

    /// `None` if nothing comes for this long.
    pub fn hear_within(&mut self, time: Duration) -> Option<Heard> {
        let until = Instant::now() + time;
        loop {
            // The server's pings do not extend it.
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.0.get_ref().0.set_read_timeout(Some(left)).unwrap();
            match self.0.read() {
                Ok(Message::Text(text)) => return Some(Heard::News(text.to_string())),
                Ok(Message::Binary(bytes)) => {
                    let (number, jpeg) = bytes.split_at(4);
                    let number = u32::from_le_bytes(number.try_into().unwrap());
                    return Some(Heard::Picture(number, jpeg.to_vec()));
                }
                Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => return None,
                other if Instant::now() < until => drop(other.unwrap()),
                _ => return None,
            }
        }
    }

    /// The next picture. Skips news.
    pub fn picture(&mut self) -> (u32, Vec<u8>) {
        loop {
            if let Heard::Picture(number, jpeg) = self.hear() {
                assert!(jpeg.starts_with(&[0xff, 0xd8]) && jpeg.ends_with(&[0xff, 0xd9]), "a whole JPEG");
                return (number, jpeg);
            }
        }
    }

    /// The next news. Skips pictures.
    pub fn news(&mut self) -> String {
        loop {
            if let Heard::News(news) = self.hear() {
                return news;
            }
        }
    }

    /// Whether nothing comes for a moment.
    pub fn is_quiet(&mut self) -> bool {
        self.hear_within(Duration::from_millis(60)).is_none()
    }
}

/// The height of a JPEG (ITU T.81, B.2.2).
pub fn height(jpeg: &[u8]) -> u16 {
    let at = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    u16::from_be_bytes(jpeg[at + 5..at + 7].try_into().unwrap())
}

/// Waits until it is so.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
