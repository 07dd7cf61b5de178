//! Draws the field as a lit surface, or the texture on a quad.

use std::num::NonZeroU64;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use glam::Vec3;
use glam::camera::rh::{proj::directx::perspective, view::look_at_mat4};
use vulkan_cuda_wgpu::vulkan_cuda::VulkanTurn;
use vulkan_cuda_wgpu::{self as shared, Gpu, SharedRing, WgpuBuffer, WgpuSlot, WgpuTexture};

use crate::check::{bytes, wait};
use crate::kernels::{Kernel, PAINT, WAVE};

const DEPTH: wgpu::TextureFormat = wgpu::TextureFormat::Depth32Float;
const SAMPLES: u32 = 4;
/// Frames per second of the kernels' time.
const RATE: f64 = 60.0;

/// The slots that CUDA writes, the kernel, and wgpu's bindings to the slots.
enum Source {
    Field { indices: wgpu::Buffer, count: u32, kernel: Kernel, ring: SharedRing<WgpuBuffer> },
    Texture { groups: Vec<wgpu::BindGroup>, kernel: Kernel, ring: SharedRing<WgpuTexture> },
}

/// Draws frame after frame.
pub struct Scene<'a> {
    pipeline: wgpu::RenderPipeline,
    view: wgpu::Buffer,
    view_group: Option<wgpu::BindGroup>,
    source: Source,
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
    pub fn new(gpu: &'a Gpu, textured: bool, size: (u32, u32), format: wgpu::TextureFormat) -> Result<Self> {
        let device = gpu.device();
        let module = device.create_shader_module(wgpu::include_wgsl!("shaders/draw.wgsl"));
        let [vertex, fragment] =
            if textured { ["quad_vertex", "quad_fragment"] } else { ["field_vertex", "field_fragment"] };
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
                buffers: if textured { &[] } else { &layouts },
            },
            primitive: wgpu::PrimitiveState {
                topology: match textured {
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
        let (view_group, source) = if textured {
            let kernel = Kernel::load(&gpu.context().new_stream()?, PAINT, size)?;
            let usage = wgpu::TextureUsages::TEXTURE_BINDING;
            let desc = shared::picture(size, wgpu::TextureFormat::Rgba16Float, usage);
            let slots = (0..3).map(|_| gpu.texture(&desc)).collect::<Result<Vec<_>, _>>()?;
            let sampler = device.create_sampler(&wgpu::SamplerDescriptor {
                mag_filter: wgpu::FilterMode::Linear,
                min_filter: wgpu::FilterMode::Linear,
                ..Default::default()
            });
            let bind = |slot: &WgpuTexture| {
                let painted = slot.wgpu().create_view(&Default::default());
                group(&[
                    view_entry.clone(),
                    wgpu::BindGroupEntry {
                        binding: 1,
                        resource: wgpu::BindingResource::TextureView(&painted),
                    },
                    wgpu::BindGroupEntry { binding: 2, resource: wgpu::BindingResource::Sampler(&sampler) },
                ])
            };
            let groups = slots.iter().map(bind).collect();
            let ring = gpu.shared_ring(kernel.stream.clone(), slots)?;
            (None, Source::Texture { groups, kernel, ring })
        } else {
            let kernel = Kernel::load(&gpu.context().new_stream()?, WAVE, size)?;
            let bytes = u64::from(cols) * u64::from(rows) * 16;
            let usage = wgpu::BufferUsages::VERTEX;
            let desc = wgpu::BufferDescriptor { label: None, size: bytes, usage, mapped_at_creation: false };
            let slots = (0..3).map(|_| gpu.buffer(&desc)).collect::<Result<_, _>>()?;
            let ring = gpu.shared_ring(kernel.stream.clone(), slots)?;
            let (indices, count) = grid(device, gpu.queue(), cols, rows)?;
            (Some(group(&[view_entry])), Source::Field { indices, count, kernel, ring })
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
        let (device, queue) = (self.gpu.device(), self.gpu.queue());
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
        let index = match &mut self.source {
            Source::Field { indices, count, kernel, ring } => {
                let frame = written(ring, kernel, WgpuBuffer::cuda)?;
                self.gpu.submit(frame, |slot, encoder| {
                    draw(encoder, &|pass| {
                        pass.set_bind_group(0, self.view_group.as_ref(), &[]);
                        pass.set_vertex_buffer(0, slot.wgpu().slice(..));
                        pass.set_index_buffer(indices.slice(..), wgpu::IndexFormat::Uint32);
                        pass.draw_indexed(0..*count, 0, 0..1);
                    });
                    then(encoder);
                })
            }
            Source::Texture { groups, kernel, ring } => {
                let frame = written(ring, kernel, |slot| slot.surface().raw())?;
                let group = &groups[frame.index()];
                self.gpu.submit(frame, |_, encoder| {
                    draw(encoder, &|pass| {
                        pass.set_bind_group(0, group, &[]);
                        pass.draw(0..4, 0..1);
                    });
                    then(encoder);
                })
            }
        };
        Ok(index?)
    }
}

/// CUDA writes the next frame. `address` is what the kernel takes.
fn written<S: WgpuSlot>(
    ring: &mut SharedRing<S>,
    kernel: &Kernel,
    address: fn(&S) -> u64,
) -> Result<VulkanTurn<S>> {
    // CUDA waits, on the GPU, until wgpu has read the slot.
    let turn = ring.write()?.context("each frame is submitted before the next one begins")?;
    let frame = turn.frame();
    // SAFETY: the slot has this size, and until `finish` the ring keeps it for the stream alone.
    unsafe { kernel.launch(address(turn.slot()), frame, frame as f64 / RATE) }?;
    Ok(turn.finish_after_kernels()?) // CUDA signals.
}

impl Targets {
    fn new(device: &wgpu::Device, size: (u32, u32), format: wgpu::TextureFormat) -> Self {
        let view = |format| {
            let desc = shared::picture(size, format, wgpu::TextureUsages::RENDER_ATTACHMENT);
            let target = device.create_texture(&wgpu::TextureDescriptor { sample_count: SAMPLES, ..desc });
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
pub fn picture(gpu: &Gpu, textured: bool, grid: (u32, u32), frames: u64, path: &Path) -> Result<()> {
    // In a copy, the bytes of a row must be a multiple of 256.
    let (width, height) = (1280, 720);
    let format = wgpu::TextureFormat::Rgba8UnormSrgb;
    let usage = wgpu::TextureUsages::RENDER_ATTACHMENT | wgpu::TextureUsages::COPY_SRC;
    let target = gpu.device().create_texture(&shared::picture((width, height), format, usage));
    let pixels = gpu.device().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: u64::from(width) * u64::from(height) * 4,
        usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC,
        mapped_at_creation: false,
    });
    let view = target.create_view(&Default::default());
    let mut scene = Scene::new(gpu, textured, grid, format)?;
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
        wait(gpu.device(), Some(index))?;
    }
    let file = std::io::BufWriter::new(std::fs::File::create(path)?);
    let mut encoder = png::Encoder::new(file, width, height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&bytes(gpu.device(), gpu.queue(), &pixels)?)?;
    writer.finish()?;
    Ok(())
}
