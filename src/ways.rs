//! Every way to draw a frame: the hand-off of `frame.rs`, and what it is compared with.
//!
//! - *Batches.* CUDA writes several frames in a row. Vulkan draws them one by one.
//! - *Waits of the CPU* in each frame.
//! - *A compute shader* of Vulkan computes the same wave: without CUDA, and for frames without a hand-off.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use ash::{Device, vk};
use bytemuck::{Pod, Zeroable};
use gpu_allocator::MemoryLocation;
use vulkan_cuda::{Error, SharedBuffer, VulkanTurn};

use crate::draw::View;
use crate::field::Field;
use crate::frame::{Flights, Frames};
use crate::gpu::{AutoDestroy, Gpu, PATIENCE};
use crate::objects::{Buffer, Layout, memory_barrier, shader, spirv};
use crate::options::{Options, say};
use crate::swapchain::Canvas;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOff {
    /// On the GPU, CUDA and Vulkan wait for each other. The CPU does not wait for the hand-off.
    Gpu,
    /// The CPU waits too: for CUDA before it submits, and for Vulkan afterwards.
    Cpu,
    /// There is no hand-off: Vulkan draws its own vertices, which never change.
    Skipped,
}

pub struct Ways {
    // Dropped first: after a panic, this waits for the GPU.
    pub frames: Frames,
    compute: Compute,
    pub hand_off: HandOff,
    /// The number of frames that CUDA writes in a row.
    pub batch: usize,
    /// How many frames of the last batch are still to be drawn.
    unread: usize,
}

impl Ways {
    /// Creates what the frames need, and prints what writes the field.
    pub fn new(gpu: &Arc<Gpu>, canvas: Canvas, options: &Options) -> Result<Self> {
        match &gpu.cuda {
            Ok(device) => say(format_args!("{}, which is CUDA's device {}", gpu.name, device.ordinal)),
            Err(reason) => {
                say(format_args!("{}, without CUDA: {reason}\nA compute shader writes the field.", gpu.name))
            }
        }
        let grid = options.grid.unwrap_or(if gpu.is_software { [128; 2] } else { [1024; 2] });
        let [cols, rows] = grid;
        if gpu.is_software && options.grid.is_none() {
            say(format_args!("A software device is slow, so the field is small: --grid {cols}x{rows}"));
        }
        let (bytes, most) = (16 * u64::from(cols) * u64::from(rows), gpu.limits.max_storage_buffer_range);
        if bytes > u64::from(most) {
            bail!("--grid {cols}x{rows} needs {bytes} bytes, and {} binds at most {most}", gpu.name);
        }
        let is_slow = gpu.is_software && matches!(canvas, Canvas::Window(_));
        let samples = options.samples.unwrap_or(if is_slow { 1 } else { 4 });
        Ok(Self {
            frames: Frames::new(gpu, canvas, grid, options.ring as usize, samples)?,
            compute: Compute::new(gpu, grid)?,
            hand_off: if options.cpu_sync { HandOff::Cpu } else { HandOff::Gpu },
            batch: options.batch as usize,
            unread: 0,
        })
    }

    /// Draws a frame in the chosen way. Otherwise like [`Frames::draw`].
    pub fn draw(&mut self, view: &View) -> Result<bool> {
        let is_alone = self.batch == 1 && self.unread == 0;
        if self.frames.field.is_some() && self.hand_off == HandOff::Gpu && is_alone {
            return self.frames.draw(view);
        }
        let (commands, available) = self.frames.pace()?;
        let Some(image) = self.frames.acquire(available)? else { return Ok(false) };
        let read = self.next_read(view)?;
        let Self { frames: Frames { gpu, field, draw, canvas, flights }, compute, hand_off, .. } = self;
        if let (HandOff::Cpu, Some(field)) = (*hand_off, field) {
            field.wait_for_cuda()?;
        }
        gpu.begin(commands)?;
        // SAFETY: recording, outside a render pass. Slot, buffer and image live until the frame is drawn.
        unsafe {
            let target = &image.target;
            if let Some(read) = &read {
                read.record(commands, |slot| draw.record(commands, slot.vulkan(), target, view));
            } else {
                if *hand_off != HandOff::Skipped || !compute.is_written {
                    compute.record(commands, view.time);
                }
                draw.record(commands, compute.vertices.buffer.raw, target, view);
            }
        }
        gpu.end(commands)?;
        let mut submit = |ready, free| {
            // SAFETY: recorded above. Everything lives until the frame is drawn.
            unsafe { flights.submit(commands, &[ready, image.available], &[free, image.rendered]) }
        };
        match read {
            // SAFETY: one submission with both semaphores, or none and an error.
            Some(read) => unsafe { read.submit(|ready, free| submit(Some(ready), Some(free))) }?,
            None => submit(None, None)?,
        }
        if let Canvas::Window(swapchain) = canvas {
            // SAFETY: the image was acquired above, and the submission signals its semaphore.
            unsafe { swapchain.present(&image) }?;
        }
        if self.hand_off == HandOff::Cpu {
            self.frames.wait_all()?;
        }
        Ok(true)
    }

    /// Takes a frame of the last batch, or writes the next batch and takes its first frame. Returns `None` if
    /// CUDA writes nothing.
    // ANCHOR: batch
    fn next_read(&mut self, view: &View) -> Result<Option<VulkanTurn<SharedBuffer>>> {
        let field = self.frames.field.as_mut().filter(|_| self.hand_off != HandOff::Skipped);
        let Some(Field { ring, wave, .. }) = field else { return Ok(None) };
        if self.unread == 0 {
            let mut time = view.time;
            // CUDA's stream waits once, for the slot of the last frame, and signals after each kernel.
            let is_written = ring.write_batch(self.batch, |write| {
                wave.launch(&write, time)?;
                time += view.step;
                anyhow::Ok(write.finish_after_kernels()?)
            })?;
            ensure!(is_written, "the program has not submitted the frames in these slots yet");
            self.unread = self.batch;
        }
        self.unread -= 1;
        Ok(ring.next_read())
    }
    // ANCHOR_END: batch

