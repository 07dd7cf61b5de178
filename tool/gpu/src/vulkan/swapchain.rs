//! A window's swapchain. Its images are re-created whenever the window changes.

use std::sync::Arc;

use ash::vk;
use vulkan_cuda::ownership::whole_image;
use winit::dpi::PhysicalSize;

use super::{AutoDestroy, Device, Queue, WindowSurface, view};
use crate::{Error, Result};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PresentMode {
    /// In order, at the display's pace; never tears; always available.
    #[default]
    Fifo,
    /// The newest frame at each refresh; never tears.
    Mailbox,
    /// At once; may tear.
    Immediate,
}

impl PresentMode {
    fn raw(self) -> vk::PresentModeKHR {
        match self {
            Self::Fifo => vk::PresentModeKHR::FIFO,
            Self::Mailbox => vk::PresentModeKHR::MAILBOX,
            Self::Immediate => vk::PresentModeKHR::IMMEDIATE,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct SwapchainImage {
    index: u32,
    /// In an undefined layout.
    pub image: vk::Image,
    pub view: vk::ImageView,
    pub extent: vk::Extent2D,
    /// Whether it has the usage `TRANSFER_DST`.
    pub takes_copies: bool,
    /// The frame's submission must signal this semaphore. The present waits for it.
    pub rendered: vk::Semaphore,
}

pub struct Swapchain {
    raw: vk::SwapchainKHR,
    images: Vec<PresentTarget>,
    extent: vk::Extent2D,
    format: vk::SurfaceFormatKHR,
    usage: vk::ImageUsageFlags,
    mode: PresentMode,
    /// The modes that the window offers.
    pub modes: Vec<PresentMode>,
    /// Whether the next acquire re-creates the images, for which it waits until the queue is idle. Set it if
    /// the window has changed.
    pub stale: bool,
    lost: bool,
    losses: u32,
    surface: Arc<WindowSurface>,
    device: Device,
}

struct PresentTarget {
    image: vk::Image,
    view: AutoDestroy<vk::ImageView>,
    // A present waits for this semaphore. It can be reused once the same image is acquired again.
    rendered: AutoDestroy<vk::Semaphore>,
}

/// The maximum number of surface losses without a present in between. A destroyed window loses every surface.
const MOST_LOSSES: u32 = 4;

/// The timeout of an acquire: a hidden window may never get an image, and the event loop must go on.
const ACQUIRE_TIMEOUT_NS: u64 = 100_000_000;

impl Swapchain {
    /// Makes a swapchain without images; the first [`Swapchain::acquire`] makes them.
    pub fn new(device: &Device, surface: &Arc<WindowSurface>, wish: PresentMode) -> Result<Self> {
        let adapter = device.adapter().raw();
        let format = preferred_format(device, surface)?;
        // SAFETY: surface and physical device belong to the same instance.
        let modes = unsafe { surface.ext.get_physical_device_surface_present_modes(adapter, surface.raw) }
            .map_err(device.failed("vkGetPhysicalDeviceSurfacePresentModesKHR"))?;
        let all = [PresentMode::Fifo, PresentMode::Mailbox, PresentMode::Immediate];
        let modes: Vec<_> = all.into_iter().filter(|mode| modes.contains(&mode.raw())).collect();
        let mode = if modes.contains(&wish) { wish } else { PresentMode::Fifo };
        if mode != wish {
            crate::note!("note: this window does not offer {wish:?} presentation, using Fifo");
        }
        Ok(Self {
            raw: vk::SwapchainKHR::null(),
            images: Vec::new(),
            extent: vk::Extent2D::default(),
            format,
            usage: vk::ImageUsageFlags::COLOR_ATTACHMENT,
            mode,
            modes,
            stale: true,
            lost: false,
            losses: 0,
            surface: surface.clone(),
            device: device.clone(),
        })
    }

    pub fn format(&self) -> vk::Format {
        self.format.format
    }

    /// Returns the images' size; 0x0 until there are images.
    pub fn extent(&self) -> vk::Extent2D {
        self.extent
    }

    /// Sets the mode. The next acquire re-creates the images.
    pub fn set_mode(&mut self, mode: PresentMode) {
        (self.mode, self.stale) = (mode, true);
    }

    fn capabilities(&self) -> ash::prelude::VkResult<vk::SurfaceCapabilitiesKHR> {
        let (surface, adapter) = (&self.surface, self.device.adapter().raw());
        // SAFETY: surface and physical device belong to the same instance.
        unsafe { surface.ext.get_physical_device_surface_capabilities(adapter, surface.raw) }
    }

    /// Lets copies read the images, from the next acquire on. A driver may then not compress the images.
    pub fn make_readable(&mut self) -> Result<()> {
        let caps =
            self.capabilities().map_err(self.device.failed("vkGetPhysicalDeviceSurfaceCapabilitiesKHR"))?;
        if !caps.supported_usage_flags.contains(vk::ImageUsageFlags::TRANSFER_SRC) {
            return Err(Error::Unsupported(format!(
                "this window's pictures cannot be read on {}, so they cannot be recorded; record with --headless",
                self.device.info().name
            )));
        }
        (self.usage, self.stale) = (self.usage | vk::ImageUsageFlags::TRANSFER_SRC, true);
        Ok(())
    }

    pub fn mode(&self) -> PresentMode {
        self.mode
    }

    /// Acquires the next image. Draw to it once `acquired` is signalled. Returns `None` if no image is
    /// available (minimised, mid-resize, occluded): skip the frame. Call this first in a frame, so that a
    /// skipped frame has enqueued nothing.
    ///
    /// # Safety
    /// `acquired` must be an unsignalled binary semaphore of this device that nothing else uses. It must live
    /// until a submission has waited for it.
    // ANCHOR: acquire
    pub unsafe fn acquire(
        &mut self,
        queue: &mut Queue,
        acquired: vk::Semaphore,
    ) -> Result<Option<SwapchainImage>> {
        if self.stale && !self.rebuild(queue)? {
            return Ok(None);
        }
        // SAFETY: a live swapchain, and for `acquired` the caller's promise.
        let result = unsafe {
            self.device.swapchain()?.acquire_next_image(
                self.raw,
                ACQUIRE_TIMEOUT_NS,
                acquired,
                vk::Fence::null(),
            )
        };
        match result {
            Ok((index, suboptimal)) => {
                // A suboptimal image was acquired, too, and its semaphore will be signalled. So draw to it.
                self.stale = suboptimal;
                let target = &self.images[index as usize];
                Ok(Some(SwapchainImage {
                    index,
                    image: target.image,
                    view: target.view.raw(),
                    extent: self.extent,
                    takes_copies: self.usage.contains(vk::ImageUsageFlags::TRANSFER_DST),
                    rendered: target.rendered.raw(),
                }))
            }
            Err(vk::Result::ERROR_OUT_OF_DATE_KHR) => {
                self.stale = true;
                Ok(None)
            }
            Err(vk::Result::TIMEOUT | vk::Result::NOT_READY) => Ok(None),
            Err(result) => self.unless_lost("vkAcquireNextImageKHR", result).map(|()| None),
        }
    }
    // ANCHOR_END: acquire

    /// Presents an acquired image once its `rendered` semaphore is signalled.
    pub fn present(&mut self, queue: &mut Queue, image: &SwapchainImage) -> Result<()> {
        let (swapchains, indices, waits) = ([self.raw], [image.index], [image.rendered]);
        let info = vk::PresentInfoKHR::default()
            .swapchains(&swapchains)
            .image_indices(&indices)
            .wait_semaphores(&waits);
        // SAFETY: the image was acquired from this swapchain and a submission signals its semaphore.
        match unsafe { self.device.swapchain()?.queue_present(queue.raw(), &info) } {
            Ok(suboptimal) => {
                self.stale |= suboptimal;
                self.losses = 0;
            }
            // Despite this error or a lost surface, the present waits for `rendered`.
            Err(vk::Result::ERROR_OUT_OF_DATE_KHR) => self.stale = true,
            Err(result) => self.unless_lost("vkQueuePresentKHR", result)?,
        }
        Ok(())
    }

    /// Tolerates [`MOST_LOSSES`] losses of the surface: the next acquire makes a new surface.
    fn unless_lost(&mut self, call: &'static str, result: vk::Result) -> Result<()> {
        if result != vk::Result::ERROR_SURFACE_LOST_KHR || self.losses == MOST_LOSSES {
            return Err(self.device.failed(call)(result));
        }
        self.losses += 1;
        (self.lost, self.stale) = (true, true);
        Ok(())
    }

    /// Makes a new surface for the window. The queue must be idle.
    fn replace_surface(&mut self) -> Result<()> {
        // A window may have only one swapchain, so destroy the old one first.
        self.destroy_images();
        self.surface = WindowSurface::new(&self.surface.instance, self.surface.window.clone())?;
        let family = self.device.info().queue_family.unwrap_or(0);
        let differs =
            |reason| Error::Window { what: "the window's surface was lost, and the new one differs", reason };
        if !self.surface.supported_by(self.device.adapter(), family) {
            return Err(differs(format!("{} cannot present to it", self.device.info().name)));
        }
        let format = preferred_format(&self.device, &self.surface)?;
        if format != self.format {
            let [new, old] = [format, self.format].map(|f| format!("{:?} in {:?}", f.format, f.color_space));
            return Err(differs(format!("{new} instead of {old}")));
        }
        self.lost = false;
        Ok(())
    }

    /// Re-creates the images. Returns false if that must wait, for example while the window has no size.
    pub fn rebuild(&mut self, queue: &mut Queue) -> Result<bool> {
        let device = self.device.clone();
        // No semaphore or fence of ours covers presents of the old images, so wait for the queue. Ask for the
        // size only afterwards, so that it is still right when the images are made.
        queue.wait_presented()?;
        if self.lost {
            self.replace_surface()?;
        }
        let caps = match self.capabilities() {
            Ok(caps) => caps,
            Err(result) => {
                self.unless_lost("vkGetPhysicalDeviceSurfaceCapabilitiesKHR", result)?;
                return Ok(false);
            }
        };
        if self.device.info().atomics64 {
            // Compute shaders draw elsewhere, and copy.
            self.usage |= caps.supported_usage_flags & vk::ImageUsageFlags::TRANSFER_DST;
        }
        let window = self.surface.window.inner_size();
        let wish = vk::Extent2D { width: window.width, height: window.height };
        let limit = device.info().largest_picture;
        let extent = choose_extent(&caps, wish, limit);
        if extent.width == 0 || extent.height == 0 {
            return Ok(false);
        }
        if extent.width.max(extent.height) > limit {
            // An X11 surface has the window's size, so shrink the window; its resize event leads back here.
            let fitting = PhysicalSize::new(extent.width.min(limit), extent.height.min(limit));
            let _now_or_later = self.surface.window.request_inner_size(fitting);
            return Ok(false);
        }
        let alpha = [
            vk::CompositeAlphaFlagsKHR::OPAQUE,
            vk::CompositeAlphaFlagsKHR::INHERIT,
            vk::CompositeAlphaFlagsKHR::PRE_MULTIPLIED,
        ]
        .into_iter()
        .find(|&alpha| caps.supported_composite_alpha.contains(alpha))
        .unwrap_or(vk::CompositeAlphaFlagsKHR::OPAQUE);
        let info = vk::SwapchainCreateInfoKHR::default()
            .surface(self.surface.raw)
            .min_image_count(choose_image_count(&caps))
            .image_format(self.format.format)
            .image_color_space(self.format.color_space)
            .image_extent(extent)
            .image_array_layers(1)
            .image_usage(self.usage)
            .pre_transform(caps.current_transform)
            .composite_alpha(alpha)
            .present_mode(self.mode.raw())
            .clipped(true)
            .old_swapchain(self.raw);
        // SAFETY: the surface supports this device's queue; the old swapchain is retired by this call.
        let made = unsafe { device.swapchain()?.create_swapchain(&info, None) };
        self.destroy_images();
        self.raw = match made {
            Ok(made) => made,
            Err(result) => return self.unless_lost("vkCreateSwapchainKHR", result).map(|()| false),
        };
        self.extent = extent;
        // SAFETY: a live swapchain.
        let images = unsafe { device.swapchain()?.get_swapchain_images(self.raw) }
            .map_err(device.failed("vkGetSwapchainImagesKHR"))?;
        for image in images {
            let kind = vk::ImageViewType::TYPE_2D;
            let view = view(&device, image, self.format.format, kind, whole_image())?;
            self.images.push(PresentTarget { image, view, rendered: device.semaphore()? });
        }
        self.stale = false;
        Ok(true)
    }

    /// Destroys the images and the swapchain. The queue must be idle.
    fn destroy_images(&mut self) {
        self.images.clear();
        if let Ok(ext) = self.device.swapchain() {
            // SAFETY: the queue is idle, so nothing uses the images. A null handle is allowed.
            unsafe { ext.destroy_swapchain(self.raw, None) };
        }
        self.raw = vk::SwapchainKHR::null();
    }
}

impl Drop for Swapchain {
    fn drop(&mut self) {
        if self.device.is_stuck() {
            // The leaked swapchain still needs the surface and the window.
            return std::mem::forget(self.surface.clone());
        }
        // The queue is idle, as the documentation of the module `vulkan` demands.
        self.destroy_images();
    }
}

fn preferred_format(device: &Device, surface: &WindowSurface) -> Result<vk::SurfaceFormatKHR> {
    let adapter = device.adapter().raw();
    // SAFETY: surface and physical device belong to the same instance.
    let formats = unsafe { surface.ext.get_physical_device_surface_formats(adapter, surface.raw) }
        .map_err(device.failed("vkGetPhysicalDeviceSurfaceFormatsKHR"))?;
    Ok(choose_format(&formats))
}

/// Prefers an sRGB format, because the shaders write linear light.
fn choose_format(formats: &[vk::SurfaceFormatKHR]) -> vk::SurfaceFormatKHR {
    let srgb = |format: &&vk::SurfaceFormatKHR| {
        matches!(format.format, vk::Format::B8G8R8A8_SRGB | vk::Format::R8G8B8A8_SRGB)
            && format.color_space == vk::ColorSpaceKHR::SRGB_NONLINEAR
    };
    let fallback = vk::SurfaceFormatKHR {
        format: vk::Format::B8G8R8A8_SRGB,
        color_space: vk::ColorSpaceKHR::SRGB_NONLINEAR,
    };
    formats.iter().find(srgb).or(formats.first()).copied().unwrap_or(fallback)
}

/// Returns the surface's own size. On Wayland, where it has none, returns the window's size, up to `limit`.
fn choose_extent(caps: &vk::SurfaceCapabilitiesKHR, window: vk::Extent2D, limit: u32) -> vk::Extent2D {
    if caps.current_extent.width != u32::MAX {
        return caps.current_extent;
    }
    let clamp = |value: u32, min: u32, max: u32| {
        if value == 0 { 0 } else { value.max(min).min(max).min(limit) }
    };
    vk::Extent2D {
        width: clamp(window.width, caps.min_image_extent.width, caps.max_image_extent.width),
        height: clamp(window.height, caps.min_image_extent.height, caps.max_image_extent.height),
    }
}

/// Returns one more than the minimum, so that no acquire waits for the compositor. A maximum of 0 means none.
fn choose_image_count(caps: &vk::SurfaceCapabilitiesKHR) -> u32 {
    match caps.max_image_count {
        0 => caps.min_image_count + 1,
        max => (caps.min_image_count + 1).min(max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caps(current: u32) -> vk::SurfaceCapabilitiesKHR {
        vk::SurfaceCapabilitiesKHR {
            min_image_count: 2,
            max_image_count: 2,
            current_extent: vk::Extent2D { width: current, height: current },
            min_image_extent: vk::Extent2D { width: 1, height: 1 },
            max_image_extent: vk::Extent2D { width: 4096, height: 4096 },
            ..Default::default()
        }
    }

    #[test]
    fn the_surface_decides_the_size_where_it_can() {
        let window = vk::Extent2D { width: 640, height: 5000 };
        let chosen = |caps, window| choose_extent(&caps, window, 16384);
        assert_eq!(chosen(caps(300), window).width, 300);
        assert_eq!(chosen(caps(u32::MAX), window), vk::Extent2D { width: 640, height: 4096 });
        let minimised = vk::Extent2D { width: 0, height: 0 };
        assert_eq!(chosen(caps(u32::MAX), minimised), minimised);
    }

    #[test]
    fn a_size_of_our_choice_is_one_that_the_device_can_draw() {
        let window = vk::Extent2D { width: 640, height: 5000 };
        assert_eq!(choose_extent(&caps(u32::MAX), window, 2048), vk::Extent2D { width: 640, height: 2048 });
    }

    #[test]
    fn the_image_count_keeps_to_the_maximum() {
        assert_eq!(choose_image_count(&caps(1)), 2);
        let unbounded = vk::SurfaceCapabilitiesKHR { max_image_count: 0, ..caps(1) };
        assert_eq!(choose_image_count(&unbounded), 3);
    }

    #[test]
    fn an_srgb_format_wins() {
        let format = |format| vk::SurfaceFormatKHR { format, color_space: vk::ColorSpaceKHR::SRGB_NONLINEAR };
        let offered = [format(vk::Format::B8G8R8A8_UNORM), format(vk::Format::R8G8B8A8_SRGB)];
        assert_eq!(choose_format(&offered).format, vk::Format::R8G8B8A8_SRGB);
        assert_eq!(choose_format(&offered[..1]).format, vk::Format::B8G8R8A8_UNORM);
    }
}
