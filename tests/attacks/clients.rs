//! Hostile and unlucky clients of `serve`, and programs that start it.

#![cfg(target_os = "linux")]

#[allow(dead_code)]
#[path = "../../examples/05_client.rs"]
mod example;
#[path = "../common/renderer.rs"]
mod renderer;

use std::fs::File;
use std::io::PipeWriter;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use example::client::{Memory, connect};
use renderer::{Client, PATIENCE, Renderer};
use wavefield::serve::protocol::{ErrorCode, FromClient, FromServer};

use crate::{common, stand_in};

/// Waits for something that is to happen soon.
fn wait_until(what: &str, mut there: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !there() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `serve` as another program starts it for itself: in a folder of its own, and with one end of a pipe.
fn launched(folder: &Path) -> (Child, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    // Inherited by whatever is started from now on; the end to write to is by nobody.
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
        // What Linux does when the launcher is gone, for whatever reason.
        drop(writer);
        wait_until("the renderer ends", || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{}", notes());
        assert!(notes().contains("started this renderer has ended"), "{}", notes());
        assert!(!folder.path().join("place").exists(), "its folder is left");
    }
}

/// Vertices that lie anywhere: every triangle is huge.
fn anywhere(client: &Client) -> Vec<u8> {
    let mut state = 1_u32;
    let mut random = || {
        // xorshift32
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as f32 / u32::MAX as f32 * 20.0 - 10.0
    };
    let numbers: Vec<f32> = (0..4 * client.grid().vertices()).map(|_| random()).collect();
    bytemuck::cast_slice(&numbers).to_vec()
}

/// The next client that is welcome; those before are told why they are not.
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
        Renderer::start(&["--grid=64x64", "--size=320x240", "--timeout=2", "--producer=compute"]);
    // One that stays, and one that is gone before anybody noticed.
    for stays in [true, false] {
        let mut client = next_client(&mut renderer);
        let bytes = anywhere(&client);
        for frame in 0..2 {
            client.frame(frame, &bytes);
        }
        if stays {
            client.say(&FromClient::Snapshot);
            match client.answer().0 {
                FromServer::Error { code: ErrorCode::Stuck, reason } => {
                    assert!(reason.contains("too long") && reason.contains("--timeout"), "{reason}");
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
}

#[test]
fn a_descriptor_that_nobody_can_close_is_wrong_usage() {
    for (number, words) in [("77", "was not passed"), ("1", "standard streams"), ("-1", "")] {
        let output = common::run(&["serve", "--headless", &format!("--until-closed={number}")]);
        common::assert_exit(&output, 2);
        assert!(common::stderr(&output).contains(words), "{}", common::stderr(&output));
    }
}
