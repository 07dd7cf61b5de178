//! GPU timestamps of a frame.

use ash::vk;

use super::Device;
use crate::Result;

/// A few timestamps for each frame in flight.
pub struct Timestamps<const MARKS: usize> {
    pool: vk::QueryPool,
    period: f64,
    device: Device,
}

impl<const MARKS: usize> Timestamps<MARKS> {
    /// `None` if the device's queue has no timestamps.
    pub fn new(device: &Device, flights: usize) -> Result<Option<Self>> {
        let Some(period) = device.info().timestamp_period else { return Ok(None) };
        let info = vk::QueryPoolCreateInfo::default()
            .query_type(vk::QueryType::TIMESTAMP)
            .query_count((flights * MARKS) as u32);
        // SAFETY: a live device.
        let pool = unsafe { device.raw().create_query_pool(&info, None) }
            .map_err(device.failed("vkCreateQueryPool"))?;
        Ok(Some(Self { pool, period, device: device.clone() }))
    }

    /// Records the reset of a flight's marks. It must come before the first mark, outside a render pass.
    pub(crate) fn reset(&self, commands: vk::CommandBuffer, flight: usize) {
        let first = (flight * MARKS) as u32;
        // SAFETY: recording, outside a render pass; the flight's last frame is done, so its queries are not in use.
        unsafe { self.device.raw().cmd_reset_query_pool(commands, self.pool, first, MARKS as u32) };
    }

    /// Records mark `mark`: the time when everything recorded before it was done.
    pub(crate) fn mark(&self, commands: vk::CommandBuffer, flight: usize, mark: usize) {
        let query = (flight * MARKS + mark) as u32;
        let stage = vk::PipelineStageFlags2::ALL_COMMANDS;
        // SAFETY: recording; the query was reset in this command buffer.
        unsafe { self.device.raw().cmd_write_timestamp2(commands, stage, self.pool, query) };
    }

    /// A finished frame's marks in nanoseconds; `None` if they are not available.
    pub fn read(&self, flight: usize) -> Result<Option<[f64; MARKS]>> {
        let mut ticks = [0u64; MARKS];
        let (first, flags) = ((flight * MARKS) as u32, vk::QueryResultFlags::TYPE_64);
        // SAFETY: a live pool; the array has the size of the range.
        match unsafe { self.device.raw().get_query_pool_results(self.pool, first, &mut ticks, flags) } {
            Ok(()) => Ok(Some(ticks.map(|ticks| ticks as f64 * self.period))),
            Err(vk::Result::NOT_READY) => Ok(None),
            Err(result) => Err(self.device.failed("vkGetQueryPoolResults")(result)),
        }
    }
}

impl<const MARKS: usize> Drop for Timestamps<MARKS> {
    fn drop(&mut self) {
        if self.device.is_left_running() {
            return;
        }
        // SAFETY: the GPU is done with it, as the module `vulkan` demands.
        unsafe { self.device.raw().destroy_query_pool(self.pool, None) };
    }
}
