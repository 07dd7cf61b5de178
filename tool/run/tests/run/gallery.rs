//! Compares the kernels of the gallery with references in double precision: on a GPU if there is one, as
//! compute shaders, and from their own source on the CPU.

mod pond;
mod references;

use std::path::{Path, PathBuf};
use std::process::Command;

use ash::vk;
use pond::Pond;
use references::{TOLERANCE, reference};
use vulkan_cuda::Ring;
use wavefield_gpu::cuda::KernelValues;
use wavefield_gpu::vulkan::Validation;
use wavefield_handoff::Handoff;
use wavefield_handoff::contents::gallery::{GALLERY, GalleryEntry};
use wavefield_handoff::contents::wave::{Grid, HEIGHT, Vertex};
use wavefield_run::{Batching, Config, DeviceTable, Headless, ProducerKind};

use crate::common::{self, skip_without_tools, stderr};

/// Seconds between two frames. One is longer and one is shorter than the pond's longest step on any grid
/// here. No drop falls at a multiple of them, because there the last bit of a sum would decide in which frame
/// it falls.
const STEPS: [f64; 2] = [0.3701, 0.00901];

/// The default, the least and the greatest values of a kernel's parameters.
fn settings(entry: &GalleryEntry) -> [KernelValues; 3] {
    let parameters = entry.source().parameters().unwrap();
    let all = |value: fn(&wavefield_gpu::cuda::KernelParameter) -> f32| {
        parameters.values(&parameters.iter().map(value).collect::<Vec<_>>())
    };
    [parameters.values(&[]), all(|parameter| parameter.min), all(|parameter| parameter.max)]
}

/// The largest error of the vertices, in units of the wave's height.
fn worst(grid: Grid, got: &[Vertex], want: impl Fn(u32, u32) -> [f64; 4]) -> f64 {
    assert_eq!(got.len() as u64, grid.count());
    let errors = got.iter().enumerate().flat_map(|(index, got)| {
        let want = want(index as u32 % grid.cols, index as u32 / grid.cols);
        [got.x, got.y, got.z, got.w].into_iter().zip(want).map(|(got, want)| (f64::from(got) - want).abs())
    });
    errors.fold(0.0, |worst, error| if error.is_nan() { f64::INFINITY } else { error.max(worst) }) / HEIGHT
}

/// The largest error of consecutive frames of a kernel of the gallery, from frame `first` on, `step` seconds
/// apart.
fn errors_of(
    entry: &GalleryEntry,
    grid: Grid,
    frames: &[Vec<Vertex>],
    (first, step): (u64, f64),
    values: &[f32],
) -> f64 {
    let mut pond = Pond::new(grid);
    if reference(entry).is_none() {
        (0..first).for_each(|frame| pond.step(frame as f64 * step, values));
    }
    let error = |(got, frame): (&Vec<Vertex>, u64)| {
        let time = frame as f64 * step;
        match reference(entry) {
            Some(reference) => worst(grid, got, |col, row| reference(grid, col, row, time, values)),
            None => {
                let error = worst(grid, got, |col, row| pond.vertex(col, row));
                pond.step(time, values);
                error
            }
        }
    };
    frames.iter().zip(first..).map(error).fold(0.0, f64::max)
}

/// The largest allowed error. Greater parameter values make greater angles and so greater errors.
fn tolerance(values: &KernelValues, default: &KernelValues) -> f64 {
    if values == default { TOLERANCE } else { 4.0 * TOLERANCE }
}

/// Compiles a kernel's own source into a program for the CPU. Returns `None` and reports a skip if there is
/// no compiler.
fn compile(entry: &GalleryEntry, folder: &Path, flags: &[&str]) -> Option<PathBuf> {
    let program = folder.join(entry.name);
    let source = format!("SOURCE=\"{}\"", common::kernel(&format!("{}.cu", entry.name)).display());
    let mut command = Command::new("c++");
    command
        .args(["-std=c++17", "-O1", "-pthread", "-D", &source, "-D"])
        .arg(format!("KERNEL={}", entry.name));
    command
        .args(flags)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda_on_cpu.cpp"))
        .arg("-o")
        .arg(&program);
    match command.output() {
        Ok(output) if output.status.success() => Some(program),
        Ok(output) => panic!("{}: {}", entry.name, stderr(&output)),
        Err(error) => {
            skip_without_tools(&format!("c++: {error}"));
            None
        }
    }
}

