//! `wavefield serve` with clients that behave, and with clients that do not.
//!
//! Most tests use memory `host`, which needs no CUDA. A client that the test kills runs in its own process: this program, started
//! again with `CLIENT` set.

#![cfg(target_os = "linux")]

mod common;
#[allow(dead_code)]
#[path = "../examples/client.rs"]
mod example;
#[path = "common/renderer.rs"]
mod renderer;
#[path = "common/stand_in.rs"]
mod stand_in;

use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{assert_same_picture, process, wavefield};
use example::client::{Arguments, Memory, connect, run};
use renderer::{Client, Ended, PATIENCE, Renderer, own_picture, signal, validated};
use stand_in::{ALL, StandIn, first_uuid};
use wavefield::serve::protocol::{
    CameraPlace, ErrorCode, FromClient, FromServer, MAX_MESSAGE, Tagged, Wishes,
};
use wavefield::serve::socket::{Connection, Received};
use wavefield::wave::Grid;

#[test]
fn what_a_client_writes_is_what_is_shown() {
    let renderer = Renderer::start(validated());
    let own = own_picture(renderer.folder.path(), "16x16");
    let mut client = renderer.client(Memory::Host);
    assert_eq!(client.state().frame_shown, None);
    let flat = vec![0; client.wave(0.0).len()];
    for frame in 0..20 {
        client.frame(frame, &flat);
    }
    let still = client.wave(0.0);
    client.frame(20, &still);
    client.wait_for(20);
    let path = renderer.folder.path().join("got.png");
    client.picture(&path);
    assert_same_picture(&path, &own, common::SAME_PICTURE);
    let state = client.state();
    assert_eq!((state.frame_shown, state.ready, state.free), (Some(20), 21, 21));
    assert_eq!(state.producer, "client, host");
    client.say(&FromClient::Bye);
    let ended = renderer.end();
    ended.assert_fine();
    assert_eq!(ended.clients()[0]["frames"], 21, "no frame is skipped");
}

#[test]
fn an_allocation_is_shown_at_its_offset() {
    let more = [validated(), &["--ring=2"]].concat();
    let renderer = Renderer::start(&more);
    let own = own_picture(renderer.folder.path(), "16x16");
    let mut client = renderer.client(Memory::Host);
    let (still, offset) = (client.wave(0.0), client.welcome.offset_alignment * 3);
    let flat = vec![0; still.len()];
    client.say(&FromClient::Allocate { bytes: still.len() as u64 + offset });
    let (FromServer::Allocated { id, .. }, files) = client.answer() else { panic!("no memory") };
    rustix::io::pwrite(&files[0], &still, offset).unwrap();
    client.frame(0, &flat);
    client.say(&FromClient::Show { frame: 1, allocation: id, offset });
    client.frame(1, &flat);
    client.wait_for(1);
    client.say(&FromClient::Release { id });
    let path = renderer.folder.path().join("got.png");
    client.picture(&path);
    assert_same_picture(&path, &own, common::SAME_PICTURE);
    client.frame(2, &flat);
    client.wait_for(2);
    // Too large a request is refused with a reason, and the connection stays open.
    client.say(&FromClient::Allocate { bytes: 1 << 60 });
    let (FromServer::Failed { request, .. }, _) = client.answer() else { panic!("no refusal") };
    assert_eq!(request, "allocate");
    assert_eq!(client.state().frame_shown, Some(2));
    // After the release, the id is invalid.
    client.say(&FromClient::Show { frame: 3, allocation: id, offset: 0 });
    assert_eq!(client.error(), ErrorCode::Value);
    renderer.end().assert_fine();
}

/// The renderer's own frames are checked before and after the client's. In between, a frame of the client is drawn many times.
#[test]
fn a_client_that_stamps_its_frames_is_found_clean() {
    let renderer = Renderer::start(&[validated(), &["--verify", "--ring=2"]].concat());
    let mut client = renderer.client(Memory::Host);
    // The renderer's own frames come first.
    let own = client.state().frames_drawn;
    while client.state().frames_drawn < own + 5 {}
    for frame in 0..20 {
        let bytes = client.stamped(frame);
        client.frame(frame, &bytes);
    }
    // A frame from an allocation, not at its start.
    let (bytes, offset) = (client.stamped(20), client.welcome.offset_alignment);
    client.say(&FromClient::Allocate { bytes: bytes.len() as u64 + offset });
    let (FromServer::Allocated { id, .. }, files) = client.answer() else { panic!("no memory") };
    rustix::io::pwrite(&files[0], &bytes, offset).unwrap();
    client.say(&FromClient::Show { frame: 20, allocation: id, offset });
    client.frame(20, &bytes);
    client.wait_for(20);
    let shown = client.state().frames_drawn;
    while client.state().frames_drawn < shown + 5 {}
    client.say(&FromClient::Bye);
    drop(client);
    // The frames of another client start at 0 again. The renderer's own frames come in between.
    let mut client = renderer.client(Memory::Host);
    let bytes = client.stamped(0);
    client.frame(0, &bytes);
    client.wait_for(0);
    drop(client);
    let ended = renderer.end();
    ended.assert_fine();
    let verify = &ended.report["verify"];
    assert_eq!((&verify["wrong_frames"], &verify["unchecked_frames"]), (&0.into(), &0.into()), "{verify}");
    let frames = verify["frames"].as_u64().unwrap();
    assert!(frames >= 32, "{verify}");
    assert_eq!(ended.counted("checked"), frames * 16 * 16);
}

/// Runs a renderer with `--verify` that must find wrong data.
fn verified(write: impl FnOnce(&Renderer, &mut Client)) -> Ended {
    // After its first frame, only the client's frames are drawn, and each as rarely as possible.
    let renderer = Renderer::start(&["--verify", "--ring=2", "--pace=1"]);
    let mut client = renderer.client(Memory::Host);
    write(&renderer, &mut client);
    let ended = renderer.end();
    assert_eq!(ended.code, Some(1), "{}", ended.notes);
    assert!(ended.notes.contains("the check found wrong data"), "{}", ended.notes);
    ended
}

#[test]
fn a_wrong_stamp_is_found() {
    let ended = verified(|_, client| {
        for frame in 0..3 {
            // Frame 1 has the stamp of frame 0.
            let mut bytes = client.stamped(frame);
            if frame == 1 {
                bytes = client.stamped(0);
            }
            client.frame(frame, &bytes);
        }
        client.wait_for(2);
    });
    assert!(ended.counted("stale") >= 16 * 16, "{}", ended.report);
    assert_eq!(ended.counted("stale") % (16 * 16), 0);
    assert_eq!((ended.counted("overwritten"), ended.counted("missing")), (0, 0));
    assert_eq!(ended.report["verify"]["first_wrong_frame"], 1);
}

