//! What the library must refuse of images and buffers before it asks a driver, and in which order they may be
//! dropped.

use crate::common;

use std::sync::Arc;

use ash::vk;
use vulkan_cuda::image::picture;
use vulkan_cuda::{ExportedAllocation, ExportedImage, ImageRequest, Shape, SharedImage, ViewType};
use wavefield_gpu::cuda::{Cuda, DeviceMemory, Stream};
use wavefield_gpu::vulkan::{Device, DeviceDesc, Instance, Queue, Validation, ValidationLog};
use wavefield_run::{Choice, DeviceTable, DriverThread, ProducerKind};

fn instance() -> (Instance, Arc<ValidationLog>) {
    let instance = Instance::new(Validation::IfInstalled, None).unwrap();
    let log = instance.validation_log().clone();
    (instance, log)
}

/// Asserts that the validation layer has reported nothing.
fn assert_silent(log: &ValidationLog) {
    log.verdict().unwrap();
    assert_eq!((log.errors(), log.warnings()), (0, 0), "of validation");
}

/// The device that shares with CUDA. Returns `None` and reports a skip if there is none.
fn with_cuda(instance: &Instance) -> Option<Choice> {
    match DeviceTable::query(instance, None, DriverThread::begin()).unwrap().choose(None, ProducerKind::Cuda)
    {
        Ok(choice) => Some(choice),
        Err(error) => {
            common::skip_without_gpu(&error.to_string());
            None
        }
    }
}

/// Any device that exports memory. Returns `None` and reports a skip if there is none.
fn exporting(instance: &Instance) -> Option<(Choice, Device, Queue)> {
    let choice = DeviceTable::query(instance, None, DriverThread::begin())
        .unwrap()
        .choose(None, ProducerKind::Auto)
        .unwrap();
    if choice.adapter.info().sharing.buffer_export.is_none() {
        common::skip("no Vulkan device here exports memory");
        return None;
    }
    let desc = DeviceDesc { interop: true, ..DeviceDesc::default() };
    let (device, queue) = choice.adapter.request_device(&desc).unwrap();
    Some((choice, device, queue))
}

const USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::STORAGE_BUFFER;

#[test]
fn an_image_that_no_array_can_be_is_refused_and_says_which_can() {
    let (instance, log) = instance();
    let Some((choice, device, queue)) = exporting(&instance) else { return };
    let extent = vk::Extent3D { width: 16, height: 16, depth: 1 };
    let request = |format, extent| ImageRequest {
        format,
        shape: Shape::new(ViewType::D2, extent, 1, 1).unwrap(),
        usage: vk::ImageUsageFlags::SAMPLED,
        surface: false,
    };
    let refused = |request| {
        ExportedImage::new(device.sharing().unwrap(), &request).map(|_| ()).unwrap_err().to_string()
    };
    for (format, how) in [
        (vk::Format::B8G8R8_UNORM, "B8G8R8A8_UNORM"),
        (vk::Format::D32_SFLOAT, "vkCmdCopyImageToBuffer"),
        (vk::Format::G8_B8R8_2PLANE_420_UNORM, "share two images"),
    ] {
        let text = refused(request(format, extent));
        assert!(text.contains(&format!("{format:?} has no counterpart")) && text.contains(how), "{text}");
    }
    let vast = vk::Extent3D { width: 1 << 20, ..extent };
    let text = refused(request(vk::Format::R8G8B8A8_UNORM, vast));
    assert!(text.contains("R8G8B8A8_UNORM") && text.contains("1048576x16x1 texels were requested"), "{text}");
    drop((choice, device, queue, instance));
    assert_silent(&log);
}

/// Few drivers allow the usage `STORAGE` for sRGB, so a picture must not ask for it.
#[test]
fn a_picture_may_be_bgra_and_srgb() {
    let (instance, log) = instance();
    let Some((choice, device, queue)) = exporting(&instance) else { return };
    for format in [vk::Format::R8G8B8A8_SRGB, vk::Format::B8G8R8A8_UNORM, vk::Format::B8G8R8A8_SRGB] {
        let request = picture(format, 64, 32, 7).unwrap();
        let storage = request.usage.contains(vk::ImageUsageFlags::STORAGE);
        assert_eq!(storage, format == vk::Format::B8G8R8A8_UNORM, "{format:?}");
        drop(ExportedImage::new(device.sharing().unwrap(), &request).unwrap());
    }
    drop((choice, device, queue, instance));
    assert_silent(&log);
}

