//! What tests of hand-offs need, here and in `tool/wavefield/tests`.

#![allow(dead_code, unused_imports)] // Each test file uses its own part of this.

use wavefield_gpu::vulkan::Validation;
use wavefield_handoff::Handoff;
use wavefield_run::{DeviceTable, ProducerKind, Scene};

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
