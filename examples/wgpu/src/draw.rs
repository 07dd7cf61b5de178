//! Draws the field as a lit surface, or the texture on a quad.

use std::num::NonZeroU64;
use std::path::Path;

use anyhow::{Result, ensure};
use ash::vk;
use glam::Vec3;
use glam::camera::rh::{proj::directx::perspective, view::look_at_mat4};
use vulkan_cuda::{SharedBuffer, image};

use crate::check::{read, wait};
use crate::interop::texture::{Canvas, textures};
use crate::interop::{Frames, Gpu, buffers};
use crate::kernels::{Kernel, PAINT, WAVE};

const DEPTH: wgpu::TextureFormat = wgpu::TextureFormat::Depth32Float;
const SAMPLES: u32 = 4;
/// Frames per second of the kernels' time.
const RATE: f64 = 60.0;

/// The slots that CUDA writes, the kernel, and wgpu's bindings to the slots.
enum Source<'a> {
    // The bindings are first, because they must be dropped first.
    Field {
        indices: wgpu::Buffer,
        count: u32,
        kernel: Kernel,
        frames: Frames<'a, SharedBuffer, wgpu::Buffer>,
    },
    Texture {
        groups: Vec<wgpu::BindGroup>,
        kernel: Kernel,
        frames: Frames<'a, Canvas, wgpu::Texture>,
    },
}

/// Draws frame after frame.
pub struct Scene<'a> {
    pipeline: wgpu::RenderPipeline,
    view: wgpu::Buffer,
    view_group: Option<wgpu::BindGroup>,
    source: Source<'a>,
    gpu: &'a Gpu,
    format: wgpu::TextureFormat,
    targets: Option<Targets>,
}

/// The targets of the draw before it is resolved into a picture.
struct Targets {
    size: (u32, u32),
    colour: wgpu::TextureView,
    depth: wgpu::TextureView,
}

