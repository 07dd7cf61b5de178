//! The renderer shows memory that a client has allocated, without a copy: on the stand-in for a GPU, and on a
//! real one.

use crate::common;
#[allow(dead_code)]
use crate::example;
use crate::owner;
use crate::renderer;
use wavefield_test_support::stand_in;

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::first_uuid;
use common::{assert_same_picture, wavefield};
use example::client::Memory;
use owner::{CHUNK, Chunks, Owner, named, plain_file, wait_for_shown};
use renderer::{Client, PATIENCE, Renderer, signal};
use rustix::net::{
    self, AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use stand_in::{ALL, StandIn};
use wavefield_serve::protocol::{ErrorCode, FromClient, FromServer, SettingsChange};
use wavefield_serve::socket::Received;

/// Everything that the stand-in can pretend to have.
fn with_sparse() -> Vec<&'static str> {
    [&ALL[..], &["sparseBinding"]].concat()
}

/// Starts a renderer on the stand-in.
fn on_stand_in(more: &[&str]) -> Option<Renderer> {
    let stand_in = StandIn::new()?;
    let command = stand_in.command(&with_sparse());
    let mut renderer = Renderer::start_as(command, more);
    renderer.stand_in = Some(stand_in);
    Some(renderer)
}

/// Starts a renderer on a real GPU, under the validation layer. On the stand-in, the layer would not see the
/// client's signals.
fn on_gpu(more: &[&str]) -> Option<Renderer> {
    let validation: &[_] = if common::has_validation() && !is_played() { &["--validation"] } else { &[] };
    common::has_gpu().then(|| Renderer::start(&[more, validation].concat()))
}

/// Whether the GPU is really the stand-in: see [`clients_of_cuda_run_on_the_stand_in`].
fn is_played() -> bool {
    std::env::var_os("STAND_IN_PRETEND").is_some()
}

/// Makes two tests of each function: one on the stand-in, whose client needs no CUDA, and one with CUDA on a
/// real GPU.
macro_rules! on_both {
    ($($work:ident($more:expr): $stand_in:ident, $gpu:ident;)*) => {$(
        #[test]
        fn $stand_in() {
            on_stand_in($more).map($work);
        }

        #[test]
        fn $gpu() {
            on_gpu($more).map($work);
        }
    )*

        /// Runs the tests with CUDA on the stand-in.
        #[test]
        fn clients_of_cuda_run_on_the_stand_in() {
            let Some(stand_in) = StandIn::new() else { return };
            for name in [$(stringify!($gpu)),*] {
                let output = stand_in.test(module_path!(), name, &with_sparse()).output().unwrap();
                common::assert_exit(&output, 0);
                assert!(common::stdout(&output).contains("1 passed"), "{name}");
            }
        }
    };
}

on_both! {
    one_chunk(&["--ring=2"]): memory_of_a_client_is_shown_where_it_lies, memory_of_cuda_is_shown_where_it_lies;
    two_chunks(&[]): a_frame_may_lie_in_two_chunks, a_frame_may_lie_in_two_chunks_of_cuda;
    verified(&["--verify"]): what_is_checked_is_found_clean, what_is_checked_is_found_clean_on_a_gpu;
    refused(&[]): what_is_no_such_memory_costs_nothing, what_is_no_such_memory_costs_a_gpu_nothing;
    answered_meanwhile(&["--ring=2"]): frames_go_on_while_an_import_is_tried, frames_of_cuda_go_on_while_an_import_is_tried;
    pictured(&["--ring=2"]): a_picture_asked_for_meanwhile_stops_no_frame, a_picture_asked_for_meanwhile_stops_no_frame_of_cuda;
    many(&["--ring=2"]): many_requests_meanwhile_stop_no_frame, many_requests_meanwhile_stop_no_frame_of_cuda;
    left(&[]): a_client_that_leaves_meanwhile_ends_the_trial, a_client_of_cuda_that_leaves_meanwhile_ends_the_trial;
}

