//! wgpu draws a buffer of heights as a picture.

use vulkan_cuda_wgpu::Gpu;
use wgpu::{Buffer, BufferUsages, CommandEncoder, Texture};

use crate::check::read;

/// What `draw.wgsl` draws to.
pub const FORMAT: wgpu::TextureFormat = wgpu::TextureFormat::Rgba32Float;

pub struct Map {
    pipeline: wgpu::RenderPipeline,
    size: [u32; 2],
}

impl Map {
    /// `size` is in columns and rows of heights, and of pixels.
    pub fn new(device: &wgpu::Device, size: [u32; 2]) -> Self {
        let module = device.create_shader_module(wgpu::include_wgsl!("draw.wgsl"));
        let constants = [("cols", f64::from(size[0]))];
        let options = wgpu::PipelineCompilationOptions { constants: &constants, ..Default::default() };
        let pipeline = device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
            label: None,
            layout: None,
            vertex: wgpu::VertexState {
                module: &module,
                entry_point: None,
                compilation_options: Default::default(),
                buffers: &[],
            },
            fragment: Some(wgpu::FragmentState {
                module: &module,
                entry_point: None,
                compilation_options: options,
                targets: &[Some(FORMAT.into())],
            }),
            primitive: Default::default(),
            depth_stencil: None,
            multisample: Default::default(),
            multiview_mask: None,
            cache: None,
        });
        Self { pipeline, size }
    }

    /// Records the drawing of `heights` to `picture`.
    pub fn draw(&self, gpu: &Gpu, encoder: &mut CommandEncoder, heights: &Buffer, picture: &Texture) {
        let layout = self.pipeline.get_bind_group_layout(0);
        let entries = [wgpu::BindGroupEntry { binding: 0, resource: heights.as_entire_binding() }];
        let desc = wgpu::BindGroupDescriptor { label: None, layout: &layout, entries: &entries };
        let (group, view) = (gpu.device().create_bind_group(&desc), picture.create_view(&Default::default()));
        let (load, store) = (wgpu::LoadOp::Clear(wgpu::Color::BLACK), wgpu::StoreOp::Store);
        let ops = wgpu::Operations { load, store };
        let target =
            wgpu::RenderPassColorAttachment { view: &view, depth_slice: None, resolve_target: None, ops };
        let desc = wgpu::RenderPassDescriptor { color_attachments: &[Some(target)], ..Default::default() };
        let mut pass = encoder.begin_render_pass(&desc);
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.draw(0..3, 0..1);
    }

    /// Writes a picture that [`Map::draw`] drew to a PNG file.
    pub fn save(&self, gpu: &Gpu, picture: &Texture, path: &str) -> anyhow::Result<()> {
        let [cols, rows] = self.size;
        let (size, usage) = (u64::from(16 * cols * rows), BufferUsages::COPY_SRC | BufferUsages::COPY_DST);
        let desc = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        let buffer = gpu.device().create_buffer(&desc);
        let mut commands = gpu.device().create_command_encoder(&Default::default());
        let to = crate::rows_of(&buffer, 16 * cols);
        commands.copy_texture_to_buffer(picture.as_image_copy(), to, picture.size());
        gpu.queue().submit([commands.finish()]);
        let pixels = read(gpu, &buffer);
        let byte = |[a, b, c, d]: [u8; 4]| (f32::from_ne_bytes([a, b, c, d]) * 255.0) as u8;
        let mut bytes: Vec<_> = pixels.as_chunks().0.iter().copied().map(byte).collect();
        bytes.iter_mut().skip(3).step_by(4).for_each(|alpha| *alpha = 255); // It is the height.
        crate::save(path, self.size, &bytes)
    }
}
