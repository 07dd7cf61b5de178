//! CUDA arrays: one level of a mipmapped array, and functions that copy it. Kernels read and write it through the
//! objects of `objects.rs`.

use std::any::Any;
use std::sync::Arc;

use cudarc::driver::sys;

use super::{Cuda, Stream, api};
use crate::Result;

/// The call behind every copy, for errors.
const CALL: &str = "cuMemcpy2DAsync";

/// One level of a mipmapped array. It keeps the owner of the mipmapped array alive. Cloning is cheap.
///
/// [`SharedImage::level`](crate::SharedImage::level) returns one, and [`crate::image`](mod@crate::image#examples) has
/// an example.
#[derive(Clone)]
pub struct Array {
    pub(super) raw: sys::CUarray,
    pub(super) mipmap: sys::CUmipmappedArray,
    pub(super) level: u32,
    pub(super) cuda: Cuda,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the driver API is thread-safe, and every use binds the context first.
unsafe impl Send for Array {}
// SAFETY: as above.
unsafe impl Sync for Array {}

impl Array {
    /// Returns one level of `mipmap`, with `cuMipmappedArrayGetLevel`. `owner` destroys the mipmapped array when it is
    /// dropped, and is kept alive as long as the level.
    ///
    /// # Safety
    /// `mipmap` must be of `cuda`'s context, and live as long as `owner`.
    ///
    /// # Errors
    /// Fails if there is no such level, or if the driver reports another error.
    pub unsafe fn of_level(
        mipmap: sys::CUmipmappedArray,
        level: u32,
        cuda: &Cuda,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        cuda.bind()?;
        // SAFETY: a live mipmapped array of the current context (the caller's promise). The level's array lives as long as it.
        let code = unsafe { api::cuMipmappedArrayGetLevel(&mut raw, mipmap, level) };
        cuda.check("cuMipmappedArrayGetLevel", code)?;
        Ok(Self { raw, mipmap, level, cuda: cuda.clone(), _owner: owner })
    }

    /// Returns CUDA's array, for functions of the driver API such as `cuMemcpy2DAsync`. It is valid while `self` lives.
    pub fn raw(&self) -> sys::CUarray {
        self.raw
    }

    /// Enqueues a copy of this level's first `rows` rows, the first `row_bytes` bytes of each, to the same place in
    /// `target`. Calls `cuMemcpy2DAsync`.
    ///
    /// # Errors
    /// Fails if the stream or `target` is of another context, or if the stream is the per-thread default stream.
    /// CUDA is then not called. Also fails if the driver reports an error.
    ///
    /// # Safety
    /// - Both levels must be two-dimensional and have at least `rows` rows of `row_bytes` bytes.
    /// - Both must live until the stream has passed this point, and nothing else may use them before.
    pub unsafe fn copy_to(
        &self,
        stream: &dyn Stream,
        target: &Self,
        row_bytes: usize,
        rows: usize,
    ) -> Result<()> {
        self.cuda.require_same(target.cuda.raw(), CALL)?;
        let mut copy = self.copy(row_bytes, rows);
        copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_ARRAY;
        copy.dstArray = target.raw;
        // SAFETY: the caller's promise.
        unsafe { self.enqueue(stream, &copy) }
    }

    /// Enqueues a copy of this level to the host, with `cuMemcpy2DAsync`. It fills `target` with as many rows as fit,
    /// `row_bytes` bytes of each, without padding between them. Read `target` once the stream is idle.
    ///
    /// # Errors
    /// Fails if the stream is of another context or is the per-thread default stream (CUDA is then not called), or if
    /// the driver reports an error.
    ///
    /// # Panics
    /// Panics if `row_bytes` is 0.
    ///
    /// # Safety
    /// - The level must be two-dimensional. It must have at least as many rows as fit in `target`, each of at least
    ///   `row_bytes` bytes.
    /// - The level and `target` must live until the stream has passed this point. Before that, nothing may write the
    ///   level or use `target`.
    pub unsafe fn copy_to_host(
        &self,
        stream: &dyn Stream,
        target: &mut [u8],
        row_bytes: usize,
    ) -> Result<()> {
        let mut copy = self.copy(row_bytes, target.len() / row_bytes);
        copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
        copy.dstHost = target.as_mut_ptr().cast();
        copy.dstPitch = row_bytes;
        // SAFETY: the caller's promise; `target` has that many rows.
        unsafe { self.enqueue(stream, &copy) }
    }

    fn copy(&self, row_bytes: usize, rows: usize) -> sys::CUDA_MEMCPY2D {
        sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_ARRAY,
            srcHost: std::ptr::null(),
            srcDevice: 0,
            srcArray: self.raw,
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
    /// As for [`Array::copy_to`] and [`Array::copy_to_host`].
    unsafe fn enqueue(&self, stream: &dyn Stream, copy: &sys::CUDA_MEMCPY2D) -> Result<()> {
        self.cuda.require_stream(stream, CALL)?;
        self.cuda.bind()?;
        // SAFETY: of one context, checked above; for the rest the caller's promise. The description is read before the call
        // returns.
        let code = unsafe { api::cuMemcpy2DAsync(copy, stream.raw()) };
        self.cuda.check(CALL, code)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;

    use super::*;
    use crate::cuda::tests::{per_thread, unreal};

    #[test]
    fn a_copy_between_two_contexts_never_reaches_the_driver() {
        let [ours, theirs] = [1, 2].map(unreal);
        let [from, other] = [&ours.0, &theirs.0].map(|cuda| {
            ManuallyDrop::new(Array {
                raw: std::ptr::null_mut(),
                mipmap: std::ptr::null_mut(),
                level: 0,
                cuda: cuda.clone(),
                _owner: Arc::new(()),
            })
        });
        let mut bytes = [0; 4];
        // SAFETY: all are refused before the driver is called.
        let answers = unsafe {
            [
                ("one CUDA context", from.copy_to(&theirs.1, &from, 4, 1)),
                ("one CUDA context", from.copy_to(&ours.1, &other, 4, 1)),
                ("one CUDA context", from.copy_to_host(&theirs.1, &mut bytes, 4)),
                ("per-thread default stream", from.copy_to(&per_thread(&ours.0), &from, 4, 1)),
                ("per-thread default stream", from.copy_to_host(&per_thread(&ours.0), &mut bytes, 4)),
            ]
        };
        for (words, answer) in answers {
            let text = answer.unwrap_err().to_string();
            assert!(text.contains("cuMemcpy2DAsync") && text.contains(words), "{text}");
        }
    }
}
