use std::ffi::CStr;

use ash::vk;

use super::{AutoDestroy, Bindings, Bound, Device, SetDesc};
use crate::{Error, Result};

/// The workgroup size of every one-dimensional compute shader.
const WORKGROUP: u64 = 256;
/// The number of workgroups that every device allows in one dimension (`maxComputeWorkGroupCount`).
pub const MAX_GROUPS: u32 = 65_535;

/// Returns the number of workgroups for `threads` threads, in two dimensions, because one allows only 65,535.
pub fn groups(threads: u64) -> [u32; 2] {
    let (groups, most) = (threads.div_ceil(WORKGROUP), u64::from(MAX_GROUPS));
    [groups.min(most) as u32, groups.div_ceil(most) as u32]
}

/// What can be bound to a set of a [`ComputePipeline`]: these objects, or objects that are chosen later.
#[derive(Clone, Copy, Debug)]
pub enum Choices<'a> {
    These(&'a [Bound]),
    /// A descriptor type and a number of sets. Each set must be pointed at something before it is used.
    Later(vk::DescriptorType, usize),
}

pub struct ComputePipeline {
    raw: AutoDestroy<vk::Pipeline>,
    pub bindings: Bindings,
}

impl ComputePipeline {
    /// Makes a pipeline with `constants` bytes of push constants, a multiple of 4. `sets` lists, for each
    /// set, what can be bound to its only binding, 0; no list may be empty. The bound objects must outlive
    /// their use.
    pub fn new(
        device: &Device,
        (spirv, entry): (&[u8], &CStr),
        constants: u32,
        sets: &[Choices<'_>],
    ) -> Result<Self> {
        let compute = vk::ShaderStageFlags::COMPUTE;
        let binding_and_count = |choices: &Choices<'_>| match *choices {
            Choices::These(bound) => {
                let kind = bound.first().map_or(vk::DescriptorType::STORAGE_BUFFER, |bound| bound.parts().0);
                ([(kind, compute)], bound.len())
            }
            Choices::Later(kind, count) => ([(kind, compute)], count),
        };
        let kinds: Vec<_> = sets.iter().map(binding_and_count).collect();
        let descs: Vec<_> =
            kinds.iter().map(|(bindings, count)| SetDesc { bindings, count: *count }).collect();
        let range = [vk::PushConstantRange::default().stage_flags(compute).size(constants)];
        // Vulkan forbids an empty range.
        let ranges = &range[..usize::from(constants > 0)];
        let bindings = Bindings::new(device, &descs, ranges)?;
        for (set, choices) in sets.iter().enumerate() {
            let Choices::These(bound) = choices else { continue };
            for (chosen, &bound) in bound.iter().enumerate() {
                // SAFETY: the sets have never been used, and have the type of the first of `bound`.
                unsafe { bindings.point(set, chosen, [bound]) };
            }
        }
        let raw = compute_pipeline(device, bindings.layout(), (spirv, entry))?;
        Ok(Self { raw, bindings })
    }

    /// Dispatches `groups` workgroups (see [`groups`]). Binds entry `chosen[n]` of the n-th list to set n.
    ///
    /// # Safety
    /// `commands` must be recording, outside a render pass. Every `chosen[n]` must be within its list, and
    /// point at something. `constants` must have the pipeline's size. Barriers of the caller must order the
    /// memory that the shader uses.
    pub unsafe fn dispatch<const SETS: usize>(
        &self,
        commands: vk::CommandBuffer,
        chosen: [usize; SETS],
        constants: &[u8],
        groups: [u32; 2],
    ) {
        let (point, stage) = (vk::PipelineBindPoint::COMPUTE, vk::ShaderStageFlags::COMPUTE);
        let vk = self.raw.device().raw();
        // SAFETY: recording (the caller's promise); pipeline and layout belong together and are alive.
        unsafe {
            vk.cmd_bind_pipeline(commands, point, self.raw.raw());
            self.bindings.bind(commands, point, chosen, &[]);
            if !constants.is_empty() {
                vk.cmd_push_constants(commands, self.bindings.layout(), stage, 0, constants);
            }
            vk.cmd_dispatch(commands, groups[0], groups[1], 1);
        }
    }
}

pub fn compute_pipeline(
    device: &Device,
    layout: vk::PipelineLayout,
    (spirv, entry): (&[u8], &CStr),
) -> Result<AutoDestroy<vk::Pipeline>> {
    let module = shader_module(device, spirv)?;
    let stage = vk::PipelineShaderStageCreateInfo::default()
        .stage(vk::ShaderStageFlags::COMPUTE)
        .module(module.raw())
        .name(entry);
    let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout)];
    // SAFETY: a live device, and a description that points to locals. On failure, nothing was made.
    AutoDestroy::new(device, "vkCreateComputePipelines", |vk| unsafe {
        let made = vk.create_compute_pipelines(vk::PipelineCache::null(), &info, None);
        made.map(|made| made[0]).map_err(|(_, result)| result)
    })
}

/// Makes a module from SPIR-V of [`crate::shaders`]. It may be dropped once its pipelines are made.
pub fn shader_module(device: &Device, spirv: &[u8]) -> Result<AutoDestroy<vk::ShaderModule>> {
    let words = ash::util::read_spv(&mut std::io::Cursor::new(spirv))
        .map_err(|error| Error::Unsupported(format!("a shader of this build is not SPIR-V: {error}")))?;
    let info = vk::ShaderModuleCreateInfo::default().code(&words);
    // SAFETY: naga validated the module that this SPIR-V was made from.
    AutoDestroy::new(device, "vkCreateShaderModule", |vk| unsafe { vk.create_shader_module(&info, None) })
}
