use std::borrow::Cow;

use clap::ValueEnum;
use vulkan_cuda::Ring;

use super::{Batching, Choice, Config, ProducerKind};
use crate::watch::verify::{Broken, BrokenProducer};
use wavefield_draw::{Camera, FieldView, Style};
use wavefield_gpu::cuda::{Cuda, KernelSource};
use wavefield_gpu::vulkan::{Device, Queue};
use wavefield_gpu::{Error, Result};
use wavefield_handoff::Handoff;
use wavefield_handoff::contents::array::DrawnArray;
use wavefield_handoff::contents::gallery::{self, KernelShader};
use wavefield_handoff::contents::scene::Scene;
use wavefield_handoff::producer::{
    ComputeProducer, HostProducer, Producer, ProducerDesc, StillProducer, TextureComputeProducer,
    TextureHostProducer, check_grid, check_texture,
};

impl Config {
    pub fn camera(&self) -> Camera {
        self.camera.unwrap_or(Camera::of(self.scene))
    }

    pub fn camera_for(&self, array: &DrawnArray) -> Camera {
        if array.is_flat() { FieldView::of(array).camera } else { self.camera() }
    }

    /// Returns the default style: points for particles, otherwise a surface.
    pub fn usual_style(&self) -> Style {
        match gallery::entry_of(self.kernel.as_ref()) {
            Some(entry) if entry.points => Style::Points,
            _ => Style::Surface,
        }
    }

    pub fn kernel(&self) -> Cow<'_, KernelSource> {
        self.kernel
            .as_ref()
            .map_or_else(|| Cow::Owned(wavefield_handoff::contents::built_in::of(self.scene)), Cow::Borrowed)
    }

    pub fn producer_desc(&self) -> ProducerDesc {
        ProducerDesc {
            scene: self.scene,
            grid: self.grid,
            ring: self.ring.unwrap_or_default(),
            in_flight: None,
            stamped: self.verify,
            timeout: self.timeout,
            leaves_out_free: self.broken == Some(Broken::Free),
        }
    }

    /// Returns whether the built-in wave or texture is shown: [`crate::watch::verify`] has its reference.
    pub(crate) fn shows_built_in(&self) -> bool {
        gallery::entry_of(self.kernel.as_ref()).is_some_and(|entry| entry.name == "wave")
    }

    /// Returns whether a kernel of the user's own, rather than one of this program, fills the scene.
    pub fn has_own_kernel(&self) -> bool {
        gallery::entry_of(self.kernel.as_ref()).is_none()
    }

    fn shader(&self) -> Option<&'static KernelShader> {
        gallery::entry_of(self.kernel.as_ref()).and_then(|entry| entry.shader.as_ref())
    }

    /// Fails if the hand-off does not support the scene, the kernel cannot run, or frames are too large.
    pub fn check_on(&self, choice: &Choice, device: &Device) -> Result<()> {
        let cuda = choice.twin.clone().filter(|_| self.producer.may_use_cuda());
        if cuda.is_some() {
            self.handoff.check_scene(self.scene)?;
        }
        self.check_kernel(&Choice { cuda, ..choice.clone() })?;
        match self.scene {
            Scene::Field => check_grid(device, self.grid),
            Scene::Texture => check_texture(device, self.grid),
        }
    }

    pub(crate) fn check_kernel(&self, choice: &Choice) -> Result<()> {
        let by_cuda = choice.cuda.is_some() && self.producer.may_use_cuda();
        let by_shader =
            matches!(self.producer, ProducerKind::Auto | ProducerKind::Compute) && self.shader().is_some();
        if self.shows_built_in() || by_cuda || by_shader {
            return Ok(());
        }
        let (kernel, with_shaders) = (&self.kernel().name, gallery::with_shaders());
        let words = match (self.producer.may_use_cuda(), self.producer.to_possible_value()) {
            (false, Some(producer)) => format!(
                "{kernel} does not run with the producer {}: choose auto or cuda as the producer; {with_shaders} also run with \
                 compute",
                producer.get_name()
            ),
            _ => format!(
                "{kernel} needs CUDA ({}): without it choose another kernel, {with_shaders}",
                choice.fallback.as_deref().unwrap_or("which does not share this device"),
            ),
        };
        Err(Error::Unsupported(words))
    }

    /// Returns the ring for a hand-off, and the limit on frames in flight if it differs from one per slot.
    ///
    /// With [`Batching::Auto`] and no given depth, the ring is deep enough for batches. The limit stays at
    /// the usual depth, so the deeper ring adds no latency beyond that of the batch.
    pub fn ring_of(&self, handoff: Handoff) -> (Ring, Option<usize>) {
        if handoff != Handoff::Timeline {
            return (self.ring.unwrap_or_default(), None);
        }
        let usual = Ring::default().depth();
        let (depth, in_flight) = match (self.ring, self.batch) {
            (Some(ring), _) => return (ring, None),
            (None, Batching::Fixed(frames)) => (usual.max(frames as usize), None),
            (None, Batching::Auto { .. }) => {
                let fitting = (ROOM / self.scene.frame_bytes(self.grid)) as usize;
                (fitting.clamp(usual, LONGEST), Some(usual))
            }
        };
        (Ring::new(depth as u32).unwrap_or_default(), in_flight)
    }
}

