#![doc = include_str!("../README.md")]
//!
//! # The modules, in the order to read them
//! A module imports only from those before it. **Most programs need only the last line.**
//! - Basics for all other modules: `identity`, `error`, [`cuda`], [`handle`] (the handles that pass between
//!   the two APIs), [`format`](mod@format), [`shape`], `exportable`, `vulkan_info`, `vulkan`
//! - Finding the CUDA device of a Vulkan device: [`pair`](mod@pair). All sharing begins with a [`Pair`].
//! - Memory that both APIs address: `export`, [`memory`]
//! - Semaphores that both APIs use, on the GPU: `semaphore`, [`timeline`], and [`binary`] for programs without
//!   timelines
//! - The arithmetic of frames (slots, and the values to wait for and to signal): [`ring`], `ledger`, `frames`
//! - The barriers that transfer a buffer from CUDA to Vulkan and back: [`ownership`]
//! - Images: [`image`](mod@image). Several buffers in one allocation: [`layout`], [`allocation`]
//! - Memory that CUDA allocated: `cuda_allocation`, `pieces`, `sparse`, `cuda_buffer`, [`cuda_memory`]
//! - The handover of whole frames: `slot`, `hand_over`, `submission`, `vulkan_turn`, `view`, [`shared_ring`],
//!   and its reverse [`ring_to_cuda`]
//!
//! [`manual`] lists what CUDA's manual says about sharing, and which item of this crate does it.
//!
//! # Who keeps what alive
//! [`Vk::from_raw`] adopts a device made with ash, wgpu or vulkano; [`Cuda::from_cudarc`] and
//! [`Cuda::from_raw`] adopt a context. This crate never destroys what it adopts.
//!
//! Every object keeps alive what it was made from, so you may drop objects in any order. But no type can tell
//! whether the GPU still uses an object: drop it only when the GPU is done with it. Functions that enqueue
//! GPU work on an object are `unsafe`: their caller promises this. A [`SharedRing`] waits when it is dropped.
//!
//! Shared objects, rings and [`VulkanTurn`]s are `'static`, so a renderer's drop callback may own one. Do not
//! do this if the `keep` of [`Vk::from_raw`] is the renderer's own device: the object would keep the device
//! alive, and the callback would never run. Let the renderer borrow the buffer instead, and drop the buffer
//! after the renderer has released it, as `examples/wgpu` in the repository does. The other turns borrow
//! their ring. All of these types are `Send` and `Sync`. Handles and operands of [`handle`] are not `Send`,
//! because they may hold a raw pointer to an NvSci object.
//!
//! # Errors
//! [`enum@Error`] names the call, the device, the driver's answer and what to do. An `# Errors` section lists
//! only what this crate itself refuses: any call may also fail with the driver's own error.

#![deny(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

pub mod allocation;
pub mod binary;
pub mod cuda;
mod cuda_allocation;
mod cuda_buffer;
pub mod cuda_memory;
mod error;
mod export;
mod exportable;
pub mod format;
mod frames;
mod hand_over;
pub mod handle;
mod identity;
pub mod image;
pub mod layout;
mod ledger;
#[doc = include_str!("manual.md")]
pub mod manual {}
pub mod memory;
pub mod ownership;
pub mod pair;
mod pieces;
pub mod ring;
pub mod ring_to_cuda;
mod semaphore;
pub mod shape;
pub mod shared_ring;
mod slot;
mod sparse;
mod submission;
pub mod timeline;
mod view;
mod vulkan;
mod vulkan_info;
mod vulkan_turn;

pub use allocation::ExportedAllocation;
pub use binary::SharedBinary;
pub use cuda::{Cuda, CudaInfo, Driver, Stream};
pub use cuda_memory::{CudaAllocation, CudaBuffer};
pub use error::{Error, Mismatch, Result, cuda_advice, on_cleanup_error, vulkan_words};
pub use format::{ArrayFormat, FORMATS, Numeric};
pub use identity::DeviceUuid;
pub use image::{ExportedImage, ImageRequest, SharedImage};
pub use memory::{ExportedBuffer, MappedMemory, SharedBuffer};
pub use pair::{Pair, find_twin, same_device};
pub use ring::{Ring, Turn};
pub use ring_to_cuda::{ReadTurn, RingToCuda, WriteTurn};
pub use semaphore::{ExportedSemaphore, ImportedSemaphore};
pub use shape::{Shape, ViewType};
pub use shared_ring::{CudaTurn, QueueUse, SharedRing, Slot, VulkanTurn};
pub use timeline::SharedTimeline;
pub use vulkan::Vk;
pub use vulkan_info::{DEVICE_EXTENSIONS, VkInfo};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::{read_dir, read_to_string};
    use std::path::{Path, PathBuf};

    /// Returns the words between backticks in the list of modules, each with its link's brackets left out.
    fn listed(lib: &str) -> Vec<&str> {
        let (_, list) = lib.split_once("//! # The modules").unwrap();
        let (list, _) = list.split_once("//!\n").unwrap();
        list.split('`').skip(1).step_by(2).filter(|name| !name.contains(char::is_uppercase)).collect()
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        let entries = read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
    }

    /// Every module stands in the list once, after all modules that it imports from. No file has an order of
    /// its own.
    #[test]
    fn there_is_one_reading_order() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let lib = read_to_string(sources.join("lib.rs")).unwrap();
        let listed = listed(&lib);
        let declared = lib
            .lines()
            .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'));
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), declared.collect());
        assert_eq!(listed.iter().collect::<BTreeSet<_>>().len(), listed.len(), "twice: {listed:?}");
        for path in files(&sources) {
            let name = path.strip_prefix(&sources).unwrap().with_extension("");
            let text = read_to_string(&path).unwrap_or_default();
            let head = text.lines().take_while(|line| line.starts_with("//!")).collect::<String>();
            assert!(!head.contains("Step "), "{} has a number of its own", path.display());
            let module = name.iter().next().and_then(|name| name.to_str()).unwrap();
            let Some(place) = listed.iter().position(|other| *other == module) else { continue };
            let (text, _) = text.split_once("#[cfg(test)]").unwrap_or((&text, ""));
            for line in text.lines().filter(|line| line.contains("use crate::")) {
                let imported = line.split("use crate::").nth(1).unwrap().split([':', ';']).next().unwrap();
                let from = listed.iter().position(|other| *other == imported);
                assert!(from.is_none_or(|from| from <= place), "{module} imports from {imported}");
            }
        }
    }
}
