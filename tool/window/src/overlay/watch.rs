//! Collects the times of the last frames for the figures and for the lanes, which can be frozen.

use std::time::{Duration, Instant};

use egui::Ui;

use super::figures::Figures;
use super::{OverlayView, lanes};
use wavefield_gpu::Result;
use wavefield_run::Engine;

const TIE_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Watched {
    pub(super) figures: Figures,
    pub(super) frozen: Option<lanes::LaneFrames>,
    paused: bool,
    /// When the clocks of the CPU and the GPU were last correlated.
    tied: Option<Instant>,
}

impl Watched {
    /// Watches the engine's frames, and keeps the clocks correlated. `overlay` is the overlay's GPU time.
    pub(super) fn watch(&mut self, engine: &mut Engine, now: Instant, overlay: f64) -> Result<()> {
        if engine.observers.watched.is_none() {
            if engine.device().info().timestamp_period.is_some() {
                engine.observers.watch(&mut engine.work, lanes::WATCHED)?;
                self.figures.renumbered();
            }
            self.tied = Some(now);
        }
        if let Some(watched) = &engine.observers.watched {
            let profile = engine.work.producer.profile();
            self.figures.filled(profile.uses_cuda, engine.work.producer.batch());
            for frame in &watched.frames {
                self.figures.add(frame, profile.in_queue, &watched.clock, overlay);
            }
        }
        if self.tied.is_none_or(|tied| now - tied > TIE_EVERY) {
            engine.observers.tie_again(&mut engine.work)?;
            self.tied = Some(now);
        }
        Ok(())
    }

    pub(super) fn lanes(&mut self, ui: &mut Ui, view: &OverlayView<'_>, paused: bool) {
        let in_queue = view.engine.work.producer.profile().in_queue;
        let current = view.engine.observers.watched.as_ref().and_then(lanes::LaneFrames::of);
        // A pause freezes the lanes, as a click does.
        if std::mem::replace(&mut self.paused, paused) != paused {
            self.frozen = current.clone().filter(|_| paused);
        }
        let is_frozen = self.frozen.is_some();
        let clicked = match self.frozen.as_ref().or(current.as_ref()) {
            Some(moment) => lanes::show(ui, moment, in_queue, is_frozen),
            None if view.serves => false,
            None => {
                ui.label("no frame times yet, or a device without timestamps");
                false
            }
        };
        if clicked {
            self.frozen = if is_frozen { None } else { current };
        }
        if let Ok(slots) = view.engine.work.slots_now() {
            ui.horizontal(|ui| {
                ui.label("ring");
                lanes::ring(ui, &slots);
            });
        }
    }
}
