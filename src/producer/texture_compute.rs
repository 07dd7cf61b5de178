//! A Vulkan compute shader paints the texture and its mip chain, in the same command buffer as the draw.

use std::sync::Arc;

use ash::vk;

use super::texture_host::own_images;
use super::{DRAW_SAMPLES, Frame, FrameSync, ImageSlot, Producer, TEXTURE_FORMAT, check_texture, no_stamps};
use crate::Result;
use crate::interop::ownership::{Owner, whole_image};
use crate::interop::{ExportedImage, Ring, image::picture};
use crate::texture;
use crate::vulkan::{Device, Image, ShaderModule, create_view, image_barrier, pipeline_barrier};
use crate::wave::{self, Grid};

/// Texels of a workgroup each way, as in `shaders/paint.wgsl`.
const WORKGROUP: u32 = 8;

/// Where the draw finds it.
const LAYOUT: vk::ImageLayout = vk::ImageLayout::SHADER_READ_ONLY_OPTIMAL;

/// Paints slots with `shaders/paint.wgsl`.
pub struct TextureComputeProducer {
    pipelines: Pipelines,
    // The views of a level go before its image.
    levels: Vec<Vec<LevelView>>,
    slots: Vec<ImageSlot>,
    _view: Option<LevelView>,
    _memory: Memory,
    size: Grid,
}

enum Memory {
    Own { _images: Vec<Image> },
    Exported { _image: Arc<ExportedImage> },
}

impl TextureComputeProducer {
    /// Works on every Vulkan device.
    pub fn new(device: &Device, size: Grid, ring: Ring) -> Result<Self> {
        check_texture(device, size)?;
        let images = own_images(device, size, ring.depth(), vk::ImageUsageFlags::STORAGE)?;
        let slot = |image: &Image| ImageSlot { image: image.raw(), view: image.view(), layout: LAYOUT };
        let slots = images.iter().map(slot).collect();
        Self::with(device, size, slots, None, Memory::Own { _images: images })
    }

    /// The same with one slot in memory that was exported, though nobody imports it: to find out what that costs a draw.
    pub(super) fn exported(device: &Device, size: Grid) -> Result<Self> {
        check_texture(device, size)?;
        let request = picture(TEXTURE_FORMAT, size.cols, size.rows, texture::levels(size))?;
        let image = Arc::new(ExportedImage::new(device, &request)?);
        let view = LevelView { raw: image.create_view()?, device: device.clone() };
        let slots = vec![ImageSlot { image: image.raw(), view: view.raw, layout: LAYOUT }];
        Self::with(device, size, slots, Some(view), Memory::Exported { _image: image })
    }

    fn with(
        device: &Device,
        size: Grid,
        slots: Vec<ImageSlot>,
        view: Option<LevelView>,
        memory: Memory,
    ) -> Result<Self> {
        let levels = slots
            .iter()
            .map(|slot| {
                (0..texture::levels(size)).map(|level| LevelView::new(device, slot.image, level)).collect()
            })
            .collect::<Result<Vec<Vec<_>>>>()?;
        let pipelines = Pipelines::new(device, &levels)?;
        Ok(Self { pipelines, levels, slots, _view: view, _memory: memory, size })
    }
}

