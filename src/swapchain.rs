//! What is drawn on: the window's images, which are recreated whenever the window changes, or a picture.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use ash::vk;

use crate::draw::Target;
use crate::gpu::{AutoDestroy, Gpu, at, semaphore};
use crate::instance::Surface;
use crate::objects::view;
use crate::options::say;
use crate::picture::Picture;

/// How long to wait for an image. A hidden window may never get one, and events must still be handled.
const LIMIT_NS: u64 = 100_000_000;
/// How often the surface may be lost between two presents. If the window is gone, every new surface is lost.
const MOST_LOSSES: u32 = 4;

pub enum Canvas {
    Window(Swapchain),
    Picture(Picture),
}

/// An image to draw one frame on. A picture needs no semaphores, because only this queue uses it.
pub struct Drawable {
    pub target: Target,
    index: u32,
    /// The submission waits for this before it draws: the image is not shown any more.
    pub available: Option<vk::SemaphoreSubmitInfo<'static>>,
    /// The submission signals this: the image may be shown.
    pub rendered: Option<vk::SemaphoreSubmitInfo<'static>>,
}

impl From<&Picture> for Drawable {
    fn from(Picture { image, .. }: &Picture) -> Self {
        let layout = vk::ImageLayout::TRANSFER_SRC_OPTIMAL;
        let target = Target { image: image.image.raw, view: image.view.raw, layout };
        Self { target, index: 0, available: None, rendered: None }
    }
}

pub struct Swapchain {
    raw: vk::SwapchainKHR,
    images: Vec<Shown>,
    pub extent: vk::Extent2D,
    pub format: vk::SurfaceFormatKHR,
    mode: vk::PresentModeKHR,
    /// The window has changed, so the images must be recreated.
    pub is_stale: bool,
    is_lost: bool,
    losses: u32,
    surface: Surface,
    gpu: Arc<Gpu>,
}

struct Shown {
    image: vk::Image,
    view: AutoDestroy<vk::ImageView>,
    // One for each image: after a present, it is free only once the same image is acquired again.
    rendered: AutoDestroy<vk::Semaphore>,
}

impl Swapchain {
    /// Chooses the format, and the mode if the window supports it. [`Swapchain::rebuild`] creates the images.
    pub fn new(gpu: &Arc<Gpu>, surface: Surface, wish: vk::PresentModeKHR) -> Result<Self> {
        // SAFETY: surface and device belong to the same instance.
        let modes =
            unsafe { surface.ext.get_physical_device_surface_present_modes(gpu.physical, surface.raw) };
        let modes = gpu.check("vkGetPhysicalDeviceSurfacePresentModesKHR", modes)?;
        let mode = if modes.contains(&wish) { wish } else { vk::PresentModeKHR::FIFO };
        if mode != wish {
            say(format_args!("note: this window cannot present as {wish:?}; using {mode:?}"));
        }
        Ok(Self {
            raw: vk::SwapchainKHR::null(),
            images: Vec::new(),
            extent: vk::Extent2D::default(),
            format: format_of(gpu, &surface)?,
            mode,
            is_stale: true,
            is_lost: false,
            losses: 0,
            surface,
            gpu: gpu.clone(),
        })
    }

    /// Acquires the next image. Returns `None` if this frame must be skipped.
    ///
    /// # Safety
    /// `available` must be unsignalled, without a pending wait or signal. It must live until a submission has
    /// waited for it.
    pub unsafe fn acquire(&mut self, available: vk::Semaphore) -> Result<Option<Drawable>> {
        let (ext, fence) = (&self.gpu.swapchain, vk::Fence::null());
        // ANCHOR: acquire
        // SAFETY: a live swapchain, and the caller's promise.
        let found = unsafe { ext.acquire_next_image(self.raw, LIMIT_NS, available, fence) };
        if let Err(vk::Result::TIMEOUT | vk::Result::NOT_READY) = found {
            return Ok(None);
        }
        let found = self.unless_changed("vkAcquireNextImageKHR", found)?;
        let Some((index, suboptimal)) = found else { return Ok(None) };
        // A suboptimal image was still acquired, so draw it: its semaphore will be signalled.
        self.is_stale = suboptimal;
        let Shown { image, view, rendered } = &self.images[index as usize];
        let layout = vk::ImageLayout::PRESENT_SRC_KHR;
        Ok(Some(Drawable {
            target: Target { image: *image, view: view.raw, layout },
            index,
            available: Some(at(available, 0).stage_mask(vk::PipelineStageFlags2::COLOR_ATTACHMENT_OUTPUT)),
            rendered: Some(at(rendered.raw, 0)),
        }))
        // ANCHOR_END: acquire
    }

