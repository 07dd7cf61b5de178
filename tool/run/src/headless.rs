//! Draws without a window, into an image that can become a file.

use std::path::Path;
use std::time::{Duration, Instant};

use ash::vk;

use super::engine::{AfterDraw, Engine, Moment};
use super::picture_file::picture_texts;
use super::trace_file::Traced;
use super::{
    Choice, Config, ContextThread, DeviceTable, Ended, FrameTimes, ProducerKind, RunSummary, Stop, write_png,
};
use crate::watch::recording::Film;
use wavefield_draw::{OffscreenTarget, Picture, Raster, Samples};
use wavefield_gpu::vulkan::{Device, DeviceDesc, read_image};
use wavefield_gpu::{Error, Result, output_file, progress::ProgressLine, report::Failures};
use wavefield_handoff::Handoff;
use wavefield_handoff::contents::scene::Scene;

/// Seconds of animation between two frames. Independent of the clock, so frame N is the same in every run.
pub const STEP: f64 = 1.0 / 60.0;

/// Draws `config.frames` frames and writes the last one to `config.output`. Fails if the run cannot start;
/// [`Ended`] holds any later failure.
pub fn run_headless(config: &Config, stop: &Stop) -> Result<Ended> {
    output_file::check_outputs(&config.output)?;
    let traced = Traced::begin(config)?;
    let choice =
        DeviceTable::headless(config.validation)?.choose(config.device.as_deref(), config.producer)?;
    let config = &config.suited_to(choice.adapter.info().kind, false);
    let log = choice.adapter.instance().validation_log().clone();
    let mut failures = Failures::default();
    announce(&choice, config);
    let mut run = Headless::new(&choice, config)?;
    run.engine.set_stop(stop);
    if let Some(traced) = &traced {
        traced.follow(&mut run.engine)?;
    }
    let mut times = FrameTimes::default();
    let drawn = failures.catch(draw_frames(&mut run, config, stop, &mut times));
    let recorded = run.film.as_mut().and_then(|film| failures.catch(film.end(drawn.is_some())));
    if let Some(traced) = traced {
        traced.end(&mut run.engine, &mut failures);
    }
    let summary = run.engine.summary(times, 0, &mut failures);
    drop((run, choice));
    Ok(Ended::new(RunSummary { recorded, ..summary }, failures, &log))
}

fn draw_frames(run: &mut Headless, config: &Config, stop: &Stop, times: &mut FrameTimes) -> Result<()> {
    let frames = config.frames.unwrap_or(match run.engine.device().info().kind {
        // A software device is slow, so draw only a few frames.
        vk::PhysicalDeviceType::CPU => 20,
        // More than a run needs to settle: see `Footprint::SETTLED`.
        _ if config.verify => 1000,
        _ => 120,
    });
    let progress = ProgressLine::new(if config.verify { "checking" } else { "drawing" });
    // An f32 times a frame number is exact in f64, so frame N is bit-identical, filled alone or in a batch.
    let step = f64::from((config.speed * STEP) as f32);
    let mut last = Instant::now();
    for _ in 0..frames {
        progress.at(times.count(), frames);
        if stop.requested() {
            break;
        }
        run.frame(step)?;
        // The first few frames are enqueued at once: no frame has finished yet, so there is no time to add.
        if run.engine.finished().is_some() {
            times.add(lap(&mut last));
        }
    }
    let drawn = run.engine.next_frame();
    for done in times.count()..drawn {
        progress.at(done, frames);
        run.engine.work.wait_drawn(done + 1)?;
        times.add(lap(&mut last));
    }
    drop(progress);
    run.engine.work.finish()?;
    times.finish(last.elapsed());
    if let Some(path) = &config.output {
        if drawn < frames {
            return Err(Error::Stopped(format!(
                "stopped after frame {drawn} of {frames}, so no picture was written"
            )));
        }
        run.save(path, config, false)?;
    }
    Ok(())
}

fn lap(last: &mut Instant) -> Duration {
    let now = Instant::now();
    now - std::mem::replace(last, now)
}

pub struct Headless {
    // Dropping the engine waits for the GPU, so it must be dropped first.
    engine: Engine,
    target: OffscreenTarget,
    film: Option<Film>,
}

impl Headless {
    pub fn new(choice: &Choice, config: &Config) -> Result<Self> {
        let interop = choice.cuda.is_some() || config.producer == ProducerKind::StillShared;
        Self::make(choice, config, interop, config.handoff == Handoff::Inline, 1)
    }

