//! Producers fill slots with a CUDA kernel (see the table on the crate's page), a Vulkan compute shader
//! ([`ComputeProducer`]) or CPU threads ([`HostProducer`]).
//!
//! A producer owns the ring's slots, because each kind needs other memory. It also does the hand-off, so the
//! renderer does not depend on how that is done. For each frame,
//!
//! 1. [`Producer::produce`] does or enqueues the work, and returns what to draw;
//! 2. [`Producer::record_before_draw`] and [`Producer::record_after_draw`] record commands around the draw,
//!    unless those of an earlier frame can be used again (see [`Profile::in_queue`]);
//! 3. [`Producer::submit`] gives the submission its waits and signals, and notes whether it was made.

mod compute;
mod cuda_timeline;
mod host;
mod room;
mod still;
mod texture_compute;
mod texture_host;

use std::time::Duration;

use ash::vk;
use vulkan_cuda::Ring;
use vulkan_cuda::ownership::{Access, Owner};

use crate::contents::{array::DrawnArray, scene::Scene, wave::Grid};
use wavefield_gpu::Result;
use wavefield_gpu::cuda::{KernelParameters, KernelValues};
use wavefield_gpu::vulkan::{Device, pipeline_barrier};

pub use compute::ComputeProducer;
pub use cuda_timeline::CudaTimeline;
pub use host::HostProducer;
pub use room::{SLOT_USAGE, TEXTURE_FORMAT, check_grid, check_texture, each_slot, own_slots, read_slot};
pub use still::StillProducer;
pub use texture_compute::TextureComputeProducer;
pub use texture_host::TextureHostProducer;
pub(crate) use texture_host::{level_regions, own_images, own_slot};

#[derive(Clone, Copy, Debug)]
pub struct ProducerDesc {
    /// Decides whether slots are buffers or images.
    pub scene: Scene,
    pub grid: Grid,
    /// The ring of slots. Some producers ignore it and have one slot.
    pub ring: Ring,
    /// Allows fewer frames in flight than there are slots; the other slots are for batches.
    pub in_flight: Option<usize>,
    /// Whether every vertex or texel carries its frame's number: see [`crate::contents::frame_stamp`].
    pub stamped: bool,
    /// The timeout of hand-offs in which the CPU waits for CUDA.
    pub timeout: Duration,
    /// Whether CUDA writes a ring's slots without waiting for Vulkan: `wavefield verify --break free`.
    pub leaves_out_free: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Counts produced frames from 0 without gaps.
    pub index: u64,
    pub time: f64,
    /// The estimated seconds to the next frame, for producers that fill frames ahead of time.
    pub step: f64,
    /// The values of [`Profile::parameters`].
    pub parameters: KernelValues,
    pub reads: Access,
}

#[derive(Clone, Copy, Debug)]
pub struct Produced {
    pub source: Source,
    /// The number in the frame's stamps: its index, unless a client writes and counts the frames itself.
    pub number: u64,
    pub batch: Batch,
    /// The time that the CPU waited, if it did.
    pub blocked: Option<Duration>,
}

/// Consecutive frames that are filled together when the first of them is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    pub first: u64,
    pub frames: u64,
    /// The last frame that Vulkan had to read before CUDA could fill the first frame of the batch, if any.
    pub waits_for: Option<u64>,
}

impl Batch {
    pub fn of_one(frame: u64) -> Self {
        Self { first: frame, frames: 1, waits_for: None }
    }

    pub fn end(self) -> u64 {
        self.first + self.frames
    }
}

/// The semaphores that a frame's submission waits for and signals. See [`Producer::submit`].
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameSync {
    /// Signalled before the frame's commands, once everything submitted earlier is done.
    pub signal_before: Option<vk::SemaphoreSubmitInfo<'static>>,
    /// Waited for before the slot is read.
    pub wait: Option<vk::SemaphoreSubmitInfo<'static>>,
    pub signal: Option<vk::SemaphoreSubmitInfo<'static>>,
}

