//! Draws the trace as an SVG, for readers without a trace viewer: a few frames of each run, one run below the other.

use std::path::Path;

use maud::{Markup, PreEscaped, html};

use super::chrome::Lane;
use super::recorder::{FrameSpans, Track};
use crate::axis::round_step;
use crate::{Result, whole_file};

/// The number of frames to show of each run.
const SHOWN: usize = 4;
/// Sizes in pixels: the drawing's width, the names at the left, the margin at the right, a run's name, one row.
const WIDTH: f64 = 1180.0;
const NAMES: f64 = 92.0;
const RIGHT: f64 = 12.0;
const HEAD: f64 = 24.0;
const ROW: f64 = 22.0;

/// Writes an SVG, whole or not at all. All runs have the same scale.
///
/// # Errors
/// The file cannot be written.
pub fn write_picture(path: &Path, lanes: &[Lane]) -> Result<()> {
    let text = drawing(lanes).into_string();
    whole_file::write(path, |file| writeln!(file, "{text}"))
}

/// The part of a run that is shown. It starts at the draw of a frame in the middle.
struct Window<'a> {
    track: &'a Track,
    from: f64,
    to: f64,
}

impl<'a> Window<'a> {
    fn of(track: &'a Track) -> Option<Self> {
        // The first frames fill the ring, so they are not typical.
        let first = track.frames.len() / 2;
        let shown = track.frames.get(first..(first + SHOWN).min(track.frames.len()))?;
        let (from, to) = (shown.first()?.vulkan[1], shown.last()?.vulkan[2]);
        Some(Self { track, from, to })
    }
}

fn drawing(lanes: &[Lane]) -> Markup {
    let windows: Vec<_> = lanes.iter().filter_map(|lane| Window::of(&lane.track)).collect();
    let longest = windows.iter().map(|window| window.to - window.from).fold(1.0, f64::max);
    let scale = (WIDTH - NAMES - RIGHT) / longest;
    let usual: Vec<_> = windows.iter().map(|window| usual(&window.track.frames)).collect();
    let alike = |track: &Track| {
        let same = windows.iter().zip(&usual).filter(|(other, _)| other.track.grid == track.grid);
        shortest(same.map(|(_, usual)| usual))
    };
    let mut top = 8.0;
    let mut tops = Vec::with_capacity(windows.len());
    for window in &windows {
        tops.push(top);
        top += HEAD + if window.track.uses_cuda() { 2.0 * ROW } else { ROW } + 20.0;
    }
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {}", top + 48.0))
            font-family="system-ui, sans-serif" font-size="12" {
            style { (PreEscaped(STYLE)) }
            rect.paper width="100%" height="100%" {}
            @for (window, top) in windows.iter().zip(tops) {
                (run(window, &alike(window.track), scale, top))
            }
            (axis(longest, scale, top))
            text.soft x="8" y=(top + 40.0) { (legend(lanes)) }
        }
    }
}

const STYLE: &str = ".paper{fill:#fff}.ink{fill:#222}.soft{fill:#777}.draw{fill:#4c78a8}.even{fill:#7ba3cf}.kernel{fill:#e4572e}\
.row{fill:#f1f2f4}.line{stroke:#999}@media(prefers-color-scheme:dark){.paper{fill:#16181d}.ink{fill:#e8e8e8}.soft{fill:#9a9a9a}\
.row{fill:#23262d}.draw{fill:#5b8ec4}.even{fill:#3d6690}.kernel{fill:#ff7a50}.line{stroke:#666}}";

/// One run: its name, a row for CUDA if it uses that, and a row for Vulkan.
fn run(window: &Window<'_>, usual: &[f64], scale: f64, top: f64) -> Markup {
    let vulkan = if window.track.uses_cuda() { top + HEAD + ROW } else { top + HEAD };
    let rows = [top + HEAD, vulkan];
    let bar = |row: f64, class: &str, (begin, end): (f64, f64), words: &str| {
        let (begin, end) = (begin.max(window.from), end.min(window.to));
        // A kernel of 3 µs must be visible among draws of milliseconds.
        let width = ((end - begin) * scale).max(2.5);
        html! {
            @if begin < end {
                rect class=(class) x=(places(NAMES + (begin - window.from) * scale)) y=(row + 2.0)
                    width=(places(width)) height=(ROW - 4.0) {
                    title { (words) ": " (format!("{:.1} µs", (end - begin) * 1e-3)) }
                }
            }
        }
    };
    let frame = |spans: &FrameSpans| {
        let (frame, [begin, draw, end]) = (spans.frame, spans.vulkan);
        let class = if frame % 2 == 0 { "even" } else { "draw" };
        html! {
            @if window.track.in_queue {
                (bar(rows[1], "kernel", (begin, draw), &format!("frame {frame}, {} in Vulkan's queue", window.track.kernel().unwrap_or_default())))
            }
            @for part in at_work(spans, usual) {
                (bar(rows[1], class, part, &format!("frame {frame}, part of the draw")))
            }
            @if spans.slices.is_none() {
                (bar(rows[1], class, (draw, end), &format!("frame {frame}, draw")))
            }
            @if let Some(kernel) = spans.cuda { (bar(rows[0], "kernel", kernel, &format!("frame {frame}, kernel"))) }
        }
    };
    html! {
        text.ink x="8" y=(top + 14.0) font-weight="600" { (window.track.name) }
        @for (row, name) in rows.iter().zip(["CUDA", "Vulkan"]).skip(usize::from(!window.track.uses_cuda())) {
            text.soft x="8" y=(row + 14.0) { (name) }
            rect.row x=(NAMES) y=(row + 2.0) width=(places((window.to - window.from) * scale)) height=(ROW - 4.0) {}
        }
        @for spans in &window.track.frames { (frame(spans)) }
    }
}

