//! Who fills a slot with vertices: a CUDA kernel (one of [`crate::handoff`]), a Vulkan compute shader
//! ([`ComputeProducer`]) or CPU threads ([`HostProducer`]).
//!
//! A producer owns the ring's slots, because what a slot *is* differs: memory shared with CUDA, memory of Vulkan alone,
//! or memory that the CPU can write. It also owns the hand-off, so the renderer asks four things of it a frame and
//! never learns which one it has:
//!
//! 1. [`Producer::produce`]: enqueue or do the work, before anything is submitted to Vulkan;
//! 2. [`Producer::record_before_draw`] and 3. [`Producer::record_after_draw`]: commands around the draw;
//! 4. [`Producer::sync`]: what the submission waits for and signals.

mod broken;
mod compute;
mod fill;
mod host;
mod still;
mod texture_compute;
mod texture_host;

use std::time::Duration;

use ash::vk;
use gpu_allocator::MemoryLocation;
use vulkan_cuda::ownership::{Access, Owner};
use vulkan_cuda::{Pair, Ring, SharedBuffer};

use crate::cuda::Cuda;
use crate::vulkan::{Buffer, BufferDesc, Device, pipeline_barrier};
use crate::wave::{Grid, Vertex};
use crate::{Error, Result, texture};

pub use broken::Broken;
pub use compute::ComputeProducer;
pub use fill::Fill;
pub use host::HostProducer;
pub use still::StillProducer;
pub use texture_compute::TextureComputeProducer;
pub use texture_host::TextureHostProducer;
pub(crate) use texture_host::{level_regions, level_views, own_images, own_slot, record_upload};

/// One frame's input.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Counts the frames that were produced, from 0, without gaps.
    pub index: u64,
    /// Seconds since the start.
    pub time: f64,
    /// Seconds to the next frame, as far as is known: for what fills frames ahead of their time.
    pub step: f64,
    /// Who reads the slot: [`DRAW_READS`], or [`CHECK_READS`] where frames are checked; [`DRAW_SAMPLES`] and [`CHECK_SAMPLES`]
    /// of an image.
    pub reads: Access,
}

/// How often and how long a producer made the CPU wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blocked {
    /// Times.
    pub count: u64,
    /// In all.
    pub time: Duration,
}

impl Blocked {
    /// One more wait.
    pub fn add(&mut self, time: Duration) {
        self.count += 1;
        self.time += time;
    }
}

/// What a frame's submission waits for and signals on the producer's behalf.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameSync {
    /// Ahead of this frame's commands, once all that was submitted before is done.
    pub signal_before: Option<vk::SemaphoreSubmitInfo<'static>>,
    /// Before the slot is read.
    pub wait: Option<vk::SemaphoreSubmitInfo<'static>>,
    /// After it was read.
    pub signal: Option<vk::SemaphoreSubmitInfo<'static>>,
}

/// Where a frame's vertices lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vertices {
    /// In this buffer.
    pub buffer: vk::Buffer,
    /// From this byte on.
    pub offset: u64,
}

/// How the draw reads a slot: as a storage buffer in the vertex shader.
pub const DRAW_READS: Access =
    Access { stage: vk::PipelineStageFlags2::VERTEX_SHADER, access: vk::AccessFlags2::SHADER_STORAGE_READ };

/// How a slot is read where frames are checked: by the draw and by the compute shader of [`crate::verify`].
pub const CHECK_READS: Access = Access {
    stage: vk::PipelineStageFlags2::from_raw(
        vk::PipelineStageFlags2::VERTEX_SHADER.as_raw() | vk::PipelineStageFlags2::COMPUTE_SHADER.as_raw(),
    ),
    access: vk::AccessFlags2::SHADER_STORAGE_READ,
};

/// How the draw reads a slot that is an image: as a sampled image in the fragment shader.
pub const DRAW_SAMPLES: Access =
    Access { stage: vk::PipelineStageFlags2::FRAGMENT_SHADER, access: vk::AccessFlags2::SHADER_SAMPLED_READ };

