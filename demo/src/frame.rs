//! One frame, from CUDA's kernel to the screen. [`Frames::draw`] is what this program is for: read it from top to bottom.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use ash::vk;
use cudarc::driver::PushKernelArg;

use crate::compute::Compute;
use crate::draw::{Draw, View};
use crate::field::{Field, Parameters, Vertex, failed};
use crate::gpu::{Gpu, PATIENCE, signal};
use crate::objects::Image;
use crate::swapchain::{Acquired, Swapchain};

/// How long to wait for the GPU before looking whether CUDA has failed.
const LOOK: Duration = Duration::from_millis(100);

/// Where the frames go.
pub enum Canvas {
    Window(Swapchain),
    Picture(Image),
}

/// Who waits for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// The GPU: CUDA and Vulkan wait for each other, and the CPU for neither.
    Gpu,
    /// The CPU too: for CUDA before it submits, and for Vulkan after. To compare with.
    Cpu,
    /// Nobody: Vulkan draws the same vertices again, which CUDA did not write. To compare with.
    Nobody,
}

/// Everything that a frame needs.
pub struct Frames {
    /// `None` without CUDA.
    pub field: Option<Field>,
    pub compute: Compute,
    pub draw: Draw,
    pub canvas: Canvas,
    pub sync: Sync,
    /// How many frames CUDA writes in a row.
    pub batch: usize,
    flights: Flights,
    pub gpu: Arc<Gpu>,
}

impl Frames {
    /// Draws one frame. Returns `false` if there is nothing to draw on, because the window is minimised or changes its size.
    pub fn draw(&mut self, view: &View) -> Result<bool> {
        // PACE. There are a few flights, each with its own command buffer. The CPU waits until Vulkan has drawn the frame that last
        // used this one. It is the only wait of the CPU: without it, the CPU would enqueue frames without end.
        let Flight { commands, acquired } = self.pace()?;

        // ACQUIRE an image. This comes first, because a frame that cannot be shown must not begin.
        let Some(image) = self.acquire(acquired)? else { return Ok(false) };

        // WRITE, unless the next frame of a batch is there already. This enqueues a wait on CUDA's stream: until Vulkan has read
        // what was in the slots. That happens on the GPU; the CPU goes on at once.
        let gpu = self.gpu.clone();
        let mut cuda = self.field.as_mut().filter(|_| self.sync != Sync::Nobody);
        let mut read = cuda.as_mut().and_then(|field| field.ring.next_read());
        if let (Some(field), None) = (&mut cuda, &read) {
            let ([cols, rows], config) = (field.grid, field.launch_config());
            let parameters = Parameters::PLAIN;
            let (Field { ring, kernel, .. }, mut time) = (field, view.time);
            ring.write_batch(self.batch, |write| {
                // LAUNCH the kernel. The slot is CUDA's as long as `write` lives.
                let (mut vertices, number) = (write.view::<Vertex>()?, write.frame());
                let mut launch = write.stream().launch_builder(kernel);
                launch.arg(&mut vertices).arg(&cols).arg(&rows).arg(&number).arg(&time).arg(&parameters);
                // SAFETY: the parameters of `wave` in kernels/wave.cu. It writes cols * rows vertices, as many as the slot has.
                unsafe { launch.launch(config) }
                    .map_err(|error| failed("cuLaunchKernel", &gpu.name, error))?;
                time += view.step;
                // HAND OVER. CUDA signals after the kernel. The slot is now Vulkan's: `read` is the right to read it, once.
                anyhow::Ok(write.finish_after_kernels()?)
            })?;
            read = ring.next_read();
        }
        if let (Sync::Cpu, Some(field)) = (self.sync, &self.field) {
            field.wait_for_cuda()?;
        }

        // RECORD the draw, between two barriers: Vulkan takes the slot from CUDA, and gives it back.
        let Self { compute, draw, .. } = self;
        gpu.begin(commands)?;
        // SAFETY: recording, outside a render pass. The slot, the buffer and the image live until the frame is drawn.
        unsafe {
            match &read {
                Some(read) => {
                    read.record(commands, |slot| draw.record(commands, slot.vulkan(), &image.target, view))
                }
                None => {
                    // Without CUDA, a compute shader writes the vertices. That is Vulkan too, so a barrier is enough.
                    if !(self.sync == Sync::Nobody && compute.is_written) {
                        compute.record(commands, view.time);
                    }
                    draw.record(commands, compute.vertices.raw, &image.target, view);
                }
            }
        }
        gpu.end(commands)?;

        // SUBMIT. Vulkan's queue waits for CUDA's signal `ready`, on the GPU, and signals `free` when it has read the slot.
        let drawn = self.flights.signal();
        let submit = |ready: Option<_>, free: Option<_>| {
            let waits: Vec<_> = ready.into_iter().chain(image.acquired).collect();
            let signals: Vec<_> = free.into_iter().chain(image.rendered).chain([drawn]).collect();
            // SAFETY: recorded above, and everything lives until the frame is drawn.
            unsafe { gpu.submit(commands, &waits, &signals) }
        };
        match read {
            // SAFETY: one submission, with both semaphores, and none after an error.
            Some(read) => unsafe { read.submit(|ready, free| submit(Some(ready), Some(free))) }??,
            None => submit(None, None)?,
        }
        self.flights.submitted += 1;

        // PRESENT, once the frame is drawn.
        if let Canvas::Window(swapchain) = &mut self.canvas {
            swapchain.present(&image)?;
        }
        if self.sync == Sync::Cpu {
            self.wait_all()?;
        }
        Ok(true)
    }
}

