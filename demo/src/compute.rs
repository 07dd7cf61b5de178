//! The same wave by a compute shader: for machines without CUDA, and for frames without a hand-off.

use std::sync::Arc;

use anyhow::Result;
use ash::vk;
use bytemuck::{Pod, Zeroable};
use gpu_allocator::MemoryLocation;

use crate::gpu::Gpu;
use crate::objects::{Buffer, Layout, Scope, shader};

/// Seconds after which the wave repeats, as in `kernels/wave.cu`.
const LOOP: f64 = 20.0;
/// Threads in a workgroup of the shader.
const THREADS: u32 = 256;
/// The workgroups that every device allows in one dimension.
const MOST_GROUPS: u32 = 65_535;

/// As in `shaders/wave.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Constants {
    grid: [u32; 2],
    turn: f32,
}

/// The shader and the buffer that it writes. One buffer is enough: frames on one queue wait for each other.
pub struct Compute {
    pub vertices: Buffer,
    pipeline: vk::Pipeline,
    layout: Layout,
    grid: [u32; 2],
    /// Whether the buffer has been written.
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
            .module(module)
            .name(c"wave");
        let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout.raw)];
        // SAFETY: the description points to locals. The module is needed only until the pipeline is made.
        let made = unsafe {
            let made = gpu.device.create_compute_pipelines(vk::PipelineCache::null(), &info, None);
            gpu.device.destroy_shader_module(module, None);
            made
        };
        let made = gpu.check("vkCreateComputePipelines", made.map_err(|(_, result)| result))?;
        Ok(Self { vertices, pipeline: made[0], layout, grid, is_written: false, gpu: gpu.clone() })
    }

    /// Records the dispatch that writes the vertices.
    ///
    /// # Safety
    /// `commands` is being recorded, outside a render pass.
    pub unsafe fn record(&mut self, commands: vk::CommandBuffer, time: f64) {
        let constants = Constants { grid: self.grid, turn: (time / LOOP).rem_euclid(1.0) as f32 };
        let groups = (self.grid[0] * self.grid[1]).div_ceil(THREADS);
        let (across, down) = (groups.min(MOST_GROUPS), groups.div_ceil(MOST_GROUPS));
        let draws = vk::PipelineStageFlags2::VERTEX_SHADER | vk::PipelineStageFlags2::FRAGMENT_SHADER;
        let (read, write) = (vk::AccessFlags2::SHADER_STORAGE_READ, vk::AccessFlags2::SHADER_STORAGE_WRITE);
        let device = &self.gpu.device;
        // SAFETY: the caller's promise; everything named is alive and of this device.
        unsafe {
            // After the draws of the frame before, and before those of this one.
            self.barrier(commands, (draws, vk::AccessFlags2::NONE), (COMPUTE, write));
            device.cmd_bind_pipeline(commands, vk::PipelineBindPoint::COMPUTE, self.pipeline);
            self.layout.bind(
                commands,
                vk::PipelineBindPoint::COMPUTE,
                self.vertices.raw,
                bytemuck::bytes_of(&constants),
            );
            device.cmd_dispatch(commands, across, down, 1);
            self.barrier(commands, (COMPUTE, write), (draws, read));
        }
        self.is_written = true;
    }

    /// # Safety
    /// As for [`Compute::record`].
    unsafe fn barrier(&self, commands: vk::CommandBuffer, before: Scope, after: Scope) {
        let barrier = [vk::BufferMemoryBarrier2::default()
            .buffer(self.vertices.raw)
            .size(vk::WHOLE_SIZE)
            .src_stage_mask(before.0)
            .src_access_mask(before.1)
            .dst_stage_mask(after.0)
            .dst_access_mask(after.1)
            .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
            .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)];
        let barrier = vk::DependencyInfo::default().buffer_memory_barriers(&barrier);
        // SAFETY: the caller's promise.
        unsafe { self.gpu.device.cmd_pipeline_barrier2(commands, &barrier) };
    }
}

const COMPUTE: vk::PipelineStageFlags2 = vk::PipelineStageFlags2::COMPUTE_SHADER;

impl Drop for Compute {
    fn drop(&mut self) {
        // SAFETY: the GPU is done with it: `Frames` waits before anything is dropped.
        unsafe { self.gpu.device.destroy_pipeline(self.pipeline, None) };
    }
}
