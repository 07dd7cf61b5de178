//! Samplers.

use ash::vk;

use super::Device;
use crate::Result;

/// A sampler with linear filtering between texels and between mip levels.
pub(crate) struct Sampler {
    raw: vk::Sampler,
    device: Device,
}

impl Sampler {
    /// `beyond` says what a shader reads beyond the image's edges.
    pub(crate) fn new(device: &Device, beyond: vk::SamplerAddressMode) -> Result<Self> {
        let info = vk::SamplerCreateInfo::default()
            .mag_filter(vk::Filter::LINEAR)
            .min_filter(vk::Filter::LINEAR)
            .mipmap_mode(vk::SamplerMipmapMode::LINEAR)
            .max_lod(vk::LOD_CLAMP_NONE)
            .address_mode_u(beyond)
            .address_mode_v(beyond);
        // SAFETY: a live device and a plain description.
        let raw =
            unsafe { device.raw().create_sampler(&info, None) }.map_err(device.failed("vkCreateSampler"))?;
        Ok(Self { raw, device: device.clone() })
    }

    /// The raw handle.
    pub(crate) fn raw(&self) -> vk::Sampler {
        self.raw
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        if self.device.is_left_running() {
            return;
        }
        // SAFETY: the GPU is done with it, as the module `vulkan` demands.
        unsafe { self.device.raw().destroy_sampler(self.raw, None) };
    }
}
