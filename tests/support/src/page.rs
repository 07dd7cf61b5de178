//! `wavefield --web`, and a page of it without a browser.

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tungstenite::client::IntoClientRequest;
use tungstenite::{Error, HandshakeError, Message, WebSocket};

/// The longest wait for something that must come.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The program with a page.
pub struct Served {
    pub process: Child,
    pub url: String,
}

impl Served {
    /// Starts the program, which prints the address of its page.
    pub fn start(command: &mut Command) -> Self {
        Self::wait(command.stdout(Stdio::null()))
    }

    /// Like [`Served::start`], with what it will write to standard output.
    pub fn start_counted(command: &mut Command) -> (Self, ChildStdout) {
        let mut served = Self::wait(command.stdout(Stdio::piped()));
        let output = served.process.stdout.take().unwrap();
        (served, output)
    }

    fn wait(command: &mut Command) -> Self {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let url = lines.find_map(|line| line.strip_prefix("note: open ").map(str::to_owned));
        // Nobody reads what else it says, and a full pipe would stop it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, url: url.expect("the address of the page") }
    }

    /// Ends it as Ctrl-C does. Panics if it ends with a failure, such as an error of the validation layer.
    pub fn interrupt(mut self) {
        // SAFETY: the process is our own child, and nobody has waited for it yet.
        unsafe { libc::kill(self.process.id() as libc::pid_t, libc::SIGINT) };
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a page receives.
#[derive(Debug, PartialEq)]
pub enum Heard {
    News(String),
    /// Its number, and the JPEG.
    Picture(u32, Vec<u8>),
}

pub struct Page(pub WebSocket<TcpStream>);

impl Page {
    /// The page at an address like `http://127.0.0.1:8090/?token=…`.
    ///
    /// # Panics
    /// If it does not get in.
    pub fn new(url: &str) -> Self {
        Self::try_new(url).unwrap()
    }

    #[allow(clippy::result_large_err)]
    pub fn try_new(url: &str) -> tungstenite::Result<Self> {
        let (origin, query) = url.split_once("/?").unwrap();
        let host = origin.strip_prefix("http://").unwrap();
        let stream = TcpStream::connect(host)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut request = format!("ws://{host}/socket?{query}").into_client_request()?;
        request.headers_mut().insert("Origin", origin.parse().unwrap());
        match tungstenite::client(request, stream) {
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
        self.0.get_ref().set_read_timeout(Some(time)).unwrap();
        loop {
            match self.0.read() {
                Ok(Message::Text(text)) => return Some(Heard::News(text.to_string())),
                Ok(Message::Binary(bytes)) => {
                    let (number, jpeg) = bytes.split_at(4);
                    let number = u32::from_le_bytes(number.try_into().unwrap());
                    return Some(Heard::Picture(number, jpeg.to_vec()));
                }
                Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(Error::Io(error)) if error.kind() == ErrorKind::Interrupted => {}
                other => drop(other.unwrap()),
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

/// Waits until it is so.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
