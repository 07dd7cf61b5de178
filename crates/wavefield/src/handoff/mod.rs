//! Ways to hand CUDA's frames to Vulkan, side by side for comparison.
//!
//! Most of them apply to a *work*, which is what CUDA does for a frame, either the library's ring (`timeline`) or an *order*
//! that keeps the two sides apart in one slot (`one_slot`):
//!
//! | `--handoff` | file | what orders the two sides | what is copied |
//! |---|---|---|---|
//! | `timeline` | `timeline` | the library's ring of slots: the GPU waits | nothing |
//! | `binary` | `binary` | one slot, two binary semaphores: the classic scheme | nothing |
//! | `cpu-sync` | `cpu_sync` | the CPU waits for each side in turn | nothing |
//! | `device-copy` | `timeline` | as `timeline` | device to device, as Taichi and Warp do |
//! | `host-copy` | `host_copy` | the CPU | device → host → device, as without interop |
//! | `inline` | `inline`, `texture_inline` | one queue: *Vulkan* launches the CUDA kernel | nothing |
//!
//! A work writes a field's vertices (`field`) or a texture with its levels (`texture`). All hand-offs are [`Producer`]s, and
//! [`Handoff::make`] makes them.

mod binary;
mod cpu_sync;
mod field;
mod host_copy;
mod inline;
mod module;
mod one_slot;
mod order;
mod texture;
mod texture_inline;
mod timeline;
mod work;

use crate::cuda::{Cuda, KernelSource};
use crate::producer::{Producer, ProducerDesc};
use crate::scene::Scene;
use crate::vulkan::{AdapterInfo, NO_INLINE, Queue};
use crate::{Error, Result};
use binary::BinaryPair;
use cpu_sync::CpuSync;
use host_copy::HostCopyHandoff;
use one_slot::OneSlotHandoff;
use timeline::TimelineHandoff;

pub(crate) use field::FieldWork;
pub use inline::InlineHandoff;
pub(crate) use texture::TextureWork;
pub use texture_inline::TextureInlineHandoff;
pub(crate) use work::{Place, Work};

/// The name of [`Handoff::Timeline`]'s producer.
pub(crate) const TIMELINE: &str = "cuda";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Handoff {
    /// A ring of shared buffers or images, and two timeline semaphores; the GPU waits.
    #[default]
    Timeline,
    /// The CUDA kernel inside Vulkan's command buffer (VK_NV_cuda_kernel_launch or VK_NVX_binary_import; for a texture
    /// VK_NVX_binary_import and VK_NVX_image_view_handle); falls back to timeline. A kernel that faults there stops drawing on
    /// this GPU for every process: see --risk-the-gpu.
    Inline,
    /// One shared buffer or image and two binary semaphores: the classic scheme.
    Binary,
    /// A shared buffer or image; the CPU waits for each side.
    CpuSync,
    /// CUDA fills its own memory and copies it into the shared slot, on the device; for a texture, all
    /// levels.
    DeviceCopy,
    /// A copy from the device to the host and back, as without interop.
    HostCopy,
}

impl Handoff {
    /// All hand-offs, the default first.
    pub const ALL: [Self; 6] =
        [Self::Timeline, Self::Inline, Self::Binary, Self::CpuSync, Self::DeviceCopy, Self::HostCopy];

    pub fn name(self) -> &'static str {
        match self {
            Self::Timeline => "timeline",
            Self::Inline => "inline",
            Self::Binary => "binary",
            Self::CpuSync => "cpu-sync",
            Self::DeviceCopy => "device-copy",
            Self::HostCopy => "host-copy",
        }
    }

    /// This hand-off if the device supports it, otherwise its fallback and a note that gives the reason.
    pub fn on(self, info: &AdapterInfo, scene: Scene) -> (Self, Option<String>) {
        let name = &info.name;
        match (self, scene, self.supports_texture(info)) {
            (Self::Inline, Scene::Field, _) if info.inline.is_none() => {
                let note = format!("--handoff inline falls back to timeline on {name}: {NO_INLINE}");
                (Self::Timeline, Some(note))
            }
            (_, Scene::Texture, Err(reason)) => {
                let note = format!(
                    "--scene texture has no --handoff {} on {name} and falls back to timeline: {reason}",
                    self.name()
                );
                (Self::Timeline, Some(note))
            }
            _ => (self, None),
        }
    }

    /// Whether it always has one slot, whatever the ring's depth.
    pub fn has_one_slot(self) -> bool {
        match self {
            Self::Binary | Self::CpuSync | Self::HostCopy => true,
            Self::Timeline | Self::Inline | Self::DeviceCopy => false,
        }
    }

    /// Fails with the reason if a device cannot hand over a texture this way.
    pub fn supports_texture(self, info: &AdapterInfo) -> Result<(), &'static str> {
        match self {
            Self::Inline => TextureInlineHandoff::supports(info),
            _ => Ok(()),
        }
    }

    /// Makes the producer, and waits for the queue. `context` must belong to the same GPU as the queue's device: see
    /// [`vulkan_cuda::find_twin`].
    ///
    /// # Errors
    /// Fails for a texture that [`Handoff::supports_texture`] refuses, and as the hand-off's own constructor does.
    pub fn make(
        self,
        queue: &mut Queue,
        context: &Cuda,
        source: &KernelSource,
        desc: &ProducerDesc,
    ) -> Result<Box<dyn Producer>> {
        let info = queue.device().info();
        if desc.scene == Scene::Texture
            && let Err(reason) = self.supports_texture(info)
        {
            return Err(Error::Unsupported(format!(
                "--scene texture has no --handoff {} on {}: {reason}",
                self.name(),
                info.name
            )));
        }
        match desc.scene {
            Scene::Field => self.make_for::<FieldWork>(queue, context, source, desc),
            Scene::Texture => self.make_for::<TextureWork>(queue, context, source, desc),
        }
    }

    fn make_for<W: Work + 'static>(
        self,
        queue: &mut Queue,
        context: &Cuda,
        source: &KernelSource,
        desc: &ProducerDesc,
    ) -> Result<Box<dyn Producer>> {
        Ok(match (self, desc.scene) {
            (Self::Timeline | Self::DeviceCopy, _) => {
                Box::new(TimelineHandoff::<W>::new(self, queue, context, source, desc)?)
            }
            (Self::Binary, _) => {
                let order = BinaryPair::new(&queue.device().pair(context)?)?;
                Box::new(OneSlotHandoff::<W, _>::new(order, queue, context, source, desc)?)
            }
            (Self::CpuSync, _) => {
                let order = CpuSync { timeout: desc.timeout };
                Box::new(OneSlotHandoff::<W, _>::new(order, queue, context, source, desc)?)
            }
            (Self::HostCopy, _) => Box::new(HostCopyHandoff::<W>::new(queue, context, source, desc)?),
            (Self::Inline, Scene::Field) => Box::new(InlineHandoff::new(queue, context, source, desc)?),
            (Self::Inline, Scene::Texture) => {
                Box::new(TextureInlineHandoff::new(queue, context, source, desc)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn all_are_those_of_the_command_line() {
        assert_eq!(Handoff::ALL, Handoff::value_variants());
        for handoff in Handoff::ALL {
            assert_eq!(handoff.to_possible_value().unwrap().get_name(), handoff.name());
        }
    }
}
