//! One frame, from CUDA's kernel to the screen. Read [`Frames::draw`] from top to bottom.
//!
//! Frame n, counted from 0, uses slot n mod K. K is the number of slots. Two timelines order CUDA and Vulkan
//! on the GPU. A timeline is a counter that begins at 0 and only grows, so frame n signals n + 1 on both:
//!
//! ```text
//! CUDA's stream   wait free >= n+1-K ── kernel writes slot ── signal ready = n+1
//!                                                                  │
//! Vulkan's queue                               wait ready >= n+1 ──┘── draw reads slot ── signal free = n+1
//! ```
//!
//! With K = 3, frame 5 uses slot 2: CUDA waits for `free` >= 3 and signals `ready` = 6; Vulkan waits for
//! `ready` >= 6 and signals `free` = 6. The first K frames need not wait for `free`: their slots are new.
//!
//! **Why no frame is torn.** Frame n-K used the same slot, and Vulkan signals `free` = n+1-K when it has drawn
//! that frame. If CUDA did not wait for it, the kernel would overwrite a slot that Vulkan still draws, and the
//! picture of frame n-K would show parts of frame n. CUDA signals `ready` = n+1 when the kernel is done. If
//! Vulkan did not wait for it, the picture of frame n would show frame n-K, or parts of it. No driver and no
//! validation layer reports either mistake. PACE does not protect the slot: K + 1 frames may be in flight, so frame n-K
//! may still be drawn while the CPU enqueues frame n.
//!
//! The CPU enqueues both lines, and waits neither for `free` nor for `ready`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ash::{Device, vk};

use crate::draw::{Draw, View};
use crate::field::Field;
use crate::gpu::{AutoDestroy, Gpu, PATIENCE, at, semaphore};
use crate::swapchain::{Canvas, Drawable};

/// How long to wait for the GPU before checking whether CUDA has failed.
const LOOK: Duration = Duration::from_millis(100);

pub struct Frames {
    // Dropped first: after a panic, this waits for the GPU.
    pub flights: Flights,
    /// `None` without CUDA.
    pub field: Option<Field>,
    pub draw: Draw,
    pub canvas: Canvas,
    pub gpu: Arc<Gpu>,
}

impl Frames {
    /// Draws frame n. Returns `false` if there is no image: the window is minimised, or changes its size.
    pub fn draw(&mut self, view: &View) -> Result<bool> {
        // ANCHOR: first
        // PACE. Each frame in flight has its own command buffer. Wait until the GPU is done with the frame
        // that used this one before, frame n-1-K. Otherwise the CPU would enqueue frames without limit.
        let (commands, available) = self.pace()?;

        // ACQUIRE an image, before anything is enqueued: without an image there is no frame.
        let Some(image) = self.acquire(available)? else { return Ok(false) };
        // ANCHOR_END: first

        let Self { gpu, field, draw, canvas, flights } = self;
        let Field { ring, wave, .. } = field.as_mut().context("a hand-off needs CUDA")?;

        // ANCHOR: write
        // BEGIN TO WRITE slot n mod K. CUDA's stream waits, on the GPU, for `free` >= n+1-K. The CPU goes on.
        let write = ring.write()?.context("the program has not submitted the last frame of this slot")?;

        // LAUNCH the kernel. What the stream does from here on may write the slot.
        wave.launch(&write, view.time)?;

        // HAND OVER the slot. After the kernel, CUDA's stream signals `ready` = n+1. From here on Vulkan may
        // read the slot, after its wait. (After a copy or a memset, call `finish` instead.)
        let read = write.finish_after_kernels()?;
        // ANCHOR_END: write

        // ANCHOR: record
        // RECORD the draw between two barriers (vkCmdPipelineBarrier): Vulkan takes the slot from
        // VK_QUEUE_FAMILY_EXTERNAL, which stands for CUDA, and gives it back.
        gpu.begin(commands)?;
        // SAFETY: recording, outside a render pass. Slot and image live until the frame is drawn.
        unsafe {
            read.record(commands, |slot| draw.record(commands, slot.vulkan(), &image.target, view));
        }
        gpu.end(commands)?;
        // ANCHOR_END: record

        // ANCHOR: submit
        // SUBMIT, once. Before the draw, Vulkan's queue waits, on the GPU, for `ready` >= n+1, and for the
        // image. After the draw, it signals `free` = n+1, and `rendered` for the present.
        let enqueue = |wait_ready, signal_free| {
            let waits = [Some(wait_ready), image.available];
            let signals = [Some(signal_free), image.rendered];
            // SAFETY: recorded above. Everything lives until the frame is drawn.
            unsafe { flights.submit(commands, &waits, &signals) }
        };
        // SAFETY: `enqueue` makes one submission, with both semaphores. If that fails, it returns the error.
        unsafe { read.submit(enqueue) }?;

        // PRESENT the image, once it is drawn.
        if let Canvas::Window(swapchain) = canvas {
            // SAFETY: the image was acquired above, and the submission signals its semaphore.
            unsafe { swapchain.present(&image) }?;
        }
        // ANCHOR_END: submit
        Ok(true)
    }

