//! A compute pass in plain Vulkan: runs `check.wgsl` on one slot.

use std::ffi::CStr;

use anyhow::Result;
use ash::vk::{self, AccessFlags2 as Access, DescriptorType as Kind, PipelineStageFlags2 as Stage};
use vulkan_cuda::ExportedBuffer;
use vulkan_cuda::ownership::{SHARED_LAYOUT, whole_image};
use vulkan_cuda::shared_ring::{Resource, Slot};
use wgpu::naga::{self, valid};

use super::match_devices::Gpu;
use crate::check::Job;

pub const TEXELS: vk::Format = vk::Format::R16G16B16A16_UINT;

/// The shader, with everything that it reads and writes.
pub struct Pass {
    device: ash::Device,
    size: (u32, u32),
    /// The frame's number. CUDA sees neither this nor `counts`: [`ExportedBuffer`] is just a short way to
    /// make a buffer.
    number: ExportedBuffer,
    counts: ExportedBuffer,
    bindings: vk::DescriptorSetLayout,
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
    descriptors: vk::DescriptorPool,
    /// One per slot.
    sets: Vec<vk::DescriptorSet>,
    /// Empty for buffers.
    views: Vec<vk::ImageView>,
    pool: vk::CommandPool,
    commands: Vec<vk::CommandBuffer>,
}

impl Pass {
    /// If this fails half-way, the program ends, and the end of the process releases what was made.
    pub fn new(gpu: &Gpu, job: &Job, entry: &CStr, slots: &[impl Slot]) -> Result<Self> {
        use vk::BufferUsageFlags as Usage;
        let buffer = |usage| ExportedBuffer::new(gpu.pair.vk(), 16, usage);
        let number = buffer(Usage::UNIFORM_BUFFER | Usage::TRANSFER_DST)?;
        let counts = buffer(Usage::STORAGE_BUFFER | Usage::TRANSFER_SRC | Usage::TRANSFER_DST)?;
        // The numbers are those in the shader.
        let slot = if job.texture { (3, Kind::SAMPLED_IMAGE) } else { (2, Kind::STORAGE_BUFFER) };
        let kinds = [(0, Kind::UNIFORM_BUFFER), (1, Kind::STORAGE_BUFFER), slot];
        let bound = kinds.map(|(binding, kind)| {
            let bound = vk::DescriptorSetLayoutBinding::default().binding(binding).descriptor_type(kind);
            bound.descriptor_count(1).stage_flags(vk::ShaderStageFlags::COMPUTE)
        });
        let count = slots.len() as u32;
        let sizes = kinds.map(|(_, ty)| vk::DescriptorPoolSize { ty, descriptor_count: count });
        let (device, code) = (gpu.device.clone(), spirv(entry)?);
        // SAFETY: a live device, and plain descriptions that point to locals.
        unsafe {
            let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bound);
            let bindings = device.create_descriptor_set_layout(&info, None)?;
            let layouts = vec![bindings; slots.len()];
            let info = vk::PipelineLayoutCreateInfo::default().set_layouts(&layouts[..1]);
            let layout = device.create_pipeline_layout(&info, None)?;
            let info = vk::ShaderModuleCreateInfo::default().code(&code);
            let module = device.create_shader_module(&info, None)?;
            let stage = vk::PipelineShaderStageCreateInfo::default().stage(vk::ShaderStageFlags::COMPUTE);
            let stage = stage.module(module).name(entry);
            let info = [vk::ComputePipelineCreateInfo::default().layout(layout).stage(stage)];
            let pipelines = device.create_compute_pipelines(vk::PipelineCache::null(), &info, None);
            device.destroy_shader_module(module, None);
            let pipeline = pipelines.map_err(|(_, error)| error)?[0];

            let info = vk::DescriptorPoolCreateInfo::default().max_sets(count).pool_sizes(&sizes);
            let descriptors = device.create_descriptor_pool(&info, None)?;
            let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(descriptors);
            let sets = device.allocate_descriptor_sets(&info.set_layouts(&layouts))?;

            let info = vk::CommandPoolCreateInfo::default().queue_family_index(gpu.family);
            let info = info.flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER);
            let pool = device.create_command_pool(&info, None)?;
            let info = vk::CommandBufferAllocateInfo::default().command_pool(pool);
            let info = info.command_buffer_count(super::IN_FLIGHT as u32 + 1);
            let commands = device.allocate_command_buffers(&info)?;

