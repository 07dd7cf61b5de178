//! Device memory of CUDA's own: what the hand-offs that copy fill first.

use cudarc::driver::sys;

use super::api;
use super::{Cuda, Stream};
use crate::Result;

/// Linear device memory.
pub struct DeviceMemory {
    pointer: sys::CUdeviceptr,
    size: u64,
    context: Cuda,
}

// SAFETY: the driver API is thread-safe, and every use binds the context first.
unsafe impl Send for DeviceMemory {}

impl DeviceMemory {
    /// Allocates `size` bytes; not 0.
    pub fn new(context: &Cuda, size: u64) -> Result<Self> {
        context.bind()?;
        let mut pointer = 0;
        // SAFETY: writes one address; the context is current.
        context.check("cuMemAlloc", unsafe { api::cuMemAlloc(&mut pointer, size as usize) })?;
        Ok(Self { pointer, size, context: context.clone() })
    }

    /// Its address.
    pub fn pointer(&self) -> sys::CUdeviceptr {
        self.pointer
    }

    /// Enqueues a copy of all of it to `target`.
    ///
    /// # Safety
    /// `stream` is of this context; `target` is memory of it of at least the same size, which nobody else touches until the stream has
    /// passed this point.
    pub unsafe fn copy_to(&self, stream: &Stream, target: sys::CUdeviceptr) -> Result<()> {
        self.context.bind()?;
        // SAFETY: the caller's promise.
        let code = unsafe { api::cuMemcpyDtoDAsync(target, self.pointer, self.size as usize, stream.raw()) };
        Ok(self.context.check("cuMemcpyDtoDAsync", code)?)
    }

    /// Enqueues a copy that fills all of it from `source`.
    ///
    /// # Safety
    /// `stream` is of this context; `source` is memory of it of at least the same size, which nobody else writes until the stream has passed
    /// this point.
    pub unsafe fn copy_from(&self, stream: &Stream, source: sys::CUdeviceptr) -> Result<()> {
        self.context.bind()?;
        // SAFETY: the caller's promise.
        let code = unsafe { api::cuMemcpyDtoDAsync(self.pointer, source, self.size as usize, stream.raw()) };
        Ok(self.context.check("cuMemcpyDtoDAsync", code)?)
    }

    /// Copies `bytes` (or as many as fit) from the host to the beginning of it, and waits for the stream.
    ///
    /// # Errors
    /// A stream of another context, before CUDA is asked.
    pub fn write(&self, stream: &Stream, bytes: &[u8]) -> Result<()> {
        self.context.require_same(stream.context().raw(), "cuMemcpyHtoDAsync")?;
        self.context.bind()?;
        let size = bytes.len().min(self.size as usize);
        // SAFETY: neither side is shorter than `size`, and `bytes` is borrowed until the wait below.
        let code = unsafe { api::cuMemcpyHtoDAsync(self.pointer, bytes.as_ptr().cast(), size, stream.raw()) };
        self.context.check("cuMemcpyHtoDAsync", code)?;
        stream.synchronize()
    }

    /// Copies the first `bytes.len()` bytes (or all of it, if that is less) to the host, and waits for the stream.
    ///
    /// # Errors
    /// A stream of another context, before CUDA is asked.
    pub fn read(&self, stream: &Stream, bytes: &mut [u8]) -> Result<()> {
        self.context.require_same(stream.context().raw(), "cuMemcpyDtoHAsync")?;
        self.context.bind()?;
        let size = bytes.len().min(self.size as usize);
        // SAFETY: neither side is shorter than `size`, and `bytes` is borrowed until the wait below.
        let code =
            unsafe { api::cuMemcpyDtoHAsync(bytes.as_mut_ptr().cast(), self.pointer, size, stream.raw()) };
        self.context.check("cuMemcpyDtoHAsync", code)?;
        stream.synchronize()
    }
}

/// Enqueues zeros over `bytes` bytes, a multiple of 4, from `target` on.
///
/// # Safety
/// `target` is memory of the stream's context, and nobody else touches those bytes until the stream has passed this point.
pub(crate) unsafe fn memset(stream: &Stream, target: sys::CUdeviceptr, bytes: u64) -> Result<()> {
    let context = stream.context();
    context.bind()?;
    // SAFETY: the caller's promise.
    let code = unsafe { api::cuMemsetD32Async(target, 0, bytes as usize / 4, stream.raw()) };
    Ok(context.check("cuMemsetD32Async", code)?)
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: allocated above; the streams that used it are idle: whoever drops it waits first.
        self.context.cleanup("cuMemFree", || unsafe { api::cuMemFree(self.pointer) });
    }
}
