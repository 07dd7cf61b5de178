//! Records CPU calls, CUDA kernels and Vulkan draws on one clock, for Perfetto or `chrome://tracing`.
//!
//! [`GpuClock`] ties Vulkan's timestamps to the CPU's clock. CUDA only gives the time between two events;
//! [`CudaClock`] ties events to `%globaltimer`, which on NVIDIA devices is the clock of Vulkan's timestamps
//! (`wavefield bench latency` checks that). A trace's file states the measured error of each tie.

mod chrome;
mod clock;
mod cpu;
mod picture;
mod recorder;

pub use chrome::{neither, write_trace};
pub use clock::{CudaClock, GpuClock};
pub use cpu::{CpuSpan, CpuSpans};
pub use recorder::{FrameSpans, Recorder, SLICES, Track};
