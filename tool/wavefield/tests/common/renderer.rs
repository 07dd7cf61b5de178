//! For tests of `serve`: a renderer in its own process, and a client in this one.

#![allow(dead_code)] // Each test file uses its own part of this.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use wavefield_handoff::contents::frame_stamp;
use wavefield_handoff::contents::wave::{self, Grid, Vertex, WaveShape};
use wavefield_run::write_png;
use wavefield_serve::protocol::{
    ErrorCode, FromClient, FromServer, RefusedCode, RendererState, SettingsChange, Tagged, Welcome,
};
use wavefield_serve::socket::{Connection, Received};

use super::common::{self, wavefield};
use super::example::client::{Arguments, Memory, connect};
use super::stand_in::StandIn;

pub use wavefield_test_support::PATIENCE;

/// The argument for the validation layer, if it is installed. An error of the layer ends the renderer with
/// exit code 1.
pub fn validated() -> &'static [&'static str] {
    match common::has_validation() {
        true => &["--validation"],
        false => {
            common::skip_without_tools("no validation layer");
            &[]
        }
    }
}

/// Writes the picture of frame 1 of a run without a client.
pub fn own_picture(folder: &Path, grid: &str) -> PathBuf {
    let path = folder.join(format!("own-{grid}.png"));
    let grid = format!("--grid={grid}");
    let arguments = ["--headless", "--frames=1", "--size=96x64", "--producer=compute", &grid, "--output"];
    let output = wavefield().args(arguments).arg(&path).output().unwrap();
    common::assert_exit(&output, 0);
    path
}

/// A renderer in its own process. It is killed when dropped, unless [`end`](Self::end) ended it.
pub struct Renderer {
    pub child: Child,
    pub folder: tempfile::TempDir,
    /// The stand-in that the renderer runs on, if it does.
    pub stand_in: Option<StandIn>,
}

/// What a renderer leaves when it ends: its exit code, its report and its standard error.
pub struct Ended {
    pub code: Option<i32>,
    pub report: serde_json::Value,
    pub notes: String,
}

impl Renderer {
    pub fn start(more: &[&str]) -> Self {
        Self::start_as(wavefield(), more)
    }

    pub fn start_as(mut command: Command, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let notes = std::fs::File::create(folder.path().join("notes")).unwrap();
        command.args(["serve", "--headless"]);
        if !more.iter().any(|argument| argument.starts_with("--size")) {
            command.arg("--size=96x64");
        }
        if !more.contains(&"--validation") {
            command.arg("--validation=off");
        }
        if !more.iter().any(|argument| argument.starts_with("--grid")) {
            command.arg("--grid=16x16");
        }
        let child = command
            .args(more)
            .arg("--socket")
            .arg(folder.path().join("socket"))
            .arg("--json")
            .arg(folder.path().join("report.json"))
            .stdout(std::fs::File::create(folder.path().join("output")).unwrap())
            .stderr(notes)
            .spawn()
            .expect("the program starts");
        let mut renderer = Self { child, folder, stand_in: None };
        let until = Instant::now() + PATIENCE;
        while !renderer.socket().exists() || !renderer.notes().contains("listening") {
            assert!(renderer.is_alive(), "{}", renderer.notes());
            assert!(Instant::now() < until, "it does not listen: {}", renderer.notes());
            std::thread::sleep(Duration::from_millis(10));
        }
        renderer
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub fn notes(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("notes")).unwrap_or_default()
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn arguments(&self, memory: Memory) -> Arguments {
        Arguments { socket: Some(self.socket()), memory, ..Arguments::default() }
    }

    /// Connects a client. Tries again while the previous client is still leaving.
    pub fn client(&self, memory: Memory) -> Client {
        let until = Instant::now() + PATIENCE;
        loop {
            match connect(&self.arguments(memory)) {
                Ok((connection, welcome, descriptors)) => {
                    return Client { connection, welcome, descriptors, freed: 0 };
                }
                Err(error) => assert!(Instant::now() < until, "{error:#}; {}", self.notes()),
            }
        }
    }

    /// Connects a client with memory `host` that describes its array like this. Returns why, if it is
    /// refused.
    pub fn client_of(&self, array: &serde_json::Value) -> Result<Client, (RefusedCode, String)> {
        let until = Instant::now() + PATIENCE;
        let hello = serde_json::json!({
            "type": "hello", "protocol": 2, "client": "x", "memory": "host", "ring": 2, "array": array,
        });
        loop {
            assert!(Instant::now() < until, "{}", self.notes());
            let connection = Connection::connect(&self.socket()).unwrap();
            connection.send_bytes(hello.to_string().as_bytes(), &[]).unwrap();
            match receive(&connection) {
                (FromServer::Welcome(welcome), descriptors) => {
                    return Ok(Client { connection, welcome: *welcome, descriptors, freed: 0 });
                }
                // The previous client is still leaving.
                (FromServer::Refused { code: RefusedCode::Busy, .. }, _) => {}
                (FromServer::Refused { code, reason }, _) => return Err((code, reason)),
                (other, _) => panic!("{other:?}"),
            }
        }
    }

    /// The ids of the child processes, in which the renderer tries kernels and imports.
    pub fn trials(&self) -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        lists.flat_map(|list| list.split_whitespace().map(String::from).collect::<Vec<_>>()).collect()
    }

