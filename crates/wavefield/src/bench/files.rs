//! Reports as files: JSON, which is read back, and CSV for other programs.

use std::io;
use std::path::Path;

use serde_json::Value;

use super::record::{Cell, Report, SCHEMA};
use crate::{Error, Result, plain_file, whole_file};

/// The largest record in bytes, many times what the longest benchmark writes.
const MAX_RECORD: u64 = 64 << 20;

/// Reads a report that `--json` wrote.
pub fn read_json(path: &Path) -> Result<Report> {
    let failed = |source| Error::Io { action: "read", path: path.to_owned(), source };
    let bytes = plain_file::read(path, MAX_RECORD)?;
    parse(&bytes).map_err(|problem| failed(io::Error::new(io::ErrorKind::InvalidData, problem)))
}

fn parse(bytes: &[u8]) -> Result<Report, String> {
    if bytes.trim_ascii().is_empty() {
        return Err("the file is empty; run the benchmark again with --json".into());
    }
    let value: Value =
        serde_json::from_slice(bytes).map_err(|error| match error.is_eof() || is_cut(bytes) {
            true => format!("the file is cut short ({error}); copy it again, or run the benchmark again"),
            false => format!("the file is not JSON ({error}); give a file that wavefield bench --json wrote"),
        })?;
    match value["schema"].as_str() {
        Some(SCHEMA) => serde_json::from_value(value).map_err(|error| {
            format!("its schema is {SCHEMA}, but it does not match that ({error}); run the benchmark again")
        }),
        Some(other) if other.starts_with("wavefield-bench/") => Err(format!(
            "it has schema {} and this version reads {SCHEMA}; run the benchmark again with this version, or read the file \
             with the one that wrote it",
            other.escape_debug()
        )),
        _ => Err("it is not a result of wavefield bench; give a file that its --json wrote".into()),
    }
}

/// Whether an object begins and does not end. The parser does not report a cut inside a number as the end of the file.
fn is_cut(bytes: &[u8]) -> bool {
    let text = bytes.trim_ascii();
    text.starts_with(b"{") && !text.ends_with(b"}")
}

