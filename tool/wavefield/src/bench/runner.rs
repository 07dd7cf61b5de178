//! Measures the cells in rounds. Each cell runs once in each round, so that drift affects all cells alike.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use vulkan_cuda::Ring;

use super::produce_only;
use super::record::{Report, SCHEMA, Settings, Skipped, with_overhead};
use super::session::{BenchSession, Measurements};
use super::strategy::{CellPlan, Plan, Strategy};
use wavefield_gpu::cuda::Cuda;
use wavefield_gpu::report::{Failures, command_line, word};
use wavefield_gpu::{Result, progress::ProgressLine, threads::cpu_time};
use wavefield_handoff::contents::wave::Grid;
use wavefield_handoff::{FieldKernels, TextureKernels};
use wavefield_run::{Choice, Config, DeviceTable, FrameTiming, Headless, ProducerKind, STEP, Scene, Stop};

const MIN_FRAMES: usize = 4;

pub fn choose(base: &Config, producer: ProducerKind) -> Result<Choice> {
    DeviceTable::headless(base.validation)?.choose(base.device.as_deref(), producer)
}

/// Measures the cells of `plan`. Lists a strategy that this machine cannot run as skipped. After a stop or a
/// failure within a cell, the report contains what was measured before and is marked incomplete.
pub fn run(
    plan: &Plan,
    base: &Config,
    choice: &Choice,
    stop: &Stop,
    failures: &mut Failures,
) -> Result<Report> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let context = choice.cuda.as_ref().map(|(driver, info)| Cuda::primary(*driver, info)).transpose()?;
    let session = BenchSession { plan, base, choice, stop, context };
    let (mut skipped, mut cells) = (Vec::new(), Vec::<(CellPlan, Measurements)>::new());
    for &cell in &plan.cells {
        match obstacle(&cell, base.scene, choice) {
            None => cells.push((cell, Measurements::default())),
            Some(reason) => {
                let this = Skipped { strategy: cell.strategy.name().to_owned(), reason };
                if !skipped.contains(&this) {
                    skipped.push(this);
                }
            }
        }
    }
    // A ring that only skipped cells use needs no `render-only` cell.
    let has = |ring: Ring| {
        move |cell: &CellPlan| cell.strategy != Strategy::RenderOnly && cell.ring_alone() == ring
    };
    let running: Vec<CellPlan> = cells.iter().map(|(cell, _)| *cell).collect();
    cells.retain(|(cell, _)| {
        let needed = running.iter().any(has(cell.ring)) || !plan.cells.iter().any(has(cell.ring));
        cell.strategy != Strategy::RenderOnly || needed
    });

    let total = cells.len() as u64 * u64::from(plan.rounds);
    let mut done = 0;
    if total > 0 {
        let (round, rounds) = (plan.round.as_millis(), plan.rounds);
        wavefield_gpu::note!("note: {total} measurements of {round} ms, in rounds: {rounds}");
    }
    let bar = ProgressLine::new("measuring");
    'rounds: for _ in 0..plan.rounds {
        for (cell, samples) in &mut cells {
            bar.at(done, total);
            if stop.requested() {
                break 'rounds;
            }
            let measured = measure(&session, cell, samples);
            if failures.catch(measured).is_none() {
                break 'rounds;
            }
            // A stop within a cell leaves it incomplete.
            done += u64::from(!stop.requested());
        }
    }
    let measured = cells.into_iter().filter(|(_, samples)| !samples.frame_us.is_empty());
    let measured = measured.map(|(cell, samples)| samples.summarise(&cell, base.scene));
    Ok(Report {
        schema: SCHEMA.to_owned(),
        complete: done == total,
        command: command_line(),
        started,
        machine: choice.machine(),
        settings: Settings {
            scene: word(base.scene),
            size: [plan.size.width, plan.size.height],
            samples: base.samples.count(),
            raster: word(base.raster),
            rounds: plan.rounds,
            warmup_frames: plan.warmup_frames,
            round_ms: plan.round.as_millis() as u64,
        },
        cells: with_overhead(measured.collect()),
        skipped,
    })
}

/// Returns why a cell cannot be measured on this machine; `None` if it can.
fn obstacle(cell: &CellPlan, scene: Scene, choice: &Choice) -> Option<String> {
    let (strategy, info) = (cell.strategy, choice.adapter.info());
    if strategy.uses_cuda() && choice.cuda.is_none() {
        let reason = choice.fallback.clone().unwrap_or_else(|| "no CUDA".to_owned());
        return Some(format!("no CUDA on {} ({reason})", info.name));
    }
    if strategy == Strategy::RenderShared && info.sharing.buffer_export.is_none() {
        return Some("the device exports no memory".to_owned());
    }
    if let Err(reason) = strategy.handoff().supports(info) {
        return Some(reason.to_owned());
    }
    let Grid { cols, rows } = cell.grid;
    let ((limit, name), what) = match scene {
        Scene::Field => (info.largest_buffer, "vertices"),
        Scene::Texture => ((info.largest_allocation, "maxMemoryAllocationSize"), "texels with their levels"),
    };
    (scene.frame_bytes(cell.grid) > limit)
        .then(|| format!("{cols}x{rows} {what} take more than {limit} bytes ({name})"))
}

fn measure(session: &BenchSession<'_>, cell: &CellPlan, samples: &mut Measurements) -> Result<()> {
    let config = cell.config(session.base, session.plan.size);
    let before = samples.frame_us.len();
    match (cell.strategy, &session.context) {
        (Strategy::ProduceOnly, Some(context)) => {
            let measure = match config.scene {
                Scene::Field => produce_only::measure::<FieldKernels>,
                Scene::Texture => produce_only::measure::<TextureKernels>,
            };
            measure(session, context, &config, samples)?;
        }
        _ => {
            let mut run = Headless::new(session.choice, &config)?;
            // The batch of `auto` needs many frames to settle.
            let least = if cell.strategy == Strategy::Auto { 128 } else { 0 };
            frames(session, session.plan.warmup_frames.max(least), &mut run, samples)?;
        }
    }
    let round = &samples.frame_us[before..];
    if !round.is_empty() {
        samples.round_means_us.push(round.iter().sum::<f64>() / round.len() as f64);
    }
    Ok(())
}

fn frames(
    session: &BenchSession<'_>,
    warmup: u64,
    run: &mut Headless,
    samples: &mut Measurements,
) -> Result<()> {
    let BenchSession { plan, stop, .. } = session;
    let began = Instant::now();
    for frame in 0..warmup {
        run.frame(STEP)?;
        // If frames take long, a few warm-up frames are enough.
        if frame as usize >= MIN_FRAMES
            && began.elapsed() > plan.round * warmup.div_ceil(plan.warmup_frames.max(1)) as u32
        {
            break;
        }
    }
    let first = run.engine().next_frame();
    let waits = run.engine().work.blocking_waits();
    let (began, cpu) = (Instant::now(), cpu_time());
    let mut last: Option<FrameTiming> = None;
    let mut measured = 0;
    while (began.elapsed() < plan.round || measured < MIN_FRAMES) && !stop.requested() {
        run.frame(STEP)?;
        let Some(timing) = run.engine().finished().filter(|timing| timing.frame >= first) else { continue };
        if let Some(last) = last.replace(timing) {
            samples.add(&last, &timing);
            measured += 1;
        }
    }
    if let (Some(before), Some(after)) = (cpu, cpu_time()) {
        samples.cpu += after.saturating_sub(before);
        samples.time += began.elapsed();
    }
    samples.waits += run.engine().work.blocking_waits() - waits;
    run.engine().work.finish()
}
