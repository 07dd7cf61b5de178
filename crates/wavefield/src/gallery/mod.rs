//! The kernels that come with this program, by name: `--kernel ripples`.
//!
//! Each is a file `kernels/NAME.cu` that teaches one thing. Most have a *twin*: a compute shader
//! (`shaders/gallery.wgsl`) that computes the same field on machines without CUDA. If a vertex depends on the time
//! alone, there is also a reference in double precision, with which kernel and twin are compared.

mod ocean;
mod ripples;
mod swarm;

use std::ffi::CStr;

use crate::cuda::{KernelParameters, KernelSource};
use crate::wave::{self, Grid, Shape};
use crate::{Error, Result};

#[derive(Debug)]
pub struct Entry {
    /// The name for `--kernel`, and the name of the kernel's entry.
    pub name: &'static str,
    pub about: &'static str,
    /// The same field as a compute shader. A kernel without a twin needs CUDA.
    pub twin: Option<Twin>,
    /// Whether its vertices are particles. They are best drawn as points, because neighbours are not connected.
    pub points: bool,
    /// Computes a vertex in double precision; `None` if a vertex depends on earlier frames.
    pub reference: Option<Reference>,
    ptx: &'static str,
}

/// Computes `[x, y, z, w]` of a vertex from the grid, its column and row, the seconds since the start, and the values
/// of the kernel's parameters.
pub type Reference = fn(Grid, u32, u32, f64, &[f32]) -> [f64; 4];

#[derive(Debug)]
pub struct Twin {
    /// SPIR-V with one entry point.
    pub(crate) spirv: &'static [u8],
    pub(crate) entry: &'static CStr,
    /// Seconds after which the field repeats. The shader gets the time only as a fraction of this.
    pub(crate) repeats: f64,
    /// The kernel's PTX, which declares the parameters that both have.
    ptx: &'static str,
}

/// The largest allowed distance of kernel and twin from the reference, in units of [`wave::HEIGHT`]. Angles are
/// single-precision numbers of up to 40 turns.
pub const TOLERANCE: f64 = 4e-5;

macro_rules! ptx {
    // The wave is the demo's.
    ("wave") => {
        include_str!("../../../../kernels/wave.ptx")
    };
    ($name:literal) => {
        include_str!(concat!("../../kernels/", $name, ".ptx"))
    };
}

macro_rules! twin {
    ($name:tt, $entry:literal, $repeats:expr) => {
        Twin {
            spirv: include_bytes!(concat!(env!("OUT_DIR"), "/gallery.", $name, ".spv")),
            entry: $entry,
            repeats: $repeats,
            ptx: ptx!($name),
        }
    };
}

static GALLERY: [Entry; 5] = [
    Entry {
        name: "wave",
        about: "three waves and a ripple; how a kernel stays exact when the time is large",
        twin: Some(twin!("wave", c"wave", wave::LOOP)),
        points: false,
        reference: Some(|grid, col, row, time, values| {
            wave::reference(grid, col, row, time, Shape::of(values))
        }),
        ptx: ptx!("wave"),
    },
    Entry {
        name: "ripples",
        about: "rings around moving sources; memory that a block shares",
        twin: Some(twin!("ripples", c"ripples", ripples::LOOP)),
        points: false,
        reference: Some(ripples::reference),
        ptx: ptx!("ripples"),
    },
    Entry {
        name: "ocean",
        about: "Gerstner waves; fast sines and cosines, and normals from a formula",
        twin: Some(twin!("ocean", c"ocean", ocean::LOOP)),
        points: false,
        reference: Some(ocean::reference),
        ptx: ptx!("ocean"),
    },
    Entry {
        name: "pond",
        about: "drops in a pond; state between frames, and neighbours without a race",
        twin: None,
        points: false,
        reference: None,
        ptx: ptx!("pond"),
    },
    Entry {
        name: "swarm",
        about: "particles around a ring; random numbers without memory",
        twin: Some(twin!("swarm", c"swarm", swarm::LOOP)),
        points: true,
        reference: Some(swarm::reference),
        ptx: ptx!("swarm"),
    },
];

/// Every kernel of the gallery. The first is the default.
pub fn gallery() -> &'static [Entry] {
    &GALLERY
}

/// The entry that `--kernel ARGUMENT` names, or `None` if that names a file. A file's name has a dot; a path has a slash.
pub fn named(argument: &str) -> Result<Option<&'static Entry>> {
    if argument.contains(['.', '/', '\\', ':']) {
        return Ok(None);
    }
    match GALLERY.iter().find(|entry| entry.name == argument) {
        Some(entry) => Ok(Some(entry)),
        None => {
            let names: Vec<_> = GALLERY.iter().map(|entry| entry.name).collect();
            Err(Error::Usage(format!(
                "--kernel {argument}: the gallery has no such kernel, it has {}; a file's name ends with .ptx or .cu, or \
                 begins with ./",
                names.join(", ")
            )))
        }
    }
}

