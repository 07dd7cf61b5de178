//! Who fills a slot with vertices: a CUDA kernel (see [`crate::handoff`]), a Vulkan compute shader ([`ComputeProducer`]) or CPU
//! threads ([`HostProducer`]).
//!
//! A producer owns the ring's slots, because what a slot *is* differs: memory shared with CUDA, memory of Vulkan alone,
//! or memory that the CPU can write. It also owns the hand-off, so the renderer never learns which one it has. For each frame
//!
//! 1. [`Producer::produce`] enqueues the work or does it, and says what to draw and what the submission waits for and signals;
//! 2. [`Producer::record_before_draw`] and [`Producer::record_after_draw`] record commands around the draw, if those of an
//!    earlier frame will not do (see [`Profile::in_queue`]);
//! 3. [`Producer::submitted`] hears that the submission was made.

mod compute;
mod fill;
mod host;
mod room;
mod still;
mod texture_compute;
mod texture_host;
mod transfer;

use std::time::Duration;

use ash::vk;
use vulkan_cuda::ownership::{Access, Owner};
use vulkan_cuda::{Ring, Turn};

use crate::Result;
use crate::array::Array;
use crate::cuda::{KernelParameters, KernelSource, KernelValues};
use crate::scene::Scene;
use crate::wave::Grid;

pub use compute::ComputeProducer;
pub use fill::Fill;
pub use host::HostProducer;
pub(crate) use room::{SLOT_USAGE, TEXTURE_FORMAT, each_slot, own_slots};
pub use room::{check_grid, check_texture};
pub use still::StillProducer;
pub use texture_compute::TextureComputeProducer;
pub use texture_host::TextureHostProducer;
pub(crate) use texture_host::{level_regions, level_views, own_images, own_slot, record_upload};
pub(crate) use transfer::Transfer;

/// What every producer is told before its first frame.
#[derive(Clone, Copy, Debug)]
pub struct ProducerDesc {
    /// What is shown: slots are of its kind.
    pub scene: Scene,
    /// Vertices, or texels, across and along.
    pub grid: Grid,
    /// How many slots it should have. Some need only one, whatever this says.
    pub ring: Ring,
    /// How many frames the CPU may have in flight, where that is fewer than the ring has slots: the others are for batches.
    pub in_flight: Option<usize>,
    /// Whether every vertex or texel carries its frame's number: see [`crate::stamp`].
    pub stamped: bool,
    /// How long the CPU waits for CUDA, where it does.
    pub timeout: Duration,
    /// The turn itself, unless `wavefield verify --break` asks for another.
    pub plan: Plan,
}

/// What a frame waits for and signals, of what its [`Turn`] says, where timelines order the two sides.
pub type Plan = fn(Turn) -> Turn;

/// One frame's input.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Counts the frames that were produced, from 0, without gaps.
    pub index: u64,
    /// Seconds since the start.
    pub time: f64,
    /// Seconds to the next frame, as far as is known: for what fills frames ahead of their time.
    pub step: f64,
    /// Values for [`Profile::parameters`].
    pub parameters: KernelValues,
    /// Who reads the slot: see [`reads`].
    pub reads: Access,
}

/// What a producer has done for a frame.
#[derive(Clone, Copy, Debug)]
pub struct Produced {
    /// What to draw.
    pub source: Source,
    /// The number that its vertices carry where frames are stamped: the frame's own, unless whoever writes them counts by
    /// itself, and may be shown twice.
    pub number: u64,
    /// The frames that were filled together with it.
    pub batch: Batch,
    /// What the submission waits for and signals on the producer's behalf.
    pub sync: FrameSync,
    /// How long the CPU waited, if it did.
    pub blocked: Option<Duration>,
}

/// Frames that were filled in one go, when the first of them was asked for: the others ahead of their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The number of the first.
    pub first: u64,
    /// How many.
    pub frames: u64,
    /// The value of `free` that CUDA waited for before it filled the first, where it did: see [`Turn::wait_free`].
    pub wait_free: Option<u64>,
}

impl Batch {
    /// A frame that is filled by itself.
    pub fn of_one(frame: u64) -> Self {
        Self { first: frame, frames: 1, wait_free: None }
    }

    /// The number of the first frame behind it.
    pub fn end(self) -> u64 {
        self.first + self.frames
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

/// What a frame is drawn from. A scene has one kind of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Of [`Scene::Field`].
    Vertices(Vertices),
    /// Of [`Scene::Texture`].
    Texture(ImageSlot),
}

/// Where a frame's vertices lie, or another array of a client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vertices {
    /// In this buffer.
    pub buffer: vk::Buffer,
    /// From this byte on.
    pub offset: u64,
}

impl Vertices {
    /// The part of the buffer that an array there has. Shaders read whole words, so the buffer is that large.
    pub(crate) fn whole(self, array: &Array) -> vk::DescriptorBufferInfo {
        vk::DescriptorBufferInfo { buffer: self.buffer, offset: self.offset, range: 4 * array.words() }
    }
}

/// An image with its mip chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSlot {
    /// The image.
    pub image: vk::Image,
    /// A view of all its levels.
    pub view: vk::ImageView,
    /// The layout in which the draw finds it.
    pub layout: vk::ImageLayout,
}

impl From<vk::Buffer> for Source {
    /// The whole buffer.
    fn from(buffer: vk::Buffer) -> Self {
        Self::Vertices(Vertices { buffer, offset: 0 })
    }
}

