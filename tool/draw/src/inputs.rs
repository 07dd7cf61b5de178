use ash::vk;
use bytemuck::{Pod, Zeroable};
use glam::{Mat4, Vec3, Vec4};
use gpu_allocator::MemoryLocation;

use super::{ColorMap, FieldView, Fit, Placement, mesh};
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{
    AutoDestroy, Bindings, Bound, Buffer, BufferDesc, Image, ImageDesc, Queue, SetDesc, copy_of_level,
    one_shot, record_upload, sampler,
};
use wavefield_handoff::contents::array::{ArrayKind, DrawnArray, Number};
use wavefield_handoff::contents::parts::PartName;
use wavefield_handoff::contents::scene::Scene;
use wavefield_handoff::contents::things::MAX_THINGS;
use wavefield_handoff::producer::{ImageSlot, Source};

/// Must match `parts/globals.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Globals {
    view_projection: Mat4,
    eye: Vec4,
    grid: [u32; 2],
    tiles: u32,
    components: u32,
    picture: [f32; 2],
    pixels_per_length: f32,
    dot_size: f32,
    limits: [f32; 2],
    number: u32,
    radius: f32,
    place: [f32; 4],
    corner: [f32; 2],
    divisors: [f32; 2],
    fit: Vec4,
    parts: [u32; 4],
    norm: [f32; 4],
    /// Components and type.
    colors: [u32; 2],
    map: f32,
    first: u32,
}

/// Must match `Raster` in `parts/raster.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct Constants {
    pub(super) begin: u32,
    pub(super) pixels: u32,
    pub(super) samples: u32,
    pub(super) is_bgra: u32,
    pub(super) first: u32,
    pub(super) sharers: u32,
    pub(super) blocks: u32,
    pub(super) across: u32,
}

const CONSTANTS: vk::PushConstantRange = vk::PushConstantRange {
    stage_flags: vk::ShaderStageFlags::COMPUTE,
    offset: 0,
    size: size_of::<Constants>() as u32,
};
/// The buffers that compute shaders draw on: see [`Inputs::set_canvas`].
const BUFFERS: [(vk::DescriptorType, vk::ShaderStageFlags); 3] =
    [(vk::DescriptorType::STORAGE_BUFFER, vk::ShaderStageFlags::COMPUTE); 3];

/// Bytes from one [`Globals`] to the next: the largest `minUniformBufferOffsetAlignment` ("Required Limits").
const STRIDE: usize = 256;
/// The views that one dispatch draws at most. Their uniforms are 16 KiB, the least `maxUniformBufferRange`.
pub(super) const VIEWS: usize = 64;

/// The size of the colour maps' image: a row for each array of a slot.
const COLORS: vk::Extent2D = vk::Extent2D { width: 256, height: MAX_THINGS as u32 };

const FRAME: usize = 0;
const SOURCE: usize = 1;
const CANVAS: usize = 2;

/// The descriptor sets, and the resources that they point at, except the slots. Each flight (frame in flight)
/// has its own sets. The set for the source is pointed at a slot during recording: each producer has its own
/// slots.
pub(super) struct Inputs {
    pub(super) bindings: Bindings,
    uniforms: Buffer,
    views: usize,
    colors: Image,
    color_sampler: AutoDestroy<vk::Sampler>,
    texture_sampler: AutoDestroy<vk::Sampler>,
}

