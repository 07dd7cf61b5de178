//! A GPU that fails on request, for tests only.
//!
//! This shared library has three roles. As `libcuda.so.1` it is a CUDA driver with one device, whose kernels
//! run on the CPU ([`cuda`]). As `libnvrtc.so.12` it is a compiler for that device ([`nvrtc`]). Named in a
//! manifest, it is a Vulkan layer ([`vulkan`]) above a real driver, which may be a software driver. The CUDA
//! driver and the layer share memory and semaphores as on a GPU, so the whole program runs on a machine
//! without one.
//!
//! A test can make any call to either API fail. When the process ends, the stand-in reports which calls were
//! made and what was not given back ([`script`]). The program does not know about the stand-in.
//!
//! | variable | meaning |
//! |---|---|
//! | `STAND_IN_FAIL` | `CALL:CODE[:NTH[:TIMES]]`, separated by commas: TIMES calls, from the NTH on (counted from 1), return CODE |
//! | `STAND_IN_BESIDE` | `CALL+CALL`: the first of each call waits for the other; it is an offence if that takes longer than some seconds |
//! | `STAND_IN_TELL` | `CALL:NTH:FILE`: makes FILE at the NTH call, so that a test can wait for it |
//! | `STAND_IN_FILE_LIMIT` | `CALL:NTH:BYTES`: the NTH call limits the size of files, as `ulimit -f` does. A driver whose memory is a file has it by then |
//! | `STAND_IN_REPORT` | the file for the report |
//! | `STAND_IN_PRETEND` | names, separated by commas: device extensions of [`vulkan::PRETENDED`] that the layer adds, or the feature `sparseBinding` |
//! | `STAND_IN_MEMORY` | the bytes of device memory; allocations beyond them fail |
//! | `STAND_IN_DRIVERS_MEMORY` | if set, memory is exported by the driver's own descriptors, which other APIs can import and the report does not count |
//! | `STAND_IN_CUDA_VERSION` | the answer of `cuDriverGetVersion` (default 12000) |
//! | `STAND_IN_CUDA_DEVICES` | the number of CUDA devices (default 1). Only the first can be used: the second's context is another one of the first. The first two reach each other |
//! | `STAND_IN_SMALL_BUFFERS` | if set, a buffer needs half of its own size, as a driver that wraps around would say |
//! | `STAND_IN_KERNEL_MS` | the shortest time of a kernel, in milliseconds |
//! | `STAND_IN_UUID` | the CUDA device's UUID, 32 hexadecimal digits and dashes, for processes that do not use Vulkan |
//! | `STAND_IN_LUID` | the CUDA device's LUID as a number; without it there is none, as outside Windows |
//!
//! Without `STAND_IN_UUID`, the CUDA device has the UUID of the first Vulkan device that the layer sees, and
//! a question for it waits until Vulkan has an instance. Without the layer, the UUID is all zeros.
//!
//! A device has the functions of `VK_KHR_external_memory_fd` and `VK_KHR_external_semaphore_fd` only if it
//! was made with them.
//!
//! # Kernels
//!
//! The stand-in cannot run PTX. It knows a kernel by the name of its `.entry`, and runs its own code for that
//! name:
//!
//! | where the kernel comes from | names |
//! |---|---|
//! | `kernels` | `wave` |
//! | `tool/handoff/kernels` | `paint`, `reduce`, `stamp`, `frame_stamp`, `texture_stamp`; those of the gallery and `image.ptx` write nothing |
//! | `tool/handoff/kernels/test` | `flat`, `level`, `colour`, `spin`, `trap_kernel`, `illegal`, `late`; `answer` writes nothing, and `broken` does not compile |
//! | `examples/wgpu` | `pattern`, `pattern_texels`, `check_pattern`, `check_pattern_texels` |
//! | `examples/bevy`, `examples/eframe` | `swell`, `squares` |
//! | `examples/first_frame.ptx` | `first_wave` |
//! | `examples/hand_offs.ptx` | `write_words` |
//! | `examples/render_to_cuda` | `look` |
//! | `crates/vulkan-cuda/examples` | `fill`, `invert` |
//! | `crates/vulkan-cuda/tests` | `surface_read`, `surface_write`, which read and write nothing |
//!
//! A kernel of any other name is not found (500). To add one, follow `write_words` through [`cuda`]: its name
//! in `cuModuleGetFunction`, its number, its arguments in `cuLaunchKernel`, and its code, which is `fill`.
//! Without a kernel, `cuMemsetD32Async` and copies fill a slot, too. If you change the PTX of a kernel in the
//! table, change its code here as well. A kernel in Vulkan's command buffer (`--handoff inline`) never writes
//! anything.
//!
//! `scripts/stand-in.sh PROGRAM` runs any program on the stand-in.

// The callers are the program and the Vulkan loader. They promise what the two APIs demand of every caller.
#![allow(unsafe_op_in_unsafe_fn, clippy::missing_safety_doc, clippy::too_many_arguments)]

pub mod cuda;
#[allow(non_snake_case)] // As in NVRTC.
pub mod nvrtc;
mod os;
pub mod script;
mod shared;
mod sparse;
pub mod vulkan;
