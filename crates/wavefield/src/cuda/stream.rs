//! Streams and events.

use cudarc::driver::sys;

use super::Cuda;
use super::api::{self, Code};
use crate::Result;

/// A queue of CUDA work that runs in order.
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
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle; the context is current.
        context.check("cuStreamCreate", unsafe {
            api::cuStreamCreate(&mut raw, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32)
        })?;
        Ok(Self { raw, context: context.clone() })
    }

    /// The raw handle.
    pub fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// The context that it belongs to.
    pub fn context(&self) -> &Cuda {
        &self.context
    }

    /// Whether all enqueued work is done; does not wait. Returns an error if a kernel failed.
    pub fn is_idle(&self) -> Result<bool> {
        self.context.bind()?;
        // SAFETY: a live stream of the current context.
        match unsafe { api::cuStreamQuery(self.raw) } {
            Code::NOT_READY => Ok(false),
            code => Ok(self.context.check("cuStreamQuery", code).map(|()| true)?),
        }
    }

    /// Blocks the CPU until all enqueued work is done. Returns an error if a kernel failed.
    pub fn synchronize(&self) -> Result<()> {
        self.context.bind()?;
        // SAFETY: a live stream of the current context.
        Ok(self.context.check("cuStreamSynchronize", unsafe { api::cuStreamSynchronize(self.raw) })?)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: created above. A stream may be destroyed while it has work, which then still completes.
        self.context.cleanup("cuStreamDestroy", || unsafe { api::cuStreamDestroy(self.raw) });
    }
}

/// A mark in a stream that has a time.
pub struct Event {
    raw: sys::CUevent,
    context: Cuda,
}

// SAFETY: as for `Stream`.
unsafe impl Send for Event {}

impl Event {
    /// Creates an event that records a time.
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
    ///
    /// # Errors
    /// The stream belongs to another context. CUDA is not called then.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.context.require_same(stream.context.raw(), "cuEventRecord")?;
        self.context.bind()?;
        // SAFETY: event and stream are alive and of one context, checked above.
        Ok(self.context.check("cuEventRecord", unsafe { api::cuEventRecord(self.raw, stream.raw()) })?)
    }

    /// Whether all work before the mark is done; does not wait. An event that was never recorded counts as done.
    pub fn is_done(&self) -> Result<bool> {
        self.context.bind()?;
        // SAFETY: a live event of the current context.
        match unsafe { api::cuEventQuery(self.raw) } {
            Code::NOT_READY => Ok(false),
            code => Ok(self.context.check("cuEventQuery", code).map(|()| true)?),
        }
    }

    /// Milliseconds from `self` to `end`, which must both be recorded; `None` until the stream has reached both.
    ///
    /// # Errors
    /// The event belongs to another context. CUDA is not called then.
    pub fn elapsed_ms(&self, end: &Event) -> Result<Option<f32>> {
        self.context.require_same(end.context.raw(), "cuEventElapsedTime")?;
        self.context.bind()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive and of one context, checked above.
        match unsafe { api::cuEventElapsedTime(&mut milliseconds, self.raw, end.raw) } {
            Code::NOT_READY => Ok(None),
            code => Ok(self.context.check("cuEventElapsedTime", code).map(|()| Some(milliseconds))?),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created above.
        self.context.cleanup("cuEventDestroy", || unsafe { api::cuEventDestroy(self.raw) });
    }
}