/// How such a slot is read where frames are checked: by the draw and by the compute shader of [`crate::verify`].
pub const CHECK_SAMPLES: Access = Access {
    stage: vk::PipelineStageFlags2::from_raw(
        vk::PipelineStageFlags2::FRAGMENT_SHADER.as_raw() | vk::PipelineStageFlags2::COMPUTE_SHADER.as_raw(),
    ),
    access: vk::AccessFlags2::SHADER_SAMPLED_READ,
};

/// A slot of a scene whose slots are images with mip chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSlot {
    /// The image.
    pub image: vk::Image,
    /// A view of all its levels.
    pub view: vk::ImageView,
    /// The layout in which the draw finds it.
    pub layout: vk::ImageLayout,
}

/// What every slot's buffer may be used for: drawing, checking, being blanked before a checked run, and read-back.
pub(crate) const SLOT_USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::STORAGE_BUFFER.as_raw()
        | vk::BufferUsageFlags::TRANSFER_SRC.as_raw()
        | vk::BufferUsageFlags::TRANSFER_DST.as_raw(),
);

/// Fills the slots of a ring. See the [module](self) for the order of calls.
///
/// Before it is dropped, it and the Vulkan queue must be idle.
pub trait Producer {
    /// Its name for people.
    fn name(&self) -> &'static str;

    /// The slots that the renderer may read, in ring order; none where slots are images.
    fn slots(&self) -> &[vk::Buffer];

    /// The slots of a scene whose slots are images.
    fn images(&self) -> &[ImageSlot] {
        &[]
    }

    /// How many slots there are, of whichever kind.
    fn slot_count(&self) -> usize {
        self.slots().len().max(self.images().len())
    }

    /// The slot of a frame.
    fn slot_of(&self, frame: u64) -> usize {
        (frame % self.slot_count() as u64) as usize
    }

    /// Where a frame's vertices lie, once it is produced: usually at the begin of its slot. Not for slots that are images.
    fn vertices_of(&self, frame: u64) -> Vertices {
        Vertices { buffer: self.slots()[self.slot_of(frame)], offset: 0 }
    }

    /// The number that a frame's vertices carry where frames are stamped, once it is produced: the frame's own, unless
    /// whoever writes them counts by itself, and may be shown twice.
    fn stamped_as(&self, frame: u64) -> u64 {
        frame
    }

    /// How many frames the CPU may have in flight with it.
    fn max_in_flight(&self) -> usize {
        // Two at least, so that the CPU can prepare a frame while the GPU draws another.
        self.slot_count().max(2)
    }

    /// Fills the frame's slot, or enqueues that. What waits here on the CPU says so in [`Producer::blocked`].
    fn produce(&mut self, frame: &Frame) -> Result<()>;

    /// Records what makes the slot readable for [`Frame::reads`]. Outside a render pass.
    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame);

    /// Records what gives the slot back. Outside a render pass.
    fn record_after_draw(&self, commands: vk::CommandBuffer, frame: &Frame);

    /// Whether both of these record the same for every frame in the same slot: then a frame's commands are recorded once, and
    /// submitted again whenever their slot's turn comes.
    fn commands_repeat(&self) -> bool {
        false
    }

    /// What the frame's submission waits for and signals. Asked once a frame.
    fn sync(&mut self, frame: &Frame) -> Result<FrameSync>;

    /// The submission with what [`Producer::sync`] answered was made.
    fn submitted(&mut self) {}

    /// Who owns a slot between frames.
    fn owner(&self) -> Owner;

    /// The CPU's waits in [`Producer::produce`] so far; none, for whatever is worth its name.
    fn blocked(&self) -> Blocked {
        Blocked::default()
    }

    /// Whether its work is part of the draw's command buffer, recorded by [`Producer::record_before_draw`].
    fn runs_in_queue(&self) -> bool {
        false
    }

    /// The kernel on its stream, where there is one: it knows how long it took, and when.
    fn fill(&self) -> Option<&Fill> {
        None
    }

    /// The ring whose slots are handed back and forth on the GPU, where there is one.
    fn ring(&self) -> Option<Ring> {
        None
    }

    /// Whether nothing of its own is running (what runs on the Vulkan queue is the queue's affair); does not wait. An
    /// error if what it enqueued has failed: a kernel that faulted, say.
    fn is_idle(&self) -> Result<bool> {
        Ok(true)
    }

    /// How far its side has come, in words, for the error of a run that got stuck.
    fn progress(&self) -> Option<String> {
        None
    }

    /// From the first frame on, every vertex or texel is to carry its frame's number: see [`crate::stamp`]. Called
    /// before the first frame, or never.
    fn stamp_frames(&mut self) -> Result<()>;

    /// How many frames it fills for each one that is asked of it: frame n is then filled with the first of its batch,
    /// whose number is the multiple of this below.
    fn batch(&self) -> u64 {
        1
    }

    /// From the first frame on, leaves out a part of the synchronization, to show that it is needed. Called before the
    /// first frame, or never.
    ///
    /// # Errors
    /// There is no such part.
    fn break_sync(&mut self, broken: Broken) -> Result<()> {
        Err(broken.not_for(self.name()))
    }

    /// Gives up after a failure: lets go of whatever Vulkan still waits for, so that its queue can become idle.
    fn abandon(&mut self) {}
}

