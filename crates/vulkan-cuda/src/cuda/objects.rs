//! How kernels reach an array: as a surface, which they write, or as a texture, which they read and filter.
//!
//! Both kinds of object show one array: one level of a mipmapped array. They say nothing of who owns the array's memory,
//! so each keeps alive whatever it was made from.
//!
//! A surface object is made of the level's own array. A texture object is made of the *whole* mipmapped array and held to
//! the level by its clamps. The straight way, a texture object of the level's array, is wrong for layers and cubes in
//! external memory: there each layer holds its whole mip chain, so two layers lie as far apart as all levels need, and the
//! texture object assumes the distance that its one level needs. From the second layer on it reads another layer's or
//! level's texels, without an error (seen on an H200 with driver 580, where surface objects of a level are right,
//! and so are textures without layers). One way for all is simpler than two, so every texture object is made like that.

use cudarc::driver::sys;

use super::{Array, api};
use crate::Result;

impl Array {
    /// For a kernel to write and read, texel by texel; its x coordinate counts bytes.
    ///
    /// # Errors
    /// What the driver answers; 1 (`INVALID_VALUE`) where the array was made without `CUDA_ARRAY3D_SURFACE_LDST`.
    pub fn surface(&self) -> Result<Surface> {
        let desc = level_resource(self.raw);
        let mut raw = 0;
        self.cuda.bind()?;
        // SAFETY: `desc` names a live array of the current context.
        self.cuda.check("cuSurfObjectCreate", unsafe { api::cuSurfObjectCreate(&mut raw, &desc) })?;
        Ok(Surface { raw, array: self.clone() })
    }

    /// For a kernel to read. Coordinates are normalised: 0 to 1 across this level, whatever the size of the first one, or
    /// a direction where the array is a cube. Texel `x` of `width` has its middle at `(x + 0.5) / width`.
    ///
    /// Every `tex` in a kernel reads this level, whichever level it names: the object shows the whole mipmapped array and is clamped
    /// to this level. (An object of the level's own array reads wrong texels where an image in external memory has layers.)
    ///
    /// # Errors
    /// What the driver answers: a filter on integers that are read as integers, for example.
    pub fn texture(&self, how: TextureDesc) -> Result<Texture> {
        let (desc, how) = (mipmap_resource(self.mipmap), how.raw(self.level));
        let mut raw = 0;
        self.cuda.bind()?;
        // SAFETY: `desc` names a live mipmapped array of the current context; no view of it is asked.
        self.cuda.check("cuTexObjectCreate", unsafe {
            api::cuTexObjectCreate(&mut raw, &desc, &how, std::ptr::null())
        })?;
        Ok(Texture { raw, array: self.clone() })
    }
}

fn level_resource(array: sys::CUarray) -> sys::CUDA_RESOURCE_DESC {
    let mut desc = no_resource();
    desc.resType = sys::CUresourcetype::CU_RESOURCE_TYPE_ARRAY;
    desc.res.array.hArray = array;
    desc
}

fn mipmap_resource(mipmap: sys::CUmipmappedArray) -> sys::CUDA_RESOURCE_DESC {
    let mut desc = no_resource();
    desc.resType = sys::CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    desc.res.mipmap.hMipmappedArray = mipmap;
    desc
}

fn no_resource() -> sys::CUDA_RESOURCE_DESC {
    // SAFETY: a plain C structure of integers and pointers, for which all zeros is "nothing".
    unsafe { std::mem::zeroed() }
}

/// How a texture object reads. Coordinates are normalised always: the manual demands it of a mipmapped array
/// (`cuTexObjectCreate`, `CU_TRSF_NORMALIZED_COORDINATES`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextureDesc {
    /// Interpolates between neighbouring texels. Otherwise the nearest one is read.
    pub linear: bool,
    /// Gives integers as integers. Otherwise those of 8 and 16 bits become floats from 0 or -1 to 1, which is how a
    /// normalised format is read.
    pub as_integer: bool,
}

impl TextureDesc {
    /// For a texture object of the whole mipmapped array that shows `level` alone.
    fn raw(self, level: u32) -> sys::CUDA_TEXTURE_DESC {
        use sys::CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP;
        use sys::CUfilter_mode::{CU_TR_FILTER_MODE_LINEAR, CU_TR_FILTER_MODE_POINT};
        let as_integer = if self.as_integer { sys::CU_TRSF_READ_AS_INTEGER } else { 0 };
        // The level of detail is clamped after all else, an explicit one too: with both ends the same, it is this one.
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

    /// The level that it was made of.
    pub fn array(&self) -> &Array {
        &self.array
    }
}

impl Drop for Surface {
    fn drop(&mut self) {
        // SAFETY: created in `Array::surface`; the stream that used it is idle: whoever drops it waits first.
        self.array.cuda.cleanup("cuSurfObjectDestroy", || unsafe { api::cuSurfObjectDestroy(self.raw) });
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
        self.array.cuda.cleanup("cuTexObjectDestroy", || unsafe { api::cuTexObjectDestroy(self.raw) });
    }
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
