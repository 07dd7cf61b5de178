//! Draws a slot, multisampled, into a picture: the field as an indexed surface, or the plane with its texture; then the
//! background behind it.

use ash::vk;
use bytemuck::{Pod, Zeroable};
use glam::{Mat4, Vec4};
use gpu_allocator::MemoryLocation;

use super::targets::{Attachments, DEPTH_FORMAT, Samples};
use super::{Camera, ColorMap, mesh};
use crate::producer::{ImageSlot, Source, Vertices};
use crate::vulkan::{
    Buffer, BufferDesc, Device, Image, ImageDesc, Queue, ShaderModule, image_barrier, pipeline_barrier,
};
use crate::wave::Grid;
use crate::{Error, Result};

/// How to cut a draw into pieces, for whoever wants to know how long each takes.
pub struct Slices<'a> {
    /// How many pieces.
    pub count: usize,
    /// Called in the render pass after each piece, with its number from 0.
    pub after: &'a dyn Fn(usize),
}

/// How to make a [`FieldRenderer`].
pub struct FieldRendererDesc {
    /// The pictures' format.
    pub format: vk::Format,
    /// Frames in flight: each has uniforms of its own.
    pub flights: usize,
    /// What is drawn.
    pub surface: Surface,
    /// What a frame holds: vertices, or texels.
    pub grid: Grid,
    /// The colours.
    pub color_map: ColorMap,
    /// Samples a pixel.
    pub samples: Samples,
}

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// A field of vertices: `shaders/field.wgsl`.
    Field,
    /// A plane with a texture: `shaders/plane.wgsl`.
    Plane,
}

/// What to draw on.
#[derive(Clone, Copy, Debug)]
pub struct Picture {
    /// The image, of the renderer's format.
    pub image: vk::Image,
    /// A view of it.
    pub view: vk::ImageView,
    /// Its size.
    pub extent: vk::Extent2D,
    /// The layout that it is left in.
    pub final_layout: vk::ImageLayout,
}

/// As in `shaders/field.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Globals {
    view_projection: Mat4,
    eye: Vec4,
    grid: [u32; 4],
}

/// The pipelines and everything that they read besides the slots.
pub struct FieldRenderer {
    pipelines: Pipelines,
    uniforms: Vec<Buffer>,
    indices: Buffer,
    index_count: u32,
    palette: Image,
    attachments: Option<Attachments>,
    format: vk::Format,
    samples: Samples,
    grid: Grid,
    surface: Surface,
    device: Device,
}

/// Vertices of the plane: two triangles.
const PLANE_VERTICES: u32 = 6;

const PALETTE_TEXELS: u32 = 256;

impl FieldRenderer {
    /// Makes pipelines and buffers, and uploads the colour map; waits for the queue.
    pub fn new(queue: &mut Queue, desc: &FieldRendererDesc) -> Result<Self> {
        let _span = tracing::trace_span!("pipelines").entered();
        let device = queue.device().clone();
        let uniforms = (0..desc.flights)
            .map(|_| {
                Buffer::new(
                    &device,
                    &BufferDesc {
                        label: "uniforms",
                        size: size_of::<Globals>() as u64,
                        usage: vk::BufferUsageFlags::UNIFORM_BUFFER,
                        location: MemoryLocation::CpuToGpu,
                    },
                )
            })
            .collect::<Result<Vec<_>>>()?;
        let tile = mesh::tile_indices();
        let indices = Buffer::filled(
            &device,
            "indices",
            bytemuck::cast_slice(&tile),
            vk::BufferUsageFlags::INDEX_BUFFER,
        )?;
        let palette = Image::new(
            &device,
            &ImageDesc {
                label: "colour map",
                extent: vk::Extent2D { width: PALETTE_TEXELS, height: 1 },
                format: vk::Format::R8G8B8A8_SRGB,
                levels: 1,
                samples: vk::SampleCountFlags::TYPE_1,
                usage: vk::ImageUsageFlags::SAMPLED | vk::ImageUsageFlags::TRANSFER_DST,
                aspect: vk::ImageAspectFlags::COLOR,
            },
        )?;
        let pipelines = Pipelines::new(&device, desc, &uniforms, &palette)?;
        let renderer = Self {
            pipelines,
            uniforms,
            indices,
            index_count: tile.len() as u32,
            palette,
            attachments: None,
            format: desc.format,
            samples: desc.samples,
            grid: desc.grid,
            surface: desc.surface,
            device,
        };
        renderer.set_color_map(queue, desc.color_map)?;
        Ok(renderer)
    }