impl Inputs {
    /// Creates the sets for `flights` frames in flight with `views` views each. Waits for the queue.
    pub(super) fn new(
        queue: &mut Queue,
        scene: Scene,
        (flights, views): (usize, usize),
        maps: &[ColorMap],
    ) -> Result<Self> {
        let (vertex, fragment) =
            (vk::ShaderStageFlags::VERTEX, vk::ShaderStageFlags::FRAGMENT | vk::ShaderStageFlags::COMPUTE);
        let sampled =
            [(vk::DescriptorType::SAMPLED_IMAGE, fragment), (vk::DescriptorType::SAMPLER, fragment)];
        let frame = [(vk::DescriptorType::UNIFORM_BUFFER_DYNAMIC, vertex | fragment), sampled[0], sampled[1]];
        let vertices = [(vk::DescriptorType::STORAGE_BUFFER, vertex | fragment)];
        let source = match scene {
            Scene::Field => &vertices[..],
            Scene::Texture => &sampled[..],
        };
        let canvas = SetDesc { bindings: &BUFFERS, count: 1 };
        let frame = SetDesc { bindings: &frame, count: flights };
        let source = SetDesc { bindings: source, count: flights * MAX_THINGS };
        let uniforms = BufferDesc {
            label: "uniforms",
            // A set reaches over `VIEWS` views, from any of them.
            size: ((flights * views + VIEWS) * STRIDE) as u64,
            usage: vk::BufferUsageFlags::UNIFORM_BUFFER,
            location: MemoryLocation::CpuToGpu,
        };
        let usage = vk::ImageUsageFlags::SAMPLED | vk::ImageUsageFlags::TRANSFER_DST;
        let colors = ImageDesc::color("colour maps", COLORS, vk::Format::R8G8B8A8_SRGB, usage);
        let device = queue.device();
        let inputs = Self {
            bindings: Bindings::new(device, &[frame, source, canvas], &[CONSTANTS])?,
            uniforms: Buffer::new(device, &uniforms)?,
            views,
            colors: Image::new(device, &colors)?,
            color_sampler: sampler(device, vk::SamplerAddressMode::CLAMP_TO_EDGE)?,
            texture_sampler: sampler(device, vk::SamplerAddressMode::REPEAT)?,
        };
        inputs.set_color_maps(queue, maps)?;
        let colors = Bound::Sampled(inputs.colors.view(), vk::ImageLayout::SHADER_READ_ONLY_OPTIMAL);
        let color_sampler = Bound::Sampler(inputs.color_sampler.raw());
        for flight in 0..flights {
            let seen = Bound::Uniforms(inputs.uniforms.raw(), (VIEWS * STRIDE) as u64);
            // SAFETY: the set has never been used.
            unsafe { inputs.bindings.point(FRAME, flight, [seen, colors, color_sampler]) };
        }
        Ok(inputs)
    }

    /// Uploads colour maps, at most [`MAX_THINGS`]. Waits for the queue.
    pub(super) fn set_color_maps(&self, queue: &mut Queue, maps: &[ColorMap]) -> Result<()> {
        let device = queue.device().clone();
        let mut texels: Vec<_> = maps.iter().map(|map| map.texels()).collect();
        texels.resize(MAX_THINGS, [[0; 4]; COLORS.width as usize]);
        let bytes = bytemuck::cast_slice(&texels);
        let staging =
            Buffer::filled(&device, "colour map upload", bytes, vk::BufferUsageFlags::TRANSFER_SRC)?;
        let stages = vk::PipelineStageFlags2::FRAGMENT_SHADER | vk::PipelineStageFlags2::COMPUTE_SHADER;
        let reads =
            (vk::ImageLayout::SHADER_READ_ONLY_OPTIMAL, (stages, vk::AccessFlags2::SHADER_SAMPLED_READ));
        let (image, all) = (self.colors.raw(), [copy_of_level(0, COLORS, 0)]);
        // SAFETY: recording; image and buffer live until `one_shot` has waited for the queue.
        one_shot(queue, |commands| unsafe {
            record_upload(&device, commands, staging.raw(), image, &all, reads);
        })
    }