pub type Submit<'a> = &'a mut dyn FnMut(FrameSync) -> Result<()>;

/// What the draw reads. Each scene uses one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Vertices(Vertices),
    Texture(ImageSlot),
}

/// A frame's vertices, or another array from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vertices {
    pub buffer: vk::Buffer,
    pub offset: u64,
}

impl Vertices {
    /// Returns the range of `array`, rounded up to whole words because shaders read whole words.
    pub fn whole(self, array: &DrawnArray) -> vk::DescriptorBufferInfo {
        vk::DescriptorBufferInfo { buffer: self.buffer, offset: self.offset, range: 4 * array.words() }
    }

    /// Returns what begins so many bytes later.
    #[must_use]
    pub fn behind(self, bytes: u64) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSlot {
    pub image: vk::Image,
    /// A view of all levels.
    pub view: vk::ImageView,
    pub layout: vk::ImageLayout,
}

impl From<vk::Buffer> for Source {
    fn from(buffer: vk::Buffer) -> Self {
        Self::Vertices(Vertices { buffer, offset: 0 })
    }
}

/// Returns how a frame's slot is read: by the draw's shaders and, if `checked`, by a compute shader.
pub fn reads(scene: Scene, checked: bool) -> Access {
    let (vertex, fragment) =
        (vk::PipelineStageFlags2::VERTEX_SHADER, vk::PipelineStageFlags2::FRAGMENT_SHADER);
    let compute = vk::PipelineStageFlags2::COMPUTE_SHADER;
    let (stage, access) = match scene {
        // The graphics pipeline draws the field, or compute shaders do.
        Scene::Field => (vertex | fragment | compute, vk::AccessFlags2::SHADER_STORAGE_READ),
        Scene::Texture => (fragment, vk::AccessFlags2::SHADER_SAMPLED_READ),
    };
    let check = if checked { compute } else { vk::PipelineStageFlags2::NONE };
    Access { stage: stage | check, access }
}

#[derive(Clone, Debug)]
pub struct Profile {
    pub name: &'static str,
    pub slots: Vec<Source>,
    /// The owner of the slots between frames.
    pub owner: Owner,
    pub max_in_flight: usize,
    pub uses_cuda: bool,
    /// Whether the work runs in Vulkan's queue, so that it is recorded for every frame. Otherwise a slot's
    /// commands are recorded once, and submitted again for each frame in that slot.
    pub in_queue: bool,
    pub longest_batch: usize,
    /// Whether `verify --break` can leave out each wait and barrier on its own.
    pub breakable: bool,
    pub parameters: KernelParameters,
}

impl Profile {
    /// Describes a producer whose slots belong to the Vulkan queue and whose work the CPU does not wait for.
    pub fn of_queue(name: &'static str, slots: Vec<Source>) -> Self {
        // At least two, so that the CPU can prepare a frame while the GPU draws another.
        let max_in_flight = slots.len().max(2);
        Self {
            name,
            slots,
            owner: Owner::Queue,
            max_in_flight,
            uses_cuda: false,
            in_queue: false,
            longest_batch: 1,
            breakable: false,
            parameters: KernelParameters::default(),
        }
    }

    pub fn slot_of(&self, frame: u64) -> usize {
        (frame % self.slots.len() as u64) as usize
    }

    /// Returns what to draw, for a producer that fills one frame at a time and does not block the CPU.
    pub fn produced(&self, frame: &Frame) -> Produced {
        Produced {
            source: self.slots[self.slot_of(frame.index)],
            number: frame.index,
            batch: Batch::of_one(frame.index),
            blocked: None,
        }
    }
}

/// A transfer of a slot's ownership between Vulkan and CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnershipTransfer {
    Acquire,
    Release,
}

