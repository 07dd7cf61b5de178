use std::time::Duration;

use ash::vk;

use super::Device;
use crate::{Error, Result};

/// A device's only queue. Used through `&mut`, because Vulkan requires external synchronization.
pub struct Queue {
    device: Device,
    raw: vk::Queue,
    family: u32,
    /// The timeout of [`Queue::wait_idle`]; by default 10 s.
    pub patience: Duration,
}

impl Queue {
    /// # Safety
    /// The device must have been made with one queue of this family, and nothing else may use that queue.
    pub(super) unsafe fn new(device: &Device, family: u32) -> Self {
        // SAFETY: the device has such a queue (the caller's promise).
        let raw = unsafe { device.raw().get_device_queue(family, 0) };
        Self { device: device.clone(), raw, family, patience: Duration::from_secs(10) }
    }

    pub fn family(&self) -> u32 {
        self.family
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the handle, for presenting and for a library that makes its own submissions.
    pub fn raw(&mut self) -> vk::Queue {
        self.raw
    }

    /// # Safety
    /// The rules of `vkQueueSubmit2` must hold. The command buffers must be recorded and not pending, and
    /// every object that a batch uses must live until the GPU is done with it.
    pub unsafe fn submit(&mut self, batches: &[vk::SubmitInfo2<'_>]) -> Result<()> {
        // SAFETY: the caller's promise; `&mut self` is the external synchronization.
        unsafe { self.device.raw().queue_submit2(self.raw, batches, vk::Fence::null()) }
            .map_err(self.device.failed("vkQueueSubmit2"))
    }

    /// Blocks until everything submitted is done. Does not wait for presents, which are not submissions.
    ///
    /// # Errors
    /// [`Error::Stuck`] after the timeout ([`Queue::patience`]); the device and its objects are leaked.
    pub fn wait_idle(&mut self) -> Result<()> {
        // SAFETY: only a signal is submitted.
        unsafe { self.submit_and_wait(&[]) }
    }

    /// Submits `commands`, and blocks until these and all earlier commands are done. After an error, none is
    /// pending, or everything is leaked.
    ///
    /// # Safety
    /// The same rules as for [`Queue::submit`].
    pub unsafe fn submit_and_wait(&mut self, commands: &[vk::CommandBufferSubmitInfo<'_>]) -> Result<()> {
        let device = self.device.clone();
        let done = device.timeline(0)?;
        let signal = [vk::SemaphoreSubmitInfo::default()
            .semaphore(done.raw())
            .value(1)
            .stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)];
        let batch = vk::SubmitInfo2::default().command_buffer_infos(commands).signal_semaphore_infos(&signal);
        // SAFETY: the caller's promise for `commands`; the semaphore lives until they are done, or is leaked.
        let submitted = unsafe { self.submit(&[batch]) };
        // Wait with a timeout, which `vkQueueWaitIdle` does not have.
        match submitted.and_then(|()| device.wait(&done, 1, self.patience)) {
            Ok(true) => Ok(()),
            Ok(false) => {
                device.mark_stuck();
                Err(Error::Stuck {
                    device: device.info().name.clone(),
                    seconds: self.patience.as_secs_f64(),
                    progress: "Vulkan's queue did not become idle".into(),
                })
            }
            Err(error) => {
                // If only the wait failed, the commands may still be running.
                let _ = self.wait_presented();
                Err(error)
            }
        }
    }

    /// Blocks until the queue is idle, including presents. Has no timeout: wait for all submissions first.
    pub fn wait_presented(&mut self) -> Result<()> {
        // SAFETY: `&mut self` is the external synchronization.
        unsafe { self.device.raw().queue_wait_idle(self.raw) }.map_err(self.device.failed("vkQueueWaitIdle"))
    }
}