/// Formats pixels, to a hundredth.
fn places(pixels: f64) -> String {
    format!("{pixels:.2}")
}

/// The parts of a draw: its slices, and the rest after the last slice (the background, and resolving the samples).
fn parts(spans: &FrameSpans) -> Vec<(f64, f64)> {
    let Some(slices) = spans.slices else { return Vec::new() };
    let mut from = spans.vulkan[1];
    let mut parts = Vec::new();
    for to in slices.into_iter().chain([spans.vulkan[2]]) {
        parts.push((from, to));
        from = to;
    }
    parts
}

/// The undisturbed time of each part: the lower quartile over all frames.
fn usual(frames: &[FrameSpans]) -> Vec<f64> {
    let all: Vec<_> = frames.iter().map(parts).filter(|parts| !parts.is_empty()).collect();
    let of = |part: usize| {
        let mut lengths: Vec<_> = all.iter().map(|parts| parts[part].1 - parts[part].0).collect();
        lengths.sort_by(f64::total_cmp);
        lengths[lengths.len() / 4]
    };
    all.first().map_or(0..0, |parts| 0..parts.len()).map(of).collect()
}

/// The shortest usual time of each part over all these runs. If a run's GPU switches in every frame, its usual time contains the
/// switch; other runs with the same field know the time without it.
fn shortest<'a>(runs: impl Iterator<Item = &'a Vec<f64>>) -> Vec<f64> {
    runs.filter(|usual| !usual.is_empty())
        .cloned()
        .reduce(|a, b| a.iter().zip(&b).map(|(a, b)| a.min(*b)).collect())
        .unwrap_or_default()
}

/// The parts in which Vulkan was at work. A part that is far longer than usual had to wait, for CUDA's signal or for the GPU to
/// switch back from CUDA. It is cut to its usual length, so that the wait shows as a gap.
fn at_work(spans: &FrameSpans, usual: &[f64]) -> Vec<(f64, f64)> {
    let mut parts = parts(spans);
    for ((from, to), usual) in parts.iter_mut().zip(usual) {
        if *to - *from > usual + SWITCH {
            *from = *to - usual;
        }
    }
    parts
}

/// A part that is longer than usual by more than this had to wait. In nanoseconds.
const SWITCH: f64 = 60_000.0;

/// Explains the colours that these runs use.
fn legend(lanes: &[Lane]) -> String {
    let tracks = || lanes.iter().map(|lane| &lane.track);
    let mut kernels: Vec<_> = tracks().filter_map(Track::kernel).collect();
    kernels.sort_unstable();
    kernels.dedup();
    let orange = match kernels.is_empty() {
        true => String::new(),
        false => format!("Orange: the {}. ", kernels.join(" or the ")),
    };
    let gaps = match tracks().any(Track::uses_cuda) {
        true => "; a gap within it is where the GPU was switching to CUDA and back",
        false => "",
    };
    format!("{orange}Blue: the draw, in parts{gaps}.")
}

fn axis(longest: f64, scale: f64, top: f64) -> Markup {
    let step = round_step(longest / 10.0);
    let ticks = (0..=(longest / step) as u32).map(|tick| f64::from(tick) * step);
    html! {
        @for tick in ticks {
            @let x = places(NAMES + tick * scale);
            line.line x1=(x) x2=(x) y1=(top) y2=(top + 5.0) {}
            text.soft x=(x) y=(top + 18.0) text-anchor="middle" { ((tick * 1e-4).round() / 100.0) " ms" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SLICES;
    use super::*;
    use crate::producer::Batch;

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
        let always = [frame(0, Some(2)), frame(1, Some(2))];
        let both = [self::usual(&always), self::usual(&frames), Vec::new()];
        assert_eq!(shortest(both.iter()), usual);
    }
}
