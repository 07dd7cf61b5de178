//! The two kinds of turn that wgpu submits.

use ash::vk::CommandBuffer;
use vulkan_cuda::shared_ring::QueueTurn;
use vulkan_cuda::{QueueUse, VulkanTurn, WriteTurn};

use crate::slot::WgpuSlot;

/// A turn for [`Gpu::submit`](crate::Gpu::submit): a [`VulkanTurn`] to read, or a [`WriteTurn`] to write.
pub trait WgpuTurn: sealed::Turn {}

impl<T: sealed::Turn> WgpuTurn for T {}

pub(crate) mod sealed {
    use super::*;

    /// The functions that both kinds of turn have, with the same safety rules.
    #[allow(clippy::missing_safety_doc)]
    pub trait Turn: QueueTurn {
        type Slot: WgpuSlot;

        fn slot(&self) -> &Self::Slot;
        fn queue(&self) -> QueueUse;
        unsafe fn record_acquire(&self, commands: CommandBuffer);
        unsafe fn record_release(&self, commands: CommandBuffer);
    }
}

macro_rules! turn {
    ($turn:ty) => {
        impl<S: WgpuSlot> sealed::Turn for $turn {
            type Slot = S;

            fn slot(&self) -> &S {
                self.slot()
            }

            fn queue(&self) -> QueueUse {
                self.queue()
            }

            unsafe fn record_acquire(&self, commands: CommandBuffer) {
                // SAFETY: the caller's promise.
                unsafe { self.record_acquire(commands) }
            }

            unsafe fn record_release(&self, commands: CommandBuffer) {
                // SAFETY: the caller's promise.
                unsafe { self.record_release(commands) }
            }
        }
    };
}

turn!(VulkanTurn<S>);
turn!(WriteTurn<'_, S>);