#[test]
fn vertices_that_a_client_leaves_out_are_missing() {
    let ended = verified(|_, client| {
        let bytes = client.stamped(0);
        client.frame(0, &bytes[..bytes.len() - 5 * 16]);
        client.wait_for(0);
    });
    let missing = ended.counted("missing");
    assert!(missing >= 5 && missing.is_multiple_of(5), "{}", ended.report);
    assert_eq!(ended.report["verify"]["torn_frames"], ended.report["verify"]["wrong_frames"]);
}

#[test]
fn what_a_client_writes_after_ready_is_found() {
    let ended = verified(|renderer, client| {
        let bytes = client.stamped(0);
        client.frame(0, &bytes);
        client.wait_for(0);
        // Stop the renderer, so that it cannot copy the frame before it is overwritten.
        signal(&renderer.child, "STOP");
        let bytes = client.stamped(1);
        client.frame(1, &bytes);
        let late = client.stamped(3);
        client.write(1, &late[..7 * 16]);
        signal(&renderer.child, "CONT");
        client.wait_for(1);
    });
    let overwritten = ended.counted("overwritten");
    assert!(overwritten >= 7 && overwritten.is_multiple_of(7), "{}", ended.report);
    assert_eq!(ended.report["verify"]["first_wrong_frame"], 1);
}

#[test]
fn parameters_are_set_and_told() {
    let renderer = Renderer::start(&["--speed=2"]);
    let mut client = renderer.client(Memory::Host);
    assert_eq!(client.welcome.parameters.field.speed, 2.0);
    let parameters =
        Wishes { speed: Some(-0.5), colormap: Some("magma".into()), paused: Some(true), ..Wishes::default() };
    client.say(&FromClient::Set { parameters, kernel: BTreeMap::new(), camera: None });
    let (FromServer::Parameters { parameters, .. }, _) = client.answer() else { panic!("no parameters") };
    assert_eq!((parameters.field.speed, parameters.field.paused), (-0.5, true));
    let parameters = Wishes { colormap: Some("jet".into()), ..Wishes::default() };
    client.say(&FromClient::Set { parameters, kernel: BTreeMap::new(), camera: None });
    let (FromServer::Failed { reason, .. }, _) = client.answer() else { panic!("no refusal") };
    assert!(reason.contains("viridis"), "{reason}");
    renderer.end().assert_fine();
}

#[test]
fn a_second_client_is_told_so_and_its_turn_comes() {
    let renderer = Renderer::start(&[]);
    let first = renderer.client(Memory::Host);
    let error = connect(&renderer.arguments(Memory::Host)).err().unwrap().to_string();
    assert!(error.contains("draws") && error.contains("the Rust example"), "{error}");
    drop(first);
    drop(renderer.client(Memory::Host));
    renderer.end().assert_fine();
}

#[test]
fn a_second_renderer_is_refused_and_a_killed_ones_socket_replaced() {
    let mut renderer = Renderer::start(&[]);
    let again = || {
        let mut command = wavefield();
        command.args(["serve", "--headless", "--frames=2", "--grid=2x2", "--size=16x16", "--socket"]);
        command.arg(renderer.socket()).output().unwrap()
    };
    let output = again();
    common::assert_exit(&output, 1);
    assert!(
        common::stderr(&output).contains("another renderer listens there"),
        "{}",
        common::stderr(&output)
    );
    renderer.child.kill().unwrap();
    renderer.child.wait().unwrap();
    assert!(renderer.socket().exists());
    let mut command = wavefield();
    command.args(["serve", "--headless", "--frames=2", "--grid=2x2", "--size=16x16", "--socket"]);
    common::assert_exit(&command.arg(renderer.socket()).output().unwrap(), 0);
    assert!(!renderer.socket().exists());
}

#[test]
fn a_scene_that_no_client_can_fill_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["serve", "--headless", "--scene=texture", "--socket"];
    let output = wavefield().args(arguments).arg(folder.path().join("socket")).output().unwrap();
    common::assert_exit(&output, 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--scene texture"), "{output:?}");
}

#[test]
fn memory_that_cannot_be_had_is_refused_in_words() {
    let renderer = Renderer::start(&[]);
    match connect(&renderer.arguments(Memory::Cuda)) {
        Ok((_, welcome, descriptors)) => {
            assert_eq!(
                descriptors.len(),
                welcome.ring as usize + 2,
                "a descriptor for each slot and two semaphores"
            );
        }
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains("ask for memory `host`"), "{error}");
        }
    }
    renderer.end().assert_fine();
}

