//! Strips the library. The tests load and copy it hundreds of times, so it should be small.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-s");
    // Vulkan's loader unloads its layers when an instance cannot be made. Loaded again, the library would have
    // forgotten the calls before, and its second report would replace the first.
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
