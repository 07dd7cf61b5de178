//! How an image is laid out in both APIs' terms: its view type, extent, layers and levels. Pure translation.
//!
//! Vulkan says how an image is to be seen by a view type, and counts layers beside the extent. CUDA has one
//! `CUDA_ARRAY3D_DESCRIPTOR` whose extents are zero where a dimension is absent, whose depth is the number of layers where
//! there are any (six for each cube), and whose flags say what the depth means (`cuArray3DCreate`).

use ash::vk;
use cudarc::driver::sys;

use crate::format::ArrayFormat;
use crate::{Error, Result};

/// How an image is seen: Vulkan's seven view types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ViewType {
    /// A line of texels.
    D1,
    /// A picture.
    D2,
    /// A volume.
    D3,
    /// Six square faces: +X, -X, +Y, -Y, +Z, -Z, in both APIs.
    Cube,
    /// Lines.
    D1Array,
    /// Pictures.
    D2Array,
    /// Cubes, each of six layers.
    CubeArray,
}

impl ViewType {
    /// All seven, in the order of `VkImageViewType`.
    pub const ALL: [Self; 7] =
        [Self::D1, Self::D2, Self::D3, Self::Cube, Self::D1Array, Self::D2Array, Self::CubeArray];

    /// A name for people and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::D1 => "1d",
            Self::D2 => "2d",
            Self::D3 => "3d",
            Self::Cube => "cube",
            Self::D1Array => "1d-array",
            Self::D2Array => "2d-array",
            Self::CubeArray => "cube-array",
        }
    }

    /// Vulkan's type of a view.
    pub fn vulkan(self) -> vk::ImageViewType {
        match self {
            Self::D1 => vk::ImageViewType::TYPE_1D,
            Self::D2 => vk::ImageViewType::TYPE_2D,
            Self::D3 => vk::ImageViewType::TYPE_3D,
            Self::Cube => vk::ImageViewType::CUBE,
            Self::D1Array => vk::ImageViewType::TYPE_1D_ARRAY,
            Self::D2Array => vk::ImageViewType::TYPE_2D_ARRAY,
            Self::CubeArray => vk::ImageViewType::CUBE_ARRAY,
        }
    }

    /// Vulkan's type of the image below the view.
    pub fn image_type(self) -> vk::ImageType {
        match self {
            Self::D1 | Self::D1Array => vk::ImageType::TYPE_1D,
            Self::D2 | Self::Cube | Self::D2Array | Self::CubeArray => vk::ImageType::TYPE_2D,
            Self::D3 => vk::ImageType::TYPE_3D,
        }
    }

    /// What the image must be created with to be seen like that.
    pub fn create_flags(self) -> vk::ImageCreateFlags {
        match self.is_cube() {
            true => vk::ImageCreateFlags::CUBE_COMPATIBLE,
            false => vk::ImageCreateFlags::empty(),
        }
    }

    /// Whether six layers are the faces of a cube.
    pub fn is_cube(self) -> bool {
        matches!(self, Self::Cube | Self::CubeArray)
    }

    /// CUDA's flags of such an array.
    fn array_flags(self) -> u32 {
        match self {
            Self::D1 | Self::D2 | Self::D3 => 0,
            Self::Cube => sys::CUDA_ARRAY3D_CUBEMAP,
            Self::D1Array | Self::D2Array => sys::CUDA_ARRAY3D_LAYERED,
            Self::CubeArray => sys::CUDA_ARRAY3D_CUBEMAP | sys::CUDA_ARRAY3D_LAYERED,
        }
    }
}

/// An image's dimensions. Made by [`Shape::new`], so it is one that both APIs accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    view: ViewType,
    extent: vk::Extent3D,
    layers: u32,
    levels: u32,
}

