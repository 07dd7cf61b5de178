//! A page that is connected: which picture it gets when, and how good it is.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use tungstenite::protocol::{Role, WebSocketConfig};
use tungstenite::{Error, Message as Packet, WebSocket};

use super::message::{self, Message};
use super::picture::{BEST, LEAST, MOVING, Shown};
use wavefield_window::Input;

/// If a few pictures in a row take longer, from their sending until the page takes them, the next are smaller. If many take
/// less than a third, the next are larger.
const SLOW: Duration = Duration::from_millis(40);
const FEW: i32 = 3;
const MANY: i32 = 15;
/// A page that takes no picture for this long is gone, or its link is.
const GONE: Duration = Duration::from_secs(30);

pub(crate) struct Viewer {
    socket: WebSocket<TcpStream>,
    /// The last picture that was sent, and its quality.
    sent: Option<(u32, usize)>,
    /// When it was sent, until the page takes it.
    waits: Option<Instant>,
    quality: usize,
    /// How many quick pictures came in a row; negative for slow ones.
    row: i32,
    is_visible: bool,
    has_unsent: bool,
}

/// Nothing more can be sent to it or heard from it.
pub(crate) struct Left;

impl Viewer {
    /// `rest`: what has come after the request.
    pub(crate) fn new(stream: TcpStream, rest: Vec<u8>) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(message::MOST)
            .write_buffer_size(0)
            .max_message_size(Some(message::MOST))
            .max_frame_size(Some(message::MOST));
        let socket = WebSocket::from_partially_read(stream, rest, Role::Server, Some(config));
        let (sent, waits, quality, row) = (None, None, MOVING, 0);
        Self { socket, sent, waits, quality, row, is_visible: true, has_unsent: false }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.socket.get_ref()
    }

    /// What to wait for. `hears`: whether there is room for its input.
    pub(crate) fn interest(&self, hears: bool) -> PollFlags {
        let flag = |flag, is_set| if is_set { flag } else { PollFlags::empty() };
        flag(PollFlags::IN, hears) | flag(PollFlags::OUT, self.has_unsent)
    }

    /// Reads what the page has said, until there are `most` inputs.
    pub(crate) fn hear(&mut self, inputs: &mut Vec<Input>, most: usize, scale: &mut f32) -> Result<(), Left> {
        while inputs.len() < most {
            let text = match self.socket.read() {
                Ok(Packet::Text(text)) => text,
                Ok(Packet::Ping(_) | Packet::Pong(_)) => continue,
                Err(Error::Io(error)) if is_for_later(&error) => break,
                _ => return Err(Left),
            };
            let said = Message::read(&text).ok_or(Left)?;
            match said {
                Message::Seen { picture } => self.took(picture),
                Message::Visible { visible } => self.is_visible = visible,
                Message::Size { scale: pixels, .. } => *scale = pixels,
                _ => {}
            }
            inputs.extend(said.inputs(*scale));
        }
        Ok(())
    }

    /// The page takes a picture: now it is known how long that took.
    fn took(&mut self, picture: u32) {
        if self.sent.is_none_or(|(number, _)| number != picture) {
            return;
        }
        let Some(took) = self.waits.take().map(|since| since.elapsed()) else { return };
        self.row = match took {
            _ if took > SLOW => self.row.min(0) - 1,
            _ if took < SLOW / 3 => self.row.max(0) + 1,
            _ => 0,
        };
        if self.row == -FEW {
            (self.quality, self.row) = (LEAST.min(self.quality + 1), 0);
        } else if self.row == MANY {
            (self.quality, self.row) = (MOVING.max(self.quality - 1), 0);
        }
    }

    pub(crate) fn is_visible(&self) -> bool {
        self.is_visible
    }

    /// Whether time alone changes something: it will be gone, or gets a still picture in the best quality.
    pub(crate) fn has_plans(&self, shown: Option<&Shown>) -> bool {
        let lacks = |shown: &Shown| self.is_visible && self.sent != Some((shown.number, BEST));
        self.waits.is_some() || shown.is_some_and(lacks)
    }

    /// Sends what is shown, if the page is ready for it and lacks it.
    pub(crate) fn show(&mut self, shown: Option<&mut Shown>) -> Result<(), Left> {
        if self.waits.is_some_and(|since| since.elapsed() > GONE) {
            return Err(Left);
        }
        if let Some(shown) = shown.filter(|_| self.is_visible && self.waits.is_none()) {
            let quality = if shown.is_still() { BEST } else { self.quality };
            let has = |(number, sent)| number == shown.number && (sent == BEST || quality != BEST);
            if !self.sent.is_some_and(has)
                && let Some(message) = shown.message(quality)
            {
                (self.sent, self.waits) = (Some((shown.number, quality)), Some(Instant::now()));
                return self.send(Packet::Binary(message));
            }
        }
        let flushed = self.socket.flush();
        self.note(flushed)
    }

    pub(crate) fn tell(&mut self, news: &serde_json::Value) -> Result<(), Left> {
        self.send(Packet::text(news.to_string()))
    }

    fn send(&mut self, packet: Packet) -> Result<(), Left> {
        let written = self.socket.write(packet);
        self.note(written)
    }

    /// What could not be sent at once is sent later.
    fn note(&mut self, outcome: tungstenite::Result<()>) -> Result<(), Left> {
        self.has_unsent = match outcome {
            Ok(()) => false,
            Err(Error::Io(error)) if is_for_later(&error) => true,
            Err(_) => return Err(Left),
        };
        Ok(())
    }
}

fn is_for_later(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
