//! Draws the vertices: camera, pipelines, samples and depth. Nothing here depends on CUDA.

use std::sync::Arc;

use anyhow::Result;
use ash::vk;
use bytemuck::{Pod, Zeroable};
use glam::camera::rh::{proj::vulkan::perspective_infinite_reverse, view::look_at_mat4};
use glam::{Mat4, Vec3, Vec4};
use gpu_allocator::MemoryLocation;

use crate::gpu::{AutoDestroy, Gpu};
use crate::objects::{Buffer, Image, Layout, Scope};
use crate::objects::{graphics_pipeline, image_barrier, possible_samples, spirv};

#[derive(Clone, Copy)]
pub struct Target {
    pub image: vk::Image,
    pub view: vk::ImageView,
    /// The image's layout after the draw.
    pub layout: vk::ImageLayout,
}

#[derive(Clone, Copy)]
pub struct View {
    pub camera: Camera,
    /// The field's time in seconds.
    pub time: f64,
    /// The time between the frames of a batch, in seconds.
    pub step: f64,
    /// The bar along the lower edge, if any.
    pub bar: Option<Bar>,
}

/// The times of a frame's parts: kernel, draw, and the rest (GPU switches, and the wait for the screen).
#[derive(Clone, Copy)]
pub struct Bar(pub [f64; 3]);

impl Bar {
    /// Draws each part as a cleared rectangle, which needs no pipeline.
    ///
    /// # Safety
    /// `commands` must be in a render pass with one colour attachment of this size.
    unsafe fn record(&self, gpu: &Gpu, commands: vk::CommandBuffer, extent: vk::Extent2D) {
        // In linear light: orange, blue, grey.
        const COLORS: [[f32; 4]; 3] =
            [[0.9, 0.27, 0.02, 1.0], [0.03, 0.22, 0.75, 1.0], [0.09, 0.09, 0.1, 1.0]];
        let per_ms = f64::from(extent.width) / self.0.iter().sum::<f64>();
        let height = (extent.height / 60).clamp(1, extent.height);
        let (mut end, mut left) = (0.0, 0);
        for (part, float32) in self.0.into_iter().zip(COLORS) {
            end += part * per_ms;
            let right = (end.round() as u32).min(extent.width);
            if right > left {
                let offset = vk::Offset2D { x: left as i32, y: (extent.height - height) as i32 };
                let extent = vk::Extent2D { width: right - left, height };
                let rect = vk::Rect2D { offset, extent };
                let rects = [vk::ClearRect { rect, base_array_layer: 0, layer_count: 1 }];
                let clear_value = vk::ClearValue { color: vk::ClearColorValue { float32 } };
                let aspect_mask = vk::ImageAspectFlags::COLOR;
                let clear = [vk::ClearAttachment { aspect_mask, color_attachment: 0, clear_value }];
                // SAFETY: the caller's promise; the rectangle lies within the attachment.
                unsafe { gpu.device.cmd_clear_attachments(commands, &clear, &rects) };
                left = right;
            }
        }
    }
}

/// A camera that looks at `TARGET`. The field is 2 wide. Angles are in radians.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Camera {
    /// The angle around the vertical axis.
    pub azimuth: f32,
    /// The angle above the horizon.
    pub elevation: f32,
    pub distance: f32,
}

impl Default for Camera {
    fn default() -> Self {
        Self { azimuth: 0.58, elevation: 0.52, distance: 3.3 }
    }
}

impl Camera {
    /// Turns the camera by a drag in pixels. Stops short of the poles, where there is no up direction.
    pub fn orbit(&mut self, right: f32, down: f32) {
        const PER_PIXEL: f32 = 0.006;
        self.azimuth = (self.azimuth - right * PER_PIXEL).rem_euclid(std::f32::consts::TAU);
        self.elevation = (self.elevation + down * PER_PIXEL).clamp(-1.5, 1.5);
    }

    /// Moves nearer (positive) or farther away, in notches of a wheel.
    pub fn zoom(&mut self, notches: f32) {
        self.distance = (self.distance * 0.9f32.powf(notches)).clamp(0.4, 20.0);
    }

    fn eye(&self) -> Vec3 {
        let (sin_a, cos_a) = self.azimuth.sin_cos();
        let (sin_e, cos_e) = self.elevation.sin_cos();
        TARGET + self.distance * Vec3::new(sin_a * cos_e, sin_e, cos_a * cos_e)
    }

