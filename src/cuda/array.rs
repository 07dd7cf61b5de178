//! How kernels reach an array: as a surface, which they write, or as a texture, which they read and filter.
//!
//! Both kinds of object are made for one array (one level of an image). They say nothing of who owns the array's memory,
//! so each keeps alive whatever it was made from.

use std::any::Any;
use std::sync::Arc;

use cudarc::driver::sys;

use super::{Context, api};
use crate::Result;

/// An array that belongs to something else, which is kept alive with it.
#[derive(Clone)]
pub struct Array {
    raw: sys::CUarray,
    context: Arc<Context>,
    _owner: Arc<dyn Any + Send + Sync>,
}

impl Array {
    /// # Safety
    /// `raw` is an array of `context` that lives as long as `owner`.
    pub(crate) unsafe fn of(
        raw: sys::CUarray,
        context: &Arc<Context>,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { raw, context: context.clone(), _owner: owner }
    }

    /// For a kernel to write, and to read byte by byte.
    ///
    /// # Errors
    /// What the driver answers; 1 (`INVALID_VALUE`) where the array was made without `CUDA_ARRAY3D_SURFACE_LDST`.
    pub fn surface(&self) -> Result<Surface> {
        let desc = resource(self.raw);
        let mut raw = 0;
        self.context.bind()?;
        // SAFETY: `desc` names a live array of the current context.
        self.context.check("cuSurfObjectCreate", unsafe { api::cuSurfObjectCreate(&mut raw, &desc) })?;
        Ok(Surface { raw, array: self.clone() })
    }

    /// For a kernel to read.
    ///
    /// # Errors
    /// What the driver answers: a filter on integers that are read as integers, for example.
    pub fn texture(&self, how: TextureDesc) -> Result<Texture> {
        let (desc, how) = (resource(self.raw), how.raw());
        let mut raw = 0;
        self.context.bind()?;
        // SAFETY: `desc` names a live array of the current context; no view of it is asked.
        self.context.check("cuTexObjectCreate", unsafe {
            api::cuTexObjectCreate(&mut raw, &desc, &how, std::ptr::null())
        })?;
        Ok(Texture { raw, array: self.clone() })
    }
}

fn resource(array: sys::CUarray) -> sys::CUDA_RESOURCE_DESC {
    // SAFETY: a plain C structure of integers and pointers, for which all zeros is "nothing".
    let mut desc: sys::CUDA_RESOURCE_DESC = unsafe { std::mem::zeroed() };
    desc.resType = sys::CUresourcetype::CU_RESOURCE_TYPE_ARRAY;
    desc.res.array.hArray = array;
    desc
}

/// How a texture object reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextureDesc {
    /// Means the neighbours, instead of taking the nearest texel.
    pub linear: bool,
    /// Gives integers as integers. Otherwise those of 8 and 16 bits become floats from 0 or -1 to 1, which is how a
    /// normalised format is read.
    pub as_integer: bool,
    /// Coordinates from 0 to 1 instead of texels; a cube's must be.
    pub normalized_coordinates: bool,
}

impl TextureDesc {
    fn raw(self) -> sys::CUDA_TEXTURE_DESC {
        use sys::CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP;
        use sys::CUfilter_mode::{CU_TR_FILTER_MODE_LINEAR, CU_TR_FILTER_MODE_POINT};
        let flag = |on, flag| if on { flag } else { 0 };
        sys::CUDA_TEXTURE_DESC {
            addressMode: [CU_TR_ADDRESS_MODE_CLAMP; 3],
            filterMode: if self.linear { CU_TR_FILTER_MODE_LINEAR } else { CU_TR_FILTER_MODE_POINT },
            flags: flag(self.as_integer, sys::CU_TRSF_READ_AS_INTEGER)
                | flag(self.normalized_coordinates, sys::CU_TRSF_NORMALIZED_COORDINATES),
            maxAnisotropy: 0,
            mipmapFilterMode: CU_TR_FILTER_MODE_POINT,
            mipmapLevelBias: 0.0,
            minMipmapLevelClamp: 0.0,
            maxMipmapLevelClamp: 0.0,
            borderColor: [0.0; 4],
            reserved: [0; 12],
        }
    }
}

/// A surface object. Before it is dropped, the stream that uses it must be idle.
pub struct Surface {
    raw: sys::CUsurfObject,
    array: Array,
}

impl Surface {
    /// What a kernel takes for it: 64 bits.
    pub fn raw(&self) -> sys::CUsurfObject {
        self.raw
    }
}

impl Drop for Surface {
    fn drop(&mut self) {
        // SAFETY: created in `Array::surface`; the stream that used it is idle: whoever drops it waits first.
        self.array.context.cleanup("cuSurfObjectDestroy", || unsafe { api::cuSurfObjectDestroy(self.raw) });
    }
}

/// A texture object. Before it is dropped, the stream that uses it must be idle.
pub struct Texture {
    raw: sys::CUtexObject,
    array: Array,
}

impl Texture {
    /// What a kernel takes for it: 64 bits.
    pub fn raw(&self) -> sys::CUtexObject {
        self.raw
    }
}

impl Drop for Texture {
    fn drop(&mut self) {
        // SAFETY: created in `Array::texture`; the stream that used it is idle: whoever drops it waits first.
        self.array.context.cleanup("cuTexObjectDestroy", || unsafe { api::cuTexObjectDestroy(self.raw) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_texture_is_described_as_asked() {
        let plain = TextureDesc::default().raw();
        assert_eq!((plain.filterMode, plain.flags), (sys::CUfilter_mode::CU_TR_FILTER_MODE_POINT, 0));
        let all = TextureDesc { linear: true, as_integer: true, normalized_coordinates: true }.raw();
        assert_eq!(all.filterMode, sys::CUfilter_mode::CU_TR_FILTER_MODE_LINEAR);
        assert_eq!(all.flags, 1 | 2, "CU_TRSF_READ_AS_INTEGER and CU_TRSF_NORMALIZED_COORDINATES");
    }
}
