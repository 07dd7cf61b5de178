//! Measures `wavefield --web` as its viewers see it: `measure_web PROGRAM [OPTION…]`. The options go to the
//! program.
//!
//! Each viewer is a page without a browser. It takes each picture as soon as it is there. A slow link is a
//! proxy that lets so many bits through in each second.

#[cfg(target_os = "linux")]
mod measure;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    #[cfg(target_os = "linux")]
    return measure::main();
    #[cfg(not(target_os = "linux"))]
    Err("--web runs on Linux only".into())
}
