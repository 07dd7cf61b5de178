//! Changing the settings while the engine runs.

use super::Engine;
use super::setup::Setup;
use crate::app::traced::track_name;
use crate::app::watchdog::Patience;
use crate::app::{Choice, Config, RISK};
use crate::cuda::Cuda;
use crate::handoff::Handoff;
use crate::render::View;
use crate::{Error, Result};

impl Engine {
    /// Changes the settings from the next frame on: all except the device, how the CPU waits, and the window. Waits for both APIs.
    /// No frame is lost: those in flight are drawn first.
    ///
    /// The old objects stay until all new ones are made, so both need memory for a moment.
    ///
    /// # Errors
    /// Fails as [`Engine::new`] does. Nothing has changed then, and the engine can go on drawing, unless
    /// [`Engine::has_failed`].
    pub(crate) fn switch(&mut self, choice: &Choice, config: &Config) -> Result<()> {
        let cuda = choice.twin.clone().filter(|_| config.producer.may_use_cuda());
        let choice = Choice { cuda, ..choice.clone() };
        config.check_kernel(&choice)?;
        let (handoff, _) = config.handoff.on(self.device().info(), config.scene);
        if config.has_own_kernel() && handoff == Handoff::Inline && !config.risk_the_gpu {
            return Err(Error::Unsupported(format!("a kernel of your own does not run inline: {RISK}")));
        }
        self.finish()?;
        // Tell the observers of every frame drawn so far.
        self.look_at_all()?;
        if let (Some((driver, info)), None) = (&choice.cuda, &*self.context) {
            *self.context = Some(Cuda::primary(*driver, info)?);
        }
        let context = self.context.as_ref().filter(|_| choice.cuda.is_some());
        let made = Setup::make(&mut self.queue, context, &choice, config, (self.format, self.flights))?;
        let pacer = self.pacer.succeed(&self.queue, made.flights)?;
        // Nothing may fail from here on.
        let Setup { producer, check, renderer, times, flights } = made;
        self.patience =
            Patience { stop: self.patience.stop.clone(), ..Patience::new(&self.queue, &choice, config) };
        self.queue.set_patience(self.patience.limit(self.pacer.slowest()));
        let before = self.observers.check.take().map(|check| check.tally());
        self.observers.check = check.zip(before).map(|(check, before)| check.with_earlier(before));
        if self.cut_trace(track_name) {
            crate::note!("note: the trace ends here, because the settings have changed");
        }
        (self.renderer, self.times, self.pacer) = (renderer, times, pacer);
        self.recordings.restart(flights);
        // Both APIs are at rest, so the old producer is not in use.
        *self.producer = producer;
        (self.finished, self.first, self.filled) = (None, self.pacer.submitted(), 0);
        // These must start again: their clocks and slots are the old producer's.
        (self.observers.live, self.observers.probe) = (None, None);
        (self.batching, self.scene) = (config.batch, config.scene);
        self.view = View { camera: self.view.camera, ..View::of(self.array()) };
        self.parameters = self.producer.profile().parameters.values(&config.parameters);
        self.begin_producer();
        Ok(())
    }
}
