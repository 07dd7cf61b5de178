//! The bytes to send through an image, and what a texture object must make of them. Pure, so it is tested without a GPU.

use vulkan_cuda::{ArrayFormat, Numeric, ViewType};

/// Noise for `texels` texels, which depends on `seed`. Every integer may occur. Floats are finite and between -1 and 1,
/// so that they can be compared and averaged.
pub fn noise(format: ArrayFormat, texels: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    let mut bytes = Vec::with_capacity(texels * format.bytes() as usize);
    for _ in 0..texels * format.channels as usize {
        let random = next();
        match (format.numeric, format.bits) {
            (Numeric::Sfloat, 16) => {
                // Any sign and mantissa; an exponent from 2^-6 to 2^-1.
                let half = (random & 0x83FF) | ((9 + (random >> 16) % 6) << 10);
                bytes.extend((half as u16).to_le_bytes());
            }
            (Numeric::Sfloat, _) => {
                bytes.extend((random as i32 as f32 / (1u32 << 31) as f32).to_le_bytes());
            }
            (_, bits) => bytes.extend(&random.to_le_bytes()[..bits as usize / 8]),
        }
    }
    bytes
}

/// Channel `of` of texel `texel` in `bytes`, as a texture object must return it: an integer as itself.
fn channel(format: ArrayFormat, bytes: &[u8], texel: usize, of: usize) -> f64 {
    let size = format.bits as usize / 8;
    let at = (texel * format.channels as usize + of) * size;
    let mut raw = [0; 4];
    raw[..size].copy_from_slice(&bytes[at..at + size]);
    let unsigned = u32::from_le_bytes(raw);
    // Moves the sign bit of a smaller integer to the sign bit of an i32.
    let shift = 32 - format.bits;
    let signed = (unsigned << shift) as i32 >> shift;
    let largest = |bits: u32| ((1u64 << bits) - 1) as f64;
    match format.numeric {
        Numeric::Uint => unsigned.into(),
        Numeric::Sint => signed.into(),
        // sRGB's values stay encoded.
        Numeric::Unorm | Numeric::Srgb => f64::from(unsigned) / largest(format.bits),
        // The smallest integer means -1, like the next one.
        Numeric::Snorm => (f64::from(signed) / largest(format.bits - 1)).max(-1.0),
        Numeric::Sfloat if format.bits == 16 => half::f16::from_bits(unsigned as u16).to_f64(),
        Numeric::Sfloat => f32::from_bits(unsigned).into(),
    }
}

/// The largest allowed error of a float that was only read. The conversion from a normalised integer may round differently.
const READ_TOLERANCE: f64 = 1e-6;

/// The largest allowed error of a filtered float. A texture unit weighs texels in steps of 1/256, and a normalised
/// coordinate just below the middle may cost one step in each dimension: 3/256 at most in all. Values are in -1 to 1,
/// and neighbours differ a lot, so taking the nearest texel instead of the mean exceeds this nearly everywhere.
const FILTER_TOLERANCE: f64 = 0.02;

