//! A mip chain that CUDA allocates. The hand-offs that copy images paint it first.

use std::sync::Arc;

use cudarc::driver::sys;
use vulkan_cuda::Result;

use super::api;
use super::{Array, Cuda};

/// Before it is dropped, the stream that uses it must be idle.
pub struct MipmappedArray {
    raw: sys::CUmipmappedArray,
    context: Cuda,
}

// SAFETY: the driver API is thread-safe, and every use binds the context first.
unsafe impl Send for MipmappedArray {}
// SAFETY: as above.
unsafe impl Sync for MipmappedArray {}

impl MipmappedArray {
    pub fn new(context: &Cuda, desc: &sys::CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> Result<Arc<Self>> {
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle; the context is current.
        let code = unsafe { api::cuMipmappedArrayCreate(&mut raw, desc, levels) };
        context.check("cuMipmappedArrayCreate", code)?;
        Ok(Arc::new(Self { raw, context: context.clone() }))
    }

    /// Returns a level that keeps the whole mip chain alive.
    pub fn level(self: &Arc<Self>, level: u32) -> Result<Array> {
        // SAFETY: the mipmapped array is `self`'s.
        unsafe { Array::of_level(self.raw, level, &self.context, self.clone()) }
    }
}

impl Drop for MipmappedArray {
    fn drop(&mut self) {
        // SAFETY: made above. The stream that used it is idle, and no surface object of it is left.
        self.context.cleanup("cuMipmappedArrayDestroy", || unsafe { api::cuMipmappedArrayDestroy(self.raw) });
    }
}
