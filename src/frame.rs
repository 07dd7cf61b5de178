//! One frame, from CUDA's kernel to the screen. Read [`Frames::draw`] from top to bottom.
//!
//! ```text
//! CUDA's stream   wait free >= n+1-K ── kernel writes slot ── signal ready = n+1
//!                                                                  │
//! Vulkan's queue                               wait ready >= n+1 ──┘── draw ── signal free = n+1, done = n+1
//! ```
//!
//! This is frame n, counted from 0, with K slots. `ready`, `free` and `done` are timeline semaphores. Both
//! APIs have the ring's `ready` and `free`; only Vulkan has `done`. The CPU enqueues both lines, and waits
//! only for the `done` of an earlier frame.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ash::{Device, vk};
use cudarc::driver::PushKernelArg;
use vulkan_cuda::Error;

use crate::compute::Compute;
use crate::draw::{Draw, View};
use crate::field::{Field, PARAMETERS, Vertex, failed};
use crate::gpu::{AutoDestroy, Gpu, PATIENCE, at, semaphore};
use crate::picture::Picture;
use crate::swapchain::{Acquired, Swapchain};

/// How long to wait for the GPU before checking whether CUDA has failed.
const LOOK: Duration = Duration::from_millis(100);

pub enum Canvas {
    Window(Swapchain),
    Picture(Picture),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOff {
    /// On the GPU, CUDA and Vulkan wait for each other. The CPU does not wait for the hand-off.
    Gpu,
    /// For comparison, the CPU waits too: for CUDA before it submits, and for Vulkan afterwards.
    Cpu,
    /// For comparison, there is no hand-off: Vulkan draws its own vertices, which never change.
    Skipped,
}

pub struct Frames {
    // Dropped first: after a panic, this waits for the GPU.
    flights: Flights,
    /// `None` without CUDA.
    pub field: Option<Field>,
    pub compute: Compute,
    pub draw: Draw,
    pub canvas: Canvas,
    pub hand_off: HandOff,
    /// The number of frames that CUDA writes in a row.
    pub batch: usize,
    pub gpu: Arc<Gpu>,
}

impl Frames {
    /// Draws one frame. Returns `false` if there is no image: the window is minimised, or changes its size.
    pub fn draw(&mut self, view: &View) -> Result<bool> {
        // ANCHOR: first
        // PACE. Several frames are in flight, each with its own command buffer. Wait until Vulkan has drawn
        // the frame that last used this buffer. Otherwise the CPU would enqueue frames without limit.
        let (commands, acquired) = self.pace()?;

        // ACQUIRE an image, before anything is enqueued: without an image there is no frame.
        let Some(image) = self.acquire(acquired)? else { return Ok(false) };
        // ANCHOR_END: first

        let Self { gpu, field, compute, draw, canvas, hand_off, batch, flights } = self;
        let mut read = None;
        if let Some(Field { ring, kernel, config, grid, .. }) = field
            && *hand_off != HandOff::Skipped
        {
            // ANCHOR: write
            // Take a frame of the last batch, if one is still to be drawn. Otherwise, write:
            read = ring.next_read();
            if read.is_none() {
                let ([cols, rows], mut time) = (*grid, view.time);
                // BEGIN TO WRITE one slot, or a batch to be drawn frame by frame. CUDA's stream waits, on the
                // GPU, until Vulkan has read the slot's old contents (`free`). The CPU continues at once.
                let is_written = ring.write_batch(*batch, |write| {
                    // LAUNCH the kernel. The slot belongs to CUDA as long as `write` lives.
                    let (mut vertices, number) = (write.view::<Vertex>()?, write.frame());
                    let mut launch = write.stream().launch_builder(kernel);
                    launch.arg(&mut vertices).arg(&cols).arg(&rows);
                    launch.arg(&number).arg(&time).arg(&PARAMETERS);
                    // SAFETY: the arguments match those of `wave` in kernels/wave.cu, which writes only the slot.
                    unsafe { launch.launch(*config) }.map_err(failed("cuLaunchKernel", &gpu.name))?;
                    time += view.step;
                    // HAND OVER the slot: CUDA's stream signals `ready` after the kernel (`finish` also
                    // covers copies and memsets). This returns Vulkan's right to read the slot, once.
                    anyhow::Ok(write.finish_after_kernels()?)
                })?;
                ensure!(is_written, "Vulkan still has the slots of this frame");
                read = ring.next_read();
            }
            // ANCHOR_END: write
        }
        if let (HandOff::Cpu, Some(field)) = (&hand_off, &field) {
            field.wait_for_cuda()?;
        }

        // ANCHOR: record
        // RECORD the draw. `read.record` puts it between two barriers (vkCmdPipelineBarrier): Vulkan takes
        // the slot from VK_QUEUE_FAMILY_EXTERNAL, which stands for CUDA, and gives it back.
        gpu.begin(commands)?;
        let target = &image.target;
        // SAFETY: recording, outside a render pass. Slot, buffer and image live until the frame is drawn.
        unsafe {
            if let Some(read) = &read {
                read.record(commands, |slot| draw.record(commands, slot.vulkan(), target, view));
            } else {
                // A compute shader writes the vertices. The buffer is Vulkan's alone, so a barrier is enough.
                if *hand_off != HandOff::Skipped || !compute.is_written {
                    compute.record(commands, view.time);
                }
                draw.record(commands, compute.vertices.buffer.raw, target, view);
            }
        }
        gpu.end(commands)?;
        // ANCHOR_END: record

        // ANCHOR: submit
        // SUBMIT. Vulkan's queue waits, on the GPU, for CUDA's `ready`, and signals `free` after the draw.
        let drawn = flights.signal();
        // ANCHOR: semaphores
        let submit = |ready: &[_], free: &[_]| {
            let waits = [ready, image.acquired.as_slice()].concat();
            let signals = [free, image.rendered.as_slice(), &[drawn]].concat();
            // SAFETY: recorded above. Everything lives until the frame is drawn.
            unsafe { gpu.submit(commands, &waits, &signals) }
        };
        match read {
            // SAFETY: one vkQueueSubmit2 with both semaphores, or none and an error.
            Some(read) => unsafe { read.submit(|ready, free| submit(&[ready], &[free])) }?,
            None => submit(&[], &[])?,
        }
        // ANCHOR_END: semaphores
        flights.submitted += 1;

        // PRESENT the image, once it is drawn.
        if let Canvas::Window(swapchain) = canvas {
            // SAFETY: the image was acquired above, and the submission signals its semaphore.
            unsafe { swapchain.present(&image) }?;
        }
        // ANCHOR_END: submit
        if *hand_off == HandOff::Cpu {
            self.wait_all()?;
        }
        Ok(true)
    }