/// Records one buffer barrier.
pub(crate) fn barrier(device: &Device, commands: vk::CommandBuffer, barrier: vk::BufferMemoryBarrier2<'_>) {
    // SAFETY: producers record outside a render pass, into a command buffer that is being recorded, and the barrier
    // names one of their own slots.
    unsafe { pipeline_barrier(device, commands, &[barrier], &[]) };
}

/// A ring's slots in memory of Vulkan's own: a buffer each for the whole grid, with `more` uses besides [`SLOT_USAGE`].
pub(crate) fn own_slots(
    device: &Device,
    grid: Grid,
    ring: Ring,
    more: vk::BufferUsageFlags,
    location: MemoryLocation,
) -> Result<Vec<Buffer>> {
    let _span = tracing::trace_span!("memory").entered();
    let (size, usage) = (grid.bytes(), SLOT_USAGE | more);
    let desc = BufferDesc { label: "a slot of the ring", size, usage, location };
    each_slot(device, None, grid, ring.depth(), || Buffer::new(device, &desc))
}

/// One slot of a field, in memory that CUDA and Vulkan share.
pub(crate) fn shared_slot(pair: &Pair, grid: Grid) -> Result<SharedBuffer> {
    let _span = tracing::trace_span!("memory").entered();
    Ok(SharedBuffer::new(pair, grid.bytes(), SLOT_USAGE)?)
}