    /// Returns the matrix to Vulkan's clip space. Reversed depth has even precision: 1 near, 0 at infinity.
    fn view_projection(&self, extent: vk::Extent2D) -> Mat4 {
        let aspect = extent.width as f32 / extent.height as f32;
        // In a narrow picture, widen the view so that the field fits.
        let half_height = (0.72f32 / 2.0).tan() * (1.35 / aspect).max(1.0);
        perspective_infinite_reverse(2.0 * half_height.atan(), aspect, 0.05)
            * look_at_mat4(self.eye(), TARGET, Vec3::Y)
    }
}

/// Slightly below the middle of the field, to leave room for the crests.
const TARGET: Vec3 = Vec3::new(0.0, -0.2, 0.0);

/// Must match `shaders/surface.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Constants {
    view_projection: Mat4,
    eye: Vec4,
    grid: [u32; 2],
    tiles: u32,
    unused: u32, // WGSL pads to 16 bytes
}

/// The number of cells along a tile's edge, as in `shaders/surface.wgsl`.
const TILE: u32 = 32;
/// The number of indices of a tile: two triangles for each cell.
const INDICES: u32 = 6 * TILE * TILE;

pub struct Draw {
    surface: AutoDestroy<vk::Pipeline>,
    background: AutoDestroy<vk::Pipeline>,
    layout: Layout,
    indices: Buffer,
    grid: [u32; 2],
    depth_format: vk::Format,
    pub format: vk::Format,
    pub samples: vk::SampleCountFlags,
    /// The size of the targets and attachments: see [`Draw::fit`].
    pub extent: vk::Extent2D,
    attachments: Option<Attachments>,
    gpu: Arc<Gpu>,
}

struct Attachments {
    /// Multisampled colour, if there is more than one sample.
    color: Option<Image>,
    depth: Image,
}

impl Draw {
    /// Prepares to draw this grid on targets of this format. Lowers `samples` if the device has fewer.
    pub fn new(gpu: &Arc<Gpu>, grid: [u32; 2], format: vk::Format, samples: u32) -> Result<Self> {
        let stages = vk::ShaderStageFlags::VERTEX | vk::ShaderStageFlags::FRAGMENT;
        let layout = Layout::new(gpu, stages, size_of::<Constants>())?;
        let (size, usage) = (2 * u64::from(INDICES), vk::BufferUsageFlags::INDEX_BUFFER);
        let mut indices = Buffer::new(gpu, "the indices", size, usage, MemoryLocation::CpuToGpu)?;
        indices.bytes()?.copy_from_slice(bytemuck::cast_slice(&tile_indices()));
        // Every device supports one of these two formats. The one with fewer bits is faster.
        let small = vk::Format::X8_D24_UNORM_PACK32;
        // SAFETY: a live physical device of this instance.
        let found = unsafe { gpu.instance.raw.get_physical_device_format_properties(gpu.physical, small) };
        let (found, wanted) =
            (found.optimal_tiling_features, vk::FormatFeatureFlags::DEPTH_STENCIL_ATTACHMENT);
        let depth_format = if found.contains(wanted) { small } else { vk::Format::D32_SFLOAT };
        let samples = possible_samples(gpu, samples);
        // Depth is reversed, so the comparisons below show the greater depth, which is nearer.
        let formats = (format, depth_format, samples);
        let pipeline = |shaders, shows| graphics_pipeline(gpu, shaders, layout.pipeline.raw, formats, shows);
        let shaders = [spirv!("surface.vertex_main"), spirv!("surface.fragment_main")];
        let surface = pipeline(shaders, vk::CompareOp::GREATER)?;
        let shaders = [spirv!("background.vertex_main"), spirv!("background.fragment_main")];
        let background = pipeline(shaders, vk::CompareOp::GREATER_OR_EQUAL)?;
        Ok(Self {
            surface,
            background,
            layout,
            indices,
            grid,
            depth_format,
            format,
            samples,
            extent: vk::Extent2D::default(),
            attachments: None,
            gpu: gpu.clone(),
        })
    }

    /// Makes the attachments for targets of this size.
    ///
    /// # Safety
    /// No frame may be in flight.
    pub unsafe fn fit(&mut self, extent: vk::Extent2D) -> Result<()> {
        (self.extent, self.attachments) = (extent, None);
        // The contents never outlive the frame, so a tiling GPU need not store them.
        let image = |name, format, usage| {
            let usage = usage | vk::ImageUsageFlags::TRANSIENT_ATTACHMENT;
            Image::new(&self.gpu, name, extent, format, self.samples, usage)
        };
        let color = match self.samples {
            vk::SampleCountFlags::TYPE_1 => None,
            _ => Some(image("the samples", self.format, vk::ImageUsageFlags::COLOR_ATTACHMENT)?),
        };
        let depth = image("the depth", self.depth_format, vk::ImageUsageFlags::DEPTH_STENCIL_ATTACHMENT)?;
        self.attachments = Some(Attachments { color, depth });
        Ok(())
    }