/// Runs such a program for `frames` frames. Returns the vertices of the last one.
fn on_cpu(
    program: &Path,
    grid: Grid,
    threads: u32,
    (frames, step): (u64, f64),
    values: &[f32],
) -> [Vec<Vertex>; 1] {
    let mut command = Command::new(program);
    command.args([grid.cols, grid.rows, threads].map(|number| number.to_string()));
    command.arg(frames.to_string()).arg(step.to_string());
    let output = command.args(values.iter().map(f32::to_string)).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}: {}", output.status, stderr(&output));
    [bytemuck::allocation::pod_collect_to_vec(&output.stdout)]
}

/// Runs blocks of one thread and of several threads, on grids whose last block is not full.
#[test]
fn the_source_of_each_kernel_agrees_with_its_reference() {
    let folder = tempfile::tempdir().unwrap();
    for entry in &GALLERY {
        let Some(program) = compile(entry, folder.path(), &[]) else { return };
        let settings = settings(entry);
        for (cols, rows, threads, frames) in [(2, 2, 1, 3), (33, 7, 4, 40), (61, 50, 16, 4), (530, 3, 8, 9)] {
            let grid = Grid { cols, rows };
            for (step, values) in STEPS.iter().flat_map(|&step| settings.iter().map(move |v| (step, v))) {
                let got = on_cpu(&program, grid, threads, (frames, step), values);
                let error = errors_of(entry, grid, &got, (frames - 1, step), values);
                let name =
                    format!("{} {cols}x{rows}, {frames} frames of {step} s, {:?}", entry.name, &**values);
                println!("{name}: {error:.1e}");
                assert!(error <= tolerance(values, &settings[0]), "{name}: {error:e}");
            }
        }
    }
}

/// The end of the loop meets the start, y stays in the camera's view, and colours stay nearly within the map.
#[test]
fn every_reference_repeats_and_stays_in_the_picture() {
    let grid = Grid { cols: 61, rows: 47 };
    for entry in &GALLERY {
        let (Some(shader), Some(reference)) = (&entry.shader, reference(entry)) else { continue };
        let values = entry.source().parameters().unwrap().values(&[]);
        for step in 0..40 {
            let time = shader.repeats * f64::from(step) / 40.0 + 0.01;
            for (col, row) in (0..grid.cols).flat_map(|col| (0..grid.rows).map(move |row| (col, row))) {
                let now = reference(grid, col, row, time, &values);
                let later = reference(grid, col, row, time + shader.repeats, &values);
                let name = format!("{} ({col}, {row}) at {time} s: {now:?}", entry.name);
                assert!(now.iter().zip(later).all(|(a, b)| (a - b).abs() < 1e-9), "{name}, {later:?}");
                assert!(now[0].abs() < 1.2 && now[1].abs() < 0.4 && now[2].abs() < 1.2, "{name}");
                assert!((-0.15..1.25).contains(&now[3]), "{name}");
            }
        }
    }
}

/// Runs all vertices in one block, whose threads are CPU threads. ThreadSanitizer finds no data race between
/// them.
#[test]
fn threads_of_a_launch_do_not_race() {
    let folder = tempfile::tempdir().unwrap();
    for entry in &GALLERY {
        let Some(program) = compile(entry, folder.path(), &["-g", "-fsanitize=thread"]) else { return };
        let grid = Grid { cols: 9, rows: 7 };
        on_cpu(&program, grid, 63, (3, 0.4), &settings(entry)[0]);
    }
}