/// Writes the picture of frame 1 of a run without a client.
fn own_picture(renderer: &Renderer) -> PathBuf {
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

fn one_chunk(renderer: Renderer) {
    let (owner, mut client) = Owner::of(&renderer);
    let (wave, offset) = (client.wave(0.0), client.welcome.offset_alignment * 3);
    let chunks = owner.chunks(&[CHUNK]);
    chunks.write(&vec![0; CHUNK as usize], 0);
    let id = chunks.import(&mut client, &renderer);
    owner.show(&mut client, 0, id, 0);
    // Nothing is copied, so the picture shows what is written after the import.
    chunks.write(&wave, offset);
    owner.show(&mut client, 1, id, offset);
    assert_pictured(&mut client, &renderer);
    // The frame ends at the last byte of the chunk. The next frame is in an ordinary slot.
    let end = CHUNK - wave.len() as u64;
    chunks.write(&wave, end);
    owner.show(&mut client, 2, id, end);
    // The client may give up its own memory.
    drop(chunks);
    assert_pictured(&mut client, &renderer);
    client.say(&FromClient::Release { id });
    owner.ready(&client, 4);
    wait_for_shown(&mut client, 3);
    owner.wait_for_free(&client, 3);
    client.say(&FromClient::Show { frame: 4, allocation: id, offset: 0 });
    assert_eq!(client.error(), ErrorCode::Value, "it was released");
    renderer.end().assert_fine();
}

fn two_chunks(renderer: Renderer) {
    let (owner, mut client) = Owner::of(&renderer);
    let (wave, step) = (client.wave(0.0), client.welcome.offset_alignment);
    let seam = 2 * CHUNK - 5 * step;
    let chunks = owner.chunks(&[2 * CHUNK, CHUNK]);
    chunks.write(&vec![0; 3 * CHUNK as usize], 0);
    chunks.write(&wave, seam);
    let id = chunks.import(&mut client, &renderer);
    owner.show(&mut client, 0, id, seam);
    assert_pictured(&mut client, &renderer);
    // The stand-in copies the contents when it binds the memory. A GPU does not.
    if renderer.stand_in.is_none() && !is_played() {
        let seam = seam - 7 * step;
        chunks.write(&vec![0; 3 * CHUNK as usize], 0);
        chunks.write(&wave, seam);
        owner.show(&mut client, 1, id, seam);
        assert_pictured(&mut client, &renderer);
    }
    drop(client);
    renderer.end().assert_fine();
}

/// The GPU may still bind, so nothing is freed.
#[test]
fn a_binding_that_does_not_end_is_given_up() {
    let Some(stand_in) = StandIn::new() else { return };
    let mut command = stand_in.command(&with_sparse());
    // The wait returns VK_TIMEOUT.
    command.env("STAND_IN_FAIL", "vkWaitForFences:2");
    let mut renderer = Renderer::start_as(command, &[]);
    renderer.stand_in = Some(stand_in);
    let (owner, mut client) = Owner::of(&renderer);
    let reason = owner.chunks(&[CHUNK, CHUNK]).refusal(&mut client);
    assert!(reason.contains("did not bind imported memory within 10 s (vkQueueBindSparse)"), "{reason}");
    drop(client);
    renderer.end().assert_fine();
}

#[test]
fn a_device_without_sparse_binding_says_so() {
    let Some(stand_in) = StandIn::new() else { return };
    let mut renderer = Renderer::start_as(stand_in.command(&ALL), &[]);
    renderer.stand_in = Some(stand_in);
    let (owner, mut client) = Owner::of(&renderer);
    let reason = owner.chunks(&[CHUNK, CHUNK]).refusal(&mut client);
    assert!(reason.contains("sparse") && reason.contains("into one"), "{reason}");
    owner.chunks(&[CHUNK]).import(&mut client, &renderer);
    drop(client);
    renderer.end().assert_fine();
}

fn verified(renderer: Renderer) {
    let (owner, mut client) = Owner::of(&renderer);
    let chunks = owner.chunks(&[CHUNK]);
    let id = chunks.import(&mut client, &renderer);
    let step = client.stamped(0).len() as u64;
    for frame in 0..10 {
        chunks.write(&client.stamped(frame), frame * step);
        owner.show(&mut client, frame, id, frame * step);
    }
    // The check finds a frame with the wrong stamp.
    chunks.write(&client.stamped(3), 10 * step);
    owner.show(&mut client, 10, id, 10 * step);
    drop(client);
    let ended = renderer.end();
    assert_eq!((ended.code, ended.counted("overwritten"), ended.counted("missing")), (Some(1), 0, 0));
    let stale = ended.counted("stale");
    assert!(stale > 0 && stale.is_multiple_of(256), "{}", ended.report);
}

fn refused(renderer: Renderer) {
    let (owner, mut client) = Owner::of(&renderer);
    let file = |file| Chunks::of_files(vec![(file, CHUNK)]);
    let import = "cuMemImportFromShareableHandle";
    // The first trial may leave something open permanently.
    owner.chunks(&[CHUNK]).saying(0, 4096).refusal(&mut client);
    let descriptors = renderer.resources().0;
    let mut cases = vec![
        (owner.chunks(&[CHUNK]).saying(0, 2 * CHUNK), "chunk 0 of 1: it does not have 4194304 bytes"),
        (owner.chunks(&[CHUNK, CHUNK]).saying(1, 2 * CHUNK), "chunk 1 of 2: it does not have 4194304 bytes"),
        // A driver may refuse to map only a part.
        (owner.chunks(&[2 * CHUNK]).saying(0, CHUNK), "2097152 bytes: "),
        (owner.chunks(&[CHUNK]).saying(0, 4096), "each is a multiple of 2097152"),
        (file(rustix::pipe::pipe().unwrap().0), import),
        (file(plain_file()), import),
    ];
    if let Owner::StandIn = owner {
        let memory = |kind| file(named(&format!("wavefield-stand-in-memory-{kind}"), CHUNK));
        cases.push((memory("of-another-gpu"), "its memory is not on"));
        cases.push((memory("of-another-kind"), "its memory is not on"));
        cases.push((memory("compressed"), "compressed"));
    }
    for (chunks, words) in cases {
        let reason = chunks.refusal(&mut client);
        assert!(reason.contains("tried in a process of its own: "), "{reason}");
        assert!(reason.contains(words), "{words}: {reason}");
    }
    // These are refused without a trial.
    assert!(owner.chunks(&[CHUNK; 65]).refusal(&mut client).contains("65 chunks"));
    assert!(owner.chunks(&[CHUNK]).saying(0, 0).refusal(&mut client).contains("0 bytes"));
    renderer.wait_for_rest(descriptors);
    // Afterwards, a good import works, even with many chunks.
    let wave = client.wave(0.0);
    let chunks = owner.chunks(&[CHUNK; 64]);
    chunks.write(&wave, 0);
    let id = chunks.import(&mut client, &renderer);
    owner.show(&mut client, 0, id, 0);
    assert_pictured(&mut client, &renderer);
    // A message with more chunks than descriptors is not valid.
    client.say(&FromClient::Import { chunks: vec![CHUNK] });
    assert_eq!(client.error(), ErrorCode::Message);
    drop(client);
    renderer.end().assert_fine();
}

#[test]
fn with_memory_host_there_is_nothing_to_import() {
    let renderer = Renderer::start(&[]);
    let mut client = renderer.client(Memory::Host);
    Owner::StandIn.chunks(&[CHUNK]).send(&client);
    assert_eq!(client.error(), ErrorCode::Order);
    renderer.end().assert_fine();
}

/// Sends a signal to a process.
fn signal_to(process: &str, name: &str) {
    // The process may have ended.
    let _ = Command::new("sh").args(["-c", &format!("kill -{name} {process} 2>/dev/null")]).status().unwrap();
}

/// Sends the chunks and stops the process that tries them. Returns its id. By then, the process is bound to
/// end with the renderer.
fn stopped_trial(renderer: &mut Renderer, client: &Client, chunks: &Chunks<'_>) -> String {
    chunks.send(client);
    let until = Instant::now() + PATIENCE;
    loop {
        assert!(renderer.is_alive() && Instant::now() < until, "{}", renderer.notes());
        let trial = renderer.trials().pop().unwrap_or_default();
        let its = |what: &str| std::fs::read_to_string(format!("/proc/{trial}/{what}")).unwrap_or_default();
        if its("cmdline").contains("try-import") && its("maps").contains("libvulkan") {
            signal_to(&trial, "STOP");
            if its("status").contains("State:\tT") {
                return trial;
            }
        }
        // The trial ended before it could be stopped, so start another.
        if let Received::Packet(packet, _) = client.connection.receive() {
            if let Ok(FromServer::Imported { id, .. }) = serde_json::from_slice(&packet) {
                client.say(&FromClient::Release { id });
            }
            chunks.send(client);
        }
    }
}

/// Imports the chunks, and shows frame 0 from them. Returns their id.
fn show_first(owner: &Owner, client: &mut Client, chunks: &Chunks, renderer: &Renderer) -> u64 {
    chunks.write(&vec![0; CHUNK as usize], 0);
    let id = chunks.import(client, renderer);
    owner.show(client, 0, id, 0);
    id
}

fn answered_meanwhile(mut renderer: Renderer) {
    let (owner, mut client) = Owner::of(&renderer);
    let chunks = owner.chunks(&[CHUNK]);
    let first = show_first(&owner, &mut client, &chunks, &renderer);
    let trial = stopped_trial(&mut renderer, &client, &chunks);
    let paused = SettingsChange { paused: Some(true), ..SettingsChange::default() };
    client.say(&FromClient::Status);
    client.say(&FromClient::Set { parameters: paused, camera: None });
    chunks.send(&client);
    client.say(&FromClient::Allocate { bytes: 4096 });
    // Meanwhile the renderer draws from the first import.
    ten_frames(&owner, &client, 1, Some(first));
    assert_eq!(renderer.trials(), std::slice::from_ref(&trial), "it is still being tried");
    client.say(&FromClient::Snapshot { after: None, size: None });
    assert!(matches!(client.answer().0, FromServer::State(_)));
    assert!(
        matches!(client.answer().0, FromServer::Parameters { parameters, .. } if parameters.field.paused)
    );
    let FromServer::Failed { request, reason } = client.answer().0 else { panic!("two at a time") };
    assert!(request == "import" && reason.contains("wait for its answer"), "{reason}");
    assert!(matches!(client.answer(), (FromServer::Allocated { .. }, files) if files.len() == 1));
    assert!(matches!(client.answer().0, FromServer::Picture { .. }));
    assert_eq!(renderer.trials(), std::slice::from_ref(&trial), "it is still being tried");
    signal_to(&trial, "CONT");
    let FromServer::Imported { id, .. } = client.answer().0 else { panic!("{}", renderer.notes()) };
    assert!(id > first);
    owner.show(&mut client, 11, id, 0);
    drop(client);
    renderer.end().assert_fine();
}

/// Draws ten frames from its slots, or from `allocation`, while something is being tried.
fn ten_frames(owner: &Owner, client: &Client, first: u64, allocation: Option<u64>) {
    for frame in first..first + 10 {
        if frame > 0 {
            owner.wait_for_free(client, frame - 1);
        }
        if let Some(allocation) = allocation {
            client.say(&FromClient::Show { frame, allocation, offset: 0 });
        }
        owner.ready(client, frame + 1);
    }
    owner.wait_for_free(client, first + 9);
}

fn pictured(mut renderer: Renderer) {
    let (owner, mut client) = Owner::of(&renderer);
    let chunks = owner.chunks(&[CHUNK]);
    let first = show_first(&owner, &mut client, &chunks, &renderer);
    let trial = stopped_trial(&mut renderer, &client, &chunks);
    client.say(&FromClient::Snapshot { after: None, size: None });
    ten_frames(&owner, &client, 1, Some(first));
    let frame = client.seen().frame;
    assert!(frame < Some(11), "{frame:?} is in the picture");
    client.say(&FromClient::Snapshot { after: None, size: None });
    ten_frames(&owner, &client, 11, Some(first));
    assert!(client.seen().frame.is_some());
    assert_eq!(renderer.trials(), std::slice::from_ref(&trial), "it is still being tried");
    signal_to(&trial, "CONT");
    assert!(matches!(client.answer().0, FromServer::Imported { .. }), "{}", renderer.notes());
    client.say(&FromClient::Snapshot { after: None, size: None });
    assert_eq!(client.seen().frame, Some(20));
    drop(client);
    renderer.end().assert_fine();
}

fn many(mut renderer: Renderer) {
    let (owner, mut client) = Owner::of(&renderer);
    let trial = stopped_trial(&mut renderer, &client, &owner.chunks(&[CHUNK]));
    // As many at once as a socket holds.
    const ASKED: usize = 50;
    for round in 0..4 {
        for _ in 0..ASKED {
            client.say(&FromClient::Status);
        }
        ten_frames(&owner, &client, 10 * round, None);
        for _ in 0..ASKED {
            assert!(matches!(client.answer().0, FromServer::State(_)));
        }
    }
    assert_eq!(renderer.trials(), std::slice::from_ref(&trial), "it is still being tried");
    signal_to(&trial, "CONT");
    assert!(matches!(client.answer().0, FromServer::Imported { .. }), "{}", renderer.notes());
    drop(client);
    renderer.end().assert_fine();
}

/// To close a descriptor can take as long as whoever has the other end likes.
#[test]
fn a_descriptor_that_does_not_close_delays_no_answer() {
    let Some(renderer) = on_stand_in(&[]) else { return };
    let (_, mut client) = Owner::of(&renderer);
    let door = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = std::net::TcpStream::connect(door.local_addr().unwrap()).unwrap();
    // What is written and not taken lets `close` wait for five minutes.
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::from_secs(300))).unwrap();
    socket.set_nonblocking(true).unwrap();
    while (&socket).write(&[0; 65536]).is_ok() {}
    let chunks = Chunks::of_files(vec![(socket.into(), CHUNK)]);
    chunks.send(&client);
    // The trial takes longer than this, so the renderer's is the last to be closed; and if not, this one
    // waits.
    std::thread::spawn(move || drop(chunks.files));
    assert!(matches!(client.answer().0, FromServer::Failed { .. }));
    drop(client);
    renderer.end().assert_fine();
}

