//! Translates Vulkan formats to CUDA array formats, using one table.
//!
//! The integer formats and 32-bit floats are from CUDA's Programming Guide ("Mapping Mipmapped Arrays onto
//! Imported Memory Objects"). A *normalised* format becomes an array of integers with the same bytes. A
//! texture object converts the integer to a float (from 0 to 1, or from -1 to 1), or returns it unchanged
//! (`CU_TRSF_READ_AS_INTEGER`). The table does not use `CU_AD_FORMAT_UNORM_…` and `CU_AD_FORMAT_SNORM_…`,
//! because they need a driver of CUDA 11.5.
//!
//! CUDA does not reorder the channels: a kernel's `x` is blue in a `B8G8R8A8` format. An *sRGB* format is
//! normalised, and its values stay encoded: a texture object returns and filters encoded values, and a kernel
//! must write encoded values. (`CU_TRSF_SRGB` should decode them, but this was not tried.)
//!
//! [`ArrayFormat::of`] refuses depth formats and NV12, and its error says what to share instead.

use ash::vk;
use cudarc::driver::sys::CUarray_format as Array;

use crate::{Error, Result};

/// The meaning of a channel's bits to Vulkan code that samples the image. It is the suffix of a `VkFormat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Numeric {
    /// An unsigned integer.
    Uint,
    /// A signed integer.
    Sint,
    /// An unsigned integer that represents 0 to 1.
    Unorm,
    /// A signed integer that represents -1 to 1.
    Snorm,
    /// A float of 16 or 32 bits.
    Sfloat,
    /// An unsigned integer that represents 0 to 1 in sRGB's encoding. CUDA does not decode it.
    Srgb,
}

/// A format in the terms of both APIs: one row of the table [`FORMATS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayFormat {
    /// Vulkan's format.
    pub vulkan: vk::Format,
    /// The meaning of a channel's bits.
    pub numeric: Numeric,
    /// CUDA's format (`CUDA_ARRAY3D_DESCRIPTOR::Format`).
    pub array: Array,
    /// The number of channels (`CUDA_ARRAY3D_DESCRIPTOR::NumChannels`): 1, 2 or 4. CUDA does not allow 3.
    pub channels: u32,
    /// The number of bits in a channel.
    pub bits: u32,
}

impl ArrayFormat {
    /// Returns the row of [`FORMATS`] for `format`.
    ///
    /// # Errors
    /// Fails if the table has no such row. The error says what to share instead, or lists all formats.
    pub fn of(format: vk::Format) -> Result<Self> {
        FORMATS.iter().find(|line| line.vulkan == format).copied().ok_or_else(|| {
            let advice = instead(format).unwrap_or_else(|| {
                let known: Vec<_> = FORMATS.iter().map(|line| line.name()).collect();
                format!("these formats have one: {}", known.join(", "))
            });
            Error::Rule(format!("{format:?} has no counterpart among CUDA's arrays; {advice}"))
        })
    }

    /// Returns Vulkan's name of the format, without `VK_FORMAT_`.
    pub fn name(&self) -> String {
        format!("{:?}", self.vulkan)
    }

    /// Returns the number of bytes in a texel.
    pub fn bytes(&self) -> u32 {
        self.channels * self.bits / 8
    }
}

/// Returns what to share instead of an image of `format`, if there is an alternative.
fn instead(format: vk::Format) -> Option<String> {
    let pixel = match format {
        vk::Format::D32_SFLOAT | vk::Format::D32_SFLOAT_S8_UINT => "4 bytes a pixel, a float",
        vk::Format::X8_D24_UNORM_PACK32 | vk::Format::D24_UNORM_S8_UINT => {
            "4 bytes a pixel, an integer in the low 24 bits"
        }
        vk::Format::D16_UNORM | vk::Format::D16_UNORM_S8_UINT => "2 bytes a pixel, an integer",
        vk::Format::G8_B8R8_2PLANE_420_UNORM => {
            return Some(
                "share two images: R8_UNORM of the full size for luma, and R8G8_UNORM of half the width and height for \
                 chroma"
                    .into(),
            );
        }
        _ => return None,
    };
    Some(format!(
        "copy the depth with vkCmdCopyImageToBuffer into a slot of a RingToCuda<SharedBuffer> ({pixel})"
    ))
}

