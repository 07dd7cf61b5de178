//! Draws a slot, multisampled, into a picture: a grid as an indexed surface, points, an image, or the textured plane, and then
//! the background behind it.

use std::rc::Rc;

use ash::vk;

use super::inputs::Inputs;
use super::pass::Attachments;
use super::pipeline::{
    BACKGROUND, CLOUD, FIELD, HEIGHT_POINTS, HEIGHT_WIREFRAME, HEIGHTS, IMAGE, PLANE, POINTS, Pipeline,
    PipelineDesc, Shaders, WIREFRAME,
};
use super::{ColorMap, Picture, Samples, Style, View, mesh};
use wavefield_base::{Error, Result};
use wavefield_field::array::{Array, Kind};
use wavefield_field::scene::Scene;
use wavefield_gpu::vulkan::{Buffer, Device, Queue};
use wavefield_handoff::producer::Source;

pub struct Slices<'a> {
    pub count: usize,
    /// Called in the render pass after each piece, with its number from 0.
    pub after: &'a dyn Fn(usize),
}

pub struct FieldRendererDesc {
    pub format: vk::Format,
    /// Frames in flight; each has its own uniforms.
    pub flights: usize,
    pub scene: Scene,
    /// What a slot holds; for a texture, the size of its first level.
    pub array: Array,
    pub style: Style,
    pub color_map: ColorMap,
    pub samples: Samples,
}

#[derive(Clone)]
pub struct Drawing {
    array: Array,
    style: Style,
    pipeline: Rc<Pipeline>,
}

impl Drawing {
    pub fn array(&self) -> &Array {
        &self.array
    }
}

/// The pipelines, and everything that they read except the slots.
pub struct FieldRenderer {
    drawing: Drawing,
    background_pipeline: Pipeline,
    inputs: Inputs,
    indices: Buffer,
    index_count: u32,
    attachments: Option<Attachments>,
    format: vk::Format,
    samples: Samples,
    scene: Scene,
    device: Device,
}

/// Vertices of the plane, an image or a point: two triangles.
const SQUARE_VERTICES: u32 = 6;
/// Vertices of the background: one triangle, larger than the picture.
const BACKGROUND_VERTICES: u32 = 3;

impl FieldRenderer {
    /// Makes pipelines and buffers, and uploads the colour map. Waits for the queue.
    pub fn new(queue: &mut Queue, desc: &FieldRendererDesc) -> Result<Self> {
        let _span = tracing::trace_span!("pipelines").entered();
        let device = queue.device().clone();
        let inputs = Inputs::new(queue, desc.scene, desc.flights, desc.color_map)?;
        let tile = mesh::tile_indices();
        let indices = Buffer::filled(
            &device,
            "indices",
            bytemuck::cast_slice(&tile),
            vk::BufferUsageFlags::INDEX_BUFFER,
        )?;
        let (scene, array, style) = (desc.scene, desc.array, desc.style);
        let pipeline = |shaders, shows| {
            let (layout, format, samples) = (inputs.layout(), desc.format, desc.samples);
            Pipeline::new(&device, shaders, &PipelineDesc { layout, format, samples, shows })
        };
        let drawn = pipeline(shaders(scene, array.kind(), style), vk::CompareOp::GREATER)?;
        Ok(Self {
            background_pipeline: pipeline(&BACKGROUND, vk::CompareOp::GREATER_OR_EQUAL)?,
            drawing: Drawing { array, style, pipeline: Rc::new(drawn) },
            inputs,
            indices,
            index_count: tile.len() as u32,
            attachments: None,
            format: desc.format,
            samples: desc.samples,
            scene,
            device,
        })
    }

    pub fn drawing(&self) -> &Drawing {
        &self.drawing
    }

    pub fn drawing_of(&self, array: Array) -> Result<Drawing> {
        self.made(array, self.drawing.style)
    }

