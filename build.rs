//! Compiles `shaders/*.wgsl` to SPIR-V with naga, so that the build needs no Vulkan SDK.
//!
//! Each entry point becomes a module of its own, `FILE.ENTRY.spv`.

use std::path::{Path, PathBuf};
use std::{env, fs};

use naga::back::spv;
use naga::valid::{Capabilities, ValidationFlags, Validator};

fn main() {
    println!("cargo::rerun-if-changed=shaders");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for entry in fs::read_dir("shaders").expect("the folder shaders is part of the package") {
        let path = entry.expect("a readable folder").path();
        if path.extension().is_some_and(|extension| extension == "wgsl") {
            let name = path.file_stem().expect("a shader has a name").to_string_lossy();
            for (entry, spirv) in compile(&path) {
                fs::write(out.join(format!("{name}.{entry}.spv")), spirv).expect("OUT_DIR is writable");
            }
        }
    }
}

/// Returns the name and SPIR-V of each entry point.
fn compile(path: &Path) -> Vec<(String, Vec<u8>)> {
    let name = path.display().to_string();
    let source = fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let module = naga::front::wgsl::parse_str(&source).unwrap_or_else(|error| {
        panic!("{}", error.emit_to_string_with_path(&source, &name));
    });
    // Immediates are Vulkan's push constants.
    let info = Validator::new(ValidationFlags::all(), Capabilities::IMMEDIATES)
        .validate(&module)
        .unwrap_or_else(|error| panic!("{}", error.emit_to_string_with_path(&source, &name)));
    let options = spv::Options {
        lang_version: (1, 3),
        // Without ADJUST_COORDINATE_SPACE, which would flip Y: the camera's projection is for Vulkan already.
        flags: spv::WriterFlags::empty(),
        ..Default::default()
    };
    let module_of = |entry: &naga::EntryPoint| {
        let only = spv::PipelineOptions { shader_stage: entry.stage, entry_point: entry.name.clone() };
        let words = spv::write_vec(&module, &info, &options, Some(&only))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        (entry.name.clone(), words.iter().flat_map(|word| word.to_ne_bytes()).collect())
    };
    module.entry_points.iter().map(module_of).collect()
}