    /// Like [`Headless::new`], but takes `interop` and `inline` of [`DeviceDesc`], which must suit later
    /// switches too. Allocates resources for at least `flights` frames in flight.
    pub fn make(
        choice: &Choice,
        config: &Config,
        interop: bool,
        inline: bool,
        flights: usize,
    ) -> Result<Self> {
        let context = ContextThread::begin(choice, config, inline);
        let desc = DeviceDesc { interop, inline, ..DeviceDesc::default() };
        let (device, queue) = choice.adapter.request_device(&desc)?;
        check_picture(config.size, &device)?;
        let target = OffscreenTarget::new(&device, config.size, OffscreenTarget::FORMAT)?;
        let engine = Engine::new(queue, context, choice, config, OffscreenTarget::FORMAT, flights)?;
        let film = Film::start(&device, config, OffscreenTarget::FORMAT, true)?;
        Ok(Self { engine, target, film })
    }

    /// Changes the settings from the next frame on, except the picture's size. Waits for both APIs. After an
    /// error the old settings stay in effect, if the engine can still draw.
    pub fn switch(&mut self, choice: &Choice, config: &Config) -> Result<()> {
        self.engine.switch(choice, config)?;
        if let Some(film) = &mut self.film {
            film.all_done();
        }
        Ok(())
    }

    /// Draws the next frame. `step` is the animation time between two frames, in seconds.
    pub fn frame(&mut self, step: f64) -> Result<()> {
        let time = self.engine.next_frame() as f64 * step;
        self.frame_at(Moment { time, step })
    }

    pub fn frame_at(&mut self, moment: Moment) -> Result<()> {
        let Self { engine, target, film, .. } = self;
        let flight = engine.begin()?;
        // A film copies from the image.
        let picture = Picture { stays: film.is_none(), ..target.picture() };
        // In a film a frame lasts `STEP`, however fast frames are drawn.
        let now = Duration::from_secs_f64(engine.next_frame() as f64 * STEP);
        let wants = film.as_mut().is_some_and(|film| film.wants(flight.index, now));
        let mut record = |commands| {
            if let Some(film) = film {
                // SAFETY: these commands are recorded after the draw of this picture, which lives as long as
                // the engine; the flight was free, and `Film::wants` has taken its earlier picture.
                unsafe { film.record(commands, flight.index, &picture) };
            }
            Ok(())
        };
        let commands = wants.then_some(&mut record as &mut dyn FnMut(_) -> _);
        engine.draw(&flight, moment, &picture, AfterDraw { commands, present: None })
    }

    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Reads the last frame's picture: sRGB, four bytes per pixel.
    pub fn pixels(&mut self) -> Result<Vec<u8>> {
        self.engine.keep_picture()?;
        read_image(self.engine.queue(), self.target.image())
    }

    /// Writes the last picture to a PNG file, with the texts from [`picture_texts`].
    pub fn save(&mut self, path: &Path, config: &Config, serves: bool) -> Result<()> {
        let pixels = self.pixels()?;
        let texts = picture_texts(config, &self.engine, self.engine.next_frame(), serves);
        write_png(path, self.target.image().extent(), &pixels, &texts)
    }
}

pub fn check_picture(size: vk::Extent2D, device: &Device) -> Result<()> {
    let (limit, vk::Extent2D { width, height }) = (device.info().largest_picture, size);
    match width.max(height) > limit {
        true => Err(Error::Unsupported(format!(
            "a picture of {width}x{height} is too large for {}: neither side may exceed {limit} (maxImageDimension2D)",
            device.info().name
        ))),
        false => Ok(()),
    }
}

/// Prints notes: if `auto` falls back from CUDA, if compute shaders cannot draw, and for a software device.
pub fn announce(choice: &Choice, config: &Config) {
    choice.announce_fallback();
    let info = choice.adapter.info();
    if config.raster == Raster::Compute && (!info.atomics64 || config.scene == Scene::Texture) {
        let why = match info.atomics64 {
            true => "compute shaders draw no texture",
            false => "its shaders have no 64-bit atomics (shaderBufferInt64Atomics)",
        };
        wavefield_gpu::note!("note: the graphics pipeline draws on {}: {why}", info.name);
    }
    if info.kind == vk::PhysicalDeviceType::CPU {
        let mut small = String::new();
        if config.any_grid {
            small = format!("; it is slow, so it draws --grid {}", config.grid);
        }
        if config.any_samples && config.samples == Samples::One {
            small += if small.is_empty() { "; it is slow, so it draws --samples 1" } else { " --samples 1" };
        }
        wavefield_gpu::note!(
            "note: {} is a software device: the picture is right, its speed says nothing{small}",
            info.name
        );
    }
}
