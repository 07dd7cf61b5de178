//! Without symbols and debug information the library is small: the tests load and copy it hundreds of times.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-s");
}
