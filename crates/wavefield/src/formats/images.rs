//! Takes one image through CUDA and back, level by level.

use std::sync::Arc;

use vulkan_cuda::layout::Range;
use vulkan_cuda::{ExportedImage, Shape, SharedImage};

use super::kernels::{ImageKernels, LevelTexels};
use super::list::Case;
use super::pattern;
use super::record::{Level, Outcome};
use super::transfer;
use crate::cuda::{Array, Cuda, DeviceMemory, Texture, TextureDesc};
use crate::vulkan::Queue;
use crate::{Error, Result};

pub(super) struct Tried {
    pub(super) map: Outcome,
    pub(super) levels: Vec<Level>,
}

/// Tries everything with one image.
///
/// # Errors
/// A failure that tells nothing about the image: an error of Vulkan, memory that ran out, a kernel that faulted.
pub(super) fn check(
    queue: &mut Queue,
    context: &Cuda,
    kernels: &ImageKernels,
    case: &Case,
    seed: u64,
) -> Result<Tried> {
    let exported = Arc::new(ExportedImage::new(queue.device().sharing()?, &case.request)?);
    transfer::hand_over(queue, &exported)?;
    let mapped = match SharedImage::import(&queue.device().pair(context)?, &exported) {
        Ok(mapped) => mapped,
        Err(error) => return Ok(Tried { map: refused(context, error.into())?, levels: Vec::new() }),
    };
    let shape = case.request.shape;
    let (ranges, size) = places(shape, case);
    // Different bytes in each direction, so that old content cannot pass for what was written.
    let (there, back) = (fill(case, &ranges, size, 2 * seed), fill(case, &ranges, size, 2 * seed + 1));
    let texels = DeviceMemory::new(context, size)?;
    let largest = level_texels(case, shape, 0).texels() as u64;
    let scratch = DeviceMemory::new(context, largest * 16)?;

    // CUDA writes, Vulkan reads.
    texels.write(kernels.stream(), &there)?;
    let mut written = Vec::new();
    for (level, range) in ranges.iter().enumerate() {
        let this = level_texels(case, shape, level as u32);
        let wrote = || {
            let surface = mapped.level(level as u32)?.surface()?;
            kernels.copy(&kernels.write, &surface, &this, &texels, range.offset)
        };
        written.push(wrote().map_err(|error| refused(context, error)));
    }
    let got = transfer::read_image(queue, &exported, &ranges, size)?;

    // Then Vulkan writes, CUDA reads.
    transfer::write_image(queue, &exported, &ranges, &back)?;
    let mut levels = Vec::new();
    for ((level, range), written) in ranges.iter().enumerate().zip(written) {
        let this = level_texels(case, shape, level as u32);
        let of = |bytes: &[u8]| bytes[range.offset as usize..(range.offset + range.size) as usize].to_vec();
        let texel = case.format.bytes() as usize;
        let surface_write = match written {
            Ok(()) => outcome(pattern::compare_bytes(&of(&there), &of(&got), texel)),
            Err(refused) => refused?,
        };
        let want = of(&back);
        let array = match mapped.level(level as u32) {
            Ok(array) => array,
            Err(error) => {
                let refused = refused(context, error.into())?;
                levels.push(Level {
                    surface_write,
                    surface_read: refused.clone(),
                    texture: refused,
                    filtered: None,
                });
                continue;
            }
        };
        let read = read_surface(kernels, &array, &this, &texels, range);
        let surface_read = match read {
            Ok(got) => outcome(pattern::compare_bytes(&want, &got, texel)),
            Err(error) => refused(context, error)?,
        };
        let sample = |linear| -> Result<Outcome> {
            let how = TextureDesc { linear, as_integer: !this.format.filters() };
            // The texture object has a single level, so the level that the kernel asks for must not matter. Unfiltered
            // reads ask for level 0, like a `tex` without a level; filtered reads ask for the level's number in the chain.
            let lod = if linear { level as f32 } else { 0.0 };
            let sampled = || {
                let texture = Texture::of_level(&mapped, level as u32, how)?;
                kernels.sample(&texture, &this, linear, lod, &scratch)
            };
            match sampled() {
                Ok(got) if linear => {
                    Ok(outcome(pattern::compare_filtered(this.format, this.view, &want, this.size, &got)))
                }
                Ok(got) => Ok(outcome(pattern::compare_read(this.format, &want, this.size, &got))),
                Err(error) => refused(context, error),
            }
        };
        let texture = sample(false)?;
        let filtered = this.format.filters().then(|| sample(true)).transpose()?;
        levels.push(Level { surface_write, surface_read, texture, filtered });
    }
    Ok(Tried { map: Outcome::Passed, levels })
}

