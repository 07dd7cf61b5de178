//! `wavefield serve` with clients that behave, and with clients that do not.
//!
//! Most tests use memory `host`, which needs no CUDA. A client that the test kills runs in its own process:
//! this program, started again with `CLIENT` set.

use crate::common;
#[allow(dead_code)]
use crate::example;
use crate::renderer;
use wavefield_test_support::stand_in;

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::first_uuid;
use common::{assert_same_picture, process, wavefield};
use example::client::{Arguments, Memory, connect, run};
use renderer::{Client, Ended, PATIENCE, Renderer, own_picture, signal, validated};
use stand_in::{ALL, StandIn};
use wavefield_handoff::contents::wave::Grid;
use wavefield_serve::protocol::{ErrorCode, FromClient, FromServer, MAX_MESSAGE, SettingsChange};
use wavefield_serve::socket::{Connection, Received};

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

/// The renderer's own frames are checked before and after the client's. In between, a frame of the client is
/// drawn many times.
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
    let parameters = SettingsChange {
        speed: Some(-0.5),
        colormap: Some("magma".into()),
        paused: Some(true),
        ..SettingsChange::default()
    };
    client.say(&FromClient::Set { parameters, camera: None });
    let (FromServer::Parameters { parameters, .. }, _) = client.answer() else { panic!("no parameters") };
    assert_eq!((parameters.field.speed, parameters.field.paused), (-0.5, true));
    let parameters = SettingsChange { colormap: Some("jet".into()), ..SettingsChange::default() };
    client.say(&FromClient::Set { parameters, camera: None });
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
        (json(r#"{"type": "import", "chunks": [10]}"#), ErrorCode::Message),
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

/// Closing a socket can take as long as the other end likes. One thread closes what clients send, and what
/// waits for it is bounded.
#[test]
fn a_descriptor_that_does_not_close_keeps_nobody_waiting() {
    let mut renderer = Renderer::start(&[]);
    let (descriptors, _) = renderer.resources();
    let mut client = renderer.client(Memory::Host);
    // A newcomer whose first message is no `hello`: the renderer reads it, refuses the newcomer, and closes
    // the descriptors.
    let path = renderer.socket();
    let hand_over = |descriptors: Vec<OwnedFd>| {
        let newcomer = Connection::connect(&path).unwrap();
        let sent: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        newcomer.send(&FromClient::Status, &sent).unwrap();
        newcomer
    };
    let refused = |newcomer: &Connection| {
        assert!(matches!(renderer::receive(newcomer).0, FromServer::Refused { .. }));
    };
    let door = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let lingering = || {
        let socket = std::net::TcpStream::connect(door.local_addr().unwrap()).unwrap();
        // Data that nobody has read makes `close` wait for five minutes.
        rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::from_secs(300))).unwrap();
        socket.set_nonblocking(true).unwrap();
        while (&socket).write(&[0; 65536]).is_ok() {}
        socket.into()
    };
    // A descriptor in transit counts as open, so the stopped renderer closes the last one. Otherwise this
    // thread waits.
    signal(&renderer.child, "STOP");
    let newcomer = hand_over(vec![lingering(), lingering()]);
    signal(&renderer.child, "CONT");
    refused(&newcomer);
    client.see_again(10);
    assert!(renderer.is_alive());
    let tasks = std::fs::read_dir(format!("/proc/{}/task", renderer.child.id())).unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    assert_eq!(names.filter(|name| name.trim() == "closer").count(), 1);
    // The others wait behind the two, until there are too many.
    let file = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::empty()).unwrap();
    for _ in 0..2 {
        refused(&hand_over((0..128).map(|_| file.try_clone().unwrap()).collect()));
    }
    client.connection.send(&FromClient::Status, &[file.as_fd()]).unwrap();
    let FromServer::Error { code, reason } = client.answer().0 else {
        panic!("the renderer takes any number")
    };
    assert_eq!(code, ErrorCode::Stuck, "{reason}");
    assert!(reason.contains("take long to close"), "{reason}");
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
        client.say(&FromClient::Snapshot { after: None, size: None });
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
    let array = std::env::var("CLIENT_ARRAY").unwrap_or_default();
    let grid = (!array.is_empty()).then_some(Grid { cols: 40, rows: 24 });
    let (socket, image) = (Some(socket.into()), array == "image");
    let arguments = Arguments { socket, memory, frames, grid, image, ..Arguments::default() };
    if let Err(error) = run(&arguments) {
        panic!("{error:#}");
    }
}