    /// Presents an image once its `rendered` is signalled.
    ///
    /// # Safety
    /// The image must be acquired from this swapchain, and a submission must signal its `rendered`.
    pub unsafe fn present(&mut self, image: &Drawable) -> Result<()> {
        let (swapchains, indices) = ([self.raw], [image.index]);
        let waits = [self.images[image.index as usize].rendered.raw];
        let info = vk::PresentInfoKHR::default().swapchains(&swapchains).image_indices(&indices);
        let info = info.wait_semaphores(&waits);
        self.surface.window.pre_present_notify();
        // SAFETY: the caller's promise; only this thread uses the queue.
        let shown = unsafe { self.gpu.swapchain.queue_present(self.gpu.queue, &info) };
        // Even if the window has changed, the present waits for the semaphore. Only the picture is lost.
        if let Some(suboptimal) = self.unless_changed("vkQueuePresentKHR", shown)? {
            self.is_stale |= suboptimal;
            self.losses = 0;
        }
        Ok(())
    }

    /// Returns `None` if the window has changed or lost its surface. The images must then be recreated.
    fn unless_changed<T>(&mut self, call: &'static str, result: Result<T, vk::Result>) -> Result<Option<T>> {
        match result {
            Err(vk::Result::ERROR_OUT_OF_DATE_KHR) => {}
            Err(vk::Result::ERROR_SURFACE_LOST_KHR) if self.losses < MOST_LOSSES => {
                self.losses += 1;
                self.is_lost = true;
            }
            result => return self.gpu.check(call, result).map(Some),
        }
        self.is_stale = true;
        Ok(None)
    }

    /// Recreates the images. Returns `false` if the window has no size or has changed. Waits for the GPU.
    pub fn rebuild(&mut self) -> Result<bool> {
        let gpu = self.gpu.clone();
        // No semaphore reports when a present is done, so wait for the queue.
        // SAFETY: only this thread uses the queue.
        gpu.check("vkQueueWaitIdle", unsafe { gpu.device.queue_wait_idle(gpu.queue) })?;
        if self.is_lost {
            self.destroy();
            let surface = Surface::new(&self.surface.instance, &self.surface.window)?;
            if !surface.is_reached_by(gpu.physical, gpu.family) || format_of(&gpu, &surface)? != self.format {
                bail!("the window's surface was lost, and the new one differs");
            }
            (self.surface, self.is_lost) = (surface, false);
        }
        let (ext, surface) = (&self.surface.ext, self.surface.raw);
        // SAFETY: surface and device belong to the same instance.
        let caps = unsafe { ext.get_physical_device_surface_capabilities(gpu.physical, surface) };
        let caps = self.unless_changed("vkGetPhysicalDeviceSurfaceCapabilitiesKHR", caps)?;
        let Some(caps) = caps else { return Ok(false) };
        let extent = extent_of(&caps, self.surface.window.inner_size().into());
        if extent.width == 0 || extent.height == 0 {
            return Ok(false);
        }
        let alpha = [vk::CompositeAlphaFlagsKHR::OPAQUE, vk::CompositeAlphaFlagsKHR::INHERIT];
        let alpha = alpha.into_iter().find(|&alpha| caps.supported_composite_alpha.contains(alpha));
        // One more than the minimum, so that the CPU does not wait for the compositor. 0 means no maximum.
        let most = if caps.max_image_count == 0 { u32::MAX } else { caps.max_image_count };
        let (count, format) = ((caps.min_image_count + 1).min(most), self.format);
        let info = vk::SwapchainCreateInfoKHR::default().surface(surface).min_image_count(count);
        let info = info.image_format(format.format).image_color_space(format.color_space);
        let info = info.image_extent(extent).image_array_layers(1).pre_transform(caps.current_transform);
        let info = info.image_usage(vk::ImageUsageFlags::COLOR_ATTACHMENT).present_mode(self.mode);
        let info = info.composite_alpha(alpha.unwrap_or(vk::CompositeAlphaFlagsKHR::PRE_MULTIPLIED));
        let info = info.clipped(true).old_swapchain(self.raw);
        // SAFETY: the device can present to the surface; this retires the old swapchain.
        let made = unsafe { gpu.swapchain.create_swapchain(&info, None) };
        self.destroy();
        let Some(made) = self.unless_changed("vkCreateSwapchainKHR", made)? else { return Ok(false) };
        self.raw = made;
        self.extent = extent;
        // SAFETY: made above.
        let images = unsafe { gpu.swapchain.get_swapchain_images(self.raw) };
        for image in gpu.check("vkGetSwapchainImagesKHR", images)? {
            let view = view(&gpu, image, self.format.format, vk::ImageAspectFlags::COLOR)?;
            let rendered = semaphore(&gpu, vk::SemaphoreType::BINARY)?;
            self.images.push(Shown { image, view, rendered });
        }
        self.is_stale = false;
        Ok(true)
    }

