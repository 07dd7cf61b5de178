//! Strips the library. The tests load and copy it hundreds of times, so it should be small.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-s");
}