/// Each of these packets ends the connection with a reason. The next client finds everything as before.
#[test]
fn rubbish_and_lies_cost_the_client_its_place_and_nobody_else_anything() {
    let renderer = Renderer::start(&[]);
    let json = |text: &str| text.as_bytes().to_vec();
    let cases = [
        (json("rubbish"), ErrorCode::Message),
        (json("{}"), ErrorCode::Message),
        (vec![0xff; 300], ErrorCode::Message),
        (vec![b' '; MAX_MESSAGE + 1], ErrorCode::Message),
        (json(r#"{"type": "ready", "frame": 0"#), ErrorCode::Message),
        (json(r#"{"type": "kernel", "entry": "wave", "bytes": 10}"#), ErrorCode::Message),
        (json(r#"{"type": "hello", "protocol": 2, "client": "x", "memory": "host"}"#), ErrorCode::Order),
        (json(r#"{"type": "ready", "frame": 1}"#), ErrorCode::Value),
        (json(r#"{"type": "ready", "frame": 18446744073709551615}"#), ErrorCode::Value),
        (json(r#"{"type": "show", "frame": 0, "allocation": 1, "offset": 0}"#), ErrorCode::Value),
        (json(r#"{"type": "release", "id": 1}"#), ErrorCode::Value),
    ];
    for (packet, want) in cases {
        let mut client = renderer.client(Memory::Host);
        client.frame(0, &vec![0; client.wave(0.0).len()]);
        client.wait_for(0);
        let before = client.state();
        client.connection.send_bytes(&packet, &[]).unwrap();
        let packet = String::from_utf8_lossy(&packet[..packet.len().min(80)]).into_owned();
        // Frame 1 may be ready, because frame 0 was. This case tests a gap.
        if packet.contains("\"ready\", \"frame\": 1}") {
            client.say(&FromClient::Ready { frame: 3 });
        }
        assert_eq!((before.frame_shown, client.error()), (Some(0), want), "{packet}");
    }
    // A message with a descriptor that it should not have.
    let mut client = renderer.client(Memory::Host);
    let file = client.descriptors[0].try_clone().unwrap();
    client.connection.send(&FromClient::Status, &[file.as_fd()]).unwrap();
    assert_eq!(client.error(), ErrorCode::Message);
    let ended = renderer.end();
    ended.assert_fine();
    assert_eq!(ended.clients().len(), 12);
}

#[test]
fn a_client_that_does_not_read_is_dropped() {
    let renderer = Renderer::start(&[]);
    let client = renderer.client(Memory::Host);
    let until = Instant::now() + PATIENCE;
    while client.connection.send(&FromClient::Status, &[]).is_ok()
        || !renderer.notes().contains("does not read")
    {
        assert!(Instant::now() < until, "{}", renderer.notes());
    }
    let mut next = renderer.client(Memory::Host);
    assert_eq!(next.state().frame_shown, None);
    renderer.end().assert_fine();
}

/// Closing a socket can take as long as the other end likes. One thread closes what clients send, and what waits for it is
/// bounded.
#[test]
fn a_descriptor_that_does_not_close_keeps_nobody_waiting() {
    let mut renderer = Renderer::start(&[]);
    let (descriptors, _) = renderer.resources();
    let mut client = renderer.client(Memory::Host);
    let door = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for _ in 0..2 {
        let socket = std::net::TcpStream::connect(door.local_addr().unwrap()).unwrap();
        // Data that nobody has read makes `close` wait for five minutes.
        rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::from_secs(300))).unwrap();
        socket.set_nonblocking(true).unwrap();
        while (&socket).write(&[0; 65536]).is_ok() {}
        let kernel = FromClient::Kernel { entry: "wave".into(), bytes: 10 };
        client.connection.send(&kernel, &[socket.as_fd()]).unwrap();
        // A descriptor in transit counts as open, so the renderer closes the last one. Otherwise this thread waits.
        std::thread::spawn(move || drop(socket));
    }
    for _ in 0..2 {
        assert!(matches!(client.answer().0, FromServer::Failed { .. }));
    }
    let before = client.state();
    while client.state().frames_drawn < before.frames_drawn + 10 {}
    assert!(renderer.is_alive());
    let tasks = std::fs::read_dir(format!("/proc/{}/task", renderer.child.id())).unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    assert_eq!(names.filter(|name| name.trim() == "closing").count(), 1);
    // The others wait behind the two, until there are too many.
    let file = rustix::fs::memfd_create("kernel", rustix::fs::MemfdFlags::empty()).unwrap();
    let kernel = FromClient::Kernel { entry: String::new(), bytes: 10 };
    let mut sent = 0;
    loop {
        client.connection.send(&kernel, &[file.as_fd()]).unwrap();
        match client.answer().0 {
            FromServer::Failed { .. } => sent += 1,
            FromServer::Error { code, reason } => {
                assert_eq!(code, ErrorCode::Stuck, "{reason}");
                assert!(reason.contains("take long to close"), "{reason}");
                break;
            }
            other => panic!("{other:?}"),
        }
        assert!(sent < 1000, "the renderer takes any number");
    }
    drop(client);
    let until = Instant::now() + PATIENCE;
    let newcomer = Connection::connect(&renderer.socket()).unwrap();
    while !renderer.notes().contains("a client cannot be let in: 256 descriptors") {
        assert!(Instant::now() < until, "{}", renderer.notes());
        std::thread::sleep(Duration::from_millis(10));
    }
    // The other ends are gone, so all can be closed.
    drop((door, newcomer));
    let mut next = renderer.client(Memory::Host);
    assert_eq!(next.state().frame_shown, None);
    drop(next);
    renderer.wait_for_rest(descriptors);
    renderer.end().assert_fine();
}

/// Each picture takes memory until it is read.
#[test]
fn pictures_that_nobody_reads_do_not_pile_up() {
    let mut renderer = Renderer::start(&["--pace=0"]);
    let mut client = renderer.client(Memory::Host);
    const ASKED: usize = 150;
    for _ in 0..ASKED {
        client.say(&FromClient::Snapshot { after: None });
    }
    // Time to draw far more frames: each waits for the GPU at least once.
    let before = process::waits(renderer.child.id());
    process::wait_for(&mut renderer.child, "more frames", |renderer| {
        process::waits(renderer) > before + 1000
    });
    signal(&renderer.child, "STOP");
    let mut pictures = 0;
    while let Received::Packet(packet, _) = client.connection.receive() {
        assert!(matches!(serde_json::from_slice(&packet).unwrap(), FromServer::Picture { .. }));
        pictures += 1;
    }
    signal(&renderer.child, "CONT");
    assert!((1..=60).contains(&pictures), "{pictures} pictures were waiting");
    // The others follow as the client reads.
    for _ in pictures..ASKED {
        assert!(matches!(client.answer().0, FromServer::Picture { .. }));
    }
    drop(client);
    renderer.end().assert_fine();
}

#[test]
fn a_hundred_connections_leave_room_for_a_client() {
    let renderer = Renderer::start(&[]);
    let (descriptors, _) = renderer.resources();
    let mut crowd = Vec::new();
    for number in 0..100 {
        let Ok(connection) = Connection::connect(&renderer.socket()) else { continue };
        if number % 2 == 0 {
            let _ = connection.send_bytes(b"{\"type\": \"hello\"", &[]);
        }
        crowd.push(connection);
    }
    let mut client = renderer.client(Memory::Host);
    let before = client.state().frames_drawn;
    client.frame(0, &vec![0; client.wave(0.0).len()]);
    client.wait_for(0);
    assert!(client.state().frames_drawn > before);
    drop((crowd, client));
    let until = Instant::now() + PATIENCE;
    while renderer.resources().0 > descriptors {
        assert!(Instant::now() < until, "{} descriptors, {descriptors} before", renderer.resources().0);
        std::thread::sleep(Duration::from_millis(50));
    }
    renderer.end().assert_fine();
}

/// Runs a client if [`client_process`] started this program. As an ordinary test it does nothing.
#[test]
fn client_in_a_process_of_its_own() {
    let (Ok(socket), Ok(memory)) = (std::env::var("CLIENT"), std::env::var("CLIENT_MEMORY")) else { return };
    let memory = if memory == "cuda" { Memory::Cuda } else { Memory::Host };
    let frames = std::env::var("CLIENT_FRAMES").map_or(u64::MAX / 4, |frames| frames.parse().unwrap());
    let kernel = std::env::var("CLIENT_KERNEL").ok();
    let array = std::env::var("CLIENT_ARRAY").unwrap_or_default();
    let grid = (!array.is_empty()).then_some(Grid { cols: 40, rows: 24 });
    let (socket, image) = (Some(socket.into()), array == "image");
    let arguments = Arguments { socket, memory, frames, kernel, grid, image, ..Arguments::default() };
    if let Err(error) = run(&arguments) {
        panic!("{error:#}");
    }
}

/// Starts a client in its own process. `array` is empty for the renderer's grid, or `mesh` or `image` for an array of its own.
fn client_process(renderer: &Renderer, memory: Memory, array: &str, frames: Option<u64>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "client_in_a_process_of_its_own", "--nocapture"])
        .env("CLIENT", renderer.socket())
        .env("CLIENT_ARRAY", array)
        .env("CLIENT_MEMORY", if memory == Memory::Cuda { "cuda" } else { "host" })
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some(frames) = frames {
        command.env("CLIENT_FRAMES", frames.to_string());
    }
    command.spawn().unwrap()
}

/// The number of clients to kill. `WAVEFIELD_KILLS` overrides it.
fn kills() -> u64 {
    std::env::var("WAVEFIELD_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(25)
}

/// Waits until the renderer's notes contain `what` this many times.
fn wait_for_notes(renderer: &mut Renderer, what: &str, count: usize) {
    let until = Instant::now() + PATIENCE;
    while renderer.notes().matches(what).count() < count {
        assert!(renderer.is_alive(), "{}", renderer.notes());
        assert!(Instant::now() < until, "no `{what}`: {}", renderer.notes());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Kills one client after another, each at a different moment: before its hello, in its first frames or later.
fn killed_clients(memory: Memory, more: &[&str]) {
    let mut renderer = Renderer::start(more);
    let mut resources = Vec::new();
    for round in 0..kills() {
        let arrays = if memory == Memory::Host { &["", "mesh", "image"][..] } else { &["", "mesh"] };
        let array = arrays[round as usize % arrays.len()];
        let mut child = client_process(&renderer, memory, array, None);
        // The moments spread over the first 200 ms in a pseudo-random order. CUDA takes about 200 ms to start, so with CUDA they
        // spread over 1.5 s.
        let range = if memory == Memory::Cuda { 1_500_000 } else { 200_000 };
        let moment = Duration::from_micros(round.wrapping_mul(2_654_435_761) % range);
        std::thread::sleep(moment);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(renderer.is_alive(), "round {round}: {}", renderer.notes());
        resources.push(renderer.resources());
    }
    // The next client finds everything as if it were the first.
    let mut next = client_process(&renderer, memory, "", Some(50));
    assert!(next.wait().unwrap().success(), "{}", renderer.notes());
    wait_for_notes(&mut renderer, "said goodbye", 1);
    let (early, late) = (resources[resources.len() / 4], resources[resources.len() - 1]);
    let ended = renderer.end();
    ended.assert_fine();
    // A client that is still leaving has some descriptors open.
    assert!(late.0 <= early.0 + 16, "descriptors: {early:?} to {late:?}");
    assert!(late.1 <= early.1 + early.1 / 4 + 32 * 1024, "memory in KiB: {early:?} to {late:?}");
    // The first stretch includes the renderer's start.
    let stretches = ended.report["stretches"].as_array().into_iter().flatten().skip(1);
    let latest = stretches.filter_map(|stretch| stretch["late_us"].as_u64()).max();
    let drew = ended.clients().iter().filter(|client| client["frames"].as_u64() > Some(0)).count();
    println!(
        "{} clients killed, {drew} of them while they drew: late by {latest:?} µs at most; descriptors and KiB {early:?} to {late:?}",
        kills()
    );
    assert!(drew > 1, "no client was killed while it drew");
}

#[test]
fn clients_that_are_killed_cost_nothing() {
    killed_clients(Memory::Host, &[]);
}

/// Stops a client in the middle of its work and continues it later.
fn stopped_client(memory: Memory, seconds: u64) {
    let mut renderer = Renderer::start(&[]);
    let mut child = client_process(&renderer, memory, "mesh", None);
    wait_for_notes(&mut renderer, " draws, with memory", 1);
    // A client waits for the renderer at least once a frame.
    let more_frames = |child: &mut Child| {
        let before = process::waits(child.id());
        process::wait_for(child, "more frames", |client| process::waits(client) > before + 20);
    };
    more_frames(&mut child);
    signal(&child, "STOP");
    // That long without a frame is what this is about.
    std::thread::sleep(Duration::from_secs(seconds));
    assert!(renderer.is_alive(), "{}", renderer.notes());
    signal(&child, "CONT");
    more_frames(&mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    drop(renderer.client(Memory::Host));
    let ended = renderer.end();
    ended.assert_fine();
    let client = ended.clients()[0];
    let (draws, frames) = (client["draws"].as_u64().unwrap(), client["frames"].as_u64().unwrap());
    // Even a slow software device draws a few times in each second of the stop.
    assert!(draws >= frames + seconds * 2, "{draws} draws, {frames} frames: {client}");
    println!("stopped for {seconds} s: {draws} draws, late by {} µs at most", client["late_us"]);
}

#[test]
fn a_client_that_stops_leaves_its_last_frame_on_show() {
    stopped_client(Memory::Host, 2);
}

fn send_kernel(client: &Client, text: &[u8], entry: &str) {
    let file = rustix::fs::memfd_create("kernel", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    assert_eq!(rustix::io::pwrite(&file, text, 0), Ok(text.len()));
    let kernel = FromClient::Kernel { entry: entry.into(), bytes: text.len() as u64 };
    client.connection.send(&kernel, &[file.as_fd()]).unwrap();
}

fn set_camera(client: &mut Client, camera: CameraPlace) {
    let (parameters, kernel) = (Wishes::default(), BTreeMap::new());
    client.say(&FromClient::Set { parameters, kernel, camera: Some(camera) });
    assert!(matches!(client.answer().0, FromServer::Parameters { .. }));
}

/// The answer to a kernel: the reason of its failure, or `None` if it runs.
fn verdict(client: &mut Client) -> Option<String> {
    match client.answer().0 {
        FromServer::Failed { request, reason } if request == "kernel" => Some(reason),
        FromServer::Running { .. } => None,
        other => panic!("{other:?}"),
    }
}

/// The reason of a kernel's failure. Panics if the kernel runs.
fn failed(client: &mut Client, renderer: &Renderer) -> String {
    verdict(client).unwrap_or_else(|| panic!("it runs: {}", renderer.notes()))
}

/// Each answer has the id of its request. While a kernel draws, a request for the picture of a later frame fails.
#[test]
fn a_kernel_is_answered_by_its_id_and_ends_the_wait_for_a_frame() {
    let Some(renderer) = stand_in_renderer(&[]) else { return };
    let mut client = renderer.client(Memory::Host);
    let send = |client: &Client, text: &[u8], entry: &str, id| {
        let file = rustix::fs::memfd_create("kernel", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        assert_eq!(rustix::io::pwrite(&file, text, 0), Ok(text.len()));
        let message = FromClient::Kernel { entry: entry.into(), bytes: text.len() as u64 };
        let message = Tagged { message: &message, request_id: Some(id) };
        client.connection.send(&message, &[file.as_fd()]).unwrap();
    };
    let answer = |client: &Client| match client.connection.receive_within(PATIENCE) {
        Received::Packet(packet, _) => {
            let message: serde_json::Value = serde_json::from_slice(&packet).unwrap();
            (message["type"].as_str().unwrap().to_owned(), message["request_id"].as_u64())
        }
        other => panic!("{other:?}"),
    };
    let wants = |kind: &str, id| (kind.to_owned(), Some(id));
    send(&client, include_bytes!("../kernels/test/broken.ptx"), "broken", 1);
    assert_eq!(answer(&client), wants("failed", 1));
    client.ask(&FromClient::Snapshot { after: Some(9) }, 2);
    send(&client, include_bytes!("../kernels/test/bounded.ptx"), "flat", 3);
    assert_eq!(answer(&client), wants("failed", 2), "no frame 9 will be drawn");
    assert_eq!(answer(&client), wants("running", 3));
    client.ask(&FromClient::Snapshot { after: Some(9) }, 4);
    assert_eq!(answer(&client), wants("failed", 4));
    client.say(&FromClient::Snapshot { after: None });
    assert_eq!(client.seen().frame, None, "a kernel draws");
    renderer.end().assert_fine();
}

/// Starts a renderer on the stand-in for a GPU.
fn stand_in_renderer(more: &[&str]) -> Option<Renderer> {
    let stand_in = StandIn::new()?;
    let mut command = stand_in.command(&ALL);
    // The process that tries kernels does not use Vulkan, from which the stand-in usually takes its UUID.
    command.env("STAND_IN_UUID", first_uuid());
    let mut renderer = Renderer::start_as(command, more);
    renderer.stand_in = Some(stand_in);
    Some(renderer)
}

#[test]
fn a_kernel_runs_or_fails_in_words() {
    kernels_run_or_fail_in_words(Renderer::start(&[]));
}

#[test]
fn a_kernel_runs_or_fails_in_words_on_the_stand_in() {
    if let Some(renderer) = stand_in_renderer(&[]) {
        kernels_run_or_fail_in_words(renderer);
    }
}

fn kernels_run_or_fail_in_words(renderer: Renderer) {
    let mut client = renderer.client(Memory::Host);
    send_kernel(&client, include_bytes!("../kernels/test/broken.ptx"), "broken");
    let reason = failed(&mut client, &renderer);
    if reason.contains("no CUDA") {
        assert!(renderer.stand_in.is_none(), "{reason}");
        common::skip_without_gpu(&reason);
        client.frame(0, &vec![0; client.wave(0.0).len()]);
        client.wait_for(0);
        return renderer.end().assert_fine();
    }
    assert!(reason.contains("cuModuleLoadDataEx") && reason.contains("CUDA_ERROR_INVALID_PTX"), "{reason}");
    send_kernel(&client, b"not PTX at all", "wave");
    assert!(failed(&mut client, &renderer).contains("PTX"));
    send_kernel(&client, include_bytes!("../../../kernels/wave.ptx"), "nothing");
    assert!(failed(&mut client, &renderer).contains("wave"));
    // A kernel with another signature is refused before any launch.
    send_kernel(&client, include_bytes!("../kernels/stamp.ptx"), "stamp");
    let reason = failed(&mut client, &renderer);
    assert!(reason.contains("expected (.u64, .u32, .u32, .u64, .f64)"), "{reason}");
    assert!(reason.contains("found (.u64)") && !reason.contains("tried in a process"), "{reason}");
    // This kernel takes smaller blocks than others.
    send_kernel(&client, include_bytes!("../kernels/test/bounded.ptx"), "flat");
    assert_eq!(verdict(&mut client), None, "it runs: {}", renderer.notes());
    let descriptors = renderer.resources().0;
    // A fault happens in its own process. The client gets the reason, and the last good kernel goes on undisturbed.
    send_kernel(&client, include_bytes!("../kernels/test/trap.ptx"), "trap_kernel");
    let reason = failed(&mut client, &renderer);
    assert!(reason.contains("tried in a process of its own") && reason.contains("CUDA_ERROR"), "{reason}");
    let before = client.state();
    assert!(before.producer.starts_with("cuda"), "{}", before.producer);
    while client.state().frames_drawn < before.frames_drawn + 10 {}
    renderer.wait_for_rest(descriptors);
    // Another kernel runs after that.
    send_kernel(&client, include_bytes!("../../../kernels/wave.ptx"), "wave");
    assert_eq!(verdict(&mut client), None, "it runs after the fault: {}", renderer.notes());
    client.say(&FromClient::Bye);
    drop(client);
    let mut next = renderer.client(Memory::Host);
    assert!(next.state().producer.starts_with("cuda"));
    drop(next);
    let ended = renderer.end();
    ended.assert_fine();
    assert!(!ended.notes.contains("CUDA does not come back"), "{}", ended.notes);
    let trials: Vec<_> = ended.notes.lines().filter(|line| line.contains("passed its trial")).collect();
    assert_eq!(trials.len(), 2, "{}", ended.notes);
    println!("{}", trials.join("\n"));
}

#[test]
fn what_a_kernel_prints_is_no_result_of_the_renderer() {
    what_a_kernel_prints(Renderer::start(&["--output=-"]));
}

#[test]
fn what_a_kernel_prints_is_no_result_of_the_renderer_on_the_stand_in() {
    if let Some(renderer) = stand_in_renderer(&["--output=-"]) {
        what_a_kernel_prints(renderer);
    }
}

/// A client's kernel runs in the renderer's process, and CUDA's driver writes what it prints to standard output.
fn what_a_kernel_prints(mut renderer: Renderer) {
    let mut client = renderer.client(Memory::Host);
    send_kernel(&client, include_bytes!("../kernels/test/prints.ptx"), "prints");
    if let Some(reason) = verdict(&mut client) {
        assert!(reason.contains("no CUDA") && renderer.stand_in.is_none(), "{reason}");
        return common::skip_without_gpu(&reason);
    }
    drop(client);
    signal(&renderer.child, "TERM");
    assert_eq!(renderer.child.wait().unwrap().code(), Some(0), "{}", renderer.notes());
    assert!(renderer.notes().contains("from the kernel"), "{}", renderer.notes());
    let output = std::fs::read(renderer.folder.path().join("output")).unwrap();
    let printed = output.windows(15).any(|part| part == b"from the kernel");
    assert!(output.starts_with(b"\x89PNG") && !printed, "{}", String::from_utf8_lossy(&output));
    assert!(common::read_png(&renderer.folder.path().join("output")).is_ok());
}

/// The client gets a kernel's parameters with `running`, and sets them while the kernel runs.
#[test]
fn a_sent_kernel_s_parameters_are_set_while_it_runs() {
    let Some(stand_in) = StandIn::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let mut command = stand_in.command(&ALL);
    command.env("STAND_IN_UUID", first_uuid()).env("STAND_IN_REPORT", &report);
    let renderer = Renderer::start_as(command, &["--param=amplitude=1.5"]);
    let mut client = renderer.client(Memory::Host);
    let set = |client: &Client, values: &[(&str, f64)]| {
        let kernel = values.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        client.say(&FromClient::Set { parameters: Wishes::default(), kernel, camera: None });
    };
    let refused = |client: &mut Client| match client.answer().0 {
        FromServer::Failed { request, reason } if request == "set" => reason,
        other => panic!("{other:?}"),
    };
    while client.state().frames_drawn == 0 {}
    // The client's camera applies to its kernels, until the client leaves.
    let usual = client.state().camera;
    let camera = CameraPlace { distance: 5.0, ..usual };
    set_camera(&mut client, camera);
    set(&client, &[("height", 0.5)]);
    assert!(refused(&mut client).contains("no kernel of this client runs"));
    for round in 0..2 {
        send_kernel(&client, include_bytes!("../kernels/test/level.ptx"), "level");
        let (FromServer::Running { parameters, .. }, _) = client.answer() else { panic!("it does not run") };
        let text: Vec<_> = parameters.iter().map(|parameter| parameter.to_string()).collect();
        assert_eq!(text, ["height (-0.5 to 0.5, default 0.25)", "colour (0 to 1 of 1, default 0.5)"]);
        assert_eq!(client.state().camera, camera);
        for (values, problem) in [
            (&[("colour", 1.0), ("width", 1.0)][..], "no parameter `width`: it has height (-0.5 to 0.5"),
            (&[("height", 0.75)], "height cannot be 0.75"),
        ] {
            set(&client, values);
            let reason = refused(&mut client);
            assert!(reason.contains(problem) && reason.contains("`level` of"), "{reason}");
        }
        let height = if round == 0 { 0.5 } else { -0.5 };
        set(&client, &[("height", height)]);
        let (FromServer::Parameters { kernel, .. }, _) = client.answer() else { panic!("no parameters") };
        // The refused requests have changed nothing.
        assert_eq!(
            kernel.into_iter().collect::<Vec<_>>(),
            [("colour".into(), 0.5), ("height".into(), height as f32)]
        );
        let before = client.state().frames_drawn;
        while client.state().frames_drawn < before + 3 {}
    }
    // After a kernel without parameters, there are none to set.
    send_kernel(&client, include_bytes!("../kernels/test/bounded.ptx"), "flat");
    let (FromServer::Running { parameters, .. }, _) = client.answer() else { panic!("it does not run") };
    assert!(parameters.is_empty());
    set(&client, &[("height", 0.0)]);
    assert!(refused(&mut client).contains("it has none"));
    // The renderer's own wave is unchanged.
    drop(client);
    assert_eq!(renderer.client(Memory::Host).state().camera, usual);
    renderer.end().assert_fine();
    let report = std::fs::read_to_string(report).unwrap();
    let values: Vec<_> = report.lines().filter_map(|line| line.strip_prefix("values ")).collect();
    assert_eq!(values, ["1.5 1", "0.25 0.5", "0.5 0.5", "0.25 0.5", "-0.5 0.5", "1.5 1"], "{report}");
}

/// A kernel that passed its trial may still fault later. The renderer then loses CUDA, but goes on without it.
#[test]
fn a_kernel_that_faults_later_costs_cuda_and_no_more() {
    later_fault(Renderer::start(&[]));
}

#[test]
fn a_kernel_that_faults_later_costs_the_stand_in_and_no_more() {
    // lavapipe returns the times of one frame only when all submitted frames are done. After a fault, frames that wait for
    // CUDA are never done. With this hand-off, none waits.
    if let Some(renderer) = stand_in_renderer(&["--handoff=cpu-sync"]) {
        later_fault(renderer);
    }
}

fn later_fault(renderer: Renderer) {
    let mut client = renderer.client(Memory::Host);
    let usual = client.state().camera;
    let camera = CameraPlace { distance: 5.0, ..usual };
    set_camera(&mut client, camera);
    send_kernel(&client, include_bytes!("../kernels/test/late.ptx"), "late");
    if let Some(reason) = verdict(&mut client) {
        assert!(reason.contains("no CUDA") && renderer.stand_in.is_none(), "{reason}");
        return common::skip_without_gpu(&reason);
    }
    let reason = failed(&mut client, &renderer);
    assert!(reason.contains("late") && reason.contains("CUDA_ERROR_LAUNCH_FAILED"), "{reason}");
    let before = client.state();
    assert_eq!(before.camera, camera, "the camera stays for its next kernel");
    while client.state().frames_drawn < before.frames_drawn + 10 {}
    // A driver may recover CUDA. If it does not, the renderer says so, and refuses the next kernel with that reason.
    if renderer.notes().contains("CUDA does not come back") {
        assert_eq!(before.producer, "compute");
        send_kernel(&client, include_bytes!("../../../kernels/wave.ptx"), "wave");
        let reason = failed(&mut client, &renderer);
        assert!(reason.contains("did not come back after a kernel's fault"), "{reason}");
    } else {
        assert!(before.producer.starts_with("cuda"), "{}", before.producer);
        assert!(renderer.stand_in.is_none(), "the stand-in gives nothing back: {}", renderer.notes());
    }
    drop(client);
    assert_eq!(renderer.client(Memory::Host).state().camera, usual);
    // The renderer reports what a faulted context does not take back, but the exit code stays 0.
    renderer.end().assert_fine();
}

/// Vulkan waits for a signal that only the kernel's stream could give. The renderer must end.
#[test]
fn a_kernel_that_faults_later_ends_a_renderer_that_cannot_let_go() {
    // Half of the timeout is for the kernel's trial. On a busy machine, its process takes seconds to start.
    ends_with_its_kernel(&["--handoff=binary", "--timeout=10"]);
}

/// The kernel faults in Vulkan's command buffer. On a GPU, no process can draw after that.
#[test]
#[ignore = "it stops Vulkan on the whole GPU: scripts/gpu-check.sh runs it after everything else"]
fn a_kernel_that_faults_in_vulkans_command_buffer_ends_the_renderer() {
    ends_with_its_kernel(&["--handoff=inline", "--risk-the-gpu", "--timeout=10"]);
}

fn ends_with_its_kernel(more: &[&str]) {
    let mut renderer = Renderer::start(more);
    let mut client = renderer.client(Memory::Host);
    send_kernel(&client, include_bytes!("../kernels/test/late.ptx"), "late");
    if let Some(reason) = verdict(&mut client) {
        assert!(reason.contains("no CUDA"), "{reason}");
        return common::skip_without_gpu(&reason);
    }
    let until = Instant::now() + PATIENCE;
    while renderer.is_alive() {
        assert!(Instant::now() < until, "{more:?}: {}", renderer.notes());
        std::thread::sleep(Duration::from_millis(10));
    }
    let (code, notes) = (renderer.child.wait().unwrap().code(), renderer.notes());
    assert_eq!(code, Some(1), "{more:?}: {notes}");
    assert!(notes.contains("error: ") && !notes.contains("panicked"), "{more:?}: {notes}");
    println!("{more:?}: {notes}");
}

/// A trial cannot show what a kernel does later in Vulkan's command buffer. A fault there costs every process the GPU.
#[test]
fn a_client_s_kernel_is_not_put_into_vulkans_command_buffer_without_consent() {
    for (more, runs) in [(&["--handoff=inline"][..], false), (&["--handoff=inline", "--risk-the-gpu"], true)]
    {
        let Some(renderer) = stand_in_renderer(more) else { return };
        let mut client = renderer.client(Memory::Host);
        send_kernel(&client, include_bytes!("../kernels/test/flat.ptx"), "flat");
        let reason = verdict(&mut client);
        assert_eq!(reason.is_none(), runs, "{reason:?}: {}", renderer.notes());
        if let Some(reason) = reason {
            assert!(reason.contains("--risk-the-gpu") && reason.contains("GPU"), "{reason}");
        }
        assert!(client.state().producer.contains("inline"));
        drop(client);
        renderer.end().assert_fine();
    }
}

#[test]
fn cuda_clients_draw_through_exported_memory() {
    if !common::has_gpu() {
        return;
    }
    for more in [validated(), &["--trust"], &["--ring=8"], &["--producer=compute"]] {
        let renderer = Renderer::start(more);
        let own = own_picture(renderer.folder.path(), "16x16");
        // Draw one frame of the wave at time 0, and take its picture. With `--trust`, the GPU already waits for the next frame, so
        // there is no picture before that frame comes.
        if more != ["--trust"] {
            let path = renderer.folder.path().join("got.png");
            let client =
                Arguments { frames: 1, snapshot: Some(path.clone()), ..renderer.arguments(Memory::Cuda) };
            run(&client).unwrap();
            assert_same_picture(&path, &own, common::SAME_PICTURE);
        }
        let mut child = client_process(&renderer, Memory::Cuda, "", Some(2000));
        assert!(child.wait().unwrap().success(), "{}", renderer.notes());
        drop(renderer.client(Memory::Host));
        let ended = renderer.end();
        ended.assert_fine();
        let frames: Vec<_> = ended.clients().iter().map(|client| client["frames"].clone()).collect();
        println!("{more:?}: {}", ended.report);
        // With `--trust`, the renderer may be ahead of a client that has ended.
        if more.contains(&"--trust") {
            assert!(frames[0].as_u64() >= Some(2000), "{frames:?}");
        } else {
            assert_eq!(frames[..2], [1, 2000], "no frame is skipped");
        }
    }
}

/// The kernel ends with the process that tries it. The client gets the reason, and the renderer goes on.
#[test]
fn a_kernel_that_never_ends_is_refused_and_the_renderer_goes_on() {
    // Long enough for a good kernel on a GPU that is busy with other tests' faults.
    endless_kernel(Renderer::start(&["--timeout=8"]));
}

#[test]
fn a_kernel_that_never_ends_is_refused_on_the_stand_in() {
    if let Some(renderer) = stand_in_renderer(&["--timeout=8"]) {
        endless_kernel(renderer);
    }
}

fn endless_kernel(renderer: Renderer) {
    let mut client = renderer.client(Memory::Host);
    let descriptors = renderer.resources().0;
    send_kernel(&client, include_bytes!("../kernels/test/spin.ptx"), "spin");
    let reason = failed(&mut client, &renderer);
    if reason.contains("no CUDA") {
        assert!(renderer.stand_in.is_none(), "{reason}");
        return common::skip_without_gpu(&reason);
    }
    assert!(reason.contains("did not end within 4 s"), "{reason}");
    // The renderer still draws, and keeps nothing of the trial.
    let before = client.state();
    while client.state().frames_drawn < before.frames_drawn + 10 {}
    renderer.wait_for_rest(descriptors);
    // CUDA is untouched: a good kernel runs.
    send_kernel(&client, include_bytes!("../../../kernels/wave.ptx"), "wave");
    assert_eq!(verdict(&mut client), None, "{}", renderer.notes());
    assert!(client.state().producer.starts_with("cuda"));
    drop(client);
    renderer.end().assert_fine();
}

/// Sends a kernel that never ends, and waits until its trial has begun. Returns the id of the trial's process.
fn begin_endless_trial(renderer: &mut Renderer, client: &Client) -> String {
    send_kernel(client, include_bytes!("../kernels/test/spin.ptx"), "spin");
    let until = Instant::now() + PATIENCE;
    loop {
        assert!(renderer.is_alive() && Instant::now() < until, "{}", renderer.notes());
        if let [trial] = renderer.trials().as_slice() {
            return trial.clone();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether there is a process with that id. A zombie counts too.
fn exists(process: &str) -> bool {
    Path::new("/proc").join(process).exists()
}

fn wait_until_gone(process: &str) {
    let until = Instant::now() + PATIENCE;
    while exists(process) {
        assert!(Instant::now() < until, "process {process} is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_trial_inherits_nothing_and_ends_with_its_client() {
    // The renderer inherits this descriptor. The processes that it starts must not.
    let forgotten = rustix::fs::memfd_create("forgotten", rustix::fs::MemfdFlags::empty()).unwrap();
    let Some(mut renderer) = stand_in_renderer(&["--timeout=3600"]) else { return };
    drop(forgotten);
    let client = renderer.client(Memory::Host);
    let descriptors = renderer.resources().0;
    let open = |process: &str| -> Vec<String> {
        let links = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        links.filter_map(|link| Some(std::fs::read_link(link.path()).ok()?.display().to_string())).collect()
    };
    let trial = begin_endless_trial(&mut renderer, &client);
    // Wait until the trial has started CUDA and waits for the kernel.
    let until = Instant::now() + PATIENCE;
    let its = |what: &str| std::fs::read_to_string(format!("/proc/{trial}/{what}")).unwrap_or_default();
    // Before its `exec`, the process looks like the renderer, which has the same libraries.
    while !its("cmdline").contains("try-kernel") || !its("maps").contains("stand_in") {
        assert!(Instant::now() < until && renderer.is_alive(), "{}", renderer.notes());
        std::thread::sleep(Duration::from_millis(5));
    }
    let (own, its) = (open(&renderer.child.id().to_string()), open(&trial));
    for kind in ["forgotten", "socket:"] {
        assert!(own.iter().any(|link| link.contains(kind)), "{own:?}");
    }
    assert_eq!(its.len(), 3, "{its:?}");
    assert!(its[0].contains("wavefield-trial"), "{its:?}");
    assert!(its[1].starts_with("pipe:") && its[2].starts_with("pipe:"), "{its:?}");
    // When the client leaves, the trial of its kernel ends, long before the timeout of an hour.
    drop(client);
    wait_until_gone(&trial);
    renderer.wait_for_rest(descriptors);
    let mut next = renderer.client(Memory::Host);
    assert!(next.state().producer.starts_with("cuda"));
    drop(next);
    renderer.end().assert_fine();
}

#[test]
fn a_trial_ends_with_its_renderer() {
    for kill in [true, false] {
        let Some(mut renderer) = stand_in_renderer(&["--timeout=3600"]) else { return };
        let client = renderer.client(Memory::Host);
        let trial = begin_endless_trial(&mut renderer, &client);
        match kill {
            true => drop(renderer),
            false => renderer.end().assert_fine(),
        }
        wait_until_gone(&trial);
    }
}

/// The program's file may be replaced or deleted while a renderer runs.
#[test]
fn a_kernel_is_tried_although_the_program_was_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wavefield");
    let copied = Command::new("cp").arg(wavefield().get_program()).arg(&path).status().unwrap();
    assert!(copied.success());
    let Some(stand_in) = StandIn::new() else { return };
    let mut command = Command::new(&path);
    for (name, value) in stand_in.command(&ALL).get_envs() {
        command.env(name, value.unwrap());
    }
    command.env("STAND_IN_UUID", first_uuid());
    let renderer = Renderer::start_as(command, &[]);
    std::fs::remove_file(&path).unwrap();
    let mut client = renderer.client(Memory::Host);
    send_kernel(&client, include_bytes!("../../../kernels/wave.ptx"), "wave");
    assert_eq!(verdict(&mut client), None, "{}", renderer.notes());
    drop(client);
    renderer.end().assert_fine();
}

/// Runs `wavefield try-kernel` directly.
#[test]
fn a_trial_answers_by_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let attempt = |command: &mut Command, ptx: &str, more: &[&str]| {
        let path = folder.path().join("kernel.ptx");
        std::fs::write(&path, ptx).unwrap();
        let input = std::fs::File::open(&path).unwrap();
        command.arg("try-kernel").args(more).stdin(input).output().unwrap()
    };
    let device = format!("--device={}", first_uuid());
    let nobody = "--device=00000000-0000-0000-0000-000000000009";
    let wave = include_str!("../../../kernels/wave.ptx");
    // Wrong usage, an unknown device and a missing CUDA give the same result on every machine.
    for wrong in [
        &[nobody, "--grid=16x16"][..],
        &["--device=seven", "--grid=16x16", "--entry=wave"],
        &[nobody, "--grid=1x1", "--entry=wave"],
    ] {
        common::assert_exit(&attempt(&mut wavefield(), wave, wrong), 2);
    }
    let output = attempt(&mut wavefield(), wave, &[nobody, "--grid=16x16", "--entry=wave"]);
    common::assert_exit(&output, 1);
    assert!(common::stderr(&output).contains("CUDA"), "{}", common::stderr(&output));
    // Process 1 did not start this one.
    let output = attempt(&mut wavefield(), wave, &[&device, "--grid=16x16", "--entry=wave", "--parent=1"]);
    common::assert_exit(&output, 1);
    assert!(common::stderr(&output).contains("process 1, for which"), "{}", common::stderr(&output));
    assert!(!common::stdout(&common::run(&["--help"])).contains("try-kernel"));

    let Some(stand_in) = StandIn::new() else { return };
    let trap = include_str!("../kernels/test/trap.ptx");
    let illegal = include_str!("../kernels/test/illegal.ptx");
    for (ptx, entry, code, words) in [
        (wave, "wave", 0, ""),
        (wave, "other", 1, "cuModuleGetFunction"),
        ("not PTX at all", "wave", 1, "CUDA_ERROR_INVALID_PTX"),
        ("", "wave", 1, "CUDA_ERROR_INVALID_PTX"),
        (trap, "trap_kernel", 1, "(CUDA_ERROR_LAUNCH_FAILED, 719)"),
        (illegal, "illegal", 1, "(CUDA_ERROR_ILLEGAL_ADDRESS, 700)"),
    ] {
        let report = folder.path().join("report");
        let mut command = stand_in.command(&ALL);
        command.env("STAND_IN_UUID", first_uuid()).env("STAND_IN_REPORT", &report);
        let entry = format!("--entry={entry}");
        let output = attempt(&mut command, ptx, &[&device, "--grid=16x16", &entry]);
        common::assert_exit(&output, code);
        assert!(common::stderr(&output).contains(words), "{entry}: {}", common::stderr(&output));
        if code == 0 {
            assert_eq!(common::stdout(&output), "wavefield try-kernel: launched\n");
            let report = std::fs::read_to_string(report).unwrap();
            assert!(report.ends_with("end\n") && report.contains("call cuLaunchKernel 1"), "{report}");
            assert!(!report.contains("left") && !report.contains("offence"), "{report}");
        }
    }
}

#[test]
fn cuda_clients_that_are_killed_cost_nothing() {
    if common::has_gpu() {
        killed_clients(Memory::Cuda, &["--grid=512x512"]);
        killed_clients(Memory::Cuda, &["--grid=512x512", "--trust"]);
    }
}

#[test]
fn a_cuda_client_that_stops_leaves_its_last_frame_on_show() {
    if common::has_gpu() {
        stopped_client(Memory::Cuda, 10);
    }
}