fn left(mut renderer: Renderer) {
    let descriptors = renderer.resources().0;
    // However many requests the client has left without an answer.
    for requests in [0, 1, 200] {
        let (owner, client) = Owner::of(&renderer);
        stopped_trial(&mut renderer, &client, &owner.chunks(&[CHUNK]));
        for _ in 0..requests {
            client.say(&match requests {
                1 => FromClient::Snapshot { after: None, size: None },
                _ => FromClient::Status,
            });
        }
        drop(client);
        // A real driver may keep descriptors open, so count them on the stand-in only.
        renderer.wait_for_rest(if renderer.stand_in.is_some() { descriptors } else { usize::MAX });
    }
    // The client's end ended the trial, not the trial's own time limit.
    assert!(!renderer.notes().contains("import failed"), "{}", renderer.notes());
    // The end of the renderer also ends the trial.
    let (owner, client) = Owner::of(&renderer);
    let trial = stopped_trial(&mut renderer, &client, &owner.chunks(&[CHUNK]));
    signal(&renderer.child, "TERM");
    assert_eq!(renderer.child.wait().unwrap().code(), Some(0), "{}", renderer.notes());
    let until = Instant::now() + PATIENCE;
    while Path::new("/proc").join(&trial).exists() {
        assert!(Instant::now() < until, "process {trial} is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs `wavefield try-import` directly.
#[test]
fn a_trial_answers_by_its_exit_code() {
    let (device, other) = (format!("--device={}", first_uuid()), format!("--driver={}", "ab".repeat(16)));
    let attempt = |arguments: &[&str], input: Stdio| {
        wavefield().arg("try-import").args(arguments).stdin(input).output().unwrap()
    };
    common::assert_exit(&attempt(&[&device, &other, "--usage=1"], Stdio::null()), 2);
    common::assert_exit(&attempt(&["--device=seven", &other, "--usage=1", "--chunks=1"], Stdio::null()), 2);
    let output = attempt(&[&device, &other, "--usage=1", "--chunks=1"], Stdio::null());
    common::assert_exit(&output, 1);
    assert!(common::stderr(&output).contains("standard input"), "{}", common::stderr(&output));
    // The right device of another driver is not the renderer's.
    let (input, own) =
        net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let chunk = plain_file();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let chunks = [chunk.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&chunks)));
    net::sendmsg(&own, &[IoSlice::new(b"chunks")], &mut control, SendFlags::empty()).unwrap();
    let output = attempt(&[&device, &other, "--usage=1", "--chunks=1"], input.into());
    common::assert_exit(&output, 1);
    let text = common::stderr(&output);
    assert!(text.contains(&first_uuid()) && text.contains("the driver abababab"), "{text}");
    let output = attempt(&[&device, &other, "--usage=1", "--chunks=1", "--parent=1"], Stdio::null());
    common::assert_exit(&output, 1);
    assert!(common::stderr(&output).contains("process 1, for which"), "{}", common::stderr(&output));
    assert!(!common::stdout(&common::run(&["--help"])).contains("try-import"));
}
