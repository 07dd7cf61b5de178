//! Copies of arrays: to other arrays, and to the host.

use cudarc::driver::sys;
use vulkan_cuda::{Result, Stream};

use super::{Array, api};

const CALL: &str = "cuMemcpy2DAsync";

/// Enqueues a copy of the first `rows` rows of `from`, the first `row_bytes` bytes of each, to the same place in `to`.
///
/// # Errors
/// The stream or `to` is of another context. CUDA is not called then.
///
/// # Safety
/// - Both levels must be two-dimensional and have at least `rows` rows of `row_bytes` bytes.
/// - Both must live until the stream has passed this point, and nothing else may use them before.
pub unsafe fn copy_array(
    stream: &dyn Stream,
    from: &Array,
    to: &Array,
    row_bytes: usize,
    rows: usize,
) -> Result<()> {
    from.cuda().require_same(to.cuda().raw(), CALL)?;
    let mut copy = copy(from, row_bytes, rows);
    copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_ARRAY;
    copy.dstArray = to.raw();
    // SAFETY: both levels are that large, and live and stay unused until then (the caller's promise).
    unsafe { enqueue(stream, from, &copy) }
}

/// Enqueues a copy of `from` to the host. It fills `to` with as many rows as fit, `row_bytes` bytes of each, without padding
/// between them. Read `to` once the stream is idle.
///
/// # Errors
/// The stream is of another context. CUDA is not called then.
///
/// # Panics
/// `row_bytes` is 0.
///
/// # Safety
/// - The level must be two-dimensional. It must have at least as many rows as fit in `to`, each of at least `row_bytes`
///   bytes.
/// - The level and `to` must live until the stream has passed this point. Before that, nothing may write the level or use
///   `to`.
pub unsafe fn copy_array_to_host(
    stream: &dyn Stream,
    from: &Array,
    to: &mut [u8],
    row_bytes: usize,
) -> Result<()> {
    let mut copy = copy(from, row_bytes, to.len() / row_bytes);
    copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
    copy.dstHost = to.as_mut_ptr().cast();
    copy.dstPitch = row_bytes;
    // SAFETY: the level is that large, and both live and stay unused until then (the caller's promise); `to` has that many rows.
    unsafe { enqueue(stream, from, &copy) }
}

fn copy(from: &Array, row_bytes: usize, rows: usize) -> sys::CUDA_MEMCPY2D {
    sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_ARRAY,
        srcHost: std::ptr::null(),
        srcDevice: 0,
        srcArray: from.raw(),
        // Unused: an array knows its own pitch.
        srcPitch: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_ARRAY,
        dstHost: std::ptr::null_mut(),
        dstDevice: 0,
        dstArray: std::ptr::null_mut(),
        dstPitch: 0,
        WidthInBytes: row_bytes,
        Height: rows,
    }
}

/// # Safety
/// As for [`copy_array`] and [`copy_array_to_host`].
unsafe fn enqueue(stream: &dyn Stream, from: &Array, copy: &sys::CUDA_MEMCPY2D) -> Result<()> {
    let cuda = from.cuda();
    cuda.require_stream(stream, CALL)?;
    cuda.bind()?;
    // SAFETY: of one context, checked above; for the rest the caller's promise. The description is read before the call
    // returns.
    let code = unsafe { api::cuMemcpy2DAsync(copy, stream.raw()) };
    cuda.check(CALL, code)
}
