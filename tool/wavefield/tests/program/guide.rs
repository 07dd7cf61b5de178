//! Checks that the commands in the documents exist.

use crate::common;

use std::path::{Path, PathBuf};

use common::{ROOT, run, stderr};

/// The guide's chapters, and the other documents that show commands. The published package does not contain
/// all of them.
fn pages() -> Vec<PathBuf> {
    let folders = ["docs", "docs/guide/src"].map(|folder| Path::new(ROOT).join(folder));
    let listed = folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten();
    let inside =
        listed.map(|entry| entry.unwrap().path()).filter(|path| path.extension() == Some("md".as_ref()));
    let others =
        ["README.md", "CONTRIBUTING.md", "tool/handoff/kernels/README.md", "crates/vulkan-cuda/README.md"]
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
            // Check only the command itself, without the rest of the shell line. A line with a variable
            // cannot be checked.
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
                ["cargo", "test", "-p", package, "--test", name, ref filter @ ..]
                | ["EXERCISES=yours", "cargo", "test", "-p", package, "--test", name, ref filter @ ..] => {
                    let folder = match package {
                        "vulkan-cuda" => "crates/vulkan-cuda/tests".to_owned(),
                        _ => format!("tool/{}/tests", package.trim_start_matches("wavefield-")),
                    };
                    exists(&folder, name, &place);
                    let folder = Path::new(ROOT).join(folder);
                    for test in filter.iter().take_while(|word| **word != "--") {
                        // Either a file of the test, or a function.
                        match test.strip_suffix("::") {
                            Some(file) => {
                                let file = folder.join(name).join(format!("{file}.rs"));
                                assert!(file.exists(), "{place}");
                            }
                            None => {
                                let text =
                                    std::fs::read_to_string(folder.join(format!("{name}.rs"))).unwrap();
                                assert!(text.contains(&format!("fn {test}")), "{place}");
                            }
                        }
                    }
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

/// What `scripts/commands.py` writes: which commands ran, on which machine.
#[test]
fn every_command_of_the_guide_was_run() {
    let lists = Path::new(ROOT).join("docs/measurements");
    // The published package has neither.
    let Ok(files) = lists.read_dir() else { return };
    let lists = files.map(|entry| entry.unwrap().path());
    let lists = lists.filter(|path| path.to_string_lossy().ends_with("-commands.txt"));
    let ran: Vec<_> = lists.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let ran = |command: &str| {
        let mut lines = ran.iter().flat_map(|list| list.lines());
        lines.any(|line| {
            line.starts_with("ok ") && line.split_once(" s  ").is_some_and(|(_, it)| it == command)
        })
    };
    let readme = Path::new(ROOT).join("README.md");
    let guide = |page: &PathBuf| page.parent().unwrap().ends_with("guide/src") || *page == readme;
    let shown =
        pages().into_iter().filter(guide).flat_map(|page| commands(&std::fs::read_to_string(page).unwrap()));
    // CI runs this one.
    let missing: Vec<_> = shown.filter(|command| command != "scripts/test.sh" && !ran(command)).collect();
    assert!(missing.is_empty(), "run scripts/commands.py; no list has {missing:#?}");
}

fn exists(folder: &str, name: &str, place: &str) {
    let folder = Path::new(ROOT).join(folder);
    // The published package does not contain the library.
    assert!(
        !folder.exists()
            || [format!("{name}.rs"), format!("{name}/main.rs")]
                .iter()
                .any(|file| folder.join(file).exists()),
        "{place}"
    );
}
