//! The barriers that transfer a buffer or an image from CUDA to Vulkan and back.
//!
//! A semaphore makes writes available and visible, but it does not transfer ownership. Memory that several
//! APIs use has one owner at a time: the owner releases it, and the next owner acquires it. Without both, the
//! contents are undefined for the next owner ([External Resource Sharing]). Vulkan's half is a [Queue Family
//! Ownership Transfer] from and to `VK_QUEUE_FAMILY_EXTERNAL`. CUDA has no counterpart.
//!
//! By the specification, an acquire ignores its barrier's source stages, and a release its destination
//! stages. So the submission must wait and signal at `ALL_COMMANDS`: no narrower stage orders the transfers,
//! unless the barriers set the flag of `VK_KHR_maintenance8`.
//!
//! # Images
//! An image also has a layout, which CUDA does not track. So there are three rules:
//!
//! - *Before CUDA's first write* the image gets a layout and is then released ([`first_release`]). A
//!   transition from `UNDEFINED` in Vulkan's first acquire could discard what CUDA has just written.
//! - *While CUDA has it* the image is in `GENERAL` ([`SHARED_LAYOUT`]), which allows every access.
//! - *The transfer itself does not change the layout.* Both halves would have to specify the change, and CUDA
//!   records no barriers. To use another layout, change it after the acquire, and back before the release.
//!
//! [External Resource Sharing]: https://registry.khronos.org/vulkan/specs/latest/html/vkspec.html#resources-external-sharing
//! [Queue Family Ownership Transfer]: https://registry.khronos.org/vulkan/specs/latest/html/vkspec.html#synchronization-queue-transfers

use ash::vk::{self, ImageMemoryBarrier2};

/// How Vulkan uses a buffer or an image that it owns.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The stages that use the buffer or image.
    pub stage: vk::PipelineStageFlags2,
    /// How these stages access the memory.
    pub access: vk::AccessFlags2,
}

/// The owner of a buffer or image between Vulkan's uses of it.
///
/// # Examples
/// ```
/// use ash::vk;
/// use vulkan_cuda::ownership::{Access, Owner};
///
/// # let buffer = vk::Buffer::null();
/// let family = 0; // of the queue that draws
/// let access = Access {
///     stage: vk::PipelineStageFlags2::VERTEX_SHADER,
///     access: vk::AccessFlags2::SHADER_STORAGE_READ,
/// };
/// // Record `acquire` with vkCmdPipelineBarrier2 before the draw, and `release` after it.
/// let acquire = Owner::External.acquire(buffer, family, access);
/// let release = Owner::External.release(buffer, family, access);
/// assert_eq!(acquire.src_queue_family_index, vk::QUEUE_FAMILY_EXTERNAL);
/// assert_eq!(release.dst_queue_family_index, vk::QUEUE_FAMILY_EXTERNAL);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Vulkan's own queue: the barriers are ordinary ones, without a transfer.
    Queue,
    /// CUDA, or another process: the barriers transfer ownership from and to the external queue family.
    External,
}

impl Owner {
    // ANCHOR: barriers
    /// Returns the barrier to record before Vulkan's first use in a frame. `family` is the queue's family.
    pub fn acquire(self, buffer: vk::Buffer, family: u32, use_: Access) -> vk::BufferMemoryBarrier2<'static> {
        let barrier = whole(buffer).dst_stage_mask(use_.stage).dst_access_mask(use_.access);
        match self {
            // CUDA's signal has made its writes available. An acquire ignores its source stage and access:
            // the semaphore's wait, at `ALL_COMMANDS`, orders the barrier.
            Self::External => barrier
                .src_queue_family_index(vk::QUEUE_FAMILY_EXTERNAL)
                .dst_queue_family_index(family)
                .src_stage_mask(use_.stage),
            // Waits for all earlier work on this queue.
            Self::Queue => barrier
                .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                .src_stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
                .src_access_mask(vk::AccessFlags2::MEMORY_WRITE),
        }
    }

    /// Returns the barrier to record after Vulkan's last use in a frame.
    pub fn release(self, buffer: vk::Buffer, family: u32, use_: Access) -> vk::BufferMemoryBarrier2<'static> {
        let barrier = whole(buffer).src_stage_mask(use_.stage).src_access_mask(use_.access);
        match self {
            // The next owner waits for the semaphore that the submission signals.
            Self::External => {
                barrier.src_queue_family_index(family).dst_queue_family_index(vk::QUEUE_FAMILY_EXTERNAL)
            }
            Self::Queue => barrier
                .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                .dst_stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS),
        }
    }
    // ANCHOR_END: barriers

    /// Like [`Owner::acquire`], for all levels and layers of an image in [`SHARED_LAYOUT`].
    pub fn acquire_image(self, image: vk::Image, family: u32, use_: Access) -> ImageMemoryBarrier2<'static> {
        for_image(image, self.acquire(vk::Buffer::null(), family, use_))
    }

    /// Like [`Owner::release`], for all levels and layers of an image in [`SHARED_LAYOUT`].
    pub fn release_image(self, image: vk::Image, family: u32, use_: Access) -> ImageMemoryBarrier2<'static> {
        for_image(image, self.release(vk::Buffer::null(), family, use_))
    }
}

/// The layout of an image while CUDA has it.
pub const SHARED_LAYOUT: vk::ImageLayout = vk::ImageLayout::GENERAL;

/// Returns the range of all levels and layers of a colour image.
pub fn whole_image() -> vk::ImageSubresourceRange {
    vk::ImageSubresourceRange::default()
        .aspect_mask(vk::ImageAspectFlags::COLOR)
        .level_count(vk::REMAINING_MIP_LEVELS)
        .layer_count(vk::REMAINING_ARRAY_LAYERS)
}