/// The maximum size in bytes of a ring that [`Batching::Auto`] makes deeper than usual.
const ROOM: u64 = 128 << 20;
/// The maximum depth of such a ring. More slots would add latency, and hardly reduce the hand-off's cost.
const LONGEST: usize = 16;

/// Makes the producer for these settings. Waits for the queue.
pub(crate) fn make_producer(
    queue: &mut Queue,
    context: Option<&Cuda>,
    config: &Config,
) -> Result<Box<dyn Producer>> {
    let (device, desc) = (queue.device().clone(), config.producer_desc());
    let producer: Box<dyn Producer> = match (config.producer, context) {
        (kind, Some(context)) if kind.may_use_cuda() => {
            config.handoff.check_scene(config.scene)?;
            let kernel = config.kernel();
            let (handoff, note) = config.handoff.on(device.info());
            if let Some(note) = note {
                wavefield_gpu::note!("note: {note}");
            }
            let (ring, in_flight) = config.ring_of(handoff);
            handoff.make(queue, context, &kernel, &ProducerDesc { ring, in_flight, ..desc })?
        }
        (ProducerKind::Cuda, _) => {
            return Err(Error::Unsupported(format!("CUDA cannot share {}", device.info().name)));
        }
        (ProducerKind::Auto | ProducerKind::Compute, _) => {
            compute(&device, &desc, config.shader().unwrap_or(&gallery::WAVE), false)?
        }
        (ProducerKind::Host, _) => match desc.scene {
            Scene::Field => Box::new(HostProducer::new(&device, &desc)?),
            Scene::Texture => Box::new(TextureHostProducer::new(&device, &desc)?),
        },
        (ProducerKind::Still | ProducerKind::StillShared, _) if desc.stamped => {
            return Err(Error::Usage(
                "the draw alone has no frames to tell apart, so it cannot be checked".into(),
            ));
        }
        (kind @ (ProducerKind::Still | ProducerKind::StillShared), _) => {
            let filled_by = compute(&device, &desc, &gallery::WAVE, kind == ProducerKind::StillShared)?;
            Box::new(StillProducer::new(queue, desc.scene, config.parameters, filled_by)?)
        }
    };
    match config.broken {
        Some(broken) => Ok(Box::new(BrokenProducer::new(producer, broken)?)),
        None => Ok(producer),
    }
}

/// Makes a compute producer. `field` is the shader for a field; a texture has its own.
fn compute(
    device: &Device,
    desc: &ProducerDesc,
    field: &'static KernelShader,
    exported: bool,
) -> Result<Box<dyn Producer>> {
    Ok(match desc.scene {
        Scene::Field => Box::new(ComputeProducer::new(device, desc, field, exported)?),
        Scene::Texture => Box::new(TextureComputeProducer::new(device, desc, exported)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceTable, Headless};
    use wavefield_gpu::vulkan::Validation;
    use wavefield_handoff::contents::wave::Grid;

    /// The window offers only what fits.
    #[test]
    fn what_does_not_fit_this_device_is_refused() {
        let table = DeviceTable::headless(Validation::IfInstalled).unwrap();
        let choice = table.choose(None, ProducerKind::Compute).unwrap();
        let choice = Choice { twin: None, cuda: None, ..choice };
        let small = Config {
            grid: Grid { cols: 8, rows: 8 },
            size: ash::vk::Extent2D { width: 8, height: 8 },
            producer: ProducerKind::Compute,
            ..Config::default()
        };
        let mut run = Headless::new(&choice, &small).unwrap();
        let mut refusal = |kernel: &str, producer, side| {
            let kernel = gallery::named(kernel).unwrap().filter(|one| one.name != "wave");
            let kernel = kernel.map(gallery::GalleryEntry::source);
            let config = Config { kernel, producer, grid: Grid { cols: side, rows: side }, ..small.clone() };
            config.check_on(&choice, run.engine().device()).err().map(|error| error.to_string())
        };
        let (auto, compute, host) = (ProducerKind::Auto, ProducerKind::Compute, ProducerKind::Host);
        assert_eq!([auto, compute, host].map(|producer| refusal("wave", producer, 64)), [None, None, None]);
        assert_eq!(refusal("ocean", compute, 64), None);
        assert!(refusal("pond", auto, 64).unwrap().contains("needs CUDA"));
        assert!(refusal("ocean", host, 64).unwrap().contains("does not run with the producer host"));
        assert!(refusal("wave", compute, 1 << 20).unwrap().contains("the largest square --grid"));
    }

    #[test]
    fn a_ring_whose_depth_was_not_given_has_room_for_batches() {
        let ring = |side, ring: Option<u32>, batch, handoff| {
            let grid = Grid { cols: side, rows: side };
            let ring = ring.and_then(Ring::new);
            let (ring, in_flight) = Config { grid, ring, batch, ..Config::default() }.ring_of(handoff);
            (ring.depth(), in_flight)
        };
        let (auto, timeline) = (Batching::default(), Handoff::Timeline);
        for (side, depth) in [(64, 16), (1024, 8), (4096, 3)] {
            assert_eq!(ring(side, None, auto, timeline), (depth, Some(3)), "{side}");
        }
        assert_eq!(ring(64, Some(5), auto, timeline), (5, None), "as asked");
        assert_eq!(ring(64, None, Batching::Fixed(1), timeline), (3, None));
        assert_eq!(ring(64, None, Batching::Fixed(8), timeline), (8, None));
        assert_eq!(ring(64, None, auto, Handoff::DeviceCopy), (3, None));
    }
}
