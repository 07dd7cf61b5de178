use ash::vk;

use super::{AutoDestroy, Device};
use crate::Result;

/// `MARKS` timestamps of the GPU for each frame in flight.
pub struct Timestamps<const MARKS: usize> {
    pool: AutoDestroy<vk::QueryPool>,
    period: f64,
}

impl<const MARKS: usize> Timestamps<MARKS> {
    pub fn new(device: &Device, flights: usize) -> Result<Option<Self>> {
        let Some(period) = device.info().timestamp_period else { return Ok(None) };
        let info = vk::QueryPoolCreateInfo::default()
            .query_type(vk::QueryType::TIMESTAMP)
            .query_count((flights * MARKS) as u32);
        // SAFETY: a live device.
        let create = |vk: &ash::Device| unsafe { vk.create_query_pool(&info, None) };
        let pool = AutoDestroy::new(device, "vkCreateQueryPool", create)?;
        Ok(Some(Self { pool, period }))
    }

    fn vk(&self) -> &ash::Device {
        self.pool.device().raw()
    }

    /// Records a reset of a frame's timestamps. Call this before the first of them, outside a render pass.
    pub fn reset(&self, commands: vk::CommandBuffer, flight: usize) {
        let first = (flight * MARKS) as u32;
        // SAFETY: recording, outside a render pass; the flight's previous frame is done with these queries.
        unsafe { self.vk().cmd_reset_query_pool(commands, self.pool.raw(), first, MARKS as u32) };
    }

    /// Records a timestamp: the time at which all earlier commands are done.
    pub fn mark(&self, commands: vk::CommandBuffer, flight: usize, mark: usize) {
        let query = (flight * MARKS + mark) as u32;
        let stage = vk::PipelineStageFlags2::ALL_COMMANDS;
        // SAFETY: recording; the query is reset by an earlier command, here or in an earlier command buffer.
        unsafe { self.vk().cmd_write_timestamp2(commands, stage, self.pool.raw(), query) };
    }

    /// Returns the timestamps of a finished frame in nanoseconds; `None` if they are not available.
    pub fn read(&self, flight: usize) -> Result<Option<[f64; MARKS]>> {
        let mut ticks = [0u64; MARKS];
        let (first, flags) = ((flight * MARKS) as u32, vk::QueryResultFlags::TYPE_64);
        // SAFETY: a live pool; the array has the size of the range.
        match unsafe { self.vk().get_query_pool_results(self.pool.raw(), first, &mut ticks, flags) } {
            Ok(()) => Ok(Some(ticks.map(|ticks| ticks as f64 * self.period))),
            Err(vk::Result::NOT_READY) => Ok(None),
            Err(result) => Err(self.pool.device().failed("vkGetQueryPoolResults")(result)),
        }
    }
}
