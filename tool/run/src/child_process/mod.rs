//! Tries dangerous work in a child process first: reloaded kernels, and memory from clients.
//!
//! A fault makes CUDA unusable in its process, and a kernel that never ends cannot be stopped. A descriptor
//! that Vulkan refuses may make every later import in the process fail ([`vulkan_cuda::cuda_memory`]). So the
//! renderer starts its own program again (`wavefield try-kernel`, `wavefield try-import`), and the damage
//! ends with that process. `kernel` and `import` each contain both sides of their trial.
//!
//! The interface between the renderer and the child:
//!
//! | the child's | is |
//! |---|---|
//! | standard input | a file in memory with the PTX, or a socket with one packet of descriptors |
//! | standard output | a pipe for one line, which the child writes just before the step that may hang |
//! | standard error | a pipe for the reason of a failure |
//! | exit code | 0 after success, 1 after a failure |
//! | environment | the renderer's, so that both see the same libraries and devices |
//!
//! The child inherits nothing else. It is killed when the thread that waits for it ends.

mod child;
mod import;
mod kernel;

/// The path of this program. It stays valid even if the file is replaced or deleted.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

pub use child::end_with_parent;
pub use import::{ImportTrial, try_import};
pub use kernel::{Trial, try_kernel};
