//! An image's dimensions in the terms of both APIs: view type, extent, layers and levels.
//!
//! In CUDA's `CUDA_ARRAY3D_DESCRIPTOR`, the extents of missing dimensions are zero. For images with layers,
//! the depth is the number of layers (six for each cube), and flags mark it as that (`cuArray3DCreate`).

use ash::vk;
use cudarc::driver::sys;

use crate::format::ArrayFormat;
use crate::{Error, Result};

/// The type of an image view: one of the seven values of `VkImageViewType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ViewType {
    /// A one-dimensional image.
    D1,
    /// A two-dimensional image.
    D2,
    /// A three-dimensional image.
    D3,
    /// A cube map of six square faces: +X, -X, +Y, -Y, +Z, -Z, in both APIs.
    Cube,
    /// An array of one-dimensional images.
    D1Array,
    /// An array of two-dimensional images.
    D2Array,
    /// An array of cube maps, each of six layers.
    CubeArray,
}

impl ViewType {
    /// All seven types, in the order of `VkImageViewType`.
    pub const ALL: [Self; 7] =
        [Self::D1, Self::D2, Self::D3, Self::Cube, Self::D1Array, Self::D2Array, Self::CubeArray];

    /// Returns the name, Vulkan's view type and image type ([view compatibility table]), and CUDA's flags.
    ///
    /// [view compatibility table]: https://registry.khronos.org/vulkan/specs/latest/html/vkspec.html#resources-image-views-compatibility
    fn row(self) -> (&'static str, vk::ImageViewType, vk::ImageType, u32) {
        use sys::{CUDA_ARRAY3D_CUBEMAP as CUBEMAP, CUDA_ARRAY3D_LAYERED as LAYERED};
        use vk::{ImageType as Image, ImageViewType as View};
        match self {
            Self::D1 => ("1d", View::TYPE_1D, Image::TYPE_1D, 0),
            Self::D2 => ("2d", View::TYPE_2D, Image::TYPE_2D, 0),
            Self::D3 => ("3d", View::TYPE_3D, Image::TYPE_3D, 0),
            Self::Cube => ("cube", View::CUBE, Image::TYPE_2D, CUBEMAP),
            Self::D1Array => ("1d-array", View::TYPE_1D_ARRAY, Image::TYPE_1D, LAYERED),
            Self::D2Array => ("2d-array", View::TYPE_2D_ARRAY, Image::TYPE_2D, LAYERED),
            Self::CubeArray => ("cube-array", View::CUBE_ARRAY, Image::TYPE_2D, CUBEMAP | LAYERED),
        }
    }

    /// Returns a name for messages and files, such as `2d-array`.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Returns Vulkan's view type.
    pub fn vulkan(self) -> vk::ImageViewType {
        self.row().1
    }

    pub(crate) fn image_type(self) -> vk::ImageType {
        self.row().2
    }

    pub(crate) fn create_flags(self) -> vk::ImageCreateFlags {
        match self {
            Self::Cube | Self::CubeArray => vk::ImageCreateFlags::CUBE_COMPATIBLE,
            _ => vk::ImageCreateFlags::empty(),
        }
    }
}

/// An image's dimensions. Both APIs accept every `Shape`, within the device's limits.
///
/// # Examples
/// ```
/// use ash::vk;
/// use vulkan_cuda::shape::full_chain;
/// use vulkan_cuda::{Shape, ViewType};
///
/// let extent = vk::Extent3D { width: 64, height: 64, depth: 1 };
/// let cube = Shape::new(ViewType::Cube, extent, 6, full_chain(extent)).unwrap();
/// assert_eq!((cube.levels(), cube.level_texels(1)), (7, [32, 32, 6]));
/// assert!(Shape::new(ViewType::Cube, extent, 5, 1).is_err()); // a cube has six faces
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    view: ViewType,
    extent: vk::Extent3D,
    layers: u32,
    levels: u32,
}

impl Shape {
    /// Checks the dimensions of an image, and returns its shape. `extent` is the size of level 0 in texels,
    /// with 1 for missing dimensions. `layers` counts each face of a cube. `levels` is the length of the mip
    /// chain. The error names the broken rule.
    pub fn new(view: ViewType, extent: vk::Extent3D, layers: u32, levels: u32) -> Result<Self> {
        let vk::Extent3D { width, height, depth } = extent;
        let name = view.name();
        let rule = |text: String| Err(Error::Rule(format!("a {name} image {text}")));
        if width == 0 || height == 0 || depth == 0 || layers == 0 || levels == 0 {
            return rule(format!(
                "of {width}x{height}x{depth} texels, {layers} layers and {levels} levels has no texels"
            ));
        }
        if matches!(view, ViewType::D1 | ViewType::D1Array) && height > 1 {
            return rule(format!("has no height, but {height} was requested"));
        }
        if view != ViewType::D3 && depth > 1 {
            return rule(format!("has no depth, but {depth} was requested"));
        }
        if matches!(view, ViewType::Cube | ViewType::CubeArray) && width != height {
            return rule(format!("has square faces, but {width}x{height} was requested"));
        }
        match view {
            ViewType::D1 | ViewType::D2 | ViewType::D3 if layers > 1 => {
                return rule(format!("has no layers, but {layers} were requested"));
            }
            ViewType::Cube if layers != 6 => {
                return rule(format!("has six layers, one for each face, but {layers} were requested"));
            }
            ViewType::CubeArray if !layers.is_multiple_of(6) => {
                return rule(format!("has six layers for each cube, but {layers} were requested"));
            }
            _ => {}
        }
        let most = full_chain(extent);
        if levels > most {
            // CUDA silently makes fewer levels than requested (cuMipmappedArrayCreate). Vulkan forbids it.
            return rule(format!(
                "of {width}x{height}x{depth} texels has at most {most} levels, but {levels} were requested"
            ));
        }
        Ok(Self { view, extent, layers, levels })
    }

