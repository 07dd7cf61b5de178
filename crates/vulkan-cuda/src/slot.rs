//! The slots of a ring, and the barriers of [`crate::ownership`] without `synchronization2`.

use ash::vk;
use cudarc::driver::sys;

use crate::cuda_buffer::CudaBuffer;
use crate::image::SharedImage;
use crate::memory::SharedBuffer;
use crate::ownership::{SHARED_LAYOUT, whole_image};
use crate::vulkan::Vk;
use crate::{Error, Result};

/// A slot of a ring: one shared buffer or image, with everything else that belongs to it.
///
/// [`SharedBuffer`] is a slot. For anything else, or to keep more with each slot, write your own type, which
/// owns the buffer or image and returns its [`Resource`].
///
/// # Safety
/// - [`Slot::resource`] must always return the same resource, as [`Resource`] describes it. It must live as
///   long as the slot.
/// - No other slot, of any ring, may use the same bytes. So an `Arc` of a slot is not a slot. Neither is a
///   [`CudaBuffer`], because two of them may overlap.
///
/// # Examples
/// A buffer, and the descriptor set through which a renderer reads it:
///
/// ```
/// # use ash::vk;
/// use vulkan_cuda::{SharedBuffer, shared_ring::{Resource, Slot}};
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
/// An image. (`Arc<SharedImage>` itself is not a slot, so no image can be in two slots.)
///
/// ```
/// use std::sync::Arc;
/// use vulkan_cuda::{SharedImage, cuda::Array, shared_ring::{Resource, Slot}};
///
/// struct Picture {
///     level: Array, // of `image.level(0)?`: CUDA copies it, or makes a surface object of it
///     image: Arc<SharedImage>,
/// }
///
/// // SAFETY: the slot has the image for itself.
/// unsafe impl Slot for Picture {
///     fn resource(&self) -> Resource {
///         self.image.resource()
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
    /// Returns the buffer or image that the two APIs share. The slot still owns it.
    fn resource(&self) -> Resource;
}

/// The Vulkan object that a slot hands over.
#[derive(Clone, Copy, Debug)]
pub enum Resource {
    /// A whole buffer. CUDA's first write needs no barrier: there is no layout, and no contents to keep.
    Buffer {
        /// Vulkan's buffer.
        raw: vk::Buffer,
        /// The device that created it.
        device: vk::Device,
        /// The CUDA context whose streams may use the bytes. `None` for memory from `cuMemCreate`, which
        /// every context of its device may use, or if this process has no CUDA address of the bytes.
        context: Option<sys::CUcontext>,
        /// CUDA's address of the same bytes, and the number of bytes, for
        /// [`CudaTurn::view`](crate::CudaTurn::view). `None` if this process has no such address.
        bytes: Option<(sys::CUdeviceptr, u64)>,
    },
    /// All levels and layers of an image, in [`SHARED_LAYOUT`]. A new image is still `UNDEFINED`. In a
    /// [`SharedRing`](crate::SharedRing), a new image needs
    /// [`record_first_release`](crate::SharedRing::record_first_release) before CUDA's first write. In a
    /// [`RingToCuda`](crate::RingToCuda), the barrier of Vulkan's first write gives it the layout.
    Image {
        /// Vulkan's image.
        raw: vk::Image,
        /// The device that created it.
        device: vk::Device,
        /// The CUDA context whose streams may use the image.
        context: Option<sys::CUcontext>,
    },
}

// SAFETY: it owns the buffer, and nothing else has its bytes.
unsafe impl Slot for SharedBuffer {
    fn resource(&self) -> Resource {
        let (raw, device, context) = (self.vulkan(), self.device, Some(self.mapped.imported.cuda.raw()));
        Resource::Buffer { raw, device, context, bytes: Some((self.cuda(), self.size())) }
    }
}

impl CudaBuffer {
    /// Returns the buffer as a slot's resource: see [`Slot`].
    pub fn resource(&self) -> Resource {
        let bytes = self.cuda().map(|address| (address, self.size()));
        let device = self.buffer.vk.device().handle();
        Resource::Buffer { raw: self.vulkan(), device, context: None, bytes }
    }
}

impl SharedImage {
    /// Returns the image as a slot's resource: see [`Slot`].
    pub fn resource(&self) -> Resource {
        let (exported, context) = (self.exported(), Some(self.imported.cuda.raw()));
        Resource::Image { raw: exported.raw(), device: exported.memory.vk.device().handle(), context }
    }
}

