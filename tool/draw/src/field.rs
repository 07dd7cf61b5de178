//! Draws a slot, multisampled: a surface, points, an image or the textured plane, in front of a background.

use std::rc::Rc;

use ash::vk;

use super::inputs::Inputs;
use super::pass::PassAttachments;
use super::pipeline::{Pipeline, Pipelines};
use super::raster::{Canvas, Passes, Work};
use super::things::{Drawing, KindPipelines, Others};
use super::{ColorMap, FieldView, Picture, Raster, Samples, Style, mesh};
use wavefield_gpu::vulkan::{Buffer, Queue};
use wavefield_gpu::{Error, Result};
use wavefield_handoff::contents::array::{ArrayKind, DrawnArray};
use wavefield_handoff::contents::scene::Scene;
use wavefield_handoff::contents::things::{MAX_THINGS, Things};
use wavefield_handoff::producer::Source;

/// Cuts a draw into parts that follow each other, for example to time each.
pub struct Slices<'a> {
    pub count: usize,
    /// Called after each slice, with the slice's number: in the render pass, if the graphics pipeline draws. Compute shaders
    /// draw dots in one slice, and shade pixels after the last.
    pub after: &'a dyn Fn(usize),
}

pub struct FieldRendererDesc {
    pub output: Output,
    /// The number of frames in flight, called flights below. Each has its own uniforms.
    pub flights: usize,
    /// The maximum number of views per frame.
    pub views: usize,
    pub scene: Scene,
    /// The array to draw. For a texture, the size of its first level.
    pub array: DrawnArray,
    pub style: Style,
    /// See [`FieldRenderer::set_color_maps`].
    pub color_maps: Vec<ColorMap>,
    pub samples: Samples,
    pub raster: Raster,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A colour picture in this format.
    Color(vk::Format),
    /// Depth, normal and index, in three single-sample pictures: the mean of several indices is meaningless.
    Facts,
}

impl Output {
    pub(super) fn formats(&self) -> &[vk::Format] {
        match self {
            Self::Color(format) => std::slice::from_ref(format),
            // Every device can render to these formats ("Required Format Support").
            Self::Facts => &[vk::Format::R32_SFLOAT, vk::Format::R32G32B32A32_SFLOAT, vk::Format::R32_SINT],
        }
    }

    /// Returns the bytes of a pixel in each picture.
    pub(super) fn bytes(&self) -> &[u64] {
        match self {
            Self::Color(_) => &[4],
            Self::Facts => &[4, 16, 4],
        }
    }

    /// Returns the clear values of the pictures, or none if every pixel is drawn.
    fn clear(self) -> &'static [vk::ClearColorValue] {
        match self {
            Self::Color(_) => &[],
            Self::Facts => &[
                vk::ClearColorValue { float32: [f32::INFINITY, 0.0, 0.0, 0.0] },
                vk::ClearColorValue { float32: [0.0; 4] },
                vk::ClearColorValue { int32: [-1, 0, 0, 0] },
            ],
        }
    }
}

pub struct FieldRenderer {
    drawing: Drawing,
    /// `None` for [`Output::Facts`].
    background_pipeline: Option<Pipeline>,
    inputs: Inputs,
    indices: Buffer,
    attachments: Option<PassAttachments>,
    /// `None` if compute shaders never draw.
    canvas: Option<Canvas>,
    raster: Raster,
    /// Whether compute shaders draw now, where they can.
    by_compute: bool,
    /// The same for many views at once.
    views_by_compute: bool,
    pipelines: Pipelines,
    /// Of the arrays of a slot, as far as they have one of their own. The first is for all others.
    color_maps: Vec<ColorMap>,
}

/// From so many views on, it does not matter that a dispatch for one of them would be short.
const MANY_VIEWS: usize = 8;
/// Two triangles, for the plane or an image.
const SQUARE_VERTICES: u32 = 6;
/// One triangle, around the dot.
const DOT_VERTICES: u32 = 3;
/// Two triangles, and one for the head of an arrow.
const LINE_VERTICES: u32 = 9;
/// One triangle, larger than the picture.
const BACKGROUND_VERTICES: u32 = 3;

