//! Finds the vertex under the pointer and its contents. The GPU reads it after the draw; the result is known once the frame is
//! done.

use ash::vk;
use gpu_allocator::MemoryLocation;

use crate::Result;
use crate::observer::{At, Finished, Observer};
use crate::producer::{Produced, Source, Vertices};
use crate::render::Trail;
use crate::vulkan::{
    Bound, Buffer, BufferDesc, Choices, ComputePipeline, ComputePipelineDesc, Device, buffer_barrier, groups,
    pipeline_barrier,
};
use crate::wave::{Grid, Vertex};

/// A vertex that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Found {
    /// Its column and row.
    pub(crate) at: (u32, u32),
    /// Its contents.
    pub(crate) vertex: Vertex,
}

/// Reads the vertices of a [`Trail`] in every frame.
pub(super) struct Probe {
    pipeline: ComputePipeline,
    /// For each flight, the indices of the vertices to read.
    indices: Vec<Buffer>,
    /// For each flight, the vertices that were read.
    values: Vec<Buffer>,
    /// For each flight, the trail that the GPU reads.
    asked: Vec<Option<Trail>>,
    trail: Option<Trail>,
    found: Option<Found>,
    grid: Grid,
    device: Device,
}

impl Probe {
    /// Makes a probe for `flights` frames in flight. Their slots are storage buffers with the vertices of `grid`.
    pub(super) fn new(device: &Device, grid: Grid, flights: usize) -> Result<Self> {
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER;
        let make = |label, each: usize, location| {
            let desc = BufferDesc { label, size: (each * Trail::MOST) as u64, usage, location };
            (0..flights).map(|_| Buffer::new(device, &desc)).collect::<Result<Vec<_>>>()
        };
        let indices = make("the probe's indices", size_of::<u32>(), MemoryLocation::CpuToGpu)?;
        let values = make("the probe's vertices", size_of::<Vertex>(), MemoryLocation::GpuToCpu)?;
        let bound =
            |buffers: &[Buffer]| buffers.iter().map(|buffer| Bound::from(buffer.raw())).collect::<Vec<_>>();
        let pipeline = ComputePipeline::new(
            device,
            &ComputePipelineDesc {
                spirv: include_bytes!(concat!(env!("OUT_DIR"), "/probe.probe.spv")),
                entry: c"probe",
                constants: 0,
                sets: &[
                    Choices::Later(vk::DescriptorType::STORAGE_BUFFER, flights),
                    Choices::These(&bound(&indices)),
                    Choices::These(&bound(&values)),
                ],
            },
        )?;
        let asked = vec![None; flights];
        Ok(Self { pipeline, indices, values, asked, trail: None, found: None, grid, device: device.clone() })
    }

    /// Reads this trail from the next frame on, or none.
    pub(super) fn aim(&mut self, trail: Option<Trail>) {
        self.trail = trail;
        if self.trail.is_none() {
            self.found = None;
        }
    }

    /// The last vertex that was found.
    pub(super) fn found(&self) -> Option<Found> {
        self.found
    }
}

impl Observer for Probe {
    fn produced(&mut self, flight: usize, _produced: &Produced) -> Result<()> {
        self.asked[flight] = self.trail;
        let Some(trail) = &self.trail else { return Ok(()) };
        let bytes = self.indices[flight].bytes_mut()?;
        for (place, (col, row)) in bytes.chunks_exact_mut(size_of::<u32>()).zip(trail.vertices()) {
            place.copy_from_slice(&(row * self.grid.cols + col).to_ne_bytes());
        }
        Ok(())
    }

    unsafe fn record(&self, commands: vk::CommandBuffer, flight: usize, source: Source, at: At) {
        let (At::AfterDraw, Source::Vertices(Vertices { buffer, offset })) = (at, source) else { return };
        let range = self.grid.bytes();
        let bound = Bound::Buffer(vk::DescriptorBufferInfo { buffer, offset, range });
        let written = (vk::PipelineStageFlags2::COMPUTE_SHADER, vk::AccessFlags2::SHADER_STORAGE_WRITE);
        let on_host = (vk::PipelineStageFlags2::HOST, vk::AccessFlags2::HOST_READ);
        let values = buffer_barrier(self.values[flight].raw(), written, on_host);
        // SAFETY: the caller promises that it is recording outside a render pass, that the GPU has finished with the flight, and that
        // compute shaders may read the source (`Observers::read_by_compute`). Each of the three lists has a place for every flight.
        unsafe {
            self.pipeline.point(0, flight, bound);
            self.pipeline.dispatch(commands, [flight; 3], &[], groups(Trail::MOST as u64));
            pipeline_barrier(&self.device, commands, &[values], &[]);
        }
    }

    fn finished(&mut self, frame: &Finished<'_>) -> Result<()> {
        let Some(trail) = self.asked[frame.flight].take().filter(|_| self.trail.is_some()) else {
            return Ok(());
        };
        let bytes = self.values[frame.flight].bytes()?;
        let values: Vec<Vertex> =
            bytemuck::pod_collect_to_vec(&bytes[..trail.vertices().count() * size_of::<Vertex>()]);
        let hit = trail.hit(&values);
        self.found = hit.and_then(|hit| Some(Found { at: trail.vertices().nth(hit)?, vertex: values[hit] }));
        Ok(())
    }
}
