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
use std::time::Instant;

use renderer::PATIENCE;

use crate::{common, stand_in};

/// Waits for something that is to happen soon.
fn wait_until(what: &str, mut there: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !there() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(std::time::Duration::from_millis(10));
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

#[test]
fn a_descriptor_that_nobody_can_close_is_wrong_usage() {
    for (number, words) in [("77", "was not passed"), ("1", "standard streams"), ("-1", "")] {
        let output = common::run(&["serve", "--headless", &format!("--until-closed={number}")]);
        common::assert_exit(&output, 2);
        assert!(common::stderr(&output).contains(words), "{}", common::stderr(&output));
    }
}
