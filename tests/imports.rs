//! Memory that a client of `wavefield serve` has allocated, shown from where it lies.
//!
//! On the stand-in for a GPU the client needs no CUDA: memory, slots and timelines are files in memory, see
//! `tests/stand_in/src/shared.rs`. On a real GPU the client is CUDA's.

#![cfg(target_os = "linux")]

mod common;
#[allow(dead_code)]
#[path = "../examples/05_client.rs"]
mod example;
#[path = "common/renderer.rs"]
mod renderer;
#[path = "common/stand_in.rs"]
mod stand_in;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{assert_same_picture, wavefield};
use example::client::Memory;
use renderer::{Client, PATIENCE, Renderer, signal};
use rustix::fs::MemfdFlags;
use stand_in::{ALL, StandIn, first_uuid};
use wavefield::serve::protocol::{ErrorCode, FromClient, FromServer, Wishes};

/// The smallest chunk of CUDA's, which is what the stand-in has.
const CHUNK: u64 = 2 << 20;
/// What lies before the contents of the stand-in's memory.
const HEADER: u64 = 4096;

/// A renderer on the stand-in.
fn start(more: &[&str]) -> Option<Renderer> {
    let stand_in = StandIn::new()?;
    let mut command = stand_in.command(&[&ALL[..], &["sparseBinding"]].concat());
    command.env("STAND_IN_DRIVERS_MEMORY", "1");
    let mut renderer = Renderer::start_as(command, more);
    renderer.stand_in = Some(stand_in);
    Some(renderer)
}

/// Chunks of CUDA's, one behind the other, as the stand-in has them.
struct Chunks(Vec<(OwnedFd, u64)>);

impl Chunks {
    fn new(sizes: &[u64]) -> Self {
        Self(sizes.iter().map(|&size| (named("wavefield-stand-in-memory", size), size)).collect())
    }

    fn write(&self, bytes: &[u8], offset: u64) {
        let mut begin = 0;
        for (file, size) in &self.0 {
            let (from, to) = (offset.max(begin), (offset + bytes.len() as u64).min(begin + size));
            if from < to {
                let part = &bytes[(from - offset) as usize..(to - offset) as usize];
                assert_eq!(rustix::io::pwrite(file, part, HEADER + from - begin), Ok(part.len()));
            }
            begin += size;
        }
    }

    fn send(&self, client: &Client) {
        let chunks = self.0.iter().map(|&(_, size)| size).collect();
        let files: Vec<_> = self.0.iter().map(|(file, _)| file.as_fd()).collect();
        client.connection.send(&FromClient::Import { chunks }, &files).unwrap();
    }

    /// The id by which it can be shown.
    fn import(&self, client: &mut Client, renderer: &Renderer) -> u64 {
        self.send(client);
        match client.answer().0 {
            FromServer::Imported { id, bytes } => {
                assert_eq!(bytes, self.0.iter().map(|(_, size)| size).sum::<u64>());
                id
            }
            other => panic!("{other:?}: {}", renderer.notes()),
        }
    }
}

fn named(name: &str, size: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, HEADER + size).unwrap();
    file
}

/// Signals `ready`, as the stand-in hears it.
fn ready(client: &Client, value: u64) {
    let file = &client.descriptors[client.welcome.ready.unwrap() as usize];
    assert_eq!(rustix::io::pwrite(file, &value.to_ne_bytes(), 0), Ok(8));
}

