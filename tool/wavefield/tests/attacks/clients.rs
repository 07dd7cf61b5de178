//! Hostile and unlucky clients of `serve`, and programs that start it.

#![cfg(target_os = "linux")]

#[allow(dead_code)]
#[path = "../../examples/client.rs"]
mod example;
#[path = "../common/renderer.rs"]
pub mod renderer;

use std::fs::File;
use std::io::PipeWriter;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use example::client::{Arguments, Memory, connect};
use renderer::{Client, PATIENCE, Renderer};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use rustix::process::{Resource, Rlimit};
use wavefield_handoff::contents::array::DrawnArray;
use wavefield_handoff::contents::wave::Grid;
use wavefield_run::{Config, Parameters};
use wavefield_serve::listener::Listener;
use wavefield_serve::protocol::{
    ClientParameters, DeviceName, ErrorCode, FromClient, FromServer, MemoryKind, MemoryPlace, RefusedCode,
    Welcome,
};
use wavefield_serve::socket::{Connection, Received};

use crate::{common, stand_in};

/// Waits until `there` returns true. Panics after [`PATIENCE`].
fn wait_until(what: &str, mut there: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !there() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Starts `serve` as another program does for its own use: in its own folder, with one end of a pipe.
fn launched(folder: &Path) -> (Child, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    // Every process that starts from now on inherits the reading end. None inherits the writing end.
    rustix::io::fcntl_setfd(&reader, rustix::io::FdFlags::empty()).unwrap();
    std::fs::create_dir(folder.join("place")).unwrap();
    let child = common::wavefield()
        .args(["serve", "--headless", "--size=96x64", "--grid=16x16", "--validation=off", "--socket"])
        .arg(folder.join("place/socket"))
        .arg(format!("--until-closed={}", reader.as_raw_fd()))
        .stdout(Stdio::null())
        .stderr(File::create(folder.join("notes")).unwrap())
        .spawn()
        .expect("the program starts");
    (child, writer)
}

#[test]
fn a_launched_renderer_ends_with_its_launcher() {
    for while_loading in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (mut child, writer) = launched(folder.path());
        let notes = || std::fs::read_to_string(folder.path().join("notes")).unwrap();
        if !while_loading {
            wait_until("the renderer listens", || notes().contains("listening"));
        }
        // Linux does the same when the launcher ends for any reason.
        drop(writer);
        wait_until("the renderer ends", || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{}", notes());
        assert!(notes().contains("started this renderer has ended"), "{}", notes());
        assert!(!folder.path().join("place").exists(), "its folder is left");
    }
}

/// Starts a renderer at `path`, which must fail. Returns its message.
fn refused(path: &Path) -> String {
    let arguments = ["serve", "--headless", "--frames=1", "--size=96x64", "--grid=16x16", "--socket"];
    let output = common::wavefield().args(arguments).arg(path).output().unwrap();
    assert_ne!(output.status.code(), Some(0), "{}", path.display());
    common::stderr(&output)
}

fn lock_of(path: &Path) -> PathBuf {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    lock.into()
}

#[test]
fn a_socket_that_another_program_listens_on_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    // First a socket of another type than the renderer's, then one of the same type.
    let stream = UnixListener::bind(&path).unwrap();
    let words = refused(&path);
    assert!(words.contains("listens there") && words.contains("--socket"), "{words}");
    assert!(UnixStream::connect(&path).is_ok(), "the other program's socket is gone");
    drop(stream);
    std::fs::remove_file(&path).unwrap();
    let packets = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    rustix::net::bind(&packets, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&packets, 1).unwrap();
    assert!(refused(&path).contains("listens there"));
    assert!(Connection::connect(&path).is_ok(), "the other program's socket is gone");
    assert!(!lock_of(&path).exists());
}

#[test]
fn a_socket_that_was_put_in_the_renderers_place_is_left_alone() {
    let renderer = Renderer::start(&[]);
    let path = renderer.socket();
    std::fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    let folder = renderer.folder.path().to_owned();
    let mut renderer = renderer;
    renderer::signal(&renderer.child, "TERM");
    assert_eq!(renderer.child.wait().unwrap().code(), Some(0), "{}", renderer.notes());
    assert!(folder.join("socket").exists(), "the other program's socket is gone");
}

