//! SPIR-V modules, made from WGSL by the crate `shaders`.

use ash::vk;

use super::{Device, Owned};
use wavefield_base::{Error, Result};

/// `spirv` is a whole SPIR-V binary in this machine's byte order. The module may be dropped once the pipelines are made.
pub fn shader_module(device: &Device, spirv: &[u8]) -> Result<Owned<vk::ShaderModule>> {
    let words = ash::util::read_spv(&mut std::io::Cursor::new(spirv))
        .map_err(|error| Error::Unsupported(format!("a shader of this build is not SPIR-V: {error}")))?;
    let info = vk::ShaderModuleCreateInfo::default().code(&words);
    // SAFETY: naga validated the module that this SPIR-V was made from.
    let raw = unsafe { device.raw().create_shader_module(&info, None) };
    Ok(Owned::new(device, raw.map_err(device.failed("vkCreateShaderModule"))?))
}
