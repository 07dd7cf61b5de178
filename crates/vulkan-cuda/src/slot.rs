//! What a ring hands over, and the barriers for it. They are those of [`crate::ownership`] in the older form, which
//! needs no `synchronization2`.

use ash::vk;
use cudarc::driver::sys;

use crate::cuda_buffer::CudaBuffer;
use crate::image::SharedImage;
use crate::memory::SharedBuffer;
use crate::ownership::{SHARED_LAYOUT, whole_image};

/// What changes hands: one shared buffer or image, with everything else that belongs to a slot.
///
/// [`SharedBuffer`] is a slot. For anything else, or to keep more with each slot, write a type of your own: it owns the
/// buffer or image, and passes on its [`Resource`].
///
/// # Safety
/// - [`Slot::resource`] must always return the same resource, which must live as long as the slot.
/// - No other slot, of any ring, may use the same bytes. So an `Arc` of a slot is no slot, and [`CudaBuffer`]s, which
///   may overlap, are none by themselves.
///
/// # Examples
///
/// A buffer, and the descriptor set through which a renderer reads it:
///
/// ```
/// use ash::vk;
/// use vulkan_cuda::shared_ring::{Resource, Slot};
/// use vulkan_cuda::SharedBuffer;
///
/// struct Drawn {
///     buffer: SharedBuffer,
///     set: vk::DescriptorSet,
/// }
///
/// // SAFETY: the slot owns the buffer, and shares it with nobody.
/// unsafe impl Slot for Drawn {
///     fn resource(&self) -> Resource {
///         self.buffer.resource()
///     }
/// }
/// ```
///
/// One buffer cannot be two slots:
///
/// ```compile_fail,E0277
/// use std::sync::Arc;
/// use vulkan_cuda::SharedBuffer;
/// use vulkan_cuda::shared_ring::Slot;
///
/// fn ring_of<S: Slot>(_slots: Vec<S>) {}
///
/// fn aliased(buffer: Arc<SharedBuffer>) {
///     ring_of(vec![buffer.clone(), buffer]);
/// }
/// ```
pub unsafe trait Slot {
    /// Returns what the two APIs share. The slot still owns it. See the [example](Slot#examples).
    fn resource(&self) -> Resource;
}

/// A Vulkan object that changes hands. Returned by [`Slot::resource`]. See the [example](Slot#examples).
#[derive(Clone, Copy, Debug)]
pub enum Resource {
    /// A whole buffer. No barrier is needed before CUDA's first write: a buffer has no layout, and its contents need
    /// not be kept.
    Buffer {
        /// Vulkan's buffer.
        raw: vk::Buffer,
        /// The device that it was made from.
        device: vk::Device,
        /// The same bytes in CUDA's address space, and how many there are, for [`CudaTurn::view`]. `None` if this
        /// process has no address.
        ///
        /// [`CudaTurn::view`]: crate::shared_ring::CudaTurn::view
        bytes: Option<(sys::CUdeviceptr, u64)>,
    },
    /// All levels and layers of an image, in [`SHARED_LAYOUT`]. A new image has the layout `UNDEFINED`, so before
    /// CUDA's first write it needs [`SharedRing::record_first_release`](crate::SharedRing::record_first_release).
    Image {
        /// Vulkan's image.
        raw: vk::Image,
        /// The device that it was made from.
        device: vk::Device,
    },
}

// SAFETY: it owns the buffer, and nothing else has its bytes.
unsafe impl Slot for SharedBuffer {
    fn resource(&self) -> Resource {
        let (raw, device) = (self.vulkan(), self.device());
        Resource::Buffer { raw, device, bytes: Some((self.cuda(), self.size())) }
    }
}

impl CudaBuffer {
    /// Returns the buffer as a slot's resource: see [`Slot`].
    pub fn resource(&self) -> Resource {
        let bytes = self.cuda().map(|address| (address, self.size()));
        Resource::Buffer { raw: self.vulkan(), device: self.device(), bytes }
    }
}

impl SharedImage {
    /// Returns the image as a slot's resource: see [`Slot`].
    pub fn resource(&self) -> Resource {
        Resource::Image { raw: self.exported().raw(), device: self.exported().vk.device().handle() }
    }
}

/// Where and how Vulkan reads a slot. One value applies to all slots of a ring. [`crate::shared_ring`] has an example.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// The index of the queue family that reader.
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
    /// The device that the object was made from.
    pub(crate) fn device(self) -> vk::Device {
        match self {
            Self::Buffer { device, .. } | Self::Image { device, .. } => device,
        }
    }

    /// Records a transfer with `vkCmdPipelineBarrier`.
    ///
    /// # Safety
    /// `commands` is being recorded, outside a render pass, for a queue of the family. The resource is of `device`.
    pub(crate) unsafe fn record(
        self,
        device: &ash::Device,
        commands: vk::CommandBuffer,
        Reader { family, stage, access }: Reader,
        transfer: Transfer,
    ) {
        use vk::{AccessFlags as Access, PipelineStageFlags as Stage};
        let (ignored, external) = (vk::QUEUE_FAMILY_IGNORED, vk::QUEUE_FAMILY_EXTERNAL);
        let (layout, families, accesses, stages) = match transfer {
            Transfer::Layout => {
                let all = Stage::ALL_COMMANDS;
                (
                    vk::ImageLayout::UNDEFINED,
                    (ignored, ignored),
                    (Access::empty(), Access::empty()),
                    (all, all),
                )
            }
            Transfer::Acquire => {
                (SHARED_LAYOUT, (external, family), (Access::empty(), access), (stage, stage))
            }
            Transfer::Release => {
                (SHARED_LAYOUT, (family, external), (access, Access::empty()), (stage, Stage::BOTTOM_OF_PIPE))
            }
        };
        let buffers = match self {
            Self::Buffer { raw, .. } => Some(
                vk::BufferMemoryBarrier::default()
                    .buffer(raw)
                    .size(vk::WHOLE_SIZE)
                    .src_access_mask(accesses.0)
                    .dst_access_mask(accesses.1)
                    .src_queue_family_index(families.0)
                    .dst_queue_family_index(families.1),
            ),
            Self::Image { .. } => None,
        };
        let images = match self {
            Self::Image { raw, .. } => Some(
                vk::ImageMemoryBarrier::default()
                    .image(raw)
                    .subresource_range(whole_image())
                    .old_layout(layout)
                    .new_layout(SHARED_LAYOUT)
                    .src_access_mask(accesses.0)
                    .dst_access_mask(accesses.1)
                    .src_queue_family_index(families.0)
                    .dst_queue_family_index(families.1),
            ),
            Self::Buffer { .. } => None,
        };
        let (flags, from, to) = (vk::DependencyFlags::empty(), stages.0, stages.1);
        let (buffers, images) = (buffers.as_slice(), images.as_slice());
        // SAFETY: the caller's promise.
        unsafe { device.cmd_pipeline_barrier(commands, from, to, flags, &[], buffers, images) };
    }
}

/// The barriers of [`crate::ownership`].
#[derive(Clone, Copy)]
pub(crate) enum Transfer {
    /// The first half of [`crate::ownership::first_release`], which gives an image its layout.
    Layout,
    Acquire,
    Release,
}