/// Compares what a texture object returned for every texel, four channels of 32 bits each, with what it must return. With
/// `linear`, that is the mean of a texel and the next one in each dimension of `view`. `size` is the level's width and height,
/// and its depth or layers. An error has the number of texels that differ, and describes the first.
pub fn compare_texture(
    format: ArrayFormat,
    view: ViewType,
    bytes: &[u8],
    size: [u32; 3],
    linear: bool,
    got: &[u32],
) -> Result<(), String> {
    let [width, height, depth] = size;
    let steps = match view {
        _ if !linear => [0, 0, 0],
        ViewType::D1 | ViewType::D1Array => [1, 0, 0],
        ViewType::D2 | ViewType::D2Array | ViewType::Cube | ViewType::CubeArray => [1, 1, 0],
        ViewType::D3 => [1, 1, 1],
    };
    let want = |at: [u32; 3], of: usize| {
        let corners = (0..8u32).map(|corner| {
            let [x, y, z] = std::array::from_fn(|axis| {
                let step = steps[axis] & corner >> axis;
                (at[axis] + step).min(size[axis] - 1) as usize
            });
            channel(format, bytes, (z * height as usize + y) * width as usize + x, of)
        });
        corners.sum::<f64>() / 8.0
    };
    let tolerance = match (format.filters(), linear) {
        (false, _) => 0.0,
        (true, false) => READ_TOLERANCE,
        (true, true) => FILTER_TOLERANCE,
    };
    let texels = width * height * depth;
    let wrong = (0..texels).filter_map(|texel| {
        let at @ [x, y, z] = [texel % width, texel / width % height, texel / width / height];
        // If the format has fewer channels, the hardware chooses the others, so they are not compared.
        (0..format.channels as usize).find_map(|of| {
            let raw = got[4 * texel as usize + of];
            let got = match format.numeric {
                Numeric::Uint => f64::from(raw),
                Numeric::Sint => f64::from(raw as i32),
                Numeric::Unorm | Numeric::Snorm | Numeric::Srgb | Numeric::Sfloat => {
                    f64::from(f32::from_bits(raw))
                }
            };
            let want = want(at, of);
            // Not a number is wrong, too.
            let fine = (got - want).abs() <= tolerance;
            (!fine).then_some(move || format!("at ({x}, {y}, {z}) channel {of} is {got} and not {want}"))
        })
    });
    verdict(wrong, texels as usize)
}

/// Like [`compare_texture`], byte for byte.
pub fn compare_bytes(want: &[u8], got: &[u8], texel: usize) -> Result<(), String> {
    let wrong = want.chunks(texel).enumerate().filter_map(|(index, want)| {
        let at = index * texel;
        let got = got.get(at..at + want.len()).unwrap_or_default();
        (got != want).then_some(move || format!("texel {index} is {got:02x?} and not {want:02x?}"))
    });
    verdict(wrong, want.len().div_ceil(texel))
}

/// Only the first is described: describing takes long, and all may differ.
fn verdict(mut wrong: impl Iterator<Item = impl Fn() -> String>, of: usize) -> Result<(), String> {
    match wrong.next() {
        None => Ok(()),
        Some(first) => Err(format!("{} of {of} texels differ, the first {}", 1 + wrong.count(), first())),
    }
}

#[cfg(test)]
mod tests {
    use ash::vk;

    use super::*;
    use vulkan_cuda::FORMATS;

    fn format(format: vk::Format) -> ArrayFormat {
        ArrayFormat::of(format).unwrap()
    }