/// How a frame's slot is read: by the draw, and, where frames are checked, by the compute shader of [`crate::verify`] too. The
/// draw reads vertices as a storage buffer in both its shaders, and samples an image in the fragment shader.
pub fn reads(scene: Scene, checked: bool) -> Access {
    let (vertex, fragment) =
        (vk::PipelineStageFlags2::VERTEX_SHADER, vk::PipelineStageFlags2::FRAGMENT_SHADER);
    let (stage, access) = match scene {
        Scene::Field => (vertex | fragment, vk::AccessFlags2::SHADER_STORAGE_READ),
        Scene::Texture => (fragment, vk::AccessFlags2::SHADER_SAMPLED_READ),
    };
    let check = if checked { vk::PipelineStageFlags2::COMPUTE_SHADER } else { vk::PipelineStageFlags2::NONE };
    Access { stage: stage | check, access }
}

/// What is the same for all frames of a producer.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Its name for people.
    pub name: &'static str,
    /// The slots that are drawn from, in ring order.
    pub slots: Vec<Source>,
    /// Who owns a slot between frames.
    pub owner: Owner,
    /// How many frames the CPU may have in flight with it.
    pub max_in_flight: usize,
    /// Whether its work is in Vulkan's queue: then [`Producer::record_before_draw`] records it anew for every frame. All else that
    /// producers record is the same for every frame in the same slot; it is recorded once, and submitted again whenever the
    /// slot's turn comes.
    pub in_queue: bool,
    /// How many frames it can fill in one go: see [`Producer::set_batch`].
    pub longest_batch: usize,
    /// What [`Frame::parameters`] has values for.
    pub parameters: KernelParameters,
}

impl Profile {
    /// Of a producer whose slots belong to the Vulkan queue, and whose work the CPU does not wait for.
    pub(crate) fn of_queue(name: &'static str, slots: Vec<Source>) -> Self {
        // Two at least, so that the CPU can prepare a frame while the GPU draws another.
        let max_in_flight = slots.len().max(2);
        let owner = Owner::Queue;
        let parameters = KernelParameters::default();
        Self { name, slots, owner, max_in_flight, in_queue: false, longest_batch: 1, parameters }
    }

    /// Whether CUDA fills the slots, be it by a stream of its own or in Vulkan's command buffer.
    pub fn uses_cuda(&self) -> bool {
        self.name.starts_with("cuda")
    }

    /// The slot of a frame.
    pub fn slot_of(&self, frame: u64) -> usize {
        (frame % self.slots.len() as u64) as usize
    }

    /// What was produced where nothing is handed over but the frame's slot.
    pub(crate) fn produced(&self, frame: &Frame) -> Produced {
        Produced {
            source: self.slots[self.slot_of(frame.index)],
            number: frame.index,
            batch: Batch::of_one(frame.index),
            sync: FrameSync::default(),
            blocked: None,
        }
    }
}

/// What the wave can be told, whoever computes it: the parameters of the CUDA kernel.
pub(crate) fn wave_parameters() -> KernelParameters {
    // A test reads them, too.
    KernelSource::built_in().parameters().unwrap_or_default()
}

/// Fills the slots of a ring. See the [module](self) for the order of calls.
///
/// Before it is dropped, it and the Vulkan queue must be idle.
pub trait Producer {
    /// What is the same for all frames.
    fn profile(&self) -> &Profile;

    /// Fills the frame's slot, or enqueues that. Nothing, where all of the work is in Vulkan's queue.
    fn produce(&mut self, frame: &Frame) -> Result<Produced> {
        Ok(self.profile().produced(frame))
    }

    /// From the next batch on, fills so many frames in one go, at least 1 and at most [`Profile::longest_batch`].
    fn set_batch(&mut self, _frames: usize) {}

    /// Records what makes `source`, which [`Producer::produce`] answered for this frame, readable for [`Frame::reads`]. Outside a
    /// render pass.
    fn record_before_draw(&self, _commands: vk::CommandBuffer, _frame: &Frame, _source: Source) {}

    /// Records what gives `source` back. Outside a render pass.
    fn record_after_draw(&self, _commands: vk::CommandBuffer, _frame: &Frame, _source: Source) {}

    /// The submission with what [`Producer::produce`] answered was made.
    fn submitted(&mut self) {}

    /// CUDA's stream, where there is one: it knows how long each frame's kernel took, and when.
    fn fill(&self) -> Option<&Fill> {
        None
    }

    /// Whether nothing of its own is running (what runs on the Vulkan queue is the queue's affair); does not wait. An
    /// error if what it enqueued has failed: a kernel that faulted, say.
    fn is_idle(&self) -> Result<bool> {
        self.fill().map_or(Ok(true), Fill::is_idle)
    }

    /// How far its side has come, in words, for the error of a run that got stuck.
    fn progress(&self) -> Option<String> {
        None
    }

    /// Gives up after a failure: lets go of whatever Vulkan still waits for, so that its queue can become idle.
    fn abandon(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wave::Shape;

    #[test]
    fn the_wave_has_a_shape() {
        let parameters = wave_parameters();
        let names: Vec<_> = parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        assert_eq!(names, ["amplitude", "frequency"]);
        assert_eq!(Shape::of(&parameters.values(&[])), Shape::default());
        assert_eq!(Shape::of(&parameters.values(&[9.0, 0.0])), Shape { amplitude: 2.0, frequency: 0.25 });
        // The source and its PTX, from which they are read, say the same.
        assert_eq!(KernelParameters::of(include_str!("../../kernels/wave.cu")), Ok(parameters));
    }
}
