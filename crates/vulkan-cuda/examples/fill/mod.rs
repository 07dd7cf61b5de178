//! A kernel that writes a frame, launched by cudarc. [`07_your_cuda`](../07_your_cuda.rs) explains the
//! launch.

#![allow(dead_code)] // Each example uses only some of these functions.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg, sys};
use cudarc::nvrtc::Ptx;

/// `void fill(unsigned *out, unsigned words, unsigned frame)`
pub const KERNEL: &str = include_str!("fill.ptx");

pub fn load(context: &Arc<CudaContext>) -> Result<CudaFunction, DriverError> {
    context.load_module(Ptx::from_src(KERNEL))?.load_function("fill")
}

/// Enqueues the kernel.
///
/// # Safety
/// `out` must have this many words, and nothing else may use them until the kernel is done.
pub unsafe fn launch(
    fill: &CudaFunction,
    stream: &CudaStream,
    out: sys::CUdeviceptr,
    words: usize,
    frame: u64,
) -> Result<(), DriverError> {
    let (words, frame) = (words as u32, frame as u32);
    let mut launch = stream.launch_builder(fill);
    launch.arg(&out).arg(&words).arg(&frame);
    // SAFETY: these are the kernel's three parameters. It writes only the words, which the caller promises.
    unsafe { launch.launch(LaunchConfig::for_num_elems(words)) }.map(drop)
}

// ANCHOR: word
/// The kernel's formula.
pub fn word(index: u32, frame: u64) -> u32 {
    index ^ (frame as u32).wrapping_mul(0x9e37_79b1)
}

/// Returns the index of the first word that the kernel did not write for this frame.
pub fn wrong(words: &[u32], frame: u64) -> Option<usize> {
    (0..).zip(words).position(|(index, &seen)| seen != word(index, frame))
}
// ANCHOR_END: word
