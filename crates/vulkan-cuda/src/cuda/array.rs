//! One level of a mipmapped array, and the surface object through which kernels write it.

use std::any::Any;
use std::sync::Arc;

use cudarc::driver::sys;

use super::{Cuda, Stream, api};
use crate::Result;

const CALL: &str = "cuMemcpy2DAsync";

/// One level of a mipmapped array, from [`SharedImage::level`](crate::SharedImage::level). Keeps the owner of
/// the mipmapped array alive.
#[derive(Clone)]
pub struct Array {
    raw: sys::CUarray,
    cuda: Cuda,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the driver API is thread-safe, and every method that calls it binds the context first.
unsafe impl Send for Array {}
// SAFETY: as for `Send`: no method relies on the calling thread.
unsafe impl Sync for Array {}

impl Array {
    /// Returns one level of `mipmap`. `owner` destroys the mipmapped array when it is dropped.
    ///
    /// # Errors
    /// Fails if there is no such level.
    ///
    /// # Safety
    /// `mipmap` must belong to `cuda`'s context, and must live until `owner` is dropped.
    pub unsafe fn of_level(
        mipmap: sys::CUmipmappedArray,
        level: u32,
        cuda: &Cuda,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        cuda.bind()?;
        // SAFETY: writes one handle. `mipmap` lives in the current context (the caller's promise).
        let code = unsafe { api::cuMipmappedArrayGetLevel(&mut raw, mipmap, level) };
        cuda.check("cuMipmappedArrayGetLevel", code)?;
        Ok(Self { raw, cuda: cuda.clone(), _owner: owner })
    }

    /// Returns CUDA's array, for copies that this type does not offer. It is valid while `self` lives. Do not
    /// create a texture object from it: see [`SharedImage::cuda`](crate::SharedImage::cuda).
    pub fn raw(&self) -> sys::CUarray {
        self.raw
    }

    /// Returns the context that the array belongs to.
    pub fn cuda(&self) -> &Cuda {
        &self.cuda
    }

    /// Enqueues a copy of `rows` rows to device memory: the first `row_bytes` bytes of row `n` go to
    /// `to + n * pitch`.
    ///
    /// # Errors
    /// Fails if the stream belongs to another context or is the per-thread default stream, or if CUDA refuses
    /// the sizes.
    ///
    /// # Safety
    /// - The level must be two-dimensional. `to` must point to memory of this context with room for all rows.
    /// - The level and the memory must live until the stream has passed the copy, and nothing else may write
    ///   them while the copy may run.
    pub unsafe fn copy_to(
        &self,
        stream: &dyn Stream,
        to: sys::CUdeviceptr,
        pitch: usize,
        [row_bytes, rows]: [usize; 2],
    ) -> Result<()> {
        let copy = sys::CUDA_MEMCPY2D {
            srcArray: self.raw,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: to,
            dstPitch: pitch,
            ..array_to_array(row_bytes, rows)
        };
        // SAFETY: the caller's promise.
        unsafe { self.copy(stream, &copy) }
    }

    /// Enqueues a copy of the first `row_bytes` bytes of the first `rows` rows to the same rows of `to`.
    ///
    /// # Errors
    /// Fails, without calling CUDA, if the stream or `to` belongs to another context, or if the stream is the
    /// per-thread default stream.
    ///
    /// # Safety
    /// Same as [`Array::copy_to`], with `to` in place of the memory. `to` must be two-dimensional, too.
    pub unsafe fn copy_to_array(
        &self,
        stream: &dyn Stream,
        to: &Self,
        [row_bytes, rows]: [usize; 2],
    ) -> Result<()> {
        self.cuda.require_same(to.cuda.raw(), CALL)?;
        let copy =
            sys::CUDA_MEMCPY2D { srcArray: self.raw, dstArray: to.raw, ..array_to_array(row_bytes, rows) };
        // SAFETY: both levels belong to one context (checked above). The caller promises the rest.
        unsafe { self.copy(stream, &copy) }
    }

    /// Enqueues a copy to the host's memory: the first `row_bytes` bytes of each row, for as many rows as fit
    /// in `to`, without padding between them. Read `to` after the stream has passed the copy.
    ///
    /// # Errors
    /// Same as [`Array::copy_to`].
    ///
    /// # Panics
    /// Panics if `row_bytes` is 0.
    ///
    /// # Safety
    /// Same as [`Array::copy_to`], for the level. `to` must live until the stream has passed the copy, and
    /// nothing may use it until then.
    pub unsafe fn copy_to_host(&self, stream: &dyn Stream, to: &mut [u8], row_bytes: usize) -> Result<()> {
        let copy = sys::CUDA_MEMCPY2D {
            srcArray: self.raw,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            dstHost: to.as_mut_ptr().cast(),
            dstPitch: row_bytes,
            ..array_to_array(row_bytes, to.len() / row_bytes)
        };
        // SAFETY: `to` has room for that many rows. The caller promises the rest.
        unsafe { self.copy(stream, &copy) }
    }

    /// # Safety
    /// Same as [`Array::copy_to`].
    unsafe fn copy(&self, stream: &dyn Stream, copy: &sys::CUDA_MEMCPY2D) -> Result<()> {
        self.cuda.require_stream(stream, CALL)?;
        self.cuda.bind()?;
        // SAFETY: the stream belongs to the level's context (checked above). The caller promises the rest.
        self.cuda.check(CALL, unsafe { api::cuMemcpy2DAsync(copy, stream.raw()) })
    }

    /// Creates a surface object, through which kernels write and read texels. Kernels give x in bytes.
    ///
    /// # Errors
    /// Fails with 1 (`INVALID_VALUE`) if the array was created without `CUDA_ARRAY3D_SURFACE_LDST`.
    pub fn surface(&self) -> Result<Surface> {
        // SAFETY: a plain C structure, for which all zeros are valid. (As `resType`, 0 is `ARRAY`.)
        let mut desc: sys::CUDA_RESOURCE_DESC = unsafe { std::mem::zeroed() };
        desc.resType = sys::CUresourcetype::CU_RESOURCE_TYPE_ARRAY;
        desc.res.array.hArray = self.raw;
        let mut raw = 0;
        self.cuda.bind()?;
        // SAFETY: `desc` names a live array of the current context.
        self.cuda.check("cuSurfObjectCreate", unsafe { api::cuSurfObjectCreate(&mut raw, &desc) })?;
        Ok(Surface { raw, array: self.clone() })
    }
}

/// A surface object. Owns CUDA's object, and keeps the array alive, because CUDA's object does not. Drop it
/// only when every stream that uses it is idle.
pub struct Surface {
    raw: sys::CUsurfObject,
    array: Array,
}

impl Surface {
    /// Returns CUDA's object, which is a 64-bit argument of a kernel. It is valid while `self` lives.
    pub fn raw(&self) -> sys::CUsurfObject {
        self.raw
    }

    /// Returns the level that the surface object writes and reads.
    pub fn array(&self) -> &Array {
        &self.array
    }
}

impl Drop for Surface {
    fn drop(&mut self) {
        // SAFETY: created in `Array::surface`, destroyed once. Code that launches kernels with it waits
        // first.
        self.array.cuda.cleanup("cuSurfObjectDestroy", || unsafe { api::cuSurfObjectDestroy(self.raw) });
    }
}

/// Returns the description of a copy between two arrays. The caller sets them, or replaces one by memory.
fn array_to_array(row_bytes: usize, rows: usize) -> sys::CUDA_MEMCPY2D {
    sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_ARRAY,
        srcHost: std::ptr::null(),
        srcDevice: 0,
        srcArray: std::ptr::null_mut(),
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
