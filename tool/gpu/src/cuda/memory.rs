use cudarc::driver::sys;

use super::api;
use super::{Cuda, Stream};
use crate::Result;

pub struct DeviceMemory {
    pointer: sys::CUdeviceptr,
    size: u64,
    context: Cuda,
}

// SAFETY: the driver API is thread-safe, and every use binds the context first.
unsafe impl Send for DeviceMemory {}

impl DeviceMemory {
    /// Allocates `size` bytes, which must not be 0.
    pub fn new(context: &Cuda, size: u64) -> Result<Self> {
        context.bind()?;
        let mut pointer = 0;
        // SAFETY: writes one address; the context is current.
        context.check("cuMemAlloc", unsafe { api::cuMemAlloc(&mut pointer, size as usize) })?;
        Ok(Self { pointer, size, context: context.clone() })
    }

    pub fn pointer(&self) -> sys::CUdeviceptr {
        self.pointer
    }

    /// Enqueues a copy of the whole memory.
    ///
    /// # Safety
    /// Both are of this context. `target` is as large, and nobody else's until the stream has passed.
    pub unsafe fn copy_to(&self, stream: &Stream, target: sys::CUdeviceptr) -> Result<()> {
        self.context.bind()?;
        // SAFETY: `target` is as large, of this context, and nobody else's until then (the caller's promise).
        let code = unsafe { api::cuMemcpyDtoDAsync(target, self.pointer, self.size as usize, stream.raw()) };
        Ok(self.context.check("cuMemcpyDtoDAsync", code)?)
    }

    /// Enqueues a copy from `source` that fills the whole memory.
    ///
    /// # Safety
    /// Both are of this context. `source` is as large, and unchanged until the stream has passed.
    pub unsafe fn copy_from(&self, stream: &Stream, source: sys::CUdeviceptr) -> Result<()> {
        self.context.bind()?;
        // SAFETY: `source` is as large, of this context, and unchanged until then (the caller's promise).
        let code = unsafe { api::cuMemcpyDtoDAsync(self.pointer, source, self.size as usize, stream.raw()) };
        Ok(self.context.check("cuMemcpyDtoDAsync", code)?)
    }

    /// Copies at most `bytes.len()` bytes to the host, and waits for the stream.
    pub fn read(&self, stream: &Stream, bytes: &mut [u8]) -> Result<()> {
        self.context.require_same(stream.context().raw(), "cuMemcpyDtoHAsync")?;
        self.context.bind()?;
        let size = bytes.len().min(self.size as usize);
        // SAFETY: both sides have at least `size` bytes, and `bytes` is borrowed until the wait below.
        let code =
            unsafe { api::cuMemcpyDtoHAsync(bytes.as_mut_ptr().cast(), self.pointer, size, stream.raw()) };
        self.context.check("cuMemcpyDtoHAsync", code)?;
        stream.synchronize()
    }
}

/// Enqueues a write of `bytes` zero bytes, a multiple of 4.
///
/// # Safety
/// `target` is memory of the stream's context, and nobody else's until the stream has passed this point.
pub unsafe fn memset(stream: &Stream, target: sys::CUdeviceptr, bytes: u64) -> Result<()> {
    let context = stream.context();
    context.bind()?;
    // SAFETY: `target` is memory of this context, and nobody else's until then (the caller's promise).
    let code = unsafe { api::cuMemsetD32Async(target, 0, bytes as usize / 4, stream.raw()) };
    Ok(context.check("cuMemsetD32Async", code)?)
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: allocated above. The streams that used it are idle: code that drops the memory waits first.
        self.context.cleanup("cuMemFree", || unsafe { api::cuMemFree(self.pointer) });
    }
}
