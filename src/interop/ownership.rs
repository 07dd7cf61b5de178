//! Step 6: the barriers by which Vulkan takes a buffer from CUDA and gives it back.
//!
//! A semaphore orders the two sides; it does not by itself say that Vulkan's caches must look again. For that Vulkan has
//! queue family ownership transfers, with `VK_QUEUE_FAMILY_EXTERNAL` standing for everything outside this device
//! ("Queue Family Ownership Transfer" in the specification). CUDA needs no counterpart: its signal makes what it wrote
//! available, and its wait makes what Vulkan wrote visible.

use ash::vk;

/// What Vulkan does with the buffer while it owns it.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The stage that does it: the same that the submission's semaphore wait names, so that the two chain.
    pub stage: vk::PipelineStageFlags2,
    /// How it touches the memory.
    pub access: vk::AccessFlags2,
}

/// Who owns a buffer between Vulkan's uses of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Vulkan's own queue: no transfer, an ordinary barrier.
    Queue,
    /// CUDA, or another process: a transfer from and to the external queue family.
    External,
}

impl Owner {
    /// Before Vulkan's first use in a frame.
    pub fn acquire(self, buffer: vk::Buffer, family: u32, use_: Access) -> vk::BufferMemoryBarrier2<'static> {
        let barrier = whole(buffer).dst_stage_mask(use_.stage).dst_access_mask(use_.access);
        match self {
            // The source stage is the one that the semaphore wait names: it chains the barrier behind the wait.
            // What CUDA wrote was made available by its signal, so there is no source access.
            Self::External => barrier
                .src_queue_family_index(vk::QUEUE_FAMILY_EXTERNAL)
                .dst_queue_family_index(family)
                .src_stage_mask(use_.stage),
            // Whatever this queue did before with the buffer.
            Self::Queue => barrier
                .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                .src_stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
                .src_access_mask(vk::AccessFlags2::MEMORY_WRITE),
        }
    }

    /// After Vulkan's last use in a frame.
    pub fn release(self, buffer: vk::Buffer, family: u32, use_: Access) -> vk::BufferMemoryBarrier2<'static> {
        let barrier = whole(buffer).src_stage_mask(use_.stage).src_access_mask(use_.access);
        match self {
            // Who comes next is ordered by the semaphore that the submission signals.
            Self::External => {
                barrier.src_queue_family_index(family).dst_queue_family_index(vk::QUEUE_FAMILY_EXTERNAL)
            }
            Self::Queue => barrier
                .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                .dst_stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS),
        }
    }
}

fn whole(buffer: vk::Buffer) -> vk::BufferMemoryBarrier2<'static> {
    vk::BufferMemoryBarrier2::default().buffer(buffer).size(vk::WHOLE_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Access = Access {
        stage: vk::PipelineStageFlags2::VERTEX_SHADER,
        access: vk::AccessFlags2::SHADER_STORAGE_READ,
    };

    #[test]
    fn release_and_acquire_name_the_same_pair_of_families() {
        let acquire = Owner::External.acquire(vk::Buffer::null(), 5, READ);
        let release = Owner::External.release(vk::Buffer::null(), 5, READ);
        assert_eq!(acquire.src_queue_family_index, vk::QUEUE_FAMILY_EXTERNAL);
        assert_eq!(acquire.dst_queue_family_index, 5);
        assert_eq!(release.src_queue_family_index, 5);
        assert_eq!(release.dst_queue_family_index, vk::QUEUE_FAMILY_EXTERNAL);
    }

    #[test]
    fn the_acquire_chains_behind_the_wait_at_the_stage_that_reads() {
        let acquire = Owner::External.acquire(vk::Buffer::null(), 0, READ);
        assert_eq!(acquire.src_stage_mask, READ.stage);
        assert_eq!(acquire.dst_stage_mask, READ.stage);
        assert_eq!(acquire.dst_access_mask, READ.access);
    }

    #[test]
    fn a_buffer_of_our_own_changes_no_family() {
        for barrier in [
            Owner::Queue.acquire(vk::Buffer::null(), 3, READ),
            Owner::Queue.release(vk::Buffer::null(), 3, READ),
        ] {
            assert_eq!(barrier.src_queue_family_index, barrier.dst_queue_family_index);
        }
    }
}