/// Drops fall for an hour in the smallest pond and in an ordinary one, also as many as possible. The water
/// stays visible.
#[test]
fn the_pond_stays_bounded() {
    let entry = GALLERY.iter().find(|entry| entry.name == "pond").unwrap();
    let [default, _, most] = settings(entry);
    for (side, values, limit) in [(2, default, 0.5), (24, default, 0.5), (24, most, 2.0)] {
        let mut pond = Pond::new(Grid { cols: side, rows: side });
        let frames = 3600 * 60;
        let highest = (0..frames).fold(0.0f64, |highest, frame| {
            pond.step(f64::from(frame) / 60.0, &values);
            highest.max(pond.highest())
        });
        println!("{side}x{side}, {:?}: {highest:.3}", &*values);
        assert!(highest < limit, "{side}x{side}, {:?}: {highest}", &*values);
    }
}

/// Runs a kernel, and compares every slot with the frame that filled it.
fn check(producer: ProducerKind, handoff: Handoff, entry: &GalleryEntry) {
    let settings = settings(entry);
    // Columns, rows, slots, batch, frames. A software device gets less work.
    let cases = match producer {
        ProducerKind::Cuda => {
            &[(2, 2, 1, 1, 4), (33, 7, 2, 1, 12), (1000, 37, 5, 5, 30), (700, 520, 4, 2, 60)][..]
        }
        _ => &[(2, 2, 1, 1, 2), (33, 7, 2, 1, 5), (300, 37, 3, 1, 4)],
    };
    for values in &settings {
        for &(cols, rows, depth, batch, frames) in cases {
            let (grid, step) = (Grid { cols, rows }, STEPS[usize::from(frames > 12)]);
            let config = Config {
                producer,
                handoff,
                grid,
                kernel: Some(entry.source()),
                parameters: *values,
                ring: Ring::new(depth),
                batch: Batching::Fixed(batch),
                size: vk::Extent2D { width: 64, height: 48 },
                validation: Validation::IfInstalled,
                ..Config::default()
            };
            let choice = DeviceTable::headless(config.validation).unwrap().choose(None, producer).unwrap();
            let log = choice.adapter.instance().validation_log().clone();
            let mut run = Headless::new(&choice, &config).unwrap();
            (0..frames).for_each(|_| run.frame(step).unwrap());
            run.engine().work.finish().unwrap();
            let depth = run.engine().work.producer.profile().slots.len() as u64;
            let first = frames - depth.min(frames);
            let slots = (first..frames)
                .map(|frame| common::read_slot(run.engine(), (frame % depth) as usize).unwrap());
            let error = errors_of(entry, grid, &slots.collect::<Vec<_>>(), (first, step), values);
            let name =
                format!("{} by {producer:?} {}, {cols}x{rows}, {:?}", entry.name, handoff.name(), &**values);
            println!("{name}: {error:.1e}");
            assert!(error <= tolerance(values, &settings[0]), "{name}: {error:e}");
            drop((run, choice));
            log.verdict().unwrap();
            assert_eq!((log.errors(), log.warnings()), (0, 0), "of validation");
        }
    }
}

#[test]
fn each_shader_agrees_with_the_reference() {
    for entry in GALLERY.iter().filter(|entry| entry.shader.is_some()) {
        check(ProducerKind::Compute, Handoff::default(), entry);
    }
}

#[test]
fn each_kernel_agrees_with_the_reference_by_every_handoff() {
    if !common::has_gpu() {
        return;
    }
    for (entry, handoff) in GALLERY.iter().flat_map(|entry| Handoff::ALL.map(|handoff| (entry, handoff))) {
        check(ProducerKind::Cuda, handoff, entry);
    }
}

/// The comparison can fail: a kernel differs clearly from the reference of every other kernel.
#[test]
fn no_kernel_is_mistaken_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let grid = Grid { cols: 33, rows: 20 };
    for entry in &GALLERY {
        let Some(program) = compile(entry, folder.path(), &[]) else { return };
        let got = on_cpu(&program, grid, 1, (30, 0.02), &settings(entry)[0]);
        for other in GALLERY.iter().filter(|other| other.name != entry.name) {
            let error = errors_of(other, grid, &got, (29, 0.02), &settings(other)[0]);
            assert!(error > 0.01, "{} is taken for {}: {error:e}", entry.name, other.name);
        }
        let late = errors_of(entry, grid, &got, (28, 0.02), &settings(entry)[0]);
        assert!(late > TOLERANCE, "{} of another frame: {late:e}", entry.name);
    }
}
