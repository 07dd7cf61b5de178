//! The thread that serves all pages, with one poll. It never waits for any of them.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use super::Shared;
use super::picture::Shown;
use super::request::{Gate, Verdict};
use super::viewer::{Left, Viewer};
use wavefield_window::{Input, News};

const MOST_VIEWERS: usize = 16;
/// The most connections that have not said yet what they want. Each has a thread.
const MOST_NEWCOMERS: usize = 32;
/// How long a request may take, and its answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long to wait after an error of the system, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a page may take to read that the renderer has ended.
const FAREWELL: Duration = Duration::from_secs(1);
/// While so much input waits for the frame loop, pages are not read.
const MANY_INPUTS: usize = 256;

/// Reads a request and answers it. Returns the connection of a viewer, and what follows its request.
fn greet(mut stream: TcpStream, gate: &Gate) -> Option<(TcpStream, Vec<u8>)> {
    let (until, mut heard, mut bytes) = (Instant::now() + PATIENCE, Vec::new(), [0; 1024]);
    stream.set_read_timeout(Some(PATIENCE)).and(stream.set_write_timeout(Some(PATIENCE))).ok()?;
    while Instant::now() < until {
        match stream.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => return None,
            Ok(count) => heard.extend_from_slice(&bytes[..count]),
        }
        match gate.judge(&heard) {
            Verdict::Wait => {}
            Verdict::Answer(answer) => {
                let _ = stream.write_all(answer.as_bytes());
                return None;
            }
            Verdict::Accept(answer, length) => {
                stream.write_all(answer.as_bytes()).and(stream.set_nonblocking(true)).ok()?;
                return Some((stream, heard.split_off(length)));
            }
        }
    }
    None
}

/// Keeps the viewers for which `each` succeeds. Returns the release of what the others hold down.
fn keep(viewers: &mut Vec<Viewer>, mut each: impl FnMut(&mut Viewer) -> Result<(), Left>) -> Vec<Input> {
    let mut released = Vec::new();
    viewers.retain_mut(|viewer| {
        let stays = each(viewer).is_ok();
        if !stays {
            released.extend(viewer.releases());
        }
        stays
    });
    released
}

pub(crate) struct Server {
    listener: TcpListener,
    gate: Arc<Gate>,
    newcomers: Arc<AtomicUsize>,
    shared: Arc<Shared>,
    viewers: Vec<Viewer>,
    shown: Option<Shown>,
    title: String,
    /// The pixels of a point: those of the page that has set the size.
    scale: f32,
}

impl Server {
    pub(crate) fn new(listener: TcpListener, gate: Gate, shared: Arc<Shared>) -> Self {
        let (gate, newcomers) = (Arc::new(gate), Arc::default());
        let (viewers, shown, title) = (Vec::new(), None, String::new());
        Self { listener, gate, newcomers, shared, viewers, shown, title, scale: 1.0 }
    }

    /// Serves until the frame loop ends.
    pub(crate) fn run(mut self) {
        while !self.shared.lock().is_over {
            self.wait();
            self.accept();
            self.hear();
            self.take();
            self.show();
        }
        self.tell(&json!({ "ended": true }));
        // What a page sends to a closed connection would cost it what it has not read yet, so pages close theirs first.
        self.viewers.retain_mut(|viewer| viewer.close().is_ok());
        let until = Instant::now() + FAREWELL;
        while !self.viewers.is_empty() && Instant::now() < until {
            std::thread::sleep(PAUSE / 10);
            self.viewers
                .retain_mut(|viewer| viewer.flush().is_ok() && viewer.hear(&mut vec![], &mut 1.0).is_ok());
        }
    }

    /// Waits until somebody comes, says or takes something, or the frame loop has a picture.
    fn wait(&self) {
        let hears = self.shared.lock().inputs.len() < MANY_INPUTS;
        let viewers = self.viewers.iter().map(|viewer| (viewer.stream(), viewer.interest(hears)));
        // Without a flag, a connection that has ended would still end the wait.
        let viewers = viewers.filter(|(_, flags)| !flags.is_empty());
        let others =
            [PollFd::new(&self.listener, PollFlags::IN), PollFd::new(&self.shared.wake, PollFlags::IN)];
        let patience = self.viewers.iter().map(|viewer| viewer.patience(self.shown.as_ref())).min();
        let limit = patience.and_then(|patience| Timespec::try_from(patience).ok());
        let viewers = viewers.map(|(stream, flags)| PollFd::new(stream, flags));
        // An error only ends the wait early.
        let _ = poll(&mut others.into_iter().chain(viewers).collect::<Vec<_>>(), limit.as_ref());
        self.shared.forget_wakes();
    }

    fn accept(&mut self) {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => break std::thread::sleep(PAUSE),
            };
            // Dropped, and so closed.
            if self.newcomers.fetch_add(1, Ordering::Relaxed) >= MOST_NEWCOMERS {
                self.newcomers.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (gate, shared, newcomers) = (self.gate.clone(), self.shared.clone(), self.newcomers.clone());
            let greet = move || {
                if let Some(viewer) = stream.set_nodelay(true).ok().and_then(|()| greet(stream, &gate)) {
                    shared.lock().newcomers.push(viewer);
                    shared.wake();
                }
                newcomers.fetch_sub(1, Ordering::Relaxed);
            };
            if std::thread::Builder::new().name("web request".into()).spawn(greet).is_err() {
                self.newcomers.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let newcomers = std::mem::take(&mut self.shared.lock().newcomers);
        for (stream, rest) in newcomers {
            let mut viewer = Viewer::new(stream, rest);
            let has_room = self.viewers.len() < MOST_VIEWERS;
            let news = if has_room { json!({ "title": self.title }) } else { json!({ "full": true }) };
            if viewer.tell(&news).is_ok() && has_room {
                self.viewers.push(viewer);
            }
        }
    }

    /// Hears the pages in turn: none is always the first.
    fn hear(&mut self) {
        let room = MANY_INPUTS.saturating_sub(self.shared.lock().inputs.len());
        let (mut inputs, scale) = (Vec::new(), &mut self.scale);
        if let Some(first) = self.viewers.len().checked_sub(1) {
            self.viewers.rotate_right(first.min(1));
        }
        let released = keep(&mut self.viewers, |viewer| match inputs.len() < room {
            true => viewer.hear(&mut inputs, scale),
            false => Ok(()),
        });
        // Behind what they have pressed in this turn.
        inputs.extend(released);
        self.shared.hear(inputs);
    }

    /// Takes the newest picture, and what else changed.
    fn take(&mut self) {
        let mut state = self.shared.lock();
        let (pixels, told) = (state.picture.take(), std::mem::take(&mut state.told));
        drop(state);
        if let Some(pixels) = pixels
            && !self.shown.as_ref().is_some_and(|shown| shown.is_same(&pixels))
        {
            let number = self.shown.as_ref().map_or(0, |shown| shown.number.wrapping_add(1));
            self.shown = Some(Shown::new(number, pixels));
        }
        for news in told {
            match news {
                News::Title(title) => {
                    self.tell(&json!({ "title": title }));
                    self.title = title;
                }
                News::Copy(text) => self.tell(&json!({ "copy": text })),
            }
        }
    }

    fn tell(&mut self, news: &serde_json::Value) {
        self.shared.hear(keep(&mut self.viewers, |viewer| viewer.tell(news)));
    }

    fn show(&mut self) {
        self.shared.hear(keep(&mut self.viewers, |viewer| viewer.show(self.shown.as_mut())));
        self.shared.lock().is_watched = self.viewers.iter().any(Viewer::is_visible);
    }
}
