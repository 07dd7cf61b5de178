//! The kernels that come with this program, by name: `--kernel ripples`.
//!
//! Each file `kernels/NAME.cu` teaches one thing. Most have a matching *shader* in `gallery.wgsl` that
//! computes the same field without CUDA. `run/tests/run/gallery.rs` compares both with a reference.

use std::ffi::CStr;

use crate::contents::wave;
use wavefield_gpu::cuda::{KernelParameters, KernelSource};
use wavefield_gpu::{Error, Result};

#[derive(Debug)]
pub struct GalleryEntry {
    /// The name for `--kernel`, which is also the kernel's entry.
    pub name: &'static str,
    pub about: &'static str,
    /// The matching shader. A kernel without one needs CUDA.
    pub shader: Option<KernelShader>,
    /// Whether neighbours are not connected, so that the vertices are best drawn as points.
    pub points: bool,
    ptx: &'static str,
}

#[derive(Debug)]
pub struct KernelShader {
    pub spirv: &'static [u8],
    pub entry: &'static CStr,
    /// The length of the loop, in seconds. The shader gets the time only as a fraction of this.
    pub repeats: f64,
    /// The PTX that declares the parameters of the kernel and the shader.
    ptx: &'static str,
}

macro_rules! ptx {
    // The wave's PTX is that of the demo.
    ("wave") => {
        include_str!("../../../../kernels/wave.ptx")
    };
    ($name:literal) => {
        include_str!(concat!("../../kernels/", $name, ".ptx"))
    };
}

macro_rules! shader {
    ($name:tt, $entry:literal, $repeats:expr) => {
        KernelShader {
            spirv: wavefield_gpu::shaders::spirv(concat!("gallery.", $name)),
            entry: $entry,
            repeats: $repeats,
            ptx: ptx!($name),
        }
    };
}

macro_rules! entry {
    ($name:tt, $shader:expr, points: $points:literal, $about:literal) => {
        GalleryEntry { name: $name, about: $about, shader: $shader, points: $points, ptx: ptx!($name) }
    };
}

/// The shader of the default kernel.
pub const WAVE: KernelShader = shader!("wave", c"wave", wave::LOOP);

/// The kernels, the default first.
pub static GALLERY: [GalleryEntry; 5] = [
    entry!("wave", Some(WAVE), points: false,
        "three waves and a ripple; how a kernel stays exact when the time is large"),
    entry!("ripples", Some(shader!("ripples", c"ripples", 20.0)), points: false,
        "rings around moving sources; memory that a block shares"),
    entry!("ocean", Some(shader!("ocean", c"ocean", 40.0)), points: false,
        "Gerstner waves; fast sines and cosines, and normals from a formula"),
    entry!("pond", None, points: false,
        "drops in a pond; state between frames, and neighbours without a race"),
    entry!("swarm", Some(shader!("swarm", c"swarm", 60.0)), points: true,
        "particles around a ring; random numbers without memory"),
];

/// Returns the entry that `--kernel ARGUMENT` names, or `None` for a file, whose name has a dot or a slash.
pub fn named(argument: &str) -> Result<Option<&'static GalleryEntry>> {
    if argument.contains(['.', '/', '\\', ':']) {
        return Ok(None);
    }
    let entry = GALLERY.iter().find(|entry| entry.name == argument);
    entry.map(Some).ok_or_else(|| {
        let names: Vec<_> = GALLERY.iter().map(|entry| entry.name).collect();
        Error::Usage(format!(
            "--kernel {argument}: the gallery has no such kernel, it has {}; a file's name ends with .ptx or .cu, or \
             begins with ./",
            names.join(", ")
        ))
    })
}

/// Lists the names of the kernels that run without CUDA.
pub fn with_shaders() -> String {
    let with: Vec<_> =
        GALLERY.iter().filter(|entry| entry.shader.is_some()).map(|entry| entry.name).collect();
    with.join(", ")
}

/// Returns the entry of a kernel, or `None` for the user's own kernel. Without a kernel, returns the default.
pub fn entry_of(kernel: Option<&KernelSource>) -> Option<&'static GalleryEntry> {
    match kernel {
        None => Some(&GALLERY[0]),
        Some(kernel) => GALLERY.iter().find(|entry| kernel.built_in == Some(entry.name)),
    }
}

impl GalleryEntry {
    pub fn source(&self) -> KernelSource {
        let source = KernelSource::new(&format!("the built-in {}", self.name), self.ptx, self.name);
        KernelSource { built_in: Some(self.name), ..source }
    }
}

impl KernelShader {
    /// Returns the parameters of the kernel and the shader. The shader's values begin with theirs.
    pub fn parameters(&self) -> KernelParameters {
        // This does not fail, because a test parses the same PTX.
        KernelParameters::of(self.ptx).unwrap_or_default()
    }

    /// Returns the position of `time` in the loop, 0 to 1.
    pub fn phase(&self, time: f64) -> f32 {
        (time / self.repeats).rem_euclid(1.0) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wavefield_gpu::cuda::Signature;

    #[test]
    fn every_kernel_has_its_entry_and_signature() {
        for entry in &GALLERY {
            entry.source().check_signature(Signature::Field).unwrap();
            assert!(std::ptr::eq(entry_of(Some(&entry.source())).unwrap(), entry));
            assert!(std::ptr::eq(named(entry.name).unwrap().unwrap(), entry));
        }
        let default = entry_of(None).unwrap();
        assert!(default.name == "wave" && default.ptx == include_str!("../../../../kernels/wave.ptx"));
    }

    /// The PTX, its source and the shader declare the same parameters, and the shader has room for them.
    #[test]
    fn every_kernel_declares_its_parameters() {
        for entry in &GALLERY {
            let folder = if entry.name == "wave" { "../../kernels" } else { "kernels" };
            let source = format!("{}/{folder}/{}.cu", env!("CARGO_MANIFEST_DIR"), entry.name);
            let parameters = entry.source().parameters().unwrap();
            assert_eq!(KernelParameters::of(&std::fs::read_to_string(source).unwrap()).unwrap(), parameters);
            assert!((2..=4).contains(&parameters.len()), "{}: {parameters}", entry.name);
            assert!(entry.shader.as_ref().is_none_or(|shader| shader.parameters() == parameters));
        }
    }

    #[test]
    fn a_name_is_of_the_gallery_and_all_else_a_file() {
        for file in ["wave.ptx", "./wave", "dir\\wave", "wave:wave", ".", "/"] {
            assert!(named(file).unwrap().is_none(), "{file}");
        }
        for name in ["waves", "", "Wave"] {
            let error = named(name).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains("wave, ripples, ocean, pond, swarm"), "{error}");
        }
        assert!(
            entry_of(Some(&KernelSource { built_in: None, ..crate::contents::built_in::wave() })).is_none()
        );
    }
}
