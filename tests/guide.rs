//! Checks that the commands in the documents exist.

mod common;

use std::path::{Path, PathBuf};

use common::{run, stderr};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The guide's chapters, and the other documents that show commands. The published package does not contain all of them.
fn pages() -> Vec<PathBuf> {
    let folders = ["docs", "docs/guide/src"].map(|folder| Path::new(ROOT).join(folder));
    let listed = folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten();
    let inside =
        listed.map(|entry| entry.unwrap().path()).filter(|path| path.extension() == Some("md".as_ref()));
    let others = ["README.md", "CONTRIBUTING.md", "kernels/README.md", "crates/vulkan-cuda/README.md"]
        .map(|page| Path::new(ROOT).join(page));
    inside.chain(others).filter(|page| page.exists()).collect()
}

/// The lines of a page's shell blocks, without their comments.
fn commands(page: &str) -> Vec<String> {
    let mut block = None;
    let mut found = Vec::new();
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), block) {
            (Some(language), None) => block = Some(language == "sh"),
            (Some(_), Some(_)) => block = None,
            (None, Some(true)) => found.push(line.split(" #").next().unwrap().trim().to_owned()),
            _ => {}
        }
    }
    found.retain(|line| !line.is_empty());
    found
}

#[test]
fn every_command_of_the_documents_is_one() {
    let mut seen = 0;
    for page in pages() {
        for line in commands(&std::fs::read_to_string(&page).unwrap()) {
            let place = format!("{}: {line}", page.display());
            // Check only the command itself, without the rest of the shell line. A line with a variable cannot be checked.
            let line = line.split([';', '|', '>', '&']).next().unwrap().trim();
            let mut words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                ["wavefield", ..] if !line.contains('$') => {
                    words.push("--help");
                    let output = run(&words[1..]);
                    assert!(output.status.success(), "{place}: {}", stderr(&output));
                }
                ["cargo", "run", "-p", "vulkan-cuda", "--example", name, ..] => {
                    exists("crates/vulkan-cuda/examples", name, &place)
                }
                ["cargo", "test", "-p", "vulkan-cuda", "--test", name, ..] => {
                    exists("crates/vulkan-cuda/tests", name, &place)
                }
                ["EXERCISES=yours", "cargo", "test", "-p", "vulkan-cuda", "--test", name] => {
                    exists("crates/vulkan-cuda/tests", name, &place);
                }
                ["cargo", "test", "--test", name, ref filter @ ..] => {
                    exists("tests", name, &place);
                    let text =
                        std::fs::read_to_string(Path::new(ROOT).join("tests").join(format!("{name}.rs")))
                            .unwrap();
                    let named = filter.iter().take_while(|word| **word != "--");
                    named.for_each(|test| assert!(text.contains(&format!("fn {test}")), "{place}"));
                }
                [script, ..] if script.starts_with("scripts/") => {
                    assert!(Path::new(ROOT).join(script).exists(), "{place}");
                }
                _ => continue,
            }
            seen += 1;
        }
    }
    assert!(seen > 20, "only {seen} commands were found");
}

fn exists(folder: &str, name: &str, place: &str) {
    let folder = Path::new(ROOT).join(folder);
    // The published package does not contain the library.
    assert!(!folder.exists() || folder.join(format!("{name}.rs")).exists(), "{place}");
}
