//! What the source promises: one function that can be read from top to bottom, in a small program.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn source(name: &str) -> String {
    read_to_string(folder().join(name)).unwrap()
}

/// The lines of a file without its tests.
fn lines(text: &str) -> usize {
    text.lines().take_while(|line| *line != "#[cfg(test)]").count()
}

#[test]
fn one_frame_is_one_function_of_at_most_70_lines() {
    let text = source("frame.rs");
    let (_, function) = text.split_once("    pub fn draw(&mut self, view: &View)").expect("the function");
    let length = 1 + function.lines().position(|line| line == "    }").expect("its end");
    assert!(length <= 70, "{length} lines");
    // The steps, in the order in which a frame takes them.
    let steps = ["PACE", "ACQUIRE", "BEGIN TO WRITE", "LAUNCH", "HAND OVER", "RECORD", "SUBMIT", "PRESENT"];
    let places: Vec<_> = steps.iter().map(|step| function.find(&format!("// {step}"))).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
}

/// The frame knows nothing of batches, comparisons, the command line or the window.
#[test]
fn a_file_uses_only_files_before_it() {
    let order = [
        "options",
        "instance",
        "gpu",
        "objects",
        "draw",
        "picture",
        "swapchain",
        "field",
        "frame",
        "ways",
        "measure",
        "window",
        "main",
    ];
    assert_eq!(order.len(), std::fs::read_dir(folder()).unwrap().count());
    for (place, name) in order.into_iter().enumerate() {
        let text = source(&format!("{name}.rs"));
        for used in text.split("crate::").skip(1).map(|rest| rest.split([':', '(', '}', ';']).next().unwrap())
        {
            assert!(order[..place].contains(&used), "{name} uses {used}");
        }
    }
}

#[test]
fn a_file_is_at_most_400_lines() {
    let names = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name());
    let files: Vec<_> = names.map(|name| (lines(&source(name.to_str().unwrap())), name)).collect();
    assert!(files.iter().all(|(lines, _)| *lines <= 400), "{files:?}");
}

/// The bar that shows a frame's parts needs no pipeline, and few lines.
#[test]
fn the_bar_is_at_most_60_lines() {
    let text = source("draw.rs");
    let (_, bar) = text.split_once("pub struct Bar(").expect("the bar");
    let (bar, _) = bar.split_once("/// A camera that looks at").expect("its end");
    assert!(bar.lines().count() <= 60, "{}", bar.lines().count());
}