    /// Returns the view type.
    pub fn view(&self) -> ViewType {
        self.view
    }

    /// Returns the extent of level 0, in texels.
    pub fn extent(&self) -> vk::Extent3D {
        self.extent
    }

    /// Returns the number of layers, faces included.
    pub fn layers(&self) -> u32 {
        self.layers
    }

    /// Returns the number of levels in the mip chain.
    pub fn levels(&self) -> u32 {
        self.levels
    }

    /// Returns a level's extent in texels: half that of the level before, rounded down, but at least 1
    /// ([Image Mip Level Sizing]).
    ///
    /// [Image Mip Level Sizing]: https://registry.khronos.org/vulkan/specs/latest/html/vkspec.html#resources-image-mip-level-sizing
    pub fn level_extent(&self, level: u32) -> vk::Extent3D {
        let half = |size: u32| size.checked_shr(level).unwrap_or(0).max(1);
        let vk::Extent3D { width, height, depth } = self.extent;
        vk::Extent3D { width: half(width), height: half(height), depth: half(depth) }
    }

    /// Returns a level's width, its height, and its depth times the number of layers, in texels.
    pub fn level_texels(&self, level: u32) -> [u32; 3] {
        let vk::Extent3D { width, height, depth } = self.level_extent(level);
        [width, height, depth * self.layers]
    }

    /// Returns width, height and depth as CUDA defines them: see the module.
    fn array_extent(&self) -> [usize; 3] {
        let vk::Extent3D { width, height, depth } = self.extent;
        let (height, depth) = match self.view {
            ViewType::D1 => (0, 0),
            ViewType::D2 => (height, 0),
            ViewType::D3 => (height, depth),
            ViewType::D1Array => (0, self.layers),
            ViewType::Cube | ViewType::D2Array | ViewType::CubeArray => (height, self.layers),
        };
        [width, height, depth].map(|size| size as usize)
    }

    /// Returns CUDA's flags: the meaning of the depth, use as a colour attachment, and writes by kernels.
    fn array_flags(&self, usage: vk::ImageUsageFlags, surface: bool) -> u32 {
        let attachment = usage.contains(vk::ImageUsageFlags::COLOR_ATTACHMENT);
        self.view.row().3
            | if attachment { sys::CUDA_ARRAY3D_COLOR_ATTACHMENT } else { 0 }
            | if surface { sys::CUDA_ARRAY3D_SURFACE_LDST } else { 0 }
    }

    /// Returns the description for `cuExternalMemoryGetMappedMipmappedArray`. With `surface`, kernels can
    /// write the array.
    pub fn mipmapped_array(
        &self,
        format: ArrayFormat,
        usage: vk::ImageUsageFlags,
        surface: bool,
    ) -> sys::CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
        // ANCHOR: descriptor
        let [width, height, depth] = self.array_extent();
        sys::CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
            // In a dedicated allocation the image begins at offset 0.
            offset: 0,
            arrayDesc: sys::CUDA_ARRAY3D_DESCRIPTOR {
                Width: width,
                Height: height,
                Depth: depth,
                Format: format.array,
                NumChannels: format.channels,
                Flags: self.array_flags(usage, surface),
            },
            numLevels: self.levels,
            reserved: [0; 16],
        }
        // ANCHOR_END: descriptor
    }
}

