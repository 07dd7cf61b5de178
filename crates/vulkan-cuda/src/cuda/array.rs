//! CUDA's arrays: one level of a mipmapped array, and copies of it. Kernels reach it through an object of `objects.rs`.

use std::any::Any;
use std::sync::Arc;

use cudarc::driver::sys;

use super::{Cuda, Stream, api};
use crate::Result;

/// One level of a mipmapped array that belongs to something else, which is kept alive with it.
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
    /// Gets the array of one level of `mipmap`. `owner` is kept alive as long as the array: it destroys the mipmapped array.
    ///
    /// # Safety
    /// `mipmap` is `cuda`'s and lives as long as `owner`.
    ///
    /// # Errors
    /// There is no such level, or what else the driver answers.
    pub unsafe fn of_level(
        mipmap: sys::CUmipmappedArray,
        level: u32,
        cuda: &Cuda,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        cuda.bind()?;
        // SAFETY: a live mipmapped array (the caller's promise), of the current context. The level's array lives as long.
        let code = unsafe { api::cuMipmappedArrayGetLevel(&mut raw, mipmap, level) };
        cuda.check("cuMipmappedArrayGetLevel", code)?;
        Ok(Self { raw, mipmap, level, cuda: cuda.clone(), _owner: owner })
    }

    /// CUDA's array, valid as long as `self`.
    pub fn raw(&self) -> sys::CUarray {
        self.raw
    }

    /// Enqueues a copy of this level's first `rows` rows, the first `row_bytes` bytes of each, to the same place in `target`.
    ///
    /// # Errors
    /// What the driver answers.
    ///
    /// # Safety
    /// - Stream and both levels are of one context.
    /// - Both levels are two-dimensional and have at least `rows` rows of `row_bytes` bytes.
    /// - Both live until the stream has passed this point, and nobody else touches them before.
    pub unsafe fn copy_to(
        &self,
        stream: &dyn Stream,
        target: &Self,
        row_bytes: usize,
        rows: usize,
    ) -> Result<()> {
        let mut copy = self.copy(row_bytes, rows);
        copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_ARRAY;
        copy.dstArray = target.raw;
        // SAFETY: the caller's promise.
        unsafe { self.enqueue(stream, &copy) }
    }

    /// Enqueues a copy to the host. It fills `target` with as many rows as fit, `row_bytes` bytes of each and no padding between
    /// them. Read `target` once the stream is idle.
    ///
    /// # Errors
    /// What the driver answers.
    ///
    /// # Panics
    /// If `row_bytes` is 0.
    ///
    /// # Safety
    /// - Stream and level are of one context.
    /// - The level is two-dimensional and has at least as many rows, each of at least `row_bytes` bytes.
    /// - Level and `target` live until the stream has passed this point. Before that nobody writes the level or touches `target`.
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
            // Not used with arrays, which know their own.
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
        self.cuda.bind()?;
        // SAFETY: the caller's promise; the description is read before the call returns.
        let code = unsafe { api::cuMemcpy2DAsync(copy, stream.raw()) };
        self.cuda.check("cuMemcpy2DAsync", code)
    }
}
