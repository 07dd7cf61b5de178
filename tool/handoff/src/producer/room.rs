//! Memory for slots: the size limits, the allocation, and advice on what would fit.

use ash::vk;
use gpu_allocator::MemoryLocation;
use vulkan_cuda::Ring;
use vulkan_cuda::ownership::Owner;

use super::{Source, level_regions};
use crate::contents::array::DrawnArray;
use crate::contents::scene::Scene;
use crate::contents::texture::{self, Texel};
use crate::contents::wave::{Grid, Vertex};
use wavefield_gpu::cuda::Cuda;
use wavefield_gpu::vulkan::{Buffer, BufferDesc, Device, Queue, read_buffer, read_image_levels};
use wavefield_gpu::{Error, Result};

/// The usage of slots: drawing, checking, clearing before a checked run, and read-back.
pub const SLOT_USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::STORAGE_BUFFER.as_raw()
        | vk::BufferUsageFlags::TRANSFER_SRC.as_raw()
        | vk::BufferUsageFlags::TRANSFER_DST.as_raw(),
);

/// The format of a [`texture::Texel`].
pub const TEXTURE_FORMAT: vk::Format = vk::Format::R16G16B16A16_SFLOAT;

/// Makes a ring's slots in Vulkan's own memory. `more` adds usage flags to [`SLOT_USAGE`].
pub fn own_slots(
    device: &Device,
    grid: Grid,
    ring: Ring,
    more: vk::BufferUsageFlags,
    location: MemoryLocation,
) -> Result<Vec<Buffer>> {
    let _span = tracing::trace_span!("memory").entered();
    let (size, usage) = (grid.bytes(), SLOT_USAGE | more);
    let desc = BufferDesc { label: "a slot of the ring", size, usage, location };
    each_slot(device, None, (Scene::Field, grid), ring.depth(), || Buffer::new(device, &desc))
}

