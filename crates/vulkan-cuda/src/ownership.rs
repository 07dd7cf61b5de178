//! Step 6: the barriers by which Vulkan takes a buffer or an image from CUDA and gives it back.
//!
//! A semaphore orders the two APIs and makes writes available and visible. It does not say who owns the memory. Memory that several
//! APIs use has one owner at a time, whatever its sharing mode: the owner releases it, and the next one acquires it. Whoever takes it
//! without that finds undefined contents ("External Resource Sharing" in the specification). Vulkan's half is a queue family ownership
//! transfer from and to `VK_QUEUE_FAMILY_EXTERNAL`, which stands for every queue outside this Vulkan instance on the same device and
//! driver ("Queue Family Ownership Transfer"). CUDA's interface has no counterpart.
//!
//! An acquire and a release happen in no pipeline stage. The specification ignores the first stages of an acquire's barrier and the
//! second stages of a release's. So the submission waits and signals at `ALL_COMMANDS`: no narrower stage orders them, unless you
//! set the flag of `VK_KHR_maintenance8`.
//!
//! # Images
//!
//! An image also has a layout, and a barrier may change it. What CUDA does not know it cannot respect, so three things are
//! to be kept:
//!
//! - *Before CUDA's first write* the image gets a layout and is then released ([`first_release`]). A new image is in
//!   `UNDEFINED`, and a transition from there may throw the contents away. Were it made
//!   later, in Vulkan's first acquire, the driver could throw away what CUDA has just written.
//! - *While CUDA has it* the image is in `GENERAL` ([`SHARED_LAYOUT`]), the one layout that is for every kind of access.
//! - *The transfer itself changes no layout.* A transition within an ownership transfer must stand in both of its halves,
//!   the release and the acquire, and CUDA records neither. For another layout, add a barrier of your own behind the acquire,
//!   and one back to `GENERAL` before the release. Here the image is sampled in `GENERAL`.

use ash::vk;

/// What Vulkan does with the buffer while it owns it.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The stage that does it.
    pub stage: vk::PipelineStageFlags2,
    /// How it touches the memory.
    pub access: vk::AccessFlags2,
}

/// Who owns a buffer between Vulkan's uses of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Vulkan's own queue: no transfer, an ordinary barrier.
    Queue,
    /// CUDA, or another process: a transfer from and to the external queue family.
    External,
}

impl Owner {
    // ANCHOR: barriers
    /// Before Vulkan's first use in a frame.
    pub fn acquire(self, buffer: vk::Buffer, family: u32, use_: Access) -> vk::BufferMemoryBarrier2<'static> {
        let barrier = whole(buffer).dst_stage_mask(use_.stage).dst_access_mask(use_.access);
        match self {
            // What CUDA wrote was made available by its signal. An acquire ignores its first stage and access: the
            // semaphore's wait orders it, at `ALL_COMMANDS`.
            Self::External => barrier
                .src_queue_family_index(vk::QUEUE_FAMILY_EXTERNAL)
                .dst_queue_family_index(family)
                .src_stage_mask(use_.stage),
            // Whatever this queue did before with the buffer.
            Self::Queue => barrier
                .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                .src_stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
                .src_access_mask(vk::AccessFlags2::MEMORY_WRITE),
        }
    }

    /// After Vulkan's last use in a frame.
    pub fn release(self, buffer: vk::Buffer, family: u32, use_: Access) -> vk::BufferMemoryBarrier2<'static> {
        let barrier = whole(buffer).src_stage_mask(use_.stage).src_access_mask(use_.access);
        match self {
            // Who comes next is ordered by the semaphore that the submission signals.
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
}

/// The layout of an image while CUDA has it, and throughout for those that change hands every frame.
pub const SHARED_LAYOUT: vk::ImageLayout = vk::ImageLayout::GENERAL;

/// All levels and layers of a colour image.
pub fn whole_image() -> vk::ImageSubresourceRange {
    vk::ImageSubresourceRange::default()
        .aspect_mask(vk::ImageAspectFlags::COLOR)
        .level_count(vk::REMAINING_MIP_LEVELS)
        .layer_count(vk::REMAINING_ARRAY_LAYERS)
}

/// A new image's way into CUDA's hands, before the first write: two barriers, to be recorded one after the other. The first
/// gives the image its layout; the second releases it, and changes none.
pub fn first_release(image: vk::Image, family: u32) -> [vk::ImageMemoryBarrier2<'static>; 2] {
    // ANCHOR: first_release
    let given = Access { stage: vk::PipelineStageFlags2::ALL_COMMANDS, access: vk::AccessFlags2::NONE };
    let layout = vk::ImageMemoryBarrier2::default()
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

impl Owner {
    /// As [`Owner::acquire`], for all levels and layers of an image in [`SHARED_LAYOUT`].
    pub fn acquire_image(
        self,
        image: vk::Image,
        family: u32,
        use_: Access,
    ) -> vk::ImageMemoryBarrier2<'static> {
        for_image(image, self.acquire(vk::Buffer::null(), family, use_))
    }

    /// As [`Owner::release`], for all levels and layers of an image in [`SHARED_LAYOUT`].
    pub fn release_image(
        self,
        image: vk::Image,
        family: u32,
        use_: Access,
    ) -> vk::ImageMemoryBarrier2<'static> {
        for_image(image, self.release(vk::Buffer::null(), family, use_))
    }
}

/// The same stages, accesses and families for an image, and no change of layout.
fn for_image(
    image: vk::Image,
    buffer: vk::BufferMemoryBarrier2<'static>,
) -> vk::ImageMemoryBarrier2<'static> {
    vk::ImageMemoryBarrier2::default()
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

    /// From `UNDEFINED` only once, before anybody has written; afterwards no transfer changes the layout.
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