    fn made(&self, array: Array, style: Style) -> Result<Drawing> {
        let now = &self.drawing;
        // Arrays that differ only in size share the pipeline.
        if (array.kind(), style) == (now.array.kind(), now.style) {
            return Ok(Drawing { array, style, pipeline: now.pipeline.clone() });
        }
        let (layout, format, samples) = (self.inputs.layout(), self.format, self.samples);
        let desc = PipelineDesc { layout, format, samples, shows: vk::CompareOp::GREATER };
        let shaders = shaders(self.scene, array.kind(), style);
        Ok(Drawing { array, style, pipeline: Rc::new(Pipeline::new(&self.device, shaders, &desc)?) })
    }

    /// Updates an older drawing for [`FieldRenderer::exchange`]: the style may have changed since it was made.
    pub fn renew(&self, drawing: &mut Drawing) -> Result<()> {
        if drawing.style != self.drawing.style {
            *drawing = self.drawing_of(drawing.array)?;
        }
        Ok(())
    }

    /// Replaces the drawing and returns the old one. The GPU must be idle, and no draw recorded earlier may be submitted
    /// again.
    pub fn exchange(&mut self, drawing: Drawing) -> Drawing {
        std::mem::replace(&mut self.drawing, drawing)
    }

    /// Changes the style of a mesh or a surface. The GPU must be idle, and no draw recorded earlier may be submitted again.
    pub fn set_style(&mut self, style: Style) -> Result<()> {
        self.drawing = self.made(self.drawing.array, style)?;
        Ok(())
    }

    /// Changes the colours. Waits for the queue.
    pub fn set_color_map(&self, queue: &mut Queue, map: ColorMap) -> Result<()> {
        self.inputs.set_color_map(queue, map)
    }

    /// Whether [`FieldRenderer::resize`] must be called before a picture of this size.
    pub fn needs_resize(&self, extent: vk::Extent2D) -> bool {
        self.attachments.as_ref().is_none_or(|a| a.extent() != extent)
    }

    /// Makes the attachments for pictures of this size. No frame may be in flight.
    pub fn resize(&mut self, extent: vk::Extent2D) -> Result<()> {
        // Drop the old ones first, so that both are never held at once.
        self.attachments = None;
        self.attachments = Some(Attachments::new(&self.device, extent, self.format, self.samples)?);
        Ok(())
    }

    /// Sets the view for a flight. The flight's previous frame must be done.
    pub fn set_view(&mut self, flight: usize, view: &View, extent: vk::Extent2D) -> Result<()> {
        self.inputs.set_view(flight, view, extent, &self.drawing.array)
    }

    /// Records the draw of `source` into `picture`, in one piece or cut into [`Slices`].
    ///
    /// # Errors
    /// [`FieldRenderer::resize`] was not called for this size, or the source is for the other scene.
    ///
    /// # Safety
    /// - `commands` is recording, and the flight's previous frame is done.
    /// - `source` is as large as the array in whole words, alive until the frame is done, and readable as
    ///   [`wavefield_handoff::producer::reads`] says. An array's offset is one that a storage buffer may have.
    /// - `picture` has the renderer's format and is alive. Its contents may be overwritten. Its earlier uses end at
    ///   `COLOR_ATTACHMENT_OUTPUT` or in transfers, because the draw waits only for these.
    pub unsafe fn record(
        &mut self,
        commands: vk::CommandBuffer,
        flight: usize,
        source: Source,
        picture: &Picture,
        slices: Option<Slices<'_>>,
    ) -> Result<()> {
        let Some(attachments) = self.attachments.as_ref().filter(|a| a.extent() == picture.extent) else {
            return Err(Error::Unsupported("the renderer was not resized to the picture".into()));
        };
        if (self.scene == Scene::Texture) != matches!(source, Source::Texture(_)) {
            return Err(Error::Unsupported(format!("{:?} is not drawn from {source:?}", self.scene)));
        }
        // SAFETY: the flight's previous frame is done, and what is drawn from is alive (the caller's promise).
        unsafe { self.inputs.point_at(flight, source, &self.drawing.array) };
        // SAFETY: recording, and the picture is alive and of this format (the caller's promise). Together, surface and background cover every pixel.
        unsafe { attachments.record(commands, picture, || self.draw(commands, flight, slices)) };
        Ok(())
    }