impl OwnershipTransfer {
    /// Records the transfer for a queue of `family` that reads the slot as `reads` says.
    ///
    /// # Safety
    /// `commands` must be recording, outside a render pass, for a queue of `family`. `slot` must be alive.
    pub unsafe fn record(
        self,
        device: &Device,
        commands: vk::CommandBuffer,
        family: u32,
        slot: Source,
        reads: Access,
    ) {
        let cuda = Owner::External;
        let (buffer, image) = match (slot, self) {
            (Source::Vertices(slot), Self::Acquire) => (Some(cuda.acquire(slot.buffer, family, reads)), None),
            (Source::Vertices(slot), Self::Release) => (Some(cuda.release(slot.buffer, family, reads)), None),
            (Source::Texture(slot), Self::Acquire) => {
                (None, Some(cuda.acquire_image(slot.image, family, reads)))
            }
            (Source::Texture(slot), Self::Release) => {
                (None, Some(cuda.release_image(slot.image, family, reads)))
            }
        };
        // SAFETY: recording, for a queue of this family, and the slot is alive (the caller's promise).
        unsafe { pipeline_barrier(device, commands, buffer.as_slice(), image.as_slice()) };
    }
}

/// Fills the slots of a ring. Before a producer is dropped, its work and the Vulkan queue must be idle.
pub trait Producer {
    fn profile(&self) -> &Profile;

    /// Fills the frame's slot, or enqueues the work that fills it, and returns what to draw. By default, does
    /// neither, because all of the work runs in Vulkan's queue.
    fn produce(&mut self, frame: &Frame) -> Result<Produced> {
        Ok(self.profile().produced(frame))
    }

    /// Sets the size of later batches, clamped to 1..=[`Profile::longest_batch`].
    fn set_batch(&mut self, _frames: usize) {}

    /// Records the commands that make `source`, as returned by [`Producer::produce`], readable for
    /// [`Frame::reads`]. Called outside a render pass.
    fn record_before_draw(&self, _commands: vk::CommandBuffer, _frame: &Frame, _source: Source) {}

    /// Records the commands that release `source` after the draw. Called outside a render pass.
    fn record_after_draw(&self, _commands: vk::CommandBuffer, _frame: &Frame, _source: Source) {}

    /// Calls `submit` once. If `submit` fails or is never called, the frame is given up.
    ///
    /// # Safety
    /// `submit` must make one submission to the engine's queue, which draws what [`Producer::produce`]
    /// returned last, with these semaphores and the recorded commands. If it fails, it must have made none.
    unsafe fn submit(&mut self, submit: Submit<'_>) -> Result<()> {
        submit(FrameSync::default())
    }

    /// Returns CUDA's stream and the events of recent frames, or `None` without CUDA.
    fn cuda_timeline(&self) -> Option<&CudaTimeline> {
        None
    }

    /// Returns whether all work outside the Vulkan queue is done. Fails if that work has failed.
    fn is_idle(&self) -> Result<bool> {
        self.cuda_timeline().map_or(Ok(true), CudaTimeline::is_idle)
    }

    /// Describes the producer's progress, for the error of a stuck run.
    fn progress(&self) -> Option<String> {
        None
    }

    /// Ends all waits of Vulkan after a failure, so that Vulkan's queue can become idle.
    fn abandon(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contents::{gallery, wave::WaveShape};

    #[test]
    fn the_wave_has_a_shape() {
        let parameters = gallery::WAVE.parameters();
        let names: Vec<_> = parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        assert_eq!(names, ["amplitude", "frequency"]);
        assert_eq!(WaveShape::of(&parameters.values(&[])), WaveShape::default());
        assert_eq!(
            WaveShape::of(&parameters.values(&[9.0, 0.0])),
            WaveShape { amplitude: 2.0, frequency: 0.25 }
        );
        // They are read from the PTX; the source declares the same.
        assert_eq!(KernelParameters::of(include_str!("../../../../kernels/wave.cu")), Ok(parameters));
    }
}
