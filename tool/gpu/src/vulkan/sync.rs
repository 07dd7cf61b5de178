use ash::vk;

use vulkan_cuda::ownership::whole_image;

use super::Device;

/// The stages and accesses on one side of a barrier.
pub(super) type SyncScope = (vk::PipelineStageFlags2, vk::AccessFlags2);

/// Returns a barrier within one queue family that covers every level and layer of a colour image.
pub fn image_barrier(
    image: vk::Image,
    (old, from): (vk::ImageLayout, SyncScope),
    (new, to): (vk::ImageLayout, SyncScope),
) -> vk::ImageMemoryBarrier2<'static> {
    vk::ImageMemoryBarrier2::default()
        .image(image)
        .old_layout(old)
        .new_layout(new)
        .src_stage_mask(from.0)
        .src_access_mask(from.1)
        .dst_stage_mask(to.0)
        .dst_access_mask(to.1)
        .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
        .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
        .subresource_range(whole_image())
}

pub fn buffer_barrier(
    buffer: vk::Buffer,
    from: SyncScope,
    to: SyncScope,
) -> vk::BufferMemoryBarrier2<'static> {
    vk::BufferMemoryBarrier2::default()
        .buffer(buffer)
        .size(vk::WHOLE_SIZE)
        .src_stage_mask(from.0)
        .src_access_mask(from.1)
        .dst_stage_mask(to.0)
        .dst_access_mask(to.1)
        .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
        .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
}

/// # Safety
/// `cmd` must be recording, outside a render pass. The barriers must name live objects of `device`.
pub unsafe fn pipeline_barrier(
    device: &Device,
    cmd: vk::CommandBuffer,
    buffers: &[vk::BufferMemoryBarrier2<'_>],
    images: &[vk::ImageMemoryBarrier2<'_>],
) {
    let info = vk::DependencyInfo::default().buffer_memory_barriers(buffers).image_memory_barriers(images);
    // SAFETY: recording, and the barriers name live objects (the caller's promise).
    unsafe { device.raw().cmd_pipeline_barrier2(cmd, &info) };
}