impl Producer for TextureComputeProducer {
    fn name(&self) -> &'static str {
        "compute"
    }

    fn slots(&self) -> &[vk::Buffer] {
        &[]
    }

    fn images(&self) -> &[ImageSlot] {
        &self.slots
    }

    fn produce(&mut self, _frame: &Frame) -> Result<()> {
        // All of it is in the command buffer.
        Ok(())
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame) {
        let slot = self.slot_of(frame.index);
        let image = self.slots[slot].image;
        let device = &self.pipelines.device;
        let color = vk::ImageAspectFlags::COLOR;
        let compute = vk::PipelineStageFlags2::COMPUTE_SHADER;
        let written = (vk::ImageLayout::GENERAL, (compute, vk::AccessFlags2::SHADER_STORAGE_WRITE));
        let read = (LAYOUT, (compute | DRAW_SAMPLES.stage, DRAW_SAMPLES.access));
        // All of it is written anew, so what was there may go; the draw that read it K frames ago must be done.
        let old = (vk::ImageLayout::UNDEFINED, (DRAW_SAMPLES.stage, vk::AccessFlags2::NONE));
        let reuse = image_barrier(image, color, old, written).subresource_range(whole_image());
        // SAFETY: recording, outside a render pass; the image is alive.
        unsafe { pipeline_barrier(device, commands, &[], &[reuse]) };
        for level in 0..self.levels[slot].len() as u32 {
            self.pipelines.dispatch(commands, slot, level, texture::level(self.size, level), frame.time);
            // Read by the level below, and by the draw.
            let range = whole_image().base_mip_level(level).level_count(1);
            let ready = image_barrier(image, color, written, read).subresource_range(range);
            // SAFETY: as above.
            unsafe { pipeline_barrier(device, commands, &[], &[ready]) };
        }
    }

    fn record_after_draw(&self, _commands: vk::CommandBuffer, _frame: &Frame) {}

    fn sync(&mut self, _frame: &Frame) -> Result<FrameSync> {
        Ok(FrameSync::default())
    }

    fn stamp_frames(&mut self) -> Result<()> {
        Err(no_stamps())
    }

    fn owner(&self) -> Owner {
        Owner::Queue
    }

    fn runs_in_queue(&self) -> bool {
        true
    }
}

/// A view that goes before its image.
struct LevelView {
    raw: vk::ImageView,
    device: Device,
}

impl LevelView {
    fn new(device: &Device, image: vk::Image, level: u32) -> Result<Self> {
        let raw = create_view(device, image, TEXTURE_FORMAT, vk::ImageAspectFlags::COLOR, level..level + 1)?;
        Ok(Self { raw, device: device.clone() })
    }
}

impl Drop for LevelView {
    fn drop(&mut self) {
        // SAFETY: whoever drops a resource waits first (see the module `vulkan`).
        unsafe { self.device.raw().destroy_image_view(self.raw, None) };
    }
}

/// `paint` and `reduce`, with one descriptor set a level of each slot.
struct Pipelines {
    paint: vk::Pipeline,
    reduce: vk::Pipeline,
    layout: vk::PipelineLayout,
    set_layout: vk::DescriptorSetLayout,
    pool: vk::DescriptorPool,
    sets: Vec<Vec<vk::DescriptorSet>>,
    device: Device,
}

