//! Hands frames to Vulkan: from CUDA in six ways, for comparison, or from elsewhere (see [`producer`]).
//!
//! Most hand-offs run a scene's kernels ([`SceneKernels`]), which write the slots of the library's ring
//! (`timeline`) or a single slot (`one_slot`). A `SlotSync` makes CUDA and Vulkan take turns in that slot.
//!
//! | `--handoff` | file | what orders CUDA and Vulkan | what is copied |
//! |---|---|---|---|
//! | `timeline` | `timeline` | the library's ring of slots: the GPU waits | nothing |
//! | `binary` | `binary` | one slot, two binary semaphores: the classic scheme | nothing |
//! | `cpu-sync` | `cpu_sync` | the CPU waits for each side in turn | nothing |
//! | `device-copy` | `timeline` | as `timeline` | device to device, as Taichi and Warp do |
//! | `host-copy` | `host_copy` | the CPU | device → host → device, as without interop |
//! | `inline` | `inline` | one queue: *Vulkan* launches the CUDA kernel; fields only | nothing |
//!
//! [`contents`] describes what a frame shows. All hand-offs are [`Producer`]s. To add one, write a file with
//! a `HandoffEntry`, and add a line to `hand_offs!`.

#![warn(unreachable_pub)]

mod binary;
pub mod contents;
mod cpu_sync;
mod host_copy;
mod inline;
mod one_slot;
pub mod producer;
mod scene_kernels;
mod texture;
mod timeline;

use clap::builder::PossibleValue;

use crate::contents::scene::Scene;
use crate::producer::{Producer, ProducerDesc};
use wavefield_gpu::cuda::{Cuda, KernelSource};
use wavefield_gpu::vulkan::{AdapterInfo, Queue};
use wavefield_gpu::{Error, Result};

pub use scene_kernels::{Destination, FieldKernels, SceneKernels};
pub use texture::TextureKernels;

type Make = fn(&mut Queue, &Cuda, &KernelSource, &ProducerDesc) -> Result<Box<dyn Producer>>;

struct HandoffEntry {
    name: &'static str,
    help: &'static str,
    /// A short description for the benchmark's table.
    brief: &'static str,
    /// Whether there is only one slot, whatever the ring's depth.
    one_slot: bool,
    /// Fails, with the reason, if a device cannot hand over frames this way.
    supports: fn(&AdapterInfo) -> Result<(), &'static str>,
    field: Make,
    /// `None` if the hand-off supports only fields.
    texture: Option<Make>,
}

macro_rules! hand_offs {
    ($($(#[$attribute:meta])* $handoff:ident = $entry:path,)*) => {
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum Handoff {
            $($(#[$attribute])* $handoff,)*
        }

        impl Handoff {
            /// All hand-offs, in the order of the help.
            pub const ALL: [Self; [$(Self::$handoff),*].len()] = [$(Self::$handoff),*];

            fn entry(self) -> &'static HandoffEntry {
                match self {
                    $(Self::$handoff => &$entry,)*
                }
            }
        }
    };
}

hand_offs! {
    #[default]
    Timeline = timeline::TIMELINE,
    Inline = inline::INLINE,
    Binary = binary::BINARY,
    CpuSync = cpu_sync::CPU_SYNC,
    DeviceCopy = timeline::DEVICE_COPY,
    HostCopy = host_copy::HOST_COPY,
}

impl clap::ValueEnum for Handoff {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()).help(self.entry().help))
    }
}

impl Handoff {
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    pub fn in_brief(self) -> &'static str {
        self.entry().brief
    }

    /// Returns this hand-off if the device supports it, otherwise its fallback and a note with the reason.
    pub fn on(self, info: &AdapterInfo) -> (Self, Option<String>) {
        let Err(reason) = self.supports(info) else { return (self, None) };
        let note = format!("--handoff {} falls back to timeline on {}: {reason}", self.name(), info.name);
        (Self::Timeline, Some(note))
    }

    pub fn has_one_slot(self) -> bool {
        self.entry().one_slot
    }

    /// Fails if this hand-off cannot hand over the scene on any device.
    pub fn check_scene(self, scene: Scene) -> Result<()> {
        self.maker(scene).map(drop)
    }

    fn maker(self, scene: Scene) -> Result<Make> {
        let make = match scene {
            Scene::Field => Some(self.entry().field),
            Scene::Texture => self.entry().texture,
        };
        make.ok_or_else(|| {
            let name = self.name();
            Error::Usage(format!(
                "{name} hands over fields only, and --scene texture is none: leave one of them out"
            ))
        })
    }

    pub fn supports(self, info: &AdapterInfo) -> Result<(), &'static str> {
        (self.entry().supports)(info)
    }

    /// Makes the producer, and waits for the queue. `context` must be on the queue's GPU: see
    /// [`vulkan_cuda::find_twin`].
    pub fn make(
        self,
        queue: &mut Queue,
        context: &Cuda,
        source: &KernelSource,
        desc: &ProducerDesc,
    ) -> Result<Box<dyn Producer>> {
        let (make, info) = (self.maker(desc.scene)?, queue.device().info());
        self.supports(info).map_err(|reason| {
            Error::Unsupported(format!("{} has no --handoff {}: {reason}", info.name, self.name()))
        })?;
        make(queue, context, source, desc)
    }
}