            let (size, views) = (job.size, Vec::new());
            #[rustfmt::skip] // It would take a line for each.
            let mut pass = Self {
                device, size, number, counts, bindings, layout, pipeline, descriptors, sets, views, pool, commands,
            };
            for (slot, set) in slots.iter().zip(pass.sets.clone()) {
                pass.bind(set, slot.resource())?;
            }
            Ok(pass)
        }
    }

    /// # Safety
    /// The slot must belong to this device, and nothing may use the set yet.
    unsafe fn bind(&mut self, set: vk::DescriptorSet, slot: Resource) -> Result<()> {
        let write = |binding, kind| {
            vk::WriteDescriptorSet::default().dst_set(set).dst_binding(binding).descriptor_type(kind)
        };
        let whole = |buffer| [vk::DescriptorBufferInfo { buffer, offset: 0, range: vk::WHOLE_SIZE }];
        let (number, counts) = (whole(self.number.raw()), whole(self.counts.raw()));
        let (vertices, texels);
        let slot = match slot {
            Resource::Buffer { raw: buffer, .. } => {
                vertices = whole(buffer);
                write(2, Kind::STORAGE_BUFFER).buffer_info(&vertices)
            }
            Resource::Image { raw: image, .. } => {
                let info = vk::ImageViewCreateInfo::default().image(image).format(TEXELS);
                let info = info.view_type(vk::ImageViewType::TYPE_2D).subresource_range(whole_image());
                // SAFETY: (also below) the caller's promise.
                self.views.push(unsafe { self.device.create_image_view(&info, None) }?);
                let info = vk::DescriptorImageInfo::default().image_layout(SHARED_LAYOUT);
                texels = [info.image_view(self.views[self.views.len() - 1])];
                write(3, Kind::SAMPLED_IMAGE).image_info(&texels)
            }
        };
        let number = write(0, Kind::UNIFORM_BUFFER).buffer_info(&number);
        let counts = write(1, Kind::STORAGE_BUFFER).buffer_info(&counts);
        unsafe { self.device.update_descriptor_sets(&[number, counts, slot], &[]) };
        Ok(())
    }

    /// Begins a frame's commands with its number. As with wgpu, all frames share one buffer for it, so the
    /// pass before ends first.
    pub fn begin(&self, frame: u64) -> Result<vk::CommandBuffer> {
        let commands = self.commands[frame as usize % self.commands.len()];
        let (cols, rows) = self.size;
        let words = [frame as u32, cols, rows, 0].map(u32::to_ne_bytes);
        let once = vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT;
        // SAFETY: there is one more than may be in flight, so the GPU has finished with this one. The buffer
        // has 16 bytes.
        unsafe {
            self.device.begin_command_buffer(commands, &vk::CommandBufferBeginInfo::default().flags(once))?;
            self.barrier(commands, Stage::COMPUTE_SHADER, Stage::ALL_TRANSFER);
            self.device.cmd_update_buffer(commands, self.number.raw(), 0, words.as_flattened());
            self.barrier(commands, Stage::ALL_TRANSFER, Stage::COMPUTE_SHADER);
        }
        Ok(commands)
    }

    /// Records the pass over a slot.
    ///
    /// # Safety
    /// (of this and the next three functions) `commands` must be in the recording state, for a queue of this
    /// device.
    pub unsafe fn record(&self, slot: usize, commands: vk::CommandBuffer) {
        let (device, compute, (cols, rows)) = (&self.device, vk::PipelineBindPoint::COMPUTE, self.size);
        let set = &self.sets[slot..=slot];
        // SAFETY: (also in the next three functions) the caller's promise.
        unsafe {
            device.cmd_bind_pipeline(commands, compute, self.pipeline);
            device.cmd_bind_descriptor_sets(commands, compute, self.layout, 0, set, &[]);
            device.cmd_dispatch(commands, cols.div_ceil(16), rows.div_ceil(16), 1);
        }
    }

    /// Records a reset of the counters.
    pub unsafe fn record_zero(&self, commands: vk::CommandBuffer) {
        unsafe { self.device.cmd_fill_buffer(commands, self.counts.raw(), 0, vk::WHOLE_SIZE, 0) };
    }

    /// Records a copy of the counters into 16 bytes of `to`.
    pub unsafe fn record_copy(&self, to: vk::Buffer, commands: vk::CommandBuffer) {
        let copy = [vk::BufferCopy::default().size(16)];
        unsafe {
            self.barrier(commands, Stage::COMPUTE_SHADER, Stage::ALL_TRANSFER);
            self.device.cmd_copy_buffer(commands, self.counts.raw(), to, &copy);
        }
    }

    /// Later commands see all earlier writes, and overwrite nothing that is still being read.
    unsafe fn barrier(&self, commands: vk::CommandBuffer, from: Stage, to: Stage) {
        let barriers = [vk::MemoryBarrier2::default()
            .src_stage_mask(from)
            .src_access_mask(Access::MEMORY_WRITE)
            .dst_stage_mask(to)
            .dst_access_mask(Access::MEMORY_READ | Access::MEMORY_WRITE)];
        let info = vk::DependencyInfo::default().memory_barriers(&barriers);
        unsafe { self.device.cmd_pipeline_barrier2(commands, &info) };
    }

    /// # Safety
    /// The GPU must have finished with it. After a failure that is unknown, so this is not a `Drop`.
    pub unsafe fn destroy(self) {
        let device = &self.device;
        // SAFETY: the caller's promise; all of these were made in `new`.
        unsafe {
            self.views.iter().for_each(|view| device.destroy_image_view(*view, None));
            device.destroy_command_pool(self.pool, None);
            device.destroy_descriptor_pool(self.descriptors, None);
            device.destroy_pipeline(self.pipeline, None);
            device.destroy_pipeline_layout(self.layout, None);
            device.destroy_descriptor_set_layout(self.bindings, None);
        }
    }
}

/// Compiles one entry point of `check.wgsl` to SPIR-V with wgpu's compiler. The bindings keep their numbers.
fn spirv(entry: &CStr) -> Result<Vec<u32>> {
    let module = naga::front::wgsl::parse_str(include_str!("../shaders/check.wgsl"))?;
    let mut validator = valid::Validator::new(valid::ValidationFlags::all(), valid::Capabilities::empty());
    let info = validator.validate(&module)?;
    let (shader_stage, entry_point) = (naga::ShaderStage::Compute, entry.to_str()?.to_owned());
    let entry = naga::back::spv::PipelineOptions { shader_stage, entry_point };
    Ok(naga::back::spv::write_vec(&module, &info, &Default::default(), Some(&entry))?)
}