impl Pipelines {
    fn new(device: &Device, levels: &[Vec<LevelView>]) -> Result<Self> {
        // Null handles are skipped by Drop, so each step can simply fail.
        let mut made = Self {
            paint: vk::Pipeline::null(),
            reduce: vk::Pipeline::null(),
            layout: vk::PipelineLayout::null(),
            set_layout: vk::DescriptorSetLayout::null(),
            pool: vk::DescriptorPool::null(),
            sets: Vec::new(),
            device: device.clone(),
        };
        let vk = device.raw();
        let binding = |index, kind| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(index)
                .descriptor_type(kind)
                .descriptor_count(1)
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
        };
        let bindings =
            [binding(0, vk::DescriptorType::SAMPLED_IMAGE), binding(1, vk::DescriptorType::STORAGE_IMAGE)];
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        // SAFETY: (and for all calls here) a live device, and descriptions that point to locals.
        made.set_layout = unsafe { vk.create_descriptor_set_layout(&info, None) }
            .map_err(device.failed("vkCreateDescriptorSetLayout"))?;
        let set_layouts = [made.set_layout];
        let constants = [vk::PushConstantRange::default().stage_flags(vk::ShaderStageFlags::COMPUTE).size(4)];
        let info = vk::PipelineLayoutCreateInfo::default()
            .set_layouts(&set_layouts)
            .push_constant_ranges(&constants);
        // SAFETY: as above.
        made.layout = unsafe { vk.create_pipeline_layout(&info, None) }
            .map_err(device.failed("vkCreatePipelineLayout"))?;
        let module = ShaderModule::new(device, include_bytes!(concat!(env!("OUT_DIR"), "/paint.spv")))?;
        let pipeline = |name| {
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(module.raw())
                .name(name);
            let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(made.layout)];
            // SAFETY: as above; on failure ash hands back what was made, of which there is nothing with one pipeline.
            unsafe { vk.create_compute_pipelines(vk::PipelineCache::null(), &info, None) }
                .map_err(|(_, result)| device.failed("vkCreateComputePipelines")(result))
                .map(|pipelines| pipelines[0])
        };
        made.paint = pipeline(c"paint")?;
        made.reduce = pipeline(c"reduce")?;
        made.make_sets(levels)?;
        Ok(made)
    }

    fn make_sets(&mut self, levels: &[Vec<LevelView>]) -> Result<()> {
        let device = &self.device;
        let vk = device.raw();
        let count = levels.iter().map(Vec::len).sum::<usize>() as u32;
        let size = |kind| vk::DescriptorPoolSize::default().ty(kind).descriptor_count(count);
        let sizes = [size(vk::DescriptorType::SAMPLED_IMAGE), size(vk::DescriptorType::STORAGE_IMAGE)];
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(count).pool_sizes(&sizes);
        // SAFETY: (and for all calls here) a live device, and descriptions that point to locals.
        self.pool = unsafe { vk.create_descriptor_pool(&info, None) }
            .map_err(device.failed("vkCreateDescriptorPool"))?;
        for views in levels {
            let layouts = vec![self.set_layout; views.len()];
            let info =
                vk::DescriptorSetAllocateInfo::default().descriptor_pool(self.pool).set_layouts(&layouts);
            // SAFETY: as above; the pool was sized for this.
            let sets = unsafe { vk.allocate_descriptor_sets(&info) }
                .map_err(device.failed("vkAllocateDescriptorSets"))?;
            for (level, &set) in sets.iter().enumerate() {
                let image = |view: &LevelView, layout| {
                    [vk::DescriptorImageInfo::default().image_view(view.raw).image_layout(layout)]
                };
                let target = image(&views[level], vk::ImageLayout::GENERAL);
                let above = image(&views[level.saturating_sub(1)], LAYOUT);
                let write = |index, kind| {
                    vk::WriteDescriptorSet::default().dst_set(set).dst_binding(index).descriptor_type(kind)
                };
                let target = write(1, vk::DescriptorType::STORAGE_IMAGE).image_info(&target);
                let above = write(0, vk::DescriptorType::SAMPLED_IMAGE).image_info(&above);
                // `paint` has none above.
                let writes = [target, above];
                let writes = if level == 0 { &writes[..1] } else { &writes[..] };
                // SAFETY: as above; the set is not in use.
                unsafe { vk.update_descriptor_sets(writes, &[]) };
            }
            self.sets.push(sets);
        }
        Ok(())
    }

    fn dispatch(&self, commands: vk::CommandBuffer, slot: usize, level: u32, size: Grid, time: f64) {
        let turn = wave::turn(time) as f32;
        let pipeline = if level == 0 { self.paint } else { self.reduce };
        let set = [self.sets[slot][level as usize]];
        let point = vk::PipelineBindPoint::COMPUTE;
        let vk = self.device.raw();
        // SAFETY: recording, outside a render pass; pipeline, layout and set belong together and are alive.
        unsafe {
            vk.cmd_bind_pipeline(commands, point, pipeline);
            vk.cmd_bind_descriptor_sets(commands, point, self.layout, 0, &set, &[]);
            vk.cmd_push_constants(
                commands,
                self.layout,
                vk::ShaderStageFlags::COMPUTE,
                0,
                bytemuck::bytes_of(&turn),
            );
            vk.cmd_dispatch(commands, size.cols.div_ceil(WORKGROUP), size.rows.div_ceil(WORKGROUP), 1);
        }
    }
}

impl Drop for Pipelines {
    fn drop(&mut self) {
        let vk = self.device.raw();
        // SAFETY: whoever drops a resource waits first (see the module `vulkan`); null handles are allowed.
        unsafe {
            vk.destroy_descriptor_pool(self.pool, None);
            vk.destroy_pipeline(self.paint, None);
            vk.destroy_pipeline(self.reduce, None);
            vk.destroy_pipeline_layout(self.layout, None);
            vk.destroy_descriptor_set_layout(self.set_layout, None);
        }
    }
}
