//! A mip chain in CUDA's own memory. The hand-offs that copy images paint into it first.

use std::sync::Arc;

use cudarc::driver::sys;
use vulkan_cuda::Result;

use super::api;
use super::owned::AutoDestroy;
use super::{Array, Cuda};

/// Drop it only after the stream that uses it is idle and all of its surface objects are destroyed.
pub struct MipmappedArray(AutoDestroy<sys::CUmipmappedArray>);

impl MipmappedArray {
    pub fn new(context: &Cuda, desc: &sys::CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> Result<Arc<Self>> {
        // SAFETY: writes one handle; the context is current.
        let create = |array| unsafe { api::cuMipmappedArrayCreate(array, desc, levels) };
        Ok(Arc::new(Self(AutoDestroy::new(context, "cuMipmappedArrayCreate", create)?)))
    }

    /// Returns a level that keeps the whole mip chain alive.
    pub fn level(self: &Arc<Self>, level: u32) -> Result<Array> {
        // SAFETY: the mipmapped array is `self`'s.
        unsafe { Array::of_level(self.0.raw, level, &self.0.context, self.clone()) }
    }
}