impl<'a> Scene<'a> {
    /// `size` is the size of the grid or the texture, `format` the format of the picture.
    pub fn new(gpu: &'a Gpu, texture: bool, size: (u32, u32), format: wgpu::TextureFormat) -> Result<Self> {
        let device = &gpu.device;
        let module = device.create_shader_module(wgpu::include_wgsl!("shaders/draw.wgsl"));
        let [vertex, fragment] =
            if texture { ["quad_vertex", "quad_fragment"] } else { ["field_vertex", "field_fragment"] };
        let attributes = wgpu::vertex_attr_array![0 => Float32x4];
        let layout = wgpu::VertexBufferLayout {
            array_stride: 16,
            step_mode: wgpu::VertexStepMode::Vertex,
            attributes: &attributes,
        };
        let layouts = [Some(layout)];
        let pipeline = device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
            label: None,
            layout: None,
            vertex: wgpu::VertexState {
                module: &module,
                entry_point: Some(vertex),
                compilation_options: Default::default(),
                buffers: if texture { &[] } else { &layouts },
            },
            primitive: wgpu::PrimitiveState {
                topology: match texture {
                    true => wgpu::PrimitiveTopology::TriangleStrip,
                    false => wgpu::PrimitiveTopology::TriangleList,
                },
                ..Default::default()
            },
            depth_stencil: Some(wgpu::DepthStencilState {
                format: DEPTH,
                depth_write_enabled: Some(true),
                depth_compare: Some(wgpu::CompareFunction::Less),
                stencil: Default::default(),
                bias: Default::default(),
            }),
            multisample: wgpu::MultisampleState { count: SAMPLES, ..Default::default() },
            fragment: Some(wgpu::FragmentState {
                module: &module,
                entry_point: Some(fragment),
                compilation_options: Default::default(),
                targets: &[Some(format.into())],
            }),
            multiview_mask: None,
            cache: None,
        });
        let view = device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: 80,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let bind_group_layout = pipeline.get_bind_group_layout(0);
        let group = |entries: &[wgpu::BindGroupEntry]| {
            device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &bind_group_layout,
                entries,
            })
        };
        let view_entry = wgpu::BindGroupEntry {
            binding: 0,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: &view,
                offset: 0,
                size: NonZeroU64::new(80),
            }),
        };
        let (cols, rows) = size;
        let (view_group, source) = if texture {
            let kernel = Kernel::load(&gpu.stream, PAINT, size)?;
            let request = image::picture(vk::Format::R16G16B16A16_SFLOAT, cols, rows, 1)?;
            let frames = textures(gpu, request, wgpu::TextureFormat::Rgba16Float)?;
            let sampler = device.create_sampler(&wgpu::SamplerDescriptor {
                mag_filter: wgpu::FilterMode::Linear,
                min_filter: wgpu::FilterMode::Linear,
                ..Default::default()
            });
            let bind = |texture: &wgpu::Texture| {
                let painted = texture.create_view(&Default::default());
                group(&[
                    view_entry.clone(),
                    wgpu::BindGroupEntry {
                        binding: 1,
                        resource: wgpu::BindingResource::TextureView(&painted),
                    },
                    wgpu::BindGroupEntry { binding: 2, resource: wgpu::BindingResource::Sampler(&sampler) },
                ])
            };
            let groups = frames.slots.iter().map(bind).collect();
            (None, Source::Texture { groups, kernel, frames })
        } else {
            let kernel = Kernel::load(&gpu.stream, WAVE, size)?;
            let frames = buffers(gpu, u64::from(cols) * u64::from(rows) * 16)?;
            let (indices, count) = grid(device, &gpu.queue, cols, rows)?;
            (Some(group(&[view_entry])), Source::Field { indices, count, kernel, frames })
        };
        Ok(Self { pipeline, view, view_group, source, gpu, format, targets: None })
    }

    /// CUDA writes the next frame, and wgpu draws it; `then` may record more.
    pub fn draw(
        &mut self,
        target: &wgpu::TextureView,
        size: (u32, u32),
        then: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<wgpu::SubmissionIndex> {
        let Gpu { device, queue, .. } = self.gpu;
        if self.targets.as_ref().is_none_or(|targets| targets.size != size) {
            self.targets = Some(Targets::new(device, size, self.format));
        }
        let targets = self.targets.as_ref().expect("made above");
        let eye = match self.source {
            Source::Field { .. } => Vec3::new(-1.45, 1.5, 2.3),
            Source::Texture { .. } => Vec3::new(0.0, 2.35, 1.55),
        };
        let projection = perspective(0.75, size.0 as f32 / size.1 as f32, 0.1, 10.0);
        let clip = projection * look_at_mat4(eye, Vec3::new(0.0, -0.08, 0.08), Vec3::Y);
        let mut floats = clip.to_cols_array().to_vec();
        floats.extend([eye.x, eye.y, eye.z, 0.0]);
        let bytes: Vec<_> = floats.into_iter().flat_map(f32::to_ne_bytes).collect();
        queue.write_buffer(&self.view, 0, &bytes);

        let draw = |encoder: &mut wgpu::CommandEncoder, draw: &dyn Fn(&mut wgpu::RenderPass)| {
            let background = wgpu::Color { r: 0.006, g: 0.008, b: 0.014, a: 1.0 };
            let mut pass = encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
                label: None,
                color_attachments: &[Some(wgpu::RenderPassColorAttachment {
                    view: &targets.colour,
                    depth_slice: None,
                    resolve_target: Some(target),
                    ops: wgpu::Operations {
                        load: wgpu::LoadOp::Clear(background),
                        store: wgpu::StoreOp::Discard,
                    },
                })],
                depth_stencil_attachment: Some(wgpu::RenderPassDepthStencilAttachment {
                    view: &targets.depth,
                    depth_ops: Some(wgpu::Operations {
                        load: wgpu::LoadOp::Clear(1.0),
                        store: wgpu::StoreOp::Discard,
                    }),
                    stencil_ops: None,
                }),
                ..Default::default()
            });
            pass.set_pipeline(&self.pipeline);
            draw(&mut pass);
        };
        match &mut self.source {
            Source::Field { indices, count, kernel, frames } => {
                let slots = frames.slots.clone();
                frames.frame(
                    true,
                    // SAFETY: the buffer has this size, and until then the ring keeps it for the stream alone.
                    |buffer, frame| unsafe { kernel.launch(buffer.cuda(), frame, frame as f64 / RATE) },
                    |slot, encoder| {
                        draw(encoder, &|pass| {
                            pass.set_bind_group(0, self.view_group.as_ref(), &[]);
                            pass.set_vertex_buffer(0, slots[slot].slice(..));
                            pass.set_index_buffer(indices.slice(..), wgpu::IndexFormat::Uint32);
                            pass.draw_indexed(0..*count, 0, 0..1);
                        });
                        then(encoder);
                    },
                )
            }
            Source::Texture { groups, kernel, frames } => frames.frame(
                true,
                // SAFETY: as above.
                |canvas, frame| unsafe { kernel.launch(canvas.surface.raw(), frame, frame as f64 / RATE) },
                |slot, encoder| {
                    draw(encoder, &|pass| {
                        pass.set_bind_group(0, &groups[slot], &[]);
                        pass.draw(0..4, 0..1);
                    });
                    then(encoder);
                },
            ),
        }
    }
}

