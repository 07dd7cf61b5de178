//! Takes buffers through CUDA and back: one in a dedicated allocation, and several of odd sizes in one allocation.

use ash::vk;
use cudarc::driver::sys::CUdeviceptr;
use vulkan_cuda::ownership::Owner;
use vulkan_cuda::{ArrayFormat, ExportedAllocation, SharedBuffer};

use super::record::Outcome;
use super::{pattern, transfer};
use crate::Result;
use crate::cuda::{DeviceMemory, Stream};
use crate::producer::SLOT_USAGE;
use crate::vulkan::{Queue, read_buffer};

pub(super) const DEDICATED: &str = "dedicated";
pub(super) const SEVERAL: &str = "several in one allocation";

/// Sizes near the alignments of both APIs. None is a multiple of a page.
const SIZES: [u64; 10] = [1, 3, 17, 255, 256, 257, 1000, 4099, 65_537, 1_000_003];

/// Checks one buffer in a dedicated allocation.
pub(super) fn check_dedicated(queue: &mut Queue, stream: &Stream) -> Result<Outcome> {
    let size = SIZES[SIZES.len() - 1];
    let shared = match SharedBuffer::new(&queue.device().pair(stream.context())?, size, SLOT_USAGE) {
        Ok(shared) => shared,
        Err(error) => return super::images::refused(stream.context(), error.into()),
    };
    round_trips(queue, stream, &[(shared.vulkan(), shared.cuda(), size)])
}

/// Checks several buffers in one allocation. All are written before the first is read, so that an overlap is found.
pub(super) fn check_several(queue: &mut Queue, stream: &Stream) -> Result<Outcome> {
    let pair = queue.device().pair(stream.context())?;
    let exported = ExportedAllocation::new(pair.vk(), &SIZES, SLOT_USAGE);
    let shared = match exported.and_then(|exported| exported.share(&pair)) {
        Ok(shared) => shared,
        Err(error) => return super::images::refused(stream.context(), error.into()),
    };
    let buffers: Vec<_> =
        shared.iter().map(|buffer| (buffer.vulkan(), buffer.cuda(), buffer.size())).collect();
    round_trips(queue, stream, &buffers)
}

fn round_trips(
    queue: &mut Queue,
    stream: &Stream,
    buffers: &[(vk::Buffer, CUdeviceptr, u64)],
) -> Result<Outcome> {
    let noise = |index: usize, size: u64, seed: u64| {
        let byte = ArrayFormat::of(vk::Format::R8_UINT)?;
        Ok::<_, crate::Error>(pattern::noise(byte, size as usize, seed + index as u64))
    };
    let mut wrong = Vec::new();
    // CUDA writes, Vulkan reads.
    for (index, &(_, pointer, size)) in buffers.iter().enumerate() {
        let own = DeviceMemory::new(stream.context(), size)?;
        own.write(stream, &noise(index, size, 1000)?)?;
        // SAFETY: the mapping has `size` bytes, and Vulkan is idle.
        unsafe { own.copy_to(stream, pointer) }?;
        stream.synchronize()?;
    }
    for (index, &(buffer, _, size)) in buffers.iter().enumerate() {
        // SAFETY: it has this size, and is kept alive above.
        let got = unsafe { read_buffer(queue, buffer, size, Owner::External) }?;
        let compared = pattern::compare_bytes(&noise(index, size, 1000)?, &got, 1);
        wrong.extend(compared.err().map(|words| format!("{size} bytes by CUDA: {words}")));
    }
    // Vulkan writes, CUDA reads.
    for (index, &(buffer, _, size)) in buffers.iter().enumerate() {
        transfer::write_buffer(queue, buffer, &noise(index, size, 2000)?)?;
    }
    for (index, &(_, pointer, size)) in buffers.iter().enumerate() {
        let own = DeviceMemory::new(stream.context(), size)?;
        // SAFETY: the mapping has `size` bytes, and Vulkan is idle.
        unsafe { own.copy_from(stream, pointer) }?;
        let mut got = vec![0; size as usize];
        own.read(stream, &mut got)?;
        let compared = pattern::compare_bytes(&noise(index, size, 2000)?, &got, 1);
        wrong.extend(compared.err().map(|words| format!("{size} bytes by Vulkan: {words}")));
    }
    Ok(match wrong.is_empty() {
        true => Outcome::Passed,
        false => Outcome::Failed(wrong.join("; ")),
    })
}
