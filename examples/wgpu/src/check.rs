//! `--check` and `--alone`: the reader checks every word of every frame, and counts the wrong ones on the GPU.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cudarc::driver::DevicePtr;
use vulkan_cuda_wgpu::{Gpu, SharedRing, WgpuBuffer, WgpuSlot, WgpuTexture, picture};

use crate::kernels::{CHECK, CHECK_TEXELS, Kernel, PATTERN, PATTERN_TEXELS};

/// The result of a check.
pub struct Counts {
    pub frames: u64,
    pub words: u64,
    pub wrong: u64,
    pub microseconds: f64,
}

impl Counts {
    /// # Errors
    /// Not all words were checked.
    pub fn new(job: &Job, [words, wrong]: [u64; 2], seconds: f64) -> Result<Self> {
        let (frames, (cols, rows)) = (job.frames, job.size);
        let expected = frames * u64::from(cols) * u64::from(rows) * 4;
        ensure!(words == expected, "{words} words were checked instead of {expected}");
        Ok(Self { frames, words, wrong, microseconds: seconds * 1e6 / frames as f64 })
    }

    /// Joins the shader's counters. Each is in two halves, the lower one first.
    pub fn joined(mut halves: impl Iterator<Item = u32>) -> [u64; 2] {
        [(); 2].map(|()| {
            halves.next().zip(halves.next()).map_or(0, |(low, high)| u64::from(high) << 32 | u64::from(low))
        })
    }
}

/// What to check.
pub struct Job {
    pub texture: bool,
    /// wgpu draws the texture in a render pass.
    pub attachment: bool,
    pub frames: u64,
    /// Columns and rows of vertices or texels.
    pub size: (u32, u32),
    pub broken: Option<Broken>,
}

/// A wait to leave out. The ring has one slot then, so that the mistake shows at once.
#[derive(Clone, Copy, PartialEq)]
pub enum Broken {
    /// The reader does not wait until the slot is written.
    Ready,
    /// The writer does not wait until the slot is read.
    Free,
}

impl Job {
    fn depth(&self) -> usize {
        if self.broken.is_some() { 1 } else { 3 }
    }

    fn buffers(&self, gpu: &Gpu) -> Result<Vec<WgpuBuffer>> {
        let size = u64::from(self.size.0) * u64::from(self.size.1) * 16;
        let usage = wgpu::BufferUsages::STORAGE;
        let desc = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        (0..self.depth()).map(|_| Ok(gpu.buffer(&desc)?)).collect()
    }

    fn textures(&self, gpu: &Gpu, usage: wgpu::TextureUsages) -> Result<Vec<WgpuTexture>> {
        let desc = picture(self.size, FORMAT, usage);
        (0..self.depth()).map(|_| Ok(gpu.texture(&desc)?)).collect()
    }
}

pub const FORMAT: wgpu::TextureFormat = wgpu::TextureFormat::Rgba16Uint;

/// CUDA writes, wgpu checks.
pub fn from_cuda(gpu: &Gpu, job: &Job) -> Result<Counts> {
    let checker = Checker::new(gpu.device(), gpu.queue(), job);
    if job.texture {
        let kernel = Kernel::load(&gpu.context().new_stream()?, PATTERN_TEXELS, job.size)?;
        let slots = job.textures(gpu, wgpu::TextureUsages::TEXTURE_BINDING)?;
        let groups = checker.texture_groups("check_texture", slots.iter().map(WgpuTexture::wgpu));
        let ring = gpu.shared_ring(kernel.stream.clone(), slots)?;
        read(gpu, &checker, &kernel, ring, groups, surface, give_back)
    } else {
        let kernel = Kernel::load(&gpu.context().new_stream()?, PATTERN, job.size)?;
        let slots = job.buffers(gpu)?;
        let groups = checker.buffer_groups("check_buffer", slots.iter().map(WgpuBuffer::wgpu));
        let ring = gpu.shared_ring(kernel.stream.clone(), slots)?;
        read(gpu, &checker, &kernel, ring, groups, WgpuBuffer::cuda, |_, _| ())
    }
}

fn surface(texture: &WgpuTexture) -> u64 {
    texture.surface().raw()
}

/// Leaves a texture to CUDA after work without a turn, for `--break`. (`Gpu::submit` does this too.)
fn give_back(texture: &WgpuTexture, encoder: &mut wgpu::CommandEncoder) {
    let state = wgpu::TextureUses::STORAGE_WRITE_ONLY;
    let back = wgpu::TextureTransition { texture: texture.wgpu(), selector: None, state };
    encoder.transition_resources(std::iter::empty(), std::iter::once(back));
}