    /// Adds or removes slots. Waits for the GPU, and gives up what is left of a batch.
    pub fn change_ring(&mut self, more: isize) -> Result<()> {
        let ring = self.frames.ring().saturating_add_signed(more).clamp(1, 32);
        self.frames.wait_all()?;
        let Frames { field, flights, gpu, .. } = &mut self.frames;
        *field = field.take().map(|field| field.with_slots(ring)).transpose()?;
        *flights = Flights::new(gpu, ring + 1)?;
        (self.unread, self.batch) = (0, self.batch.min(ring));
        Ok(())
    }

    /// Waits for the GPU, which may still use everything here. Returns `outcome`, or the error of the wait.
    pub fn close<T>(mut self, outcome: Result<T>) -> Result<T> {
        let outcome = outcome.and_then(|value| self.frames.wait_all().map(|()| value));
        // After an error, the GPU may never finish.
        let limit = if outcome.is_ok() { PATIENCE } else { PATIENCE / 5 };
        // This waits for both APIs. After a CUDA fault, it ends the waits of Vulkan's queue.
        let rest = self.frames.field.as_mut().map_or(Ok(()), |field| field.ring.wait_idle(limit));
        let is_idle = self.frames.flights.are_done(limit) && !matches!(rest, Err(Error::Timeout(_)));
        let outcome = outcome.and_then(|value| Ok(rest.map(|()| value)?));
        if !is_idle {
            // The GPU may never stop using these objects, so leak them.
            std::mem::forget(self);
        }
        outcome
    }
}

/// The period of the wave in seconds, as in `kernels/wave.cu`.
const LOOP: f64 = 20.0;
const THREADS: u32 = 256;
/// The number of workgroups in one dimension that every device supports.
const MOST_GROUPS: u32 = 65_535;

/// Must match `shaders/wave.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Constants {
    grid: [u32; 2],
    turn: f32,
}

/// The shader and its buffer. Vulkan alone uses them. One buffer is enough: a barrier makes each frame wait for the previous one.
struct Compute {
    vertices: Buffer,
    pipeline: AutoDestroy<vk::Pipeline>,
    layout: Layout,
    grid: [u32; 2],
    is_written: bool,
    gpu: Arc<Gpu>,
}

impl Compute {
    fn new(gpu: &Arc<Gpu>, grid: [u32; 2]) -> Result<Self> {
        let size = 16 * u64::from(grid[0]) * u64::from(grid[1]);
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER;
        let vertices = Buffer::new(gpu, "the vertices", size, usage, MemoryLocation::GpuOnly)?;
        let layout = Layout::new(gpu, vk::ShaderStageFlags::COMPUTE, size_of::<Constants>())?;
        let module = shader(gpu, spirv!("wave.wave"))?;
        let stage = vk::PipelineShaderStageCreateInfo::default().stage(vk::ShaderStageFlags::COMPUTE);
        let stage = stage.module(module.raw).name(c"wave");
        let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout.pipeline.raw)];
        // SAFETY: the description points to locals. The module is needed only until the pipeline is made.
        let made = unsafe { gpu.device.create_compute_pipelines(vk::PipelineCache::null(), &info, None) };
        let made = made.map(|made| made[0]).map_err(|(_, result)| result);
        let pipeline = AutoDestroy::new(gpu, "vkCreateComputePipelines", made, Device::destroy_pipeline)?;
        Ok(Self { vertices, pipeline, layout, grid, is_written: false, gpu: gpu.clone() })
    }

    /// # Safety
    /// `commands` must be recording, outside a render pass.
    unsafe fn record(&mut self, commands: vk::CommandBuffer, time: f64) {
        let constants = Constants { grid: self.grid, turn: (time / LOOP).rem_euclid(1.0) as f32 };
        let groups = (self.grid[0] * self.grid[1]).div_ceil(THREADS);
        let (across, down) = (groups.min(MOST_GROUPS), groups.div_ceil(MOST_GROUPS));
        let shaders = vk::PipelineStageFlags2::VERTEX_SHADER | vk::PipelineStageFlags2::FRAGMENT_SHADER;
        let draws = (shaders, vk::AccessFlags2::SHADER_STORAGE_READ);
        let writes = (vk::PipelineStageFlags2::COMPUTE_SHADER, vk::AccessFlags2::SHADER_STORAGE_WRITE);
        // Wait for the previous frame's draw, and let this frame's draw wait for the shader.
        let (before, after) = ([memory_barrier(draws, writes)], [memory_barrier(writes, draws)]);
        let [before, after] =
            [&before, &after].map(|barrier| vk::DependencyInfo::default().memory_barriers(barrier));
        let (device, point) = (&self.gpu.device, vk::PipelineBindPoint::COMPUTE);
        // SAFETY: the caller's promise; everything named is alive and belongs to this device.
        unsafe {
            device.cmd_pipeline_barrier2(commands, &before);
            device.cmd_bind_pipeline(commands, point, self.pipeline.raw);
            self.layout.bind(commands, point, self.vertices.buffer.raw, bytemuck::bytes_of(&constants));
            device.cmd_dispatch(commands, across, down, 1);
            device.cmd_pipeline_barrier2(commands, &after);
        }
        self.is_written = true;
    }
}
