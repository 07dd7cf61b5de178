use ash::prelude::VkResult;
use ash::vk;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc};

use super::Device;
use crate::{Error, Result};

/// Destroys its handle when dropped, unless the device is stuck. The GPU must no longer use it:
/// see [`vulkan`](super).
pub struct AutoDestroy<T: Destroy> {
    raw: T,
    device: Device,
}

impl<T: Destroy> AutoDestroy<T> {
    /// Takes ownership of the handle that `create` makes from this device. Nothing else may destroy it.
    pub fn new(
        device: &Device,
        call: &'static str,
        create: impl FnOnce(&ash::Device) -> VkResult<T>,
    ) -> Result<Self> {
        let raw = create(device.raw()).map_err(device.failed(call))?;
        Ok(Self { raw, device: device.clone() })
    }

    pub fn raw(&self) -> T {
        self.raw
    }

    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl<T: Destroy> Drop for AutoDestroy<T> {
    fn drop(&mut self) {
        if !self.device.is_stuck() {
            // SAFETY: made from this device, destroyed once, and not in use: see the module `vulkan`.
            unsafe { self.raw.destroy(self.device.raw()) };
        }
    }
}

pub trait Destroy: Copy {
    /// # Safety
    /// The caller must keep the rules of the `vkDestroy…` function for this kind of handle.
    unsafe fn destroy(self, device: &ash::Device);
}

macro_rules! destroyed {
    ($($handle:ident by $destroy:ident,)*) => {
        $(impl Destroy for vk::$handle {
            unsafe fn destroy(self, device: &ash::Device) {
                // SAFETY: the caller keeps the rules of this call.
                unsafe { device.$destroy(self, None) };
            }
        })*
    };
}

destroyed! {
    Buffer by destroy_buffer,
    CommandPool by destroy_command_pool,
    DescriptorPool by destroy_descriptor_pool,
    DescriptorSetLayout by destroy_descriptor_set_layout,
    Image by destroy_image,
    ImageView by destroy_image_view,
    Pipeline by destroy_pipeline,
    PipelineLayout by destroy_pipeline_layout,
    QueryPool by destroy_query_pool,
    Sampler by destroy_sampler,
    Semaphore by destroy_semaphore,
    ShaderModule by destroy_shader_module,
}

/// Memory from gpu-allocator. Declare it after the buffer or image bound to it, which must be dropped first.
pub(super) struct OwnedMemory {
    pub(super) allocation: Allocation,
    device: Device,
}

impl OwnedMemory {
    pub(super) fn new(device: &Device, desc: &AllocationCreateDesc<'static>) -> Result<Self> {
        let allocation = device.allocator().allocate(desc).map_err(|source| Error::Allocation {
            what: desc.name,
            bytes: desc.requirements.size,
            device: device.info().name.clone(),
            source,
        })?;
        Ok(Self { allocation, device: device.clone() })
    }

    pub(super) fn place(&self) -> (vk::DeviceMemory, u64) {
        // SAFETY: the caller only binds the memory, and `Drop` frees it.
        (unsafe { self.allocation.memory() }, self.allocation.offset())
    }
}

impl Drop for OwnedMemory {
    fn drop(&mut self) {
        if !self.device.is_stuck() {
            // This fails only for a block of another allocator.
            let _ = self.device.allocator().free(std::mem::take(&mut self.allocation));
        }
    }
}
