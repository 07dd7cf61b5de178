//! The render pass of a picture: its multisampled colour, its depth, and the barriers around it.

use ash::vk;
use vulkan_cuda::ownership::whole_image;

use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{Device, Image, ImageDesc, image_barrier, pipeline_barrier};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    pub image: vk::Image,
    pub view: vk::ImageView,
    pub extent: vk::Extent2D,
    pub final_layout: vk::ImageLayout,
    /// Whether it keeps its contents until the next draw, lives as long as the engine, and is in `TRANSFER_SRC_OPTIMAL` then.
    /// Compute shaders leave such a picture in [`FieldRenderer::pixels`](super::FieldRenderer::pixels).
    pub stays: bool,
    /// Whether the image has the usage `TRANSFER_DST`. Without it, the graphics pipeline draws.
    pub takes_copies: bool,
}

impl Picture {
    /// Returns the layout after a draw, and the stages and accesses that come next.
    pub(super) fn next(&self) -> (vk::ImageLayout, (vk::PipelineStageFlags2, vk::AccessFlags2)) {
        let uses = match self.final_layout {
            // A semaphore orders the present. Later commands that use the picture begin at these stages.
            vk::ImageLayout::PRESENT_SRC_KHR => (PICTURE_STAGES, vk::AccessFlags2::NONE),
            _ => (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_READ),
        };
        (self.final_layout, uses)
    }
}

/// Every device supports both for colour and depth ("Required Limits", `framebufferColorSampleCounts`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Samples {
    /// One: fast, with jagged edges.
    #[value(name = "1")]
    One,
    /// Four: smooth edges.
    #[default]
    #[value(name = "4")]
    Four,
}

impl Samples {
    pub fn flags(self) -> vk::SampleCountFlags {
        match self {
            Self::One => vk::SampleCountFlags::TYPE_1,
            Self::Four => vk::SampleCountFlags::TYPE_4,
        }
    }

    pub fn count(self) -> u32 {
        self.flags().as_raw()
    }
}

/// What draws arrays. The picture is the same, but for rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Raster {
    /// What takes less time; on a software device the graphics pipeline.
    #[default]
    Auto,
    /// The graphics pipeline.
    Graphics,
    /// Compute shaders, where they can.
    Compute,
}

/// The style of a mesh or surface. The texture's plane has only one style.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Style {
    /// A lit surface.
    #[default]
    Surface,
    /// The grid's lines on a dark surface. Where they would touch, only every second, fourth, … line.
    Wireframe,
    /// A dot for each vertex.
    Points,
}

pub(super) const COLOR_WRITES: (vk::PipelineStageFlags2, vk::AccessFlags2) =
    (vk::PipelineStageFlags2::COLOR_ATTACHMENT_OUTPUT, vk::AccessFlags2::COLOR_ATTACHMENT_WRITE);

pub(super) const PICTURE_STAGES: vk::PipelineStageFlags2 = vk::PipelineStageFlags2::from_raw(
    vk::PipelineStageFlags2::COLOR_ATTACHMENT_OUTPUT.as_raw()
        | vk::PipelineStageFlags2::ALL_TRANSFER.as_raw(),
);

/// Returns a depth format: 24 bits, otherwise 32. 24 bits are faster to clear and write, and still resolve a
/// hundred-thousandth of the field's width. Every device has one of the two ("Required Format Support").
pub(super) fn depth_format(device: &Device) -> vk::Format {
    let (instance, adapter) = (device.instance().raw(), device.adapter().raw());
    let small = vk::Format::X8_D24_UNORM_PACK32;
    // SAFETY: a live physical device of this instance.
    let features = unsafe { instance.get_physical_device_format_properties(adapter, small) };
    match features.optimal_tiling_features.contains(vk::FormatFeatureFlags::DEPTH_STENCIL_ATTACHMENT) {
        true => small,
        false => vk::Format::D32_SFLOAT,
    }
}

/// The attachments that all frames share, because the frames of one queue are drawn one after another.
pub(super) struct PassAttachments {
    color: Option<Image>,
    depth: Image,
    device: Device,
}

impl PassAttachments {
    pub(super) fn new(
        device: &Device,
        extent: vk::Extent2D,
        format: vk::Format,
        samples: Samples,
    ) -> Result<Self> {
        let image = |label, format, usage, aspect| {
            // The contents never outlive the render pass, so a tiling GPU need not store them.
            let usage = usage | vk::ImageUsageFlags::TRANSIENT_ATTACHMENT;
            let color = ImageDesc::color(label, extent, format, usage);
            Image::new(device, &ImageDesc { samples: samples.flags(), aspect, ..color })
        };
        let (color, depth) =
            (vk::ImageUsageFlags::COLOR_ATTACHMENT, vk::ImageUsageFlags::DEPTH_STENCIL_ATTACHMENT);
        let multisampled = || image("multisampled colour", format, color, vk::ImageAspectFlags::COLOR);
        Ok(Self {
            color: (samples != Samples::One).then(multisampled).transpose()?,
            depth: image("depth", depth_format(device), depth, vk::ImageAspectFlags::DEPTH)?,
            device: device.clone(),
        })
    }

