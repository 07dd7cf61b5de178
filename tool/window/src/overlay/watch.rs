//! What the overlay reads from the engine: the last frames' times, and what is under the pointer.

use std::time::{Duration, Instant};

use super::{Overlay, OverlayView, lanes};
use wavefield_gpu::Result;
use wavefield_run::Engine;

const TIE_EVERY: Duration = Duration::from_secs(1);

impl Overlay {
    /// Starts `Observers::watch` if it is off, and keeps the clocks tied.
    pub(super) fn watch(&mut self, engine: &mut Engine, now: Instant) -> Result<()> {
        if engine.observers.watched.is_none() {
            if engine.device().info().timestamp_period.is_some() {
                engine.observers.watch(&mut engine.work, lanes::WATCHED)?;
                self.figures.renumbered();
            }
            self.tied = now;
        }
        if let Some(watched) = &engine.observers.watched {
            let profile = engine.work.producer.profile();
            self.figures.filled(profile.uses_cuda, engine.work.producer.batch());
            for frame in &watched.frames {
                self.figures.add(frame, profile.in_queue, &watched.clock, self.gpu_cost);
            }
        }
        if now - self.tied > TIE_EVERY {
            engine.observers.tie_again(&mut engine.work)?;
            self.tied = now;
        }
        Ok(())
    }

    pub(super) fn point(&mut self, view: &mut OverlayView<'_>) -> Result<()> {
        let size = (view.extent.width, view.extent.height);
        // Picking assumes a height field, and a client's mesh need not be one.
        let may_find = !view.serves || view.engine.drawer.image_in(view.extent).is_some();
        let on_picture = may_find && !self.egui.is_pointer_over_area();
        let pointer = self.egui.pointer_latest_pos().filter(|_| on_picture);
        let scale = self.egui.pixels_per_point();
        let Engine { observers, drawer, work, .. } = &mut *view.engine;
        if observers.point(work, drawer, pointer.map(|at| (at.x * scale, at.y * scale)), size)? {
            self.figures.ignore_gap(Instant::now());
        }
        Ok(())
    }
}