/// `address` is what the kernel takes.
fn read<S: WgpuSlot>(
    gpu: &Gpu,
    checker: &Checker,
    kernel: &Kernel,
    mut ring: SharedRing<S>,
    groups: Vec<Bound>,
    address: fn(&S) -> u64,
    give_back: fn(&S, &mut wgpu::CommandEncoder),
) -> Result<Counts> {
    let broken = checker.job.broken;
    // SAFETY: the slot has this size. In its turn it is the stream's alone; `--break` leaves that out.
    let write = |slot: &S, number| unsafe { kernel.launch(address(slot), number, 0.0) };
    let seconds = checker.run(|number| {
        if broken == Some(Broken::Free) {
            write(&ring.slots()[0], number)?;
        }
        // CUDA waits, on the GPU, until wgpu has read the slot.
        let turn = ring.write()?.context("each frame is submitted before the next one begins")?;
        if broken != Some(Broken::Free) {
            write(turn.slot(), number)?;
        }
        let frame = turn.finish_after_kernels()?; // CUDA signals.
        let index = frame.index();
        if broken == Some(Broken::Ready) {
            // Outside its turn.
            let mut encoder = gpu.device().create_command_encoder(&Default::default());
            checker.record(&mut encoder, number, &groups[index..=index]);
            give_back(frame.slot(), &mut encoder);
            gpu.queue().submit([encoder.finish()]);
            return Ok(gpu.submit(frame, |_, _| ())?);
        }
        Ok(gpu.submit(frame, |_, encoder| checker.record(encoder, number, &groups[index..=index]))?)
    })?;
    Counts::new(checker.job, checker.counts()?, seconds)
}

/// wgpu writes, CUDA checks.
pub fn to_cuda(gpu: &Gpu, job: &Job) -> Result<Counts> {
    let checker = Checker::new(gpu.device(), gpu.queue(), job);
    if job.attachment {
        let slots = job.textures(gpu, wgpu::TextureUsages::RENDER_ATTACHMENT)?;
        let (pipeline, group) = checker.drawing();
        write(gpu, job, slots, CHECK_TEXELS, surface, |slot, encoder, number, _| {
            checker.number(number);
            let view = slot.wgpu().create_view(&Default::default());
            let mut pass = encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
                color_attachments: &[Some(wgpu::RenderPassColorAttachment {
                    view: &view,
                    depth_slice: None,
                    resolve_target: None,
                    ops: Default::default(),
                })],
                ..Default::default()
            });
            pass.set_pipeline(&pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.draw(0..3, 0..1);
            drop(pass);
            give_back(slot, encoder);
        })
    } else if job.texture {
        let slots = job.textures(gpu, wgpu::TextureUsages::STORAGE_BINDING)?;
        let groups = checker.texture_groups("fill_texture", slots.iter().map(WgpuTexture::wgpu));
        write(gpu, job, slots, CHECK_TEXELS, surface, |_, encoder, number, index| {
            checker.record(encoder, number, &groups[index..=index]);
        })
    } else {
        let slots = job.buffers(gpu)?;
        let groups = checker.buffer_groups("fill_buffer", slots.iter().map(WgpuBuffer::wgpu));
        write(gpu, job, slots, CHECK, WgpuBuffer::cuda, |_, encoder, number, index| {
            checker.record(encoder, number, &groups[index..=index]);
        })
    }
}

/// `fill` records wgpu's work on a slot, in this frame, with this index.
fn write<S: WgpuSlot>(
    gpu: &Gpu,
    job: &Job,
    slots: Vec<S>,
    check: (&str, &str),
    address: fn(&S) -> u64,
    fill: impl Fn(&S, &mut wgpu::CommandEncoder, u64, usize),
) -> Result<Counts> {
    let kernel = Kernel::load(&gpu.context().new_stream()?, check, job.size)?;
    let stream = kernel.stream.clone();
    let counts = stream.alloc_zeros::<u64>(2)?;
    let (counters, _record) = counts.device_ptr(&stream);
    let mut ring = gpu.ring_to_cuda(stream.clone(), slots)?;
    // SAFETY: the slot has this size, and the counters live until the stream is idle. In its turn the slot is
    // the stream's alone; `--break` leaves that out.
    let read = |slot: &S, number| unsafe { kernel.launch(address(slot), number, counters) };
    let seconds = run(gpu.device(), job, |number| {
        if job.broken == Some(Broken::Ready) {
            read(&ring.slots()[0], number)?;
        }
        let turn = ring.write().context("CUDA was asked to read the frame before")?;
        let index = turn.index();
        let submitted = if job.broken == Some(Broken::Free) {
            // Outside its turn.
            let mut encoder = gpu.device().create_command_encoder(&Default::default());
            fill(turn.slot(), &mut encoder, number, index);
            gpu.queue().submit([encoder.finish()]);
            gpu.submit(turn, |_, _| ())?
        } else {
            gpu.submit(turn, |slot, encoder| fill(slot, encoder, number, index))?
        };
        // CUDA waits, on the GPU, until wgpu has written the slot.
        let turn = ring.next_read()?.context("a frame was submitted")?;
        if job.broken != Some(Broken::Ready) {
            read(turn.slot(), number)?;
        }
        turn.finish_after_kernels()?; // CUDA signals.
        Ok(submitted)
    })?;
    let totals = stream.clone_dtoh(&counts)?;
    stream.synchronize()?;
    Counts::new(job, [totals[0], totals[1]], seconds)
}

