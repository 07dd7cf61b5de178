//! Images painted *inside the Vulkan command buffer*: as `inline`, with surfaces instead of buffers.
//!
//! The images are Vulkan's own. Nothing is exported, and no CUDA context sees them. Where a kernel expects a CUDA surface
//! object, it gets the handle of a storage image's view from `VK_NVX_image_view_handle`: 32 bits, zero-extended to 64 in the
//! kernel's argument. NVIDIA does not document that the two are the same. Direct3D's translation to Vulkan (vkd3d-proton's
//! `GetCudaSurfaceObject`) has relied on it for years, and it holds on an H200 (driver 580).

use std::ffi::c_void;

use ash::vk;
use vulkan_cuda::ownership::whole_image;

use super::inline::PRODUCER;
use super::module::Module;
use crate::cuda::{Cuda, KernelSource, Signature};
use crate::producer::{
    Frame, ImageSlot, Producer, ProducerDesc, Profile, Source, check_texture, level_views, own_images,
    own_slot,
};
use crate::vulkan::{AdapterInfo, Device, Image, NO_INLINE, Queue, View, image_barrier, pipeline_barrier};
use crate::wave::Grid;
use crate::{Error, Result, texture};

pub(super) struct TextureInlineHandoff {
    paint: Module,
    reduce: Module,
    /// Runs last, on every level, if frames are stamped: see [`crate::stamp::texel`].
    stamp: Option<Module>,
    // The levels' views go before their images.
    levels: Vec<Vec<Level>>,
    _images: Vec<Image>,
    profile: Profile,
    device: Device,
}

struct Level {
    /// The kernels' surface object; valid while the view lives.
    surface: u64,
    size: Grid,
    _view: View,
}

impl TextureInlineHandoff {
    /// Fails with the reason if a device cannot do this.
    pub fn supports(info: &AdapterInfo) -> Result<(), &'static str> {
        match (info.inline, info.inline_images) {
            (_, true) => Ok(()),
            (false, false) => Err(NO_INLINE),
            (true, false) => Err(
                "a kernel in Vulkan's command buffer reaches images by handles of VK_NVX_image_view_handle, which the \
                 driver does not have",
            ),
        }
    }

    /// The queue's device must have been made with `inline`. `context` links the kernels and gives their block sizes.
    pub fn new(queue: &Queue, context: &Cuda, source: &KernelSource, desc: &ProducerDesc) -> Result<Self> {
        let (device, size) = (queue.device(), desc.grid);
        check_texture(device, size)?;
        // Asked first, because its error names what the device lacks.
        device.image_view_handles()?;
        let module = |source: &_| Module::new(device, context, source);
        let (paint, reduce) = (module(source)?, module(&KernelSource::texture_reduce())?);
        source.check_signature(Signature::Texture)?;
        let stamp = desc.stamped.then(|| module(&KernelSource::texture_stamp())).transpose()?;
        let images = own_images(device, size, desc.ring.depth(), vk::ImageUsageFlags::STORAGE)?;
        let levels = images.iter().map(|image| levels(device, image, size)).collect::<Result<Vec<_>>>()?;
        check_handles(&device.info().name, levels.iter().flatten().map(|level| level.surface).collect())?;
        let slots = images.iter().map(own_slot).map(Source::Texture).collect();
        let parameters = paint.parameters().clone();
        let profile =
            Profile { uses_cuda: true, in_queue: true, parameters, ..Profile::of_queue(PRODUCER, slots) };
        Ok(Self { paint, reduce, stamp, levels, _images: images, profile, device: device.clone() })
    }

    fn barrier(&self, commands: vk::CommandBuffer, barrier: vk::ImageMemoryBarrier2<'_>) {
        // SAFETY: producers record outside a render pass; the barrier names one of this producer's slots.
        unsafe { pipeline_barrier(&self.device, commands, &[], &[barrier]) };
    }
}

fn levels(device: &Device, image: &Image, size: Grid) -> Result<Vec<Level>> {
    let handles = device.image_view_handles()?;
    let views = level_views(device, image.raw(), size)?.into_iter().enumerate();
    let level = |(index, view): (usize, View)| {
        let info = vk::ImageViewHandleInfoNVX::default()
            .image_view(view.raw())
            .descriptor_type(vk::DescriptorType::STORAGE_IMAGE);
        // SAFETY: the extension is enabled; a live view of an image with this usage, which needs no sampler.
        let handle = unsafe { (handles.fp().get_image_view_handle_nvx)(device.raw().handle(), &info) };
        Level { surface: u64::from(handle), size: texture::level(size, index as u32), _view: view }
    };
    Ok(views.map(level).collect())
}

/// Refuses equal handles: two views with the same one would write each other's texels. The call that makes handles returns
/// no error.
fn check_handles(device: &str, mut handles: Vec<u64>) -> Result<()> {
    let count = handles.len();
    handles.sort_unstable();
    handles.dedup();
    if handles.len() == count {
        return Ok(());
    }
    Err(Error::Unsupported(format!(
        "vkGetImageViewHandleNVX on {device} gave {} different handles for {count} views: use another --handoff than inline",
        handles.len()
    )))
}

