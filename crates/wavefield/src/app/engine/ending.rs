//! The results of a run: its summary, what the check found, the trace, and the slots.

use super::batching::AutoBatch;
use super::{Engine, Health};
use crate::app::{FrameTimes, Summary};
use crate::producer::{Profile, Source, Vertices, level_regions};
use crate::report::Failures;
use crate::texture::{self, Texel};
use crate::trace::{Recorder, Track};
use crate::vulkan::{read_buffer, read_image_levels};
use crate::wave::{Grid, Vertex};
use crate::{Error, Result};

impl Engine {
    /// Traces the next `most` frames, see [`crate::trace`]. Brings both APIs to rest.
    pub(crate) fn start_trace(&mut self, most: usize) -> Result<()> {
        self.finish()?;
        // Earlier frames are not part of the trace.
        self.look_at_all()?;
        let fill = self.producer.fill();
        self.observers.recorder = Some(Recorder::new(&mut self.queue, fill, self.pacer.depth(), most)?);
        Ok(())
    }

    pub(crate) fn end_trace(&mut self, name: String, failures: &mut Failures) -> Option<Track> {
        self.collect_rest(failures);
        self.cut_trace(|_, _| name);
        self.traced.take()
    }

    /// Ends the trace, and keeps it with the settings of its frames. False if no trace is on.
    pub(super) fn cut_trace(&mut self, name: impl FnOnce(Grid, &Profile) -> String) -> bool {
        let Some(recorder) = self.observers.recorder.take() else { return false };
        let (device, profile) = (self.queue.device(), self.producer.profile());
        let name = name(self.array().grid(), profile);
        self.traced = Some(recorder.into_track(name, device, self.array().grid(), profile));
        true
    }

    /// Waits for the frames in flight and looks at them. After a failure, looks only at those that the GPU has finished.
    fn collect_rest(&mut self, failures: &mut Failures) {
        if !self.has_failed() {
            failures.catch(self.finish());
        } else if self.health == Health::Failed && !self.quiesce() {
            // Mesa returns a timestamp only once nothing is pending, so reading one would wait forever.
            return;
        }
        let finished = self.pacer.finished().unwrap_or(0);
        for end in self.looked + 1..=finished {
            let looked = self.look_until(end).map(drop);
            // Do not report what only follows from an earlier failure.
            if !self.has_failed() {
                failures.catch(looked);
            }
        }
    }

    /// Reads the vertices that the last frame left in a slot. Waits for both APIs. For tests.
    pub fn read_slot(&mut self, slot: usize) -> Result<Vec<Vertex>> {
        self.finish()?;
        let profile = self.producer.profile();
        let Source::Vertices(Vertices { buffer, .. }) = profile.slots[slot] else {
            return Err(Error::Rule("slots of this scene are images".into()));
        };
        let size = self.renderer.drawing().array().bytes();
        // SAFETY: one of the producer's slots, which hold this array.
        let bytes = unsafe { read_buffer(&mut self.queue, buffer, size, profile.owner) }?;
        Ok(bytemuck::allocation::pod_collect_to_vec(&bytes))
    }

    /// Reads the texels that the last frame left in a slot, level after level. Waits for both APIs. For tests.
    pub fn read_texture(&mut self, slot: usize) -> Result<Vec<Texel>> {
        self.finish()?;
        let profile = self.producer.profile();
        let Source::Texture(slot) = profile.slots[slot] else {
            return Err(Error::Rule("slots of this scene are buffers".into()));
        };
        let size = self.renderer.drawing().array().grid();
        let (image, regions) = ((slot.image, slot.layout), level_regions(size));
        let bytes = texture::chain_bytes(size);
        // SAFETY: one of the producer's slots, which hold a texture of this size.
        let bytes = unsafe { read_image_levels(&mut self.queue, image, &regions, bytes, profile.owner) }?;
        Ok(bytemuck::allocation::pod_collect_to_vec(&bytes))
    }

    /// The summary of the run. In a checked run, reads every slot back unless something has failed, and includes what
    /// the check found. Waits for both APIs.
    pub fn summary(&mut self, times: FrameTimes, skipped: u64, failures: &mut Failures) -> Summary {
        self.collect_rest(failures);
        let (drawn, failed) = (self.pacer.submitted(), self.has_failed());
        let profile = self.producer.profile();
        let checked = self.observers.check.as_mut().map(|check| {
            let whole = (!failed).then(|| check.finish(&mut self.queue, profile, drawn));
            let whole = whole.and_then(|whole| failures.catch(whole));
            whole.unwrap_or_else(|| check.so_far(drawn))
        });
        let info = self.queue.device().info();
        let instance = self.queue.device().instance();
        Summary {
            checked,
            recorded: None,
            parts: None,
            frames: drawn,
            skipped,
            times,
            pacing_waits: self.pacer.blocking_waits(),
            handoff_waits: self.handoff_waits,
            ring: profile.slots.len(),
            batch: self.batch(),
            batch_changes: self.auto.as_ref().map(AutoBatch::changes),
            scene: self.scene,
            grid: self.renderer.drawing().array().grid(),
            producer: profile.name,
            device: format!("{} ({})", info.name, info.driver),
            validation: instance.validates().then(|| instance.validation_log().warnings()),
        }
    }
}
