//! Lists what Vulkan reports as exportable. Creates nothing and does not use CUDA.

use std::time::{SystemTime, UNIX_EPOCH};

use ash::vk;
use vulkan_cuda::handle::ExportType;
use vulkan_cuda::{ArrayFormat, FORMATS, ImageRequest, Shape, ViewType, exportable, shape};

use super::record::{Buffer, Image, Report, SCHEMA, Semaphore};
use crate::app::Choice;
use crate::producer::SLOT_USAGE;
use crate::vulkan::Adapter;

/// One format with one view type. The size is odd, so that a wrong pitch shows, and the mip chain is complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) format: ArrayFormat,
    pub(super) request: ImageRequest,
}

/// Every format with every view type. A `2d` image is also tried as a colour attachment.
pub(super) fn cases(adapter: &Adapter) -> Vec<Case> {
    let mut cases = Vec::new();
    for format in FORMATS {
        for view in ViewType::ALL {
            cases.push(case(adapter, format, view, vk::ImageUsageFlags::empty()));
            if view == ViewType::D2 {
                cases.push(case(adapter, format, view, vk::ImageUsageFlags::COLOR_ATTACHMENT));
            }
        }
    }
    cases
}

fn case(adapter: &Adapter, format: ArrayFormat, view: ViewType, more: vk::ImageUsageFlags) -> Case {
    let usage = shared_usage(adapter, format.vulkan) | more;
    Case {
        format,
        request: ImageRequest { format: format.vulkan, shape: sample(view), usage, surface: true },
    }
}

/// The usage flags to request for images of `format`: copies, sampling and, where `adapter` supports it, storage
/// writes. A storage write in Vulkan corresponds to a surface write in CUDA.
fn shared_usage(adapter: &Adapter, format: vk::Format) -> vk::ImageUsageFlags {
    // SAFETY: a live physical device of this instance.
    let features =
        unsafe { adapter.instance().raw().get_physical_device_format_properties(adapter.raw(), format) }
            .optimal_tiling_features;
    let mut usage =
        vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST | vk::ImageUsageFlags::SAMPLED;
    if features.contains(vk::FormatFeatureFlags::STORAGE_IMAGE) {
        usage |= vk::ImageUsageFlags::STORAGE;
    }
    usage
}

/// A small shape of odd size, with all levels.
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
    let name = |handle: Option<ExportType>| handle.map(|handle| handle.name().to_owned());
    let semaphore =
        |kind: &str, handle: Option<ExportType>| Semaphore { kind: kind.into(), handle: name(handle) };
    let buffer = |kind: &str, handle: Option<ExportType>, reason: Option<String>| Buffer {
        kind: kind.into(),
        handle: name(handle),
        reason,
        check: None,
    };
    let support = match sharing.buffer_export {
        Some(handle) => {
            let name = &adapter.info().name;
            // SAFETY: a live physical device of this instance.
            unsafe { exportable::buffer(adapter.instance().raw(), adapter.raw(), name, SLOT_USAGE, handle) }
        }
        None => Err(format!("the device exports no buffers as {}", ExportType::names())),
    };
    let none = support.as_ref().err().cloned();
    let dedicated_only = support
        .unwrap_or(false)
        .then(|| "the driver exports buffers in dedicated allocations only".to_owned());
    let several = sharing.buffer_export.filter(|_| dedicated_only.is_none());
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
            buffer(super::buffers::DEDICATED, sharing.buffer_export, none.clone()),
            buffer(super::buffers::SEVERAL, several, none.or(dedicated_only)),
        ],
        images: cases(adapter).into_iter().map(|case| image(adapter, case)).collect(),
    }
}

pub(super) fn image(adapter: &Adapter, Case { format, request }: Case) -> Image {
    let shape = request.shape;
    let support = match adapter.info().sharing.buffer_export {
        Some(_) => {
            let vulkan = adapter.instance().raw();
            // SAFETY: a live physical device of this instance.
            unsafe { exportable::image(vulkan, adapter.raw(), request.format, &shape, request.usage) }
        }
        // The same extension exports buffers and images.
        None => Err(format!("the device exports no memory as {}", ExportType::names())),
    };
    let vk::Extent3D { width, height, depth } = shape.extent();
    Image {
        format: format.name(),
        view: shape.view().name().into(),
        attachment: request.usage.contains(vk::ImageUsageFlags::COLOR_ATTACHMENT),
        handle: support.as_ref().ok().map(|(handle, _)| handle.name().to_owned()),
        dedicated_only: support.as_ref().is_ok_and(|&(_, dedicated_only)| dedicated_only),
        reason: support.err(),
        extent: [width, height, depth],
        layers: shape.layers(),
        levels: shape.levels(),
        map: None,
        check: Vec::new(),
    }
}