/// Waits until `free` is so much.
fn wait_for_free(client: &Client, value: u64) {
    let file = &client.descriptors[client.welcome.free.unwrap() as usize];
    let until = Instant::now() + PATIENCE;
    let mut bytes = [0; 8];
    while !matches!(rustix::io::pread(file, &mut bytes, 8), Ok(8)) || u64::from_ne_bytes(bytes) < value {
        assert!(Instant::now() < until, "`free` is {bytes:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until frame `frame` is on show.
fn wait_for_shown(client: &mut Client, frame: u64) {
    let until = Instant::now() + PATIENCE;
    while client.state().frame_shown != Some(frame) {
        assert!(Instant::now() < until, "{:?}", client.state());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn show(client: &mut Client, frame: u64, allocation: u64, offset: u64) {
    client.say(&FromClient::Show { frame, allocation, offset });
    ready(client, frame + 1);
    wait_for_shown(client, frame);
}

/// Frame 1 of a run without a client.
fn own_picture(renderer: &Renderer) -> std::path::PathBuf {
    let path = renderer.folder.path().join("own.png");
    let arguments =
        ["--headless", "--frames=1", "--size=96x64", "--producer=compute", "--grid=16x16", "--output"];
    let output = wavefield().args(arguments).arg(&path).output().unwrap();
    common::assert_exit(&output, 0);
    path
}

fn assert_pictured(client: &mut Client, renderer: &Renderer) {
    let path = renderer.folder.path().join("got.png");
    client.picture(&path);
    assert_same_picture(&path, &own_picture(renderer), common::SAME_PICTURE);
}

#[test]
fn memory_of_a_client_is_shown_where_it_lies() {
    let Some(renderer) = start(&["--ring=2"]) else { return };
    let mut client = renderer.client(Memory::Cuda);
    let (wave, offset) = (client.wave(0.0), client.welcome.offset_alignment * 3);
    let chunks = Chunks::new(&[CHUNK]);
    let id = chunks.import(&mut client, &renderer);
    show(&mut client, 0, id, 0);
    // What is written after the import is seen, for nothing is copied.
    chunks.write(&wave, offset);
    show(&mut client, 1, id, offset);
    assert_pictured(&mut client, &renderer);
    // To its last byte, and not beyond; the next frame lies in its slot.
    let end = CHUNK - wave.len() as u64;
    chunks.write(&wave, end);
    show(&mut client, 2, id, end);
    assert_pictured(&mut client, &renderer);
    client.say(&FromClient::Release { id });
    ready(&client, 4);
    wait_for_shown(&mut client, 3);
    wait_for_free(&client, 3);
    client.say(&FromClient::Show { frame: 4, allocation: id, offset: 0 });
    assert_eq!(client.error(), ErrorCode::Value, "it was released");
    renderer.end().assert_fine();
}

/// The stand-in copies what lies there when it is bound, so this is written before.
#[test]
fn a_frame_may_lie_in_two_chunks() {
    let Some(renderer) = start(&[]) else { return };
    let mut client = renderer.client(Memory::Cuda);
    let wave = client.wave(0.0);
    let seam = 2 * CHUNK - client.welcome.offset_alignment * 5;
    let chunks = Chunks::new(&[2 * CHUNK, CHUNK]);
    chunks.write(&wave, seam);
    let id = chunks.import(&mut client, &renderer);
    show(&mut client, 0, id, seam);
    assert_pictured(&mut client, &renderer);
    drop(client);
    renderer.end().assert_fine();
}

#[test]
fn a_device_without_sparse_binding_says_so() {
    let Some(stand_in) = StandIn::new() else { return };
    let renderer = Renderer::start_as(stand_in.command(&ALL), &[]);
    let mut client = renderer.client(Memory::Cuda);
    let reason = refusal(&mut client, Chunks::new(&[CHUNK, CHUNK]));
    assert!(reason.contains("sparse") && reason.contains("into one"), "{reason}");
    Chunks::new(&[CHUNK]).import(&mut client, &renderer);
    drop(client);
    renderer.end().assert_fine();
}

#[test]
fn what_is_checked_is_found_clean_in_imported_memory() {
    let Some(renderer) = start(&["--verify"]) else { return };
    let mut client = renderer.client(Memory::Cuda);
    let chunks = Chunks::new(&[CHUNK]);
    let id = chunks.import(&mut client, &renderer);
    let step = client.stamped(0).len() as u64;
    for frame in 0..10 {
        chunks.write(&client.stamped(frame), frame * step);
        show(&mut client, frame, id, frame * step);
    }
    // One that is not what it says is found.
    chunks.write(&client.stamped(3), 10 * step);
    show(&mut client, 10, id, 10 * step);
    drop(client);
    let ended = renderer.end();
    assert_eq!((ended.code, ended.counted("overwritten"), ended.counted("missing")), (Some(1), 0, 0));
    assert!(ended.counted("stale") > 0 && ended.counted("stale") % 256 == 0, "{}", ended.report);
}

/// Why an import fails.
fn refusal(client: &mut Client, chunks: Chunks) -> String {
    chunks.send(client);
    match client.answer().0 {
        FromServer::Failed { request, reason } if request == "import" => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_no_such_memory_is_refused_in_words_and_costs_nothing() {
    let Some(renderer) = start(&[]) else { return };
    let mut client = renderer.client(Memory::Cuda);
    let descriptors = renderer.resources().0;
    let one = |file: OwnedFd, size| Chunks(vec![(file, size)]);
    let memory = |size| named("wavefield-stand-in-memory", size);
    let (pipe, _writer) = rustix::pipe::pipe().unwrap();
    for (chunks, words) in [
        (one(memory(CHUNK), 2 * CHUNK), "chunk 0 of 1: it does not have 4194304 bytes"),
        (one(memory(2 * CHUNK), CHUNK), "chunk 0 of 1: it has more than 2097152 bytes: name all of them"),
        (one(memory(CHUNK), 4096), "multiple of 2097152"),
        (Chunks(vec![(memory(CHUNK), CHUNK), (memory(CHUNK), 2 * CHUNK)]), "chunk 1 of 2: it does not have"),
        (one(pipe, CHUNK), "cuMemImportFromShareableHandle"),
        (one(File::open("/proc/self/exe").unwrap().into(), CHUNK), "cuMemImportFromShareableHandle"),
        (one(named("wavefield-stand-in-memory-of-another-gpu", CHUNK), CHUNK), "its memory is not on"),
        (one(named("wavefield-stand-in-memory-compressed", CHUNK), CHUNK), "compressed"),
    ] {
        let reason = refusal(&mut client, chunks);
        assert!(reason.contains("tried in a process of its own: "), "{reason}");
        assert!(reason.contains(words), "{words}: {reason}");
    }
    // These need no trial.
    let many = Chunks::new(&vec![CHUNK; 65]);
    assert!(refusal(&mut client, many).contains("65 chunks"));
    assert!(refusal(&mut client, one(memory(CHUNK), 0)).contains("0 bytes"));
    wait_for_rest(&renderer, descriptors);
    // A good one is imported afterwards, and many chunks are.
    let wave = client.wave(0.0);
    let chunks = Chunks::new(&vec![CHUNK; 64]);
    chunks.write(&wave, 0);
    let id = chunks.import(&mut client, &renderer);
    show(&mut client, 0, id, 0);
    assert_pictured(&mut client, &renderer);
    // Another count of descriptors than of chunks is no message of the protocol.
    client.say(&FromClient::Import { chunks: vec![CHUNK] });
    assert_eq!(client.error(), ErrorCode::Message);
    drop(client);
    renderer.end().assert_fine();
}

#[test]
fn with_memory_host_there_is_nothing_to_import() {
    let renderer = Renderer::start(&[]);
    let mut client = renderer.client(Memory::Host);
    Chunks::new(&[CHUNK]).send(&client);
    assert_eq!(client.error(), ErrorCode::Order);
    renderer.end().assert_fine();
}

/// The processes in which something is being tried.
fn trials(renderer: &Renderer) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", renderer.child.id())).unwrap().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(String::from).collect::<Vec<_>>()).collect()
}

/// No process is left, alive or dead, nor a descriptor of one that was.
fn wait_for_rest(renderer: &Renderer, descriptors: usize) {
    let until = Instant::now() + PATIENCE;
    while !trials(renderer).is_empty() || renderer.resources().0 > descriptors {
        let left = (trials(renderer), renderer.resources().0);
        assert!(Instant::now() < until, "children and descriptors: {left:?}, {descriptors} before");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends the signal to a process.
fn signal_to(process: &str, name: &str) {
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {process}")]).status().unwrap();
    assert!(status.success());
}

/// Sends the chunks, and stops the process in which they are tried: its number.
fn stopped_trial(renderer: &mut Renderer, client: &Client, chunks: &Chunks) -> String {
    chunks.send(client);
    let until = Instant::now() + PATIENCE;
    loop {
        assert!(renderer.is_alive() && Instant::now() < until, "{}", renderer.notes());
        if let [trial] = trials(renderer).as_slice()
            && std::fs::read_to_string(format!("/proc/{trial}/cmdline"))
                .is_ok_and(|line| line.contains("try-import"))
        {
            signal_to(trial, "STOP");
            return trial.clone();
        }
    }
}

#[test]
fn frames_go_on_while_an_import_is_tried_and_answers_stay_in_order() {
    let Some(mut renderer) = start(&["--ring=2"]) else { return };
    let mut client = renderer.client(Memory::Cuda);
    let chunks = Chunks::new(&[CHUNK]);
    let first = chunks.import(&mut client, &renderer);
    show(&mut client, 0, first, 0);
    let trial = stopped_trial(&mut renderer, &client, &chunks);
    let paused = Wishes { paused: Some(true), ..Wishes::default() };
    client.say(&FromClient::Status);
    client.say(&FromClient::Set { parameters: paused, kernel: Default::default(), camera: None });
    chunks.send(&client);
    client.say(&FromClient::Allocate { bytes: 4096 });
    // Ten more frames are drawn meanwhile, and from that memory.
    for frame in 1..=10 {
        wait_for_free(&client, frame - 1);
        client.say(&FromClient::Show { frame, allocation: first, offset: 0 });
        ready(&client, frame + 1);
    }
    wait_for_free(&client, 10);
    assert_eq!(trials(&renderer), [trial.clone()], "it is still being tried");
    client.say(&FromClient::Snapshot { after: None });
    signal_to(&trial, "CONT");
    let FromServer::Imported { id, .. } = client.answer().0 else { panic!("{}", renderer.notes()) };
    assert_eq!(id, first + 1);
    assert!(matches!(client.answer().0, FromServer::State(_)));
    assert!(matches!(client.answer().0, FromServer::Parameters { parameters, .. } if parameters.paused));
    let FromServer::Failed { request, reason } = client.answer().0 else { panic!("two at a time") };
    assert!(request == "import" && reason.contains("wait for its answer"), "{reason}");
    assert!(matches!(client.answer(), (FromServer::Allocated { .. }, files) if files.len() == 1));
    assert!(matches!(client.answer().0, FromServer::Picture { .. }));
    show(&mut client, 11, id, 0);
    drop(client);
    renderer.end().assert_fine();
}

#[test]
fn a_client_that_leaves_meanwhile_ends_the_trial() {
    let Some(mut renderer) = start(&[]) else { return };
    let descriptors = renderer.resources().0;
    // However much it has asked for, and not been told.
    for requests in [0, 1, 200] {
        let client = renderer.client(Memory::Cuda);
        stopped_trial(&mut renderer, &client, &Chunks::new(&[CHUNK]));
        for _ in 0..requests {
            client.say(&if requests == 1 {
                FromClient::Snapshot { after: None }
            } else {
                FromClient::Status
            });
        }
        drop(client);
        wait_for_rest(&renderer, descriptors);
    }
    // So does one that is told to end.
    let client = renderer.client(Memory::Cuda);
    let trial = stopped_trial(&mut renderer, &client, &Chunks::new(&[CHUNK]));
    signal(&renderer.child, "TERM");
    assert_eq!(renderer.child.wait().unwrap().code(), Some(0), "{}", renderer.notes());
    let until = Instant::now() + PATIENCE;
    while std::path::Path::new("/proc").join(&trial).exists() {
        assert!(Instant::now() < until, "process {trial} is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `wavefield try-import` by itself.
#[test]
fn a_trial_answers_by_its_exit_code() {
    let device = format!("--device={}", first_uuid());
    let attempt = |arguments: &[&str]| {
        let null = File::open("/dev/null").unwrap();
        wavefield().arg("try-import").args(arguments).stdin(null).output().unwrap()
    };
    common::assert_exit(&attempt(&[&device, "--usage=1"]), 2);
    common::assert_exit(&attempt(&["--device=seven", "--usage=1", "--chunks=1"]), 2);
    let output = attempt(&[&device, "--usage=1", "--chunks=1"]);
    common::assert_exit(&output, 1);
    assert!(common::stderr(&output).contains("standard input"), "{}", common::stderr(&output));
    let output = attempt(&[&device, "--usage=1", "--chunks=1", "--parent=1"]);
    common::assert_exit(&output, 1);
    assert!(common::stderr(&output).contains("process 1, for which"), "{}", common::stderr(&output));
    assert!(!common::stdout(&common::run(&["--help"])).contains("try-import"));
}