impl FieldRenderer {
    /// Creates the pipelines and uploads the colour map. Waits for the queue.
    pub fn new(queue: &mut Queue, desc: &FieldRendererDesc) -> Result<Self> {
        let _span = tracing::trace_span!("pipelines").entered();
        let device = queue.device().clone();
        // Any drawing may come later.
        let views = desc.views.max(MAX_THINGS + 1);
        let inputs = Inputs::new(queue, desc.scene, (desc.flights, views), &desc.color_maps)?;
        let tile = mesh::tile_indices();
        let bytes = bytemuck::cast_slice(&tile);
        let indices = Buffer::filled(&device, "indices", bytes, vk::BufferUsageFlags::INDEX_BUFFER)?;
        let &FieldRendererDesc { scene, array, style, output, samples, .. } = desc;
        let is_software = device.info().kind == vk::PhysicalDeviceType::CPU;
        let raster = if is_software && desc.raster == Raster::Auto { Raster::Graphics } else { desc.raster };
        let by_compute = raster == Raster::Compute;
        let pipelines = Pipelines { device, layout: inputs.bindings.layout(), output, samples, scene };
        let drawing = Drawing {
            array,
            others: Others::from(&Things::from(array)),
            style,
            pipelines: Rc::new(pipelines_of(&pipelines, array.kind(), style, raster)?),
            more_pipelines: Vec::new(),
            work: Work::of(&array, style),
        };
        let has_background = output != Output::Facts;
        let background_pipeline = has_background.then(|| pipelines.background()).transpose()?;
        let (attachments, canvas) = (None, None);
        Ok(Self {
            drawing,
            background_pipeline,
            inputs,
            indices,
            attachments,
            canvas,
            raster,
            by_compute,
            views_by_compute: by_compute,
            pipelines,
            color_maps: desc.color_maps.clone(),
        })
    }

    pub fn drawing(&self) -> &Drawing {
        &self.drawing
    }

    pub fn drawing_of(&self, things: impl Into<Things>) -> Result<Drawing> {
        let things = things.into();
        self.made(things.first, Others::from(&things), self.drawing.style)
    }

    fn made(&self, array: DrawnArray, others: Others, style: Style) -> Result<Drawing> {
        let now = &self.drawing;
        // Arrays that differ only in size share the pipelines.
        let mut known = Vec::new();
        if style == now.style {
            known.push((now.array.kind(), now.pipelines.clone()));
        }
        let mut pipelines = |kind: ArrayKind| -> Result<Rc<KindPipelines>> {
            if let Some((_, pipelines)) = known.iter().find(|(known, _)| *known == kind) {
                return Ok(pipelines.clone());
            }
            let made = Rc::new(pipelines_of(&self.pipelines, kind, style, self.raster)?);
            known.push((kind, made.clone()));
            Ok(made)
        };
        let first = pipelines(array.kind())?;
        let more = others.things.iter().map(|thing| pipelines(thing.array.kind())).collect::<Result<_>>()?;
        let work = Work::of(&array, style).filter(|_| others.is_empty());
        Ok(Drawing { array, others, style, pipelines: first, more_pipelines: more, work })
    }

    /// Updates an older drawing to the current style, for [`FieldRenderer::exchange`].
    pub fn renew(&self, drawing: &mut Drawing) -> Result<()> {
        if drawing.style != self.drawing.style {
            *drawing = self.made(drawing.array, drawing.others.clone(), self.drawing.style)?;
        }
        Ok(())
    }

    /// Swaps the drawing with `other`. The GPU must be idle. Earlier recordings must not be submitted again.
    pub fn exchange(&mut self, other: &mut Drawing) {
        std::mem::swap(&mut self.drawing, other);
    }