#[test]
fn a_refused_start_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let there = |name: &str| folder.path().join(name);
    std::fs::write(there("file"), "precious").unwrap();
    std::fs::write(there("Cargo.lock"), "precious").unwrap();
    std::os::unix::fs::symlink("/dev/null", there("link")).unwrap();
    std::fs::create_dir(there("folder")).unwrap();
    let list = || {
        let mut names: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = list();
    for name in ["file", "link", "folder", "folder/", "file/x", "Cargo"] {
        let words = refused(&there(name));
        assert!(words.contains("cannot listen on"), "{name}: {words}");
        assert_eq!(list(), before, "{name}");
    }
    assert!(std::fs::read_dir(there("folder")).unwrap().next().is_none());
    assert_eq!(std::fs::read_to_string(there("Cargo.lock")).unwrap(), "precious");
    // A start that is not refused leaves nothing after its end.
    let renderer = Renderer::start(&[]);
    let socket = renderer.socket();
    let kept = renderer.folder.path().to_owned();
    assert!(lock_of(&socket).exists());
    let left = || {
        let names = std::fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("socket")).count()
    };
    let mut renderer = renderer;
    renderer::signal(&renderer.child, "TERM");
    renderer.child.wait().unwrap();
    assert_eq!(left(), 0);
}

