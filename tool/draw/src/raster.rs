//! Draws by compute shaders in place of the graphics pipeline: see `parts/raster.wgsl`.
//!
//! A first pass finds what is nearest at each sample; a second one shades each pixel once, into a buffer that is then
//! copied to the picture. Data-centre GPUs have few units for the graphics pipeline, so this takes a fraction of its time there
//! (docs/performance.md, "The draw").

use ash::vk;
use gpu_allocator::MemoryLocation;
use vulkan_cuda::ownership::Access;

use super::inputs::{Constants, Inputs, VIEWS};
use super::pipeline::Pipeline;
use super::{OffscreenTarget, Output, Picture, Samples, Slices, Style};
use wavefield_gpu::Result;
use wavefield_gpu::shaders::spirv;
use wavefield_gpu::vulkan::{
    Buffer, BufferDesc, Device, MAX_GROUPS, Queue, buffer_barrier, compute_pipeline, copy_of_level, groups,
    one_shot, pipeline_barrier, record_upload,
};
use wavefield_handoff::contents::array::{ArrayKind, DrawnArray};

/// The bytes of a sample in `nearest`.
const KEY: u64 = 8;
/// A block of cells, and a block of pixels that are shaded.
const CELLS: u32 = 16;
/// The triangles of a block of cells, and of a block of others.
const BLOCK_TRIANGLES: u64 = 2 * (CELLS as u64) * (CELLS as u64);
const SHADED: [u32; 2] = [32, 8];
/// About how many threads, or workgroups of triangles, a GPU needs to be busy.
const BUSY_THREADS: u64 = 1 << 18;
const BUSY_GROUPS: u64 = 1024;
/// The blocks that `has_huge` has room for.
const MAX_BLOCKS: u32 = 1 << 20;

const READS_AND_WRITES: Access = Access {
    stage: vk::PipelineStageFlags2::COMPUTE_SHADER,
    access: vk::AccessFlags2::from_raw(
        vk::AccessFlags2::SHADER_STORAGE_READ.as_raw() | vk::AccessFlags2::SHADER_STORAGE_WRITE.as_raw(),
    ),
};

/// The pipelines that draw one kind of array in one style.
pub(super) struct Passes {
    /// `None` for an image, which is only shaded.
    first: Option<Pipeline>,
    /// Draws the triangles that the first pass leaves.
    huge: Option<Pipeline>,
    shade: Pipeline,
    output: Output,
    samples: u32,
    is_bgra: bool,
}

impl Passes {
    /// Returns `None` if this device or output needs the graphics pipeline.
    pub(super) fn new(
        device: &Device,
        layout: vk::PipelineLayout,
        (output, samples): (Output, Samples),
        (kind, style): (ArrayKind, Style),
    ) -> Result<Option<Self>> {
        let is_bgra = match output {
            Output::Facts | Output::Color(OffscreenTarget::FORMAT) => false,
            Output::Color(vk::Format::B8G8R8A8_SRGB) => true,
            Output::Color(_) => return Ok(None),
        };
        let Some(shaders) = Shaders::of(kind, style) else { return Ok(None) };
        if !device.info().atomics64 {
            return Ok(None);
        }
        let is_triangles = has_triangles(kind, style);
        let shade = match (output, style) {
            (Output::Facts, _) => (shaders.facts, c"shade_facts_main"),
            (_, Style::Wireframe) if is_triangles => (shaders.wireframe, c"shade_wireframe_main"),
            _ => (shaders.shade, c"shade_main"),
        };
        let pipeline = |shader| compute_pipeline(device, layout, shader);
        let optional = |spirv: Option<_>, entry| spirv.map(|spirv| pipeline((spirv, entry))).transpose();
        Ok(Some(Self {
            first: optional(shaders.raster, c"raster_main")?,
            huge: optional(shaders.huge, c"huge_main")?,
            shade: pipeline(shade)?,
            // A dot covers whole pixels.
            samples: if is_triangles || kind == ArrayKind::Image { samples.count() } else { 1 },
            output,
            is_bgra,
        }))
    }
}