/// Returns the number of levels in a full mip chain, down to one texel.
pub fn full_chain(extent: vk::Extent3D) -> u32 {
    extent.width.max(extent.height).max(extent.depth).max(1).ilog2() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texels(width: u32, height: u32, depth: u32) -> vk::Extent3D {
        vk::Extent3D { width, height, depth }
    }

    fn shape(view: ViewType, extent: vk::Extent3D, layers: u32) -> Shape {
        Shape::new(view, extent, layers, 1).unwrap()
    }

    /// `cudaExtent` and the flags as CUDA's Programming Guide gives them for each `VkImageViewType`.
    #[test]
    fn every_view_type_is_as_in_the_programming_guide() {
        use sys::{CUDA_ARRAY3D_CUBEMAP as CUBEMAP, CUDA_ARRAY3D_LAYERED as LAYERED};
        let manual = [
            (shape(ViewType::D1, texels(640, 1, 1), 1), [640, 0, 0], 0),
            (shape(ViewType::D2, texels(640, 480, 1), 1), [640, 480, 0], 0),
            (shape(ViewType::D3, texels(64, 48, 32), 1), [64, 48, 32], 0),
            (shape(ViewType::Cube, texels(64, 64, 1), 6), [64, 64, 6], CUBEMAP),
            (shape(ViewType::D1Array, texels(640, 1, 1), 5), [640, 0, 5], LAYERED),
            (shape(ViewType::D2Array, texels(640, 480, 1), 5), [640, 480, 5], LAYERED),
            (shape(ViewType::CubeArray, texels(64, 64, 1), 18), [64, 64, 18], CUBEMAP | LAYERED),
        ];
        assert_eq!(manual.map(|(shape, ..)| shape.view()), ViewType::ALL);
        for (shape, extent, flags) in manual {
            let name = shape.view().name();
            assert_eq!(shape.array_extent(), extent, "{name}");
            let none = vk::ImageUsageFlags::SAMPLED;
            let drawn = none | vk::ImageUsageFlags::COLOR_ATTACHMENT;
            assert_eq!(shape.array_flags(none, false), flags, "{name}");
            assert_eq!(shape.array_flags(drawn, false), flags | sys::CUDA_ARRAY3D_COLOR_ATTACHMENT, "{name}");
            assert_eq!(shape.array_flags(none, true), flags | sys::CUDA_ARRAY3D_SURFACE_LDST, "{name}");
        }
        // The numbers, from cuda.h.
        assert_eq!((LAYERED, CUBEMAP), (1, 4));
        assert_eq!((sys::CUDA_ARRAY3D_SURFACE_LDST, sys::CUDA_ARRAY3D_COLOR_ATTACHMENT), (2, 32));
    }

    #[test]
    fn the_whole_descriptor() {
        let shape = Shape::new(ViewType::D2Array, texels(37, 21, 1), 3, 6).unwrap();
        let format = ArrayFormat::of(vk::Format::R16G16_SFLOAT).unwrap();
        let desc = shape.mipmapped_array(format, vk::ImageUsageFlags::COLOR_ATTACHMENT, true);
        assert_eq!((desc.offset, desc.numLevels), (0, 6));
        let array = desc.arrayDesc;
        assert_eq!((array.Width, array.Height, array.Depth), (37, 21, 3));
        assert_eq!((array.Format, array.NumChannels), (sys::CUarray_format::CU_AD_FORMAT_HALF, 2));
        assert_eq!(array.Flags, 1 | 2 | 32);
    }

    #[test]
    fn what_neither_api_has_is_refused_in_words() {
        let refused =
            |view, extent, layers, levels| Shape::new(view, extent, layers, levels).unwrap_err().to_string();
        for (text, part) in [
            (refused(ViewType::D1, texels(8, 2, 1), 1, 1), "no height, but 2"),
            (refused(ViewType::D1Array, texels(8, 2, 1), 3, 1), "no height"),
            (refused(ViewType::D2, texels(8, 8, 3), 1, 1), "no depth, but 3"),
            (refused(ViewType::D2, texels(8, 8, 1), 2, 1), "no layers, but 2"),
            (refused(ViewType::D3, texels(8, 8, 8), 2, 1), "no layers"),
            (refused(ViewType::Cube, texels(8, 9, 1), 6, 1), "square faces, but 8x9"),
            (refused(ViewType::Cube, texels(8, 8, 1), 12, 1), "six layers, one for each face, but 12"),
            (refused(ViewType::CubeArray, texels(8, 8, 1), 7, 1), "six layers for each cube, but 7"),
            (refused(ViewType::D2, texels(8, 8, 1), 1, 5), "at most 4 levels, but 5"),
            (refused(ViewType::D2, texels(8, 0, 1), 1, 1), "no texels"),
            (refused(ViewType::D2, texels(8, 8, 1), 1, 0), "no texels"),
        ] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }

    #[test]
    fn levels_halve_and_never_vanish() {
        let extent = texels(37, 21, 1);
        assert_eq!(full_chain(extent), 6);
        let shape = Shape::new(ViewType::D2, extent, 1, 6).unwrap();
        let levels: Vec<_> = (0..6).map(|level| shape.level_texels(level)).collect();
        assert_eq!(levels, [[37, 21, 1], [18, 10, 1], [9, 5, 1], [4, 2, 1], [2, 1, 1], [1, 1, 1]]);
        // The depth of a volume halves, the layers of an array do not.
        let volume = Shape::new(ViewType::D3, texels(8, 4, 4), 1, 4).unwrap();
        assert_eq!(volume.level_texels(2), [2, 1, 1]);
        let array = Shape::new(ViewType::D1Array, texels(8, 1, 1), 5, 4).unwrap();
        assert_eq!(array.level_texels(3), [1, 1, 5]);
        assert_eq!((full_chain(texels(1, 1, 1)), full_chain(texels(64, 1, 1))), (1, 7));
    }
}
