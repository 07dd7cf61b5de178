//! The results: the schema `wavefield-formats/2` (docs/bench-schema.md), and the table for people.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use vulkan_cuda::handle::ExportType;

use wavefield_gpu::machine::Machine;

pub(super) const SCHEMA: &str = "wavefield-formats/2";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub schema: String,
    pub command: String,
    pub started: u64,
    pub machine: Machine,
    pub checked: bool,
    pub semaphores: Vec<Object>,
    pub buffers: Vec<Object>,
    pub images: Vec<Object>,
    pub instead: Vec<Object>,
    pub failed: Vec<String>,
    pub refused: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    pub name: String,
    pub kind: String,
    pub handle: Option<String>,
    pub reason: Option<String>,
    pub levels: u32,
    pub passed: Option<u32>,
}

impl Object {
    pub(super) fn new(name: &str, kind: &str, levels: u32, export: Result<ExportType, String>) -> Self {
        let handle = export.as_ref().ok().map(|handle| handle.name().to_owned());
        let (name, kind) = (name.to_owned(), kind.to_owned());
        Self { name, kind, handle, reason: export.err(), levels, passed: None }
    }

    pub(super) fn full_name(&self) -> String {
        format!("{} {}", self.name, self.kind)
    }

    fn exported(&self) -> String {
        match (&self.handle, &self.reason) {
            (Some(handle), _) => format!("exported as {handle}"),
            (None, reason) => format!("not exported: {}", reason.as_deref().unwrap_or("no reason given")),
        }
    }

    fn cell(&self) -> String {
        match (&self.handle, self.passed) {
            (None, _) => "-".into(),
            (Some(_), None) => format!("yes {}", self.levels),
            (Some(_), Some(passed)) => format!("{passed}/{}", self.levels),
        }
    }
}

/// A line for each format, a column for each view type, and the reasons below.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(f, "device      {} ({}), Vulkan {}", machine.gpu, machine.driver, machine.vulkan)?;
        for object in self.semaphores.iter().chain(&self.buffers).chain(&self.instead) {
            let verdict = match object.passed {
                None => "",
                Some(0) => ", but see below",
                Some(_) => ", passed",
            };
            writeln!(f, "{:11} {}: {}{verdict}", object.name, object.kind, object.exported())?;
        }
        self.table(f)?;
        let meaning = match self.checked {
            true => {
                "n/m: of m levels n passed: written by CUDA and read by Vulkan, and the other way round, by surface \
                 and texture"
            }
            false => "yes N: exported, with N levels",
        };
        write!(f, "\n{meaning}; -: not exported")?;
        // Each answer once, with every image that has it.
        let mut answers = BTreeMap::<String, Vec<String>>::new();
        for image in &self.images {
            answers.entry(image.exported()).or_default().push(image.full_name());
        }
        for (answer, names) in answers {
            match names.len() == self.images.len() {
                true => write!(f, "\nevery image is {answer}")?,
                false => write!(f, "\n{answer}: {}", names.join("; "))?,
            }
        }
        self.refused.iter().try_for_each(|words| write!(f, "\nrefused: {words}"))?;
        self.failed.iter().try_for_each(|words| write!(f, "\nfailed: {words}"))
    }
}

impl Report {
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut kinds, mut names) = (Vec::new(), Vec::new());
        for image in &self.images {
            if !kinds.contains(&&image.kind) {
                kinds.push(&image.kind);
            }
            if !names.contains(&&image.name) {
                names.push(&image.name);
            }
        }
        let first = names.iter().map(|name| name.len()).max().unwrap_or(0);
        let line = |name: &str, cells: Vec<String>| {
            let widths = kinds.iter().map(|kind| kind.len().max(8));
            let cells = cells.iter().zip(widths).map(|(cell, width)| format!("  {cell:width$}"));
            format!("{name:first$}{}", cells.collect::<String>()).trim_end().to_owned()
        };
        writeln!(f, "\n{}", line("format", kinds.iter().map(|kind| kind.to_string()).collect()))?;
        for name in names {
            let of = |kind: &str| self.images.iter().find(|image| image.name == *name && image.kind == kind);
            let cells = kinds.iter().map(|&kind| of(kind).map_or(String::new(), Object::cell));
            writeln!(f, "{}", line(name, cells.collect()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_cell_and_every_reason() {
        let handle = || Ok(ExportType::OpaqueFd);
        let image =
            |name: &str, kind: &str, passed| Object { passed, ..Object::new(name, kind, 2, handle()) };
        let absent = Object::new("R32_UINT", "cube", 2, Err("the driver has no such image".into()));
        let report = Report {
            schema: SCHEMA.into(),
            command: "wavefield devices --formats --check".into(),
            started: 1_767_225_599,
            machine: Machine::default(),
            checked: true,
            semaphores: vec![Object::new("semaphore", "timeline", 1, handle())],
            buffers: vec![Object { passed: Some(1), ..Object::new("buffers", "dedicated", 1, handle()) }],
            images: vec![
                image("R32_UINT", "2d", Some(2)),
                image("R8_UNORM", "2d", Some(1)),
                image("R8_UNORM", "3d", Some(0)),
                absent,
            ],
            instead: vec![Object { passed: Some(0), ..Object::new("NV12", "as two images", 1, handle()) }],
            failed: vec!["R8_UNORM 2d, level 1, filtered texture: 3 of 180 texels differ".into()],
            refused: vec!["R8_UNORM 3d: invalid argument: 1".into()],
        };
        let text = report.to_string();
        let row = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(row("format"), ["format", "2d", "3d", "cube"]);
        assert_eq!(row("R8_UNORM"), ["R8_UNORM", "1/2", "0/2"]);
        assert_eq!(row("R32_UINT"), ["R32_UINT", "2/2", "-"]);
        for part in [
            "semaphore   timeline: exported as OPAQUE_FD",
            "buffers     dedicated: exported as OPAQUE_FD, passed",
            "NV12        as two images: exported as OPAQUE_FD, but see below",
            "exported as OPAQUE_FD: R32_UINT 2d; R8_UNORM 2d; R8_UNORM 3d",
            "not exported: the driver has no such image: R32_UINT cube",
            "refused: R8_UNORM 3d: invalid argument: 1",
            "failed: R8_UNORM 2d, level 1, filtered texture: 3 of 180 texels differ",
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
    }
}
