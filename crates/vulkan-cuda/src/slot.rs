//! What a ring hands over, and its barriers. They are those of [`crate::ownership`] in the older form, which a device without
//! `synchronization2` has too.

use std::sync::Arc;

use ash::vk;

use crate::image::MappedImage;
use crate::imported_buffer::ImportedBuffer;
use crate::memory::SharedBuffer;
use crate::ownership::{Access, Owner, SHARED_LAYOUT, first_release, whole_image};

/// What changes hands: one shared buffer or image, with whatever else belongs to a slot.
///
/// # Safety
/// [`Slot::resource`] always gives the same resource, which lives as long as the slot. (That it is of the ring's device, the
/// caller of [`SharedRing::record_acquire`](crate::SharedRing::record_acquire) promises: a slot does not know its ring.)
pub unsafe trait Slot {
    /// The Vulkan object that the barriers name.
    fn resource(&self) -> Resource;
}

/// A Vulkan object that changes hands.
#[derive(Clone, Copy, Debug)]
pub enum Resource {
    /// The whole buffer. Nothing is to be recorded before CUDA's first write: it has no layout, and nothing in it is kept.
    Buffer(vk::Buffer),
    /// All levels and layers, in [`SHARED_LAYOUT`]. A new image has another layout, `UNDEFINED`, so before CUDA's first write it
    /// needs [`SharedRing::record_first_release`](crate::SharedRing::record_first_release).
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

// SAFETY: it owns the image.
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

/// How Vulkan reads a slot.
#[derive(Clone, Copy, Debug)]
pub struct Reads {
    /// The queue family that reads.
    pub family: u32,
    /// The stages that read.
    pub stage: vk::PipelineStageFlags,
    /// How they read.
    pub access: vk::AccessFlags,
}

impl Resource {
    /// # Safety
    /// `commands` is being recorded, outside a render pass, for a queue of the family; the resource is the device's.
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
    /// As [`Resource::record_acquire`]; nobody has used the resource yet.
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
        // The low 32 bits are the same, and what is here came from them.
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
    /// The same in the newer flags, whose low bits are the older ones.
    fn access(self) -> Access {
        Access {
            stage: vk::PipelineStageFlags2::from_raw(self.stage.as_raw().into()),
            access: vk::AccessFlags2::from_raw(self.access.as_raw().into()),
        }
    }
}
