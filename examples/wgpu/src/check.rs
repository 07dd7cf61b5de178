//! `--check` and `--alone`: a compute pass checks every word of every frame, and counts the wrong ones on the GPU.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ash::vk;
use vulkan_cuda::image;

use crate::interop::texture::textures;
use crate::interop::{self, Gpu};
use crate::kernels::{Kernel, PATTERN, PATTERN_TEXELS};

/// The result of a check.
pub struct Counts {
    pub frames: u64,
    pub words: u64,
    pub wrong: u64,
    pub microseconds: f64,
}

impl Counts {
    /// Reads the shader's counters. Each is in two halves, the lower one first.
    ///
    /// # Errors
    /// Not all words were checked.
    pub fn new(job: &Job, mut halves: impl Iterator<Item = u32>, seconds: f64) -> Result<Self> {
        let mut count = || {
            halves.next().zip(halves.next()).map_or(0, |(low, high)| u64::from(high) << 32 | u64::from(low))
        };
        let (frames, (cols, rows)) = (job.frames, job.size);
        let (words, wrong) = (count(), count());
        let expected = frames * u64::from(cols) * u64::from(rows) * 4;
        ensure!(words == expected, "{words} words were checked instead of {expected}");
        Ok(Self { frames, words, wrong, microseconds: seconds * 1e6 / frames as f64 })
    }
}

/// What to check.
pub struct Job {
    pub texture: bool,
    pub frames: u64,
    /// Columns and rows of vertices or texels.
    pub size: (u32, u32),
    /// Whether the check waits for CUDA.
    pub wait: bool,
}

pub const FORMAT: wgpu::TextureFormat = wgpu::TextureFormat::Rgba16Uint;

/// CUDA writes, wgpu checks.
pub fn shared(gpu: &Gpu, job: &Job) -> Result<Counts> {
    let (cols, rows) = job.size;
    let checker = Checker::new(&gpu.device, &gpu.queue, job);
    if job.texture {
        let kernel = Kernel::load(&gpu.stream, PATTERN_TEXELS, job.size)?;
        let mut frames =
            textures(gpu, image::picture(vk::Format::R16G16B16A16_UINT, cols, rows, 1)?, FORMAT)?;
        let groups = checker.texture_groups("check_texture", &frames.slots);
        checker.run(|pace| {
            frames.frame(
                job.wait,
                // SAFETY: the image has this size, and until then the ring keeps it for the stream alone.
                |canvas, frame| unsafe { kernel.launch(canvas.surface.raw(), frame, 0.0) },
                |slot, encoder| checker.record(encoder, pace, &groups[slot..=slot]),
            )
        })
    } else {
        let kernel = Kernel::load(&gpu.stream, PATTERN, job.size)?;
        let mut frames = interop::buffers(gpu, u64::from(cols) * u64::from(rows) * 16)?;
        let groups = checker.buffer_groups("check_buffer", &frames.slots);
        checker.run(|frame| {
            frames.frame(
                job.wait,
                // SAFETY: as above.
                |buffer, number| unsafe { kernel.launch(buffer.cuda(), number, 0.0) },
                |slot, encoder| checker.record(encoder, frame, &groups[slot..=slot]),
            )
        })
    }
}

/// wgpu writes the same data to its own slots and checks it.
pub fn alone(device: &wgpu::Device, queue: &wgpu::Queue, job: &Job) -> Result<Counts> {
    let (cols, rows) = job.size;
    let checker = Checker::new(device, queue, job);
    let passes = if job.texture {
        let size = wgpu::Extent3d { width: cols, height: rows, depth_or_array_layers: 1 };
        let slots: Vec<_> = (0..3)
            .map(|_| {
                device.create_texture(&wgpu::TextureDescriptor {
                    label: None,
                    size,
                    mip_level_count: 1,
                    sample_count: 1,
                    dimension: wgpu::TextureDimension::D2,
                    format: FORMAT,
                    usage: wgpu::TextureUsages::TEXTURE_BINDING | wgpu::TextureUsages::STORAGE_BINDING,
                    view_formats: &[],
                })
            })
            .collect();
        [checker.texture_groups("fill_texture", &slots), checker.texture_groups("check_texture", &slots)]
    } else {
        let size = u64::from(cols) * u64::from(rows) * 16;
        let usage = wgpu::BufferUsages::STORAGE;
        let desc = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        let slots: Vec<_> = (0..3).map(|_| device.create_buffer(&desc)).collect();
        [checker.buffer_groups("fill_buffer", &slots), checker.buffer_groups("check_buffer", &slots)]
    };
    checker.run(|frame| {
        let mut encoder = device.create_command_encoder(&Default::default());
        let slot = frame as usize % 3;
        for pass in &passes {
            checker.record(&mut encoder, frame, &pass[slot..=slot]);
        }
        Ok(queue.submit([encoder.finish()]))
    })
}