/// Makes the memory of each of `depth` slots with `make`; where it runs out, says how much was asked for, how much there
/// is and what would fit. `context` is CUDA's side, where CUDA has a part in that memory.
///
/// # Errors
/// Those of `make`; one that says that memory ran out becomes [`Error::NoRoom`].
pub(crate) fn each_slot<T>(
    device: &Device,
    context: Option<&Cuda>,
    grid: Grid,
    depth: usize,
    mut make: impl FnMut() -> Result<T>,
) -> Result<Vec<T>> {
    let mut slots = Vec::with_capacity(depth);
    while slots.len() < depth {
        match make() {
            Ok(slot) => slots.push(slot),
            Err(error) if error.is_out_of_memory() => {
                let fitted = slots.len();
                // What these take is free for the ring that is asked for next.
                drop(slots);
                // CUDA knows what other processes have; Vulkan's budget is an estimate.
                let cuda = context.and_then(|context| context.memory().ok());
                let free = cuda.map(|(free, _)| free).or_else(|| device.free_memory());
                let bytes = grid.bytes();
                return Err(Error::NoRoom {
                    device: device.info().name.clone(),
                    asked: asked(grid, depth),
                    free,
                    advice: advice(bytes, depth, fitted, free),
                    source: Box::new(error),
                });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(slots)
}

fn asked(grid: Grid, depth: usize) -> String {
    let Grid { cols, rows } = grid;
    let (each, all) = (grid.bytes(), grid.bytes().saturating_mul(depth as u64));
    format!("a ring of {depth} slots of {cols}x{rows} vertices, {each} bytes each, {all} in all")
}

/// What would fit, of slots with `bytes` each, where `depth` of them did not and the first `fitted` did.
fn advice(bytes: u64, depth: usize, fitted: usize, free: Option<u64>) -> String {
    let deepest = match fitted {
        0 => "not even one of them fits".to_owned(),
        fitted => format!("the deepest that fits is --ring {fitted}"),
    };
    // Slots that were made are proof; what the driver says is free may be less by now, or not be had in one piece.
    let room = (fitted as u64 * bytes).max(free.unwrap_or(0)).min(depth as u64 * bytes - 1);
    match (room / depth as u64 / size_of::<Vertex>() as u64).isqrt() {
        0 | 1 => format!(", {deepest}"),
        side => format!(", {deepest}, or with --ring {depth} the largest square is --grid {side}x{side}"),
    }
}

/// Refuses a field that one slot cannot hold, before anything is allocated.
///
/// # Errors
/// Names the limit and the largest square grid that fits.
pub fn check_grid(device: &Device, grid: Grid) -> Result<()> {
    if grid.cols < 2 || grid.rows < 2 {
        return Err(Error::Usage(format!("a field of {}x{} vertices has no surface", grid.cols, grid.rows)));
    }
    let (limit, name) = device.info().largest_buffer;
    if grid.bytes() <= limit {
        return Ok(());
    }
    Err(Error::Unsupported(too_large(grid, limit, name, &device.info().name)))
}

fn too_large(grid: Grid, limit: u64, limit_name: &str, device: &str) -> String {
    let side = (limit / size_of::<Vertex>() as u64).isqrt();
    format!(
        "a field of {}x{} vertices needs {} bytes in one allocation, and {device} allows {limit} ({limit_name}): \
         the largest square --grid is {side}x{side}",
        grid.cols,
        grid.rows,
        grid.bytes()
    )
}

/// Refuses a texture that one slot cannot hold, before anything is allocated.
///
/// # Errors
/// Names the limit.
pub fn check_texture(device: &Device, size: Grid) -> Result<()> {
    let info = device.info();
    if size.cols < 2 || size.rows < 2 {
        let Grid { cols, rows } = size;
        return Err(Error::Usage(format!("a texture of {cols}x{rows} texels has no levels below its first")));
    }
    let refuse = |limit: u64, name: &str| {
        Err(Error::Unsupported(format!(
            "a texture of {}x{} texels is too large for {}: {limit} {name} is the most",
            size.cols, size.rows, info.name
        )))
    };
    let bytes = info.largest_allocation;
    if size.cols.max(size.rows) > info.largest_picture {
        return refuse(u64::from(info.largest_picture), "texels each way (maxImageDimension2D)");
    }
    if texture::chain_bytes(size) > bytes {
        return refuse(bytes, "bytes with its levels (maxMemoryAllocationSize)");
    }
    Ok(())
}

/// The format of a slot that is an image: [`texture::Texel`].
pub(crate) const TEXTURE_FORMAT: vk::Format = vk::Format::R16G16B16A16_SFLOAT;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_fit_is_said() {
        let bytes = 1000 * 1000 * 16;
        // Five of eight were made: the grid may have five eighths of the vertices.
        let text = advice(bytes, 8, 5, None);
        assert!(
            text.contains("--ring 5,") && text.contains("--ring 8 the largest square is --grid 790x790"),
            "{text}"
        );
        // The driver knows of more, but not of enough.
        let text = advice(bytes, 8, 5, Some(6 * bytes));
        assert!(text.contains("--ring 5,") && text.contains("--grid 866x866"), "{text}");
        // It says that there is enough, and yet there was not.
        let text = advice(bytes, 8, 5, Some(u64::MAX));
        assert!(text.contains("--grid 999x999"), "{text}");
        assert_eq!(advice(bytes, 8, 0, None), ", not even one of them fits");
    }

    #[test]
    fn a_field_that_does_not_fit_says_what_would() {
        let text =
            too_large(Grid { cols: 20_000, rows: 20_000 }, 0xffe0_0000, "maxMemoryAllocationSize", "Toy GPU");
        for part in
            ["20000x20000", "6400000000", "4292870144", "maxMemoryAllocationSize", "Toy GPU", "16379x16379"]
        {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        assert!(16379u64.pow(2) * 16 <= 0xffe0_0000 && 16380u64.pow(2) * 16 > 0xffe0_0000);
    }
}