    /// Changes a mesh's or surface's style, under the conditions of [`FieldRenderer::exchange`].
    pub fn set_style(&mut self, style: Style) -> Result<()> {
        self.drawing = self.made(self.drawing.array, self.drawing.others.clone(), style)?;
        Ok(())
    }

    /// Returns the colour maps of a slot's arrays, as far as there were any.
    pub fn color_maps(&self) -> &[ColorMap] {
        &self.color_maps
    }

    /// Uploads other colour maps, of the arrays of a slot with these numbers. Waits for the queue.
    pub fn set_color_maps(&mut self, queue: &mut Queue, changed: &[(usize, ColorMap)]) -> Result<()> {
        let maps = &mut self.color_maps;
        for &(number, map) in changed {
            maps.resize(maps.len().max(number + 1), map);
            maps[number] = map;
        }
        self.inputs.set_color_maps(queue, maps)
    }

    /// Creates a renderer of the same array and style with another output. Waits for the queue.
    pub fn with_output(
        &self,
        queue: &mut Queue,
        output: Output,
        (flights, views): (usize, usize),
        raster: Raster,
    ) -> Result<Self> {
        let (Drawing { array, others, style, .. }, color_maps) =
            (self.drawing.clone(), self.color_maps.clone());
        let views = views * others.uniforms();
        let Pipelines { scene, samples, .. } = self.pipelines;
        let samples = if output == Output::Facts { Samples::One } else { samples };
        let mut renderer = Self::new(
            queue,
            &FieldRendererDesc { output, flights, views, scene, array, style, color_maps, samples, raster },
        )?;
        renderer.drawing = renderer.made(array, others, style)?;
        Ok(renderer)
    }

    /// Returns the size of the attachments, or `None` before the first [`FieldRenderer::resize`].
    pub fn extent(&self) -> Option<vk::Extent2D> {
        self.attachments.as_ref().map(PassAttachments::extent)
    }

    /// Returns whether both the graphics pipeline and compute shaders can draw, and neither was asked for.
    pub fn may_choose(&self) -> bool {
        self.raster == Raster::Auto && self.compute().is_some()
    }

    /// Returns whether compute shaders draw now.
    pub fn by_compute(&self) -> bool {
        self.compute_now().is_some()
    }

    /// Returns what draws so many views at once.
    pub(super) fn raster_of(&self, views: usize) -> Raster {
        let many = views >= MANY_VIEWS && self.views_by_compute && self.compute().is_some();
        if many || self.by_compute() { Raster::Compute } else { Raster::Graphics }
    }

    /// Chooses what draws from the next recording on, if this [may](Self::may_choose) be chosen, and what draws many views.
    pub fn set_by_compute(&mut self, by_compute: bool, of_many_views: bool) {
        (self.by_compute, self.views_by_compute) = (by_compute, of_many_views);
    }

    /// Returns what compute shaders need, if they can draw.
    fn compute(&self) -> Option<(&Passes, Work, &Canvas)> {
        let Drawing { pipelines, work, .. } = &self.drawing;
        Some((pipelines.passes.as_ref()?, (*work)?, self.canvas.as_ref()?))
    }

    /// The same, if they draw now.
    fn compute_now(&self) -> Option<(&Passes, Work, &Canvas)> {
        self.compute().filter(|_| self.by_compute)
    }

    /// Creates attachments of this size. No frame may be in flight. Waits for the queue.
    pub fn resize(&mut self, queue: &mut Queue, extent: vk::Extent2D) -> Result<()> {
        // Drop the old ones first, so that both are never held at once.
        (self.attachments, self.canvas) = (None, None);
        let &Pipelines { ref device, output, samples, .. } = &self.pipelines;
        let may_compute = device.info().atomics64 && self.pipelines.scene == Scene::Field;
        if self.raster != Raster::Graphics && may_compute {
            let made = Canvas::new(queue, extent, (output, samples));
            // Without memory for it, the graphics pipeline draws.
            self.canvas = if self.raster == Raster::Auto { made.unwrap_or(None) } else { made? };
        }
        if let Some(canvas) = &self.canvas {
            // SAFETY: no frame is in flight (the caller's promise), so nothing uses the set.
            unsafe { self.inputs.set_canvas(canvas.buffers()) };
        }
        self.attachments = Some(PassAttachments::new(device, extent, output.formats()[0], samples)?);
        Ok(())
    }