    pub(super) fn extent(&self) -> vk::Extent2D {
        self.depth.extent()
    }

    /// Records a render pass with the draws of `draw`. Clears the pictures to `clear`, one value each. If
    /// `clear` is empty, the draws must cover every pixel. Several samples are for a single picture only.
    ///
    /// # Safety
    /// `commands` must be recording. The pictures must have this size and format, outlive the commands, and
    /// need no old contents. Their earlier uses must end at `COLOR_ATTACHMENT_OUTPUT` or in transfers.
    pub(super) unsafe fn record(
        &self,
        commands: vk::CommandBuffer,
        pictures: &[Picture],
        clear: &[vk::ClearColorValue],
        draw: impl FnOnce(),
    ) {
        let undefined = |scope| (vk::ImageLayout::UNDEFINED, scope);
        let drawable = (vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL, COLOR_WRITES);
        let depth_writes = (
            vk::PipelineStageFlags2::EARLY_FRAGMENT_TESTS | vk::PipelineStageFlags2::LATE_FRAGMENT_TESTS,
            vk::AccessFlags2::DEPTH_STENCIL_ATTACHMENT_WRITE,
        );
        let depth_uses = (depth_writes.0, depth_writes.1 | vk::AccessFlags2::DEPTH_STENCIL_ATTACHMENT_READ);
        let depth_ready = (vk::ImageLayout::DEPTH_STENCIL_ATTACHMENT_OPTIMAL, depth_uses);
        let depth = image_barrier(self.depth.raw(), undefined(depth_writes), depth_ready)
            .subresource_range(whole_image().aspect_mask(vk::ImageAspectFlags::DEPTH));
        // The previous use was a draw, a present (the acquire semaphore's wait is at this stage) or a copy.
        let before = undefined((PICTURE_STAGES, COLOR_WRITES.1));
        let written = pictures.iter().map(|picture| image_barrier(picture.image, before, drawable));
        // Without this image, the draw writes to the pictures directly.
        let multisampled = self.color.as_ref();
        let multisampled =
            multisampled.map(|image| image_barrier(image.raw(), undefined(COLOR_WRITES), drawable));
        let discarded: Vec<_> = [depth].into_iter().chain(written).chain(multisampled).collect();
        let hand_on = |picture: &Picture| image_barrier(picture.image, drawable, picture.next());
        let handed_on: Vec<_> = pictures.iter().map(hand_on).collect();
        let target = |(number, picture): (usize, &Picture)| {
            let target = vk::RenderingAttachmentInfo::default()
                .image_layout(vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL);
            let target = match clear.get(number) {
                Some(&color) => {
                    target.load_op(vk::AttachmentLoadOp::CLEAR).clear_value(vk::ClearValue { color })
                }
                // Every pixel is drawn, so the old contents do not matter.
                None => target.load_op(vk::AttachmentLoadOp::DONT_CARE),
            };
            match &self.color {
                // Only the resolved picture is kept.
                Some(multisampled) => target
                    .image_view(multisampled.view())
                    .store_op(vk::AttachmentStoreOp::DONT_CARE)
                    .resolve_mode(vk::ResolveModeFlags::AVERAGE)
                    .resolve_image_view(picture.view)
                    .resolve_image_layout(vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL),
                None => target.image_view(picture.view).store_op(vk::AttachmentStoreOp::STORE),
            }
        };
        let colors: Vec<_> = pictures.iter().enumerate().map(target).collect();
        let depth = vk::RenderingAttachmentInfo::default()
            .image_view(self.depth.view())
            .image_layout(vk::ImageLayout::DEPTH_STENCIL_ATTACHMENT_OPTIMAL)
            .load_op(vk::AttachmentLoadOp::CLEAR)
            .store_op(vk::AttachmentStoreOp::DONT_CARE)
            .clear_value(vk::ClearValue {
                // Depth is reversed: 0 is the farthest.
                depth_stencil: vk::ClearDepthStencilValue { depth: 0.0, stencil: 0 },
            });
        let rendering = vk::RenderingInfo::default()
            .render_area(self.extent().into())
            .layer_count(1)
            .color_attachments(&colors)
            .depth_attachment(&depth);
        let vk = self.device.raw();
        // SAFETY: the caller's promise; the barriers are outside the render pass; the images are alive and of
        // this device.
        unsafe {
            pipeline_barrier(&self.device, commands, &[], &discarded);
            vk.cmd_begin_rendering(commands, &rendering);
            draw();
            vk.cmd_end_rendering(commands);
            pipeline_barrier(&self.device, commands, &[], &handed_on);
        }
    }
}
