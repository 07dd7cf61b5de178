//! The WGSL shaders in `wgsl`, compiled to SPIR-V by `build.rs`, so that the build needs no Vulkan SDK.

/// Returns the SPIR-V of the entry point `FILE.ENTRY`. In a const context, an unknown name fails the build.
pub const fn spirv(name: &str) -> &'static [u8] {
    // A `match` on `name` with an arm for each entry point.
    include!(concat!(env!("OUT_DIR"), "/modules.rs"))
}