    /// Uploads other colours; waits for the queue.
    pub fn set_color_map(&self, queue: &mut Queue, map: ColorMap) -> Result<()> {
        let texels = map.texels(PALETTE_TEXELS as usize);
        let bytes = bytemuck::cast_slice(&texels);
        let staging =
            Buffer::filled(&self.device, "colour map upload", bytes, vk::BufferUsageFlags::TRANSFER_SRC)?;
        let aspect = vk::ImageAspectFlags::COLOR;
        let sampled = (vk::PipelineStageFlags2::FRAGMENT_SHADER, vk::AccessFlags2::SHADER_SAMPLED_READ);
        let written = (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_WRITE);
        let before = image_barrier(
            self.palette.raw(),
            aspect,
            (vk::ImageLayout::UNDEFINED, (sampled.0, vk::AccessFlags2::NONE)),
            (vk::ImageLayout::TRANSFER_DST_OPTIMAL, written),
        );
        let after = image_barrier(
            self.palette.raw(),
            aspect,
            (vk::ImageLayout::TRANSFER_DST_OPTIMAL, written),
            (vk::ImageLayout::SHADER_READ_ONLY_OPTIMAL, sampled),
        );
        let region = [vk::BufferImageCopy::default()
            .image_subresource(vk::ImageSubresourceLayers::default().aspect_mask(aspect).layer_count(1))
            .image_extent(vk::Extent3D { width: PALETTE_TEXELS, height: 1, depth: 1 })];
        crate::vulkan::one_shot(queue, |commands| {
            // SAFETY: recording; image and buffer live until `one_shot` has waited for the queue.
            unsafe {
                pipeline_barrier(&self.device, commands, &[], &[before]);
                self.device.raw().cmd_copy_buffer_to_image(
                    commands,
                    staging.raw(),
                    self.palette.raw(),
                    vk::ImageLayout::TRANSFER_DST_OPTIMAL,
                    &region,
                );
                pipeline_barrier(&self.device, commands, &[], &[after]);
            }
        })
    }

    /// Whether [`FieldRenderer::resize`] must be called before a picture of this size.
    pub fn needs_resize(&self, extent: vk::Extent2D) -> bool {
        self.attachments.as_ref().is_none_or(|a| a.extent() != extent)
    }

    /// Remakes the multisampled colour and depth. No frame may be in flight.
    pub fn resize(&mut self, extent: vk::Extent2D) -> Result<()> {
        // The old ones first, so that both are never held at once.
        self.attachments = None;
        self.attachments = Some(Attachments::new(&self.device, extent, self.format, self.samples)?);
        Ok(())
    }

    /// Sets what a flight's draw looks from. Its previous frame is done.
    pub fn set_view(&mut self, flight: usize, camera: &Camera, extent: vk::Extent2D) -> Result<()> {
        let globals = Globals {
            view_projection: camera.view_projection(extent.width, extent.height),
            eye: camera.eye().extend(1.0),
            grid: [self.grid.cols, self.grid.rows, mesh::tile_count(self.grid).0, 0],
        };
        self.uniforms[flight].bytes_mut()?.copy_from_slice(bytemuck::bytes_of(&globals));
        Ok(())
    }

