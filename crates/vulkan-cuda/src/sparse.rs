//! Sparse binding: a buffer whose bytes lie in several allocations ("Sparse Resources" in the specification).

use std::time::Duration;

use ash::vk;

use crate::pieces::Piece;
use crate::vulkan::Vk;
use crate::{Error, Result};

/// Checks that the device and the queues of this family can bind memory sparsely.
pub(crate) fn offered(vk: &Vk, family: u32) -> Result<()> {
    let (instance, name) = (vk.instance(), &vk.info().name);
    // SAFETY: a live physical device.
    if unsafe { instance.get_physical_device_features(vk.physical()) }.sparse_binding == vk::FALSE {
        return Err(Error::DeviceLacks(format!(
            "{name} does not bind memory sparsely: copy bytes that span several chunks into one"
        )));
    }
    // SAFETY: as above.
    let families = unsafe { instance.get_physical_device_queue_family_properties(vk.physical()) };
    let flags = families.get(family as usize).map(|family| family.queue_flags);
    match flags.is_some_and(|flags| flags.contains(vk::QueueFlags::SPARSE_BINDING)) {
        true => Ok(()),
        false => Err(Error::DeviceLacks(format!("queue family {family} of {name} has no sparse binding"))),
    }
}

/// Checks that sparse binding accepts these pieces. Offsets and sizes must be multiples of the buffer's
/// `VkMemoryRequirements::alignment` (VUID-VkSparseMemoryBind-resourceOffset-09491).
pub(crate) fn check(pieces: &[Piece], alignment: u64) -> Result<()> {
    let fits = |value: u64| value.is_multiple_of(alignment);
    let is_whole = |piece: &Piece| fits(piece.range.offset) && fits(piece.range.size) && fits(piece.at);
    match pieces.iter().find(|piece| !is_whole(piece)) {
        None => Ok(()),
        Some(Piece { chunk, range, .. }) => Err(Error::Rule(format!(
            "{range} of chunk {chunk} cannot be bound sparsely: the device binds multiples of {alignment} bytes"
        ))),
    }
}

/// How long [`bind`] waits for the GPU.
const PATIENCE: Duration = Duration::from_secs(10);

/// Binds each piece of `buffer` to its memory, and waits until the GPU has done so. After [`Error::Timeout`]
/// the GPU may still be binding, so leak the buffer and its memory.
///
/// # Safety
/// - [`check`] must have accepted the pieces, and each must lie in the memory that comes with it.
/// - The buffer and the memory must be alive, and the buffer must not be bound yet.
/// - No other thread may use `queue` during the call. Its earlier work must not wait for this thread.
pub(crate) unsafe fn bind<'a>(
    vk: &Vk,
    queue: vk::Queue,
    buffer: vk::Buffer,
    pieces: impl Iterator<Item = (&'a Piece, vk::DeviceMemory)>,
) -> Result<()> {
    let bind = |(piece, memory): (&Piece, vk::DeviceMemory)| {
        let bind = vk::SparseMemoryBind::default().memory(memory).memory_offset(piece.range.offset);
        bind.resource_offset(piece.at).size(piece.range.size)
    };
    let binds: Vec<_> = pieces.map(bind).collect();
    let buffers = [vk::SparseBufferMemoryBindInfo::default().buffer(buffer).binds(&binds)];
    let info = [vk::BindSparseInfo::default().buffer_binds(&buffers)];
    let device = vk.device();
    // SAFETY: a live device.
    let fence = unsafe { device.create_fence(&vk::FenceCreateInfo::default(), None) }
        .map_err(vk.failed("vkCreateFence"))?;
    // SAFETY: the caller's promise. The fence is destroyed if it was signalled or never submitted, or if the
    // device is lost.
    unsafe {
        let bound = device
            .queue_bind_sparse(queue, &info, fence)
            .map_err(vk.failed("vkQueueBindSparse"))
            .and_then(|()| match device.wait_for_fences(&[fence], true, PATIENCE.as_nanos() as u64) {
                Err(vk::Result::TIMEOUT) => Err(Error::Timeout(format!(
                    "{} did not bind imported memory within {} s (vkQueueBindSparse): other work may keep the queue busy",
                    vk.info().name,
                    PATIENCE.as_secs()
                ))),
                reached => reached.map_err(vk.failed("vkWaitForFences")),
            });
        if !matches!(bound, Err(Error::Timeout(_))) {
            device.destroy_fence(fence, None);
        }
        bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Range;
    use crate::pieces::pieces;

    fn range(offset: u64, size: u64) -> Range {
        Range { offset, size }
    }

    #[test]
    fn sparse_binding_is_of_whole_blocks() {
        let chunks = [128, 128];
        let of = |chunks: &[u64], range| check(&pieces(chunks, range).unwrap(), 64);
        assert!(of(&chunks, range(0, 256)).is_ok());
        assert!(of(&chunks, range(64, 128)).is_ok());
        let text = of(&chunks, range(16, 240)).unwrap_err().to_string();
        assert!(
            text.contains("112 bytes at offset 16 of chunk 0") && text.contains("multiples of 64"),
            "{text}"
        );
        // A range that ends within a block, and a chunk that does.

        assert!(of(&chunks, range(64, 150)).is_err());
        assert!(of(&[100, 100], range(0, 200)).is_err());
    }
}