    /// # Safety
    /// `commands` must be recording, outside a render pass. `vertices` must have the grid's vertices, visible
    /// to the shaders. The target must have the size that [`Draw::fit`] got.
    pub unsafe fn record(
        &self,
        commands: vk::CommandBuffer,
        vertices: vk::Buffer,
        target: &Target,
        view: &View,
    ) {
        let camera = &view.camera;
        let Some(attachments) = &self.attachments else { return };
        let [cols, rows] = self.grid.map(|side| (side - 1).div_ceil(TILE));
        let (view_projection, eye) = (camera.view_projection(self.extent), camera.eye().extend(1.0));
        let constants = Constants { view_projection, eye, grid: self.grid, tiles: cols, unused: 0 };
        let device = &self.gpu.device;
        // SAFETY: the caller's promise; everything named is alive and belongs to this device.
        unsafe {
            self.begin(commands, target, attachments);
            let graphics = vk::PipelineBindPoint::GRAPHICS;
            self.layout.bind(commands, graphics, vertices, bytemuck::bytes_of(&constants));
            device.cmd_bind_pipeline(commands, graphics, self.surface.raw);
            device.cmd_bind_index_buffer(commands, self.indices.buffer.raw, 0, vk::IndexType::UINT16);
            device.cmd_draw_indexed(commands, INDICES, cols * rows, 0, 0, 0);
            device.cmd_bind_pipeline(commands, graphics, self.background.raw);
            device.cmd_draw(commands, 3, 1, 0, 0);
            if let Some(bar) = &view.bar {
                bar.record(&self.gpu, commands, self.extent);
            }
            device.cmd_end_rendering(commands);
            // A present waits for a semaphore. A copy waits for this barrier.
            let copy = (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_READ);
            let layouts = (vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL, target.layout);
            let drawn = [image_barrier(target.image, vk::ImageAspectFlags::COLOR, layouts, COLOR, copy)];
            let drawn = vk::DependencyInfo::default().image_memory_barriers(&drawn);
            device.cmd_pipeline_barrier2(commands, &drawn);
        }
    }

    /// Prepares the images, discards their contents, and begins the render pass.
    ///
    /// # Safety
    /// Same as [`Draw::record`].
    unsafe fn begin(&self, commands: vk::CommandBuffer, target: &Target, attachments: &Attachments) {
        let Attachments { color, depth } = attachments;
        let colored = (vk::ImageLayout::UNDEFINED, vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL);
        let deep = (vk::ImageLayout::UNDEFINED, vk::ImageLayout::DEPTH_STENCIL_ATTACHMENT_OPTIMAL);
        let aspect = vk::ImageAspectFlags::COLOR;
        // Frames share the images, so each frame waits for the previous one. The acquire semaphore's wait is
        // at `COLOR_ATTACHMENT_OUTPUT`, too. `ALL_TRANSFER` is for a picture that was just copied.
        let target_before = (COLOR.0 | vk::PipelineStageFlags2::ALL_TRANSFER, COLOR.1);
        let tests =
            vk::PipelineStageFlags2::EARLY_FRAGMENT_TESTS | vk::PipelineStageFlags2::LATE_FRAGMENT_TESTS;
        let depth_before = (tests, vk::AccessFlags2::DEPTH_STENCIL_ATTACHMENT_WRITE);
        let depth_after = (tests, depth_before.1 | vk::AccessFlags2::DEPTH_STENCIL_ATTACHMENT_READ);
        let mut barriers = vec![
            image_barrier(target.image, aspect, colored, target_before, COLOR),
            image_barrier(depth.image.raw, vk::ImageAspectFlags::DEPTH, deep, depth_before, depth_after),
        ];
        barriers
            .extend(color.iter().map(|color| image_barrier(color.image.raw, aspect, colored, COLOR, COLOR)));
        let barriers = vk::DependencyInfo::default().image_memory_barriers(&barriers);

        // Every pixel is drawn, so the old colours do not matter.
        let drawn = vk::RenderingAttachmentInfo::default().image_layout(colored.1);
        let drawn = drawn.load_op(vk::AttachmentLoadOp::DONT_CARE);
        let colors = [match color {
            Some(samples) => {
                let drawn = drawn.image_view(samples.view.raw).store_op(vk::AttachmentStoreOp::DONT_CARE);
                let drawn = drawn.resolve_mode(vk::ResolveModeFlags::AVERAGE);
                drawn.resolve_image_view(target.view).resolve_image_layout(colored.1)
            }
            None => drawn.image_view(target.view).store_op(vk::AttachmentStoreOp::STORE),
        }];
        let depth = vk::RenderingAttachmentInfo::default().image_view(depth.view.raw).image_layout(deep.1);
        let depth = depth.load_op(vk::AttachmentLoadOp::CLEAR).store_op(vk::AttachmentStoreOp::DONT_CARE);
        let area = vk::Rect2D { offset: vk::Offset2D::default(), extent: self.extent };
        let rendering = vk::RenderingInfo::default().render_area(area).layer_count(1);
        let rendering = rendering.color_attachments(&colors).depth_attachment(&depth);
        let (width, height) = (area.extent.width as f32, area.extent.height as f32);
        let viewport = vk::Viewport { width, height, max_depth: 1.0, ..Default::default() };
        let device = &self.gpu.device;
        // SAFETY: the caller's promise.
        unsafe {
            device.cmd_pipeline_barrier2(commands, &barriers);
            device.cmd_begin_rendering(commands, &rendering);
            device.cmd_set_viewport(commands, 0, &[viewport]);
            device.cmd_set_scissor(commands, 0, &[area]);
        }
    }
}

