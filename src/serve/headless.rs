//! `serve` without a window.

use std::time::{Duration, Instant};

use super::door::Door;
use super::host::Host;
use super::{FRAME_SECONDS, Options, check_scene, listen};
use crate::app::{
    Companion, Config, DeviceTable, Engine, FrameTimes, Headless, Moment, Parameters, Stop, Summary, retire,
};
use crate::vulkan::{Instance, InstanceDesc};
use crate::{Result, whole_file};

/// Frames in flight that there are resources for, whoever draws.
pub(super) const FLIGHTS: usize = 3;
/// After a pause the field's clock does not jump further than this.
const LONGEST_STEP: Duration = Duration::from_millis(100);

/// Draws frames, its own or a client's, until `stop` is asked or `config.frames` are drawn; writes the last to
/// `config.output`.
///
/// # Errors
/// Whatever stands in the way, an error of the validation layer included. No client can be the reason, with two
/// exceptions that `docs/protocol.md` names: a kernel that never ends, and one that faults
/// where Vulkan waits for it: in its own command buffer, or by a binary semaphore.
pub fn serve_headless(config: &Config, options: &Options, stop: &Stop) -> Result<Summary> {
    check_scene(config)?;
    for path in config.output.iter().chain(&options.json) {
        whole_file::check_writable(path)?;
    }
    let door = listen(options, stop)?;
    let instance = Instance::new(&InstanceDesc { validation: config.validation, display: None })?;
    let log = instance.validation_log().clone();
    let mut summary = serve(instance, door, config, options, stop)?;
    // Everything is destroyed now; what the layer had to say of that counts too.
    log.verdict()?;
    summary.validation = summary.validation.map(|_| log.warnings());
    Ok(summary)
}

/// What must not be dropped while a stuck GPU uses it.
struct Serving {
    run: Headless,
    host: Host,
}

impl AsMut<Engine> for Serving {
    fn as_mut(&mut self) -> &mut Engine {
        self.run.engine()
    }
}

fn serve(instance: Instance, door: Door, config: &Config, options: &Options, stop: &Stop) -> Result<Summary> {
    let choice = DeviceTable::query(&instance, None)?.choose(config.device.as_deref(), config.producer)?;
    let mut run = Headless::serving(&choice, config, FLIGHTS.max(config.ring.depth()))?;
    run.engine().heed(stop);
    let host = Host::new(door, choice, config, options)?;
    let mut serving = Serving { run, host };
    let outcome = draw(&mut serving, config, stop);
    let reason = outcome.as_ref().map_or_else(ToString::to_string, |_| "the renderer was ended".into());
    let closed = serving.host.close(serving.run.engine(), &reason);
    retire(serving);
    let summary = outcome?;
    closed?;
    Ok(summary)
}

fn draw(serving: &mut Serving, config: &Config, stop: &Stop) -> Result<Summary> {
    let Serving { run, host } = serving;
    let mut parameters = Parameters { speed: config.speed, colormap: config.color_map, paused: false };
    let mut times = FrameTimes::default();
    let mut moment = Moment { time: 0.0, step: FRAME_SECONDS * config.speed };
    let mut last = Instant::now();
    while !stop.requested() && config.frames.is_none_or(|frames| run.engine().next_frame() < frames) {
        host.wait(run.engine(), &mut parameters)?;
        if !host.is_ready() {
            continue;
        }
        if let Err(error) = run.frame_at(moment) {
            host.rescue(run.engine(), error)?;
            continue;
        }
        host.drawn(run.engine())?;
        let now = Instant::now();
        times.add(now - last);
        let speed = if parameters.paused { 0.0 } else { parameters.speed };
        moment.step = (now - last).min(LONGEST_STEP).as_secs_f64() * speed;
        moment.time += moment.step;
        last = now;
        if host.wants_picture() {
            let extent = run.extent();
            // With an eye on the time first: reading back waits without one.
            match run.engine().drain() {
                Ok(()) => host.send_picture(extent, run.pixels()),
                Err(error) => host.rescue(run.engine(), error)?,
            }
        }
    }
    if let Err(error) = run.engine().finish() {
        host.rescue(run.engine(), error)?;
        run.engine().finish()?;
    }
    times.finish(last.elapsed());
    if let Some(path) = &config.output {
        run.save(path)?;
    }
    run.engine().summary(times, 0)
}