    #[test]
    fn channels_are_read_as_both_manuals_say() {
        let one = |vulkan, bytes: &[u8]| channel(format(vulkan), bytes, 0, 0);
        assert_eq!(one(vk::Format::R8_UINT, &[200]), 200.0);
        assert_eq!(one(vk::Format::R8_SINT, &[200]), -56.0);
        assert_eq!(one(vk::Format::R16_SINT, &[0xFE, 0xFF]), -2.0);
        assert_eq!(one(vk::Format::R32_UINT, &[1, 2, 3, 4]), f64::from(0x0403_0201));
        assert_eq!(one(vk::Format::R8_UNORM, &[255]), 1.0);
        assert_eq!(one(vk::Format::R8_UNORM, &[51]), 0.2);
        assert_eq!(one(vk::Format::R8G8B8A8_SRGB, &[51, 0, 0, 0]), 0.2, "encoded");
        assert_eq!(one(vk::Format::B8G8R8A8_UNORM, &[51, 0, 255, 0]), 0.2, "blue");
        assert_eq!(one(vk::Format::R16_UNORM, &[0xFF, 0xFF]), 1.0);
        assert_eq!(one(vk::Format::R8_SNORM, &[127]), 1.0);
        assert_eq!(one(vk::Format::R8_SNORM, &[0x81]), -1.0);
        assert_eq!(one(vk::Format::R8_SNORM, &[0x80]), -1.0, "the smallest is -1 too");
        assert_eq!(one(vk::Format::R16_SFLOAT, &[0x00, 0x3C]), 1.0);
        assert_eq!(one(vk::Format::R16_SFLOAT, &[0x00, 0xC1]), -2.5);
        assert_eq!(one(vk::Format::R16_SFLOAT, &[0x01, 0x00]), 2f64.powi(-24));
        assert_eq!(one(vk::Format::R32_SFLOAT, &0.1f32.to_le_bytes()), f64::from(0.1f32));
        let rgba = channel(
            format(vk::Format::R16G16B16A16_UINT),
            &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0],
            1,
            2,
        );
        assert_eq!(rgba, 3.0);
    }

    #[test]
    fn noise_is_of_the_right_length_and_never_the_same() {
        for format in FORMATS {
            let (a, b) = (noise(format, 77, 1), noise(format, 77, 2));
            assert_eq!(a.len(), 77 * format.bytes() as usize, "{}", format.name());
            assert_ne!(a, b, "{}", format.name());
            for texel in 0..77 {
                let value = channel(format, &a, texel, 0);
                assert!(!format.filters() || value.abs() <= 1.0, "{}: {value}", format.name());
            }
        }
    }

    /// What a texture object would return, by definition.
    fn as_read(format: ArrayFormat, bytes: &[u8], texels: usize) -> Vec<u32> {
        let mut got = vec![0; texels * 4];
        for texel in 0..texels {
            for of in 0..format.channels as usize {
                let value = channel(format, bytes, texel, of);
                got[4 * texel + of] = match format.numeric {
                    Numeric::Uint => value as u32,
                    Numeric::Sint => value as i32 as u32,
                    _ => (value as f32).to_bits(),
                };
            }
        }
        got
    }

    #[test]
    fn one_wrong_texel_is_found() {
        for format in FORMATS {
            let size = [5, 3, 2];
            let bytes = noise(format, 30, 3);
            let mut got = as_read(format, &bytes, 30);
            assert_eq!(
                compare_texture(format, ViewType::D3, &bytes, size, false, &got),
                Ok(()),
                "{}",
                format.name()
            );
            // (1, 2, 1) is texel 26.
            got[4 * 26 + format.channels as usize - 1] ^= 0x0080_0001;
            let text = compare_texture(format, ViewType::D3, &bytes, size, false, &got).unwrap_err();
            assert!(text.contains("1 of 30") && text.contains("(1, 2, 1)"), "{}: {text}", format.name());
        }
    }

    /// Taking the nearest texel must not pass for taking the mean.
    #[test]
    fn the_nearest_texel_is_not_the_mean() {
        for format in FORMATS.into_iter().filter(ArrayFormat::filters) {
            let bytes = noise(format, 8 * 8, 4);
            let got = as_read(format, &bytes, 64);
            let text = compare_texture(format, ViewType::D2, &bytes, [8, 8, 1], true, &got).unwrap_err();
            let wrong: u32 = text.split(' ').next().unwrap().parse().unwrap();
            assert!(wrong > 50, "{}: {text}", format.name());
        }
    }

    #[test]
    fn the_mean_is_that_of_the_view_s_neighbours() {
        let format = format(vk::Format::R32_SFLOAT);
        let bytes: Vec<u8> = [0.0f32, 1.0, 0.5, 0.25].iter().flat_map(|value| value.to_le_bytes()).collect();
        let got = |values: [f32; 4]| values.map(|value| [value.to_bits(), 0, 0, 0]).concat();
        // Two rows of two texels: first as a 2D image, then as two layers of a line.
        let picture = got([0.4375, 0.625, 0.375, 0.25]);
        assert_eq!(compare_texture(format, ViewType::D2, &bytes, [2, 2, 1], true, &picture), Ok(()));
        let lines = got([0.5, 1.0, 0.375, 0.25]);
        assert_eq!(compare_texture(format, ViewType::D1Array, &bytes, [2, 1, 2], true, &lines), Ok(()));
        assert!(compare_texture(format, ViewType::D3, &bytes, [2, 1, 2], true, &lines).is_err());
    }

    #[test]
    fn bytes_that_differ_are_counted_in_texels() {
        let text = compare_bytes(&[1, 2, 3, 4, 5, 6], &[1, 2, 9, 9, 5, 7], 2).unwrap_err();
        assert!(text.contains("2 of 3") && text.contains("texel 1 is [09, 09] and not [03, 04]"), "{text}");
        assert_eq!(compare_bytes(&[1, 2], &[1, 2], 2), Ok(()));
        assert!(compare_bytes(&[1, 2], &[1], 1).is_err());
    }
}
