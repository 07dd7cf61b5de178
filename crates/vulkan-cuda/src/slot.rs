//! What a ring hands over, and the barriers for it. They are those of [`crate::ownership`] in the older form, which
//! needs no `synchronization2`.

use std::sync::Arc;

use ash::vk;

use crate::image::MappedImage;
use crate::imported_buffer::ImportedBuffer;
use crate::memory::SharedBuffer;
use crate::ownership::{Access, Owner, SHARED_LAYOUT, first_release, whole_image};

/// What changes hands: one shared buffer or image, with everything else that belongs to a slot.
///
/// [`SharedBuffer`], [`ImportedBuffer`] and [`MappedImage`] are slots, and so is an `Arc` of a slot.
///
/// # Safety
/// [`Slot::resource`] must always return the same resource, and the resource must live as long as the slot. (A slot
/// does not know its ring. The caller of [`SharedRing::record_acquire`](crate::SharedRing::record_acquire) promises
/// that the resource is of the ring's device.)
///
/// # Examples
/// ```
/// use ash::vk;
/// use vulkan_cuda::shared_ring::Resource;
/// use vulkan_cuda::{SharedBuffer, Slot};
///
/// /// A buffer, and the descriptor set through which a renderer reads it.
/// struct Drawn {
///     buffer: SharedBuffer,
///     set: vk::DescriptorSet,
/// }
///
/// // SAFETY: the slot owns the buffer.
/// unsafe impl Slot for Drawn {
///     fn resource(&self) -> Resource {
///         Resource::Buffer(self.buffer.vulkan())
///     }
/// }
/// ```
pub unsafe trait Slot {
    /// Returns the Vulkan object for the barriers. The slot still owns it. See the [example](Slot#examples).
    fn resource(&self) -> Resource;
}

/// A Vulkan object that changes hands. Returned by [`Slot::resource`]. See the [example](Slot#examples).
#[derive(Clone, Copy, Debug)]
pub enum Resource {
    /// A whole buffer. No barrier is needed before CUDA's first write: a buffer has no layout, and its contents need
    /// not be kept.
    Buffer(vk::Buffer),
    /// All levels and layers of an image, in [`SHARED_LAYOUT`]. A new image has the layout `UNDEFINED`, so before
    /// CUDA's first write it needs [`SharedRing::record_first_release`](crate::SharedRing::record_first_release).
    Image(vk::Image),
}

// SAFETY: it owns the buffer.
unsafe impl Slot for SharedBuffer {
    fn resource(&self) -> Resource {
        Resource::Buffer(self.vulkan())
    }
}

// SAFETY: it owns the buffer.
unsafe impl Slot for ImportedBuffer {
    fn resource(&self) -> Resource {
        Resource::Buffer(self.vulkan())
    }
}

// SAFETY: it keeps the image alive.
unsafe impl Slot for MappedImage {
    fn resource(&self) -> Resource {
        Resource::Image(self.exported().raw())
    }
}

// SAFETY: the same slot.
unsafe impl<S: Slot + ?Sized> Slot for Arc<S> {
    fn resource(&self) -> Resource {
        (**self).resource()
    }
}

/// Where and how Vulkan reads a slot. One value applies to all slots of a ring. [`crate::shared_ring`] has an example.
#[derive(Clone, Copy, Debug)]
pub struct Reads {
    /// The index of the queue family that reads.
    pub family: u32,
    /// The stages that read ([`VkPipelineStageFlagBits`]).
    ///
    /// [`VkPipelineStageFlagBits`]: https://registry.khronos.org/vulkan/specs/latest/man/html/VkPipelineStageFlagBits.html
    pub stage: vk::PipelineStageFlags,
    /// How these stages read ([`VkAccessFlagBits`]).
    ///
    /// [`VkAccessFlagBits`]: https://registry.khronos.org/vulkan/specs/latest/man/html/VkAccessFlagBits.html
    pub access: vk::AccessFlags,
}