/// The queue family, stages and accesses with which Vulkan uses all slots of a ring.
#[derive(Clone, Copy, Debug)]
pub struct QueueUse {
    /// The index of the queue family.
    pub family: u32,
    /// The pipeline stages that read the slots, or write them in a [`RingToCuda`](crate::RingToCuda).
    pub stage: vk::PipelineStageFlags,
    /// How these stages access the slots. The stages must support the accesses ([Supported access types]).
    ///
    /// [Supported access types]: https://registry.khronos.org/vulkan/specs/latest/html/vkspec.html#synchronization-access-types-supported
    pub access: vk::AccessFlags,
}

impl QueueUse {
    /// Fails if the device has no such family, or if stage or access is empty. Nothing else is checked.
    pub(crate) fn check(self, vk: &Vk) -> Result<()> {
        // SAFETY: the physical device belongs to this instance, and both are alive.
        let families =
            unsafe { vk.instance().get_physical_device_queue_family_properties(vk.physical()) }.len();
        match (self.family as usize) < families && !self.stage.is_empty() && !self.access.is_empty() {
            true => Ok(()),
            false => Err(Error::Rule(format!(
                "a ring needs one of the {families} queue families of {}, a stage and an access, but was given {self:?}",
                vk.info().name
            ))),
        }
    }
}

impl Resource {
    /// Records the barrier of a transfer with `vkCmdPipelineBarrier`.
    ///
    /// # Safety
    /// `commands` must be recording, outside a render pass, for a queue of `family`. The resource must be
    /// alive, and must belong to `device`.
    pub(crate) unsafe fn record(
        self,
        device: &ash::Device,
        commands: vk::CommandBuffer,
        QueueUse { family, stage, access }: QueueUse,
        transfer: Transfer,
    ) {
        use vk::PipelineStageFlags as Stage;
        let (ignored, external, no) =
            (vk::QUEUE_FAMILY_IGNORED, vk::QUEUE_FAMILY_EXTERNAL, vk::AccessFlags::empty());
        let (layout, families, accesses, stages) = match transfer {
            Transfer::Layout => (
                vk::ImageLayout::UNDEFINED,
                (ignored, ignored),
                (no, no),
                (Stage::ALL_COMMANDS, Stage::ALL_COMMANDS),
            ),
            Transfer::FirstUse => {
                (vk::ImageLayout::UNDEFINED, (ignored, ignored), (no, access), (stage, stage))
            }
            Transfer::Acquire => (SHARED_LAYOUT, (external, family), (no, access), (stage, stage)),
            Transfer::Release => {
                (SHARED_LAYOUT, (family, external), (access, no), (stage, Stage::BOTTOM_OF_PIPE))
            }
        };
        let (flags, (from, to)) = (vk::DependencyFlags::empty(), stages);
        match self {
            Self::Buffer { raw, .. } => {
                let barrier = vk::BufferMemoryBarrier::default()
                    .buffer(raw)
                    .size(vk::WHOLE_SIZE)
                    .src_access_mask(accesses.0)
                    .dst_access_mask(accesses.1)
                    .src_queue_family_index(families.0)
                    .dst_queue_family_index(families.1);
                // SAFETY: the caller's promise.
                unsafe { device.cmd_pipeline_barrier(commands, from, to, flags, &[], &[barrier], &[]) };
            }
            Self::Image { raw, .. } => {
                let barrier = vk::ImageMemoryBarrier::default()
                    .image(raw)
                    .subresource_range(whole_image())
                    .old_layout(layout)
                    .new_layout(SHARED_LAYOUT)
                    .src_access_mask(accesses.0)
                    .dst_access_mask(accesses.1)
                    .src_queue_family_index(families.0)
                    .dst_queue_family_index(families.1);
                // SAFETY: the caller's promise.
                unsafe { device.cmd_pipeline_barrier(commands, from, to, flags, &[], &[], &[barrier]) };
            }
        }
    }
}

/// A barrier of [`crate::ownership`], or one that gives an image its layout.
#[derive(Clone, Copy)]
pub(crate) enum Transfer {
    /// The first half of [`crate::ownership::first_release`], which gives an image its layout.
    Layout,
    /// Gives an image its layout before its first use, if Vulkan uses it first.
    FirstUse,
    Acquire,
    Release,
}