fn read_surface(
    kernels: &ImageKernels,
    array: &Array,
    level: &LevelTexels,
    texels: &DeviceMemory,
    range: &Range,
) -> Result<Vec<u8>> {
    let surface = array.surface()?;
    let end = (range.offset + range.size) as usize;
    // Zeros first, so that old content cannot pass for what is read.
    let mut bytes = vec![0; end];
    texels.write(kernels.stream(), &bytes)?;
    kernels.copy(&kernels.read, &surface, level, texels, range.offset)?;
    texels.read(kernels.stream(), &mut bytes)?;
    Ok(bytes.split_off(range.offset as usize))
}

fn level_texels(case: &Case, shape: Shape, level: u32) -> LevelTexels {
    LevelTexels { view: shape.view(), format: case.format, size: shape.level_texels(level) }
}

/// The range of each level's texels in a buffer, and the buffer's size. Each begins at a multiple of 256 bytes, which is
/// more than `VkBufferImageCopy::bufferOffset` requires.
fn places(shape: Shape, case: &Case) -> (Vec<Range>, u64) {
    let mut end: u64 = 0;
    let place = |level| {
        let texels = level_texels(case, shape, level).texels() as u64;
        let range =
            Range { offset: end.next_multiple_of(256), size: texels * u64::from(case.format.bytes()) };
        end = range.offset + range.size;
        range
    };
    let ranges = (0..shape.levels()).map(place).collect();
    (ranges, end)
}

fn fill(case: &Case, ranges: &[Range], size: u64, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; size as usize];
    for (level, range) in ranges.iter().enumerate() {
        let texels = (range.size / u64::from(case.format.bytes())) as usize;
        let noise = pattern::noise(case.format, texels, seed * 100 + level as u64);
        bytes[range.offset as usize..][..noise.len()].copy_from_slice(&noise);
    }
    bytes
}

fn outcome(compared: Result<(), String>) -> Outcome {
    compared.map_or_else(Outcome::Failed, |()| Outcome::Passed)
}

/// A driver's refusal is a result. A fault is an error, because nothing works after it.
pub(super) fn refused(context: &Cuda, error: Error) -> Result<Outcome> {
    match &error {
        Error::Cuda { code, .. } if *code == OUT_OF_MEMORY || context.has_faulted() => Err(error),
        Error::Cuda { .. } => Ok(Outcome::Refused(error.to_string())),
        _ => Err(error),
    }
}

const OUT_OF_MEMORY: u32 = 2;

/// Vulkan's half alone: writes and reads back through the barriers of the hand-over, without CUDA on the other side.
pub(super) fn check_vulkan(queue: &mut Queue, case: &Case, seed: u64) -> Result<Outcome> {
    let exported = ExportedImage::new(queue.device().sharing()?, &case.request)?;
    transfer::hand_over(queue, &exported)?;
    let shape = case.request.shape;
    let (ranges, size) = places(shape, case);
    let bytes = fill(case, &ranges, size, seed);
    transfer::write_image(queue, &exported, &ranges, &bytes)?;
    let got = transfer::read_image(queue, &exported, &ranges, size)?;
    for range in &ranges {
        let of = |bytes: &[u8]| bytes[range.offset as usize..(range.offset + range.size) as usize].to_vec();
        let compared = pattern::compare_bytes(&of(&bytes), &of(&got), case.format.bytes() as usize);
        if let Err(words) = compared {
            return Ok(Outcome::Failed(words));
        }
    }
    Ok(Outcome::Passed)
}
