use cudarc::driver::sys;

use super::Cuda;
use super::api::{self, Code};
use crate::Result;

pub struct Stream {
    raw: sys::CUstream,
    context: Cuda,
}

// SAFETY: the driver API is thread-safe, and every use binds the context first.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

// SAFETY: the stream is destroyed when the value is dropped, and the value keeps the context alive.
unsafe impl vulkan_cuda::Stream for Stream {
    fn raw(&self) -> sys::CUstream {
        self.raw
    }

    fn context(&self) -> sys::CUcontext {
        self.context.raw()
    }
}

impl Stream {
    /// Creates a stream that does not wait for the legacy default stream.
    pub fn new(context: &Cuda) -> Result<Self> {
        context.bind()?;
        let (mut raw, flags) = (std::ptr::null_mut(), sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32);
        // SAFETY: writes one handle; the context is current.
        context.check("cuStreamCreate", unsafe { api::cuStreamCreate(&mut raw, flags) })?;
        Ok(Self { raw, context: context.clone() })
    }

    pub fn raw(&self) -> sys::CUstream {
        self.raw
    }

    pub fn context(&self) -> &Cuda {
        &self.context
    }

    /// Returns without waiting whether all enqueued work is done. Fails if a kernel failed.
    pub fn is_idle(&self) -> Result<bool> {
        self.context.bind()?;
        // SAFETY: a live stream of the current context.
        is_ready(&self.context, "cuStreamQuery", unsafe { api::cuStreamQuery(self.raw) })
    }

    /// Blocks the CPU until all enqueued work is done. Fails if a kernel failed.
    pub fn synchronize(&self) -> Result<()> {
        self.context.bind()?;
        // SAFETY: a live stream of the current context.
        Ok(self.context.check("cuStreamSynchronize", unsafe { api::cuStreamSynchronize(self.raw) })?)
    }
}

/// Returns false for `NOT_READY`.
fn is_ready(context: &Cuda, call: &'static str, code: Code) -> Result<bool> {
    match code {
        Code::NOT_READY => Ok(false),
        code => Ok(context.check(call, code).map(|()| true)?),
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: created above. A stream may be destroyed while it has work, which then still completes.
        self.context.cleanup("cuStreamDestroy", || unsafe { api::cuStreamDestroy(self.raw) });
    }
}

pub struct Event {
    raw: sys::CUevent,
    context: Cuda,
}

// SAFETY: as for `Stream`.
unsafe impl Send for Event {}

impl Event {
    pub fn new(context: &Cuda) -> Result<Self> {
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle; the context is current.
        context.check("cuEventCreate", unsafe {
            api::cuEventCreate(&mut raw, sys::CUevent_flags::CU_EVENT_DEFAULT as u32)
        })?;
        Ok(Self { raw, context: context.clone() })
    }

    /// Marks the end of the work that is enqueued on `stream` so far.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.context.require_same(stream.context.raw(), "cuEventRecord")?;
        self.context.bind()?;
        // SAFETY: event and stream are alive and of one context, checked above.
        Ok(self.context.check("cuEventRecord", unsafe { api::cuEventRecord(self.raw, stream.raw()) })?)
    }

    /// Returns without waiting whether all work before the mark is done. True if it was never recorded.
    pub fn is_done(&self) -> Result<bool> {
        self.context.bind()?;
        // SAFETY: a live event of the current context.
        is_ready(&self.context, "cuEventQuery", unsafe { api::cuEventQuery(self.raw) })
    }

    /// Returns the milliseconds between two recorded events; `None` until the stream has reached both.
    pub fn elapsed_ms(&self, end: &Event) -> Result<Option<f32>> {
        self.context.require_same(end.context.raw(), "cuEventElapsedTime")?;
        self.context.bind()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive and of one context, checked above.
        let code = unsafe { api::cuEventElapsedTime(&mut milliseconds, self.raw, end.raw) };
        Ok(is_ready(&self.context, "cuEventElapsedTime", code)?.then_some(milliseconds))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created above.
        self.context.cleanup("cuEventDestroy", || unsafe { api::cuEventDestroy(self.raw) });
    }
}