impl Frames {
    /// `ring`: how many slots CUDA has, and how many frames may be in flight.
    pub fn new(gpu: &Arc<Gpu>, canvas: Canvas, grid: [u32; 2], ring: usize, samples: u32) -> Result<Self> {
        let format = match &canvas {
            Canvas::Window(swapchain) => swapchain.format(),
            Canvas::Picture(image) => image.format,
        };
        let field = gpu.cuda.as_ref().ok().map(|device| Field::new(gpu, device, grid, ring)).transpose()?;
        let mut draw = Draw::new(gpu, grid, format, samples)?;
        if let Canvas::Picture(image) = &canvas {
            draw.fit(image.extent)?;
        }
        Ok(Self {
            field,
            compute: Compute::new(gpu, grid)?,
            draw,
            canvas,
            sync: Sync::Gpu,
            batch: 1,
            flights: Flights::new(gpu, ring)?,
            gpu: gpu.clone(),
        })
    }

    /// Changes the number of slots, and of frames in flight. Waits for the GPU.
    pub fn set_ring(&mut self, ring: usize) -> Result<()> {
        self.wait_all()?;
        self.field = self.field.take().map(|field| field.with_slots(ring)).transpose()?;
        self.flights = Flights::new(&self.gpu, ring)?;
        self.batch = self.batch.min(ring);
        Ok(())
    }

    /// How many frames may be in flight.
    pub fn ring(&self) -> usize {
        self.flights.all.len()
    }

    /// Waits until the GPU is done with the oldest frame in flight. Its command buffer and semaphore are then free.
    fn pace(&self) -> Result<Flight> {
        let (all, submitted) = (&self.flights.all, self.flights.submitted);
        self.wait_for((submitted + 1).saturating_sub(all.len() as u64))?;
        Ok(all[(submitted % all.len() as u64) as usize])
    }

    /// The next image, if there is one. `acquired` is signalled when it may be drawn on.
    fn acquire(&mut self, acquired: vk::Semaphore) -> Result<Option<Acquired>> {
        if matches!(&self.canvas, Canvas::Window(swapchain) if swapchain.is_stale()) {
            // The GPU may still use the old images.
            self.wait_all()?;
        }
        match &mut self.canvas {
            Canvas::Picture(image) => Ok(Some(Acquired::picture(image))),
            Canvas::Window(swapchain) => {
                if swapchain.is_stale() {
                    if !swapchain.rebuild()? {
                        return Ok(None);
                    }
                    self.draw.fit(swapchain.extent())?;
                }
                // SAFETY: the flight's last frame is done, so nothing waits for its semaphore or signals it.
                unsafe { swapchain.acquire(acquired) }
            }
        }
    }

