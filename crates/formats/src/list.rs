//! Lists what Vulkan reports as exportable. Creates nothing and does not use CUDA.

use std::time::{SystemTime, UNIX_EPOCH};

use ash::vk;
use vulkan_cuda::handle::ExportType;
use vulkan_cuda::{FORMATS, ImageRequest, Shape, ViewType, exportable, shape};

use super::record::{Object, Report, SCHEMA};
use wavefield_engine::Choice;
use wavefield_gpu::vulkan::Adapter;
use wavefield_handoff::producer::SLOT_USAGE;

pub(super) const DEDICATED: &str = "dedicated";
const SEVERAL: &str = "several in one allocation";
pub(super) const DEPTH: &str = "depth";
const DEPTH_HOW: &str = "D32_SFLOAT by a copy to a buffer, 4 bytes a pixel";
const NV12_HOW: &str = "G8_B8R8_2PLANE_420_UNORM by two planes, R8_UNORM + R8G8_UNORM";

/// Every format with every view type. A `2d` image is also tried as a colour attachment.
pub(super) fn requests(adapter: &Adapter) -> Vec<ImageRequest> {
    let mut requests = Vec::new();
    for format in FORMATS.map(|format| format.vulkan) {
        for view in ViewType::ALL {
            let usage = shared_usage(adapter, format);
            let request = ImageRequest { format, shape: sample(view), usage, surface: true };
            requests.push(request);
            if view == ViewType::D2 {
                let usage = usage | vk::ImageUsageFlags::COLOR_ATTACHMENT;
                requests.push(ImageRequest { usage, ..request });
            }
        }
    }
    requests
}

/// The two planes of an NV12 picture of 38x22 pixels: luma, and chroma of half the width and height.
pub(super) fn planes(adapter: &Adapter) -> [ImageRequest; 2] {
    [(vk::Format::R8_UNORM, 38, 22), (vk::Format::R8G8_UNORM, 19, 11)].map(|(format, width, height)| {
        let shape = Shape::new(ViewType::D2, vk::Extent3D { width, height, depth: 1 }, 1, 1)
            .unwrap_or_else(|_| unreachable!("the sizes above keep the rules"));
        ImageRequest { format, shape, usage: shared_usage(adapter, format), surface: true }
    })
}

/// The usage flags to request for images of `format`: copies, sampling and, where `adapter` supports it, storage
/// writes. A storage write in Vulkan corresponds to a surface write in CUDA.
fn shared_usage(adapter: &Adapter, format: vk::Format) -> vk::ImageUsageFlags {
    // SAFETY: a live physical device of this instance.
    let features =
        unsafe { adapter.instance().raw().get_physical_device_format_properties(adapter.raw(), format) }
            .optimal_tiling_features;
    let usage =
        vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST | vk::ImageUsageFlags::SAMPLED;
    match features.contains(vk::FormatFeatureFlags::STORAGE_IMAGE) {
        true => usage | vk::ImageUsageFlags::STORAGE,
        false => usage,
    }
}

/// A small shape with all levels. Its size is odd, so that a wrong pitch shows.
fn sample(view: ViewType) -> Shape {
    let ((width, height, depth), layers) = match view {
        ViewType::D1 => ((37, 1, 1), 1),
        ViewType::D2 => ((37, 21, 1), 1),
        ViewType::D3 => ((19, 11, 7), 1),
        ViewType::Cube => ((23, 23, 1), 6),
        ViewType::D1Array => ((37, 1, 1), 5),
        ViewType::D2Array => ((37, 21, 1), 3),
        ViewType::CubeArray => ((23, 23, 1), 12),
    };
    let extent = vk::Extent3D { width, height, depth };
    Shape::new(view, extent, layers, shape::full_chain(extent))
        .unwrap_or_else(|_| unreachable!("the sizes above keep the rules"))
}

/// Asks the device what it exports. `command` is the command line for the record.
pub fn list(choice: &Choice, command: String) -> Report {
    let adapter = &choice.adapter;
    let sharing = &adapter.info().sharing;
    let semaphore = |kind: &str, handle: Option<ExportType>| {
        let export = handle.ok_or_else(|| format!("the device exports none as {}", ExportType::names()));
        Object::new("semaphore", kind, 1, export)
    };
    let dedicated = memory_export(adapter).and_then(|handle| {
        let (vulkan, name) = (adapter.instance().raw(), &adapter.info().name);
        // SAFETY: a live physical device of this instance.
        let support = unsafe { exportable::buffer(vulkan, adapter.raw(), name, SLOT_USAGE, handle) };
        support.map(|dedicated_only| (handle, dedicated_only))
    });
    let several = dedicated.clone().and_then(|(handle, dedicated_only)| match dedicated_only {
        true => Err("the driver exports buffers in dedicated allocations only".to_owned()),
        false => Ok(handle),
    });
    let buffer = dedicated.map(|(handle, _)| handle);
    let [luma, chroma] = planes(adapter).map(|plane| export(adapter, &plane));
    Report {
        schema: SCHEMA.into(),
        command,
        started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        machine: choice.machine(),
        checked: false,
        semaphores: vec![
            semaphore("binary", sharing.binary_export),
            semaphore("timeline", sharing.timeline_export),
        ],
        buffers: vec![
            Object::new("buffers", DEDICATED, 1, buffer.clone()),
            Object::new("buffers", SEVERAL, 1, several),
        ],
        images: requests(adapter).iter().map(|request| image(adapter, request)).collect(),
        instead: vec![
            Object::new(DEPTH, DEPTH_HOW, 1, buffer),
            Object::new("NV12", NV12_HOW, 1, luma.and(chroma)),
        ],
        failed: Vec::new(),
        refused: Vec::new(),
    }
}

/// The handle type as which the device exports memory. The same extension exports buffers and images.
fn memory_export(adapter: &Adapter) -> Result<ExportType, String> {
    let export = adapter.info().sharing.buffer_export;
    export.ok_or_else(|| format!("the device exports no memory as {}", ExportType::names()))
}

fn export(
    adapter: &Adapter,
    ImageRequest { format, shape, usage, .. }: &ImageRequest,
) -> Result<ExportType, String> {
    memory_export(adapter)?;
    // SAFETY: a live physical device of this instance.
    let support =
        unsafe { exportable::image(adapter.instance().raw(), adapter.raw(), *format, shape, *usage) };
    support.map(|(handle, _)| handle)
}

pub(super) fn image(adapter: &Adapter, request: &ImageRequest) -> Object {
    let ImageRequest { format, shape, usage, .. } = request;
    let drawn_on = if usage.contains(vk::ImageUsageFlags::COLOR_ATTACHMENT) { ", drawn on" } else { "" };
    let kind = format!("{}{drawn_on}", shape.view().name());
    Object::new(&format!("{format:?}"), &kind, shape.levels(), export(adapter, request))
}
