//! Finds the array's element under the pointer. The GPU looks it up after the draw; the CPU reads it later.

use ash::vk;
use bytemuck::{Pod, Zeroable};
use gpu_allocator::MemoryLocation;
use half::f16;

use crate::watch::observer::{At, Finished, Observer};
use wavefield_draw::{Drawing, FieldRenderer, FieldView, PICK_SIDE, Pick};
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{
    Bound, Buffer, BufferDesc, Choices, ComputePipeline, Device, Queue, buffer_barrier, pipeline_barrier,
};
use wavefield_handoff::contents::array::{ArrayKind, DrawnArray, Number};
use wavefield_handoff::contents::parts::PartName;
use wavefield_handoff::producer::{Produced, Source};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FoundElement {
    pub array: DrawnArray,
    /// Which array of the slot this is.
    pub which: usize,
    /// Counted row after row; of triangles, the triangle's number.
    pub index: u32,
    /// The element's components, then zeros. Of a triangle, the mean of its corners.
    pub numbers: [f32; 4],
}

impl FoundElement {
    /// Returns the element that `probe.wgsl` has written; `None` if there is none.
    fn read(arrays: &[(DrawnArray, Elements)], bytes: &[u8]) -> Option<Self> {
        let (index, words) = bytes.split_at_checked(SQUARE)?.0.split_at_checked(size_of::<i32>())?;
        let index = u32::try_from(bytemuck::pod_read_unaligned::<i32>(index)).ok()?;
        let which = arrays.iter().rposition(|(_, elements)| elements.first <= index)?;
        let (array, Elements { first, .. }) = arrays[which];
        let index = index - first;
        let (count, size) = (array.components(), array.number().bytes());
        // The first word may begin before the element.
        let from = (u64::from(index) * u64::from(count) * size % 4) as usize;
        let each = words.get(from..)?.chunks_exact(size as usize).take(count as usize);
        let mut numbers = [0.0; 4];
        for (number, bytes) in numbers.iter_mut().zip(each) {
            *number = match array.number() {
                Number::F32 | Number::I32 => bytemuck::pod_read_unaligned(bytes),
                Number::F16 => bytemuck::pod_read_unaligned::<f16>(bytes).to_f32(),
                Number::U8 => bytes[0].into(),
            };
        }
        Some(Self { array, which, index, numbers })
    }

    /// Returns the element's value in the units [offset, factor] of the client; of colours each component.
    pub fn values(&self, [offset, factor]: [f64; 2]) -> Vec<f64> {
        let numbers = &self.numbers[..self.array.components() as usize];
        let shown = match (self.array.kind(), numbers.len()) {
            (ArrayKind::Image, _) => numbers,
            // A point without a value has its height as one.
            (ArrayKind::Points | ArrayKind::Lines | ArrayKind::Triangles, 3) => &numbers[1..2],
            (_, count) => &numbers[count - 1..],
        };
        shown.iter().map(|&number| offset + factor * f64::from(number)).collect()
    }
}

/// The view, the pixel, and the size of the picture.
type Aim = (FieldView, (f32, f32), vk::Extent2D);

/// Where the square begins in `Found` of `probe.wgsl`, in bytes: after the index and four words.
const SQUARE: usize = 20;
/// Where the arrays begin.
const ARRAYS: usize = SQUARE + 4 * (PICK_SIDE * PICK_SIDE) as usize;

/// An array of the slot. Must match `Elements` in `probe.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Elements {
    first: u32,
    at: u32,
    components: u32,
    per_word: u32,
    faces: u32,
    points: u32,
}

impl Elements {
    /// Describes array `number` of what is drawn.
    fn of(drawing: &Drawing, number: usize) -> (DrawnArray, Self) {
        let (&array, offset) = drawing.placed(number);
        let at = (offset / 4) as u32;
        let faces = array.part(PartName::Faces).map_or(0, |(_, faces)| at + (faces / 4) as u32);
        let (components, per_word) = (array.components(), 4 / array.number().bytes() as u32);
        let (first, points) = (drawing.first_element(number), array.grid().count() as u32);
        (array, Self { first, at, components, per_word, faces, points })
    }
}

pub(super) struct Probe {
    pick: Pick,
    pipeline: ComputePipeline,
    /// Per flight, `Found` of `probe.wgsl`.
    results: Vec<Buffer>,
    /// Per flight, whether its frame looks for the element.
    pub(super) asked: Vec<bool>,
    /// For the next frame.
    aim: Option<Aim>,
    /// Where the user has clicked; it comes before `aim`.
    click: Option<Aim>,
    /// Per flight, whether its frame looks for what was clicked.
    clicks: Vec<bool>,
    pub(super) clicked: Option<FoundElement>,
    pub(super) found: Option<FoundElement>,
    arrays: Vec<(DrawnArray, Elements)>,
    device: Device,
}