/// Returns whether triangles are drawn, not dots or an image.
fn has_triangles(kind: ArrayKind, style: Style) -> bool {
    match kind {
        ArrayKind::Mesh | ArrayKind::Surface => style != Style::Points,
        ArrayKind::Triangles => true,
        ArrayKind::Points | ArrayKind::Image | ArrayKind::Lines => false,
    }
}

/// What the first pass draws.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// Blocks of triangles, across and along. Each is a workgroup, or several share it.
    Blocks([u32; 2]),
    /// The number of dots. Each is a thread, or several share it.
    Dots(u64),
}

impl Work {
    /// Returns `None` if the array is too large for the shaders.
    pub(super) fn of(array: &DrawnArray, style: Style) -> Option<Self> {
        let (grid, count) = (array.grid(), array.pieces());
        let work = match (has_triangles(array.kind(), style), array.kind()) {
            (true, ArrayKind::Triangles) => {
                let blocks = count.div_ceil(BLOCK_TRIANGLES);
                let across = blocks.clamp(1, u64::from(MAX_GROUPS));
                Self::Blocks([across, blocks.div_ceil(across)].map(|groups| groups as u32))
            }
            (true, _) => Self::Blocks([grid.cols, grid.rows].map(|vertices| (vertices - 1).div_ceil(CELLS))),
            (false, _) => Self::Dots(count),
        };
        let ([across, along, _], _) = work.shared(1);
        let has_room = match work {
            Self::Blocks(_) => u64::from(across) * u64::from(along) <= u64::from(MAX_BLOCKS),
            Self::Dots(_) => true,
        };
        // A triangle's number has 32 bits.
        let fits = 2 * count < u64::from(u32::MAX) && across.max(along) <= MAX_GROUPS && has_room;
        fits.then_some(work)
    }

    /// Returns the number of pictures that one dispatch draws at most.
    fn at_once(&self) -> usize {
        match *self {
            // `has_huge` has room for so many.
            Self::Blocks([across, along]) => ((MAX_BLOCKS / (across * along)) as usize).clamp(1, VIEWS),
            Self::Dots(_) => VIEWS,
        }
    }

    /// Returns the workgroups, and the number that share a block or a dot, if `pictures` are drawn at once: as many as keep
    /// the GPU busy.
    fn shared(&self, pictures: usize) -> ([u32; 3], u32) {
        match *self {
            Self::Blocks([across, along]) => {
                let all = u64::from(across) * u64::from(along) * pictures as u64;
                let sharers = (BUSY_GROUPS / all).clamp(1, 64) as u32;
                ([across, along, sharers], sharers)
            }
            Self::Dots(count) => {
                let sharers = (BUSY_THREADS / (count * pictures as u64)).clamp(1, 64).next_power_of_two();
                let [across, along] = groups(count * sharers);
                ([across, along, 1], sharers as u32)
            }
        }
    }
}

/// The SPIR-V of the shaders that draw one kind of array.
struct Shaders {
    raster: Option<&'static [u8]>,
    huge: Option<&'static [u8]>,
    shade: &'static [u8],
    /// Same as `shade` for dots and images.
    wireframe: &'static [u8],
    facts: &'static [u8],
}

impl Shaders {
    /// Returns `None` for lines, which only the graphics pipeline draws.
    fn of(kind: ArrayKind, style: Style) -> Option<Self> {
        macro_rules! shader {
            ($file:literal, $entry:literal) => {
                const { spirv(concat!($file, "_raster.", $entry)) }
            };
        }
        macro_rules! shaded {
            ($file:literal, $raster:expr, $huge:expr, $wireframe:literal) => {
                Self {
                    raster: $raster,
                    huge: $huge,
                    shade: shader!($file, "shade_main"),
                    wireframe: shader!($file, $wireframe),
                    facts: shader!($file, "shade_facts_main"),
                }
            };
        }
        macro_rules! cells {
            ($file:literal) => {{
                let (raster, huge) = (shader!($file, "raster_main"), shader!($file, "huge_main"));
                shaded!($file, Some(raster), Some(huge), "shade_wireframe_main")
            }};
        }
        macro_rules! dots {
            ($file:literal) => {
                shaded!($file, Some(shader!($file, "raster_main")), None, "shade_main")
            };
        }
        Some(match (kind, has_triangles(kind, style)) {
            (ArrayKind::Mesh, true) => cells!("field"),
            (ArrayKind::Surface, true) => cells!("heights"),
            (ArrayKind::Mesh, false) => dots!("points"),
            (ArrayKind::Surface, false) => dots!("height_points"),
            (ArrayKind::Points, _) => dots!("cloud"),
            (ArrayKind::Image, _) => shaded!("image", None, None, "shade_main"),
            (ArrayKind::Triangles, _) => {
                let (raster, huge) = (shader!("faces", "raster_main"), shader!("faces", "huge_main"));
                shaded!("faces", Some(raster), Some(huge), "shade_main")
            }
            (ArrayKind::Lines, _) => return None,
        })
    }
}

