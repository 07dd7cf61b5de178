//! Draws a slot, multisampled, into a picture: the field as an indexed surface, or the plane with its texture; then the
//! background behind it.

use ash::vk;

use super::inputs::Inputs;
use super::pass::Attachments;
use super::pipeline::{BACKGROUND, FIELD, PLANE, POINTS, Pipeline, PipelineDesc, Shaders, WIREFRAME};
use super::{Camera, ColorMap, Picture, Samples, Style, mesh};
use crate::producer::Source;
use crate::scene::Scene;
use crate::vulkan::{Buffer, Device, Queue};
use crate::wave::Grid;
use crate::{Error, Result};

/// How to cut a draw into pieces, for whoever wants to know how long each takes.
pub struct Slices<'a> {
    /// How many pieces.
    pub count: usize,
    /// Called in the render pass after each piece, with its number from 0.
    pub after: &'a dyn Fn(usize),
}

/// How to make a [`FieldRenderer`].
pub struct FieldRendererDesc {
    /// The pictures' format.
    pub format: vk::Format,
    /// Frames in flight: each has uniforms of its own.
    pub flights: usize,
    /// What is drawn.
    pub scene: Scene,
    /// What a frame holds: vertices, or texels.
    pub grid: Grid,
    /// How a field is drawn.
    pub style: Style,
    /// The colours.
    pub color_map: ColorMap,
    /// Samples a pixel.
    pub samples: Samples,
}

/// The pipelines and everything that they read besides the slots.
pub struct FieldRenderer {
    surface_pipeline: Pipeline,
    background_pipeline: Pipeline,
    inputs: Inputs,
    indices: Buffer,
    index_count: u32,
    attachments: Option<Attachments>,
    format: vk::Format,
    samples: Samples,
    grid: Grid,
    scene: Scene,
    style: Style,
    device: Device,
}

/// Vertices of the plane: two triangles.
const PLANE_VERTICES: u32 = 6;
/// Vertices of a point: two triangles.
const POINT_VERTICES: u32 = 6;
/// Vertices of the background: one triangle, which is larger than the picture.
const BACKGROUND_VERTICES: u32 = 3;

