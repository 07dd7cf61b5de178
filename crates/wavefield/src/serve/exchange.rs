//! Exchanges the producer in the engine: the renderer's own, or a client's ring.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ash::vk;

use super::foreign::{ForeignProducer, Shared};
use super::pace::cpu_time;
use super::stamps::Stamps;
use crate::app::{Engine, Installed};
use crate::render::{Camera, Drawing};
use crate::{Error, Result, note};

/// How long the GPU may finish nothing while it draws what a dropped client wrote. Every draw ends at some time; only waiting
/// tells a slow GPU from one that hangs.
const SLOW: Duration = Duration::from_secs(300);

/// The producer in the engine, and the renderer's own that comes back later.
#[derive(Default)]
pub(super) struct Exchange {
    pub(super) stamps: Stamps,
    /// The renderer's own producer, while a client's ring is in the engine.
    built_in: Option<Installed>,
    /// The name of the client whose ring is in the engine, or was last.
    pub(super) ring_of: String,
    slow: Option<Slow>,
}

impl Exchange {
    pub(super) fn has_ring(&self) -> bool {
        self.built_in.is_some()
    }

    pub(super) fn put_ring(
        &mut self,
        engine: &mut Engine,
        client: &str,
        shared: &Rc<RefCell<Shared>>,
        drawing: Drawing,
        camera: Camera,
    ) -> Result<()> {
        let producer = ForeignProducer::new(engine.queue(), client, shared);
        let incoming = Installed::new(Box::new(producer), &[], drawing, camera);
        self.built_in = Some(exchange(engine, incoming)?);
        client.clone_into(&mut self.ring_of);
        self.stamps.begin(engine, client);
        Ok(())
    }

    pub(super) fn take_back(&mut self, engine: &mut Engine) -> Result<()> {
        if self.built_in.is_some() {
            drop(engine.swap(&mut self.built_in)?);
            self.stamps.end(engine);
        }
        Ok(())
    }

    /// A client's array takes longer than `--timeout` to draw. The GPU cannot be stopped, so [`Exchange::restore`] waits.
    pub(super) fn give_up(&mut self, engine: &Engine) -> Result<()> {
        self.slow = Some(Slow::begin(engine)?);
        Ok(())
    }

    pub(super) fn is_ready(&self) -> bool {
        self.slow.is_none()
    }

    pub(super) fn obstacle(&self) -> Option<String> {
        let seconds = self.slow.as_ref()?.began.elapsed().as_secs_f64();
        Some(format!(
            "the GPU still draws what {} wrote, for {seconds:.0} s so far: try again later",
            self.ring_of
        ))
    }

    /// [`Exchange::take_back`], once the GPU is done with what the client wrote.
    ///
    /// # Errors
    /// The GPU has finished nothing for [`SLOW`].
    pub(super) fn restore(&mut self, engine: &mut Engine) -> Result<()> {
        if let Some(slow) = &mut self.slow
            && slow.goes_on(engine, &self.ring_of)?
        {
            return Ok(());
        }
        self.take_back(engine)?;
        if let Some(slow) = self.slow.take() {
            let seconds = slow.began.elapsed().as_secs_f64();
            note!(
                "note: {seconds:.1} s later the GPU is done with what {} wrote, and the field goes on",
                self.ring_of
            );
        }
        Ok(())
    }
}

/// [`Engine::swap`] with a new producer. If the GPU does not come to rest, leaks the new producer: the GPU may use it.
fn exchange(engine: &mut Engine, incoming: Installed) -> Result<Installed> {
    let mut incoming = Some(incoming);
    let swapped = engine.swap(&mut incoming);
    if matches!(swapped, Err(Error::Stuck { .. } | Error::Stopped(_))) {
        std::mem::forget(incoming.take());
    }
    swapped
}

struct Slow {
    began: Instant,
    /// When the GPU was last seen to finish a frame, and how many it had finished then.
    progress: Instant,
    finished: u64,
    /// The CPU time of this process by then.
    cpu: Duration,
}

impl Slow {
    fn begin(engine: &Engine) -> Result<Self> {
        let (now, finished) = (Instant::now(), engine.frames_finished()?);
        Ok(Self { began: now, progress: now, finished, cpu: cpu_time() })
    }

    /// Whether the GPU still draws.
    ///
    /// # Errors
    /// It has finished no frame for [`SLOW`], and a software device has used hardly any CPU time.
    fn goes_on(&mut self, engine: &Engine, client: &str) -> Result<bool> {
        let finished = engine.frames_finished()?;
        // A software device that draws uses CPU time.
        let works =
            engine.device().info().kind == vk::PhysicalDeviceType::CPU && cpu_time() > self.cpu + SLOW / 10;
        if finished > self.finished || works {
            (self.finished, self.progress, self.cpu) = (finished, Instant::now(), cpu_time());
        }
        if finished < engine.next_frame() && self.progress.elapsed() >= SLOW {
            return Err(Error::Stuck {
                device: engine.device().info().name.clone(),
                seconds: self.progress.elapsed().as_secs_f64(),
                progress: format!("it was given what {client} wrote, and may hang"),
            });
        }
        Ok(finished < engine.next_frame())
    }
}
