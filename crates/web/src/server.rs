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
use super::viewer::Viewer;
use wavefield_window::News;

const MOST_VIEWERS: usize = 16;
/// The most connections that have not said yet what they want. Each has a thread.
const MOST_NEWCOMERS: usize = 32;
/// How long a request may take, and its answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often to look at what time alone changes.
const LOOK: Duration = Duration::from_millis(100);
/// The most input that waits for the frame loop. Until that takes it, pages are not read.
const MOST_INPUTS: usize = 256;

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
    }

    /// Waits until somebody comes, says or takes something, or the frame loop has a picture.
    fn wait(&self) {
        let hears = self.shared.lock().inputs.len() < MOST_INPUTS;
        let viewers = self.viewers.iter().map(|one| PollFd::new(one.stream(), one.interest(hears)));
        let others =
            [PollFd::new(&self.listener, PollFlags::IN), PollFd::new(&self.shared.wake, PollFlags::IN)];
        let has_plans = self.viewers.iter().any(|viewer| viewer.has_plans(self.shown.as_ref()));
        let limit = has_plans.then(|| Timespec::try_from(LOOK).ok()).flatten();
        // An error only ends the wait early.
        let _ = poll(&mut others.into_iter().chain(viewers).collect::<Vec<_>>(), limit.as_ref());
        self.shared.forget_wakes();
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
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
        for (stream, rest) in std::mem::take(&mut self.shared.lock().newcomers) {
            let mut viewer = Viewer::new(stream, rest);
            if self.viewers.len() < MOST_VIEWERS && viewer.tell(&json!({ "title": self.title })).is_ok() {
                self.viewers.push(viewer);
            }
        }
    }

    fn hear(&mut self) {
        let mut state = self.shared.lock();
        let (inputs, scale) = (&mut state.inputs, &mut self.scale);
        self.viewers.retain_mut(|viewer| viewer.hear(inputs, MOST_INPUTS, scale).is_ok());
        if !inputs.is_empty() {
            self.shared.news.notify_all();
        }
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
        self.viewers.retain_mut(|viewer| viewer.tell(news).is_ok());
    }

    fn show(&mut self) {
        self.viewers.retain_mut(|viewer| viewer.show(self.shown.as_mut()).is_ok());
        self.shared.lock().is_watched = self.viewers.iter().any(Viewer::is_visible);
    }
}