impl Targets {
    fn new(device: &wgpu::Device, size: (u32, u32), format: wgpu::TextureFormat) -> Self {
        let view = |format| {
            let target = device.create_texture(&wgpu::TextureDescriptor {
                label: None,
                size: wgpu::Extent3d { width: size.0, height: size.1, depth_or_array_layers: 1 },
                mip_level_count: 1,
                sample_count: SAMPLES,
                dimension: wgpu::TextureDimension::D2,
                format,
                usage: wgpu::TextureUsages::RENDER_ATTACHMENT,
                view_formats: &[],
            });
            target.create_view(&Default::default())
        };
        Self { size, colour: view(format), depth: view(DEPTH) }
    }
}

/// Two triangles for each cell of a grid.
fn grid(device: &wgpu::Device, queue: &wgpu::Queue, cols: u32, rows: u32) -> Result<(wgpu::Buffer, u32)> {
    let cells = (0..rows - 1).flat_map(|row| (0..cols - 1).map(move |col| row * cols + col));
    let corners = cells.flat_map(|at| [at, at + cols, at + 1, at + 1, at + cols, at + cols + 1]);
    let bytes: Vec<_> = corners.flat_map(u32::to_ne_bytes).collect();
    let size = bytes.len() as u64;
    ensure!(size <= device.limits().max_buffer_size, "a grid of {cols}x{rows} has too many triangles");
    let usage = wgpu::BufferUsages::INDEX | wgpu::BufferUsages::COPY_DST;
    let indices =
        device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false });
    queue.write_buffer(&indices, 0, &bytes);
    Ok((indices, bytes.len() as u32 / 4))
}

/// Draws `frames` frames and keeps the last as a picture.
pub fn picture(gpu: &Gpu, texture: bool, grid: (u32, u32), frames: u64, path: &Path) -> Result<()> {
    // In a copy, the bytes of a row must be a multiple of 256.
    let (width, height) = (1280, 720);
    let format = wgpu::TextureFormat::Rgba8UnormSrgb;
    let target = gpu.device.create_texture(&wgpu::TextureDescriptor {
        label: None,
        size: wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format,
        usage: wgpu::TextureUsages::RENDER_ATTACHMENT | wgpu::TextureUsages::COPY_SRC,
        view_formats: &[],
    });
    let pixels = gpu.device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: u64::from(width) * u64::from(height) * 4,
        usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC,
        mapped_at_creation: false,
    });
    let view = target.create_view(&Default::default());
    let mut scene = Scene::new(gpu, texture, grid, format)?;
    for frame in 1..=frames {
        let index = scene.draw(&view, (width, height), |encoder| {
            if frame < frames {
                return;
            }
            let layout = wgpu::TexelCopyBufferLayout {
                offset: 0,
                bytes_per_row: Some(width * 4),
                rows_per_image: None,
            };
            let buffer = wgpu::TexelCopyBufferInfo { buffer: &pixels, layout };
            encoder.copy_texture_to_buffer(target.as_image_copy(), buffer, target.size());
        })?;
        wait(&gpu.device, Some(index))?;
    }
    let file = std::io::BufWriter::new(std::fs::File::create(path)?);
    let mut encoder = png::Encoder::new(file, width, height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&read(&gpu.device, &gpu.queue, &pixels)?)?;
    writer.finish()?;
    Ok(())
}
