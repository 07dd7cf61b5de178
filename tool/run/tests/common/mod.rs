//! What tests of hand-offs need, here and in `tool/wavefield/tests`.

#![allow(dead_code, unused_imports)] // Each test file uses its own part of this.

use bytemuck::{AnyBitPattern, NoUninit};
use wavefield_gpu::{Result, vulkan::Validation};
use wavefield_handoff::Handoff;
use wavefield_run::{DeviceTable, Engine, ProducerKind, Scene};

pub use wavefield_test_support::*;

/// The hand-offs of a scene.
pub fn handoffs(scene: Scene) -> impl Iterator<Item = Handoff> {
    Handoff::ALL.into_iter().filter(move |handoff| handoff.check_scene(scene).is_ok())
}

/// The hand-offs whose kernels run on a CUDA stream. The stand-in runs no kernel inside a command buffer.
pub fn on_a_stream() -> impl Iterator<Item = Handoff> {
    Handoff::ALL.into_iter().filter(|&handoff| handoff != Handoff::Inline)
}

/// Whether the CPU waits for CUDA in every frame.
pub fn cpu_waits(handoff: Handoff) -> bool {
    matches!(handoff, Handoff::CpuSync | Handoff::HostCopy)
}

/// Whether CUDA and Vulkan share a device here. If not, the test is skipped. If so, it must treat every error
/// as a failure.
pub fn has_gpu() -> bool {
    let table = DeviceTable::headless(Validation::default())
        .expect("a Vulkan driver is installed, at least a software one");
    table.choose(None, ProducerKind::Cuda).map_err(|error| skip_without_gpu(&error.to_string())).is_ok()
}

/// The last frame's data in a slot: vertices, or texels by level. Waits for both APIs.
pub fn read_slot<T: AnyBitPattern + NoUninit>(engine: &mut Engine, slot: usize) -> Result<Vec<T>> {
    engine.work.finish()?;
    let (array, profile) = (*engine.drawer.array(), engine.work.producer.profile().clone());
    // SAFETY: one of the producer's slots, which hold this array.
    let bytes = unsafe {
        wavefield_handoff::producer::read_slot(engine.queue(), profile.slots[slot], profile.owner, &array)
    }?;
    Ok(bytemuck::allocation::pod_collect_to_vec(&bytes))
}
