//! The shader with which `hand_offs` reads a frame. This is Vulkan alone.

use std::error::Error;

use ash::vk::{self, AccessFlags2 as Access, PipelineStageFlags2 as Stage};
use vulkan_cuda::SharedBuffer;

use super::match_devices::Gpu;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Returns the number of workgroups of `shaders/hand_offs.wgsl`. Each looks at 4096 words.
pub fn groups(words: usize) -> u32 {
    words.div_ceil(4096) as u32
}

/// The shader, and what it takes to submit it.
pub struct Reader {
    /// The timeline that counts the frames that were read. Only the CPU waits for it.
    pub done: vk::Semaphore,
    pool: vk::CommandPool,
    /// One for each frame in flight.
    pub commands: Vec<vk::CommandBuffer>,
    layout_of_sets: vk::DescriptorSetLayout,
    pool_of_sets: vk::DescriptorPool,
    sets: Vec<vk::DescriptorSet>,
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
    device: ash::Device,
}

impl Reader {
    pub fn new(gpu: &Gpu, flights: u64, slots: &[SharedBuffer], counts: &Host) -> Result<Self> {
        let (device, stage) = (gpu.device.clone(), vk::ShaderStageFlags::COMPUTE);
        let kind = vk::DescriptorType::STORAGE_BUFFER;
        let mut timeline = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let spirv = include_bytes!(concat!(env!("OUT_DIR"), "/hand_offs.check.spv"));
        let code = ash::util::read_spv(&mut std::io::Cursor::new(spirv))?;
        let binding = |place| {
            let binding = vk::DescriptorSetLayoutBinding::default().binding(place).descriptor_type(kind);
            binding.descriptor_count(1).stage_flags(stage)
        };
        // SAFETY: a live device and plain descriptions. After an error, the example ends, and the end of the process frees what was made before.
        unsafe {
            let info = vk::SemaphoreCreateInfo::default().push_next(&mut timeline);
            let done = device.create_semaphore(&info, None)?;
            let info = vk::CommandPoolCreateInfo::default().queue_family_index(gpu.family);
            let info = info.flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER);
            let pool = device.create_command_pool(&info, None)?;
            let info = vk::CommandBufferAllocateInfo::default().command_pool(pool);
            let commands = device.allocate_command_buffers(&info.command_buffer_count(flights as u32))?;
            let bindings = [binding(0), binding(1)];
            let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
            let layout_of_sets = device.create_descriptor_set_layout(&info, None)?;
            let count = slots.len() as u32;
            let sizes = [vk::DescriptorPoolSize::default().ty(kind).descriptor_count(2 * count)];
            let info = vk::DescriptorPoolCreateInfo::default().max_sets(count).pool_sizes(&sizes);
            let pool_of_sets = device.create_descriptor_pool(&info, None)?;
            let layouts = vec![layout_of_sets; slots.len()];
            let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool_of_sets);
            let sets = device.allocate_descriptor_sets(&info.set_layouts(&layouts))?;
            for (&set, slot) in sets.iter().zip(slots) {
                let whole = |raw| [vk::DescriptorBufferInfo::default().buffer(raw).range(vk::WHOLE_SIZE)];
                let (slot, counts) = (whole(slot.vulkan()), whole(counts.buffer));
                let write = vk::WriteDescriptorSet::default().dst_set(set).descriptor_type(kind);
                let writes = [write.buffer_info(&slot), write.dst_binding(1).buffer_info(&counts)];
                device.update_descriptor_sets(&writes, &[]);
            }
            let (layouts, constants) =
                ([layout_of_sets], [vk::PushConstantRange::default().stage_flags(stage).size(12)]);
            let info = vk::PipelineLayoutCreateInfo::default().set_layouts(&layouts);
            let layout = device.create_pipeline_layout(&info.push_constant_ranges(&constants), None)?;
            let info = vk::ShaderModuleCreateInfo::default().code(&code);
            let module = device.create_shader_module(&info, None)?;
            let shader = vk::PipelineShaderStageCreateInfo::default().stage(stage).module(module);
            let info = vk::ComputePipelineCreateInfo::default().stage(shader.name(c"check")).layout(layout);
            let made = device.create_compute_pipelines(vk::PipelineCache::null(), &[info], None);
            let pipeline = made.map_err(|(_, result)| result)?[0];
            device.destroy_shader_module(module, None);
            Ok(Self { done, pool, commands, layout_of_sets, pool_of_sets, sets, layout, pipeline, device })
        }
    }

    /// Records the shader, `looks` times: it compares each word of the slot with that of frame `n`.
    ///
    /// # Safety
    /// `commands` are being recorded, and everything here lives until they are done.
    pub unsafe fn record(&self, commands: vk::CommandBuffer, slot: usize, words: usize, n: u64, looks: u32) {
        let constants = [words as u32, n as u32 + 1, n as u32 * groups(words)];
        let (device, point) = (&self.device, vk::PipelineBindPoint::COMPUTE);
        let access = Access::SHADER_STORAGE_READ | Access::SHADER_STORAGE_WRITE;
        let counted =
            vk::MemoryBarrier2::default().src_stage_mask(Stage::COMPUTE_SHADER).src_access_mask(access);
        let counted = counted.dst_stage_mask(Stage::COMPUTE_SHADER | Stage::HOST);
        let counted = [counted.dst_access_mask(access | Access::HOST_READ)];
        let counted = vk::DependencyInfo::default().memory_barriers(&counted);
        // SAFETY: the caller's promise.
        unsafe {
            device.cmd_bind_pipeline(commands, point, self.pipeline);
            device.cmd_bind_descriptor_sets(commands, point, self.layout, 0, &[self.sets[slot]], &[]);
            let constants = bytemuck::bytes_of(&constants);
            device.cmd_push_constants(commands, self.layout, vk::ShaderStageFlags::COMPUTE, 0, constants);
            for _ in 0..looks {
                device.cmd_dispatch(commands, groups(words), 1, 1);
                device.cmd_pipeline_barrier2(commands, &counted);
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: the GPU is idle: `hand_offs` drops nothing before, even after an error.
        unsafe {
            self.device.destroy_pipeline(self.pipeline, None);
            self.device.destroy_pipeline_layout(self.layout, None);
            self.device.destroy_descriptor_pool(self.pool_of_sets, None);
            self.device.destroy_descriptor_set_layout(self.layout_of_sets, None);
            self.device.destroy_command_pool(self.pool, None);
            self.device.destroy_semaphore(self.done, None);
        }
    }
}

/// A buffer of Vulkan's that the CPU accesses, too. It begins with zeros.
pub struct Host {
    pub buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    mapped: *mut u32,
    words: usize,
    device: ash::Device,
}

impl Host {
    pub fn new(gpu: &Gpu, words: usize, usage: vk::BufferUsageFlags) -> Result<Self> {
        let device = gpu.device.clone();
        let info = vk::BufferCreateInfo::default().size(4 * words as u64).usage(usage);
        let wanted = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
        // SAFETY: a live device; memory of a kind and size that the buffer allows. After an error, the example ends, and the end of the process frees what was made before.
        unsafe {
            let buffer = device.create_buffer(&info, None)?;
            let needs = device.get_buffer_memory_requirements(buffer);
            let fits = |&(index, kind): &(u32, &vk::MemoryType)| {
                needs.memory_type_bits >> index & 1 == 1 && kind.property_flags.contains(wanted)
            };
            let found = (0..).zip(gpu.memory.memory_types_as_slice()).find(fits);
            let (kind, _) = found.ok_or("the GPU has no memory for the CPU")?;
            let info = vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(kind);
            let memory = device.allocate_memory(&info, None)?;
            device.bind_buffer_memory(buffer, memory, 0)?;
            let mapped =
                device.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())?.cast::<u32>();
            mapped.write_bytes(0, words);
            Ok(Self { buffer, memory, mapped, words, device })
        }
    }

    pub fn words(&mut self) -> &mut [u32] {
        // SAFETY: as many words are mapped. If the GPU still uses them, the values are arbitrary, which the check finds.
        unsafe { std::slice::from_raw_parts_mut(self.mapped, self.words) }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: the GPU is idle: `hand_offs` drops nothing before, even after an error.
        unsafe {
            self.device.destroy_buffer(self.buffer, None);
            self.device.free_memory(self.memory, None);
        }
    }
}
