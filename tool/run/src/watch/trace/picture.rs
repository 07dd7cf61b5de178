//! Draws a few frames of the trace as an SVG, for readers without a trace viewer.

use maud::{Markup, html};

use super::recorder::{FrameSpans, Track};
use wavefield_gpu::svg::{self, n, round_step};

const SHOWN: usize = 4;
// In pixels: the widths of the drawing, the names and the right margin; the heights of the head and a row.
const WIDTH: f64 = 1180.0;
const NAMES: f64 = 92.0;
const RIGHT: f64 = 12.0;
const HEAD: f64 = 32.0;
const ROW: f64 = 22.0;
const BAR: f64 = ROW - 4.0;

/// Draws frames from the middle of the trace: the first frames fill the ring and are not typical.
pub(super) fn drawing(track: &Track) -> String {
    let shown: Vec<_> = track.frames.iter().skip(track.frames.len() / 2).take(SHOWN).collect();
    let from = shown.first().map_or(0.0, |spans| spans.vulkan[1]);
    let to = shown.last().map_or(1.0, |spans| spans.vulkan[2]);
    let scale = (WIDTH - NAMES - RIGHT) / (to - from);
    let vulkan = if track.producer.uses_cuda { HEAD + ROW } else { HEAD };
    let rows = [("CUDA", HEAD), ("Vulkan", vulkan)];
    // Without CUDA, the GPU does not switch.
    let usual = if track.producer.uses_cuda { usual(&track.frames) } else { Vec::new() };
    let top = vulkan + ROW + 20.0;
    let step = round_step((to - from) / 10.0);
    let ticks = (0..=((to - from) / step) as u32).map(|tick| f64::from(tick) * step);
    let content = html! {
        (svg::text("ink head", [8.0, HEAD - 10.0], &track.name))
        @for (name, row) in &rows[usize::from(!track.producer.uses_cuda)..] {
            (svg::text("soft", [8.0, row + 14.0], name))
            (svg::bar("row", [NAMES, row + 2.0], [(to - from) * scale, BAR], ""))
        }
        @for spans in &track.frames {
            (frame(track, spans, &usual, |row, class, (begin, end), words| {
                let (begin, end) = (begin.max(from), end.min(to));
                // A 3 µs kernel must be visible next to draws of several milliseconds.
                let width = ((end - begin) * scale).max(2.5);
                let tip = format!("{words}: {:.1} µs", (end - begin) * 1e-3);
                let place = [NAMES + (begin - from) * scale, if row == "CUDA" { HEAD } else { vulkan } + 2.0];
                html! { @if begin < end { (svg::bar(class, place, [width, BAR], &tip)) } }
            }))
        }
        @for tick in ticks {
            @let x = n(NAMES + tick * scale);
            line.line x1=(x) x2=(x) y1=(n(top)) y2=(n(top + 5.0)) {}
            text.soft x=(x) y=(n(top + 18.0)) text-anchor="middle" { ((tick * 1e-4).round() / 100.0) " ms" }
        }
        (svg::text("soft", [8.0, top + 40.0], &legend(track)))
    };
    svg::picture("What ran when on the GPU", [WIDTH, top + 48.0], &content).into_string()
}

/// Draws a frame's bars. `bar` takes a bar's row, CSS class, time span and tooltip.
fn frame(
    track: &Track,
    spans: &FrameSpans,
    usual: &[f64],
    bar: impl Fn(&str, &str, (f64, f64), &str) -> Markup,
) -> Markup {
    let (frame, [begin, draw, end]) = (spans.frame, spans.vulkan);
    let class = if frame % 2 == 0 { "b" } else { "a" };
    html! {
        @if track.producer.in_queue {
            @let kernel = track.kernel().unwrap_or_default();
            (bar("Vulkan", "hot", (begin, draw), &format!("frame {frame}, {kernel} in Vulkan's queue")))
        }
        @for part in at_work(spans, usual) { (bar("Vulkan", class, part, &format!("frame {frame}, part of the draw"))) }
        @if spans.slices.is_none() { (bar("Vulkan", class, (draw, end), &format!("frame {frame}, draw"))) }
        @if let Some(kernel) = spans.cuda { (bar("CUDA", "hot", kernel, &format!("frame {frame}, kernel"))) }
    }
}

/// Returns a draw's slices, and the rest after the last slice (the background and the multisample resolve).
fn parts(spans: &FrameSpans) -> Vec<(f64, f64)> {
    let Some(slices) = spans.slices else { return Vec::new() };
    let ends = slices.into_iter().chain([spans.vulkan[2]]);
    [spans.vulkan[1]].into_iter().chain(slices).zip(ends).collect()
}

/// Returns the undisturbed time of each part of a draw: the shortest over all frames.
fn usual(frames: &[FrameSpans]) -> Vec<f64> {
    let lengths =
        frames.iter().map(|spans| parts(spans).iter().map(|(from, to)| to - from).collect::<Vec<_>>());
    let shortest = |a: Vec<f64>, b: Vec<f64>| a.iter().zip(b).map(|(a, b)| a.min(b)).collect();
    lengths.filter(|lengths| !lengths.is_empty()).reduce(shortest).unwrap_or_default()
}

/// Returns the parts of a draw without their waits. A part that took far longer than usual waited for CUDA's
/// signal or for a switch back from CUDA. It is shortened to its usual time, so the wait shows as a gap.
fn at_work(spans: &FrameSpans, usual: &[f64]) -> Vec<(f64, f64)> {
    let mut parts = parts(spans);
    for ((from, to), usual) in parts.iter_mut().zip(usual) {
        if *to - *from > usual + SWITCH {
            *from = *to - usual;
        }
    }
    parts
}

/// In nanoseconds. A part that exceeds its usual time by more than this had to wait.
const SWITCH: f64 = 60_000.0;

fn legend(track: &Track) -> String {
    let kernel = track.kernel().map(|kernel| format!("Orange: the {kernel}. ")).unwrap_or_default();
    let gap = "; a gap within it is where the GPU was switching to CUDA and back";
    format!("{kernel}Blue: the draw, in parts{}.", if track.producer.uses_cuda { gap } else { "" })
}

#[cfg(test)]
mod tests {
    use super::super::SLICES;
    use super::*;
    use wavefield_handoff::producer::Batch;

    /// A draw from 0 on. Its parts take 10 µs each, except `waiting`, which takes 340 µs.
    fn frame(frame: u64, waiting: Option<usize>) -> FrameSpans {
        let length = |part: usize| if Some(part) == waiting { 340_000.0 } else { 10_000.0 };
        let mut at = 0.0;
        let slices = std::array::from_fn(|part| {
            at += length(part);
            at
        });
        FrameSpans {
            frame,
            batch: Batch::of_one(frame),
            vulkan: [0.0, 0.0, at + length(SLICES)],
            slices: Some(slices),
            cuda: None,
            cpu: (std::time::Instant::now(), std::time::Duration::ZERO),
        }
    }

    #[test]
    fn a_part_that_waited_is_shown_without_its_wait() {
        let frames = [frame(0, None), frame(1, Some(3)), frame(2, None), frame(3, Some(SLICES))];
        let usual = usual(&frames);
        assert_eq!(usual, [10_000.0; SLICES + 1]);
        let shown = at_work(&frames[1], &usual);
        assert_eq!(shown[3], (360_000.0, 370_000.0));
        assert!(shown.iter().all(|(from, to)| to - from == 10_000.0));
        assert_eq!(at_work(&frames[3], &usual)[SLICES].0, 490_000.0);
    }
}