impl Resource {
    /// # Safety
    /// `commands` is being recorded, outside a render pass, for a queue of the family. The resource is of `device`.
    pub(crate) unsafe fn record_acquire(
        self,
        device: &ash::Device,
        commands: vk::CommandBuffer,
        reads: Reads,
    ) {
        let barrier = Owner::External.acquire(vk::Buffer::null(), reads.family, reads.access());
        // SAFETY: the caller's promise.
        unsafe { self.record(device, commands, &barrier, reads.stage, reads.stage) }
    }

    /// # Safety
    /// As [`Resource::record_acquire`].
    pub(crate) unsafe fn record_release(
        self,
        device: &ash::Device,
        commands: vk::CommandBuffer,
        reads: Reads,
    ) {
        let barrier = Owner::External.release(vk::Buffer::null(), reads.family, reads.access());
        let behind = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: the caller's promise.
        unsafe { self.record(device, commands, &barrier, reads.stage, behind) }
    }

    /// # Safety
    /// As [`Resource::record_acquire`]. Also, the resource was not used before.
    pub(crate) unsafe fn record_first_release(
        self,
        device: &ash::Device,
        commands: vk::CommandBuffer,
        reads: Reads,
    ) {
        let Self::Image(image) = self else { return };
        let (all, none) = (vk::PipelineStageFlags::ALL_COMMANDS, vk::DependencyFlags::empty());
        for barrier in first_release(image, reads.family) {
            let older = vk::ImageMemoryBarrier::default()
                .image(image)
                .subresource_range(barrier.subresource_range)
                .old_layout(barrier.old_layout)
                .new_layout(barrier.new_layout)
                .src_queue_family_index(barrier.src_queue_family_index)
                .dst_queue_family_index(barrier.dst_queue_family_index);
            // SAFETY: the caller's promise.
            unsafe { device.cmd_pipeline_barrier(commands, all, all, none, &[], &[], &[older]) };
        }
    }

    /// # Safety
    /// As [`Resource::record_acquire`].
    unsafe fn record(
        self,
        device: &ash::Device,
        commands: vk::CommandBuffer,
        barrier: &vk::BufferMemoryBarrier2<'_>,
        from: vk::PipelineStageFlags,
        to: vk::PipelineStageFlags,
    ) {
        // Both forms have the same low 32 bits, and these flags came from the older form.
        let older = |access: vk::AccessFlags2| vk::AccessFlags::from_raw(access.as_raw() as u32);
        let (src, dst) = (older(barrier.src_access_mask), older(barrier.dst_access_mask));
        let (src_family, dst_family) = (barrier.src_queue_family_index, barrier.dst_queue_family_index);
        let none = vk::DependencyFlags::empty();
        match self {
            Self::Buffer(buffer) => {
                let barrier = vk::BufferMemoryBarrier::default()
                    .buffer(buffer)
                    .size(vk::WHOLE_SIZE)
                    .src_access_mask(src)
                    .dst_access_mask(dst)
                    .src_queue_family_index(src_family)
                    .dst_queue_family_index(dst_family);
                // SAFETY: the caller's promise.
                unsafe { device.cmd_pipeline_barrier(commands, from, to, none, &[], &[barrier], &[]) };
            }
            Self::Image(image) => {
                let barrier = vk::ImageMemoryBarrier::default()
                    .image(image)
                    .subresource_range(whole_image())
                    .old_layout(SHARED_LAYOUT)
                    .new_layout(SHARED_LAYOUT)
                    .src_access_mask(src)
                    .dst_access_mask(dst)
                    .src_queue_family_index(src_family)
                    .dst_queue_family_index(dst_family);
                // SAFETY: the caller's promise.
                unsafe { device.cmd_pipeline_barrier(commands, from, to, none, &[], &[], &[barrier]) };
            }
        }
    }
}

impl Reads {
    /// Returns the stages and the access in the newer flags. Their low bits are the older flags.
    fn access(self) -> Access {
        Access {
            stage: vk::PipelineStageFlags2::from_raw(self.stage.as_raw().into()),
            access: vk::AccessFlags2::from_raw(self.access.as_raw().into()),
        }
    }
}
