//! What happened when, on one clock: the CPU's calls, CUDA's kernels and Vulkan's draws, as a file for
//! [Perfetto](https://ui.perfetto.dev) or `chrome://tracing`.
//!
//! | file | what it does |
//! |---|---|
//! | `cpu` | collects the CPU's spans, which the code marks with the `tracing` crate |
//! | `clock` | ties the GPU's clock to the CPU's |
//! | `recorder` | collects the GPU's times of each frame |
//! | `chrome` | writes all of it as Chrome's trace events |
//! | `picture` | draws a few frames of the GPU's side as an SVG |
//!
//! Three clocks meet here. Vulkan's timestamps are tied to the CPU's clock by [`GpuClock`]. CUDA's events know only times
//! between each other; [`CudaClock`] ties them to `%globaltimer`, which is the clock of Vulkan's timestamps on NVIDIA's
//! devices (`wavefield bench latency` checks that). How far off each tie may be is measured and written into the file.

mod chrome;
mod clock;
mod cpu;
mod picture;
mod recorder;

pub(crate) use chrome::neither;
pub use chrome::{Lane, write_chrome_trace, write_trace};
pub use clock::{CudaClock, GpuClock};
pub use cpu::{CpuSpan, CpuSpans};
pub use picture::write_picture;
pub use recorder::{FrameSpans, Recorder, SLICES, Track};
