//! The handles that Vulkan exports, on any device that exports memory, even a software device.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use ash::vk;
use vulkan_cuda::handle::{ExportType, Fd, MemoryHandle};
use vulkan_cuda::image::picture;
use vulkan_cuda::layout::Range;
use vulkan_cuda::{CudaBuffer, ExportedAllocation, ExportedBuffer, ExportedImage, ImageRequest, Vk};
use wavefield_gpu::vulkan::{Device, DeviceDesc, Instance, Validation};
use wavefield_test_support as common;
use wavefield_test_support::stand_in;

use crate::alone;

/// A device that exports buffers. Returns `None` and reports a skip if there is none.
fn exporting_device(instance: &Instance) -> Option<Device> {
    let adapters = instance.adapters().unwrap();
    let adapter = adapters
        .iter()
        .filter(|adapter| adapter.can_draw(None).is_ok())
        .find(|adapter| adapter.info().sharing.buffer_export.is_some());
    let Some(adapter) = adapter else {
        common::skip_without_tools("no Vulkan device here exports buffers");
        return None;
    };
    let desc = DeviceDesc { interop: true, ..DeviceDesc::default() };
    Some(adapter.request_device(&desc).unwrap().0)
}

#[test]
fn each_export_is_a_descriptor_of_its_own() {
    let _alone = alone();
    let instance = Instance::new(Validation::IfInstalled, None).unwrap();
    let Some(device) = exporting_device(&instance) else { return };
    assert_eq!(device.info().sharing.buffer_export, Some(ExportType::OpaqueFd));
    let usage = vk::BufferUsageFlags::STORAGE_BUFFER | vk::BufferUsageFlags::TRANSFER_SRC;
    let buffer = ExportedBuffer::new(device.sharing().unwrap(), 5000, usage).unwrap();
    assert!(buffer.allocation_size() >= 5000);

    let (first, second) = (buffer.export().unwrap(), buffer.export().unwrap());
    assert_eq!(first.name(), "OPAQUE_FD");

    // The two handles are independent: dropping one leaves the other open.
    let [first, second] = [first, second].map(|handle| match handle {
        MemoryHandle::OpaqueFd(fd) => OwnedFd::from(fd),
        other => panic!("{other:?}"),
    });
    assert_ne!(first.as_raw_fd(), second.as_raw_fd());
    drop(second);
    assert!(first.as_fd().try_clone_to_owned().is_ok(), "still open");
    drop((first, buffer, device));
    assert_eq!(instance.validation_log().warnings() + instance.validation_log().errors(), 0);
}

/// A device without `interop` returns a clear error before it allocates.
#[test]
fn a_device_without_interop_exports_nothing() {
    let _alone = alone();
    let instance = Instance::new(Validation::default(), None).unwrap();
    let Some(device) = exporting_device(&instance) else { return };
    let (plain, _queue) = device.adapter().request_device(&DeviceDesc::default()).unwrap();
    let text = plain.sharing().err().expect("not exportable").to_string();
    assert!(text.contains("made without `interop`"), "{text}");
    // With such a device, the library names the missing extension.
    // SAFETY: the three belong together, `plain` keeps them alive, and both features are enabled.
    let vk = unsafe {
        let adapter = plain.adapter();
        Vk::from_raw(instance.raw().clone(), adapter.raw(), plain.raw().clone(), Arc::new(plain.clone()))
    };
    let (vk, usage) = (vk.unwrap(), vk::BufferUsageFlags::STORAGE_BUFFER);
    let refused = ExportedBuffer::new(&vk, 4096, usage);
    let text = refused.err().expect("not exportable").to_string();
    assert!(text.contains("made without VK_KHR_external_memory_fd"), "{text}");
    // It does not import either. The descriptor is not memory, but the library refuses before it looks.
    let file = Fd::from(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
    let range = Range { offset: 0, size: 4096 };
    // SAFETY: the library refuses before the driver sees the descriptor.
    let refused = unsafe { CudaBuffer::from_descriptor(&vk, file, 4096, range, usage) };
    let text = refused.err().expect("not importable").to_string();
    assert!(text.contains("made without VK_KHR_external_memory_fd"), "{text}");
}

/// The stand-in answers as a driver does.
#[test]
fn on_the_stand_in_it_exports_nothing_either() {
    let Some(stand_in) = stand_in::StandIn::new() else { return };
    let name = "a_device_without_interop_exports_nothing";
    let done = stand_in::run(&mut stand_in.test(module_path!(), name, &stand_in::ALL)).unwrap();
    let report = done.check_clean(0).unwrap_or_else(|problem| panic!("{problem}"));
    assert!(report.count("vkCreateDevice") > 0 && report.count("vkGetMemoryFdKHR") == 0, "{report:?}");
}

/// A buffer of 0 bytes or without a usage is invalid in Vulkan. A driver that is asked for one may do
/// anything.
#[test]
fn a_buffer_that_is_none_never_reaches_the_driver() {
    let _alone = alone();
    let instance = Instance::new(Validation::IfInstalled, None).unwrap();
    let Some(device) = exporting_device(&instance) else { return };
    let storage = vk::BufferUsageFlags::STORAGE_BUFFER;
    let none = vk::BufferUsageFlags::empty();
    for (refused, words) in [
        (ExportedBuffer::new(device.sharing().unwrap(), 0, storage).err(), "0 bytes"),
        (ExportedBuffer::new(device.sharing().unwrap(), 4096, none).err(), "needs a usage"),
        (ExportedAllocation::new(device.sharing().unwrap(), &[4096], none).err(), "needs a usage"),
    ] {
        let text = refused.expect("no such buffer").to_string();
        assert!(text.contains(words), "{text}");
    }
    let request = ImageRequest {
        usage: vk::ImageUsageFlags::empty(),
        ..picture(vk::Format::R8G8B8A8_UNORM, 4, 4, 1).unwrap()
    };
    let text =
        ExportedImage::new(device.sharing().unwrap(), &request).err().expect("no such image").to_string();
    assert!(text.contains("needs a usage"), "{text}");
    drop(device);
    assert_eq!(instance.validation_log().warnings() + instance.validation_log().errors(), 0);
}