    /// Records the draw of `source` into `picture`: in one piece, or cut into [`Slices`].
    ///
    /// # Errors
    /// [`FieldRenderer::resize`] was not called for this size, or the source is of the other surface's kind.
    ///
    /// # Safety
    /// `commands` is recording; the flight's previous frame is done; what is drawn from is as large as the grid, alive until the
    /// frame is done, and readable: see [`crate::producer::reads`], vertices at an offset that a
    /// storage buffer may have; the picture is of the renderer's format, alive, and its previous contents and
    /// uses (up to `COLOR_ATTACHMENT_OUTPUT` and transfers) may be overwritten.
    pub unsafe fn record(
        &mut self,
        commands: vk::CommandBuffer,
        flight: usize,
        source: Source,
        picture: &Picture,
        slices: Option<Slices<'_>>,
    ) -> Result<()> {
        let extent = picture.extent;
        let tiles = mesh::tile_count(self.grid);
        let Some(attachments) = self.attachments.as_ref().filter(|a| a.extent() == extent) else {
            return Err(Error::Unsupported("the renderer was not resized to the picture".into()));
        };

        let color_writes =
            (vk::PipelineStageFlags2::COLOR_ATTACHMENT_OUTPUT, vk::AccessFlags2::COLOR_ATTACHMENT_WRITE);
        let depth_writes = (
            vk::PipelineStageFlags2::EARLY_FRAGMENT_TESTS | vk::PipelineStageFlags2::LATE_FRAGMENT_TESTS,
            vk::AccessFlags2::DEPTH_STENCIL_ATTACHMENT_WRITE,
        );
        let color = vk::ImageAspectFlags::COLOR;
        // What the picture was used for last: drawn on, presented (the acquire semaphore waits at this same stage), or
        // read back.
        let picture_before = (color_writes.0 | vk::PipelineStageFlags2::ALL_TRANSFER, color_writes.1);
        let drawable = (vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL, color_writes);
        let undefined = |scope| (vk::ImageLayout::UNDEFINED, scope);
        // With one sample the picture itself is drawn on, and the last of these is left out.
        let drawn = attachments.color.as_ref().map(|image| (image.raw(), image.view()));
        let multisampled =
            drawn.map(|(image, _)| image_barrier(image, color, undefined(color_writes), drawable));
        let begin = [
            image_barrier(
                attachments.depth.raw(),
                vk::ImageAspectFlags::DEPTH,
                undefined(depth_writes),
                (
                    vk::ImageLayout::DEPTH_STENCIL_ATTACHMENT_OPTIMAL,
                    (depth_writes.0, depth_writes.1 | vk::AccessFlags2::DEPTH_STENCIL_ATTACHMENT_READ),
                ),
            ),
            image_barrier(picture.image, color, undefined(picture_before), drawable),
            multisampled.unwrap_or_default(),
        ];
        let begin = &begin[..begin.len() - usize::from(multisampled.is_none())];
        let next_use = match picture.final_layout {
            // The present's semaphore orders what follows.
            vk::ImageLayout::PRESENT_SRC_KHR => (vk::PipelineStageFlags2::NONE, vk::AccessFlags2::NONE),
            _ => (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_READ),
        };
        let end = [image_barrier(
            picture.image,
            color,
            (vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL, color_writes),
            (picture.final_layout, next_use),
        )];

        // Field and background cover every pixel between them, so nothing need be there before.
        let target = vk::RenderingAttachmentInfo::default()
            .image_layout(vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL)
            .load_op(vk::AttachmentLoadOp::DONT_CARE);
        let colors = [match drawn {
            // Only the resolved picture is kept.
            Some((_, view)) => target
                .image_view(view)
                .store_op(vk::AttachmentStoreOp::DONT_CARE)
                .resolve_mode(vk::ResolveModeFlags::AVERAGE)
                .resolve_image_view(picture.view)
                .resolve_image_layout(vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL),
            None => target.image_view(picture.view).store_op(vk::AttachmentStoreOp::STORE),
        }];
        let depth = vk::RenderingAttachmentInfo::default()
            .image_view(attachments.depth.view())
            .image_layout(vk::ImageLayout::DEPTH_STENCIL_ATTACHMENT_OPTIMAL)
            .load_op(vk::AttachmentLoadOp::CLEAR)
            .store_op(vk::AttachmentStoreOp::DONT_CARE)
            .clear_value(vk::ClearValue {
                // Reversed depth: 0 is the farthest.
                depth_stencil: vk::ClearDepthStencilValue { depth: 0.0, stencil: 0 },
            });
        let area = vk::Rect2D { offset: vk::Offset2D::default(), extent };
        let rendering = vk::RenderingInfo::default()
            .render_area(area)
            .layer_count(1)
            .color_attachments(&colors)
            .depth_attachment(&depth);
        let viewport = vk::Viewport {
            width: extent.width as f32,
            height: extent.height as f32,
            max_depth: 1.0,
            ..Default::default()
        };
        match (self.surface, source) {
            (Surface::Field, Source::Vertices(vertices)) => {
                self.pipelines.point_at_vertices(flight, vertices, self.grid.bytes());
            }
            (Surface::Plane, Source::Texture(slot)) => self.pipelines.point_at_texture(flight, slot),
            (surface, _) => {
                return Err(Error::Unsupported(format!("{surface:?} is not drawn from {source:?}")));
            }
        }
        let plane = self.surface == Surface::Plane;
        let sets = [self.pipelines.frame_sets[flight], self.pipelines.source_sets[flight]];
        let vk = self.device.raw();
        // SAFETY: recording (the caller's promise), and every object named here is alive and of this device.
        unsafe {
            pipeline_barrier(&self.device, commands, &[], begin);
            vk.cmd_begin_rendering(commands, &rendering);
            vk.cmd_set_viewport(commands, 0, &[viewport]);
            vk.cmd_set_scissor(commands, 0, &[area]);
            vk.cmd_bind_pipeline(commands, vk::PipelineBindPoint::GRAPHICS, self.pipelines.field);
            vk.cmd_bind_descriptor_sets(
                commands,
                vk::PipelineBindPoint::GRAPHICS,
                self.pipelines.layout,
                0,
                &sets,
                &[],
            );
            vk.cmd_bind_index_buffer(commands, self.indices.raw(), 0, vk::IndexType::UINT16);
            let all = tiles.0 * tiles.1;
            let count = slices.as_ref().map_or(1, |slices| slices.count);
            for slice in 0..count {
                let (first, end) = (part(all, slice, count), part(all, slice + 1, count));
                if plane && slice == 0 {
                    vk.cmd_draw(commands, PLANE_VERTICES, 1, 0, 0);
                } else if !plane && first < end {
                    vk.cmd_draw_indexed(commands, self.index_count, end - first, 0, 0, first);
                }
                if let Some(slices) = &slices {
                    (slices.after)(slice);
                }
            }
            // Last, so that only pixels without a field are shaded.
            vk.cmd_bind_pipeline(commands, vk::PipelineBindPoint::GRAPHICS, self.pipelines.background);
            vk.cmd_draw(commands, 3, 1, 0, 0);
            vk.cmd_end_rendering(commands);
            pipeline_barrier(&self.device, commands, &[], &end);
        }
        Ok(())
    }
}

