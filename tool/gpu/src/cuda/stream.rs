use cudarc::driver::sys;

use super::Cuda;
use super::api::{self, Code};
use super::owned::{AutoDestroy, call_in};
use crate::Result;

pub struct Stream(AutoDestroy<sys::CUstream>);

// SAFETY: the handles never change. The stream lives as long as the value, which keeps the context alive.
unsafe impl vulkan_cuda::Stream for Stream {
    fn raw(&self) -> sys::CUstream {
        self.0.raw
    }

    fn context(&self) -> sys::CUcontext {
        self.0.context.raw()
    }
}

impl Stream {
    /// Creates a stream that does not synchronize with the legacy default stream.
    pub fn new(context: &Cuda) -> Result<Self> {
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: writes one handle; the context is current.
        let create = |stream| unsafe { api::cuStreamCreate(stream, flags) };
        Ok(Self(AutoDestroy::new(context, "cuStreamCreate", create)?))
    }

    pub fn raw(&self) -> sys::CUstream {
        self.0.raw
    }

    pub fn context(&self) -> &Cuda {
        &self.0.context
    }

    /// Returns whether all enqueued work is done, without waiting. Fails if a kernel failed.
    pub fn is_idle(&self) -> Result<bool> {
        // SAFETY: a live stream of the current context.
        is_ready(&self.0.context, "cuStreamQuery", || unsafe { api::cuStreamQuery(self.0.raw) })
    }

    /// Blocks the CPU until all enqueued work is done. Fails if a kernel failed.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: a live stream of the current context.
        let wait = || unsafe { api::cuStreamSynchronize(self.0.raw) };
        Ok(call_in(&self.0.context, "cuStreamSynchronize", wait)?)
    }
}

/// Makes the context current and calls `query`. Returns false if the answer is `NOT_READY`.
fn is_ready(context: &Cuda, call: &'static str, query: impl FnOnce() -> Code) -> Result<bool> {
    context.bind()?;
    match query() {
        Code::NOT_READY => Ok(false),
        code => Ok(context.check(call, code).map(|()| true)?),
    }
}

pub struct Event(AutoDestroy<sys::CUevent>);

impl Event {
    pub fn new(context: &Cuda) -> Result<Self> {
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT as u32;
        // SAFETY: writes one handle; the context is current.
        let create = |event| unsafe { api::cuEventCreate(event, flags) };
        Ok(Self(AutoDestroy::new(context, "cuEventCreate", create)?))
    }

    /// Records the event after the work that is enqueued on `stream` so far.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let context = &self.0.context;
        context.require_same(stream.context().raw(), "cuEventRecord")?;
        // SAFETY: event and stream are alive, and belong to one context (checked above).
        let record = || unsafe { api::cuEventRecord(self.0.raw, stream.raw()) };
        Ok(call_in(context, "cuEventRecord", record)?)
    }

    /// Returns whether all work before the event is done, or the event was never recorded. Does not wait.
    pub fn is_done(&self) -> Result<bool> {
        // SAFETY: a live event of the current context.
        is_ready(&self.0.context, "cuEventQuery", || unsafe { api::cuEventQuery(self.0.raw) })
    }

    /// Returns the milliseconds from this event to `end`; `None` until both are done. Fails before they are
    /// recorded.
    pub fn elapsed_ms(&self, end: &Event) -> Result<Option<f32>> {
        let (context, mut milliseconds) = (&self.0.context, 0.0);
        context.require_same(end.0.context.raw(), "cuEventElapsedTime")?;
        // SAFETY: both events are alive, and belong to one context (checked above).
        let elapsed = || unsafe { api::cuEventElapsedTime(&mut milliseconds, self.0.raw, end.0.raw) };
        Ok(is_ready(context, "cuEventElapsedTime", elapsed)?.then_some(milliseconds))
    }
}
