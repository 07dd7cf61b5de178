//! Queries what a device can export, before anything is created.
//!
//! Exporting what the driver does not offer is undefined behaviour. The public functions return the reason for a
//! refusal as text for the user.

use ash::vk;

use crate::handle::ExportType;
use crate::shape::{Shape, ViewType};

/// What a device reports about one kind of image. Returned by [`image`].
#[derive(Clone, Copy, Debug)]
pub struct ImageSupport {
    /// The handle type that its memory is exported as.
    pub handle: ExportType,
    /// Whether each image needs an allocation of its own.
    pub dedicated_only: bool,
    /// The largest extent, in texels.
    pub extent: vk::Extent3D,
    /// The largest number of layers.
    pub layers: u32,
    /// The largest number of mip levels.
    pub levels: u32,
}

impl ImageSupport {
    /// Checks that such an image may be as large as `shape`. See `VkImageFormatProperties` and the
    /// [example](fn@image#examples).
    ///
    /// # Errors
    /// Returns the limit that is exceeded, as text.
    pub fn holds(&self, shape: &Shape) -> Result<(), String> {
        let (asked, most) = (shape.extent(), self.extent);
        if asked.width > most.width || asked.height > most.height || asked.depth > most.depth {
            return Err(format!(
                "{}x{}x{} texels were requested, but {}x{}x{} is the maximum",
                asked.width, asked.height, asked.depth, most.width, most.height, most.depth
            ));
        }
        if shape.layers() > self.layers {
            return Err(format!(
                "{} layers were requested, but {} is the maximum",
                shape.layers(),
                self.layers
            ));
        }
        if shape.levels() > self.levels {
            return Err(format!(
                "{} levels were requested, but {} is the maximum",
                shape.levels(),
                self.levels
            ));
        }
        Ok(())
    }
}

/// Queries whether a device exports images of this kind with optimal tiling. Returns the first handle type of
/// [`ExportType::HERE`] that the driver offers. Calls `vkGetPhysicalDeviceImageFormatProperties2`.
///
/// # Errors
/// Returns the reason, in words: the driver's error, or a text that the device has such images but does not export
/// them.
///
/// # Safety
/// `physical` must be a live device of `instance`.
///
/// # Examples
/// ```no_run
/// # fn example(vk: &vulkan_cuda::Vk, shape: &vulkan_cuda::Shape) -> Result<(), String> {
/// use ash::vk;
/// use vulkan_cuda::exportable;
///
/// let (format, usage) = (vk::Format::R32_SFLOAT, vk::ImageUsageFlags::SAMPLED);
/// // SAFETY: a live device of that instance.
/// let support = unsafe { exportable::image(vk.instance(), vk.physical(), format, shape.view(), usage) }?;
/// support.holds(shape)?;
/// println!("exported as {}, with up to {} layers", support.handle.name(), support.layers);
/// # Ok(())
/// # }
/// ```
pub unsafe fn image(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    format: vk::Format,
    view: ViewType,
    usage: vk::ImageUsageFlags,
) -> Result<ImageSupport, String> {
    if usage.is_empty() {
        return Err("an image needs a usage".into());
    }
    let mut refused = String::new();
    for &handle in ExportType::HERE {
        // SAFETY: the caller's promise.
        match unsafe { image_as(instance, physical, format, view, usage, handle) } {
            Ok(support) => return Ok(support),
            Err(reason) => refused = reason,
        }
    }
    Err(refused)
}

/// # Safety
/// As [`image`].
unsafe fn image_as(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    format: vk::Format,
    view: ViewType,
    usage: vk::ImageUsageFlags,
    handle: ExportType,
) -> Result<ImageSupport, String> {
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
    // SAFETY: a live physical device of this instance; the chains are of local structures.
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
    Ok(ImageSupport {
        handle,
        dedicated_only: features.contains(vk::ExternalMemoryFeatureFlags::DEDICATED_ONLY),
        extent: limits.max_extent,
        layers: limits.max_array_layers,
        levels: limits.max_mip_levels,
    })
}

