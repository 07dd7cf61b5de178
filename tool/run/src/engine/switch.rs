//! Changes the settings of a run between two frames.

use super::Engine;
use super::setup::Setup;
use crate::watchdog::WaitLimit;
use crate::{Choice, Config, RISK};
use wavefield_draw::FieldView;
use wavefield_gpu::cuda::Cuda;
use wavefield_gpu::{Error, Result};
use wavefield_handoff::Handoff;

impl Engine {
    /// Changes the settings from the next frame on: all except the device and the window. Waits for both
    /// APIs; frames in flight are drawn first. Old and new objects need memory at the same time. An error
    /// changes nothing, and the engine can go on unless [`Engine::has_failed`].
    pub fn switch(&mut self, choice: &Choice, config: &Config) -> Result<()> {
        let cuda = choice.twin.clone().filter(|_| config.producer.may_use_cuda());
        let choice = Choice { cuda, ..choice.clone() };
        config.check_kernel(&choice)?;
        let (handoff, _) = config.handoff.on(self.device().info());
        if config.has_own_kernel() && handoff == Handoff::Inline && !config.risk_the_gpu {
            return Err(Error::Unsupported(format!("a kernel of your own does not run inline: {RISK}")));
        }
        self.settle()?;
        if let (Some((driver, info)), None) = (&choice.cuda, &self.context) {
            self.context = Some(Cuda::primary(*driver, info)?);
        }
        let context = self.context.as_ref().filter(|_| choice.cuda.is_some());
        let made =
            Setup::make(&mut self.queue, context, &choice, config, (self.drawer.format, self.flights))?;
        let pacer = self.pacer.succeed(&self.queue, made.flights)?;
        // Nothing may fail from here on.
        self.side_views = None;
        let Setup { producer, check, renderer, times, flights } = made;
        self.wait_limit =
            WaitLimit { stop: self.wait_limit.stop.clone(), ..WaitLimit::new(&self.queue, &choice, config) };
        self.queue.set_patience(self.wait_limit.limit(self.pacer.slowest()));
        let before = self.observers.check.take().map(|check| check.tally());
        self.observers.check = check.zip(before).map(|(check, before)| check.with_earlier(before));
        if self.cut_trace() {
            wavefield_gpu::note!("note: the trace ends here, because the settings have changed");
        }
        (self.drawer.renderer, self.times, self.pacer) = (renderer, times, pacer);
        self.times.collected = self.pacer.submitted();
        self.recordings.flights = vec![None; flights];
        // Both APIs are at rest, so the old producer is not in use.
        *self.producer_state.producer = producer;
        (self.producer_state.first, self.producer_state.filled) = (self.pacer.submitted(), 0);
        // Their clocks and slots are the old producer's.
        (self.observers.live, self.observers.probe) = (None, None);
        (self.producer_state.batching, self.drawer.scene) = (config.batch, config.scene);
        self.drawer.view = FieldView { camera: self.drawer.view.camera, ..FieldView::of(self.array()) };
        self.producer_state.parameters = self.producer_state.profile().parameters.values(&config.parameters);
        self.producer_state.begin(&mut self.pacer);
        Ok(())
    }
}
