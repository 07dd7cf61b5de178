//! Checks the PTX in kernels/: its form, which needs no tool, and with
//! scripts/kernels.sh what clang and ptxas say. If one of them is missing, the
//! test is skipped, or fails with WAVEFIELD_REQUIRE_TOOLS=1.

use wavefield_test_support as common;

use std::process::Command;

use common::skip_without_tools;

/// The newest PTX that a driver of CUDA 11.2 loads. It is the oldest driver that
/// imports Vulkan's timeline semaphores.
const NEWEST: (u32, u32) = (7, 2);

/// The types of vertices, cols, rows, frame and time.
const PARAMETERS: [&str; 5] = [".u64", ".u32", ".u32", ".u64", ".f64"];

fn read(name: &str) -> String {
    let path = common::kernel(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The text after `directive` on its line.
fn directive<'a>(ptx: &'a str, directive: &str) -> &'a str {
    let value = ptx.lines().find_map(|line| line.strip_prefix(directive));
    value.unwrap_or_else(|| panic!("no {directive}")).trim()
}

/// The type of each parameter of the entry point `name`.
fn parameters(ptx: &str, name: &str) -> Vec<String> {
    let (_, after) = ptx
        .split_once(&format!(".visible .entry {name}("))
        .unwrap_or_else(|| panic!("no entry point {name}"));
    let (list, _) = after.split_once(')').expect("an end of the parameters");
    list.split(',').map(parameter_type).collect()
}

fn parameter_type(parameter: &str) -> String {
    let words: Vec<_> = parameter.split_whitespace().collect();
    match words[..] {
        // Newer releases of clang say that it is a pointer.
        [".param", kind, _name] | [".param", kind, ".ptr", ".align", _, _name] => kind.to_owned(),
        // A structure of floats.
        [".param", ".align", "4", ".b8", name] => format!(".b8[{}", name.split_once('[').unwrap().1),
        _ => panic!("not a plain parameter: {parameter}"),
    }
}

fn assert_form(file: &str, entry: &str) {
    assert_signature(file, entry, &PARAMETERS);
}

fn assert_signature(file: &str, entry: &str, wanted: &[&str]) {
    let ptx = read(file);
    let (major, minor) = directive(&ptx, ".version").split_once('.').expect("major.minor");
    let version = (major.parse().unwrap(), minor.parse().unwrap());
    assert!(version <= NEWEST, "{file} is PTX {version:?}, newer than {NEWEST:?}");
    assert_eq!(directive(&ptx, ".target"), "sm_50", "{file}");
    assert_eq!(directive(&ptx, ".address_size"), "64", "{file}");
    assert_eq!(parameters(&ptx, entry), wanted, "{file}");
}

/// Runs `scripts/kernels.sh check WHAT`.
fn check(what: &str) {
    let output = match Command::new("bash")
        .args(["scripts/kernels.sh", "check", what])
        .current_dir(common::ROOT)
        .output()
    {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return skip_without_tools("no bash");
        }
        Err(error) => panic!("bash: {error}"),
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => {}
        Some(3) => match stderr.split_once("skipped: ") {
            // Some releases have no clang 14.
            Some((_, reason)) => common::skip(reason.trim()),
            None => skip_without_tools(stderr.trim()),
        },
        _ => panic!("{}\n{}{stderr}", output.status, String::from_utf8_lossy(&output.stdout)),
    }
}

#[test]
fn every_kernel_has_the_documented_signature() {
    // These two have parameters that can be set while they run.
    for file in ["wave.ptx", "test/level.ptx"] {
        let entry = if file == "wave.ptx" { "wave" } else { "level" };
        assert_signature(file, entry, &[&PARAMETERS[..], &[".b8[8]"]].concat());
        assert_eq!(read(file).lines().filter(|line| line.starts_with("//!PARAM ")).count(), 2, "{file}");
    }
    for (name, structure) in
        [("ripples", ".b8[12]"), ("ocean", ".b8[12]"), ("pond", ".b8[16]"), ("swarm", ".b8[8]")]
    {
        assert_signature(&format!("{name}.ptx"), name, &[&PARAMETERS[..], &[structure]].concat());
    }
    assert_form("frame_stamp.ptx", "frame_stamp");
    assert_form("test/flat.ptx", "flat");
    assert_form("test/bounded.ptx", "flat");
    assert_form("test/broken.ptx", "broken");
    assert_form("test/trap.ptx", "trap_kernel");
    assert_form("test/late.ptx", "late");
    assert_form("test/illegal.ptx", "illegal");
    assert_form("test/spin.ptx", "spin");
}

/// The signatures match what handoff/src/texture.rs passes.
#[test]
fn the_texture_kernels_take_what_they_are_given() {
    assert_signature("texture.ptx", "paint", &PARAMETERS);
    assert_signature("texture.ptx", "texture_stamp", &PARAMETERS);
    assert_signature("texture.ptx", "reduce", &[".u64", ".u64", ".u32", ".u32", ".u32", ".u32"]);
}

/// Each thread makes one 16-byte store to global memory, so that the GPU coalesces the writes.
#[test]
fn a_vertex_is_written_in_one_store() {
    for name in ["wave", "ripples", "ocean", "pond", "swarm"] {
        let ptx = read(&format!("{name}.ptx"));
        let stores: Vec<_> = ptx.lines().map(str::trim).filter(|line| line.starts_with("st.")).collect();
        // Newer releases of clang write `b32`.
        let whole = stores.iter().filter(|store| store.starts_with("st.global.v4.")).count();
        assert_eq!(whole, 1, "{name}: {stores:?}");
        // Some kernels also write to the memory of a block or of the module.
        assert!(stores.len() == 1 || ["ripples", "pond"].contains(&name), "{name}: {stores:?}");
    }
}

#[test]
fn the_ptx_is_what_the_source_gives() {
    check("source");
}

#[test]
fn the_ptx_assembles_for_every_architecture() {
    check("assemble");
}