    /// Writes the uniforms of a flight's view `number`, of an array with colour map `map`, whose elements have the numbers from
    /// `first` on. The flight's previous frame must be done.
    pub(super) fn set_view(
        &mut self,
        (flight, number): (usize, usize),
        view: &FieldView,
        tile: vk::Rect2D,
        (array, map, first): (&DrawnArray, usize, u32),
    ) -> Result<()> {
        let (camera, grid, extent) = (&view.camera, array.grid(), tile.extent);
        let fit = if array.is_flat() { Fit::default() } else { view.fit };
        // In the units of the vertices, so that a shader need not convert each of them.
        let eye = match array.kind() {
            ArrayKind::Mesh => fit.radius * camera.eye() + Vec3::from(fit.center),
            _ => camera.eye(),
        };
        let place = Placement::of(array, camera, (extent.width, extent.height));
        // In words.
        let part = |name| array.part(name).map(|(part, offset)| (part, (offset / 4) as u32));
        let at = |name| part(name).map_or(0, |(_, at)| at);
        let globals = Globals {
            view_projection: camera.view_projection(extent.width, extent.height),
            eye: eye.extend(camera.distance),
            grid: [grid.cols, grid.rows],
            tiles: mesh::tile_count(grid).0,
            components: array.components(),
            picture: [extent.width as f32, extent.height as f32],
            pixels_per_length: camera.pixels_per_length(extent.width, extent.height),
            dot_size: view.size,
            limits: view.scale(),
            number: code_of(array.number()),
            radius: fit.radius,
            place: [place.corner[0], place.corner[1], place.size[0], place.size[1]],
            corner: [tile.offset.x as f32, tile.offset.y as f32],
            divisors: fit.divisors(grid),
            fit: Vec3::from(fit.center).extend(fit.radius.recip()),
            parts: [
                at(PartName::Colors),
                at(PartName::Sizes).max(at(PartName::Vectors)),
                at(PartName::Faces).max(at(PartName::Edges)),
                array.pieces() as u32,
            ],
            norm: view.look.norm_numbers(view.limits),
            colors: part(PartName::Colors)
                .map_or([0; 2], |(part, _)| [part.components, code_of(part.number)]),
            map: (map as f32 + 0.5) / MAX_THINGS as f32,
            first,
        };
        let at = self.offset(flight, number);
        let bytes = &mut self.uniforms.bytes_mut()?[at..at + size_of::<Globals>()];
        bytes.copy_from_slice(bytemuck::bytes_of(&globals));
        Ok(())
    }

    fn offset(&self, flight: usize, number: usize) -> usize {
        (flight * self.views + number) * STRIDE
    }

    /// Points the source set of a flight's array, by number, at a slot of the matching scene. A buffer must hold `array`.
    ///
    /// # Safety
    /// The flight's previous frame must be done, and nothing recorded for the flight may be submitted again.
    /// The slot must live until the frame is done.
    pub(super) unsafe fn point_at(
        &self,
        (flight, thing): (usize, usize),
        source: Source,
        array: &DrawnArray,
    ) {
        let chosen = flight * MAX_THINGS + thing;
        let sampler = Bound::Sampler(self.texture_sampler.raw());
        // SAFETY: no commands use the flight's set, and the slot lives (the caller's promise).
        unsafe {
            match source {
                Source::Vertices(vertices) => {
                    self.bindings.point(SOURCE, chosen, [Bound::Buffer(vertices.whole(array))]);
                }
                Source::Texture(ImageSlot { view, layout, .. }) => {
                    self.bindings.point(SOURCE, chosen, [Bound::Sampled(view, layout), sampler]);
                }
            }
        }
    }

    /// # Safety
    /// `commands` must be recording. The flight's source and view must be set.
    pub(super) unsafe fn bind(
        &self,
        commands: vk::CommandBuffer,
        (flight, thing): (usize, usize),
        number: usize,
    ) {
        let offsets = [self.offset(flight, number) as u32];
        let sets = [flight, flight * MAX_THINGS + thing];
        // SAFETY: recording, with the source set (the caller's promise); the view lies in the uniforms.
        unsafe { self.bindings.bind(commands, vk::PipelineBindPoint::GRAPHICS, sets, &offsets) };
    }

    /// Binds the same for compute shaders, with the views that follow, and the canvas.
    ///
    /// # Safety
    /// As for [`Inputs::bind`], after [`Inputs::set_canvas`].
    pub(super) unsafe fn bind_compute(&self, commands: vk::CommandBuffer, flight: usize, number: usize) {
        let offsets = [self.offset(flight, number) as u32];
        let sets = [flight, flight * MAX_THINGS, 0];
        // SAFETY: as in `bind`.
        unsafe { self.bindings.bind(commands, vk::PipelineBindPoint::COMPUTE, sets, &offsets) };
    }

    /// Sets the buffers that compute shaders draw on.
    ///
    /// # Safety
    /// No frame may be in flight, and nothing recorded earlier may be submitted again.
    pub(super) unsafe fn set_canvas(&self, buffers: [vk::Buffer; 3]) {
        // SAFETY: nothing uses the set (the caller's promise).
        unsafe { self.bindings.point(CANVAS, 0, buffers.map(Bound::from)) };
    }
}

/// Returns the code of a type in `parts/numbers.wgsl`.
fn code_of(number: Number) -> u32 {
    match number {
        Number::F32 | Number::I32 => 0,
        Number::F16 => 1,
        Number::U8 => 2,
    }
}