impl FieldRenderer {
    /// Makes pipelines and buffers, and uploads the colour map; waits for the queue.
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
        let pipeline = |shaders, shows| {
            let (layout, format, samples) = (inputs.layout(), desc.format, desc.samples);
            Pipeline::new(&device, shaders, &PipelineDesc { layout, format, samples, shows })
        };
        Ok(Self {
            background_pipeline: pipeline(&BACKGROUND, vk::CompareOp::GREATER_OR_EQUAL)?,
            surface_pipeline: pipeline(shaders(desc.scene, desc.style), vk::CompareOp::GREATER)?,
            inputs,
            indices,
            index_count: tile.len() as u32,
            attachments: None,
            format: desc.format,
            samples: desc.samples,
            grid: desc.grid,
            scene: desc.scene,
            style: desc.style,
            device,
        })
    }

    /// Draws a field in another way from now on. The GPU must be idle, and no draw that was recorded before may be submitted again.
    ///
    /// # Errors
    /// The pipeline could not be made; then nothing has changed.
    pub fn set_style(&mut self, style: Style) -> Result<()> {
        let (layout, format, samples) = (self.inputs.layout(), self.format, self.samples);
        let desc = PipelineDesc { layout, format, samples, shows: vk::CompareOp::GREATER };
        self.surface_pipeline = Pipeline::new(&self.device, shaders(self.scene, style), &desc)?;
        self.style = style;
        Ok(())
    }

    /// Uploads other colours; waits for the queue.
    pub fn set_color_map(&self, queue: &mut Queue, map: ColorMap) -> Result<()> {
        self.inputs.set_color_map(queue, map)
    }

    /// Whether [`FieldRenderer::resize`] must be called before a picture of this size.
    pub fn needs_resize(&self, extent: vk::Extent2D) -> bool {
        self.attachments.as_ref().is_none_or(|a| a.extent() != extent)
    }

    /// Remakes the multisampled colour and depth. No frame may be in flight.
    pub fn resize(&mut self, extent: vk::Extent2D) -> Result<()> {
        // The old ones first, so that both are never held at once.
        self.attachments = None;
        self.attachments = Some(Attachments::new(&self.device, extent, self.format, self.samples)?);
        Ok(())
    }

    /// Sets what a flight's draw looks from. Its previous frame is done.
    pub fn set_view(&mut self, flight: usize, camera: &Camera, extent: vk::Extent2D) -> Result<()> {
        self.inputs.set_view(flight, camera, extent, self.grid)
    }

    /// Records the draw of `source` into `picture`: in one piece, or cut into [`Slices`].
    ///
    /// # Errors
    /// [`FieldRenderer::resize`] was not called for this size, or the source is of the other scene.
    ///
    /// # Safety
    /// `commands` is recording; the flight's previous frame is done; what is drawn from is as large as the grid, alive until the
    /// frame is done, and readable: see [`crate::producer::reads`], vertices at an offset that a
    /// storage buffer may have; the picture is of the renderer's format, alive, and its previous contents and
    /// uses (up to `COLOR_ATTACHMENT_OUTPUT` and transfers) may be overwritten.
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
        // SAFETY: the flight's previous frame is done, and what is drawn from is alive (the caller's promise).
        unsafe {
            match (self.scene, source) {
                (Scene::Field, Source::Vertices(vertices)) => {
                    self.inputs.point_at_vertices(flight, vertices, self.grid);
                }
                (Scene::Texture, Source::Texture(slot)) => self.inputs.point_at_texture(flight, slot),
                (scene, _) => {
                    return Err(Error::Unsupported(format!("{scene:?} is not drawn from {source:?}")));
                }
            }
        }
        // SAFETY: the caller's promise. Surface and background cover every pixel between them.
        unsafe { attachments.record(commands, picture, || self.draw(commands, flight, slices)) };
        Ok(())
    }

    /// Records the draws of surface and background.
    ///
    /// # Safety
    /// `commands` is recording, in a render pass; the flight's source was set.
    unsafe fn draw(&self, commands: vk::CommandBuffer, flight: usize, slices: Option<Slices<'_>>) {
        // The pieces that a slice has some of.
        let pieces = match (self.scene, self.style) {
            (Scene::Texture, _) => 1,
            (Scene::Field, Style::Points) => self.grid.cols * self.grid.rows,
            (Scene::Field, Style::Surface | Style::Wireframe) => {
                let (across, along) = mesh::tile_count(self.grid);
                across * along
            }
        };
        let count = slices.as_ref().map_or(1, |slices| slices.count);
        let vk = self.device.raw();
        // SAFETY: recording (the caller's promise), and every object named here is alive and of this device.
        unsafe {
            self.surface_pipeline.bind(commands);
            self.inputs.bind(commands, flight);
            vk.cmd_bind_index_buffer(commands, self.indices.raw(), 0, vk::IndexType::UINT16);
            for slice in 0..count {
                let (first, end) = (part(pieces, slice, count), part(pieces, slice + 1, count));
                let some = end - first;
                match (self.scene, self.style) {
                    _ if some == 0 => {}
                    (Scene::Texture, _) => vk.cmd_draw(commands, PLANE_VERTICES, 1, 0, 0),
                    (Scene::Field, Style::Points) => {
                        vk.cmd_draw(commands, POINT_VERTICES * some, 1, POINT_VERTICES * first, 0);
                    }
                    (Scene::Field, Style::Surface | Style::Wireframe) => {
                        vk.cmd_draw_indexed(commands, self.index_count, some, 0, 0, first);
                    }
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

/// What draws this.
fn shaders(scene: Scene, style: Style) -> &'static Shaders {
    match (scene, style) {
        (Scene::Texture, _) => &PLANE,
        (Scene::Field, Style::Surface) => &FIELD,
        (Scene::Field, Style::Wireframe) => &WIREFRAME,
        (Scene::Field, Style::Points) => &POINTS,
    }
}

/// Where slice number `slice` of `slices` begins in `all` pieces.
fn part(all: u32, slice: usize, slices: usize) -> u32 {
    (u64::from(all) * slice as u64 / slices as u64) as u32
}
