//! Takes one image through CUDA and back, level by level.

use std::sync::Arc;

use vulkan_cuda::layout::Range;
use vulkan_cuda::{ExportedImage, SharedImage};

use super::kernels::{ImageKernels, LevelTexels};
use super::list::Case;
use super::pattern;
use super::record::{Level, Outcome};
use super::transfer;
use crate::cuda::{Cuda, DeviceMemory, Texture, TextureDesc};
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
    let (ranges, size) = places(case);
    // Different bytes in each direction, so that old content cannot pass for what was written.
    let (there, back) = (fill(case, &ranges, size, 2 * seed), fill(case, &ranges, size, 2 * seed + 1));
    let texels = DeviceMemory::new(context, size)?;
    let scratch = DeviceMemory::new(context, level_texels(case, 0).texels() as u64 * 16)?;

    // CUDA writes, Vulkan reads.
    texels.write(kernels.stream(), &there)?;
    let write = |(level, range): (usize, &Range)| {
        let surface = mapped.level(level as u32)?.surface()?;
        kernels.copy(&kernels.write, &surface, &level_texels(case, level as u32), &texels, range.offset)
    };
    let written: Vec<Result<()>> = ranges.iter().enumerate().map(write).collect();
    let got = transfer::read_image(queue, &exported, &ranges, size)?;

    // Then Vulkan writes, CUDA reads.
    transfer::write_image(queue, &exported, &ranges, &back)?;
    let mut levels = Vec::new();
    for ((level, range), written) in (0..).zip(&ranges).zip(written) {
        let this = level_texels(case, level);
        let of = |bytes: &[u8]| bytes[range.offset as usize..][..range.size as usize].to_vec();
        let (want, texel) = (of(&back), case.format.bytes() as usize);
        let surface_read = || -> Result<Outcome> {
            let surface = mapped.level(level)?.surface()?;
            // Zeros first, so that old content cannot pass for what is read.
            let mut bytes = vec![0; (range.offset + range.size) as usize];
            texels.write(kernels.stream(), &bytes)?;
            kernels.copy(&kernels.read, &surface, &this, &texels, range.offset)?;
            texels.read(kernels.stream(), &mut bytes)?;
            Ok(outcome(pattern::compare_bytes(&want, &of(&bytes), texel)))
        };
        let sample = |linear| -> Result<Outcome> {
            let how = TextureDesc { linear, as_integer: !this.format.filters() };
            let texture = Texture::of_level(&mapped, level, how)?;
            // The texture object has a single level, so the level that the kernel asks for must not matter. Unfiltered
            // reads ask for level 0, like a `tex` without a level; filtered reads ask for the level's number in the chain.
            let lod = if linear { level as f32 } else { 0.0 };
            let got = kernels.sample(&texture, &this, linear, lod, &scratch)?;
            Ok(outcome(match linear {
                true => pattern::compare_filtered(this.format, this.view, &want, this.size, &got),
                false => pattern::compare_read(this.format, &want, this.size, &got),
            }))
        };
        let tried = |outcome: Result<Outcome>| outcome.or_else(|error| refused(context, error));
        levels.push(Level {
            surface_write: tried(
                written.map(|()| outcome(pattern::compare_bytes(&of(&there), &of(&got), texel))),
            )?,
            surface_read: tried(surface_read())?,
            texture: tried(sample(false))?,
            filtered: this.format.filters().then(|| tried(sample(true))).transpose()?,
        });
    }
    Ok(Tried { map: Outcome::Passed, levels })
}

fn level_texels(case: &Case, level: u32) -> LevelTexels {
    let shape = case.request.shape;
    LevelTexels { view: shape.view(), format: case.format, size: shape.level_texels(level) }
}

/// The range of each level's texels in a buffer, and the buffer's size. Each begins at a multiple of 256 bytes, which is
/// more than `VkBufferImageCopy::bufferOffset` requires.
fn places(case: &Case) -> (Vec<Range>, u64) {
    let mut end: u64 = 0;
    let place = |level| {
        let texels = level_texels(case, level).texels() as u64;
        let range =
            Range { offset: end.next_multiple_of(256), size: texels * u64::from(case.format.bytes()) };
        end = range.offset + range.size;
        range
    };
    let ranges = (0..case.request.shape.levels()).map(place).collect();
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

#[cfg(test)]
mod tests {
    use super::super::list;
    use super::*;
    use crate::app::{DeviceTable, ProducerKind};
    use crate::vulkan::{DeviceDesc, Validation};

    /// Vulkan's half without CUDA: the copies, the layouts, and the transfers to and from the external queue family.
    #[test]
    fn vulkan_s_half_alone_keeps_every_byte() {
        let table = DeviceTable::headless(Validation::IfInstalled).unwrap();
        let choice = table.choose(None, ProducerKind::Auto).unwrap();
        let log = choice.adapter.instance().validation_log().clone();
        let mut cases = list::cases(&choice.adapter);
        cases.retain(|case| list::image(&choice.adapter, *case).handle.is_some());
        if cases.is_empty() {
            println!("skipped: no Vulkan device here exports memory");
            return;
        }
        let desc = DeviceDesc { interop: true, ..DeviceDesc::default() };
        let (device, mut queue) = choice.adapter.request_device(&desc).unwrap();
        for (seed, case) in (0..).zip(&cases) {
            let exported = ExportedImage::new(device.sharing().unwrap(), &case.request).unwrap();
            transfer::hand_over(&mut queue, &exported).unwrap();
            let (ranges, size) = places(case);
            let bytes = fill(case, &ranges, size, seed);
            transfer::write_image(&mut queue, &exported, &ranges, &bytes).unwrap();
            let got = transfer::read_image(&mut queue, &exported, &ranges, size).unwrap();
            for Range { offset, size } in ranges {
                let of = |bytes: &[u8]| bytes[offset as usize..][..size as usize].to_vec();
                let compared = pattern::compare_bytes(&of(&bytes), &of(&got), case.format.bytes() as usize);
                assert_eq!(compared, Ok(()), "{case:?}");
            }
        }
        drop((queue, device, choice, table));
        log.verdict().unwrap();
        assert_eq!(log.warnings(), 0, "validation warnings");
    }
}