    /// Creates what the frames need. `ring` is the number of slots.
    pub fn new(gpu: &Arc<Gpu>, canvas: Canvas, grid: [u32; 2], ring: usize, samples: u32) -> Result<Self> {
        let format = match &canvas {
            Canvas::Window(swapchain) => swapchain.format.format,
            Canvas::Picture(picture) => picture.image.format,
        };
        let field = gpu.cuda.as_ref().ok().map(|device| Field::new(gpu, device, grid, ring));
        let field = field.transpose().context("CUDA cannot fill the field (--compute does without it)")?;
        let mut draw = Draw::new(gpu, grid, format, samples)?;
        if let Canvas::Picture(picture) = &canvas {
            // SAFETY: no frame was drawn yet.
            unsafe { draw.fit(picture.image.extent) }?;
        }
        Ok(Self {
            field,
            compute: Compute::new(gpu, grid)?,
            draw,
            canvas,
            hand_off: HandOff::Gpu,
            batch: 1,
            flights: Flights::new(gpu, ring + 1)?,
            gpu: gpu.clone(),
        })
    }

    /// Adds or removes slots. Waits for the GPU.
    pub fn change_ring(&mut self, more: isize) -> Result<()> {
        let ring = self.ring().saturating_add_signed(more).clamp(1, 32);
        self.wait_all()?;
        self.field = self.field.take().map(|field| field.with_slots(ring)).transpose()?;
        self.flights = Flights::new(&self.gpu, ring + 1)?;
        self.batch = self.batch.min(ring);
        Ok(())
    }

    /// Returns the number of slots. One more frame may be in flight, so that only the GPU waits for a slot.
    pub fn ring(&self) -> usize {
        self.flights.all.len() - 1
    }

    /// Waits until the GPU is done with the frame that last used the next flight, and returns that flight.
    // ANCHOR: pace
    fn pace(&self) -> Result<(vk::CommandBuffer, vk::Semaphore)> {
        let Flights { all, submitted, .. } = &self.flights;
        let count = all.len() as u64;
        self.flights.wait_for((submitted + 1).saturating_sub(count), &self.field)?;
        let Flight { commands, acquired } = &all[(submitted % count) as usize];
        Ok((*commands, acquired.raw))
    }
    // ANCHOR_END: pace

    /// Acquires the next image, if there is one. `acquired` is signalled once it may be drawn on.
    fn acquire(&mut self, acquired: vk::Semaphore) -> Result<Option<Acquired>> {
        let Self { field, draw, canvas, flights, .. } = self;
        let swapchain = match canvas {
            Canvas::Window(swapchain) => swapchain,
            Canvas::Picture(picture) => return Ok(Some(Acquired::picture(&picture.image))),
        };
        if swapchain.is_stale {
            // The GPU may still use the old images.
            flights.wait_for(flights.submitted, field)?;
            if !swapchain.rebuild()? {
                return Ok(None);
            }
            // SAFETY: no frame is in flight.
            unsafe { draw.fit(swapchain.extent) }?;
        }
        // SAFETY: the previous frame with `acquired` is done, so nothing waits for it or signals it any more.
        unsafe { swapchain.acquire(acquired) }
    }

