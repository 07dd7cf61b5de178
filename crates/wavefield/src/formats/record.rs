//! The results as they are written to a file: the schema `wavefield-formats/1` (docs/bench-schema.md).

use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::machine::Machine;
use crate::{Result, whole_file};

pub const SCHEMA: &str = "wavefield-formats/1";

/// Everything that one device can share with CUDA.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    pub command: String,
    /// Seconds since 1970, UTC.
    pub started: u64,
    pub machine: Machine,
    /// Whether everything exportable was also taken through CUDA and back.
    pub checked: bool,
    pub semaphores: Vec<Semaphore>,
    pub buffers: Vec<Buffer>,
    /// Every format with every view type.
    pub images: Vec<Image>,
}

impl Report {
    /// Every failure: bytes that differ from those that the other side wrote. Refusals by a driver are not failures.
    pub fn failures(&self) -> Vec<String> {
        self.with(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    /// Everything that a driver refused although Vulkan reports it as exportable.
    pub fn refusals(&self) -> Vec<String> {
        self.with(|outcome| matches!(outcome, Outcome::Refused(_)))
    }

    fn with(&self, wanted: impl Fn(&Outcome) -> bool) -> Vec<String> {
        let mut found = Vec::new();
        let mut add = |name: String, outcome: &Outcome| {
            if wanted(outcome) {
                found.push(format!("{name}: {outcome}"));
            }
        };
        for buffer in &self.buffers {
            buffer.check.iter().for_each(|outcome| add(buffer.kind.clone(), outcome));
        }
        for image in &self.images {
            let name = image.name();
            image.map.iter().for_each(|outcome| add(name.clone(), outcome));
            for (level, outcomes) in image.check.iter().enumerate() {
                outcomes
                    .all()
                    .for_each(|(what, outcome)| add(format!("{name}, level {level}, {what}"), outcome));
            }
        }
        found
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Semaphore {
    /// `binary` or `timeline`.
    pub kind: String,
    /// The handle type of the export; absent if Vulkan does not export it. So for the others below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Buffer {
    /// `dedicated` or `several in one allocation`.
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
    /// Why it is not exported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The result for both directions, if tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Outcome>,
}

/// One format with one view type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Image {
    /// Vulkan's name, without `VK_FORMAT_`.
    pub format: String,
    /// The name from [`vulkan_cuda::ViewType::name`].
    pub view: String,
    /// Whether Vulkan may also draw on it (`COLOR_ATTACHMENT`).
    pub attachment: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
    /// Whether it can only be exported in a dedicated allocation.
    pub dedicated_only: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of the image that was tried.
    pub extent: [u32; 3],
    /// Including faces.
    pub layers: u32,
    pub levels: u32,
    /// Whether CUDA mapped it, if tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<Outcome>,
    /// The results for each level, if tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub check: Vec<Level>,
}

impl Image {
    pub fn name(&self) -> String {
        let attachment = if self.attachment { ", drawn on" } else { "" };
        format!("{} {}{attachment}", self.format, self.view)
    }

    /// The number of levels at which everything passed.
    pub fn passed(&self) -> usize {
        self.check.iter().filter(|level| level.all().all(|(_, outcome)| *outcome == Outcome::Passed)).count()
    }
}

/// The results for one level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Level {
    /// CUDA writes through a surface object, Vulkan reads.
    pub surface_write: Outcome,
    /// Vulkan writes, CUDA reads through a surface object.
    pub surface_read: Outcome,
    /// Vulkan writes, CUDA reads each texel through a texture object.
    pub texture: Outcome,
    /// Vulkan writes, CUDA reads between the texels through a texture object with a linear filter. Only for formats
    /// that filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filtered: Option<Outcome>,
}

impl Level {
    fn all(&self) -> impl Iterator<Item = (&'static str, &Outcome)> {
        let always = [
            ("surface write", &self.surface_write),
            ("surface read", &self.surface_read),
            ("texture", &self.texture),
        ];
        always.into_iter().chain(self.filtered.as_ref().map(|outcome| ("filtered texture", outcome)))
    }
}

/// The result of one try. In the file: `passed`, `failed: …` or `refused: …`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub enum Outcome {
    /// Every byte is as the other side wrote it.
    Passed,
    /// Bytes differ; the text says where.
    Failed(String),
    /// A driver refused; the text is its answer.
    Refused(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed(words) => write!(f, "failed: {words}"),
            Self::Refused(words) => write!(f, "refused: {words}"),
        }
    }
}

