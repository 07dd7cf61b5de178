//! A SPIR-V module, made from WGSL by naga in `build.rs`.

use ash::vk;

use super::Device;
use crate::{Error, Result};

/// A shader module. It may be dropped once the pipelines are made.
pub struct ShaderModule {
    raw: vk::ShaderModule,
    device: Device,
}

impl ShaderModule {
    /// `spirv` is a whole SPIR-V binary in this machine's byte order.
    pub fn new(device: &Device, spirv: &[u8]) -> Result<Self> {
        let words = ash::util::read_spv(&mut std::io::Cursor::new(spirv))
            .map_err(|error| Error::Unsupported(format!("a shader of this build is not SPIR-V: {error}")))?;
        let info = vk::ShaderModuleCreateInfo::default().code(&words);
        // SAFETY: naga validated the module that this SPIR-V was made from.
        let raw = unsafe { device.raw().create_shader_module(&info, None) }
            .map_err(device.failed("vkCreateShaderModule"))?;
        Ok(Self { raw, device: device.clone() })
    }

    /// The raw handle.
    pub fn raw(&self) -> vk::ShaderModule {
        self.raw
    }
}

impl Drop for ShaderModule {
    fn drop(&mut self) {
        if self.device.is_left_running() {
            return;
        }
        // SAFETY: pipelines do not refer to the module once they are made.
        unsafe { self.device.raw().destroy_shader_module(self.raw, None) };
    }
}