type Column = (&'static str, fn(&Report, &Cell) -> String);

const COLUMNS: [Column; 47] = [
    ("schema", |run, _| run.schema.clone()),
    ("complete", |run, _| run.complete.to_string()),
    ("command", |run, _| run.command.clone()),
    ("started", |run, _| run.started.to_string()),
    ("gpu", |run, _| run.machine.gpu.clone()),
    ("driver", |run, _| run.machine.driver.clone()),
    ("vulkan", |run, _| run.machine.vulkan.clone()),
    ("cuda", |run, _| run.machine.cuda.clone().unwrap_or_default()),
    ("cpu", |run, _| run.machine.cpu.clone()),
    ("threads", |run, _| run.machine.threads.to_string()),
    ("os", |run, _| run.machine.os.clone()),
    ("wavefield", |run, _| run.machine.wavefield.clone()),
    ("build", |run, _| run.machine.build.clone()),
    ("scene", |run, _| run.settings.scene.clone()),
    ("width", |run, _| run.settings.size[0].to_string()),
    ("height", |run, _| run.settings.size[1].to_string()),
    ("samples", |run, _| run.settings.samples.to_string()),
    ("rounds", |run, _| run.settings.rounds.to_string()),
    ("warmup_frames", |run, _| run.settings.warmup_frames.to_string()),
    ("round_ms", |run, _| run.settings.round_ms.to_string()),
    ("strategy", |_, cell| cell.strategy.clone()),
    ("ring", |_, cell| cell.ring.to_string()),
    ("batch", |_, cell| cell.batch.to_string()),
    ("grid_cols", |_, cell| cell.grid[0].to_string()),
    ("grid_rows", |_, cell| cell.grid[1].to_string()),
    ("frames", |_, cell| cell.frames.to_string()),
    ("frame_mean_us", |_, cell| number(cell.frame_us.mean)),
    ("frame_p50_us", |_, cell| number(cell.frame_us.p50)),
    ("frame_p95_us", |_, cell| number(cell.frame_us.p95)),
    ("frame_p99_us", |_, cell| number(cell.frame_us.p99)),
    ("frame_max_us", |_, cell| number(cell.frame_us.max)),
    ("frames_per_second", |_, cell| number(cell.frames_per_second())),
    ("kernel_us", |_, cell| number(cell.kernel_us)),
    ("memset_us", |_, cell| number(cell.memset_us)),
    ("draw_us", |_, cell| number(cell.draw_us)),
    ("cpu_mean_us", |_, cell| number(cell.cpu_us.mean)),
    ("cpu_p50_us", |_, cell| number(cell.cpu_us.p50)),
    ("cpu_p95_us", |_, cell| number(cell.cpu_us.p95)),
    ("cpu_p99_us", |_, cell| number(cell.cpu_us.p99)),
    ("cpu_max_us", |_, cell| number(cell.cpu_us.max)),
    ("cores", |_, cell| number(cell.cores)),
    ("blocking_waits", |_, cell| number(cell.blocking_waits)),
    ("bytes", |_, cell| cell.bytes.to_string()),
    ("latency_frames", |_, cell| number(cell.latency_frames)),
    ("overhead_us", |_, cell| number(cell.overhead_us)),
    ("spread", |_, cell| number(cell.spread)),
    ("noisy", |_, cell| cell.noisy.to_string()),
];

/// A figure; empty if it is absent or not finite.
fn number(value: impl Into<Option<f64>>) -> String {
    value.into().filter(|value| value.is_finite()).map_or_else(String::new, |value| value.to_string())
}

/// Writes one row for each cell, whole or not at all. Every row has the machine and the settings, so that files of several runs
/// can be joined without losing where a row is from.
pub fn write_csv(path: &Path, report: &Report) -> Result<()> {
    whole_file::write(path, |file| {
        let mut writer = csv::Writer::from_writer(file);
        writer.write_record(COLUMNS.map(|(name, _)| name)).map_err(io::Error::from)?;
        for cell in &report.cells {
            writer.write_record(COLUMNS.map(|(_, value)| value(report, cell))).map_err(io::Error::from)?;
        }
        writer.flush()
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use crate::write_json;

    fn problem(bytes: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        std::fs::write(&path, bytes).unwrap();
        let error = read_json(&path).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        let text = error.to_string();
        assert!(text.contains("cannot read") && text.contains("run.json"), "{text}");
        text
    }

    #[test]
    fn what_is_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        let report = sample::report();
        write_json(&path, &report).unwrap();
        assert!(read_json(&path).unwrap() == report);
        let none = Report { cells: Vec::new(), ..report };
        write_json(&path, &none).unwrap();
        assert_eq!(read_json(&path).unwrap(), none);
    }

    #[test]
    fn a_figure_that_json_lacks_is_refused_and_the_old_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        std::fs::write(&path, "old").unwrap();
        let mut report = sample::report();
        report.cells[0].frame_us.mean = f64::NAN;
        let text = write_json(&path, &report).unwrap_err().to_string();
        assert!(text.contains("cannot write") && text.contains("finite"), "{text}");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
    }

    #[test]
    fn a_file_cut_anywhere_is_said_to_be_cut() {
        let whole = serde_json::to_vec_pretty(&sample::small()).unwrap();
        let mut cut = 1;
        while cut < whole.len() {
            let text = problem(&whole[..cut]);
            assert!(text.contains("cut short") && text.contains("again"), "{cut}: {text}");
            cut += 61;
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_apart() {
        assert!(problem(b" \n").contains("empty"));
        assert!(problem(b"strategy,ring\n").contains("not JSON"));
        assert!(problem(b"\xff\xfe{}").contains("not JSON"));
        for foreign in ["{}", "[]", "[1, 2]", "7", "{\"schema\": 3}", "{\"schema\": \"other/1\"}"] {
            assert!(problem(foreign.as_bytes()).contains("not a result of wavefield bench"), "{foreign}");
        }
        let text = problem(b"{\"schema\": \"wavefield-bench/3\", \"cells\": 5}");
        assert!(
            text.contains("wavefield-bench/3") && text.contains(SCHEMA) && text.contains("again"),
            "{text}"
        );
        let text = problem(format!("{{\"schema\": \"{SCHEMA}\"}}").as_bytes());
        assert!(text.contains("does not match that") && text.contains("missing field"), "{text}");
        let mut broken = serde_json::to_value(sample::small()).unwrap();
        broken["cells"][0]["ring"] = (-3).into();
        assert!(problem(broken.to_string().as_bytes()).contains("does not match that"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let text = read_json(Path::new("/no/such/run.json")).unwrap_err().to_string();
        assert!(text.contains("/no/such/run.json"), "{text}");
    }

    #[test]
    fn csv_has_a_row_for_each_cell_and_quotes_what_it_must() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.csv");
        let mut report = sample::report();
        report.machine.gpu = "Toy \"GPU\", large".into();
        report.machine.cuda = None;
        report.cells[0].kernel_us = None;
        report.cells[1].draw_us = Some(f64::NAN);
        write_csv(&path, &report).unwrap();

        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("schema,complete,command,"));
        assert!(text.contains("\"Toy \"\"GPU\"\", large\""));

        let mut reader = csv::Reader::from_path(&path).unwrap();
        let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
        assert_eq!(rows.len(), report.cells.len());
        let headers = reader.headers().unwrap().clone();
        let column = |name: &str| headers.iter().position(|header| header == name).unwrap();
        let (row, cell) = (&rows[7], &report.cells[7]);
        assert_eq!(&row[column("gpu")], "Toy \"GPU\", large");
        assert_eq!(&row[column("cuda")], "");
        assert_eq!(&rows[0][column("kernel_us")], "");
        assert_eq!(&rows[1][column("draw_us")], "");
        assert_eq!(row[column("frame_p99_us")].parse(), Ok(cell.frame_us.p99));
        assert_eq!(row[column("overhead_us")].parse().ok(), cell.overhead_us);
        assert_eq!(row[column("ring")].parse(), Ok(cell.ring));
        assert_eq!(row[column("noisy")].parse(), Ok(cell.noisy));
    }

    #[test]
    fn csv_without_cells_is_the_header() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.csv");
        write_csv(&path, &Report { cells: Vec::new(), ..sample::report() }).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap().trim_end(),
            COLUMNS.map(|(name, _)| name).join(",")
        );
    }
}
