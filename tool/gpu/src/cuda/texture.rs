//! Texture objects, through which kernels read and filter a level of a shared image.
//!
//! Each is made from the *whole* mipmapped array, and its clamps limit it to the level. A texture object of
//! the level's array would be simpler, but is wrong for layers and cubes in external memory. There each layer
//! holds its whole mip chain, so two layers are the size of all levels apart, and the texture object assumes
//! the size of one. From the second layer on it reads other texels, without an error. (Seen on an H200 with
//! driver 580, where surface objects of a level, and textures without layers, are correct.)

use std::sync::Arc;

use cudarc::driver::sys;
use vulkan_cuda::{Result, SharedImage};

use super::{Cuda, api};

/// Coordinates are always normalised, as a mipmapped array requires (`CU_TRSF_NORMALIZED_COORDINATES`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextureDesc {
    /// Interpolates between neighbouring texels. If `false`, the nearest one is read.
    pub linear: bool,
    /// Returns integers as they are. Otherwise, those of 8 and 16 bits become floats from 0 or -1 to 1.
    pub as_integer: bool,
}

impl TextureDesc {
    /// Describes a texture object of the whole mipmapped array that shows only `level`.
    fn raw(self, level: u32) -> sys::CUDA_TEXTURE_DESC {
        use sys::CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP;
        use sys::CUfilter_mode::{CU_TR_FILTER_MODE_LINEAR, CU_TR_FILTER_MODE_POINT};
        let as_integer = if self.as_integer { sys::CU_TRSF_READ_AS_INTEGER } else { 0 };
        // The level of detail is clamped last, even an explicit one, so equal ends select this level.
        let only = level as f32;
        sys::CUDA_TEXTURE_DESC {
            addressMode: [CU_TR_ADDRESS_MODE_CLAMP; 3],
            filterMode: if self.linear { CU_TR_FILTER_MODE_LINEAR } else { CU_TR_FILTER_MODE_POINT },
            flags: as_integer | sys::CU_TRSF_NORMALIZED_COORDINATES,
            maxAnisotropy: 0,
            mipmapFilterMode: CU_TR_FILTER_MODE_POINT,
            mipmapLevelBias: 0.0,
            minMipmapLevelClamp: only,
            maxMipmapLevelClamp: only,
            borderColor: [0.0; 4],
            reserved: [0; 12],
        }
    }
}

/// Keeps its image alive. Before it is dropped, the stream that uses it must be idle.
pub struct Texture {
    raw: sys::CUtexObject,
    context: Cuda,
    _image: Arc<SharedImage>,
}

impl Texture {
    /// Creates a texture object that shows one level to every `tex`. Coordinates are normalised: 0 to 1, or a
    /// direction for a cube. Texel `x` of `width` has its centre at `(x + 0.5) / width`.
    ///
    /// # Errors
    /// There is no such level, or CUDA refuses, as for linear filtering of values read as integers.
    pub fn of_level(image: &Arc<SharedImage>, level: u32, how: TextureDesc) -> Result<Self> {
        let context = image.level(level)?.cuda().clone();
        let (desc, how) = (mipmap_resource(image.cuda()), how.raw(level));
        let mut raw = 0;
        context.bind()?;
        // SAFETY: `desc` names a live mipmapped array of the current context; no view of it is requested.
        context.check("cuTexObjectCreate", unsafe {
            api::cuTexObjectCreate(&mut raw, &desc, &how, std::ptr::null())
        })?;
        Ok(Self { raw, context, _image: image.clone() })
    }

    /// Returns a kernel's 64-bit argument, which is valid while `self` lives.
    pub fn raw(&self) -> sys::CUtexObject {
        self.raw
    }
}

impl Drop for Texture {
    fn drop(&mut self) {
        // SAFETY: created in `of_level`. The stream that used it is idle: code that drops it waits first.
        self.context.cleanup("cuTexObjectDestroy", || unsafe { api::cuTexObjectDestroy(self.raw) });
    }
}

fn mipmap_resource(mipmap: sys::CUmipmappedArray) -> sys::CUDA_RESOURCE_DESC {
    // SAFETY: a plain C structure of integers and pointers, for which all zeros mean "nothing".
    let mut desc: sys::CUDA_RESOURCE_DESC = unsafe { std::mem::zeroed() };
    desc.resType = sys::CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    desc.res.mipmap.hMipmappedArray = mipmap;
    desc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_texture_is_described_as_asked() {
        let plain = TextureDesc::default().raw(0);
        assert_eq!(plain.filterMode, sys::CUfilter_mode::CU_TR_FILTER_MODE_POINT);
        assert_eq!(plain.flags, 2, "CU_TRSF_NORMALIZED_COORDINATES");
        let all = TextureDesc { linear: true, as_integer: true }.raw(0);
        assert_eq!(all.filterMode, sys::CUfilter_mode::CU_TR_FILTER_MODE_LINEAR);
        assert_eq!(all.flags, 1 | 2, "CU_TRSF_READ_AS_INTEGER and CU_TRSF_NORMALIZED_COORDINATES");
    }

    #[test]
    fn a_texture_shows_one_level_of_the_whole_mipmapped_array() {
        let mipmap: sys::CUmipmappedArray = std::ptr::without_provenance_mut(64);
        let resource = mipmap_resource(mipmap);
        assert_eq!(resource.resType, sys::CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY);
        // SAFETY: the member that the type names.
        assert_eq!(unsafe { resource.res.mipmap.hMipmappedArray }, mipmap);
        for (level, linear) in [(0, false), (5, true)] {
            let how = TextureDesc { linear, as_integer: false }.raw(level);
            assert_eq!((how.minMipmapLevelClamp, how.maxMipmapLevelClamp), (level as f32, level as f32));
            assert_eq!(how.mipmapFilterMode, sys::CUfilter_mode::CU_TR_FILTER_MODE_POINT);
            assert_eq!(how.mipmapLevelBias, 0.0);
        }
    }
}
