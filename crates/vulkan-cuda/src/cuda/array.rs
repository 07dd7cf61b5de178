//! One level of a mipmapped array, and the surface object through which kernels write it.

use std::any::Any;
use std::sync::Arc;

use cudarc::driver::sys;

use super::{Cuda, api};
use crate::Result;

/// One level of a mipmapped array, from [`SharedImage::level`](crate::SharedImage::level). It keeps the owner of the
/// mipmapped array alive.
#[derive(Clone)]
pub struct Array {
    raw: sys::CUarray,
    cuda: Cuda,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the driver API is thread-safe, and every use binds the context first.
unsafe impl Send for Array {}
// SAFETY: as above.
unsafe impl Sync for Array {}

impl Array {
    /// Returns one level of `mipmap`. `owner` destroys the mipmapped array when it is dropped.
    ///
    /// # Errors
    /// Fails if there is no such level.
    ///
    /// # Safety
    /// `mipmap` must be of `cuda`'s context, and live as long as `owner`.
    pub unsafe fn of_level(
        mipmap: sys::CUmipmappedArray,
        level: u32,
        cuda: &Cuda,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        cuda.bind()?;
        // SAFETY: a live mipmapped array of the current context (the caller's promise). Its levels live as long as it.
        let code = unsafe { api::cuMipmappedArrayGetLevel(&mut raw, mipmap, level) };
        cuda.check("cuMipmappedArrayGetLevel", code)?;
        Ok(Self { raw, cuda: cuda.clone(), _owner: owner })
    }

    /// Returns CUDA's array, for copies (`cuMemcpy2DAsync`). It is valid while `self` lives. Make no texture object of
    /// it: see [`SharedImage::cuda`](crate::SharedImage::cuda).
    pub fn raw(&self) -> sys::CUarray {
        self.raw
    }

    /// Returns the array's context.
    pub fn cuda(&self) -> &Cuda {
        &self.cuda
    }

    /// Creates a surface object, through which a kernel writes and reads texel by texel. Its x coordinate counts bytes.
    ///
    /// # Errors
    /// Fails with 1 (`INVALID_VALUE`) if the array was created without `CUDA_ARRAY3D_SURFACE_LDST`.
    pub fn surface(&self) -> Result<Surface> {
        // SAFETY: a plain C structure of integers and pointers, for which all zeros mean "nothing".
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

/// A surface object. It owns CUDA's object, and keeps the array alive, which CUDA itself does not. Before you drop it,
/// the stream that uses it must be idle.
pub struct Surface {
    raw: sys::CUsurfObject,
    array: Array,
}

impl Surface {
    /// Returns the kernel's argument: 64 bits. It is valid while `self` lives.
    pub fn raw(&self) -> sys::CUsurfObject {
        self.raw
    }

    /// Returns the level that it was made from.
    pub fn array(&self) -> &Array {
        &self.array
    }
}

impl Drop for Surface {
    fn drop(&mut self) {
        // SAFETY: created in `Array::surface`. The stream that used it is idle: code that drops it waits first.
        self.array.cuda.cleanup("cuSurfObjectDestroy", || unsafe { api::cuSurfObjectDestroy(self.raw) });
    }
}
