//! What is shown, and who makes it.

use super::{Choice, Config, ProducerKind};
use crate::cuda::{Cuda, KernelSource, Signature};
use crate::handoff::Handoff;
use crate::producer::{
    ComputeProducer, HostProducer, Producer, StillProducer, TextureComputeProducer, TextureHostProducer,
};
use crate::render::{Camera, Source, Surface};
use crate::scene::Scene;
use crate::vulkan::Queue;
use crate::{Error, Result};

impl Scene {
    /// The parameters of a kernel that fills it.
    pub fn signature(self) -> Signature {
        match self {
            Self::Field => Signature::Field,
            Self::Texture => Signature::Texture,
        }
    }

    /// Where it is seen from at first.
    pub fn camera(self) -> Camera {
        match self {
            Self::Field => Camera::default(),
            Self::Texture => Camera::ABOVE_A_PLANE,
        }
    }

    /// What is drawn.
    pub(super) fn surface(self) -> Surface {
        match self {
            Self::Field => Surface::Field,
            Self::Texture => Surface::Plane,
        }
    }

    /// What a frame is drawn from.
    pub(super) fn source(self, producer: &dyn Producer, frame: u64) -> Source {
        match self {
            Self::Field => Source::Vertices(producer.vertices_of(frame)),
            Self::Texture => Source::Texture(producer.images()[producer.slot_of(frame)]),
        }
    }
}

/// Who fills the field, as `config` asks.
///
/// # Errors
/// What stands in the way of that producer.
pub(crate) fn field_producer(queue: &Queue, choice: &Choice, config: &Config) -> Result<Box<dyn Producer>> {
    let device = queue.device();
    Ok(match (config.producer, &choice.cuda) {
        (ProducerKind::Auto | ProducerKind::Cuda, Some((driver, info))) => {
            let context = Cuda::primary(*driver, info)?;
            let built_in = KernelSource::built_in();
            let kernel = config.kernel.as_ref().unwrap_or(&built_in);
            let handoff = config.handoff.on(device);
            if handoff != config.handoff {
                crate::note!(
                    "note: {} has neither VK_NV_cuda_kernel_launch nor VK_NVX_binary_import; --handoff inline \
                     falls back to timeline",
                    device.info().name
                );
            }
            handoff.make(queue, &context, kernel, config.grid, config.ring, config.timeout)?
        }
        (ProducerKind::Cuda, None) => {
            return Err(Error::Unsupported(format!("CUDA cannot share {}", device.info().name)));
        }
        (ProducerKind::Auto | ProducerKind::Compute, _) => {
            Box::new(ComputeProducer::new(device, config.grid, config.ring)?)
        }
        (ProducerKind::Still, _) => Box::new(StillProducer::new(device, config.grid)?),
        (ProducerKind::StillShared, _) => Box::new(StillProducer::exported(device, config.grid)?),
        (ProducerKind::Host, _) => Box::new(HostProducer::new(device, config.grid, config.ring)?),
    })
}

/// The producer of `--scene texture` that `config` asks for.
pub(super) fn texture_producer(
    queue: &mut Queue,
    choice: &Choice,
    config: &Config,
) -> Result<Box<dyn Producer>> {
    let device = queue.device().clone();
    let (size, ring) = (config.grid, config.ring);
    Ok(match (config.producer, &choice.cuda) {
        (ProducerKind::Auto | ProducerKind::Cuda, Some((driver, info))) => {
            let context = Cuda::primary(*driver, info)?;
            let built_in = KernelSource::built_in_texture();
            let kernel = config.kernel.as_ref().unwrap_or(&built_in);
            let handoff = match config.handoff.supports_texture(device.info()) {
                Ok(()) => config.handoff,
                Err(reason) => {
                    let (name, device) = (config.handoff.name(), &device.info().name);
                    crate::note!(
                        "note: --scene texture has no --handoff {name} on {device}, and falls back to timeline: {reason}"
                    );
                    Handoff::Timeline
                }
            };
            handoff.make_texture(queue, &context, kernel, size, ring, config.timeout)?
        }
        (ProducerKind::Cuda, None) => {
            return Err(crate::Error::Unsupported(format!("CUDA cannot share {}", device.info().name)));
        }
        (ProducerKind::Auto | ProducerKind::Compute, _) => {
            Box::new(TextureComputeProducer::new(&device, size, ring)?)
        }
        (ProducerKind::Still, _) => Box::new(StillProducer::texture(&device, size)?),
        (ProducerKind::StillShared, _) => Box::new(StillProducer::exported_texture(&device, size)?),
        (ProducerKind::Host, _) => Box::new(TextureHostProducer::new(&device, size, ring)?),
    })
}