impl Shape {
    /// `extent` is that of level 0, in texels, 1 where the view has no such dimension; `layers` counts the faces of cubes
    /// too; `levels` is the length of the mip chain.
    ///
    /// # Errors
    /// Names the dimension that such a view does not have, or the rule that is broken.
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
            return rule(format!("has no height, and {height} was asked"));
        }
        if view != ViewType::D3 && depth > 1 {
            return rule(format!("has no depth, and {depth} was asked"));
        }
        if view.is_cube() && width != height {
            return rule(format!("has square faces, and {width}x{height} was asked"));
        }
        match view {
            ViewType::D1 | ViewType::D2 | ViewType::D3 if layers > 1 => {
                return rule(format!("has no layers, and {layers} were asked"));
            }
            ViewType::Cube if layers != 6 => {
                return rule(format!("has six layers, one for each face, and {layers} were asked"));
            }
            ViewType::CubeArray if !layers.is_multiple_of(6) => {
                return rule(format!("has six layers for each cube, and {layers} were asked"));
            }
            _ => {}
        }
        let most = full_chain(extent);
        if levels > most {
            // CUDA would quietly take fewer (cuMipmappedArrayCreate), Vulkan none of it.
            return rule(format!(
                "of {width}x{height}x{depth} texels has {most} levels at most, and {levels} were asked"
            ));
        }
        Ok(Self { view, extent, layers, levels })
    }

    /// How it is seen.
    pub fn view(&self) -> ViewType {
        self.view
    }

    /// Texels of level 0.
    pub fn extent(&self) -> vk::Extent3D {
        self.extent
    }

    /// Layers, faces included.
    pub fn layers(&self) -> u32 {
        self.layers
    }

    /// Levels of the mip chain.
    pub fn levels(&self) -> u32 {
        self.levels
    }

    /// Texels of one level: each level halves every dimension, rounding down, but not below 1.
    pub fn level_extent(&self, level: u32) -> vk::Extent3D {
        let half = |size: u32| size.checked_shr(level).unwrap_or(0).max(1);
        let vk::Extent3D { width, height, depth } = self.extent;
        vk::Extent3D { width: half(width), height: half(height), depth: half(depth) }
    }

    /// Texels of one level across, down, and in depth or layers: as they follow each other in a buffer.
    pub fn level_texels(&self, level: u32) -> [u32; 3] {
        let vk::Extent3D { width, height, depth } = self.level_extent(level);
        [width, height, depth * self.layers]
    }

    /// Width, height and depth as CUDA counts them.
    pub fn array_extent(&self) -> [usize; 3] {
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

    /// CUDA's flags: what the depth means, whether Vulkan draws on it (`COLOR_ATTACHMENT`), and whether kernels write it as
    /// a surface.
    pub fn array_flags(&self, usage: vk::ImageUsageFlags, surface: bool) -> u32 {
        let attachment = usage.contains(vk::ImageUsageFlags::COLOR_ATTACHMENT);
        self.view.array_flags()
            | if attachment { sys::CUDA_ARRAY3D_COLOR_ATTACHMENT } else { 0 }
            | if surface { sys::CUDA_ARRAY3D_SURFACE_LDST } else { 0 }
    }

    /// Everything that CUDA is told of such an image in an allocation of its own.
    pub fn mipmapped_array(
        &self,
        format: ArrayFormat,
        usage: vk::ImageUsageFlags,
        surface: bool,
    ) -> sys::CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
        // ANCHOR: descriptor
        let [width, height, depth] = self.array_extent();
        sys::CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
            // A dedicated allocation holds its image from the beginning.
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

/// The levels of a whole mip chain, down to one texel.
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
        // The numbers themselves, as cuda.h has them.
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
            (refused(ViewType::D1, texels(8, 2, 1), 1, 1), "no height, and 2"),
            (refused(ViewType::D1Array, texels(8, 2, 1), 3, 1), "no height"),
            (refused(ViewType::D2, texels(8, 8, 3), 1, 1), "no depth, and 3"),
            (refused(ViewType::D2, texels(8, 8, 1), 2, 1), "no layers, and 2"),
            (refused(ViewType::D3, texels(8, 8, 8), 2, 1), "no layers"),
            (refused(ViewType::Cube, texels(8, 9, 1), 6, 1), "square faces, and 8x9"),
            (refused(ViewType::Cube, texels(8, 8, 1), 12, 1), "six layers, one for each face, and 12"),
            (refused(ViewType::CubeArray, texels(8, 8, 1), 7, 1), "six layers for each cube, and 7"),
            (refused(ViewType::D2, texels(8, 8, 1), 1, 5), "4 levels at most, and 5"),
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