    /// Waits for all frames, and returns the pixels of the last frame; `None` for a window.
    pub fn pixels(&mut self) -> Result<Option<Vec<u8>>> {
        let (commands, _) = self.pace()?;
        let Self { gpu, field, canvas: Canvas::Picture(picture), flights, .. } = self else {
            return Ok(None);
        };
        gpu.begin(commands)?;
        // SAFETY: recording. There was a frame: `--frames` is at least 1.
        unsafe { picture.record(gpu, commands) };
        gpu.end(commands)?;
        // SAFETY: recorded above. The picture lives until the commands are done.
        unsafe { gpu.submit(commands, &[], &[flights.signal()]) }?;
        flights.submitted += 1;
        flights.wait_for(flights.submitted, field)?;
        Ok(Some(picture.pixels.bytes()?.to_vec()))
    }

    pub fn wait_all(&self) -> Result<()> {
        self.flights.wait_for(self.flights.submitted, &self.field)
    }

    /// Waits for the GPU, which may still use everything here. Returns `outcome`, or the error of the wait.
    pub fn close<T>(mut self, outcome: Result<T>) -> Result<T> {
        let outcome = outcome.and_then(|value| self.wait_all().map(|()| value));
        // After an error, the GPU may never finish.
        let limit = if outcome.is_ok() { PATIENCE } else { PATIENCE / 5 };
        // This waits for both APIs. After a CUDA fault, it ends the waits of Vulkan's queue.
        let rest = self.field.as_mut().map_or(Ok(()), |field| field.ring.wait_idle(limit));
        let is_idle = self.flights.are_done(limit) && !matches!(rest, Err(Error::Timeout(_)));
        let outcome = outcome.and_then(|value| Ok(rest.map(|()| value)?));
        if !is_idle {
            // The GPU may never stop using these objects, so leak them.
            std::mem::forget(self);
        }
        outcome
    }
}

/// What one frame in flight needs: its command buffer, and the semaphore with which it acquires its image.
struct Flight {
    commands: vk::CommandBuffer,
    acquired: AutoDestroy<vk::Semaphore>,
}

struct Flights {
    all: Vec<Flight>,
    _pool: AutoDestroy<vk::CommandPool>,
    /// The timeline that counts finished frames.
    done: AutoDestroy<vk::Semaphore>,
    submitted: u64,
    gpu: Arc<Gpu>,
}

impl Flights {
    fn new(gpu: &Arc<Gpu>, count: usize) -> Result<Self> {
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(gpu.family);
        // SAFETY: a live device.
        let pool = unsafe { gpu.device.create_command_pool(&info, None) };
        let pool = AutoDestroy::new(gpu, "vkCreateCommandPool", pool, Device::destroy_command_pool)?;
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool.raw)
            .command_buffer_count(count as u32);
        // SAFETY: the pool was made above.
        let commands = unsafe { gpu.device.allocate_command_buffers(&info) };
        let commands = gpu.check("vkAllocateCommandBuffers", commands)?.into_iter();
        let flight = |commands| Ok(Flight { commands, acquired: semaphore(gpu, vk::SemaphoreType::BINARY)? });
        Ok(Self {
            all: commands.map(flight).collect::<Result<_>>()?,
            _pool: pool,
            done: semaphore(gpu, vk::SemaphoreType::TIMELINE)?,
            submitted: 0,
            gpu: gpu.clone(),
        })
    }

    /// Waits until Vulkan has finished the first `frames` frames.
    fn wait_for(&self, frames: u64, field: &Option<Field>) -> Result<()> {
        let (mut done, mut since) = (0, Instant::now());
        while !self.gpu.wait(self.done.raw, frames, LOOK)? {
            let ring = field.as_ref().map(|field| &field.ring);
            // After a fault, CUDA signals nothing more. `check` detects that, and ends Vulkan's waits.
            ring.map_or(Ok(()), |ring| ring.check())?;
            // SAFETY: a live timeline of this device.
            let now_done = unsafe { self.gpu.device.get_semaphore_counter_value(self.done.raw) };
            let now_done = self.gpu.check("vkGetSemaphoreCounterValue", now_done)?;
            if now_done > done {
                (done, since) = (now_done, Instant::now());
            }
            if since.elapsed() > PATIENCE {
                let progress = ring.map(|ring| ring.progress()).transpose()?;
                let progress = progress.map_or(String::new(), |progress| format!(": {progress}"));
                bail!("{} did not finish a frame in {PATIENCE:?}{progress}", self.gpu.name);
            }
        }
        Ok(())
    }

    /// Returns whether Vulkan finishes everything within `limit`.
    fn are_done(&self, limit: Duration) -> bool {
        let wait = || self.gpu.wait(self.done.raw, self.submitted, limit);
        // Try a second time, because the first error may be temporary.
        wait().or_else(|_| wait()).unwrap_or(false)
    }

    fn signal(&self) -> vk::SemaphoreSubmitInfo<'static> {
        at(self.done.raw, self.submitted + 1)
    }
}

impl Drop for Flights {
    fn drop(&mut self) {
        // `close` has already waited, unless a panic skipped it.
        if std::thread::panicking() && !self.are_done(PATIENCE) {
            std::process::abort();
        }
    }
}
