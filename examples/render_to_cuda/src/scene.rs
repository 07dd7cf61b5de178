//! wgpu's part: draws a disc.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use vulkan_cuda_wgpu::Gpu;

const FORMAT: wgpu::TextureFormat = wgpu::TextureFormat::Rgba8Unorm;

pub struct Scene {
    pipeline: wgpu::RenderPipeline,
    size: (u32, u32),
}

impl Scene {
    pub fn new(device: &wgpu::Device, size: (u32, u32)) -> Self {
        let module = device.create_shader_module(wgpu::include_wgsl!("disc.wgsl"));
        let constants = [("cols", f64::from(size.0)), ("rows", f64::from(size.1))];
        let pipeline = device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
            label: None,
            layout: None,
            vertex: wgpu::VertexState {
                module: &module,
                entry_point: Some("corner"),
                compilation_options: Default::default(),
                buffers: &[],
            },
            primitive: Default::default(),
            depth_stencil: None,
            multisample: Default::default(),
            fragment: Some(wgpu::FragmentState {
                module: &module,
                entry_point: Some("colour"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    constants: &constants,
                    ..Default::default()
                },
                targets: &[Some(FORMAT.into())],
            }),
            multiview_mask: None,
            cache: None,
        });
        Self { pipeline, size }
    }

    /// Describes a picture.
    pub fn picture(&self) -> wgpu::TextureDescriptor<'static> {
        vulkan_cuda_wgpu::picture(self.size, FORMAT, wgpu::TextureUsages::RENDER_ATTACHMENT)
    }

    /// Records the drawing of a frame.
    pub fn draw(&self, encoder: &mut wgpu::CommandEncoder, picture: &wgpu::Texture, frame: u32) {
        let view = picture.create_view(&Default::default());
        let mut pass = encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
            color_attachments: &[Some(wgpu::RenderPassColorAttachment {
                view: &view,
                depth_slice: None,
                resolve_target: None,
                ops: Default::default(),
            })],
            ..Default::default()
        });
        pass.set_pipeline(&self.pipeline);
        pass.draw(0..3, frame..frame + 1);
    }

    /// Where the disc of a frame is, in pixels: as in `disc.wgsl`.
    pub fn centre(&self, frame: u32) -> [f64; 2] {
        let step = |step: u32, of: u32| f64::from(frame.wrapping_mul(step) % of) / f64::from(of);
        let place = |size: u32, step: f64| f64::from(size) * (0.2 + 0.6 * step);
        [place(self.size.0, step(37, 101)), place(self.size.1, step(59, 103))]
    }

    /// Waits for a submission, at most 10 s.
    pub fn wait(&self, gpu: &Gpu, submission_index: Option<wgpu::SubmissionIndex>) -> Result<()> {
        if submission_index.is_some() {
            let timeout = Some(Duration::from_secs(10));
            let done = gpu.device().poll(wgpu::PollType::Wait { submission_index, timeout });
            done.context("the GPU did not finish a frame")?;
        }
        Ok(())
    }

    /// Draws frames that nobody looks at. Returns the µs of a frame.
    pub fn draw_alone(&self, gpu: &Gpu, frames: u32) -> Result<f64> {
        let picture = gpu.device().create_texture(&self.picture());
        let mut in_flight = VecDeque::new();
        let begin = Instant::now();
        for frame in 0..frames {
            let mut encoder = gpu.device().create_command_encoder(&Default::default());
            self.draw(&mut encoder, &picture, frame);
            in_flight.push_back(gpu.queue().submit([encoder.finish()]));
            if in_flight.len() > 8 {
                self.wait(gpu, in_flight.pop_front())?;
            }
        }
        in_flight.into_iter().try_for_each(|index| self.wait(gpu, Some(index)))?;
        Ok(begin.elapsed().as_secs_f64() * 1e6 / f64::from(frames))
    }
}
