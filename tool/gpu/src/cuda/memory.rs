use cudarc::driver::sys;

use super::api;
use super::owned::{AutoDestroy, call_in};
use super::{Cuda, Stream};
use crate::Result;

pub struct DeviceMemory {
    memory: AutoDestroy<sys::CUdeviceptr>,
    size: u64,
}

impl DeviceMemory {
    /// Allocates `size` bytes, which must not be 0.
    pub fn new(context: &Cuda, size: u64) -> Result<Self> {
        // SAFETY: writes one address; the context is current.
        let allocate = |pointer| unsafe { api::cuMemAlloc(pointer, size as usize) };
        Ok(Self { memory: AutoDestroy::new(context, "cuMemAlloc", allocate)?, size })
    }

    pub fn pointer(&self) -> sys::CUdeviceptr {
        self.memory.raw
    }

    /// Enqueues a copy of the whole allocation to `target`.
    ///
    /// # Safety
    /// `stream` and `target` must belong to this allocation's context. `target` must be as large, and nothing
    /// else may use it until the copy is done.
    pub unsafe fn copy_to(&self, stream: &Stream, target: sys::CUdeviceptr) -> Result<()> {
        let (source, size) = (self.pointer(), self.size as usize);
        // SAFETY: the source is alive. The caller promises a `target` of this size and context, not in use.
        let copy = || unsafe { api::cuMemcpyDtoDAsync(target, source, size, stream.raw()) };
        Ok(call_in(&self.memory.context, "cuMemcpyDtoDAsync", copy)?)
    }

    /// Copies to the host as many bytes as `bytes` and the allocation both hold. Waits for the stream.
    pub fn read(&self, stream: &Stream, bytes: &mut [u8]) -> Result<()> {
        let context = &self.memory.context;
        context.require_same(stream.context().raw(), "cuMemcpyDtoHAsync")?;
        let (target, size) = (bytes.as_mut_ptr().cast(), bytes.len().min(self.size as usize));
        // SAFETY: both sides have at least `size` bytes, and `bytes` is borrowed until the wait below.
        let copy = || unsafe { api::cuMemcpyDtoHAsync(target, self.pointer(), size, stream.raw()) };
        call_in(context, "cuMemcpyDtoHAsync", copy)?;
        stream.synchronize()
    }
}

/// Enqueues a write that sets `bytes` bytes to zero. `bytes` must be a multiple of 4.
///
/// # Safety
/// `target` must be `bytes` bytes of the stream's context. Nothing else may use them until the write is done.
pub unsafe fn memset(stream: &Stream, target: sys::CUdeviceptr, bytes: u64) -> Result<()> {
    // SAFETY: `target` belongs to this context, is large enough, and is not in use (the caller's promise).
    let write = || unsafe { api::cuMemsetD32Async(target, 0, bytes as usize / 4, stream.raw()) };
    Ok(call_in(stream.context(), "cuMemsetD32Async", write)?)
}