    /// Waits until Vulkan has drawn everything so far.
    pub fn wait_all(&self) -> Result<()> {
        self.wait_for(self.flights.submitted)
    }

    fn wait_for(&self, frames: u64) -> Result<()> {
        let began = Instant::now();
        while !self.gpu.wait(self.flights.done, frames, LOOK)? {
            if let Some(field) = &self.field {
                // After a fault CUDA signals nothing more, and Vulkan would wait for ever. `check` notices, and ends its waits.
                field.ring.check()?;
            }
            if began.elapsed() > PATIENCE {
                let progress = self.field.as_ref().map(|field| field.ring.progress()).transpose()?;
                let progress = progress.map_or(String::new(), |progress| format!(": {progress}"));
                bail!("{} did not finish a frame in {PATIENCE:?}{progress}", self.gpu.name);
            }
        }
        Ok(())
    }

    /// Ends: waits for the GPU, which may still use everything here. Returns `outcome`, or the error of the wait.
    pub fn close<T>(mut self, outcome: Result<T>) -> Result<T> {
        // This waits for both sides. After a fault it lets Vulkan's queue end.
        let rest = self.field.as_mut().map_or(Ok(()), |field| field.ring.wait_idle(PATIENCE));
        let is_idle =
            self.gpu.wait(self.flights.done, self.flights.submitted, PATIENCE).unwrap_or_else(|_| {
                // The device is lost, or memory is short. Either way this tells when the queue is done.
                // SAFETY: only this thread uses the queue.
                let _ = unsafe { self.gpu.device.queue_wait_idle(self.gpu.queue) };
                true
            });
        let outcome = outcome.and_then(|value| Ok(rest.map(|()| value)?));
        if !is_idle {
            // The GPU may use its memory for ever, so nothing may be freed.
            let stuck = || anyhow!("{} did not finish in {PATIENCE:?}", self.gpu.name);
            crate::fail(&outcome.err().unwrap_or_else(stuck));
        }
        outcome
    }
}

/// The command buffer of a frame in flight, and the semaphore with which it acquires its image.
#[derive(Clone, Copy)]
struct Flight {
    commands: vk::CommandBuffer,
    acquired: vk::Semaphore,
}

/// The frames in flight.
struct Flights {
    all: Vec<Flight>,
    pool: vk::CommandPool,
    /// Vulkan's count of the frames that it has drawn.
    done: vk::Semaphore,
    submitted: u64,
    gpu: Arc<Gpu>,
}

impl Flights {
    fn new(gpu: &Arc<Gpu>, count: usize) -> Result<Self> {
        // From here on, Drop cleans up; destroying a null pool does nothing.
        let mut flights = Self {
            all: Vec::new(),
            pool: vk::CommandPool::null(),
            done: gpu.timeline()?,
            submitted: 0,
            gpu: gpu.clone(),
        };
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(gpu.family);
        // SAFETY: (and below) a live device, and objects of it.
        let pool = unsafe { gpu.device.create_command_pool(&info, None) };
        flights.pool = gpu.check("vkCreateCommandPool", pool)?;
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(flights.pool)
            .command_buffer_count(count as u32);
        // SAFETY: as above.
        let commands = unsafe { gpu.device.allocate_command_buffers(&info) };
        for commands in gpu.check("vkAllocateCommandBuffers", commands)? {
            // SAFETY: as above.
            let acquired = unsafe { gpu.device.create_semaphore(&vk::SemaphoreCreateInfo::default(), None) };
            let acquired = gpu.check("vkCreateSemaphore", acquired)?;
            flights.all.push(Flight { commands, acquired });
        }
        Ok(flights)
    }

    /// The signal of the next frame.
    fn signal(&self) -> vk::SemaphoreSubmitInfo<'static> {
        signal(self.done, self.submitted + 1)
    }
}

impl Drop for Flights {
    fn drop(&mut self) {
        // SAFETY: no frame is in flight: `Frames` has waited.
        unsafe {
            for flight in &self.all {
                self.gpu.device.destroy_semaphore(flight.acquired, None);
            }
            self.gpu.device.destroy_command_pool(self.pool, None);
            self.gpu.device.destroy_semaphore(self.done, None);
        }
    }
}
