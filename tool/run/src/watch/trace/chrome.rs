//! Writes Chrome's trace events (the "Trace Event Format"), which Perfetto and `chrome://tracing` show.
//!
//! The run becomes a process with a thread for each row. Arrows ("flow events") show what allowed work to
//! begin: CPU → GPU for each submission, CUDA → Vulkan for `ready`, Vulkan → CUDA for `free`.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use super::cpu::CpuSpan;
use super::recorder::{FrameSpans, Track};
use wavefield_gpu::{Result, output_file};

/// Writes a picture if the name ends with `.svg`, otherwise trace events. Never leaves a partial file.
pub fn write_trace(path: &Path, command: &str, cpu: &[CpuSpan], track: &Track) -> Result<()> {
    let text = match wavefield_gpu::svg::is_name_of(path) {
        true => super::picture::drawing(track),
        false => document(command, cpu, track).to_string(),
    };
    output_file::write(path, |file| writeln!(file, "{text}"))
}

const PROCESS: u32 = 1;
// Thread ids within `PROCESS`.
const CPU: u32 = 1;
const OTHER_THREADS: u32 = 2;
const PRESENT: u32 = 3;
const CUDA: u32 = 4;
const VULKAN: u32 = 5;
const NEITHER: u32 = 6;
const THREADS: [(u32, &str); 6] = [
    (CPU, "CPU"),
    (OTHER_THREADS, "CPU: other threads"),
    (PRESENT, "CPU: window system"),
    (CUDA, "GPU: CUDA stream"),
    (VULKAN, "GPU: Vulkan queue"),
    (NEITHER, "GPU: neither (switching or waiting)"),
];

fn document(command: &str, cpu: &[CpuSpan], track: &Track) -> Value {
    // All times are microseconds since the first span.
    let epoch = cpu.iter().map(|span| span.begin).min();
    let mut events = Events { list: Vec::new(), arrows: 0, epoch: epoch.unwrap_or_else(Instant::now) };
    events.run(cpu, track);
    let clock = json!({
        "run": track.name,
        "device": track.device,
        "cpu_to_gpu": if track.vulkan_clock.calibrated { "VK_EXT_calibrated_timestamps" } else { "an empty submission" },
        "cpu_to_gpu_error_us": track.vulkan_clock.error.as_secs_f64() * 1e6,
        "cuda_to_gpu_error_us": track.cuda_clock_error_ns.map(|error| error * 1e-3),
        "cuda_against_vulkan_violation_us": track.clock_violation_ns() * 1e-3,
    });
    json!({
        "displayTimeUnit": "ns",
        "otherData": { "wavefield": env!("CARGO_PKG_VERSION"), "command": command, "clocks": [clock] },
        "traceEvents": events.list,
    })
}

struct Events {
    list: Vec<Value>,
    arrows: u64,
    epoch: Instant,
}

impl Events {
    fn run(&mut self, cpu: &[CpuSpan], track: &Track) {
        let mut add_metadata = |what: &str, thread: u32, key: &str, value: Value| {
            let event =
                json!({ "ph": "M", "name": what, "pid": PROCESS, "tid": thread, "args": { key: value } });
            self.list.push(event);
        };
        add_metadata("process_name", 0, "name", json!(track.name));
        for (thread, words) in THREADS {
            add_metadata("thread_name", thread, "name", json!(words));
            add_metadata("thread_sort_index", thread, "sort_index", json!(thread));
        }
        for span in cpu {
            let Some(end) = span.end else { continue };
            let thread = match span.name {
                _ if span.other_thread => OTHER_THREADS,
                "acquire" | "present" => PRESENT,
                _ => CPU,
            };
            let (begin, end) = (self.since_epoch(span.begin), self.since_epoch(end));
            self.slice(thread, span.name, span.frame, begin, end);
        }
        for spans in &track.frames {
            self.frame(spans, cpu, track);
        }
        for (begin, end) in neither(&track.frames) {
            let (begin, end) = (self.gpu(track, begin), self.gpu(track, end));
            self.slice(NEITHER, "neither", None, begin, end);
        }
    }