    /// Destroys the images and the swapchain. The queue must be idle.
    fn destroy(&mut self) {
        self.images.clear();
        // SAFETY: the queue is idle, so nothing uses the swapchain. Destroying a null swapchain does nothing.
        unsafe { self.gpu.swapchain.destroy_swapchain(self.raw, None) };
        self.raw = vk::SwapchainKHR::null();
    }
}

impl Drop for Swapchain {
    fn drop(&mut self) {
        // `Frames` has waited for all submissions. This waits for the presents.
        // SAFETY: only this thread uses the queue.
        let _ = unsafe { self.gpu.device.queue_wait_idle(self.gpu.queue) };
        self.destroy();
    }
}

/// Returns an sRGB format if there is one, because the shaders write linear light.
fn format_of(gpu: &Gpu, surface: &Surface) -> Result<vk::SurfaceFormatKHR> {
    // SAFETY: surface and device belong to the same instance.
    let formats = unsafe { surface.ext.get_physical_device_surface_formats(gpu.physical, surface.raw) };
    let formats = gpu.check("vkGetPhysicalDeviceSurfaceFormatsKHR", formats)?;
    let srgb = [vk::Format::B8G8R8A8_SRGB, vk::Format::R8G8B8A8_SRGB];
    let best = formats.iter().find(|format| srgb.contains(&format.format)).or(formats.first());
    best.copied().context("the window has no format")
}

/// Returns the surface's size, or the window's if the surface leaves the choice to the program (Wayland).
fn extent_of(caps: &vk::SurfaceCapabilitiesKHR, window: [u32; 2]) -> vk::Extent2D {
    if caps.current_extent.width != u32::MAX {
        return caps.current_extent;
    }
    if window.contains(&0) {
        return vk::Extent2D::default();
    }
    let (min, max) = (caps.min_image_extent, caps.max_image_extent);
    vk::Extent2D {
        width: window[0].max(min.width).min(max.width),
        height: window[1].max(min.height).min(max.height),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_surface_decides_the_size_if_it_can() {
        let side = |side| vk::Extent2D { width: side, height: side };
        let caps = |current| vk::SurfaceCapabilitiesKHR {
            current_extent: side(current),
            min_image_extent: side(1),
            max_image_extent: side(4096),
            ..Default::default()
        };
        assert_eq!(extent_of(&caps(300), [640, 480]), side(300));
        let wanted = vk::Extent2D { width: 640, height: 4096 };
        assert_eq!(extent_of(&caps(u32::MAX), [640, 5000]), wanted);
        assert_eq!(extent_of(&caps(u32::MAX), [640, 0]), side(0), "minimised");
    }
}
