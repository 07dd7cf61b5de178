//! The same wave, computed by a Vulkan shader: for machines without CUDA, and for frames without a hand-off.

use std::sync::Arc;

use anyhow::Result;
use ash::{Device, vk};
use bytemuck::{Pod, Zeroable};
use gpu_allocator::MemoryLocation;

use crate::gpu::{AutoDestroy, Gpu};
use crate::objects::{Buffer, Layout, memory_barrier, shader};

/// The period of the wave in seconds, as in `kernels/wave.cu`.
const LOOP: f64 = 20.0;
const THREADS: u32 = 256;
/// The number of workgroups in one dimension that every device supports.
const MOST_GROUPS: u32 = 65_535;

/// Must match `shaders/wave.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Constants {
    grid: [u32; 2],
    turn: f32,
}

/// The shader and its buffer. One buffer is enough: a barrier makes each frame wait for the previous one.
pub struct Compute {
    pub vertices: Buffer,
    pipeline: AutoDestroy<vk::Pipeline>,
    layout: Layout,
    grid: [u32; 2],
    pub is_written: bool,
    gpu: Arc<Gpu>,
}

impl Compute {
    pub fn new(gpu: &Arc<Gpu>, grid: [u32; 2]) -> Result<Self> {
        let size = 16 * u64::from(grid[0]) * u64::from(grid[1]);
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER;
        let vertices = Buffer::new(gpu, "the vertices", size, usage, MemoryLocation::GpuOnly)?;
        let layout = Layout::new(gpu, vk::ShaderStageFlags::COMPUTE, size_of::<Constants>())?;
        let module = shader(gpu, include_bytes!(concat!(env!("OUT_DIR"), "/wave.wave.spv")))?;
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module.raw)
            .name(c"wave");
        let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout.pipeline.raw)];
        // SAFETY: the description points to locals. The module is needed only until the pipeline is made.
        let made = unsafe { gpu.device.create_compute_pipelines(vk::PipelineCache::null(), &info, None) };
        let made = made.map(|made| made[0]).map_err(|(_, result)| result);
        let pipeline = AutoDestroy::new(gpu, "vkCreateComputePipelines", made, Device::destroy_pipeline)?;
        Ok(Self { vertices, pipeline, layout, grid, is_written: false, gpu: gpu.clone() })
    }

    /// # Safety
    /// `commands` must be recording, outside a render pass.
    pub unsafe fn record(&mut self, commands: vk::CommandBuffer, time: f64) {
        let constants = Constants { grid: self.grid, turn: (time / LOOP).rem_euclid(1.0) as f32 };
        let groups = (self.grid[0] * self.grid[1]).div_ceil(THREADS);
        let (across, down) = (groups.min(MOST_GROUPS), groups.div_ceil(MOST_GROUPS));
        let shaders = vk::PipelineStageFlags2::VERTEX_SHADER | vk::PipelineStageFlags2::FRAGMENT_SHADER;
        let draws = (shaders, vk::AccessFlags2::SHADER_STORAGE_READ);
        let writes = (vk::PipelineStageFlags2::COMPUTE_SHADER, vk::AccessFlags2::SHADER_STORAGE_WRITE);
        // Wait for the previous frame's draw, and let this frame's draw wait for the shader.
        let (before, after) = ([memory_barrier(draws, writes)], [memory_barrier(writes, draws)]);
        let [before, after] =
            [&before, &after].map(|barrier| vk::DependencyInfo::default().memory_barriers(barrier));
        let (device, point) = (&self.gpu.device, vk::PipelineBindPoint::COMPUTE);
        // SAFETY: the caller's promise; everything named is alive and belongs to this device.
        unsafe {
            device.cmd_pipeline_barrier2(commands, &before);
            device.cmd_bind_pipeline(commands, point, self.pipeline.raw);
            self.layout.bind(commands, point, self.vertices.buffer.raw, bytemuck::bytes_of(&constants));
            device.cmd_dispatch(commands, across, down, 1);
            device.cmd_pipeline_barrier2(commands, &after);
        }
        self.is_written = true;
    }
}
