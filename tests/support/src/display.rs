//! A display for one test: an X server without a screen, with input and screenshots.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ash::vk;

use crate::{PATIENCE, skip_without_tools};

/// Calls `ask` until it answers. Returns `None` after [`PATIENCE`].
pub fn poll<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() > end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// An X server of 1280x720 pixels without a window manager. It is killed when dropped.
pub struct Display {
    server: Child,
    number: u32,
}

impl Display {
    /// Starts a server under a free display number. Returns `None` and reports a skip if a tool is missing.
    ///
    /// Starts no thread.
    pub fn start() -> Option<Self> {
        for (tool, argument) in [("Xvfb", "-help"), ("xdotool", "version"), ("xwd", "-help")] {
            let found = Command::new(tool).arg(argument).stdin(Stdio::null()).output();
            if found.is_err() {
                skip_without_tools(&format!("{tool} is not installed"));
                return None;
            }
        }
        // The server picks the number itself and prints it once it listens, so there is no race for the
        // number. By default it resets when its last client leaves, and the next client could meet it
        // halfway: -noreset prevents that. -r turns off key repeat, because a slow test may hold a key for
        // long.
        let mut server = Command::new("Xvfb")
            .args("-displayfd 1 -screen 0 1280x720x24 -nolisten tcp -noreset -r".split(' '))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("Xvfb starts");
        let mut line = String::new();
        let said = BufReader::new(server.stdout.take().expect("it is piped")).read_line(&mut line);
        match (said, line.trim().parse()) {
            (Ok(_), Ok(number)) => Some(Self { server, number }),
            (said, number) => {
                let _ = server.kill();
                let _ = server.wait();
                panic!("Xvfb printed no display number: {said:?}, {number:?}");
            }
        }
    }

    /// The display's name, for `DISPLAY`.
    pub fn name(&self) -> String {
        format!(":{}", self.number)
    }

