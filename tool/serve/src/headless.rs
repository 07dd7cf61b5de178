use std::time::{Duration, Instant};

use super::serve_hook::ServeHook;
use super::{FRAME_SECONDS, ServeOptions, listen};
use wavefield_gpu::{Error, Result, report::Failures, stuck_gpu};
use wavefield_handoff::Handoff;
use wavefield_run::{
    Config, DeviceTable, Ended, FrameHook, FrameHookDesc, FrameTimes, Headless, Moment, Parameters, Stop,
    announce,
};

/// The minimum number of frames in flight that have resources.
const FLIGHTS: usize = 3;
/// The maximum time between two frames that the field's clock counts. A longer gap counts as this long.
const LONGEST_STEP: Duration = Duration::from_millis(100);

/// Draws until `stop` is requested or `config.frames` frames are drawn, and writes the last frame to
/// `config.output`. The result holds the failures, including validation messages. A client can cause one only
/// by hanging the GPU or, with `config.verify`, by wrong stamps.
pub fn serve_headless(config: &Config, options: &ServeOptions, stop: &Stop) -> Result<Ended> {
    let acceptor = listen(config, options, stop)?;
    let choice =
        DeviceTable::headless(config.validation)?.choose(config.device.as_deref(), config.producer)?;
    let config = &config.suited_to(choice.adapter.info().kind, false);
    let log = choice.adapter.instance().validation_log().clone();
    announce(&choice, config);
    // Clients with memory `cuda` need shared memory, even if the renderer's own producer does not.
    let (interop, inline) = (choice.can_export(), config.handoff == Handoff::Inline);
    let flights = FLIGHTS.max(config.ring.unwrap_or_default().depth());
    let mut run = Headless::make(&choice, config, interop, inline, flights)?;
    run.engine().set_stop(stop);
    let mut hook = ServeHook::new(acceptor, choice, config, options, false);
    let (mut times, mut failures) = (FrameTimes::default(), Failures::default());
    failures.catch(draw(&mut run, &mut hook, config, stop, &mut times));
    let summary = run.engine().summary(times, 0, &mut failures);
    let reason = failures.first().map_or("the renderer was ended".into(), Error::to_string);
    failures.catch(hook.close(run.engine(), &reason));
    // The hook owns the client's memory, so drop it only when the GPU is idle, and leak it otherwise.
    match run.engine().work.quiesce() {
        true => drop((run, hook)),
        false => stuck_gpu::leak((run, hook)),
    }
    Ok(Ended::new(summary, failures, &log))
}

/// Listens, and returns the hook with which a window serves.
pub fn serve_windowed<'a>(
    config: &'a Config,
    options: &'a ServeOptions,
    stop: &Stop,
) -> Result<FrameHookDesc<'a>> {
    let acceptor = listen(config, options, stop)?;
    Ok(FrameHookDesc {
        make: Box::new(move |choice| {
            let config = config.suited_to(choice.adapter.info().kind, true);
            Ok(Box::new(ServeHook::new(acceptor, choice, &config, options, true)))
        }),
        flights: FLIGHTS.max(config.ring.unwrap_or_default().depth()),
    })
}

fn draw(
    run: &mut Headless,
    hook: &mut ServeHook,
    config: &Config,
    stop: &Stop,
    times: &mut FrameTimes,
) -> Result<()> {
    let mut parameters = Parameters::new(config);
    let mut moment = Moment { time: 0.0, step: FRAME_SECONDS * config.speed };
    let mut last = Instant::now();
    while !stop.requested() && config.frames.is_none_or(|frames| run.engine().next_frame() < frames) {
        hook.wait(run.engine(), &mut parameters)?;
        if !hook.is_ready() || hook.answers_first(run.engine()) || hook.rests(run.engine()) {
            last = Instant::now();
            continue;
        }
        // The picture of a client's frame is not drawn again.
        let is_there = hook.has_ring() && run.engine().drawer.on_screen().is_some();
        if !(is_there && hook.wants_picture()) {
            // Draws are compared while the GPU draws nothing else.
            let alone = if hook.measures(run.engine()) { run.engine().work.drain() } else { Ok(()) };
            if let Err(error) = alone.and_then(|()| run.frame_at(moment)) {
                hook.rescue(run.engine(), error)?;
                continue;
            }
            hook.drawn(Some(config.size));
            let now = Instant::now();
            times.add(now - last);
            let speed = if parameters.paused { 0.0 } else { parameters.speed };
            moment.step = (now - last).min(LONGEST_STEP).as_secs_f64() * speed;
            moment.time += moment.step;
            last = now;
        }
        if hook.wants_picture() {
            // Drain the queue first: draining has a timeout, and reading back has none.
            match run.engine().work.drain() {
                Ok(()) => {
                    let pixels = run.pixels();
                    hook.send_picture(run.engine(), config.size, pixels);
                }
                Err(error) => hook.rescue(run.engine(), error)?,
            }
        }
    }
    hook.shut();
    if let Err(error) = run.engine().work.finish() {
        hook.rescue(run.engine(), error)?;
        run.engine().work.finish()?;
    }
    times.finish(last.elapsed());
    if let Some(path) = &config.output {
        run.save(path, config, true)?;
    }
    Ok(())
}