/// Connects and sends this hello. Returns the answer.
fn answered(renderer: &Renderer, hello: &str) -> FromServer {
    let connection = Connection::connect(&renderer.socket()).unwrap();
    connection.send_bytes(hello.as_bytes(), &[]).unwrap();
    match connection.receive_within(PATIENCE) {
        Received::Packet(packet, _) => serde_json::from_slice(&packet).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_newcomer_of_another_version_is_told_that_and_nothing_else() {
    let renderer = Renderer::start(&[]);
    for (hello, theirs) in [
        (r#"{"type": "hello", "protocol": 999}"#, "client version 999:"),
        (r#"{"type": "hello", "protocol": 3, "memory": 7}"#, "client version 3:"),
        (r#"{"type": "hello", "protocol": 1, "client": "old", "memory": "host"}"#, "client version 1:"),
    ] {
        match answered(&renderer, hello) {
            FromServer::Refused { code: RefusedCode::Version, reason } => {
                let parts = ["same release", "speaks version 2 of", theirs];
                assert!(parts.iter().all(|part| reason.contains(part)), "{reason}");
            }
            other => panic!("{hello}: {other:?}"),
        }
    }
    renderer.end().assert_fine();
}

#[test]
fn parameters_are_no_list() {
    let renderer = Renderer::start(&[]);
    let mut client = renderer.client(Memory::Host);
    client.connection.send_bytes(br#"{"type": "set", "parameters": [0.5, "magma", true]}"#, &[]).unwrap();
    assert_eq!(client.error(), ErrorCode::Message);
    renderer.end().assert_fine();
}

#[test]
fn a_name_does_not_play_with_the_terminal() {
    let renderer = Renderer::start(&[]);
    let hello =
        r#"{"type": "hello", "protocol": 2, "client": "a\u202eb\u2028c\u2066d\u001b[2J", "memory": "host"}"#;
    assert!(matches!(answered(&renderer, hello), FromServer::Welcome(_)));
    let ended = renderer.end();
    ended.assert_fine();
    assert!(ended.notes.contains("a b c d [2J (process"), "{}", ended.notes);
    assert!(!ended.notes.contains(['\u{202e}', '\u{2028}', '\u{2066}', '\u{1b}']), "{:?}", ended.notes);
}

#[test]
fn out_of_descriptors_is_said() {
    let renderer = Renderer::start(&[]);
    let mut seen = 0;
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    // The connection needs one descriptor, and the memory needs more.
    for spare in 1..4 {
        // On a busy machine, what the client before had is closed late, and so are files of the start.
        let open = std::iter::repeat_with(|| renderer.resources().0).map(|open| {
            std::thread::sleep(Duration::from_millis(100));
            (open, renderer.resources().0)
        });
        let (open, _) = open.take(100).find(|(before, now)| before == now).expect("descriptors come and go");
        // The limit applies to the numbers of descriptors, and there may be gaps between those in use.
        let in_use = |number: &u64| Path::new(&format!("/proc/{}/fd/{number}", renderer.child.id())).exists();
        let last = (0..).filter(|number| !in_use(number)).nth(spare - 1);
        let limit = Rlimit { current: last.map(|number| number + 1), maximum };
        let process = rustix::process::Pid::from_raw(renderer.child.id() as i32);
        rustix::process::prlimit(process, Resource::Nofile, limit).unwrap();
        let hello = r#"{"type": "hello", "protocol": 2, "client": "x", "memory": "host"}"#;
        if let FromServer::Refused { code, reason } = answered(&renderer, hello) {
            assert_eq!(code, RefusedCode::Memory, "{reason}");
            assert!(reason.contains("descriptor") && reason.contains("ulimit -n"), "{reason}");
            assert!(!reason.contains(" 0 bytes"), "{reason}");
            seen += 1;
        }
        let until = Instant::now() + PATIENCE;
        while renderer.resources().0 > open {
            assert!(Instant::now() < until, "descriptors are left");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert!(seen >= 2, "refused {seen} times: {}", renderer.notes());
    renderer.end().assert_fine();
}

#[test]
fn a_client_that_does_not_stamp_is_named() {
    let renderer = Renderer::start(&["--verify"]);
    let mut client = renderer.client(Memory::Host);
    let wave = client.wave(0.3);
    for frame in 0..3 {
        client.frame(frame, &wave);
    }
    client.wait_for(2);
    drop(client);
    // A client that stamps its frames is not named.
    let mut client = renderer.client(Memory::Host);
    let bytes = client.stamped(0);
    client.frame(0, &bytes);
    client.wait_for(0);
    let ended = renderer.end();
    assert_eq!(ended.code, Some(1), "{}", ended.notes);
    let words = ended.notes.lines().find(|line| line.starts_with("error:")).unwrap();
    assert!(words.contains("does not stamp its frames"), "{}", ended.notes);
    assert_eq!(ended.notes.matches("for clients that stamp").count(), 1, "{}", ended.notes);
    // The totals count all stretches, beside the list of the last ones.
    assert_eq!(ended.report["totals"]["clients"], 2, "{}", ended.report);
    assert_eq!(ended.report["totals"]["stretches"], ended.report["stretches"].as_array().unwrap().len());
}

/// Acts as a renderer whose memory is not sealed.
fn unsealed(listener: &Listener) {
    let until = Instant::now() + PATIENCE;
    let connection = loop {
        match Connection::accept(listener, Duration::from_millis(100)).unwrap() {
            Some(connection) => break connection,
            None => assert!(Instant::now() < until, "no client comes"),
        }
    };
    assert!(matches!(connection.receive_within(PATIENCE), Received::Packet(..)));
    let file = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 3 << 16).unwrap();
    let slot = |number: u64| MemoryPlace {
        fd: 0,
        offset: number << 16,
        bytes: 16 * 16 * 16,
        allocation_bytes: 3 << 16,
    };
    let welcome = FromServer::Welcome(Box::new(Welcome {
        protocol: 2,
        server: "no wavefield".into(),
        device: DeviceName { name: "no GPU".into(), uuid: "0".repeat(32), driver_uuid: "0".repeat(32) },
        memory: MemoryKind::Host,
        array: DrawnArray::mesh(Grid { cols: 16, rows: 16 }).into(),
        frame_bytes: 16 * 16 * 16,
        offset_alignment: 16,
        largest_allocation: 1 << 30,
        ring: 3,
        slots: (0..3).map(slot).collect(),
        ready: None,
        free: None,
        vulkan: None,
        frame_seconds: 1.0 / 60.0,
        parameters: ClientParameters {
            field: Parameters::new(&Config::default()),
            limits: [0.0, 1.0],
            size: 3.0,
            fit: wavefield_draw::Fit::default(),
            units: [0.0, 1.0],
            look: wavefield_draw::Look::default(),
        },
        window: false,
    }));
    connection.send(&welcome, &[file.as_fd()]).unwrap();
    connection.receive_within(PATIENCE);
}

#[test]
fn a_client_takes_no_memory_that_can_be_cut_short() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = Listener::bind(&path, false).unwrap();
    let server = std::thread::spawn(move || unsealed(&listener));
    let arguments = Arguments { socket: Some(path), memory: Memory::Host, frames: 1, ..Arguments::default() };
    let error = example::client::run(&arguments).unwrap_err();
    server.join().unwrap();
    assert!(error.to_string().contains("not sealed"), "{error:#}");
}

#[test]
fn a_client_does_not_talk_to_another_users_server() {
    const NOBODY: u32 = 65534;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    std::os::unix::fs::chown(folder.path(), Some(NOBODY), None).unwrap_or_default();
    let address = SocketAddrUnix::new(&path).unwrap();
    let listening = std::thread::spawn(move || {
        // SAFETY: only this thread becomes another user, because the system call, unlike the C library's
        // function, affects one thread.
        if unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) } != 0 {
            return None;
        }
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::net::bind(&socket, &address).unwrap();
        rustix::net::listen(&socket, 1).unwrap();
        Some(socket)
    });
    let Some(_socket) = listening.join().unwrap() else {
        return common::skip("only root can become another user");
    };
    let arguments = Arguments { socket: Some(path), memory: Memory::Host, frames: 1, ..Arguments::default() };
    let error = format!("{:#}", example::client::run(&arguments).unwrap_err());
    assert!(error.contains("user 65534 listens there"), "{error}");
}

/// Random vertices, so that every triangle is huge.
fn anywhere(client: &Client) -> Vec<u8> {
    let mut state = 1_u32;
    let mut random = || {
        // xorshift32
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as f32 / u32::MAX as f32 * 20.0 - 10.0
    };
    let numbers: Vec<f32> = (0..4 * client.grid().count()).map(|_| random()).collect();
    bytemuck::cast_slice(&numbers).to_vec()
}

/// Connects a client. Tries again while the renderer refuses it.
fn next_client(renderer: &mut Renderer) -> Client {
    let until = Instant::now() + 5 * PATIENCE;
    loop {
        assert!(renderer.is_alive(), "{}", renderer.notes());
        match connect(&renderer.arguments(Memory::Host)) {
            Ok((connection, welcome, descriptors)) => {
                return Client { connection, welcome, descriptors, freed: 0 };
            }
            Err(error) => assert!(Instant::now() < until, "{error:#}; {}", renderer.notes()),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn wrong_vertices_cost_the_client_its_place_and_not_the_renderer() {
    let mut renderer =
        Renderer::start(&["--grid=80x80", "--size=320x240", "--timeout=1", "--producer=compute"]);
    // One client stays, and one leaves before the renderer notices.
    for stays in [true, false] {
        let mut client = next_client(&mut renderer);
        let bytes = anywhere(&client);
        for frame in 0..2 {
            client.frame(frame, &bytes);
        }
        if stays {
            client.say(&FromClient::Snapshot { after: None, size: None });
            match client.answer().0 {
                FromServer::Error { code: ErrorCode::Stuck, reason } => {
                    assert!(reason.contains("too long") && reason.contains("--timeout"), "{reason}");
                    // Once its connection has ended, a client may signal `free` itself.
                    assert!(matches!(client.connection.receive_within(PATIENCE), Received::Closed));
                    let notes = renderer.notes();
                    assert!(notes.contains("the GPU is done with what"), "it ended too early: {notes}");
                }
                FromServer::Picture { .. } => common::skip("this device is quick enough for such triangles"),
                other => panic!("{other:?}; {}", renderer.notes()),
            }
        } else {
            client.wait_for(0);
        }
    }
    let mut client = next_client(&mut renderer);
    let wave = client.wave(0.0);
    client.frame(0, &wave);
    client.wait_for(0);
    assert_eq!(client.state().frame_shown, Some(0));
    let socket = renderer.socket();
    let ended = renderer.end();
    ended.assert_fine();
    assert!(!socket.exists());
    // The note names the client even if it has left.
    let waited = |line: &&str| line.contains(" wrote is still being drawn after ");
    if let Some(line) = ended.notes.lines().find(waited) {
        assert!(line.contains("(process "), "{line}");
    }
}

/// The renderer's own frames show how long a frame may take on this device. Without them, a client's first
/// frame could take 30 times `--timeout` on a software device.
#[test]
fn no_frame_of_a_client_is_the_first_of_all() {
    // The renderer's own frame is due one second after the start.
    let renderer = Renderer::start(&["--pace=1", "--producer=compute"]);
    let mut client = renderer.client(Memory::Host);
    let wave = client.wave(0.0);
    client.frame(0, &wave);
    client.wait_for(0);
    assert!(client.state().frames_drawn > 1);
    renderer.end().assert_fine();
}

/// The renderer does not wait for a slow frame of a client, and names the client.
#[test]
fn a_stop_during_a_slow_draw_names_the_client() {
    let mut renderer =
        Renderer::start(&["--grid=128x128", "--size=640x480", "--timeout=600", "--producer=compute"]);
    let mut client = next_client(&mut renderer);
    let bytes = anywhere(&client);
    for frame in 0..2 {
        client.frame(frame, &bytes);
    }
    client.wait_for(0);
    let socket = renderer.socket();
    let ended = renderer.end();
    assert!(!socket.exists(), "{}", ended.notes);
    assert_eq!(ended.clients().len(), 1, "{}", ended.report);
    if ended.code == Some(0) {
        return common::skip("this device is quick enough for such triangles");
    }
    assert_eq!(ended.code, Some(1), "{}", ended.notes);
    let (name, _) = ended.notes.split_once(" draws, with memory").unwrap();
    let name = name.rsplit("note: ").next().unwrap();
    let words = format!("(it draws what {name} wrote)");
    assert!(ended.notes.contains("stopped before the current frame was done"), "{}", ended.notes);
    assert!(ended.notes.contains(&words), "{words}: {}", ended.notes);
}

#[test]
fn a_descriptor_that_nobody_can_close_is_wrong_usage() {
    for (number, words) in [("77", "was not passed"), ("1", "standard streams"), ("-1", "")] {
        let output = common::run(&["serve", "--headless", &format!("--until-closed={number}")]);
        common::assert_exit(&output, 2);
        assert!(common::stderr(&output).contains(words), "{}", common::stderr(&output));
    }
}