    /// Sets the only view of a flight. The flight's previous frame must be done.
    pub fn set_view(&mut self, flight: usize, view: &FieldView, extent: vk::Extent2D) -> Result<()> {
        self.set_tile((flight, 0), view, extent.into())
    }

    /// Sets a view of a flight, to be drawn in `tile`. The flight's previous frame must be done.
    pub(super) fn set_tile(
        &mut self,
        number: (usize, usize),
        view: &FieldView,
        tile: vk::Rect2D,
    ) -> Result<()> {
        let Drawing { array, others, .. } = &self.drawing;
        let (flight, view_number) = number;
        for number in 0..others.uniforms() {
            let (array, view) = others.seen(number, (array, view));
            let at = view_number * others.uniforms() + number;
            let drawn = (array, others.map_number(number), self.drawing.first_element(number));
            self.inputs.set_view((flight, at), &view, others.cell(tile, number), drawn)?;
        }
        Ok(())
    }

    /// Drops what only the graphics pipeline needs, if compute shaders draw, until the next [`FieldRenderer::resize`]. No frame
    /// may be in flight.
    pub(super) fn leave_to_compute(&mut self) {
        if self.by_compute() {
            self.attachments = None;
        }
    }

    /// Records the draw of `source` into `picture`, as a whole or in [`Slices`].
    ///
    /// # Errors
    /// Fails without [`FieldRenderer::resize`] to this size, or if the source is for the other scene.
    ///
    /// # Safety
    /// - `commands` must be recording, and the flight's previous frame must be done.
    /// - `source` must have room for the array in whole words, live until the frame is done, and be readable
    ///   as [`wavefield_handoff::producer::reads`] says. Its offset must be aligned for a storage buffer.
    /// - `picture` must have the renderer's format, live until the frame is done, and need no old contents.
    ///   Its earlier uses must end at `COLOR_ATTACHMENT_OUTPUT` or in transfers, because the draw waits only
    ///   for these.
    pub unsafe fn record(
        &mut self,
        commands: vk::CommandBuffer,
        flight: usize,
        source: Source,
        picture: &Picture,
        slices: Option<Slices<'_>>,
    ) -> Result<()> {
        let tile = [vk::Rect2D::from(picture.extent)];
        // SAFETY: the caller's promise, for one picture and one view.
        unsafe {
            self.point_at(flight, source)?;
            self.record_tiles(commands, flight, (std::slice::from_ref(picture), 0, &tile), slices)
        }
    }

    /// Returns the buffer where pictures that stay are after a frame, and their bytes, if compute shaders draw.
    pub fn pixels(&self) -> Option<(vk::Buffer, u64)> {
        self.compute_now().map(|(.., canvas)| canvas.pixels())
    }

    /// Records a copy of the last picture, which stays, to its image.
    ///
    /// # Safety
    /// `commands` must be recording. The picture must live until they are done, and be what was drawn last.
    pub unsafe fn record_copy(&self, commands: vk::CommandBuffer, picture: &Picture) {
        if let Some((.., canvas)) = self.compute_now() {
            // SAFETY: the caller's promise; the picture is of the renderer's output.
            unsafe { canvas.record_copies(commands, std::slice::from_ref(picture), self.pipelines.output) };
        }
    }

