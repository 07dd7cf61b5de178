//! Sparse buffers, for `sparseBinding` in `STAND_IN_PRETEND`. They are not those of the driver below, which
//! may have none: a buffer gets memory of its own. The contents of the memory that the program binds sparsely
//! are copied there once. The buffer does not see later writes.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use ash::vk::{self, Handle};

use crate::script;
use crate::vulkan::{Below, DeviceFns};

/// Offsets and sizes must be multiples of this, as on NVIDIA's GPUs.
const BLOCK: u64 = 64 << 10;

/// The sparse buffers. Each has its memory in the driver below, or null until it is bound.
static BUFFERS: LazyLock<Mutex<HashMap<u64, vk::DeviceMemory>>> = LazyLock::new(Default::default);

fn buffers() -> MutexGuard<'static, HashMap<u64, vk::DeviceMemory>> {
    BUFFERS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn created(buffer: vk::Buffer) {
    buffers().insert(buffer.as_raw(), vk::DeviceMemory::null());
}

pub(crate) unsafe fn destroyed(below: DeviceFns, buffer: vk::Buffer) {
    if let Some(memory) = buffers().remove(&buffer.as_raw()) {
        let free: vk::PFN_vkFreeMemory = below.get(c"vkFreeMemory");
        free(below.raw, memory, std::ptr::null());
    }
}

/// Rounds the requirements of a sparse buffer up to whole blocks.
pub(crate) fn require(buffer: vk::Buffer, needs: &mut vk::MemoryRequirements) {
    if buffers().contains_key(&buffer.as_raw()) {
        (needs.alignment, needs.size) = (BLOCK, needs.size.next_multiple_of(BLOCK));
    }
}

/// Binds a sparse buffer. `size_of` returns the size of imported memory in bytes.
pub(crate) unsafe fn bind(
    below: DeviceFns,
    info: &vk::SparseBufferMemoryBindInfo<'_>,
    size_of: impl Fn(vk::DeviceMemory) -> u64,
) -> vk::Result {
    let binds = std::slice::from_raw_parts(info.p_binds, info.bind_count as usize);
    let mut end = 0;
    for bind in binds {
        let whole = |value: u64| value.is_multiple_of(BLOCK);
        if !whole(bind.resource_offset) || !whole(bind.memory_offset) || !whole(bind.size) || bind.size == 0 {
            script::offence(format!("sparse binding of {bind:?}, which does not consist of whole blocks"));
        }
        if bind.memory_offset + bind.size > size_of(bind.memory) || bind.resource_offset != end {
            script::offence(format!("sparse binding of {bind:?}, which exceeds the memory or leaves a gap"));
        }
        end = bind.resource_offset + bind.size;
    }
    let get: vk::PFN_vkGetBufferMemoryRequirements = below.get(c"vkGetBufferMemoryRequirements");
    let mut needs = vk::MemoryRequirements::default();
    get(below.raw, info.buffer, &mut needs);
    if end < needs.size {
        script::offence(format!("only {end} bytes are bound of a sparse buffer of {}", needs.size));
    }
    let allocate: vk::PFN_vkAllocateMemory = below.get(c"vkAllocateMemory");
    let bind_buffer: vk::PFN_vkBindBufferMemory = below.get(c"vkBindBufferMemory");
    // A software device has only one memory type.
    let like = vk::MemoryAllocateInfo::default().allocation_size(end.max(needs.size));
    let mut memory = vk::DeviceMemory::null();
    let result = allocate(below.raw, &like, std::ptr::null(), &mut memory);
    if result != vk::Result::SUCCESS {
        return result;
    }
    buffers().insert(info.buffer.as_raw(), memory);
    let Some(to) = below.map(memory) else { return vk::Result::ERROR_MEMORY_MAP_FAILED };
    for bind in binds {
        let Some(from) = below.map(bind.memory) else { return vk::Result::ERROR_MEMORY_MAP_FAILED };
        let from = (from + bind.memory_offset) as *const u8;
        std::ptr::copy_nonoverlapping(from, (to + bind.resource_offset) as *mut u8, bind.size as usize);
        below.unmap(bind.memory);
    }
    below.unmap(memory);
    bind_buffer(below.raw, info.buffer, memory, 0)
}