/// The rules that can be broken only after an import.
#[test]
fn a_buffer_outlives_the_others_and_a_level_must_be_there() {
    let (instance, log) = instance();
    let Some(choice) = with_cuda(&instance) else { return };
    let (driver, info) = choice.cuda.clone().unwrap();
    let context = Cuda::primary(driver, &info).unwrap();
    let desc = DeviceDesc { interop: true, ..DeviceDesc::default() };
    let (device, queue) = choice.adapter.request_device(&desc).unwrap();

    // No buffer can be mapped twice: gpu/tests/gpu/refused.rs. Each keeps alive what it needs of the allocation.
    let exported = ExportedAllocation::new(device.sharing().unwrap(), &[100, 7], USAGE).unwrap();
    let buffers = exported.buffers();
    let mut shared = exported.share(&device.pair(&context).unwrap()).unwrap();
    let [first, last] = shared.as_slice() else { panic!("{} buffers", shared.len()) };
    assert_eq!([first.vulkan(), last.vulkan()].as_slice(), buffers);
    assert_eq!([first.size(), last.size()], [100, 7]);
    assert_ne!(last.cuda(), first.cuda());
    drop(shared.remove(0));
    let own = DeviceMemory::new(&context, 7).unwrap();
    let stream = Stream::new(&context).unwrap();
    // SAFETY: the mapping has 7 bytes, and Vulkan is idle.
    unsafe { own.copy_to(&stream, shared[0].cuda()) }.unwrap();
    stream.synchronize().unwrap();
    drop((shared, own, stream));

    let request = ImageRequest {
        format: vk::Format::R8G8B8A8_UNORM,
        shape: Shape::new(ViewType::D2, vk::Extent3D { width: 64, height: 32, depth: 1 }, 1, 3).unwrap(),
        usage: vk::ImageUsageFlags::SAMPLED,
        surface: true,
    };
    let image = SharedImage::import(
        &device.pair(&context).unwrap(),
        &Arc::new(ExportedImage::new(device.sharing().unwrap(), &request).unwrap()),
    );
    let image = image.unwrap();
    let text = image.level(3).map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("no level 3 in an image of 3"), "{text}");
    // A surface keeps everything below it alive, so any order of dropping is right.
    let surface = image.level(2).unwrap().surface().unwrap();
    drop(image);
    assert_ne!(surface.raw(), 0);
    drop((surface, context, device, queue, choice, instance));
    assert_silent(&log);
}

/// Makes several images and allocations and drops them in groups. The validation layer checks that nothing is
/// destroyed while in use. (run/tests/rounds.rs counts the descriptors that are left, which needs its own
/// process.)
#[test]
fn shared_images_and_allocations_come_and_go() {
    let (instance, log) = instance();
    let Some(choice) = with_cuda(&instance) else { return };
    let (driver, info) = choice.cuda.clone().unwrap();
    let context = Cuda::primary(driver, &info).unwrap();
    let desc = DeviceDesc { interop: true, ..DeviceDesc::default() };
    let (device, queue) = choice.adapter.request_device(&desc).unwrap();
    let request = ImageRequest {
        format: vk::Format::R32_SFLOAT,
        shape: Shape::new(ViewType::D2, vk::Extent3D { width: 64, height: 32, depth: 1 }, 1, 6).unwrap(),
        usage: vk::ImageUsageFlags::SAMPLED,
        surface: true,
    };
    let mut mapped = Vec::new();
    for _ in 0..20 {
        let image = vulkan_cuda::SharedImage::new(&device.pair(&context).unwrap(), &request).unwrap();
        let surface = image.level(0).unwrap().surface().unwrap();
        let pair = device.pair(&context).unwrap();
        let buffers = ExportedAllocation::new(pair.vk(), &[1000, 3], USAGE).unwrap().share(&pair).unwrap();
        mapped.push((surface, image, buffers));
        if mapped.len() == 5 {
            mapped.clear();
        }
    }
    drop(mapped);
    drop((context, device, queue, choice, instance));
    assert_silent(&log);
}
