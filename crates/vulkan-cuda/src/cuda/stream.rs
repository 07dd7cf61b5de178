//! Streams of CUDA work, from any library.

use std::sync::Arc;

use cudarc::driver::{CudaStream, sys};

/// A CUDA stream, from any library. Implemented for cudarc's [`CudaStream`], and for an `Arc` of any stream.
///
/// # Safety
/// While the value lives, `raw` must return the same live stream, and `context` that stream's context.
///
/// # Examples
/// A program with its own bindings:
///
/// ```
/// use cudarc::driver::sys;
///
/// struct OwnStream(sys::CUstream, sys::CUcontext); // destroys the stream when it is dropped
///
/// // SAFETY: (both lines) CUDA's handles may be used on any thread.
/// unsafe impl Send for OwnStream {}
/// unsafe impl Sync for OwnStream {}
///
/// // SAFETY: neither field ever changes, and the stream lives as long as the value.
/// unsafe impl vulkan_cuda::Stream for OwnStream {
///     fn raw(&self) -> sys::CUstream { self.0 }
///     fn context(&self) -> sys::CUcontext { self.1 }
/// }
/// ```
pub unsafe trait Stream: Send + Sync {
    /// Returns CUDA's handle, which is valid while `self` lives.
    fn raw(&self) -> sys::CUstream;
    /// Returns the stream's context.
    fn context(&self) -> sys::CUcontext;
}

// SAFETY: cudarc keeps the stream and its context alive as long as the value. (`Cuda::require_stream` refuses
// its per-thread default stream, which is a different one on each thread.)
unsafe impl Stream for CudaStream {
    fn raw(&self) -> sys::CUstream {
        self.cu_stream()
    }

    fn context(&self) -> sys::CUcontext {
        // Calls the inherent method of the same name, not this one.
        CudaStream::context(self).cu_ctx()
    }
}

// SAFETY: the `Arc` keeps the inner stream alive, and `S` keeps the promise.
unsafe impl<S: Stream + ?Sized> Stream for Arc<S> {
    fn raw(&self) -> sys::CUstream {
        (**self).raw()
    }

    fn context(&self) -> sys::CUcontext {
        (**self).context()
    }
}
