//! Frames go from CUDA to Vulkan through a ring of slots. Two timelines order them on the GPU, in both directions; the CPU
//! enqueues everything and waits only at the end.
//!
//! ```sh
//! cargo run --example 03_hand_over
//! ```

pub mod common;

use ash::vk;
use common::{Gpu, Outcome};
use gpu_allocator::MemoryLocation;
use wavefield::Result;
use wavefield::cuda::Kernel;
use wavefield::interop::ownership::{Access, Owner};
use wavefield::interop::{Ring, SharedBuffer, SharedTimeline};
use wavefield::vulkan::{Buffer, BufferDesc, buffer_barrier, pipeline_barrier};

const FRAMES: u64 = 8;
const COLS: u32 = 64;
const ROWS: u32 = 4;
const BYTES: u64 = COLS as u64 * ROWS as u64 * 16;
const STAGE: vk::PipelineStageFlags2 = vk::PipelineStageFlags2::ALL_TRANSFER;

fn main() -> std::process::ExitCode {
    common::exit(run())
}

/// What the frames go through.
struct Exchange {
    kernel: Kernel,
    slots: Vec<SharedBuffer>,
    /// CUDA signals: a slot is written. Vulkan signals: a slot was read.
    ready: SharedTimeline,
    free: SharedTimeline,
    /// Every frame as Vulkan saw it.
    seen: Buffer,
    pool: vk::CommandPool,
    gpu: Gpu,
}

/// Hands the frames over, and checks all of them.
pub fn run() -> Result<Outcome> {
    let gpu = match Gpu::open()? {
        Ok(gpu) => gpu,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    let ring = Ring::default();
    let slot = || SharedBuffer::new(&gpu.device, &gpu.context, BYTES, vk::BufferUsageFlags::TRANSFER_SRC);
    let (usage, location) = (vk::BufferUsageFlags::TRANSFER_DST, MemoryLocation::GpuToCpu);
    let desc = BufferDesc { label: "what Vulkan saw", size: FRAMES * BYTES, usage, location };
    let info = vk::CommandPoolCreateInfo::default().queue_family_index(gpu.queue.family());
    let mut exchange = Exchange {
        kernel: gpu.count()?,
        slots: (0..ring.depth()).map(|_| slot()).collect::<Result<_>>()?,
        ready: SharedTimeline::new(&gpu.device, &gpu.context)?,
        free: SharedTimeline::new(&gpu.device, &gpu.context)?,
        seen: Buffer::new(&gpu.device, &desc)?,
        // SAFETY: a live device and its queue's family.
        pool: unsafe { gpu.device.raw().create_command_pool(&info, None) }
            .map_err(gpu_error(&gpu, "vkCreateCommandPool"))?,
        gpu,
    };
    if let Err(error) = exchange.frames(ring) {
        // The GPU may still use all of this, and may wait for a signal that will not come: it is left to the process's end.
        std::mem::forget(exchange);
        return Err(error);
    }
    // SAFETY: the queue is idle.
    unsafe { exchange.gpu.device.raw().destroy_command_pool(exchange.pool, None) };
    let bytes = exchange.seen.bytes()?;
    for (frame, bytes) in (0..FRAMES).zip(bytes.chunks_exact(BYTES as usize)) {
        common::check(&format!("frame {frame}"), bytes, |index| common::counted(frame, index))?;
    }
    println!("{FRAMES} frames went through {} slots, each of them whole", ring.depth());
    Ok(Outcome::Done)
}

fn gpu_error(gpu: &Gpu, call: &'static str) -> impl Fn(vk::Result) -> wavefield::Error {
    let device = gpu.device.info().name.clone();
    move |result| wavefield::Error::Vulkan { call, device: device.clone(), result }
}

impl Exchange {
    /// Enqueues all frames on both sides, then waits for both.
    fn frames(&mut self, ring: Ring) -> Result<()> {
        for frame in 0..FRAMES {
            let turn = ring.turn(frame);
            let (slot, stream) = (&self.slots[turn.slot], &self.gpu.stream);
            // CUDA: wait until Vulkan has read the slot's last frame, write, say so.
            if let Some(value) = turn.wait_free {
                self.free.cuda_wait(stream, value)?;
            }
            // SAFETY: the documented signature, 16 bytes a vertex; the timelines keep Vulkan out meanwhile.
            unsafe { self.kernel.launch(stream, slot.cuda(), COLS, ROWS, frame, 0.0) }?;
            self.ready.cuda_signal(stream, turn.signal_ready)?;
            // Vulkan: wait for that at the stage that reads, read, say so when the release is done too.
            let commands = self.record(slot.vulkan(), frame)?;
            let buffers = [vk::CommandBufferSubmitInfo::default().command_buffer(commands)];
            let waits = [self.ready.vulkan_wait(turn.wait_ready, STAGE)];
            let all = vk::PipelineStageFlags2::ALL_COMMANDS;
            let signals = [self.free.vulkan_signal(turn.signal_free, all)?];
            let batch = vk::SubmitInfo2::default()
                .wait_semaphore_infos(&waits)
                .command_buffer_infos(&buffers)
                .signal_semaphore_infos(&signals);
            // SAFETY: recorded and not pending; everything lives until the queue is idle, or is forgotten.
            unsafe { self.gpu.queue.submit(&batch) }?;
        }
        // CUDA first: if its kernel failed, the queue would wait for ever.
        self.gpu.stream.synchronize()?;
        self.gpu.queue.wait_idle()
    }

    /// Acquire the slot, copy it to its frame's place, release it.
    fn record(&self, slot: vk::Buffer, frame: u64) -> Result<vk::CommandBuffer> {
        let (device, family) = (&self.gpu.device, self.gpu.queue.family());
        let access = Access { stage: STAGE, access: vk::AccessFlags2::TRANSFER_READ };
        let written = (STAGE, vk::AccessFlags2::TRANSFER_WRITE);
        let host = (vk::PipelineStageFlags2::HOST, vk::AccessFlags2::HOST_READ);
        let acquire = Owner::External.acquire(slot, family, access);
        let release = Owner::External.release(slot, family, access);
        let copy = [vk::BufferCopy::default().dst_offset(frame * BYTES).size(BYTES)];
        let info = vk::CommandBufferAllocateInfo::default().command_pool(self.pool).command_buffer_count(1);
        let raw = device.raw();
        // SAFETY: a live pool; a fresh command buffer; the copy lies within both buffers.
        let recorded = unsafe {
            raw.allocate_command_buffers(&info).and_then(|buffers| {
                let commands = buffers[0];
                raw.begin_command_buffer(commands, &vk::CommandBufferBeginInfo::default())?;
                pipeline_barrier(device, commands, &[acquire], &[]);
                raw.cmd_copy_buffer(commands, slot, self.seen.raw(), &copy);
                let to_host = buffer_barrier(self.seen.raw(), written, host);
                pipeline_barrier(device, commands, &[release, to_host], &[]);
                raw.end_command_buffer(commands)?;
                Ok(commands)
            })
        };
        recorded.map_err(gpu_error(&self.gpu, "recording a frame's commands"))
    }
}