impl Probe {
    /// Makes a probe of what `renderer` draws, from slots that are storage buffers, for `flights` frames in
    /// flight. Waits for the queue.
    pub(super) fn new(queue: &mut Queue, renderer: &FieldRenderer, flights: usize) -> Result<Self> {
        let (device, drawing) = (queue.device().clone(), renderer.drawing());
        let arrays: Vec<_> = (0..drawing.count()).map(|number| Elements::of(drawing, number)).collect();
        let elements: Vec<_> = arrays.iter().map(|(_, elements)| *elements).collect();
        let elements: &[u8] = bytemuck::cast_slice(&elements);
        let desc = BufferDesc {
            label: "the element under the pointer",
            size: (ARRAYS + elements.len()) as u64,
            usage: vk::BufferUsageFlags::STORAGE_BUFFER | vk::BufferUsageFlags::TRANSFER_DST,
            location: MemoryLocation::GpuToCpu,
        };
        let result = |_| {
            let mut result = Buffer::new(&device, &desc)?;
            result.bytes_mut()?[ARRAYS..ARRAYS + elements.len()].copy_from_slice(elements);
            Ok(result)
        };
        let results = (0..flights).map(result).collect::<Result<Vec<_>>>()?;
        let bound: Vec<_> = results.iter().map(|buffer| Bound::from(buffer.raw())).collect();
        let pipeline = ComputePipeline::new(
            &device,
            (const { wavefield_gpu::shaders::spirv("probe.probe") }, c"probe"),
            0,
            &[Choices::Later(vk::DescriptorType::STORAGE_BUFFER, flights), Choices::These(&bound)],
        )?;
        let pick = Pick::new(queue, renderer, flights)?;
        let (asked, clicks) = (vec![false; flights], vec![false; flights]);
        let (aim, click, found, clicked) = (None, None, None, None);
        Ok(Self { pick, pipeline, results, asked, aim, click, clicks, clicked, found, arrays, device })
    }

    /// Looks for an element in the next frame; with `None`, forgets what was found or is still to be found.
    pub(super) fn point(&mut self, aim: Option<Aim>) {
        self.aim = aim;
        if aim.is_none() {
            self.found = None;
            self.asked.copy_from_slice(&self.clicks);
        }
    }

    /// Looks once for the element that was clicked.
    pub(super) fn click(&mut self, aim: Aim) {
        self.click = Some(aim);
    }
}

impl Observer for Probe {
    fn produced(&mut self, flight: usize, _produced: &Produced) -> Result<()> {
        self.clicks[flight] = self.click.is_some();
        let aim = self.click.take().or_else(|| self.aim.take());
        self.asked[flight] = aim.is_some();
        aim.map_or(Ok(()), |(view, at, picture)| self.pick.set(flight, &view, at, picture))
    }

    unsafe fn record(&self, commands: vk::CommandBuffer, flight: usize, source: Source, at: At) {
        let (At::AfterDraw, Source::Vertices(slot), true) = (at, source, self.asked[flight]) else { return };
        let result = self.results[flight].raw();
        let copied = (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_WRITE);
        let written = (vk::PipelineStageFlags2::COMPUTE_SHADER, vk::AccessFlags2::SHADER_STORAGE_WRITE);
        let used = (written.0, written.1 | vk::AccessFlags2::SHADER_STORAGE_READ);
        let on_host = (vk::PipelineStageFlags2::HOST, vk::AccessFlags2::HOST_READ);
        let barrier = |before, after| {
            // SAFETY: recording, outside a render pass (the caller's promise); the buffer is alive.
            unsafe {
                pipeline_barrier(&self.device, commands, &[buffer_barrier(result, before, after)], &[]);
            }
        };
        // SAFETY: the caller promises that it is recording outside a render pass, that the GPU has finished
        // with the flight, and that all shaders may read the source (`Frame::reads`). The result has room for
        // the square. Each of the two lists has a place for every flight.
        unsafe {
            // Fails only for a texture, which is not probed.
            if self.pick.record(commands, (flight, source), (result, SQUARE as u64)).is_err() {
                return;
            }
            barrier(copied, used);
            // The first array has the bytes of all: see `Things::first`.
            self.pipeline.bindings.point(0, flight, [Bound::Buffer(slot.whole(&self.arrays[0].0))]);
            self.pipeline.dispatch(commands, [flight; 2], &[], [1, 1]);
            barrier(written, on_host);
        }
    }

    fn finished(&mut self, frame: &Finished<'_>) -> Result<()> {
        if std::mem::take(&mut self.asked[frame.flight]) {
            let found = FoundElement::read(&self.arrays, self.results[frame.flight].bytes()?);
            match std::mem::take(&mut self.clicks[frame.flight]) {
                true => self.clicked = found,
                false => self.found = found,
            }
        }
        Ok(())
    }
}
