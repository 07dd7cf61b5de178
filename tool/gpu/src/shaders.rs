//! The WGSL shaders in `wgsl`, compiled to SPIR-V by `build.rs`, so that the build needs no Vulkan SDK.

/// Returns the SPIR-V of the entry point called `name`, in the form `FILE.ENTRY`. Panics if there is none;
/// in a const context, that fails the build.
pub const fn spirv(name: &str) -> &'static [u8] {
    // The included file is a `match` on `name`, with one arm for each entry point.
    include!(concat!(env!("OUT_DIR"), "/modules.rs"))
}