/// wgpu writes the same data to its own slots and checks it.
pub fn alone(device: &wgpu::Device, queue: &wgpu::Queue, job: &Job) -> Result<Counts> {
    let (cols, rows) = job.size;
    let checker = Checker::new(device, queue, job);
    let passes = if job.texture {
        let usage = wgpu::TextureUsages::TEXTURE_BINDING | wgpu::TextureUsages::STORAGE_BINDING;
        let slots: Vec<_> =
            (0..3).map(|_| device.create_texture(&picture(job.size, FORMAT, usage))).collect();
        ["fill_texture", "check_texture"].map(|entry| checker.texture_groups(entry, slots.iter()))
    } else {
        let size = u64::from(cols) * u64::from(rows) * 16;
        let usage = wgpu::BufferUsages::STORAGE;
        let desc = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        let slots: Vec<_> = (0..3).map(|_| device.create_buffer(&desc)).collect();
        ["fill_buffer", "check_buffer"].map(|entry| checker.buffer_groups(entry, slots.iter()))
    };
    let seconds = checker.run(|frame| {
        let mut encoder = device.create_command_encoder(&Default::default());
        let slot = frame as usize % 3;
        for pass in &passes {
            checker.record(&mut encoder, frame, &pass[slot..=slot]);
        }
        Ok(queue.submit([encoder.finish()]))
    })?;
    Counts::new(job, checker.counts()?, seconds)
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

    fn buffer_groups<'b>(&self, entry: &str, slots: impl Iterator<Item = &'b wgpu::Buffer>) -> Vec<Bound> {
        self.groups(entry, slots.map(|slot| (2, slot.as_entire_binding())))
    }

    fn texture_groups<'b>(&self, entry: &str, slots: impl Iterator<Item = &'b wgpu::Texture>) -> Vec<Bound> {
        let views: Vec<_> = slots.map(|slot| slot.create_view(&Default::default())).collect();
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

    /// The pipeline that draws the pattern, and its bindings.
    fn drawing(&self) -> (wgpu::RenderPipeline, wgpu::BindGroup) {
        let stage = |entry| (Some(entry), Default::default());
        let ((vertex, options), (fragment, others)) =
            (stage("attachment_vertex"), stage("attachment_fragment"));
        let pipeline = self.device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
            label: None,
            layout: None,
            vertex: wgpu::VertexState {
                module: &self.module,
                entry_point: vertex,
                compilation_options: options,
                buffers: &[],
            },
            primitive: Default::default(),
            depth_stencil: None,
            multisample: Default::default(),
            fragment: Some(wgpu::FragmentState {
                module: &self.module,
                entry_point: fragment,
                compilation_options: others,
                targets: &[Some(FORMAT.into())],
            }),
            multiview_mask: None,
            cache: None,
        });
        let entries = [wgpu::BindGroupEntry { binding: 0, resource: self.number.as_entire_binding() }];
        let layout = pipeline.get_bind_group_layout(0);
        let desc = wgpu::BindGroupDescriptor { label: None, layout: &layout, entries: &entries };
        let group = self.device.create_bind_group(&desc);
        (pipeline, group)
    }

    /// Sets the number of the frame that the next submission is for.
    fn number(&self, frame: u64) {
        let (cols, rows) = self.job.size;
        let words = [frame as u32, cols, rows, 0].map(u32::to_ne_bytes);
        self.queue.write_buffer(&self.number, 0, words.as_flattened());
    }

    /// Records one pass over a slot.
    fn record(&self, encoder: &mut wgpu::CommandEncoder, frame: u64, bound: &[Bound]) {
        self.number(frame);
        let (cols, rows) = self.job.size;
        let mut pass = encoder.begin_compute_pass(&Default::default());
        for (pipeline, group) in bound {
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, group, &[]);
            pass.dispatch_workgroups(cols.div_ceil(16), rows.div_ceil(16), 1);
        }
    }

    /// Runs all frames. Returns the seconds.
    fn run(&self, submit: impl FnMut(u64) -> Result<wgpu::SubmissionIndex>) -> Result<f64> {
        run(self.device, self.job, submit)
    }

    /// Reads the shader's counters.
    fn counts(&self) -> Result<[u64; 2]> {
        let bytes = bytes(self.device, self.queue, &self.counts)?;
        let (words, _) = bytes.as_chunks();
        Ok(Counts::joined(words.iter().map(|word| u32::from_ne_bytes(*word))))
    }
}

/// Runs all frames, a few of them in flight at once. Returns the seconds.
fn run(
    device: &wgpu::Device,
    job: &Job,
    mut submit: impl FnMut(u64) -> Result<wgpu::SubmissionIndex>,
) -> Result<f64> {
    let mut in_flight = VecDeque::new();
    let begin = Instant::now();
    for frame in 0..job.frames {
        in_flight.push_back(submit(frame)?);
        if in_flight.len() > 6 {
            wait(device, in_flight.pop_front())?;
        }
    }
    in_flight.into_iter().try_for_each(|index| wait(device, Some(index)))?;
    Ok(begin.elapsed().as_secs_f64())
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
pub fn bytes(device: &wgpu::Device, queue: &wgpu::Queue, buffer: &wgpu::Buffer) -> Result<Vec<u8>> {
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
