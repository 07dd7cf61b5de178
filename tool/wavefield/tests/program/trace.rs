//! `--trace` writes files that a viewer can show.

use crate::common;

use common::{assert_exit, run};
use serde_json::Value;

const SMALL: [&str; 6] =
    ["--headless", "--grid=40x30", "--size=64x48", "--frames=12", "--producer=compute", "--speed=1"];

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_trace_has_every_frame_on_one_clock() {
    let folder = folder();
    let path = folder.path().join("t.json");
    let path = path.to_str().unwrap();
    assert_exit(&run(&[SMALL.as_slice(), &["--trace", path]].concat()), 0);
    let trace: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let spans = |name: &str| -> Vec<(f64, f64)> {
        let named = events.iter().filter(|event| event["ph"] == "X" && event["name"] == name);
        named.map(|event| (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap())).collect()
    };
    for name in ["produce", "record", "submit", "draw", "compute"] {
        assert_eq!(spans(name).len(), 12, "{name}");
    }
    assert!(spans("part of the draw").len() >= 12 * 16);
    // The work of another thread has its own line, because a viewer nests what is on one line.
    for (name, line) in [("Vulkan instance", "CPU"), ("CUDA driver", "CPU: other threads")] {
        let found: Vec<_> =
            events.iter().filter(|event| event["ph"] == "X" && event["name"] == name).collect();
        let lines: Vec<_> = events
            .iter()
            .filter(|event| event["name"] == "thread_name" && event["tid"] == found[0]["tid"])
            .map(|event| event["args"]["name"].as_str().unwrap())
            .collect();
        assert_eq!((found.len(), lines), (1, vec![line]), "{name}");
    }
    // There is one clock: no draw starts before its submission, except by the error between the clocks.
    let error = trace["otherData"]["clocks"][0]["cpu_to_gpu_error_us"].as_f64().unwrap();
    for (submit, draw) in spans("submit").iter().zip(spans("draw")) {
        assert!(
            draw.0 >= submit.0 - error - 1.0,
            "drawn at {} µs, submitted at {} µs ± {error}",
            draw.0,
            submit.0
        );
        assert!(draw.1 > 0.0);
    }
    // Every arrow has a start and an end, and does not point back in time.
    let arrows = |phase: &str| -> Vec<(u64, f64)> {
        let ends = events.iter().filter(|event| event["ph"] == phase);
        ends.map(|event| (event["id"].as_u64().unwrap(), event["ts"].as_f64().unwrap())).collect()
    };
    assert_eq!(arrows("s").len(), 12);
    for ((from, begin), (to, end)) in arrows("s").into_iter().zip(arrows("f")) {
        assert!(from == to && end >= begin - error - 1.0, "{from} {begin}, {to} {end}");
    }
}

#[test]
fn a_trace_can_be_a_picture() {
    let folder = folder();
    let path = folder.path().join("t.svg");
    assert_exit(&run(&[SMALL.as_slice(), &["--trace", path.to_str().unwrap()]].concat()), 0);
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.starts_with("<svg") && text.ends_with("</svg>\n") && !text.contains("NaN"), "{text}");
    assert!(text.matches("part of the draw").count() >= 4 * 16);
    // The picture says what ran, and does not mention CUDA if there was none.
    for part in ["40x30, compute, ring 3", "Orange: the compute shader.", "compute shader in Vulkan's queue"]
    {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    assert!(!text.contains("CUDA") && !text.contains("timeline"), "{text}");
}