    /// Records the draws of the surface and the background.
    ///
    /// # Safety
    /// `commands` is recording, in a render pass; the flight's source was set.
    unsafe fn draw(&self, commands: vk::CommandBuffer, flight: usize, slices: Option<Slices<'_>>) {
        let Drawing { array, style, pipeline } = &self.drawing;
        let draws = draws(self.scene, array, *style);
        // They are divided among the slices.
        let (Draws::Squares(pieces) | Draws::Tiles(pieces)) = draws;
        let count = slices.as_ref().map_or(1, |slices| slices.count);
        let vk = self.device.raw();
        // SAFETY: recording (the caller's promise), and every object named here is alive and of this device.
        unsafe {
            pipeline.bind(commands);
            self.inputs.bind(commands, flight);
            vk.cmd_bind_index_buffer(commands, self.indices.raw(), 0, vk::IndexType::UINT16);
            for slice in 0..count {
                let (first, end) = (part(pieces, slice, count), part(pieces, slice + 1, count));
                let some = end - first;
                match draws {
                    _ if some == 0 => {}
                    Draws::Squares(_) => {
                        vk.cmd_draw(commands, SQUARE_VERTICES * some, 1, SQUARE_VERTICES * first, 0);
                    }
                    Draws::Tiles(_) => vk.cmd_draw_indexed(commands, self.index_count, some, 0, 0, first),
                }
                if let Some(slices) = &slices {
                    (slices.after)(slice);
                }
            }
            // Last, so that only pixels without a surface are shaded.
            self.background_pipeline.bind(commands);
            vk.cmd_draw(commands, BACKGROUND_VERTICES, 1, 0, 0);
        }
    }
}

fn shaders(scene: Scene, kind: Kind, style: Style) -> &'static Shaders {
    match (scene, kind, style) {
        (Scene::Texture, ..) => &PLANE,
        (Scene::Field, Kind::Mesh, Style::Surface) => &FIELD,
        (Scene::Field, Kind::Mesh, Style::Wireframe) => &WIREFRAME,
        (Scene::Field, Kind::Mesh, Style::Points) => &POINTS,
        (Scene::Field, Kind::Surface, Style::Surface) => &HEIGHTS,
        (Scene::Field, Kind::Surface, Style::Wireframe) => &HEIGHT_WIREFRAME,
        (Scene::Field, Kind::Surface, Style::Points) => &HEIGHT_POINTS,
        (Scene::Field, Kind::Points, _) => &CLOUD,
        (Scene::Field, Kind::Image, _) => &IMAGE,
    }
}

#[derive(Clone, Copy)]
enum Draws {
    /// Of two triangles each: the plane, an image, or dots.
    Squares(u32),
    Tiles(u32),
}

fn draws(scene: Scene, array: &Array, style: Style) -> Draws {
    match (scene, array.kind(), style) {
        (Scene::Texture, ..) | (_, Kind::Image, _) => Draws::Squares(1),
        // Vulkan counts vertices in 32 bits, so heights beyond about 700 million have no dot.
        (_, Kind::Points, _) | (_, _, Style::Points) => {
            Draws::Squares(array.grid().count().min(u64::from(u32::MAX / SQUARE_VERTICES)) as u32)
        }
        (_, Kind::Mesh | Kind::Surface, Style::Surface | Style::Wireframe) => {
            let (across, along) = mesh::tile_count(array.grid());
            Draws::Tiles(across * along)
        }
    }
}

/// The first of `all` pieces that belongs to slice number `slice` of `slices`.
fn part(all: u32, slice: usize, slices: usize) -> u32 {
    (u64::from(all) * slice as u64 / slices as u64) as u32
}