/// The buffers that [`Passes`] draw on. All frames share them, because the frames of one queue are drawn one after
/// another.
pub(super) struct Canvas {
    /// What is nearest at each sample. All zeros between frames.
    nearest: Buffer,
    pixels: Buffer,
    /// For each block, whether triangles are left for [`Passes::huge`].
    has_huge: Buffer,
    extent: vk::Extent2D,
    device: Device,
}

impl Canvas {
    /// Returns `None` if the device's buffers are too small for such a picture. Waits for the queue.
    pub(super) fn new(
        queue: &mut Queue,
        extent: vk::Extent2D,
        (output, samples): (Output, Samples),
    ) -> Result<Option<Self>> {
        let device = queue.device().clone();
        let count = u64::from(extent.width) * u64::from(extent.height);
        let bytes = [KEY * u64::from(samples.count()) * count, output.bytes().iter().sum::<u64>() * count];
        // Shaders count samples and words in 32 bits.
        let limit = device.info().largest_buffer.0.min(4 * u64::from(u32::MAX));
        if bytes.iter().any(|&bytes| bytes > limit) {
            return Ok(None);
        }
        let buffer = |label, size, usage| {
            let usage = usage | vk::BufferUsageFlags::STORAGE_BUFFER;
            Buffer::new(&device, &BufferDesc { label, size, usage, location: MemoryLocation::GpuOnly })
        };
        let nearest = buffer("nearest", bytes[0], vk::BufferUsageFlags::TRANSFER_DST)?;
        let pixels = buffer("pixels", bytes[1], vk::BufferUsageFlags::TRANSFER_SRC)?;
        let has_huge = buffer("huge triangles", 4 * u64::from(MAX_BLOCKS), vk::BufferUsageFlags::empty())?;
        // SAFETY: recording; the buffer lives until `one_shot` has waited for the queue.
        one_shot(queue, |commands| unsafe {
            device.raw().cmd_fill_buffer(commands, nearest.raw(), 0, vk::WHOLE_SIZE, 0);
        })?;
        Ok(Some(Self { nearest, pixels, has_huge, extent, device }))
    }

    pub(super) fn extent(&self) -> vk::Extent2D {
        self.extent
    }

    pub(super) fn pixels(&self) -> (vk::Buffer, u64) {
        (self.pixels.raw(), self.pixels.size())
    }

    pub(super) fn buffers(&self) -> [vk::Buffer; 3] {
        [self.nearest.raw(), self.pixels.raw(), self.has_huge.raw()]
    }

