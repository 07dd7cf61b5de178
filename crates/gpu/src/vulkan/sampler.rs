//! Samplers.

use ash::vk;

use super::{Device, Owned};
use wavefield_base::Result;

/// A sampler with linear filtering between texels and between mip levels. `beyond` says what a shader reads beyond the
/// image's edges.
pub fn sampler(device: &Device, beyond: vk::SamplerAddressMode) -> Result<Owned<vk::Sampler>> {
    let info = vk::SamplerCreateInfo::default()
        .mag_filter(vk::Filter::LINEAR)
        .min_filter(vk::Filter::LINEAR)
        .mipmap_mode(vk::SamplerMipmapMode::LINEAR)
        .max_lod(vk::LOD_CLAMP_NONE)
        .address_mode_u(beyond)
        .address_mode_v(beyond);
    // SAFETY: a live device and a plain description.
    let raw = unsafe { device.raw().create_sampler(&info, None) };
    Ok(Owned::new(device, raw.map_err(device.failed("vkCreateSampler"))?))
}