impl From<Outcome> for String {
    fn from(outcome: Outcome) -> Self {
        outcome.to_string()
    }
}

/// Writes a report with one image per line, so that two reports can be compared by eye and by `diff`.
pub fn write_json(path: &Path, report: &Report) -> Result<()> {
    whole_file::write(path, |file| file.write_all(lines(report).as_bytes()))
}

fn lines(report: &Report) -> String {
    fn json<T: Serialize>(value: &T) -> String {
        serde_json::to_string(value).unwrap_or_else(|_| unreachable!("plain data"))
    }
    fn rows<T: Serialize>(items: &[T]) -> String {
        let items: Vec<_> = items.iter().map(|item| format!("\n    {}", json(item))).collect();
        format!("[{}\n  ]", items.join(","))
    }
    let fields = [
        ("schema", json(&report.schema)),
        ("command", json(&report.command)),
        ("started", json(&report.started)),
        ("machine", json(&report.machine)),
        ("checked", json(&report.checked)),
        ("semaphores", rows(&report.semaphores)),
        ("buffers", rows(&report.buffers)),
        ("images", rows(&report.images)),
    ];
    let fields = fields.map(|(name, value)| format!("  \"{name}\": {value}"));
    format!("{{\n{}\n}}\n", fields.join(",\n"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A made-up report with every kind of result.
    pub fn sample() -> Report {
        let level = |filtered| Level {
            surface_write: Outcome::Passed,
            surface_read: Outcome::Passed,
            texture: Outcome::Passed,
            filtered,
        };
        let image = |format: &str, view: &str| Image {
            format: format.into(),
            view: view.into(),
            attachment: false,
            handle: Some("OPAQUE_FD".into()),
            dedicated_only: false,
            reason: None,
            extent: [37, 21, 1],
            layers: 1,
            levels: 2,
            map: Some(Outcome::Passed),
            check: vec![level(None), level(Some(Outcome::Passed))],
        };
        let mut broken = image("R8_UNORM", "2d");
        broken.check[1].filtered = Some(Outcome::Failed("3 of 180 texels differ".into()));
        let mut refused = image("R8_UNORM", "3d");
        (refused.map, refused.check) = (Some(Outcome::Refused("invalid argument: 1".into())), Vec::new());
        let mut absent = image("R32_UINT", "cube");
        (absent.handle, absent.map, absent.check) = (None, None, Vec::new());
        absent.reason = Some("the driver has no such image".into());
        let machine = crate::bench::sample_machine();
        Report {
            schema: SCHEMA.into(),
            command: "wavefield devices --formats --check".into(),
            started: 1_767_225_599,
            machine,
            checked: true,
            semaphores: vec![Semaphore { kind: "timeline".into(), handle: Some("OPAQUE_FD".into()) }],
            buffers: vec![Buffer {
                kind: "dedicated".into(),
                handle: Some("OPAQUE_FD".into()),
                reason: None,
                check: Some(Outcome::Passed),
            }],
            images: vec![image("R32_UINT", "2d"), broken, refused, absent],
        }
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let report = sample();
        let text = lines(&report);
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, serde_json::to_value(&report).unwrap());
        assert_eq!(read["images"][2]["map"], "refused: invalid argument: 1");
        assert_eq!(text.lines().filter(|line| line.contains("\"view\"")).count(), 4, "one image a line");
    }

    #[test]
    fn failures_and_refusals_are_told_apart() {
        let report = sample();
        assert_eq!(
            report.failures(),
            ["R8_UNORM 2d, level 1, filtered texture: failed: 3 of 180 texels differ"]
        );
        assert_eq!(report.refusals(), ["R8_UNORM 3d: refused: invalid argument: 1"]);
        assert_eq!(report.images.iter().map(Image::passed).collect::<Vec<_>>(), [2, 1, 0, 0]);
    }
}
