//! A GPU that fails when it is told to: for tests only.
//!
//! One shared library that is three things. Found under the name `libcuda.so.1` it is a CUDA driver with one device whose
//! kernels run on the CPU ([`cuda`]), and as `libnvrtc.so.12` a compiler for it ([`nvrtc`]). Named in a manifest it is a Vulkan layer ([`vulkan`]) above a real driver, which
//! may be a software one. As driver and layer it lets the two share memory and semaphores as on a GPU, so that the whole program
//! runs where there is none.
//!
//! Each call of the program to either API can be made to fail, and at the end it is written down which calls there were
//! and what was not given back ([`script`]). The program knows nothing of it.
//!
//! | variable | meaning |
//! |---|---|
//! | `STAND_IN_FAIL` | `CALL:CODE[:NTH[:TIMES]]`, comma between several: the NTH call (from 1) and the TIMES - 1 after it answer CODE |
//! | `STAND_IN_BESIDE` | `CALL+CALL`: each of the two, made for the first time, waits for the other; it is an offence if that does not come within seconds |
//! | `STAND_IN_REPORT` | the file for what is written down at the end |
//! | `STAND_IN_PRETEND` | names, comma between: device extensions that the layer adds, as [`vulkan::PRETENDED`] lists them; and the feature `sparseBinding` |
//! | `STAND_IN_MEMORY` | bytes of device memory; more cannot be allocated |
//! | `STAND_IN_DRIVERS_MEMORY` | set: memory is handed out by the driver's own descriptors, which other APIs can import. They are not counted |
//! | `STAND_IN_CUDA_VERSION` | what `cuDriverGetVersion` says (default 12000) |
//! | `STAND_IN_KERNEL_MS` | how long each kernel takes at least |
//! | `STAND_IN_UUID` | the CUDA device's UUID, 32 hexadecimal digits and dashes: for processes that use no Vulkan |
//!
//! Without that variable the CUDA device has the UUID of the first Vulkan device that the layer sees, and whoever asks for it first
//! waits for Vulkan; without the layer it is all zeros.

// The callers are the program and the Vulkan loader, and what they promise is what the two APIs ask of every caller.
#![allow(unsafe_op_in_unsafe_fn, clippy::missing_safety_doc, clippy::too_many_arguments)]

pub mod cuda;
#[allow(non_snake_case)] // As in NVRTC.
pub mod nvrtc;
pub mod script;
mod shared;
mod sparse;
pub mod vulkan;
