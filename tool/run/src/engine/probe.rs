//! Finds the vertex or pixel under the pointer. The GPU copies it after the draw; the CPU reads it later.

use ash::vk;
use gpu_allocator::MemoryLocation;
use half::f16;

use crate::watch::observer::{At, Finished, Observer};
use wavefield_draw::{Camera, Placement, Trail};
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{
    Bound, Buffer, BufferDesc, Choices, ComputePipeline, Device, buffer_barrier, groups, pipeline_barrier,
};
use wavefield_handoff::contents::array::{ArrayKind, DrawnArray, Number};
use wavefield_handoff::contents::wave::Vertex;
use wavefield_handoff::producer::{Produced, Source};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FoundElement {
    pub at: (u32, u32),
    pub numbers: [f32; 4],
    pub names: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Aim {
    Mesh(Trail),
    Image(u32, u32),
}

impl Aim {
    /// Returns the elements that may be under `at`, in pixels of the picture; `None` if there are none.
    pub(super) fn new(
        array: &DrawnArray,
        camera: &Camera,
        at: (f32, f32),
        picture: (u32, u32),
    ) -> Option<Self> {
        let grid = array.grid();
        match array.kind() {
            ArrayKind::Mesh => Trail::new(camera.ray(at, picture), grid).map(Self::Mesh),
            ArrayKind::Image => {
                let Placement { corner: [left, top], size: [width, height] } =
                    Placement::new(grid, camera, picture);
                let (x, y) = ((at.0 - left) / width, (at.1 - top) / height);
                let is_inside = (0.0..1.0).contains(&x) && (0.0..1.0).contains(&y);
                let part = |part: f32, all: u32| ((part * all as f32) as u32).min(all - 1);
                is_inside.then(|| Self::Image(part(x, grid.cols), part(y, grid.rows)))
            }
            ArrayKind::Surface | ArrayKind::Points => None,
        }
    }

    fn places(&self) -> Vec<(u32, u32)> {
        match self {
            Self::Mesh(trail) => trail.vertices().collect(),
            Self::Image(col, row) => vec![(*col, *row)],
        }
    }

    /// Returns the element that was hit. `bytes` holds 16 bytes for each of [`Aim::places`].
    fn found(&self, array: &DrawnArray, bytes: &[u8]) -> Option<FoundElement> {
        match *self {
            Self::Mesh(trail) => {
                let values: Vec<Vertex> = bytemuck::pod_collect_to_vec(bytes);
                let hit = trail.hit(&values)?;
                let Vertex { x, y, z, w } = values[hit];
                let at = trail.vertices().nth(hit)?;
                Some(FoundElement { at, numbers: [x, y, z, w], names: &["x", "y", "z", "w"] })
            }
            Self::Image(col, row) => {
                let (count, size) = (array.components() as usize, array.number().bytes() as usize);
                // The first word may begin before the pixel.
                let from = (first_byte(array, (col, row)) % 4) as usize;
                let mut numbers = [0.0; 4];
                for (number, bytes) in
                    numbers.iter_mut().zip(bytes.get(from..)?.chunks_exact(size)).take(count)
                {
                    *number = match array.number() {
                        Number::F32 => bytemuck::pod_read_unaligned(bytes),
                        Number::F16 => bytemuck::pod_read_unaligned::<f16>(bytes).to_f32(),
                        Number::U8 => bytes[0].into(),
                    };
                }
                let names: &[&str] = if count == 1 { &["value"] } else { &["r", "g", "b", "a"][..count] };
                Some(FoundElement { at: (col, row), numbers, names })
            }
        }
    }
}

fn first_byte(array: &DrawnArray, (col, row): (u32, u32)) -> u64 {
    let index = u64::from(row) * u64::from(array.grid().cols) + u64::from(col);
    index * u64::from(array.components()) * array.number().bytes()
}

pub(super) struct Probe {
    pipeline: ComputePipeline,
    /// Per flight, the index of the first word of each element to read.
    indices: Vec<Buffer>,
    /// Per flight, four words of each element.
    values: Vec<Buffer>,
    /// Per flight, the aim whose elements the GPU reads.
    asked: Vec<Option<Aim>>,
    pub(super) aim: Option<Aim>,
    pub(super) found: Option<FoundElement>,
    array: DrawnArray,
    device: Device,
}

impl Probe {
    /// Makes a probe for slots that are storage buffers with this array, and for `flights` frames in flight.
    pub(super) fn new(device: &Device, array: DrawnArray, flights: usize) -> Result<Self> {
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER;
        let make = |label, each: usize, location| {
            let desc = BufferDesc { label, size: (each * Trail::MOST) as u64, usage, location };
            (0..flights).map(|_| Buffer::new(device, &desc)).collect::<Result<Vec<_>>>()
        };
        let indices = make("the probe's indices", size_of::<u32>(), MemoryLocation::CpuToGpu)?;
        let values = make("the probe's elements", size_of::<Vertex>(), MemoryLocation::GpuToCpu)?;
        let bound =
            |buffers: &[Buffer]| buffers.iter().map(|buffer| Bound::from(buffer.raw())).collect::<Vec<_>>();
        let pipeline = ComputePipeline::new(
            device,
            (const { wavefield_gpu::shaders::spirv("probe.probe") }, c"probe"),
            0,
            &[
                Choices::Later(vk::DescriptorType::STORAGE_BUFFER, flights),
                Choices::These(&bound(&indices)),
                Choices::These(&bound(&values)),
            ],
        )?;
        let asked = vec![None; flights];
        Ok(Self { pipeline, indices, values, asked, aim: None, found: None, array, device: device.clone() })
    }
}

impl Observer for Probe {
    fn produced(&mut self, flight: usize, _produced: &Produced) -> Result<()> {
        self.asked[flight] = self.aim;
        let Some(aim) = &self.aim else { return Ok(()) };
        let bytes = self.indices[flight].bytes_mut()?;
        for (place, at) in bytes.chunks_exact_mut(size_of::<u32>()).zip(aim.places()) {
            // An array has fewer than 2^31 words.
            place.copy_from_slice(&((first_byte(&self.array, at) / 4) as u32).to_ne_bytes());
        }
        Ok(())
    }

    unsafe fn record(&self, commands: vk::CommandBuffer, flight: usize, source: Source, at: At) {
        let (At::AfterDraw, Source::Vertices(slot)) = (at, source) else { return };
        let bound = Bound::Buffer(slot.whole(&self.array));
        let written = (vk::PipelineStageFlags2::COMPUTE_SHADER, vk::AccessFlags2::SHADER_STORAGE_WRITE);
        let on_host = (vk::PipelineStageFlags2::HOST, vk::AccessFlags2::HOST_READ);
        let values = buffer_barrier(self.values[flight].raw(), written, on_host);
        // SAFETY: the caller promises that it is recording outside a render pass, that the GPU has finished
        // with the flight, and that compute shaders may read the source (`Frame::reads`). Each
        // of the three lists has a place for every flight.
        unsafe {
            self.pipeline.bindings.point(0, flight, [bound]);
            self.pipeline.dispatch(commands, [flight; 3], &[], groups(Trail::MOST as u64));
            pipeline_barrier(&self.device, commands, &[values], &[]);
        }
    }

    fn finished(&mut self, frame: &Finished<'_>) -> Result<()> {
        let Some(aim) = self.asked[frame.flight].take().filter(|_| self.aim.is_some()) else {
            return Ok(());
        };
        let bytes = self.values[frame.flight].bytes()?;
        self.found = aim.found(&self.array, &bytes[..aim.places().len() * size_of::<Vertex>()]);
        Ok(())
    }
}