const fn line(vulkan: vk::Format, numeric: Numeric, array: Array, channels: u32, bits: u32) -> ArrayFormat {
    ArrayFormat { vulkan, numeric, array, channels, bits }
}

use Array::{
    CU_AD_FORMAT_FLOAT as F32, CU_AD_FORMAT_HALF as F16, CU_AD_FORMAT_SIGNED_INT8 as S8,
    CU_AD_FORMAT_SIGNED_INT16 as S16, CU_AD_FORMAT_SIGNED_INT32 as S32, CU_AD_FORMAT_UNSIGNED_INT8 as U8,
    CU_AD_FORMAT_UNSIGNED_INT16 as U16, CU_AD_FORMAT_UNSIGNED_INT32 as U32,
};
use Numeric::{Sfloat, Sint, Snorm, Srgb, Uint, Unorm};

/// All formats that can be shared: 1, 2 or 4 channels of 8, 16 or 32 bits each. They are sorted by bits per
/// channel, then by channels.
pub const FORMATS: [ArrayFormat; 39] = [
    line(vk::Format::R8_UINT, Uint, U8, 1, 8),
    line(vk::Format::R8_SINT, Sint, S8, 1, 8),
    line(vk::Format::R8_UNORM, Unorm, U8, 1, 8),
    line(vk::Format::R8_SNORM, Snorm, S8, 1, 8),
    line(vk::Format::R8G8_UINT, Uint, U8, 2, 8),
    line(vk::Format::R8G8_SINT, Sint, S8, 2, 8),
    line(vk::Format::R8G8_UNORM, Unorm, U8, 2, 8),
    line(vk::Format::R8G8_SNORM, Snorm, S8, 2, 8),
    line(vk::Format::R8G8B8A8_UINT, Uint, U8, 4, 8),
    line(vk::Format::R8G8B8A8_SINT, Sint, S8, 4, 8),
    line(vk::Format::R8G8B8A8_UNORM, Unorm, U8, 4, 8),
    line(vk::Format::R8G8B8A8_SNORM, Snorm, S8, 4, 8),
    line(vk::Format::R8G8B8A8_SRGB, Srgb, U8, 4, 8),
    line(vk::Format::B8G8R8A8_UNORM, Unorm, U8, 4, 8),
    line(vk::Format::B8G8R8A8_SRGB, Srgb, U8, 4, 8),
    line(vk::Format::R16_UINT, Uint, U16, 1, 16),
    line(vk::Format::R16_SINT, Sint, S16, 1, 16),
    line(vk::Format::R16_UNORM, Unorm, U16, 1, 16),
    line(vk::Format::R16_SNORM, Snorm, S16, 1, 16),
    line(vk::Format::R16_SFLOAT, Sfloat, F16, 1, 16),
    line(vk::Format::R16G16_UINT, Uint, U16, 2, 16),
    line(vk::Format::R16G16_SINT, Sint, S16, 2, 16),
    line(vk::Format::R16G16_UNORM, Unorm, U16, 2, 16),
    line(vk::Format::R16G16_SNORM, Snorm, S16, 2, 16),
    line(vk::Format::R16G16_SFLOAT, Sfloat, F16, 2, 16),
    line(vk::Format::R16G16B16A16_UINT, Uint, U16, 4, 16),
    line(vk::Format::R16G16B16A16_SINT, Sint, S16, 4, 16),
    line(vk::Format::R16G16B16A16_UNORM, Unorm, U16, 4, 16),
    line(vk::Format::R16G16B16A16_SNORM, Snorm, S16, 4, 16),
    line(vk::Format::R16G16B16A16_SFLOAT, Sfloat, F16, 4, 16),
    line(vk::Format::R32_UINT, Uint, U32, 1, 32),
    line(vk::Format::R32_SINT, Sint, S32, 1, 32),
    line(vk::Format::R32_SFLOAT, Sfloat, F32, 1, 32),
    line(vk::Format::R32G32_UINT, Uint, U32, 2, 32),
    line(vk::Format::R32G32_SINT, Sint, S32, 2, 32),
    line(vk::Format::R32G32_SFLOAT, Sfloat, F32, 2, 32),
    line(vk::Format::R32G32B32A32_UINT, Uint, U32, 4, 32),
    line(vk::Format::R32G32B32A32_SINT, Sint, S32, 4, 32),
    line(vk::Format::R32G32B32A32_SFLOAT, Sfloat, F32, 4, 32),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of CUDA's Programming Guide, in its own terms: the bits of x, y, z and w, and the kind.
    #[test]
    fn every_line_is_as_in_the_programming_guide() {
        #[derive(Clone, Copy, PartialEq, Debug)]
        enum Kind {
            Unsigned,
            Signed,
            Float,
        }
        use Kind::*;
        let manual = [
            (vk::Format::R8_UINT, [8, 0, 0, 0], Unsigned),
            (vk::Format::R8_SINT, [8, 0, 0, 0], Signed),
            (vk::Format::R8G8_UINT, [8, 8, 0, 0], Unsigned),
            (vk::Format::R8G8_SINT, [8, 8, 0, 0], Signed),
            (vk::Format::R8G8B8A8_UINT, [8, 8, 8, 8], Unsigned),
            (vk::Format::R8G8B8A8_SINT, [8, 8, 8, 8], Signed),
            (vk::Format::R16_UINT, [16, 0, 0, 0], Unsigned),
            (vk::Format::R16_SINT, [16, 0, 0, 0], Signed),
            (vk::Format::R16G16_UINT, [16, 16, 0, 0], Unsigned),
            (vk::Format::R16G16_SINT, [16, 16, 0, 0], Signed),
            (vk::Format::R16G16B16A16_UINT, [16, 16, 16, 16], Unsigned),
            (vk::Format::R16G16B16A16_SINT, [16, 16, 16, 16], Signed),
            (vk::Format::R32_UINT, [32, 0, 0, 0], Unsigned),
            (vk::Format::R32_SINT, [32, 0, 0, 0], Signed),
            (vk::Format::R32_SFLOAT, [32, 0, 0, 0], Float),
            (vk::Format::R32G32_UINT, [32, 32, 0, 0], Unsigned),
            (vk::Format::R32G32_SINT, [32, 32, 0, 0], Signed),
            (vk::Format::R32G32_SFLOAT, [32, 32, 0, 0], Float),
            (vk::Format::R32G32B32A32_UINT, [32, 32, 32, 32], Unsigned),
            (vk::Format::R32G32B32A32_SINT, [32, 32, 32, 32], Signed),
            (vk::Format::R32G32B32A32_SFLOAT, [32, 32, 32, 32], Float),
            // Not in the guide's listing: half floats (cudaCreateChannelDescHalf), and the normalised ones,
            // which have the bytes of the integers.
            (vk::Format::R16_SFLOAT, [16, 0, 0, 0], Float),
            (vk::Format::R16G16_SFLOAT, [16, 16, 0, 0], Float),
            (vk::Format::R16G16B16A16_SFLOAT, [16, 16, 16, 16], Float),
            (vk::Format::R8_UNORM, [8, 0, 0, 0], Unsigned),
            (vk::Format::R8_SNORM, [8, 0, 0, 0], Signed),
            (vk::Format::R8G8_UNORM, [8, 8, 0, 0], Unsigned),
            (vk::Format::R8G8_SNORM, [8, 8, 0, 0], Signed),
            (vk::Format::R8G8B8A8_UNORM, [8, 8, 8, 8], Unsigned),
            (vk::Format::R8G8B8A8_SNORM, [8, 8, 8, 8], Signed),
            (vk::Format::R8G8B8A8_SRGB, [8, 8, 8, 8], Unsigned),
            (vk::Format::B8G8R8A8_UNORM, [8, 8, 8, 8], Unsigned),
            (vk::Format::B8G8R8A8_SRGB, [8, 8, 8, 8], Unsigned),
            (vk::Format::R16_UNORM, [16, 0, 0, 0], Unsigned),
            (vk::Format::R16_SNORM, [16, 0, 0, 0], Signed),
            (vk::Format::R16G16_UNORM, [16, 16, 0, 0], Unsigned),
            (vk::Format::R16G16_SNORM, [16, 16, 0, 0], Signed),
            (vk::Format::R16G16B16A16_UNORM, [16, 16, 16, 16], Unsigned),
            (vk::Format::R16G16B16A16_SNORM, [16, 16, 16, 16], Signed),
        ];
        assert_eq!(manual.len(), FORMATS.len());
        for (format, bits, kind) in manual {
            let line = ArrayFormat::of(format).unwrap();
            let (array_bits, array_kind) = match line.array {
                Array::CU_AD_FORMAT_UNSIGNED_INT8 => (8, Unsigned),
                Array::CU_AD_FORMAT_UNSIGNED_INT16 => (16, Unsigned),
                Array::CU_AD_FORMAT_UNSIGNED_INT32 => (32, Unsigned),
                Array::CU_AD_FORMAT_SIGNED_INT8 => (8, Signed),
                Array::CU_AD_FORMAT_SIGNED_INT16 => (16, Signed),
                Array::CU_AD_FORMAT_SIGNED_INT32 => (32, Signed),
                Array::CU_AD_FORMAT_HALF => (16, Float),
                Array::CU_AD_FORMAT_FLOAT => (32, Float),
                other => panic!("{other:?}"),
            };
            let channels = bits.iter().filter(|&&bits| bits > 0).count() as u32;
            assert_eq!((array_bits, array_kind), (bits[0], kind), "{format:?}");
            assert_eq!((line.bits, line.channels), (bits[0], channels), "{format:?}");
            assert_eq!(line.bytes(), bits.iter().sum::<u32>() / 8, "{format:?}");
        }
    }

    /// A format's name says what a channel means, so the two can be compared.
    #[test]
    fn the_meaning_is_that_of_the_name() {
        for line in FORMATS {
            let name = line.name();
            let word = format!("{:?}", line.numeric).to_uppercase();
            assert!(name.ends_with(&format!("_{word}")), "{name}");
            assert!(name.contains(&line.bits.to_string()), "{name}");
        }
    }

    #[test]
    fn each_format_has_one_line() {
        for (index, line) in FORMATS.iter().enumerate() {
            assert!(FORMATS[..index].iter().all(|other| other.vulkan != line.vulkan), "{}", line.name());
        }
    }

    #[test]
    fn a_format_without_a_counterpart_says_which_have_one() {
        for format in [vk::Format::R8G8B8_UNORM, vk::Format::B8G8R8_SRGB, vk::Format::R5G6B5_UNORM_PACK16] {
            let text = ArrayFormat::of(format).unwrap_err().to_string();
            assert!(text.contains(&format!("{format:?} has no counterpart")), "{text}");
            assert!(text.contains("R8_UINT") && text.contains("R32G32B32A32_SFLOAT"), "{text}");
        }
    }

    #[test]
    fn what_is_shared_in_another_way_says_how() {
        let copied = "copy the depth with vkCmdCopyImageToBuffer into a slot of a RingToCuda<SharedBuffer> (";
        for (format, how) in [
            (vk::Format::D32_SFLOAT, [copied, "(4 bytes a pixel, a float)"]),
            (vk::Format::D32_SFLOAT_S8_UINT, [copied, "(4 bytes a pixel, a float)"]),
            (vk::Format::D24_UNORM_S8_UINT, [copied, "the low 24 bits)"]),
            (vk::Format::X8_D24_UNORM_PACK32, [copied, "the low 24 bits)"]),
            (vk::Format::D16_UNORM, [copied, "(2 bytes a pixel, an integer)"]),
            (vk::Format::D16_UNORM_S8_UINT, [copied, "(2 bytes a pixel, an integer)"]),
            (vk::Format::G8_B8R8_2PLANE_420_UNORM, ["R8_UNORM of the full size", "R8G8_UNORM of half"]),
        ] {
            let text = ArrayFormat::of(format).unwrap_err().to_string();
            assert!(text.contains(&format!("{format:?} has no counterpart among CUDA's arrays; ")), "{text}");
            assert!(how.iter().all(|words| text.contains(words)), "{text}");
        }
    }
}