    /// Points a flight's descriptor sets at `source`. Call this before recording commands that use the sets.
    ///
    /// # Safety
    /// Same as [`FieldRenderer::record`], for the flight and the source.
    pub(super) unsafe fn point_at(&self, flight: usize, source: Source) -> Result<()> {
        let scene = self.pipelines.scene;
        if (scene == Scene::Texture) != matches!(source, Source::Texture(_)) {
            return Err(Error::Unsupported(format!("{scene:?} is not drawn from {source:?}")));
        }
        // SAFETY: the flight's previous frame is done, and the source is alive (the caller's promise).
        unsafe { self.inputs.point_at((flight, 0), source, &self.drawing.array) };
        if let Source::Vertices(slot) = source {
            for (number, thing) in (1..).zip(self.drawing.others.things.iter()) {
                let source = Source::Vertices(slot.behind(thing.offset));
                // SAFETY: as above; the slot holds the other arrays, too.
                unsafe { self.inputs.point_at((flight, number), source, &thing.array) };
            }
        }
        Ok(())
    }

    /// Records draws into `pictures`, one for each format of the output, with one view in each tile. View
    /// `first` is in the first tile. What is outside the pictures is not drawn.
    ///
    /// # Safety
    /// Same as [`FieldRenderer::record`], after [`FieldRenderer::point_at`].
    pub(super) unsafe fn record_tiles(
        &self,
        commands: vk::CommandBuffer,
        flight: usize,
        (pictures, first, tiles): (&[Picture], usize, &[vk::Rect2D]),
        slices: Option<Slices<'_>>,
    ) -> Result<()> {
        let suits =
            |picture: &Picture, canvas: &Canvas| picture.takes_copies && picture.extent == canvas.extent();
        if let Some((passes, work, canvas)) = self.compute_now()
            && pictures.iter().all(|picture| suits(picture, canvas))
        {
            let with = (passes, work, &self.inputs);
            // SAFETY: the caller's promise; the tiles lie inside the pictures.
            unsafe { canvas.record(commands, flight, with, (pictures, first, tiles), slices) };
            return Ok(());
        }
        let fits = |a: &&PassAttachments| pictures.iter().all(|picture| picture.extent == a.extent());
        let Some(attachments) = self.attachments.as_ref().filter(fits) else {
            return Err(Error::Unsupported("the renderer was not resized to the picture".into()));
        };
        let Drawing { others, style, .. } = &self.drawing;
        let count = slices.as_ref().map_or(1, |slices| slices.count);
        let vk = self.pipelines.device.raw();
        // SAFETY: (here and below) recording (the caller's promise); every object belongs to this device.
        let aim = |(number, thing): (usize, usize), tile: &vk::Rect2D| unsafe {
            let tile = others.cell(*tile, thing);
            let (x, y) = (tile.offset.x as f32, tile.offset.y as f32);
            let (width, height) = (tile.extent.width as f32, tile.extent.height as f32);
            let viewport = vk::Viewport { x, y, width, height, min_depth: 0.0, max_depth: 1.0 };
            vk.cmd_set_viewport(commands, 0, &[viewport]);
            vk.cmd_set_scissor(commands, 0, &[inside(tile, attachments.extent())]);
            let source = if thing > others.things.len() { 0 } else { thing };
            self.inputs.bind(commands, (flight, source), (first + number) * others.uniforms() + thing);
        };
        // Draws the arrays and the background in each tile.
        // SAFETY: as above, in the render pass, after the flight's source and views were set.
        let draw = || unsafe {
            vk.cmd_bind_index_buffer(commands, self.indices.raw(), 0, vk::IndexType::UINT16);
            let mut bound = usize::MAX;
            for (number, tile) in tiles.iter().enumerate() {
                for slice in 0..count {
                    for (thing, (array, pipelines)) in self.drawing.arrays().enumerate() {
                        if thing != bound {
                            let graphics = pipelines.graphics.raw();
                            vk.cmd_bind_pipeline(commands, vk::PipelineBindPoint::GRAPHICS, graphics);
                            bound = thing;
                        }
                        if slice == 0 || self.drawing.has_others() {
                            aim((number, thing), tile);
                        }
                        let (vertices, pieces) = pieces(self.pipelines.scene, array, *style);
                        let (first, end) = (part(pieces, slice, count), part(pieces, slice + 1, count));
                        let some = end - first;
                        match (vertices, some) {
                            (_, 0) => {}
                            (Some(each), _) => vk.cmd_draw(commands, each * some, 1, each * first, 0),
                            (None, _) => vk.cmd_draw_indexed(commands, mesh::INDICES, some, 0, 0, first),
                        }
                    }
                    if let Some(slices) = &slices {
                        (slices.after)(slice);
                    }
                }
            }
            // Draw the background last, so that only pixels without a surface are shaded.
            if let Some(background) = &self.background_pipeline {
                vk.cmd_bind_pipeline(commands, vk::PipelineBindPoint::GRAPHICS, background.raw());
                for (number, tile) in tiles.iter().enumerate() {
                    for cell in 0..others.cells() {
                        aim((number, cell), tile);
                        vk.cmd_draw(commands, BACKGROUND_VERTICES, 1, 0, 0);
                    }
                }
            }
        };
        // SAFETY: the caller's promise. Without clear values, surface and background cover every pixel.
        unsafe { attachments.record(commands, pictures, self.pipelines.output.clear(), draw) };
        Ok(())
    }
}

