//! Compiles the examples that are marked `compile_fail` in the documentation. A doc test passes with any
//! error, even a forgotten import. Here each example must have exactly one error, for the intended reason.

use wavefield_test_support as common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// For each example its file, its number in the file, the error code and a part of the compiler's message.
const REASONS: [(&str, usize, &str, &str); 14] = [
    (
        "crates/vulkan-cuda/src/allocation.rs",
        1,
        "",
        "cannot construct `MappedMemory` with struct literal syntax due to private fields",
    ),
    (
        "crates/vulkan-cuda/src/allocation.rs",
        2,
        "E0616",
        "field `imported` of struct `MappedMemory` is private",
    ),
    ("crates/vulkan-cuda/src/allocation.rs", 3, "E0382", "use of moved value: `exported`"),
    ("crates/vulkan-cuda/src/handle/mod.rs", 1, "E0382", "use of moved value: `handle`"),
    ("crates/vulkan-cuda/src/handle/mod.rs", 2, "E0308", "expected `NtHandle`, found `BorrowedHandle`"),
    (
        "crates/vulkan-cuda/src/handle/mod.rs",
        3,
        "E0133",
        "call to unsafe function `MappedMemory::import` is unsafe",
    ),
    ("crates/vulkan-cuda/src/image.rs", 1, "E0308", "expected `&Arc<ExportedImage>`, found `&MemoryHandle`"),
    (
        "crates/vulkan-cuda/src/image.rs",
        2,
        "E0061",
        "this function takes 2 arguments but 3 arguments were supplied",
    ),
    ("crates/vulkan-cuda/src/image.rs", 3, "E0616", "field `exported` of struct `SharedImage` is private"),
    ("crates/vulkan-cuda/src/shared_ring.rs", 1, "E0277", "AnyBitPattern` is not satisfied"),
    (
        "crates/vulkan-cuda/src/slot.rs",
        1,
        "E0277",
        "the trait bound `Arc<SharedBuffer>: Slot` is not satisfied",
    ),
    (
        "crates/vulkan-cuda/src/submission.rs",
        1,
        "E0277",
        "`vulkan_cuda::submission::Semaphores: Default` is not satisfied",
    ),
    ("crates/vulkan-cuda/src/vulkan_turn.rs", 1, "E0382", "use of moved value: `read`"),
    (
        "tool/gpu/src/cuda/cubin.rs",
        1,
        "E0423",
        "cannot initialize a tuple struct which contains private fields",
    ),
];

/// The source files below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect();
    files.sort();
    files
}

/// The examples of a file that must not compile: each with the error code that it names, and its program.
fn examples(text: &str) -> Vec<(String, String)> {
    let mut lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("//"));
    let mut comment = || lines.next().map(|line| line.get(1..).unwrap_or_default().trim_start_matches(' '));
    let mut examples = Vec::new();
    while let Some(line) = comment() {
        if let Some(code) = line.strip_prefix("```compile_fail") {
            let program: Vec<_> =
                std::iter::from_fn(&mut comment).take_while(|line| *line != "```").collect();
            let program = program.iter().map(|line| line.strip_prefix("# ").unwrap_or(line));
            let program: String = program.map(|line| format!("{line}\n")).collect();
            examples.push((code.trim_start_matches(',').to_owned(), program + "fn main() {}\n"));
        }
    }
    examples
}

/// The compiler, with the libraries that a program may use.
struct Compiler {
    libraries: PathBuf,
    externs: Vec<String>,
}

impl Compiler {
    fn new() -> Self {
        let libraries = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let [mut gpu, mut library, ash] = ["wavefield_gpu", "vulkan_cuda", "ash"].map(|name| {
            let mut found = sources(&libraries);
            found.retain(|path| {
                let file = path.file_name().unwrap().to_string_lossy();
                file.starts_with(&format!("lib{name}-")) && file.ends_with(".rlib")
            });
            // The newest library is the one that this test is linked with, or has the same source.
            found.sort_by_key(|path| std::cmp::Reverse(fs::metadata(path).unwrap().modified().unwrap()));
            found.into_iter().map(|path| format!("--extern={name}={}", path.display())).collect::<Vec<_>>()
        });
        gpu.truncate(1);
        library.truncate(1);
        // Other packages of the workspace may have built ash with other features. Use the one that the
        // library uses.
        let probe =
            "pub fn known(device: &vulkan_cuda::Vk) -> &ash::Device { device.device() }\nfn main() {}\n";
        let candidates = ash.into_iter().map(|ash| Self {
            libraries: libraries.clone(),
            externs: [&gpu[..], &library[..], &[ash]].concat(),
        });
        let mut candidates = candidates.filter(|compiler| compiler.compile(probe).is_empty());
        candidates.next().expect("the libraries were built for this test")
    }

    /// Compiles a program. Returns the code and the message of each error.
    fn compile(&self, program: &str) -> Vec<(String, String)> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("refused.rs");
        fs::write(&file, program).unwrap();
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
        rustc
            .args(["--edition=2024", "--emit=metadata", "--error-format=json"])
            .arg("-L")
            .arg(&self.libraries);
        rustc.args(&self.externs).arg("--out-dir").arg(folder.path()).arg(&file);
        let output = rustc.output().expect("rustc comes with cargo");
        let messages = String::from_utf8(output.stderr).unwrap();
        let messages = messages.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let errors = messages.filter(|message| {
            message["level"] == "error" && !message["spans"].as_array().unwrap().is_empty()
        });
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        errors.map(|error| (text(&error["code"]["code"]), text(&error["rendered"]))).collect()
    }
}

#[test]
fn what_must_not_compile_is_refused_for_its_reason() {
    if std::env::var_os("CARGO").is_none() {
        return common::skip("not run by cargo");
    }
    let root = Path::new(common::ROOT);
    let compiler = Compiler::new();
    let mut reasons = REASONS.iter();
    for path in ["crates", "tool"].iter().flat_map(|folder| sources(&root.join(folder))) {
        let file = path.strip_prefix(root).unwrap();
        if file.extension() != Some("rs".as_ref())
            || file.components().any(|part| part.as_os_str() == "tests")
        {
            continue;
        }
        for (index, (named, program)) in examples(&fs::read_to_string(&path).unwrap()).iter().enumerate() {
            let path = path.strip_prefix(root).unwrap().display().to_string();
            let Some(&(file, number, code, words)) = reasons.next() else {
                panic!("{path} has one example more")
            };
            assert_eq!((path.as_str(), index + 1, named.as_str()), (file, number, code));
            let errors = compiler.compile(program);
            let [(found, said)] = errors.as_slice() else { panic!("{file}, {number}: {errors:#?}") };
            assert_eq!(found, code, "{file}, {number}: {said}");
            assert!(said.contains(words), "{file}, {number}: `{words}` is missing in: {said}");
        }
    }
    assert_eq!(reasons.next(), None, "this example no longer exists");
}