/// A pipeline with one slot bound.
type Bound = (wgpu::ComputePipeline, wgpu::BindGroup);

struct Checker<'a> {
    device: &'a wgpu::Device,
    queue: &'a wgpu::Queue,
    job: &'a Job,
    module: wgpu::ShaderModule,
    number: wgpu::Buffer,
    counts: wgpu::Buffer,
}

impl<'a> Checker<'a> {
    fn new(device: &'a wgpu::Device, queue: &'a wgpu::Queue, job: &'a Job) -> Self {
        use wgpu::BufferUsages as Usage;
        let buffer = |usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: 16,
                usage,
                mapped_at_creation: false,
            })
        };
        Self {
            device,
            queue,
            job,
            module: device.create_shader_module(wgpu::include_wgsl!("shaders/check.wgsl")),
            number: buffer(Usage::UNIFORM | Usage::COPY_DST),
            counts: buffer(Usage::STORAGE | Usage::COPY_SRC),
        }
    }

    fn buffer_groups(&self, entry: &str, slots: &[wgpu::Buffer]) -> Vec<Bound> {
        self.groups(entry, slots.iter().map(|slot| (2, slot.as_entire_binding())))
    }

    fn texture_groups(&self, entry: &str, slots: &[wgpu::Texture]) -> Vec<Bound> {
        let views: Vec<_> = slots.iter().map(|slot| slot.create_view(&Default::default())).collect();
        self.groups(entry, views.iter().map(|view| (3, wgpu::BindingResource::TextureView(view))))
    }

    fn groups<'b>(
        &self,
        entry: &str,
        slots: impl Iterator<Item = (u32, wgpu::BindingResource<'b>)>,
    ) -> Vec<Bound> {
        let pipeline = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(entry),
            layout: None,
            module: &self.module,
            entry_point: Some(entry),
            compilation_options: Default::default(),
            cache: None,
        });
        let layout = pipeline.get_bind_group_layout(0);
        slots
            .map(|(binding, resource)| {
                let mut entries = vec![
                    wgpu::BindGroupEntry { binding: 0, resource: self.number.as_entire_binding() },
                    wgpu::BindGroupEntry { binding, resource },
                ];
                if entry.starts_with("check") {
                    entries
                        .push(wgpu::BindGroupEntry { binding: 1, resource: self.counts.as_entire_binding() });
                }
                let desc = wgpu::BindGroupDescriptor { label: None, layout: &layout, entries: &entries };
                (pipeline.clone(), self.device.create_bind_group(&desc))
            })
            .collect()
    }

    /// Records one pass over a slot.
    fn record(&self, encoder: &mut wgpu::CommandEncoder, frame: u64, bound: &[Bound]) {
        let (cols, rows) = self.job.size;
        let words = [frame as u32, cols, rows, 0].map(u32::to_ne_bytes);
        self.queue.write_buffer(&self.number, 0, words.as_flattened());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        for (pipeline, group) in bound {
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, group, &[]);
            pass.dispatch_workgroups(cols.div_ceil(16), rows.div_ceil(16), 1);
        }
    }

    /// Runs all frames, a few of them in flight at once.
    fn run(&self, mut submit: impl FnMut(u64) -> Result<wgpu::SubmissionIndex>) -> Result<Counts> {
        let mut in_flight = VecDeque::new();
        let begin = Instant::now();
        for frame in 0..self.job.frames {
            in_flight.push_back(submit(frame)?);
            if in_flight.len() > 6 {
                wait(self.device, in_flight.pop_front())?;
            }
        }
        wait(self.device, in_flight.pop_back())?;
        let seconds = begin.elapsed().as_secs_f64();

        let bytes = read(self.device, self.queue, &self.counts)?;
        let (words, _) = bytes.as_chunks();
        Counts::new(self.job, words.iter().map(|word| u32::from_ne_bytes(*word)), seconds)
    }
}

/// Waits for a submission, at most 10 s.
pub fn wait(device: &wgpu::Device, submission_index: Option<wgpu::SubmissionIndex>) -> Result<()> {
    let timeout = Some(Duration::from_secs(10));
    device
        .poll(wgpu::PollType::Wait { submission_index, timeout })
        .context("the GPU did not finish a frame")?;
    Ok(())
}

/// Reads a buffer.
pub fn read(device: &wgpu::Device, queue: &wgpu::Queue, buffer: &wgpu::Buffer) -> Result<Vec<u8>> {
    let copy = device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: buffer.size(),
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let mut encoder = device.create_command_encoder(&Default::default());
    encoder.copy_buffer_to_buffer(buffer, 0, &copy, 0, buffer.size());
    let index = queue.submit([encoder.finish()]);
    copy.slice(..).map_async(wgpu::MapMode::Read, |_| ());
    wait(device, Some(index))?;
    Ok(copy.slice(..).get_mapped_range()?.to_vec())
}