/// Where slice number `slice` of `slices` begins in `all` tiles.
fn part(all: u32, slice: usize, slices: usize) -> u32 {
    (u64::from(all) * slice as u64 / slices as u64) as u32
}

/// The two pipelines, their layout and their descriptor sets.
struct Pipelines {
    background: vk::Pipeline,
    field: vk::Pipeline,
    layout: vk::PipelineLayout,
    /// Uniforms, colour map, sampler; and what the frame is drawn from.
    set_layouts: [vk::DescriptorSetLayout; 2],
    sampler: vk::Sampler,
    /// Repeats, and goes between the levels of a mip chain.
    texture_sampler: vk::Sampler,
    pool: vk::DescriptorPool,
    frame_sets: Vec<vk::DescriptorSet>,
    /// One for each frame in flight, pointed at that frame's source when it is recorded: a producer may have any slots, and
    /// another producer others.
    source_sets: Vec<vk::DescriptorSet>,
    device: Device,
}

/// The two shaders of a picture, as SPIR-V.
struct Stages {
    vertex: &'static [u8],
    fragment: &'static [u8],
}

/// The [`Stages`] of one file of `shaders/`.
macro_rules! stages {
    ($file:literal) => {
        Stages {
            vertex: include_bytes!(concat!(env!("OUT_DIR"), "/", $file, ".vertex_main.spv")),
            fragment: include_bytes!(concat!(env!("OUT_DIR"), "/", $file, ".fragment_main.spv")),
        }
    };
}

