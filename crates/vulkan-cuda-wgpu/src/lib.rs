//! wgpu and CUDA on one GPU: shared buffers and textures, frame by frame, in both directions. Nothing is
//! copied, and the CPU waits for neither side.
//!
//! [`Gpu::open`] opens wgpu's device with all needed extensions. [`Gpu::adopt`] takes the device of a program
//! or an engine that has one, such as Bevy. [`Gpu::buffer`] and [`Gpu::texture`] create slots. The rings are
//! those of [`vulkan_cuda`]: in a [`SharedRing`] CUDA writes and wgpu reads, in a [`RingToCuda`] wgpu writes
//! and CUDA reads. In both, wgpu's turn ends with [`Gpu::submit`].
//!
//! # Examples
//! CUDA writes, wgpu draws:
//!
//! ```no_run
//! # use cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
//! # use vulkan_cuda_wgpu::Gpu;
//! # fn draw(_: &wgpu::Buffer, _: &mut wgpu::CommandEncoder) {}
//! # async fn example(
//! #     instance: wgpu::Instance, kernel: CudaFunction,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! let adapter = vulkan_cuda_wgpu::find(&instance).await?; // a GPU that wgpu and CUDA can share
//! let gpu = Gpu::open(&adapter, &wgpu::DeviceDescriptor::default())?;
//!
//! let vertices = wgpu::BufferDescriptor {
//!     label: None,
//!     size: 1 << 20,
//!     usage: wgpu::BufferUsages::VERTEX,
//!     mapped_at_creation: false,
//! };
//! let slots = (0..3).map(|_| gpu.buffer(&vertices)).collect::<Result<_, _>>()?;
//! let mut ring = gpu.shared_ring(gpu.context().new_stream()?, slots)?;
//!
//! // A frame:
//! let Some(write) = ring.write()? else { return Ok(()) }; // not yet: earlier frames are not submitted
//! let mut out = write.view::<f32>()?;
//! let count = out.len() as u32;
//! let mut launch = write.stream().launch_builder(&kernel);
//! launch.arg(&mut out).arg(&count);
//! // SAFETY: these are the kernel's parameters, and it writes only the slot.
//! unsafe { launch.launch(LaunchConfig::for_num_elems(count)) }?;
//! let frame = write.finish_after_kernels()?; // CUDA signals
//! gpu.submit(frame, |slot, encoder| draw(slot.wgpu(), encoder))?; // wgpu waits, on the GPU
//! # Ok(())
//! # }
//! ```
//!
//! wgpu draws, CUDA reads:
//!
//! ```no_run
//! # use vulkan_cuda_wgpu::{Gpu, RingToCuda, WgpuTexture};
//! # fn draw(_: &wgpu::Texture, _: &mut wgpu::CommandEncoder) {}
//! # fn look(_: &WgpuTexture) {}
//! # fn example(gpu: Gpu, ring: &mut RingToCuda<WgpuTexture>) -> Result<(), Box<dyn std::error::Error>> {
//! // `ring` is from `gpu.ring_to_cuda(stream, textures)`.
//! if let Some(write) = ring.write() {
//!     gpu.submit(write, |slot, encoder| draw(slot.wgpu(), encoder))?;
//! }
//! while let Some(read) = ring.next_read()? {
//!     look(read.slot()); // enqueues kernels and copies on `read.stream()`
//!     read.finish()?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What to know
//! - *One thread submits at a time.* wgpu gives a turn's wait and signal to the queue's next submission.
//!   [`Gpu::submit`] takes a lock. If another thread calls `Queue::submit` or `Buffer::map_async`, hold a
//!   lock of your own around that call and `Gpu::submit`.
//! - *Use a slot's wgpu object only during its turn*, in the closure of [`Gpu::submit`]. Bind groups may be
//!   created at any time.
//! - *Memory lives as long as it is used.* A slot's wgpu object keeps its memory alive, so bind groups and
//!   the ring may be dropped in any order. Drop the ring before wgpu's queue: after a fault in CUDA, dropping
//!   the ring ends the queue's waits. If you dropped the queue first, wgpu would wait forever.
//! - A slot holds undefined bytes until one side has written it.

#![deny(missing_docs)]
#![deny(clippy::undocumented_unsafe_blocks)]

mod gpu;
mod slot;
mod turn;

pub use gpu::{Gpu, extend, find};
pub use slot::{WgpuBuffer, WgpuSlot, WgpuTexture, picture};
pub use turn::WgpuTurn;
pub use vulkan_cuda::{self, Error, Result, RingToCuda, SharedRing};
