//! The modules of each crate form layers: a module imports only from modules below it. The order is written under
//! "# Layers" in the crate's `lib.rs`, and nowhere else.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The source files below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// The modules in order, the lowest first. They are the words in backquotes on those lines of "# Layers" that begin with one.
fn order(lib: &str) -> Vec<String> {
    let section = lib.lines().skip_while(|line| *line != "//! # Layers").skip(1);
    let section = section.map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let list = section.filter(|line| line.starts_with('`'));
    list.flat_map(|line| line.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The modules that `lib.rs` declares.
fn declared(lib: &str) -> BTreeSet<String> {
    let names = lib.lines().filter_map(|line| {
        let line = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ")?;
        line.strip_suffix(';').map(str::to_owned)
    });
    names.collect()
}

/// A file's code without comments and tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The top-level names that follow `crate::` in a piece of code, including those in a list.
fn imports(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            // `use crate::{a, b::{c, d}, e};`: the names at the list's own depth.
            Some(list) => {
                let (mut depth, mut word, mut begins) = (0, String::new(), true);
                for c in list.chars() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => begins = true,
                        c if depth == 0 && begins && (c.is_alphanumeric() || c == '_') => word.push(c),
                        c if depth == 0 && begins && !c.is_whitespace() => begins = false,
                        _ => {}
                    }
                    if !begins || c == ',' {
                        names.insert(std::mem::take(&mut word));
                    }
                }
                names.insert(word);
            }
            None => {
                names.insert(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
            }
        }
    }
    names
}

/// Every import of a crate that points up.
fn offences(folder: &Path) -> Vec<String> {
    let lib = fs::read_to_string(folder.join("lib.rs")).unwrap();
    let (order, declared) = (order(&lib), declared(&lib));
    assert_eq!(order.iter().cloned().collect::<BTreeSet<_>>(), declared, "the list has every module once");
    let rank = |module: &str| order.iter().position(|name| name == module);
    let mut offences = Vec::new();
    for path in sources(folder) {
        let name = path.strip_prefix(folder).unwrap();
        let module = name.iter().next().unwrap().to_string_lossy();
        let module = module.strip_suffix(".rs").unwrap_or(&module);
        // The two roots may import everything.
        let Some(own) = rank(module) else { continue };
        let mut code = code(&fs::read_to_string(&path).unwrap());
        if name.components().count() == 1 || name.ends_with("mod.rs") && name.components().count() == 2 {
            // In these files, `super` is the root.
            code = code.replace("super::", "crate::");
        }
        for import in imports(&code) {
            let import = match import.as_str() {
                // The root re-exports these from this module.
                "Error" | "Result" => "error".to_owned(),
                _ => import,
            };
            if rank(&import).is_some_and(|other| other > own) {
                offences.push(format!("{} imports {import}", name.display()));
            }
        }
    }
    offences
}

#[test]
fn imports_point_down() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    for folder in ["vulkan-cuda/src", "wavefield/src"] {
        assert_eq!(offences(&root.join(folder)), [""; 0], "in {folder}");
    }
}

/// The test is useful only if it finds every form of import.
#[test]
fn every_form_of_import_is_found() {
    let text = "use crate::a::B;\nuse crate::{Error, c, d::{E, f}, g};\n// crate::no\nfn h(x: crate::i::J) {}\n\
                #[cfg(test)]\nmod tests { use crate::k; }";
    let found: Vec<_> = imports(&code(text)).into_iter().filter(|name| !name.is_empty()).collect();
    assert_eq!(found, ["Error", "a", "c", "d", "g", "i"]);
}

/// The test is useful only if it reports an import that points up.
#[test]
fn an_import_that_points_up_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("lib.rs", "//! # Layers\n//!\n//! `low`, `high`\n\nmod high;\nmod low;\n");
    write("high.rs", "use crate::low::X;\n");
    write("low.rs", "pub struct X;\n");
    assert_eq!(offences(folder.path()), [""; 0]);
    write("low.rs", "use crate::high::Y;\npub struct X;\n");
    assert_eq!(offences(folder.path()), ["low.rs imports high"]);
}