    fn frame(&mut self, spans: &FrameSpans, cpu: &[CpuSpan], track: &Track) {
        let frame = Some(spans.frame);
        let [begin, draw, end] = spans.vulkan.map(|time| self.gpu(track, time));
        if track.producer.in_queue {
            self.slice(VULKAN, track.producer.name, frame, begin, draw);
        }
        self.slice(VULKAN, "draw", frame, draw, end);
        let mut from = draw;
        for slice in spans.slices.into_iter().flatten() {
            let to = self.gpu(track, slice);
            self.slice(VULKAN, "part of the draw", frame, from, to);
            from = to;
        }
        let named = |name| cpu.iter().find(|span| span.name == name && span.frame == frame);
        if let Some(submit) = named("submit") {
            let to = if track.producer.in_queue { begin } else { draw };
            self.arrow("submit", (CPU, self.since_epoch(submit.begin)), (VULKAN, to));
        }
        let Some(cuda) = spans.cuda else { return };
        let (kernel, done) = (self.gpu(track, cuda.0), self.gpu(track, cuda.1));
        self.slice(CUDA, "kernel", frame, kernel, done);
        if let Some(produce) = named("produce") {
            let at = self.since_epoch(produce.begin);
            self.arrow("launch", (CPU, at), (CUDA, kernel));
        }
        // The arrow ends where its effect begins. The draw's timestamp may precede the end of its wait.
        self.arrow("ready", (CUDA, done - NUDGE), (VULKAN, draw.max(done)));
        if let Some(freed) = track.freed_before(spans) {
            let from = self.gpu(track, freed.vulkan[2]);
            self.arrow("free", (VULKAN, from - NUDGE), (CUDA, kernel));
        }
    }

    fn slice(&mut self, thread: u32, name: &str, frame: Option<u64>, begin: f64, end: f64) {
        let mut event = json!({
            "ph": "X", "name": name, "cat": "wavefield", "pid": PROCESS, "tid": thread,
            "ts": round(begin), "dur": round((end - begin).max(0.0)),
        });
        if let Some(frame) = frame {
            event["args"] = json!({ "frame": frame });
        }
        self.list.push(event);
    }

    fn arrow(&mut self, name: &str, from: (u32, f64), to: (u32, f64)) {
        self.arrows += 1;
        let end = |phase, (thread, time): (u32, f64)| {
            json!({
                "ph": phase, "id": self.arrows, "name": name, "cat": "hand-off", "pid": PROCESS, "tid": thread,
                "ts": round(time), "bp": "e",
            })
        };
        let ends = [end("s", from), end("f", (to.0, to.1 + NUDGE))];
        self.list.extend(ends);
    }

    fn since_epoch(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.epoch).as_secs_f64() * 1e6
    }

    fn gpu(&self, track: &Track, nanoseconds: f64) -> f64 {
        let clock = &track.vulkan_clock;
        self.since_epoch(clock.host) + (nanoseconds - clock.gpu_ns) * 1e-3
    }
}

/// In µs. A viewer attaches an arrow's end to the slice around it, so the end lies this far inside.
const NUDGE: f64 = 0.002;

/// Rounds to the nanosecond. More digits would be noise.
fn round(microseconds: f64) -> f64 {
    (microseconds * 1e3).round() / 1e3
}

/// Returns the spans between the first frame and the last in which neither a kernel nor a draw ran.
pub fn neither<'a>(frames: impl IntoIterator<Item = &'a FrameSpans>) -> Vec<(f64, f64)> {
    let mut busy: Vec<(f64, f64)> = Vec::new();
    for spans in frames {
        let [begin, draw, end] = spans.vulkan;
        // The first timestamps may precede the end of the wait for `ready`.
        let begin = spans.cuda.map_or(begin, |(_, done)| draw.max(done));
        busy.push((begin, end));
        busy.extend(spans.cuda);
    }
    busy.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut gaps = Vec::new();
    let mut until = f64::INFINITY;
    for (begin, end) in busy {
        if begin > until {
            gaps.push((until, begin));
        }
        until = if until.is_finite() { until.max(end) } else { end };
    }
    gaps
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use wavefield_handoff::producer::Batch;

    fn frame(frame: u64, cuda: (f64, f64), vulkan: [f64; 3]) -> FrameSpans {
        FrameSpans {
            frame,
            batch: Batch::of_one(frame),
            vulkan,
            slices: None,
            cuda: Some(cuda),
            cpu: (Instant::now(), Duration::ZERO),
        }
    }

    #[test]
    fn gaps_are_where_nothing_runs() {
        // A kernel, a gap of 5, a draw with a second kernel inside, a gap of 10, a draw.
        let frames = [frame(0, (0.0, 10.0), [0.0, 15.0, 40.0]), frame(1, (20.0, 22.0), [41.0, 50.0, 60.0])];
        assert_eq!(neither(&frames), [(10.0, 15.0), (40.0, 50.0)]);
        assert!(neither([]).is_empty());
    }
}