/// Returns the two barriers that give a new image to CUDA, before CUDA's first write. Record them with two
/// calls of `vkCmdPipelineBarrier2`: the first gives the image its layout, the second releases the image from
/// the queue family `family` to CUDA. [`SharedRing::record_first_release`] does this for all slots of a ring.
///
/// [`SharedRing::record_first_release`]: crate::SharedRing::record_first_release
pub fn first_release(image: vk::Image, family: u32) -> [ImageMemoryBarrier2<'static>; 2] {
    // ANCHOR: first_release
    let given = Access { stage: vk::PipelineStageFlags2::ALL_COMMANDS, access: vk::AccessFlags2::NONE };
    let layout = ImageMemoryBarrier2::default()
        .image(image)
        .subresource_range(whole_image())
        .old_layout(vk::ImageLayout::UNDEFINED)
        .new_layout(SHARED_LAYOUT)
        .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
        .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
        .src_stage_mask(given.stage)
        .dst_stage_mask(given.stage);
    [layout, Owner::External.release_image(image, family, given)]
    // ANCHOR_END: first_release
}

/// Converts a buffer's barrier to one for an image, without a layout change.
fn for_image(image: vk::Image, buffer: vk::BufferMemoryBarrier2<'static>) -> ImageMemoryBarrier2<'static> {
    ImageMemoryBarrier2::default()
        .image(image)
        .subresource_range(whole_image())
        .old_layout(SHARED_LAYOUT)
        .new_layout(SHARED_LAYOUT)
        .src_queue_family_index(buffer.src_queue_family_index)
        .dst_queue_family_index(buffer.dst_queue_family_index)
        .src_stage_mask(buffer.src_stage_mask)
        .src_access_mask(buffer.src_access_mask)
        .dst_stage_mask(buffer.dst_stage_mask)
        .dst_access_mask(buffer.dst_access_mask)
}

fn whole(buffer: vk::Buffer) -> vk::BufferMemoryBarrier2<'static> {
    vk::BufferMemoryBarrier2::default().buffer(buffer).size(vk::WHOLE_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Access = Access {
        stage: vk::PipelineStageFlags2::VERTEX_SHADER,
        access: vk::AccessFlags2::SHADER_STORAGE_READ,
    };

    #[test]
    fn release_and_acquire_name_the_same_pair_of_families() {
        let acquire = Owner::External.acquire(vk::Buffer::null(), 5, READ);
        let release = Owner::External.release(vk::Buffer::null(), 5, READ);
        assert_eq!(acquire.src_queue_family_index, vk::QUEUE_FAMILY_EXTERNAL);
        assert_eq!(acquire.dst_queue_family_index, 5);
        assert_eq!(release.src_queue_family_index, 5);
        assert_eq!(release.dst_queue_family_index, vk::QUEUE_FAMILY_EXTERNAL);
    }

    #[test]
    fn the_acquire_chains_behind_the_wait_at_the_stage_that_reads() {
        let acquire = Owner::External.acquire(vk::Buffer::null(), 0, READ);
        assert_eq!(acquire.src_stage_mask, READ.stage);
        assert_eq!(acquire.dst_stage_mask, READ.stage);
        assert_eq!(acquire.dst_access_mask, READ.access);
    }

    /// Only the first barrier is from `UNDEFINED`, before anything was written. No later transfer changes the
    /// layout.
    #[test]
    fn what_cuda_wrote_is_never_thrown_away() {
        let [layout, release] = first_release(vk::Image::null(), 5);
        assert_eq!((layout.old_layout, layout.new_layout), (vk::ImageLayout::UNDEFINED, SHARED_LAYOUT));
        assert_eq!(layout.src_queue_family_index, layout.dst_queue_family_index);
        assert_eq!((release.old_layout, release.new_layout), (SHARED_LAYOUT, SHARED_LAYOUT));
        assert_eq!(release.dst_queue_family_index, vk::QUEUE_FAMILY_EXTERNAL);
        for owner in [Owner::External, Owner::Queue] {
            for barrier in [
                owner.acquire_image(vk::Image::null(), 5, READ),
                owner.release_image(vk::Image::null(), 5, READ),
            ] {
                assert_eq!((barrier.old_layout, barrier.new_layout), (SHARED_LAYOUT, SHARED_LAYOUT));
                assert_eq!(barrier.subresource_range.level_count, vk::REMAINING_MIP_LEVELS);
                assert_eq!(barrier.subresource_range.layer_count, vk::REMAINING_ARRAY_LAYERS);
            }
        }
    }

    #[test]
    fn an_image_changes_hands_as_a_buffer_does() {
        let image = Owner::External.acquire_image(vk::Image::null(), 5, READ);
        let buffer = Owner::External.acquire(vk::Buffer::null(), 5, READ);
        assert_eq!(image.src_queue_family_index, buffer.src_queue_family_index);
        assert_eq!(image.dst_queue_family_index, buffer.dst_queue_family_index);
        assert_eq!(
            (image.src_stage_mask, image.src_access_mask),
            (buffer.src_stage_mask, buffer.src_access_mask)
        );
        assert_eq!(
            (image.dst_stage_mask, image.dst_access_mask),
            (buffer.dst_stage_mask, buffer.dst_access_mask)
        );
    }

    #[test]
    fn a_buffer_of_our_own_changes_no_family() {
        for barrier in [
            Owner::Queue.acquire(vk::Buffer::null(), 3, READ),
            Owner::Queue.release(vk::Buffer::null(), 3, READ),
        ] {
            assert_eq!(barrier.src_queue_family_index, barrier.dst_queue_family_index);
        }
    }
}
