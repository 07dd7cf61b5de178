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

use std::any::Any;
use std::sync::Arc;

use cudarc::driver::sys;

use super::{Cuda, Stream, api};
use crate::Result;

/// One level of a mipmapped array that belongs to something else, which is kept alive with it.
#[derive(Clone)]
pub struct Array {
    raw: sys::CUarray,
    mipmap: sys::CUmipmappedArray,
    level: u32,
    cuda: Cuda,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the driver API is thread-safe, and every use binds the context first.
unsafe impl Send for Array {}
// SAFETY: as above.
unsafe impl Sync for Array {}

impl Array {
    /// # Safety
    /// `mipmap` is `cuda`'s and lives as long as `owner`.
    ///
    /// # Errors
    /// There is no such level.
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

    /// Enqueues a copy of this level's first `rows` rows of `row_bytes` bytes into another's.
    ///
    /// # Safety
    /// Stream and both levels are of one context. Both levels are two-dimensional and at least so large; they live, and nobody else
    /// touches them, until the stream has passed this point.
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

    /// Enqueues a copy to the host, row after row without padding: as many rows of `row_bytes` bytes, not 0, as `target` holds. It is
    /// there once the stream is idle.
    ///
    /// # Safety
    /// Stream and level are of one context. The level is two-dimensional and at least so large; it and `target` live, and nobody
    /// else writes the one or touches the other, until the stream has passed this point.
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

    /// For a kernel to read. Coordinates are normalised: 0 to 1 across this level, whatever the size of the first one, or
    /// a direction where the array is a cube. Texel `x` of `width` has its middle at `(x + 0.5) / width`.
    ///
    /// Every `tex` reads this level: one without a level, and one with any. The module says how, and why so.
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
    /// Means the neighbours, instead of taking the nearest texel.
    pub linear: bool,
    /// Gives integers as integers. Otherwise those of 8 and 16 bits become floats from 0 or -1 to 1, which is how a
    /// normalised format is read.
    pub as_integer: bool,
}

impl TextureDesc {
    /// For the mipmapped array of which only `level` is to be seen.
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