impl Pipelines {
    fn new(device: &Device, desc: &FieldRendererDesc, uniforms: &[Buffer], palette: &Image) -> Result<Self> {
        // Null handles are skipped by Drop, so each step can simply fail.
        let mut made = Self {
            background: vk::Pipeline::null(),
            field: vk::Pipeline::null(),
            layout: vk::PipelineLayout::null(),
            set_layouts: [vk::DescriptorSetLayout::null(); 2],
            sampler: vk::Sampler::null(),
            texture_sampler: vk::Sampler::null(),
            pool: vk::DescriptorPool::null(),
            frame_sets: Vec::new(),
            source_sets: Vec::new(),
            device: device.clone(),
        };
        made.make_layouts(desc.surface)?;
        made.make_sets(desc.surface, uniforms, palette)?;
        let background = stages!("background");
        let field = match desc.surface {
            Surface::Field => stages!("field"),
            Surface::Plane => stages!("plane"),
        };
        made.background = made.make_pipeline(background, desc, vk::CompareOp::GREATER_OR_EQUAL)?;
        made.field = made.make_pipeline(field, desc, vk::CompareOp::GREATER)?;
        Ok(made)
    }

    fn make_layouts(&mut self, surface: Surface) -> Result<()> {
        let device = &self.device;
        let vk = device.raw();
        let binding = |index, kind, stages| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(index)
                .descriptor_type(kind)
                .descriptor_count(1)
                .stage_flags(stages)
        };
        let (vertex, fragment) = (vk::ShaderStageFlags::VERTEX, vk::ShaderStageFlags::FRAGMENT);
        let frame = [
            binding(0, vk::DescriptorType::UNIFORM_BUFFER, vertex | fragment),
            binding(1, vk::DescriptorType::SAMPLED_IMAGE, fragment),
            binding(2, vk::DescriptorType::SAMPLER, fragment),
        ];
        let vertices = [binding(0, vk::DescriptorType::STORAGE_BUFFER, vertex)];
        let texture = [
            binding(0, vk::DescriptorType::SAMPLED_IMAGE, fragment),
            binding(1, vk::DescriptorType::SAMPLER, fragment),
        ];
        let slot = match surface {
            Surface::Field => &vertices[..],
            Surface::Plane => &texture[..],
        };
        for (made, bindings) in self.set_layouts.iter_mut().zip([&frame[..], slot]) {
            let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(bindings);
            // SAFETY: (and for all calls here) a live device, and descriptions that point to locals.
            *made = unsafe { vk.create_descriptor_set_layout(&info, None) }
                .map_err(device.failed("vkCreateDescriptorSetLayout"))?;
        }
        let info = vk::PipelineLayoutCreateInfo::default().set_layouts(&self.set_layouts);
        // SAFETY: as above.
        self.layout = unsafe { vk.create_pipeline_layout(&info, None) }
            .map_err(device.failed("vkCreatePipelineLayout"))?;
        let info = vk::SamplerCreateInfo::default()
            .mag_filter(vk::Filter::LINEAR)
            .min_filter(vk::Filter::LINEAR)
            .address_mode_u(vk::SamplerAddressMode::CLAMP_TO_EDGE)
            .address_mode_v(vk::SamplerAddressMode::CLAMP_TO_EDGE);
        // SAFETY: as above.
        self.sampler = unsafe { vk.create_sampler(&info, None) }.map_err(device.failed("vkCreateSampler"))?;
        let info = vk::SamplerCreateInfo::default()
            .mag_filter(vk::Filter::LINEAR)
            .min_filter(vk::Filter::LINEAR)
            .mipmap_mode(vk::SamplerMipmapMode::LINEAR)
            .max_lod(vk::LOD_CLAMP_NONE)
            .address_mode_u(vk::SamplerAddressMode::REPEAT)
            .address_mode_v(vk::SamplerAddressMode::REPEAT);
        // SAFETY: as above.
        self.texture_sampler =
            unsafe { vk.create_sampler(&info, None) }.map_err(device.failed("vkCreateSampler"))?;
        Ok(())
    }

    fn make_sets(&mut self, surface: Surface, uniforms: &[Buffer], palette: &Image) -> Result<()> {
        let device = &self.device;
        let vk = device.raw();
        let frames = uniforms.len() as u32;
        let (buffers, images) = match surface {
            Surface::Field => (frames, 0),
            Surface::Plane => (0, frames),
        };
        let sizes = [
            (vk::DescriptorType::UNIFORM_BUFFER, frames),
            (vk::DescriptorType::SAMPLED_IMAGE, frames + images),
            (vk::DescriptorType::SAMPLER, frames + images),
            (vk::DescriptorType::STORAGE_BUFFER, buffers),
        ];
        // A pool size of 0 is not valid.
        let sizes: Vec<_> = sizes
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(kind, count)| vk::DescriptorPoolSize::default().ty(kind).descriptor_count(count))
            .collect();
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(2 * frames).pool_sizes(&sizes);
        // SAFETY: (and for all calls here) a live device, and descriptions that point to locals.
        self.pool = unsafe { vk.create_descriptor_pool(&info, None) }
            .map_err(device.failed("vkCreateDescriptorPool"))?;
        let allocate = |layout, count: usize| {
            let layouts = vec![layout; count];
            let info =
                vk::DescriptorSetAllocateInfo::default().descriptor_pool(self.pool).set_layouts(&layouts);
            // SAFETY: as above; the pool was sized for this.
            unsafe { vk.allocate_descriptor_sets(&info) }.map_err(device.failed("vkAllocateDescriptorSets"))
        };
        self.frame_sets = allocate(self.set_layouts[0], uniforms.len())?;
        self.source_sets = allocate(self.set_layouts[1], uniforms.len())?;

        let whole = |buffer| [vk::DescriptorBufferInfo::default().buffer(buffer).range(vk::WHOLE_SIZE)];
        let image = [vk::DescriptorImageInfo::default()
            .image_view(palette.view())
            .image_layout(vk::ImageLayout::SHADER_READ_ONLY_OPTIMAL)];
        let sampler = [vk::DescriptorImageInfo::default().sampler(self.sampler)];
        for (&set, uniform) in self.frame_sets.iter().zip(uniforms) {
            let write = |index, kind| {
                vk::WriteDescriptorSet::default().dst_set(set).dst_binding(index).descriptor_type(kind)
            };
            let uniform = whole(uniform.raw());
            let writes = [
                write(0, vk::DescriptorType::UNIFORM_BUFFER).buffer_info(&uniform),
                write(1, vk::DescriptorType::SAMPLED_IMAGE).image_info(&image),
                write(2, vk::DescriptorType::SAMPLER).image_info(&sampler),
            ];
            // SAFETY: as above; no set is in use yet.
            unsafe { vk.update_descriptor_sets(&writes, &[]) };
        }
        Ok(())
    }

    /// Points a flight's set at its frame's vertices. The flight's previous frame is done, so the set is not in use.
    fn point_at_vertices(&self, flight: usize, vertices: Vertices, bytes: u64) {
        let buffer = [vk::DescriptorBufferInfo::default()
            .buffer(vertices.buffer)
            .offset(vertices.offset)
            .range(bytes)];
        let write = [vk::WriteDescriptorSet::default()
            .dst_set(self.source_sets[flight])
            .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
            .buffer_info(&buffer)];
        // SAFETY: a live device and set, no submitted frame uses it, and the description points to locals.
        unsafe { self.device.raw().update_descriptor_sets(&write, &[]) };
    }

    /// The same with its texture.
    fn point_at_texture(&self, flight: usize, slot: ImageSlot) {
        let sampler = [vk::DescriptorImageInfo::default().sampler(self.texture_sampler)];
        let image = [vk::DescriptorImageInfo::default().image_view(slot.view).image_layout(slot.layout)];
        let write = |index, kind| {
            vk::WriteDescriptorSet::default()
                .dst_set(self.source_sets[flight])
                .dst_binding(index)
                .descriptor_type(kind)
        };
        let writes = [
            write(0, vk::DescriptorType::SAMPLED_IMAGE).image_info(&image),
            write(1, vk::DescriptorType::SAMPLER).image_info(&sampler),
        ];
        // SAFETY: as above.
        unsafe { self.device.raw().update_descriptor_sets(&writes, &[]) };
    }

    /// Depth is reversed: what is nearer is `GREATER`. The background lies at the farthest depth, which is what the depth is
    /// cleared to, so it needs `GREATER_OR_EQUAL` to show where nothing was drawn.
    fn make_pipeline(
        &self,
        spirv: Stages,
        desc: &FieldRendererDesc,
        nearer: vk::CompareOp,
    ) -> Result<vk::Pipeline> {
        let device = &self.device;
        let vertex = ShaderModule::new(device, spirv.vertex)?;
        let fragment = ShaderModule::new(device, spirv.fragment)?;
        let stage = |stage, module: &ShaderModule, name| {
            vk::PipelineShaderStageCreateInfo::default().stage(stage).module(module.raw()).name(name)
        };
        let stages = [
            stage(vk::ShaderStageFlags::VERTEX, &vertex, c"vertex_main"),
            stage(vk::ShaderStageFlags::FRAGMENT, &fragment, c"fragment_main"),
        ];
        let vertex_input = vk::PipelineVertexInputStateCreateInfo::default();
        let assembly = vk::PipelineInputAssemblyStateCreateInfo::default()
            .topology(vk::PrimitiveTopology::TRIANGLE_LIST);
        let viewport = vk::PipelineViewportStateCreateInfo::default().viewport_count(1).scissor_count(1);
        let raster = vk::PipelineRasterizationStateCreateInfo::default()
            .polygon_mode(vk::PolygonMode::FILL)
            // Both sides show: from a low camera the underside of a crest is in the picture.
            .cull_mode(vk::CullModeFlags::NONE)
            .front_face(vk::FrontFace::COUNTER_CLOCKWISE)
            .line_width(1.0);
        let multisample =
            vk::PipelineMultisampleStateCreateInfo::default().rasterization_samples(desc.samples.flags());
        let depth_stencil = vk::PipelineDepthStencilStateCreateInfo::default()
            .depth_test_enable(true)
            .depth_write_enable(true)
            .depth_compare_op(nearer);
        let blend =
            [vk::PipelineColorBlendAttachmentState::default()
                .color_write_mask(vk::ColorComponentFlags::RGBA)];
        let blend = vk::PipelineColorBlendStateCreateInfo::default().attachments(&blend);
        let dynamic = [vk::DynamicState::VIEWPORT, vk::DynamicState::SCISSOR];
        let dynamic = vk::PipelineDynamicStateCreateInfo::default().dynamic_states(&dynamic);
        let formats = [desc.format];
        let mut rendering = vk::PipelineRenderingCreateInfo::default()
            .color_attachment_formats(&formats)
            .depth_attachment_format(DEPTH_FORMAT);
        let info = [vk::GraphicsPipelineCreateInfo::default()
            .stages(&stages)
            .vertex_input_state(&vertex_input)
            .input_assembly_state(&assembly)
            .viewport_state(&viewport)
            .rasterization_state(&raster)
            .multisample_state(&multisample)
            .depth_stencil_state(&depth_stencil)
            .color_blend_state(&blend)
            .dynamic_state(&dynamic)
            .layout(self.layout)
            .push_next(&mut rendering)];
        // SAFETY: the description points to locals; on failure there is nothing to destroy with one pipeline.
        let pipelines =
            unsafe { device.raw().create_graphics_pipelines(vk::PipelineCache::null(), &info, None) }
                .map_err(|(_, result)| device.failed("vkCreateGraphicsPipelines")(result))?;
        Ok(pipelines[0])
    }
}

impl Drop for Pipelines {
    fn drop(&mut self) {
        if self.device.is_left_running() {
            return;
        }
        let vk = self.device.raw();
        // SAFETY: whoever drops a resource waits first (see the module `vulkan`); null handles are allowed.
        unsafe {
            vk.destroy_descriptor_pool(self.pool, None);
            vk.destroy_pipeline(self.background, None);
            vk.destroy_pipeline(self.field, None);
            vk.destroy_pipeline_layout(self.layout, None);
            vk.destroy_sampler(self.sampler, None);
            vk.destroy_sampler(self.texture_sampler, None);
            for layout in self.set_layouts {
                vk.destroy_descriptor_set_layout(layout, None);
            }
        }
    }
}
