use std::io;
use std::path::Path;

use serde_json::Value;

use super::record::{Report, SCHEMA};
use wavefield_gpu::{Error, Result, input_file};

/// The maximum size of a file in bytes, many times what the longest benchmark writes.
const MAX_RECORD: u64 = 64 << 20;

pub fn read_json(path: &Path) -> Result<Report> {
    let failed = |source| Error::Io { action: "read", path: path.to_owned(), source };
    let bytes = input_file::read(path, MAX_RECORD)?;
    parse(&bytes).map_err(|problem| failed(io::Error::new(io::ErrorKind::InvalidData, problem)))
}

fn parse(bytes: &[u8]) -> Result<Report, String> {
    let text = bytes.trim_ascii();
    if text.is_empty() {
        return Err("the file is empty; run the benchmark again with --json".into());
    }
    // If the file is cut inside a number, the parser does not report the end of the file.
    let is_cut = text.starts_with(b"{") && !text.ends_with(b"}");
    let value: Value = serde_json::from_slice(bytes).map_err(|error| match error.is_eof() || is_cut {
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

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use wavefield_gpu::output_file::write_json;

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
}