impl Level {
    /// Records the launch of a kernel with the signature of `paint` in `kernels/texture.cu`, one thread for each texel.
    ///
    /// # Safety
    /// As for [`Module::launch`]; the kernel has that signature.
    unsafe fn launch(&self, kernel: &Module, commands: vk::CommandBuffer, frame: &Frame) {
        let mut values = kernel.parameters().values(&frame.parameters);
        let arguments: [*const c_void; 6] = [
            (&raw const self.surface).cast(),
            (&raw const self.size.cols).cast(),
            (&raw const self.size.rows).cast(),
            (&raw const frame.index).cast(),
            (&raw const frame.time).cast(),
            values.pointer(),
        ];
        // SAFETY: recording, and barriers order the memory (the caller's promise); these are the types of that signature.
        unsafe { kernel.launch_frame(commands, self.size, &arguments) };
    }

    /// Records the launch of `reduce` in the same file, which makes this level from the one above.
    ///
    /// # Safety
    /// As for [`Module::launch`]; `kernel` is `reduce`.
    unsafe fn launch_reduce(&self, kernel: &Module, commands: vk::CommandBuffer, above: &Self) {
        let parameters: [*const c_void; 6] = [
            (&raw const above.surface).cast(),
            (&raw const self.surface).cast(),
            (&raw const above.size.cols).cast(),
            (&raw const above.size.rows).cast(),
            (&raw const self.size.cols).cast(),
            (&raw const self.size.rows).cast(),
        ];
        // SAFETY: recording, and barriers order the memory (the caller's promise); these are the types of `reduce`.
        unsafe { kernel.launch(commands, self.size, &parameters) };
    }
}

impl Producer for TextureInlineHandoff {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        let Source::Texture(ImageSlot { image, layout, .. }) = source else { return };
        let levels = &self.levels[self.profile.slot_of(frame.index)];
        let color = vk::ImageAspectFlags::COLOR;
        // For barriers, a launch is a compute shader. No specification says which accesses a kernel makes, so all are
        // named.
        let kernels = vk::PipelineStageFlags2::COMPUTE_SHADER;
        let writes = vk::AccessFlags2::SHADER_STORAGE_WRITE | vk::AccessFlags2::MEMORY_WRITE;
        let reads = vk::AccessFlags2::SHADER_STORAGE_READ | vk::AccessFlags2::MEMORY_READ;
        // The layout in which storage images are written and read.
        let general = vk::ImageLayout::GENERAL;
        let written = (general, (kernels, writes));
        // The image is overwritten, so its content may be lost. The draw that read it K frames ago must be done.
        let old = (vk::ImageLayout::UNDEFINED, (frame.reads.stage, vk::AccessFlags2::NONE));
        self.barrier(commands, image_barrier(image, color, old, written).subresource_range(whole_image()));
        // SAFETY: (for all launches) recording, outside a render pass; `paint` has the checked signature, and the other
        // kernels are this program's own; handles live as long as `self`, and the barriers order each level's users.
        unsafe { levels[0].launch(&self.paint, commands, frame) };
        for (index, pair) in levels.windows(2).enumerate() {
            let above = whole_image().base_mip_level(index as u32).level_count(1);
            let ready = image_barrier(image, color, written, (general, (kernels, reads)));
            self.barrier(commands, ready.subresource_range(above));
            // SAFETY: as above.
            unsafe { pair[1].launch_reduce(&self.reduce, commands, &pair[0]) };
        }
        if let Some(stamp) = &self.stamp {
            // The stamp reads and writes what the other kernels have written, after they have read it.
            let again = image_barrier(image, color, written, (general, (kernels, writes | reads)));
            self.barrier(commands, again.subresource_range(whole_image()));
            for level in levels {
                // SAFETY: as above.
                unsafe { level.launch(stamp, commands, frame) };
            }
        }
        let drawn = (layout, (frame.reads.stage, frame.reads.access));
        self.barrier(commands, image_barrier(image, color, written, drawn).subresource_range(whole_image()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let supports = |inline, inline_images| {
            let info = AdapterInfo { inline, inline_images, ..AdapterInfo::unreal(1) };
            TextureInlineHandoff::supports(&info)
        };
        assert!(supports(false, false).unwrap_err().contains("VK_NVX_binary_import"));
        assert!(supports(true, false).unwrap_err().contains("VK_NVX_image_view_handle"));
        assert_eq!(supports(true, true), Ok(()));
    }

    #[test]
    fn handles_must_differ() {
        check_handles("a GPU", vec![3, 1, 2]).unwrap();
        let error = check_handles("a GPU", vec![0, 0, 7]).unwrap_err().to_string();
        assert!(error.contains("2 different handles for 3 views") && error.contains("a GPU"), "{error}");
    }
}