    /// Creates what the frames need. `ring` is the number of slots.
    pub fn new(gpu: &Arc<Gpu>, canvas: Canvas, grid: [u32; 2], ring: usize, samples: u32) -> Result<Self> {
        let field = gpu.cuda.as_ref().ok().map(|device| Field::new(gpu, device, grid, ring));
        let field = field.transpose().context("CUDA cannot fill the field (--compute does without it)")?;
        let (format, extent) = match &canvas {
            Canvas::Window(swapchain) => (swapchain.format.format, None), // `acquire` finds its extent.
            Canvas::Picture(picture) => (picture.image.format, Some(picture.image.extent)),
        };
        let mut draw = Draw::new(gpu, grid, format, samples)?;
        // SAFETY: no frame was drawn yet.
        extent.map_or(Ok(()), |extent| unsafe { draw.fit(extent) })?;
        Ok(Self { field, draw, canvas, flights: Flights::new(gpu, ring + 1)?, gpu: gpu.clone() })
    }

    /// Returns the number of slots. One more frame may be in flight, so that only the GPU waits for a slot.
    pub fn ring(&self) -> usize {
        self.flights.all.len() - 1
    }

    /// Waits until the GPU is done with the frame that last used the next flight. Returns that flight.
    // ANCHOR: pace
    pub fn pace(&self) -> Result<(vk::CommandBuffer, vk::Semaphore)> {
        let Flights { all, submitted, .. } = &self.flights;
        let count = all.len() as u64; // K + 1
        self.flights.wait_for((submitted + 1).saturating_sub(count), &self.field)?;
        let (commands, available) = &all[(submitted % count) as usize];
        Ok((*commands, available.raw))
    }
    // ANCHOR_END: pace

    /// Acquires the next image, if there is one. `available` is signalled once it may be drawn on.
    pub fn acquire(&mut self, available: vk::Semaphore) -> Result<Option<Drawable>> {
        let Self { field, draw, canvas, flights, .. } = self;
        let swapchain = match canvas {
            Canvas::Window(swapchain) => swapchain,
            Canvas::Picture(picture) => return Ok(Some((&*picture).into())),
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
        // SAFETY: the previous frame with `available` is done, so nothing waits for it or signals it any more.
        unsafe { swapchain.acquire(available) }
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
        unsafe { flights.submit(commands, &[], &[]) }?;
        flights.wait_for(flights.submitted, field)?;
        Ok(Some(picture.pixels.bytes()?.to_vec()))
    }

    pub fn wait_all(&self) -> Result<()> {
        self.flights.wait_for(self.flights.submitted, &self.field)
    }
}

/// A wait for a semaphore, or its signal, if there is one.
type Operation = Option<vk::SemaphoreSubmitInfo<'static>>;

pub struct Flights {
    /// What each frame in flight needs: its command buffer, and the semaphore `available` of its image.
    all: Vec<(vk::CommandBuffer, AutoDestroy<vk::Semaphore>)>,
    _pool: AutoDestroy<vk::CommandPool>,
    /// The timeline that counts finished submissions. Only the CPU waits for it.
    done: AutoDestroy<vk::Semaphore>,
    submitted: u64,
    gpu: Arc<Gpu>,
}

impl Flights {
    pub fn new(gpu: &Arc<Gpu>, count: usize) -> Result<Self> {
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(gpu.family);
        let info = info.flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER);
        // SAFETY: a live device.
        let pool = unsafe { gpu.device.create_command_pool(&info, None) };
        let pool = AutoDestroy::new(gpu, "vkCreateCommandPool", pool, Device::destroy_command_pool)?;
        let info = vk::CommandBufferAllocateInfo::default().command_pool(pool.raw);
        let info = info.command_buffer_count(count as u32);
        // SAFETY: the pool was made above.
        let commands = unsafe { gpu.device.allocate_command_buffers(&info) };
        let commands = gpu.check("vkAllocateCommandBuffers", commands)?.into_iter();
        let flight = |commands| Ok((commands, semaphore(gpu, vk::SemaphoreType::BINARY)?));
        Ok(Self {
            all: commands.map(flight).collect::<Result<_>>()?,
            _pool: pool,
            done: semaphore(gpu, vk::SemaphoreType::TIMELINE)?,
            submitted: 0,
            gpu: gpu.clone(),
        })
    }

    /// Submits a frame's commands (`vkQueueSubmit2`). The submission also signals `done`.
    ///
    /// # Safety
    /// The rules of the call must hold. Everything that the submission uses must live until the GPU is done.
    pub unsafe fn submit(
        &mut self,
        commands: vk::CommandBuffer,
        waits: &[Operation],
        signals: &[Operation],
    ) -> Result<()> {
        let commands = [vk::CommandBufferSubmitInfo::default().command_buffer(commands)];
        let waits: Vec<_> = waits.iter().flatten().copied().collect();
        let done = Some(at(self.done.raw, self.submitted + 1));
        let signals: Vec<_> = signals.iter().chain(&[done]).flatten().copied().collect();
        let batch = vk::SubmitInfo2::default().wait_semaphore_infos(&waits).command_buffer_infos(&commands);
        let batch = batch.signal_semaphore_infos(&signals);
        // SAFETY: the caller's promise; only one thread uses the queue. The values of `done` grow.
        let submitted = unsafe { self.gpu.device.queue_submit2(self.gpu.queue, &[batch], vk::Fence::null()) };
        self.gpu.check("vkQueueSubmit2", submitted)?;
        self.submitted += 1;
        Ok(())
    }

    /// Waits until Vulkan has finished the first `frames` submissions.
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
    pub fn are_done(&self, limit: Duration) -> bool {
        let wait = || self.gpu.wait(self.done.raw, self.submitted, limit);
        // Try a second time, because the first error may be temporary.
        wait().or_else(|_| wait()).unwrap_or(false)
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
