//! Every WGSL shader of `wgsl`, compiled to SPIR-V by `build.rs`, so that the build needs no Vulkan SDK.

/// Returns the SPIR-V of an entry point, `FILE.ENTRY`. In a constant, an unknown name fails the build.
pub const fn spirv(name: &str) -> &'static [u8] {
    let mut at = 0;
    while at < MODULES.len() {
        if is_same(MODULES[at].0.as_bytes(), name.as_bytes()) {
            return MODULES[at].1;
        }
        at += 1;
    }
    panic!("no shader has this name");
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

// Defines `MODULES: &[(&str, &[u8])]`.
include!(concat!(env!("OUT_DIR"), "/modules.rs"));