/// Queries whether a device exports buffers of this usage as `handle`. Calls
/// `vkGetPhysicalDeviceExternalBufferProperties`. `name` is the device's name, for the error.
///
/// Returns whether each buffer needs an allocation of its own. If so, an allocation that holds several buffers cannot be
/// exported.
///
/// # Errors
/// Returns the reason why the device does not.
///
/// # Safety
/// As [`image`].
pub unsafe fn buffer(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    name: &str,
    usage: vk::BufferUsageFlags,
    handle: ExportType,
) -> Result<bool, String> {
    if usage.is_empty() {
        return Err("a buffer needs a usage".into());
    }
    // SAFETY: the caller's promise.
    let features = unsafe { buffer_features(instance, physical, usage, handle) };
    match features.contains(vk::ExternalMemoryFeatureFlags::EXPORTABLE) {
        true => Ok(features.contains(vk::ExternalMemoryFeatureFlags::DEDICATED_ONLY)),
        false => Err(format!("{name} exports no buffers for {usage:?} as {}", handle.name())),
    }
}

/// Queries whether a device imports buffers of this usage and these flags as `handle`, and allows several of them in
/// one allocation. `name` is the device's name, for the error.
///
/// # Errors
/// Returns the reason why the device does not.
///
/// # Safety
/// As [`image`].
pub(crate) unsafe fn imported_buffer(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    name: &str,
    (usage, flags): (vk::BufferUsageFlags, vk::BufferCreateFlags),
    handle: ExportType,
) -> Result<(), String> {
    use vk::ExternalMemoryFeatureFlags as Features;
    if usage.is_empty() {
        return Err("a buffer needs a usage".into());
    }
    // SAFETY: the caller's promise.
    let features = unsafe { external_features(instance, physical, usage, flags, handle) };
    let sparse = if flags.is_empty() { "" } else { "sparse " };
    let what = format!("{sparse}buffers for {usage:?} as {}", handle.name());
    if !features.contains(Features::IMPORTABLE) {
        return Err(format!("{name} imports no {what}"));
    }
    match features.contains(Features::DEDICATED_ONLY) {
        false => Ok(()),
        true => Err(format!("{name} imports {what} only in dedicated allocations")),
    }
}

/// Returns the driver's answer for buffers without flags. It may depend on the usage.
///
/// # Safety
/// As [`image`].
pub(crate) unsafe fn buffer_features(
    instance: &ash::Instance,
    device: vk::PhysicalDevice,
    usage: vk::BufferUsageFlags,
    handle: ExportType,
) -> vk::ExternalMemoryFeatureFlags {
    // SAFETY: the caller's promise.
    unsafe { external_features(instance, device, usage, vk::BufferCreateFlags::empty(), handle) }
}

/// # Safety
/// As [`image`].
unsafe fn external_features(
    instance: &ash::Instance,
    device: vk::PhysicalDevice,
    usage: vk::BufferUsageFlags,
    flags: vk::BufferCreateFlags,
    handle: ExportType,
) -> vk::ExternalMemoryFeatureFlags {
    let info = vk::PhysicalDeviceExternalBufferInfo::default()
        .usage(usage)
        .flags(flags)
        .handle_type(handle.memory());
    let mut answer = vk::ExternalBufferProperties::default();
    // SAFETY: the caller's physical device is of this live instance.
    unsafe { instance.get_physical_device_external_buffer_properties(device, &info, &mut answer) };
    answer.external_memory_properties.external_memory_features
}

/// Returns whether a device exports semaphores of this kind as `handle`. Without `VkSemaphoreTypeCreateInfo` in the
/// chain, the driver would answer for *binary* semaphores.
///
/// # Safety
/// As [`image`].
pub(crate) unsafe fn semaphore(
    instance: &ash::Instance,
    device: vk::PhysicalDevice,
    handle: ExportType,
    kind: vk::SemaphoreType,
) -> bool {
    let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(kind);
    let info = vk::PhysicalDeviceExternalSemaphoreInfo::default()
        .handle_type(handle.semaphore())
        .push_next(&mut kind);
    let mut answer = vk::ExternalSemaphoreProperties::default();
    // SAFETY: the caller's physical device is of this live instance.
    unsafe { instance.get_physical_device_external_semaphore_properties(device, &info, &mut answer) };
    answer.external_semaphore_features.contains(vk::ExternalSemaphoreFeatureFlags::EXPORTABLE)
}
