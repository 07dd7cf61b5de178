//! Compiles `wgsl/*.wgsl` to SPIR-V with naga, so that the build needs no Vulkan SDK.
//!
//! Each entry point becomes a separate module, `FILE.ENTRY.spv`. With several entry points in one
//! module, SwiftShader looks in a pipeline's layout for the descriptors of all of them, and crashes.
//!
//! A line `//!use NAME` stands for `wgsl/parts/NAME.wgsl`.

use std::path::{Path, PathBuf};
use std::{env, fs};

use naga::back::spv;
use naga::valid::{Capabilities, ValidationFlags, Validator};

fn main() {
    println!("cargo::rerun-if-changed=wgsl");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut modules = String::from("match name.as_bytes() {\n");
    for entry in fs::read_dir("wgsl").expect("the folder wgsl is part of the package") {
        let path = entry.expect("a readable folder").path();
        if path.extension().is_some_and(|extension| extension == "wgsl") {
            let name = path.file_stem().expect("a shader has a name").to_string_lossy();
            for (entry, spirv) in compile(&path) {
                let file = format!("{name}.{entry}.spv");
                fs::write(out.join(&file), spirv).expect("OUT_DIR is writable");
                modules += &format!("    b\"{name}.{entry}\" => include_bytes!(\"{file}\"),\n");
            }
        }
    }
    modules += "    _ => panic!(\"no shader has this name\"),\n}\n";
    fs::write(out.join("modules.rs"), modules).expect("OUT_DIR is writable");
}

/// Returns the source of a shader. Replaces each `//!use` line by the part that it names.
fn joined(path: &Path) -> String {
    let read =
        |path: &Path| fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let whole = |line: &str| match line.strip_prefix("//!use ") {
        Some(name) => read(&path.with_file_name("parts").join(name).with_extension("wgsl")),
        None => format!("{line}\n"),
    };
    read(path).lines().map(whole).collect()
}

fn compile(path: &Path) -> Vec<(String, Vec<u8>)> {
    let source = joined(path);
    let name = path.display().to_string();
    let module = naga::front::wgsl::parse_str(&source).unwrap_or_else(|error| {
        panic!("{}", error.emit_to_string_with_path(&source, &name));
    });
    // naga calls push constants immediates. Every Vulkan device supports half floats packed in integers. Only the shaders
    // `…_raster` use 64-bit integers, which `AdapterInfo::atomics64` is for.
    let capabilities = Capabilities::IMMEDIATES
        | Capabilities::SHADER_FLOAT16_IN_FLOAT32
        | Capabilities::SHADER_INT64
        | Capabilities::SHADER_INT64_ATOMIC_MIN_MAX
        | Capabilities::SHADER_INT64_ATOMIC_ALL_OPS;
    let info =
        Validator::new(ValidationFlags::all(), capabilities).validate(&module).unwrap_or_else(|error| {
            panic!("{}", error.emit_to_string_with_path(&source, &name));
        });
    let options = spv::Options {
        lang_version: (1, 3),
        // Do not set ADJUST_COORDINATE_SPACE, which flips Y: the camera's projection is already Vulkan's.
        flags: spv::WriterFlags::empty(),
        // Others than these rely on zeros in workgroups' memory.
        zero_initialize_workgroup_memory: match name.contains("_raster") {
            true => spv::ZeroInitializeWorkgroupMemoryMode::None,
            false => spv::ZeroInitializeWorkgroupMemoryMode::Polyfill,
        },
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