    /// Makes `command` draw on this display, whatever display this process has.
    pub fn show<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("DISPLAY", self.name()).env_remove("WAYLAND_DISPLAY").env_remove("WAYLAND_SOCKET")
    }

    /// Kills the server, as a crash would.
    pub fn kill(&self) {
        let killed = Command::new("sh").args(["-c", &format!("kill -KILL {}", self.server.id())]).status();
        assert!(killed.expect("sh starts").success());
    }

    fn xdotool_output(&self, arguments: &[&str]) -> Output {
        self.show(Command::new("xdotool").args(arguments)).output().expect("xdotool starts")
    }

    /// Runs xdotool, which must succeed. Returns what it prints.
    pub fn xdotool(&self, arguments: &[&str]) -> String {
        let output = self.xdotool_output(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "xdotool {arguments:?}: {stderr}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Runs xdotool, which may fail: the window may be gone.
    pub fn try_xdotool(&self, arguments: &[&str]) {
        self.xdotool_output(arguments);
    }

    /// The window of a process, if it exists yet. Without `visible`, the window may be hidden or not shown
    /// yet.
    pub fn window(&self, process: u32, visible: bool) -> Option<u32> {
        let process = process.to_string();
        // The window must have a name: a toolkit may have other windows that nobody sees.
        let criteria = ["--all", "--pid", &process, "--name", "."];
        let only = if visible { &["--onlyvisible"][..] } else { &[] };
        // xdotool fails if it finds nothing.
        let output = self.xdotool_output(&[&["search"], only, &criteria].concat());
        String::from_utf8_lossy(&output.stdout).lines().next()?.parse().ok()
    }

    /// The position and size of a window.
    pub fn geometry(&self, window: u32) -> vk::Rect2D {
        let text = self.xdotool(&["getwindowgeometry", "--shell", &window.to_string()]);
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|number| number.parse::<i32>().ok())
                .unwrap_or_else(|| panic!("no {name} in {text}"))
        };
        vk::Rect2D {
            offset: vk::Offset2D { x: value("X="), y: value("Y=") },
            extent: vk::Extent2D { width: value("WIDTH=") as u32, height: value("HEIGHT=") as u32 },
        }
    }

    /// A picture of the whole display.
    pub fn screenshot(&self) -> Picture {
        let output = self.show(Command::new("xwd").args(["-root", "-silent"])).output().expect("xwd starts");
        assert!(output.status.success(), "xwd: {}", String::from_utf8_lossy(&output.stderr));
        Picture::from_xwd(&output.stdout).unwrap_or_else(|problem| panic!("xwd's picture: {problem}"))
    }

    /// Asks a window to close, as the close button of its frame does. xdotool can do that only with a window
    /// manager; its `windowclose` destroys the window instead.
    pub fn ask_to_close(&self, window: u32) {
        let asked = Wire::connect(self.number).and_then(|mut wire| wire.ask_to_close(window));
        asked.unwrap_or_else(|error| panic!("asking window {window} to close: {error}"));
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A picture of opaque RGBA pixels.
#[derive(Clone, PartialEq, Eq)]
pub struct Picture {
    pub size: vk::Extent2D,
    pub rgba: Vec<u8>,
}

impl Picture {
    /// Reads the output of xwd: a header of big-endian words, a name, a colour table, rows of pixels.
    fn from_xwd(file: &[u8]) -> Result<Self, String> {
        let word = |index: usize| {
            let bytes = file.get(4 * index..4 * index + 4).ok_or("too short for its header")?;
            Ok::<_, String>(u32::from_be_bytes(bytes.try_into().unwrap()) as usize)
        };
        // The indices are those of the fields of XWDFileHeader in X11/XWDFile.h.
        let (header, version, format) = (word(0)?, word(1)?, word(2)?);
        let (width, height, byte_order) = (word(4)?, word(5)?, word(7)?);
        let (bits, stride, colors) = (word(11)?, word(12)?, word(19)?);
        let masks = [word(14)?, word(15)?, word(16)?];
        const Z_PIXMAP: usize = 2;
        const LEAST_BYTE_FIRST: usize = 0;
        let known = (version, format, byte_order, bits) == (7, Z_PIXMAP, LEAST_BYTE_FIRST, 32)
            && masks == [0xff_0000, 0xff00, 0xff];
        if !known {
            return Err(format!("version {version}, format {format}, {bits} bits, masks {masks:x?}"));
        }
        const COLOR: usize = 12;
        let rows = file.get(header + colors * COLOR..).ok_or("too short for its colours")?;
        let mut rgba = Vec::with_capacity(width * height * 4);
        for y in 0..height {
            let row = rows.get(y * stride..y * stride + width * 4).ok_or("too short for its pixels")?;
            rgba.extend(row.chunks_exact(4).flat_map(|bgrx| [bgrx[2], bgrx[1], bgrx[0], 255]));
        }
        Ok(Self { size: vk::Extent2D { width: width as u32, height: height as u32 }, rgba })
    }

    /// A part of the picture. `part` must lie within the picture.
    pub fn crop(&self, part: vk::Rect2D) -> Self {
        let (x, y) = (part.offset.x as usize, part.offset.y as usize);
        let (width, height) = (part.extent.width as usize, part.extent.height as usize);
        let stride = self.size.width as usize;
        let rows =
            (y..y + height).flat_map(|y| &self.rgba[4 * (y * stride + x)..4 * (y * stride + x + width)]);
        Self { size: part.extent, rgba: rows.copied().collect() }
    }

    /// The number of different colours. A blank picture has one.
    pub fn colors(&self) -> usize {
        self.rgba.chunks_exact(4).collect::<std::collections::HashSet<_>>().len()
    }
}

/// A connection that speaks as much of the X11 protocol as one message needs.
struct Wire(UnixStream);

impl Wire {
    fn connect(display: u32) -> std::io::Result<Self> {
        let mut wire = Self(UnixStream::connect(format!("/tmp/.X11-unix/X{display}"))?);
        wire.0.set_read_timeout(Some(PATIENCE))?;
        // Numbers are little-endian; protocol 11.0; no authorisation.
        wire.0.write_all(&[b'l', 0, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
        let mut head = [0; 8];
        wire.0.read_exact(&mut head)?;
        wire.skip(4 * u64::from(u16::from_le_bytes([head[6], head[7]])))?;
        match head[0] {
            1 => Ok(wire),
            _ => Err(unexpected("the server refuses")),
        }
    }

    fn skip(&mut self, bytes: u64) -> std::io::Result<()> {
        std::io::copy(&mut (&mut self.0).take(bytes), &mut std::io::sink()).map(drop)
    }

    /// The words of the next reply. Skips the events that go to every client.
    fn reply(&mut self) -> std::io::Result<[u32; 8]> {
        loop {
            let mut packet = [0; 32];
            self.0.read_exact(&mut packet)?;
            let words: [u32; 8] =
                std::array::from_fn(|i| u32::from_le_bytes(packet[4 * i..4 * i + 4].try_into().unwrap()));
            match packet[0] {
                0 => return Err(unexpected(format_args!("X error {}", packet[1]))),
                1 => {
                    self.skip(4 * u64::from(words[1]))?;
                    return Ok(words);
                }
                _event => {}
            }
        }
    }

    fn atom(&mut self, name: &str) -> std::io::Result<u32> {
        const INTERN_ATOM: u8 = 16;
        let padded = name.len().next_multiple_of(4);
        let mut request = vec![INTERN_ATOM, 0];
        request.extend((2 + padded as u16 / 4).to_le_bytes());
        request.extend((name.len() as u16).to_le_bytes());
        request.extend([0; 2]);
        request.extend(name.as_bytes());
        request.resize(8 + padded, 0);
        self.0.write_all(&request)?;
        Ok(self.reply()?[2])
    }

    fn ask_to_close(&mut self, window: u32) -> std::io::Result<()> {
        const SEND_EVENT: u8 = 25;
        const CLIENT_MESSAGE: u8 = 33;
        const GET_INPUT_FOCUS: u8 = 43;
        let protocols = self.atom("WM_PROTOCOLS")?;
        let delete = self.atom("WM_DELETE_WINDOW")?;
        let mut request = vec![SEND_EVENT, 0, 11, 0];
        let event_mask = 0;
        for word in [window, event_mask] {
            request.extend(word.to_le_bytes());
        }
        request.extend([CLIENT_MESSAGE, 32, 0, 0]);
        let now = 0;
        for word in [window, protocols, delete, now, 0, 0, 0] {
            request.extend(word.to_le_bytes());
        }
        self.0.write_all(&request)?;
        // SendEvent has no reply. A reply to a later request shows that the server has handled it.
        self.0.write_all(&[GET_INPUT_FOCUS, 0, 1, 0])?;
        self.reply().map(drop)
    }
}

fn unexpected(what: impl std::fmt::Display) -> std::io::Error {
    std::io::Error::other(what.to_string())
}
