use std::mem::ManuallyDrop;

use ash::vk;
use egui::epaint::{ClippedShape, Primitive};
use egui::{ClippedPrimitive, Color32, Context, TexturesDelta, ecolor};
use egui_ash_renderer::allocator::GpuAllocator;
use egui_ash_renderer::{DynamicRendering, Options, RenderMode, Renderer, RendererError};

use super::Picture;
use super::pass::{COLOR_WRITES, PICTURE_STAGES};
use wavefield_gpu::vulkan::{CommandPool, Device, Queue, image_barrier, pipeline_barrier};
use wavefield_gpu::{Error, Result};

/// egui's output, ready to draw: see [`Painter::prepare`].
#[derive(Default)]
pub struct Painting {
    primitives: Vec<ClippedPrimitive>,
    pixels_per_point: f32,
}

impl Painting {
    pub fn is_empty(&self) -> bool {
        self.primitives.is_empty()
    }
}

/// Draws egui's output over resolved pictures. The queue must be idle before the painter is dropped.
pub struct Painter {
    // Leaked together with the device if the GPU is stuck.
    renderer: ManuallyDrop<Renderer<GpuAllocator>>,
    /// What the renderer is given for each level of a colour.
    levels: [u8; 256],
    pool: CommandPool,
    device: Device,
}

impl Painter {
    pub fn new(queue: &Queue, format: vk::Format, flights: usize) -> Result<Self> {
        let device = queue.device().clone();
        let pool = CommandPool::of_queue(queue, vk::CommandPoolCreateFlags::TRANSIENT)?;
        let target = RenderMode::DynamicRendering(DynamicRendering {
            color_attachment_format: format,
            depth_attachment_format: None,
            stencil_attachment_format: None,
        });
        let srgb_framebuffer = matches!(format, vk::Format::B8G8R8A8_SRGB | vk::Format::R8G8B8A8_SRGB);
        let options = Options { in_flight_frames: flights, srgb_framebuffer, ..Options::default() };
        // The renderer takes a level for a power of 2.2, and a device writes sRGB, so dark colours would become darker.
        let levels = std::array::from_fn(|level| match srgb_framebuffer {
            true => (255.0 * ecolor::linear_f32_from_gamma_u8(level as u8).powf(1.0 / 2.2)).round() as u8,
            false => level as u8,
        });
        let (allocator, raw) = (device.shared_allocator(), device.raw().clone());
        let renderer = Renderer::with_gpu_allocator(allocator, raw, target, options);
        let renderer = ManuallyDrop::new(renderer.map_err(|error| failed(&device, error))?);
        Ok(Self { renderer, levels, pool, device })
    }

    /// Uploads glyphs and images. Waits for the queue without a timeout, so wait for all submissions first.
    pub fn upload(&mut self, queue: &mut Queue, mut textures: TexturesDelta) -> Result<()> {
        // In a debug build, egui panics if a delta is dropped before it is taken. Take it before any error.
        let (set, free) = (std::mem::take(&mut textures.set), std::mem::take(&mut textures.free));
        let (raw, pool) = (queue.raw(), self.pool.raw());
        let failed = |error| failed(&self.device, error);
        for (id, delta) in set.iter().flat_map(|(id, deltas)| deltas.iter().map(|delta| (*id, delta))) {
            self.renderer.set_texture(raw, pool, id, delta).map_err(failed)?;
        }
        free.iter().try_for_each(|id| self.renderer.free_texture(*id)).map_err(failed)
    }

    /// Prepares egui's shapes for [`Painter::record`].
    pub fn prepare(&self, egui: &Context, shapes: Vec<ClippedShape>, pixels_per_point: f32) -> Painting {
        let mut primitives = egui.tessellate(shapes, pixels_per_point);
        for clipped in &mut primitives {
            let Primitive::Mesh(mesh) = &mut clipped.primitive else { continue };
            for vertex in &mut mesh.vertices {
                let [r, g, b, a] = vertex.color.to_array();
                let [r, g, b] = [r, g, b].map(|level| self.levels[usize::from(level)]);
                vertex.color = Color32::from_rgba_premultiplied(r, g, b, a);
            }
        }
        Painting { primitives, pixels_per_point }
    }

    /// Records the draw over `picture`, which is in its final layout before and after.
    ///
    /// # Safety
    /// `commands` must be recording, outside a render pass, after the draw of `picture`. The picture must
    /// have the painter's format, and live until the commands are done. No more frames may be in flight than
    /// the painter was made for.
    pub unsafe fn record(
        &mut self,
        commands: vk::CommandBuffer,
        picture: &Picture,
        painting: &Painting,
    ) -> Result<()> {
        let device = self.device.clone();
        let drawn = vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL;
        let barrier = |from, to| {
            let barrier = image_barrier(picture.image, from, to);
            // SAFETY: recording, outside a render pass, and the picture is alive (the caller's promise).
            unsafe { pipeline_barrier(&device, commands, &[], &[barrier]) };
        };
        let reads = (COLOR_WRITES.0, COLOR_WRITES.1 | vk::AccessFlags2::COLOR_ATTACHMENT_READ);
        barrier((picture.final_layout, (PICTURE_STAGES, COLOR_WRITES.1)), (drawn, reads));
        let target = [vk::RenderingAttachmentInfo::default()
            .image_view(picture.view)
            .image_layout(drawn)
            .load_op(vk::AttachmentLoadOp::LOAD)
            .store_op(vk::AttachmentStoreOp::STORE)];
        let area = vk::Rect2D { offset: vk::Offset2D::default(), extent: picture.extent };
        let rendering =
            vk::RenderingInfo::default().render_area(area).layer_count(1).color_attachments(&target);
        // SAFETY: recording (the caller's promise), and the picture is alive.
        unsafe { device.raw().cmd_begin_rendering(commands, &rendering) };
        let painted =
            self.renderer.cmd_draw(commands, picture.extent, painting.pixels_per_point, &painting.primitives);
        // SAFETY: in the render pass begun above.
        unsafe { device.raw().cmd_end_rendering(commands) };
        barrier((drawn, COLOR_WRITES), picture.next());
        painted.map_err(|error| failed(&device, error))
    }
}

fn failed(device: &Device, error: RendererError) -> Error {
    match error {
        RendererError::Vulkan(result) => device.failed("drawing the overlay")(result),
        other => Error::Unsupported(format!("the overlay on {}: {other}", device.info().name)),
    }
}

impl Drop for Painter {
    fn drop(&mut self) {
        if self.device.is_stuck() {
            return;
        }
        // SAFETY: dropped only here; the GPU is done with it, as the module `vulkan` demands.
        unsafe { ManuallyDrop::drop(&mut self.renderer) };
    }
}