fn pipelines_of(
    pipelines: &Pipelines,
    kind: ArrayKind,
    style: Style,
    raster: Raster,
) -> Result<KindPipelines> {
    let &Pipelines { ref device, layout, output, samples, scene } = pipelines;
    let passes = match raster == Raster::Graphics || scene != Scene::Field {
        true => None,
        false => Passes::new(device, layout, (output, samples), (kind, style))?,
    };
    Ok(KindPipelines { graphics: pipelines.of(kind, style)?, passes })
}

/// Returns the part of `tile` that is inside a picture.
fn inside(tile: vk::Rect2D, picture: vk::Extent2D) -> vk::Rect2D {
    let part = |begin: i32, length: u32, all: u32| {
        let end = (begin + length as i32).clamp(0, all as i32);
        let begin = begin.clamp(0, end);
        (begin, (end - begin) as u32)
    };
    let (x, width) = part(tile.offset.x, tile.extent.width, picture.width);
    let (y, height) = part(tile.offset.y, tile.extent.height, picture.height);
    vk::Rect2D { offset: vk::Offset2D { x, y }, extent: vk::Extent2D { width, height } }
}

/// Returns the number of pieces, which the slices share, and of the vertices of each: the plane, an image,
/// dots, triangles or lines. Without such a number, the pieces are tiles.
fn pieces(scene: Scene, array: &DrawnArray, style: Style) -> (Option<u32>, u32) {
    match (scene, array.kind(), style) {
        (Scene::Texture, ..) | (_, ArrayKind::Image, _) => (Some(SQUARE_VERTICES), 1),
        // Vulkan counts vertices in 32 bits, so only about the first 1400 million points are drawn.
        (_, ArrayKind::Lines, _) => {
            (Some(LINE_VERTICES), array.pieces().min(u64::from(u32::MAX / LINE_VERTICES)) as u32)
        }
        // A dot, or a triangle.
        (_, ArrayKind::Points | ArrayKind::Triangles, _) | (_, _, Style::Points) => {
            (Some(DOT_VERTICES), array.pieces().min(u64::from(u32::MAX / DOT_VERTICES)) as u32)
        }
        (_, ArrayKind::Mesh | ArrayKind::Surface, Style::Surface | Style::Wireframe) => {
            let (across, along) = mesh::tile_count(array.grid());
            (None, across * along)
        }
    }
}

/// Returns the first piece of slice `slice`, if `slices` slices share `all` pieces.
fn part(all: u32, slice: usize, slices: usize) -> u32 {
    (u64::from(all) * slice as u64 / slices as u64) as u32
}
