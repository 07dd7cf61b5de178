//! Streams of CUDA work, whoever made them.

use std::sync::Arc;

use cudarc::driver::{CudaStream, sys};

/// A stream of CUDA work, whoever made it. cudarc's [`CudaStream`] is one.
///
/// # Safety
/// For as long as the value lives, `raw` gives one and the same live stream, of the context that `context` gives.
pub unsafe trait Stream: Send + Sync {
    /// CUDA's handle, borrowed: valid as long as `self`, and never destroyed by who asks.
    fn raw(&self) -> sys::CUstream;
    /// The context that it was made in.
    fn context(&self) -> sys::CUcontext;
}

// SAFETY: cudarc keeps the stream and its context alive as long as the value. (Its per-thread default stream is a different one
// on each thread, and is refused wherever a stream is used: see `Cuda::require_stream`.)
unsafe impl Stream for CudaStream {
    fn raw(&self) -> sys::CUstream {
        self.cu_stream()
    }

    fn context(&self) -> sys::CUcontext {
        // The inherent method of the same name.
        CudaStream::context(self).cu_ctx()
    }
}

// SAFETY: the same stream.
unsafe impl<S: Stream + ?Sized> Stream for Arc<S> {
    fn raw(&self) -> sys::CUstream {
        (**self).raw()
    }

    fn context(&self) -> sys::CUcontext {
        (**self).context()
    }
}