const COLOR: Scope =
    (vk::PipelineStageFlags2::COLOR_ATTACHMENT_OUTPUT, vk::AccessFlags2::COLOR_ATTACHMENT_WRITE);

/// Returns two triangles for each cell of a tile, counter-clockwise seen from above.
///
/// Cells are in strips of 4 columns, so that most of a cell's vertices were transformed shortly before.
fn tile_indices() -> Vec<u16> {
    const STRIP: u32 = 4;
    let mut indices = Vec::with_capacity(INDICES as usize);
    for strip in (0..TILE).step_by(STRIP as usize) {
        for row in 0..TILE {
            for col in strip..strip + STRIP {
                let corner = |col: u32, row: u32| (row * (TILE + 1) + col) as u16;
                let (a, b) = (corner(col, row), corner(col + 1, row));
                let (c, d) = (corner(col, row + 1), corner(col + 1, row + 1));
                indices.extend([a, c, b, b, c, d]);
            }
        }
    }
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_has_each_cell_once_and_faces_up() {
        let indices = tile_indices();
        let cells: std::collections::HashSet<_> = indices.chunks_exact(6).map(|cell| cell[0]).collect();
        assert_eq!((indices.len(), cells.len()), ((TILE * TILE * 6) as usize, (TILE * TILE) as usize));
        for triangle in indices.chunks_exact(3) {
            // x grows with the column, and z, towards the eye, with the row.
            let at = |index: u16| {
                let (col, row) = (u32::from(index) % (TILE + 1), u32::from(index) / (TILE + 1));
                glam::vec3(col as f32, 0.0, row as f32)
            };
            let (a, b, c) = (at(triangle[0]), at(triangle[1]), at(triangle[2]));
            assert!((b - a).cross(c - a).y > 0.0, "{triangle:?}");
        }
    }

    #[test]
    fn the_whole_field_is_in_the_picture() {
        for (width, height) in [(1280, 720), (640, 480), (500, 900), (3000, 400)] {
            let matrix = Camera::default().view_projection(vk::Extent2D { width, height });
            for corner in 0..8 {
                let sign = |bit: u32| if corner >> bit & 1 == 0 { -1.0 } else { 1.0 };
                let clip = matrix * glam::vec4(sign(0), 0.3 * sign(1), sign(2), 1.0);
                let at = clip / clip.w;
                assert!(at.x.abs() <= 1.0 && at.y.abs() <= 1.0, "{width}x{height}: {at}");
                assert!(at.z > 0.0 && at.z < 1.0, "reversed depth: {at}");
            }
        }
    }

    #[test]
    fn the_camera_never_turns_over_or_leaves() {
        let mut camera = Camera::default();
        camera.orbit(100_000.0, 100_000.0);
        camera.zoom(1e6);
        assert!(camera.elevation < std::f32::consts::FRAC_PI_2 && camera.distance >= 0.4);
        camera.zoom(-1e6);
        let extent = vk::Extent2D { width: 1, height: 1 };
        assert!(camera.distance <= 20.0 && camera.view_projection(extent).is_finite());
    }
}