    /// Records the passes for one view in each tile, and copies to the pictures unless they stay. Without pictures, the tiles,
    /// which have one size, then follow each other in [`Canvas::pixels`], for each format of the output.
    ///
    /// # Safety
    /// Same as [`FieldRenderer::record_tiles`](super::FieldRenderer), whose inputs and layout these are. There must be room
    /// for the tiles. With pictures there must be one, which covers them.
    pub(super) unsafe fn record(
        &self,
        commands: vk::CommandBuffer,
        flight: usize,
        (passes, work, inputs): (&Passes, Work, &Inputs),
        (pictures, first, tiles): (&[Picture], usize, &[vk::Rect2D]),
        slices: Option<Slices<'_>>,
    ) {
        let vk = self.device.raw();
        let (compute, stage) = (vk::PipelineBindPoint::COMPUTE, vk::ShaderStageFlags::COMPUTE);
        let vk::Extent2D { width, height } = self.extent;
        let at_once = work.at_once().min(tiles.len());
        let ([across, along, depth], sharers) = work.shared(at_once);
        let constants = Constants {
            begin: 0,
            pixels: width * height,
            samples: passes.samples,
            is_bgra: u32::from(passes.is_bgra),
            first: 0,
            sharers,
            blocks: across * along,
            across,
        };
        // SAFETY: (here and below) recording, outside a render pass (the caller's promise); every object belongs to this
        // device.
        let dispatch = |constants: Constants, [x, y, z]: [u32; 3]| {
            let bytes = bytemuck::bytes_of(&constants);
            // SAFETY: as above.
            unsafe {
                vk.cmd_push_constants(commands, inputs.bindings.layout(), stage, 0, bytes);
                vk.cmd_dispatch(commands, x, y, z);
            }
        };
        let bind = |pipeline: &Pipeline| {
            // SAFETY: as above.
            unsafe { vk.cmd_bind_pipeline(commands, compute, pipeline.raw()) };
        };
        let barrier = |buffers: &[vk::BufferMemoryBarrier2<'_>]| {
            // SAFETY: as above; the buffers are the canvas's.
            unsafe { pipeline_barrier(&self.device, commands, buffers, &[]) };
        };
        let Access { stage: in_compute, access } = READS_AND_WRITES;
        let copied = (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_READ);
        let nearest = buffer_barrier(self.nearest.raw(), (in_compute, access), (in_compute, access));
        let has_huge = buffer_barrier(self.has_huge.raw(), (in_compute, access), (in_compute, access));
        let pixels = self.pixels.raw();
        let used = (in_compute | copied.0, access | copied.1);
        let count = slices.as_ref().map_or(1, |slices| slices.count);
        for (number, tiles) in (0..).step_by(at_once).zip(tiles.chunks(at_once)) {
            let vk::Extent2D { width, height } = tiles[0].extent;
            let (views, begin) = (tiles.len() as u32, number as u32 * width * height);
            let constants = Constants { begin, ..constants };
            barrier(&[nearest, has_huge, buffer_barrier(pixels, used, (in_compute, access))]);
            // SAFETY: as above; the flight's source and views are set.
            unsafe { inputs.bind_compute(commands, flight, first + number) };
            if let Some(pipeline) = &passes.first {
                bind(pipeline);
                for slice in 0..count {
                    let part = |slice| (u64::from(along) * slice as u64 / count as u64) as u32;
                    let (first, end) = (part(slice), part(slice + 1));
                    if first < end {
                        dispatch(Constants { first, ..constants }, [across, end - first, depth * views]);
                    }
                    if let Some(slices) = &slices {
                        (slices.after)(slice);
                    }
                }
            }
            if let Some(pipeline) = &passes.huge {
                barrier(&[has_huge]);
                bind(pipeline);
                dispatch(constants, [across, along, depth * views]);
            }
            barrier(&[nearest]);
            bind(&passes.shade);
            dispatch(constants, [width.div_ceil(SHADED[0]), height.div_ceil(SHADED[1]), views]);
        }
        if let (Some(slices), None) = (&slices, &passes.first) {
            (0..slices.count).for_each(|slice| (slices.after)(slice));
        }
        barrier(&[buffer_barrier(pixels, (in_compute, access), copied)]);
        if pictures.iter().all(|picture| !picture.stays) {
            // SAFETY: the caller's promise.
            unsafe { self.record_copies(commands, pictures, passes.output) };
        }
    }

    /// Records copies to pictures, one for each format of the output.
    ///
    /// # Safety
    /// `commands` must be recording, outside a render pass. The pictures must live until they are done, have the canvas's
    /// size, and be what was drawn last.
    pub(super) unsafe fn record_copies(
        &self,
        commands: vk::CommandBuffer,
        pictures: &[Picture],
        output: Output,
    ) {
        let mut offset = 0;
        for (picture, bytes) in pictures.iter().zip(output.bytes()) {
            let copy = [copy_of_level(0, self.extent, offset)];
            // SAFETY: the caller's promise; the buffer holds all of them.
            unsafe {
                record_upload(
                    &self.device,
                    commands,
                    self.pixels.raw(),
                    picture.image,
                    &copy,
                    picture.next(),
                );
            }
            offset += bytes * u64::from(self.extent.width) * u64::from(self.extent.height);
        }
    }
}
