//! Vulkan objects, structured as in wgpu: [`Instance`], [`Adapter`], [`Device`] and [`Queue`],
//! [`WindowSurface`], [`Swapchain`].
//!
//! Each object owns its Vulkan handle and a clone of the [`Device`] (or [`Instance`]) that made it, so
//! objects may be dropped in any order. Objects do not track whether the GPU still uses them: wait before you
//! drop one ([`Queue::wait_idle`]), as the "valid usage" of every `vkDestroy…` requires.

mod adapter;
mod bindings;
mod buffer;
mod compute;
mod device;
mod fault;
mod image;
mod instance;
mod owned;
mod pacer;
mod queue;
mod readback;
mod request;
mod surface;
mod swapchain;
mod sync;
mod timestamps;
mod validation;

pub use adapter::{Adapter, AdapterInfo};
pub use bindings::{Bindings, Bound, SetDesc, sampler};
pub use buffer::{Buffer, BufferDesc};
pub use compute::{Choices, ComputePipeline, MAX_GROUPS, compute_pipeline, groups, shader_module};
pub use device::{Device, DeviceDesc, cuda_inside_vulkan};
pub use image::{Image, ImageDesc, ImageView, copy_of_level, record_upload, view, view_of_shared};
pub use instance::{API_VERSION, Instance};
pub use owned::AutoDestroy;
pub use pacer::{Flight, Pacer};
pub use queue::Queue;
pub use readback::{CommandPool, begin, end, one_shot, read_buffer, read_image, read_image_levels, to_host};
pub use surface::WindowSurface;
pub use swapchain::{PresentMode, Swapchain, SwapchainImage};
pub use sync::{buffer_barrier, image_barrier, pipeline_barrier};
pub use timestamps::Timestamps;
pub use validation::{LAYER as VALIDATION_LAYER, Validation, ValidationLog};

/// Returns a closure for `map_err`, for calls without a [`Device`]. With one, use [`Device::failed`].
fn failed<'a>(call: &'static str, device: &'a str) -> impl FnOnce(ash::vk::Result) -> crate::Error + 'a {
    move |result| crate::Error::Vulkan { call, device: device.to_owned(), result, fault: None }
}

/// Formats a packed Vulkan version, as in `1.3.280`.
pub fn version(packed: u32) -> String {
    use ash::vk;
    format!(
        "{}.{}.{}",
        vk::api_version_major(packed),
        vk::api_version_minor(packed),
        vk::api_version_patch(packed)
    )
}
