//! A mip chain in memory that CUDA does not share. Some hand-offs paint into it, and then copy it.

use std::sync::Arc;

use cudarc::driver::sys;
use vulkan_cuda::Result;

use super::api;
use super::owned::AutoDestroy;
use super::{Array, Cuda};

/// A mipmapped array. Before it is dropped, its stream must be idle and its surface objects destroyed.
pub struct MipmappedArray(AutoDestroy<sys::CUmipmappedArray>);

impl MipmappedArray {
    pub fn new(context: &Cuda, desc: &sys::CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> Result<Arc<Self>> {
        // SAFETY: writes one handle; the context is current.
        let create = |array| unsafe { api::cuMipmappedArrayCreate(array, desc, levels) };
        Ok(Arc::new(Self(AutoDestroy::new(context, "cuMipmappedArrayCreate", create)?)))
    }

    /// Returns a level that keeps the whole mip chain alive.
    pub fn level(self: &Arc<Self>, level: u32) -> Result<Array> {
        // SAFETY: the mipmapped array belongs to this context, and lives as long as `self`.
        unsafe { Array::of_level(self.0.raw, level, &self.0.context, self.clone()) }
    }
}