    /// Waits until no child process is left, alive or dead, and no more than `descriptors` descriptors are
    /// open.
    pub fn wait_for_rest(&self, descriptors: usize) {
        let until = Instant::now() + PATIENCE;
        while !self.trials().is_empty() || self.resources().0 > descriptors {
            let left = (self.trials(), self.resources().0);
            assert!(Instant::now() < until, "children and descriptors: {left:?}, {descriptors} before");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The number of open descriptors, and the resident memory in KiB.
    pub fn resources(&self) -> (usize, u64) {
        let process = PathBuf::from(format!("/proc/{}", self.child.id()));
        let status = std::fs::read_to_string(process.join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let resident = line.split_whitespace().next().unwrap().parse().unwrap();
        (std::fs::read_dir(process.join("fd")).unwrap().count(), resident)
    }

    /// Asks the renderer to end, and waits until it has.
    pub fn end(mut self) -> Ended {
        signal(&self.child, "TERM");
        let code = self.child.wait().unwrap().code();
        let report = std::fs::read(self.folder.path().join("report.json")).unwrap_or_default();
        let ended =
            Ended { code, report: serde_json::from_slice(&report).unwrap_or_default(), notes: self.notes() };
        assert!(!ended.notes.contains("panicked"), "{}", ended.notes);
        ended
    }
}

impl Drop for Renderer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the renderer said: {}", self.notes());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A picture that the renderer sent.
pub struct Seen {
    pub extent: ash::vk::Extent2D,
    pub pixels: Vec<u8>,
    /// The client's frame that the picture shows.
    pub frame: Option<u64>,
}

impl Seen {
    /// Red, green and blue at a place. `x` and `y` run from 0 to 1, to the right and down.
    pub fn at(&self, x: f64, y: f64) -> [u8; 3] {
        let place = |at: f64, size: u32| ((at * f64::from(size)) as u32).min(size - 1);
        let (col, row) = (place(x, self.extent.width), place(y, self.extent.height));
        let at = (row * self.extent.width + col) as usize * 4;
        [self.pixels[at], self.pixels[at + 1], self.pixels[at + 2]]
    }
}

impl Ended {
    /// The stretches of the report that have a client.
    pub fn clients(&self) -> Vec<&serde_json::Value> {
        let stretches = self.report["stretches"].as_array();
        stretches.into_iter().flatten().filter(|stretch| !stretch["client"].is_null()).collect()
    }

    pub fn assert_fine(&self) {
        assert_eq!(self.code, Some(0), "{}", self.notes);
    }
}

pub fn signal(child: &Child, name: &str) {
    // `kill` is built into every shell, but not every system has the program.
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status().unwrap();
    assert!(status.success());
}

/// A client in this process, with memory `host`.
pub struct Client {
    pub connection: Connection,
    pub welcome: Welcome,
    pub descriptors: Vec<OwnedFd>,
    /// The number of frames that the renderer has copied.
    pub freed: u64,
}

/// Waits for the next message.
pub fn receive(connection: &Connection) -> (FromServer, Vec<OwnedFd>) {
    match connection.receive_within(PATIENCE) {
        Received::Packet(packet, descriptors) => (serde_json::from_slice(&packet).unwrap(), descriptors),
        other => panic!("no message, but {other:?}"),
    }
}

impl Client {
    /// The grid of a client that sends a mesh.
    pub fn grid(&self) -> Grid {
        Grid { cols: self.welcome.array.shape[1] as u32, rows: self.welcome.array.shape[0] as u32 }
    }

    /// Sends a request with an id.
    pub fn ask(&self, message: &FromClient, id: u64) {
        self.connection.send(&Tagged { message, request_id: Some(id) }, &[]).unwrap();
    }

    pub fn say(&self, message: &FromClient) {
        self.connection.send(message, &[]).unwrap();
    }

    /// Waits for the next message.
    pub fn hear(&self) -> (FromServer, Vec<OwnedFd>) {
        receive(&self.connection)
    }

    /// Waits for the next message other than `free`.
    pub fn answer(&mut self) -> (FromServer, Vec<OwnedFd>) {
        loop {
            match self.hear() {
                (FromServer::Free { frame }, _) => self.freed = frame + 1,
                other => return other,
            }
        }
    }

    /// Waits for the error with which the renderer drops this client.
    pub fn error(&mut self) -> ErrorCode {
        match self.answer().0 {
            FromServer::Error { code, .. } => code,
            other => panic!("no error, but {other:?}"),
        }
    }

    pub fn state(&mut self) -> RendererState {
        self.say(&FromClient::Status);
        match self.answer().0 {
            FromServer::State(state) => state,
            other => panic!("no state, but {other:?}"),
        }
    }

    /// The vertices of the wave at `turn`, as bytes.
    pub fn wave(&self, turn: f32) -> Vec<u8> {
        let grid = self.grid();
        let vertices = (0..grid.rows)
            .flat_map(|row| {
                (0..grid.cols).map(move |col| wave::vertex(grid, col, row, turn, WaveShape::default()))
            })
            .collect::<Vec<_>>();
        bytemuck::cast_slice(&vertices).to_vec()
    }

    /// Sends these bytes as frame `frame`, once its slot is free.
    pub fn frame(&mut self, frame: u64, bytes: &[u8]) {
        while frame >= self.freed + u64::from(self.welcome.ring) {
            match self.hear().0 {
                FromServer::Free { frame } => self.freed = frame + 1,
                other => panic!("{other:?}"),
            }
        }
        let slot = &self.welcome.slots[(frame % u64::from(self.welcome.ring)) as usize];
        assert_eq!(rustix::io::pwrite(&self.descriptors[0], bytes, slot.offset).unwrap(), bytes.len());
        self.say(&FromClient::Ready { frame });
    }

    /// Takes a picture and writes it to a file.
    pub fn picture(&mut self, path: &Path) {
        self.say(&FromClient::Snapshot { after: None, size: None });
        let seen = self.seen();
        write_png(path, seen.extent, &seen.pixels, &[]).unwrap();
    }

    /// Receives the picture that was asked for.
    pub fn seen(&mut self) -> Seen {
        let (FromServer::Picture { width, height, format, bytes, frame }, descriptors) = self.answer() else {
            panic!("no picture")
        };
        assert_eq!((format.as_str(), bytes), ("rgba8-srgb", u64::from(width * height * 4)));
        let mut pixels = vec![0; bytes as usize];
        assert_eq!(rustix::io::pread(&descriptors[0], &mut pixels, 0).unwrap(), pixels.len());
        Seen { extent: ash::vk::Extent2D { width, height }, pixels, frame }
    }

    /// Lets the renderer draw so many times at least: once for each picture, because each has another size of
    /// points.
    pub fn see_again(&mut self, draws: u64) {
        let until = self.state().frames_drawn + draws;
        for size in (0..).map(|round| Some(f64::from(3 + round % 2))) {
            if self.state().frames_drawn >= until {
                break;
            }
            let parameters = SettingsChange { size, ..SettingsChange::default() };
            self.say(&FromClient::Set { parameters, camera: None });
            assert!(matches!(self.answer().0, FromServer::Parameters { .. }));
            self.say(&FromClient::Snapshot { after: None, size: None });
            self.seen();
        }
    }

    /// Waits until the renderer has copied `frame`.
    pub fn wait_for(&mut self, frame: u64) {
        let until = Instant::now() + PATIENCE;
        while self.freed <= frame {
            assert!(Instant::now() < until);
            if let (FromServer::Free { frame }, _) = self.hear() {
                self.freed = frame + 1;
            }
        }
    }

    /// The vertices of the wave, each with the stamp of frame `number`.
    pub fn stamped(&self, number: u64) -> Vec<u8> {
        let mut vertices: Vec<Vertex> = bytemuck::pod_collect_to_vec(&self.wave(0.0));
        for vertex in &mut vertices {
            vertex.w = frame_stamp::apply(vertex.w, number);
        }
        bytemuck::cast_slice(&vertices).to_vec()
    }

    /// Writes into a frame's slot, free or not, without telling the renderer.
    pub fn write(&self, frame: u64, bytes: &[u8]) {
        let slot = &self.welcome.slots[(frame % u64::from(self.welcome.ring)) as usize];
        assert_eq!(rustix::io::pwrite(&self.descriptors[0], bytes, slot.offset).unwrap(), bytes.len());
    }
}

impl Ended {
    /// The number of mistakes of a kind that `--verify` has counted before the draw.
    pub fn counted(&self, kind: &str) -> u64 {
        self.report["verify"]["before_draw"][kind].as_u64().unwrap_or_else(|| panic!("{}", self.report))
    }
}
