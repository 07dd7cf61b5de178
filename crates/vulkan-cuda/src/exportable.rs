//! Queries what a device can export or import. To export anything else is undefined behaviour.
//!
//! Each function is `unsafe`, because it takes raw handles: `physical` must be a live device of `instance`.

use ash::vk;

use crate::handle::ExportType;
use crate::shape::Shape;

/// Returns the first type of [`ExportType::HERE`] as which the device exports images of this format, shape
/// and usage with optimal tiling. The error names the driver's reason, or the exceeded limit.
///
/// # Safety
/// See the module.
pub(crate) unsafe fn image(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    format: vk::Format,
    shape: &Shape,
    usage: vk::ImageUsageFlags,
) -> Result<ExportType, String> {
    let view = shape.view();
    let ask = |handle: ExportType| {
        let mut external = vk::PhysicalDeviceExternalImageFormatInfo::default().handle_type(handle.memory());
        let info = vk::PhysicalDeviceImageFormatInfo2::default()
            .format(format)
            .ty(view.image_type())
            .tiling(vk::ImageTiling::OPTIMAL)
            .usage(usage)
            .flags(view.create_flags())
            .push_next(&mut external);
        let mut answer = vk::ExternalImageFormatProperties::default();
        let mut properties = vk::ImageFormatProperties2::default().push_next(&mut answer);
        // SAFETY: the caller promises live handles. The chains point to local structures.
        unsafe { instance.get_physical_device_image_format_properties2(physical, &info, &mut properties) }
            .map_err(|result| match result {
                vk::Result::ERROR_FORMAT_NOT_SUPPORTED => {
                    format!("the driver has no such image ({result:?}) for {usage:?}")
                }
                other => format!("{other} ({other:?})"),
            })?;
        let limits = properties.image_format_properties;
        let features = answer.external_memory_properties.external_memory_features;
        if !features.contains(vk::ExternalMemoryFeatureFlags::EXPORTABLE) {
            return Err("the driver has such images, but does not export them".into());
        }
        holds(&limits, shape)?;
        Ok(handle)
    };
    // The first handle type that the driver supports, or the last error.
    let answers = ExportType::HERE.iter().map(|&handle| ask(handle));
    answers.reduce(Result::or).unwrap_or_else(|| Err("this system has no handles".into()))
}

fn holds(most: &vk::ImageFormatProperties, shape: &Shape) -> Result<(), String> {
    let (asked, extent) = (shape.extent(), most.max_extent);
    if asked.width > extent.width || asked.height > extent.height || asked.depth > extent.depth {
        return Err(format!(
            "{}x{}x{} texels were requested, but {}x{}x{} is the maximum",
            asked.width, asked.height, asked.depth, extent.width, extent.height, extent.depth
        ));
    }
    for (what, asked, most) in
        [("layers", shape.layers(), most.max_array_layers), ("levels", shape.levels(), most.max_mip_levels)]
    {
        if asked > most {
            return Err(format!("{asked} {what} were requested, but {most} is the maximum"));
        }
    }
    Ok(())
}

/// Returns the external memory features of a device for buffers with this usage and handle type.
///
/// # Safety
/// See the module.
pub(crate) unsafe fn buffer(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    (usage, flags): (vk::BufferUsageFlags, vk::BufferCreateFlags),
    handle: ExportType,
) -> vk::ExternalMemoryFeatureFlags {
    let info = vk::PhysicalDeviceExternalBufferInfo::default()
        .usage(usage)
        .flags(flags)
        .handle_type(handle.memory());
    let mut answer = vk::ExternalBufferProperties::default();
    // SAFETY: the caller's promise.
    unsafe { instance.get_physical_device_external_buffer_properties(physical, &info, &mut answer) };
    answer.external_memory_properties.external_memory_features
}

/// Returns whether a device exports semaphores of this kind as `handle`. Without `VkSemaphoreTypeCreateInfo`
/// in the chain, the driver would answer for *binary* semaphores.
///
/// # Safety
/// See the module.
pub(crate) unsafe fn semaphore(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    handle: ExportType,
    kind: vk::SemaphoreType,
) -> bool {
    let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(kind);
    let info = vk::PhysicalDeviceExternalSemaphoreInfo::default()
        .handle_type(handle.semaphore())
        .push_next(&mut kind);
    let mut answer = vk::ExternalSemaphoreProperties::default();
    // SAFETY: the caller's promise.
    unsafe { instance.get_physical_device_external_semaphore_properties(physical, &info, &mut answer) };
    answer.external_semaphore_features.contains(vk::ExternalSemaphoreFeatureFlags::EXPORTABLE)
}