/// The names of the kernels that run without CUDA.
pub fn with_twins() -> String {
    let with: Vec<_> = GALLERY.iter().filter(|entry| entry.twin.is_some()).map(|entry| entry.name).collect();
    with.join(", ")
}

/// The entry that a kernel comes from; the default one for no kernel, and `None` for the user's own kernel.
pub fn entry_of(kernel: Option<&KernelSource>) -> Option<&'static Entry> {
    match kernel {
        None => Some(&GALLERY[0]),
        Some(kernel) => GALLERY.iter().find(|entry| kernel.gallery == Some(entry.name)),
    }
}

impl Entry {
    pub fn source(&self) -> KernelSource {
        KernelSource {
            name: format!("the built-in {}", self.name),
            ptx: self.ptx.into(),
            entry: self.name.into(),
            cubin: None,
            gallery: Some(self.name),
        }
    }
}

impl Twin {
    pub(crate) fn wave() -> &'static Self {
        static WAVE: Twin = twin!("wave", c"wave", wave::LOOP);
        &WAVE
    }

    /// The parameters of the shader. They are the first of its values.
    pub(crate) fn parameters(&self) -> KernelParameters {
        // A test reads them too, so they are valid.
        KernelParameters::of(self.ptx).unwrap_or_default()
    }

    /// The position of `time` in the loop, 0 to 1.
    pub(crate) fn phase(&self, time: f64) -> f32 {
        (time / self.repeats).rem_euclid(1.0) as f32
    }
}

/// The x and z of a vertex in the domain, which is [-1, 1] in each direction.
fn place(grid: Grid, col: u32, row: u32) -> (f64, f64) {
    let at = |index, count| 2.0 * f64::from(index) / f64::from(count - 1) - 1.0;
    (at(col, grid.cols), at(row, grid.rows))
}

/// The values of `COUNT` parameters. A missing value becomes NaN, so that no vertex agrees.
fn numbers<const COUNT: usize>(values: &[f32]) -> [f64; COUNT] {
    std::array::from_fn(|index| values.get(index).map_or(f64::NAN, |&value| value.into()))
}

/// The sine of an angle in whole turns.
fn sine(turns: f64) -> f64 {
    (std::f64::consts::TAU * turns).sin()
}

/// The cosine of an angle in whole turns.
fn cosine(turns: f64) -> f64 {
    (std::f64::consts::TAU * turns).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::Signature;

    #[test]
    fn every_kernel_has_its_entry_and_signature() {
        for entry in gallery() {
            entry.source().check_signature(Signature::Field).unwrap();
            assert!(std::ptr::eq(entry_of(Some(&entry.source())).unwrap(), entry));
            assert!(std::ptr::eq(named(entry.name).unwrap().unwrap(), entry));
        }
        let default = entry_of(None).unwrap();
        assert!(default.name == "wave" && default.source() == KernelSource::built_in());
    }

    /// The PTX, its source and the shader declare the same parameters, and the shader has room for them.
    #[test]
    fn every_kernel_declares_its_parameters() {
        for entry in gallery() {
            let folder = if entry.name == "wave" { "../../kernels" } else { "kernels" };
            let source = format!("{}/{folder}/{}.cu", env!("CARGO_MANIFEST_DIR"), entry.name);
            let parameters = entry.source().parameters().unwrap();
            assert_eq!(KernelParameters::of(&std::fs::read_to_string(source).unwrap()).unwrap(), parameters);
            assert!((2..=4).contains(&parameters.len()), "{}: {parameters}", entry.name);
            assert!(entry.twin.as_ref().is_none_or(|twin| twin.parameters() == parameters));
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
        assert!(entry_of(Some(&KernelSource { gallery: None, ..KernelSource::built_in() })).is_none());
    }

    /// The end of the loop meets the start, y stays in the camera's view, and colours stay nearly within the map.
    #[test]
    fn every_reference_repeats_and_stays_in_the_picture() {
        let grid = Grid { cols: 61, rows: 47 };
        for entry in gallery() {
            let (Some(twin), Some(reference)) = (&entry.twin, entry.reference) else { continue };
            let values = twin.parameters().values(&[]);
            for step in 0..40 {
                let time = twin.repeats * f64::from(step) / 40.0 + 0.01;
                for (col, row) in (0..grid.cols).flat_map(|col| (0..grid.rows).map(move |row| (col, row))) {
                    let now = reference(grid, col, row, time, &values);
                    let later = reference(grid, col, row, time + twin.repeats, &values);
                    let name = format!("{} ({col}, {row}) at {time} s: {now:?}", entry.name);
                    assert!(now.iter().zip(later).all(|(a, b)| (a - b).abs() < 1e-9), "{name}, {later:?}");
                    assert!(now[0].abs() < 1.2 && now[1].abs() < 0.4 && now[2].abs() < 1.2, "{name}");
                    assert!((-0.15..1.25).contains(&now[3]), "{name}");
                }
            }
        }
    }
}