/// Makes the memory of `depth` slots with `make`. Pass `context` if CUDA shares that memory.
///
/// # Errors
/// Fails as `make` does. If memory runs out, [`Error::NoRoom`] says what was asked for and what would fit.
pub fn each_slot<T>(
    device: &Device,
    context: Option<&Cuda>,
    (scene, grid): (Scene, Grid),
    depth: usize,
    mut make: impl FnMut() -> Result<T>,
) -> Result<Vec<T>> {
    let mut slots = Vec::with_capacity(depth);
    while slots.len() < depth {
        match make() {
            Ok(slot) => slots.push(slot),
            Err(error) if error.is_out_of_memory() => {
                let fitted = slots.len();
                // Free the slots first, because the ring that the advice suggests can use their memory.
                drop(slots);
                // Prefer CUDA's count, which includes other processes. Vulkan's budget is an estimate.
                let cuda = context.and_then(|context| context.memory().ok());
                let free = cuda.map(|(free, _)| free).or_else(|| device.free_memory());
                return Err(Error::NoRoom {
                    device: device.info().name.clone(),
                    asked: asked(scene, grid, depth),
                    free,
                    advice: advice(scene, scene.frame_bytes(grid), depth, fitted, free),
                    source: Box::new(error),
                });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(slots)
}

fn asked(scene: Scene, grid: Grid, depth: usize) -> String {
    let (elements, bytes) = (scene.elements(), scene.frame_bytes(grid));
    let all = bytes.saturating_mul(depth as u64);
    format!("a ring of {depth} slots of {grid} {elements}, {bytes} bytes each, {all} in all")
}

/// Describes what would fit, if only `fitted` of `depth` slots of `bytes` bytes each could be allocated.
fn advice(scene: Scene, bytes: u64, depth: usize, fitted: usize, free: Option<u64>) -> String {
    let deepest = match fitted {
        0 => "not even one of them fits".to_owned(),
        fitted => format!("the deepest that fits is --ring {fitted}"),
    };
    // The slots that were allocated fit, even if less memory is reported as free now. All `depth` slots do
    // not, even if enough is reported, because free memory may be fragmented.
    let room = (fitted as u64 * bytes).max(free.unwrap_or(0)).min(depth as u64 * bytes - 1);
    let fits = |&side: &u32| scene.frame_bytes(Grid { cols: side, rows: side }) <= room / depth as u64;
    // No scene has smaller elements than texels.
    let most = (room / depth as u64 / size_of::<Texel>() as u64).isqrt() as u32;
    match (1..=most).rev().find(fits).unwrap_or(0) {
        0 | 1 => format!(", {deepest}"),
        side => format!(", {deepest}, or with --ring {depth} the largest square is --grid {side}x{side}"),
    }
}

pub fn check_grid(device: &Device, grid: Grid) -> Result<()> {
    if grid.cols < 2 || grid.rows < 2 {
        return Err(Error::Usage(format!("a field of {grid} vertices has no surface")));
    }
    let (limit, name) = device.info().largest_buffer;
    if grid.bytes() <= limit {
        return Ok(());
    }
    Err(Error::Unsupported(too_large(grid, limit, name, &device.info().name)))
}

fn too_large(grid: Grid, limit: u64, limit_name: &str, device: &str) -> String {
    let side = (limit / size_of::<Vertex>() as u64).isqrt();
    format!(
        "a field of {grid} vertices needs {} bytes in one allocation, and {device} allows {limit} ({limit_name}): \
         the largest square --grid is {side}x{side}",
        grid.bytes()
    )
}

pub fn check_texture(device: &Device, size: Grid) -> Result<()> {
    let info = device.info();
    if size.cols < 2 || size.rows < 2 {
        return Err(Error::Usage(format!("a texture of {size} texels has no levels below its first")));
    }
    let refuse = |limit: u64, name: &str| {
        Err(Error::Unsupported(format!(
            "a texture of {size} texels is too large for {}: {limit} {name} is the most",
            info.name
        )))
    };
    let bytes = info.largest_allocation;
    if size.cols.max(size.rows) > info.largest_picture {
        return refuse(u64::from(info.largest_picture), "texels each way (maxImageDimension2D)");
    }
    if texture::chain_bytes(size) > bytes {
        return refuse(bytes, "bytes with its levels (maxMemoryAllocationSize)");
    }
    Ok(())
}

/// Reads the slot's array, or a texture level by level.
///
/// # Safety
/// The slot must be alive, belong to the queue's device, and hold such an array. Both APIs must be idle.
pub unsafe fn read_slot(
    queue: &mut Queue,
    slot: Source,
    owner: Owner,
    array: &DrawnArray,
) -> Result<Vec<u8>> {
    match slot {
        // SAFETY: the slot is alive and holds such an array (the caller's promise).
        Source::Vertices(slot) => unsafe { read_buffer(queue, slot.buffer, array.bytes(), owner) },
        Source::Texture(slot) => {
            let (regions, bytes) = (level_regions(array.grid()), texture::chain_bytes(array.grid()));
            // SAFETY: as above.
            unsafe { read_image_levels(queue, (slot.image, slot.layout), &regions, bytes, owner) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_fit_is_said() {
        let bytes = 1000 * 1000 * 16;
        // Five of eight were made: the grid may have five eighths of the vertices.
        let text = advice(Scene::Field, bytes, 8, 5, None);
        assert!(
            text.contains("--ring 5,") && text.contains("--ring 8 the largest square is --grid 790x790"),
            "{text}"
        );
        // The driver knows of more, but not of enough.
        let text = advice(Scene::Field, bytes, 8, 5, Some(6 * bytes));
        assert!(text.contains("--ring 5,") && text.contains("--grid 866x866"), "{text}");
        // The driver says that there is enough, but there was not.
        let text = advice(Scene::Field, bytes, 8, 5, Some(u64::MAX));
        assert!(text.contains("--grid 999x999"), "{text}");
        assert_eq!(advice(Scene::Field, bytes, 8, 0, None), ", not even one of them fits");
    }

    #[test]
    fn a_texture_is_measured_in_texels_of_all_levels() {
        let grid = Grid { cols: 1024, rows: 1024 };
        assert_eq!(
            asked(Scene::Texture, grid, 4),
            "a ring of 4 slots of 1024x1024 texels, 11184808 bytes each, 44739232 in all"
        );
        // A quarter of the bytes is a chain of half the side.
        let text = advice(Scene::Texture, Scene::Texture.frame_bytes(grid), 4, 1, None);
        assert!(text.contains("--ring 1,") && text.ends_with("--grid 512x512"), "{text}");
    }

    #[test]
    fn a_field_that_does_not_fit_says_what_would() {
        let text =
            too_large(Grid { cols: 20_000, rows: 20_000 }, 0xffe0_0000, "maxMemoryAllocationSize", "Toy GPU");
        for part in
            ["20000x20000", "6400000000", "4292870144", "maxMemoryAllocationSize", "Toy GPU", "16379x16379"]
        {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        assert!(16379u64.pow(2) * 16 <= 0xffe0_0000 && 16380u64.pow(2) * 16 > 0xffe0_0000);
    }
}