/// Starts a client in its own process. `array` is empty for the renderer's grid, or `mesh` or `image` for an
/// array of its own.
fn client_process(renderer: &Renderer, memory: Memory, array: &str, frames: Option<u64>) -> Child {
    let mut command = common::test_process(module_path!(), "client_in_a_process_of_its_own");
    command
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

/// Kills one client after another, each at a different moment: before its hello, in its first frames or
/// later.
fn killed_clients(memory: Memory, more: &[&str]) {
    let mut renderer = Renderer::start(more);
    let mut resources = Vec::new();
    for round in 0..kills() {
        let arrays = if memory == Memory::Host { &["", "mesh", "image"][..] } else { &["", "mesh"] };
        let array = arrays[round as usize % arrays.len()];
        let mut child = client_process(&renderer, memory, array, None);
        // The moments spread over the first 200 ms in a pseudo-random order. CUDA takes about 200 ms to
        // start, so with CUDA they spread over 1.5 s.
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

/// Stops a client in the middle of its work and continues it once the renderer has waited `waits` times.
fn stopped_client(memory: Memory, waits: u64) {
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
    // The renderer's first thread waits once a millisecond.
    let before = process::waits_of_first_thread(renderer.child.id());
    process::wait_for(&mut renderer.child, "waits without a frame", |renderer| {
        process::waits_of_first_thread(renderer) > before + waits
    });
    signal(&child, "CONT");
    more_frames(&mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    drop(renderer.client(Memory::Host));
    let ended = renderer.end();
    ended.assert_fine();
    let client = ended.clients()[0];
    let (draws, frames) = (client["draws"].as_u64().unwrap(), client["frames"].as_u64().unwrap());
    // Nobody sees a frame twice without a window. A request, such as for a picture, may need one more draw.
    assert!((frames..frames + 4).contains(&draws), "{draws} draws, {frames} frames: {client}");
    println!("{draws} draws of {frames} frames, late by {} µs at most", client["late_us"]);
}

#[test]
fn a_client_that_stops_leaves_its_last_frame_on_show() {
    stopped_client(Memory::Host, 2000);
}

#[test]
fn cuda_clients_draw_through_exported_memory() {
    if !common::has_gpu() {
        return;
    }
    for more in [validated(), &["--ring=8"], &["--producer=compute"]] {
        let renderer = Renderer::start(more);
        let own = own_picture(renderer.folder.path(), "16x16");
        // Draw one frame of the wave at time 0, and take its picture.
        let path = renderer.folder.path().join("got.png");
        let client =
            Arguments { frames: 1, snapshot: Some(path.clone()), ..renderer.arguments(Memory::Cuda) };
        run(&client).unwrap();
        assert_same_picture(&path, &own, common::SAME_PICTURE);
        let mut child = client_process(&renderer, Memory::Cuda, "", Some(2000));
        assert!(child.wait().unwrap().success(), "{}", renderer.notes());
        drop(renderer.client(Memory::Host));
        let ended = renderer.end();
        ended.assert_fine();
        let frames: Vec<_> = ended.clients().iter().map(|client| client["frames"].clone()).collect();
        println!("{more:?}: {}", ended.report);
        assert_eq!(frames[..2], [1, 2000], "no frame is skipped");
    }
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
    let wave = include_str!("../../../../kernels/wave.ptx");
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
    let trap = include_str!("../../../handoff/kernels/test/trap.ptx");
    let illegal = include_str!("../../../handoff/kernels/test/illegal.ptx");
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
    }
}

#[test]
fn a_cuda_client_that_stops_leaves_its_last_frame_on_show() {
    if common::has_gpu() {
        // In the first 0.1 s, it waits for CUDA's next frame every 50 µs.
        stopped_client(Memory::Cuda, 6000);
    }
}
