//! What may spoil a process, tried in a process of its own: kernels that clients send or that are reloaded, and memory that clients
//! bring.
//!
//! After a fault CUDA does not come back inside a process, and a kernel that never ends cannot be taken back at all. A descriptor
//! that Vulkan refuses may cost the process every later import ([`vulkan_cuda::cuda_memory`]). So the
//! renderer starts its own program once more (`wavefield try-kernel`, `wavefield try-import`): whatever happens there ends with
//! that process. What the two have in common is in `child`; each has both of its sides in its own file, `kernel` and `import`.
//!
//! What passes between the two:
//!
//! | the child's | is |
//! |---|---|
//! | standard input | a file in memory with the PTX; or a socket with one packet that brings the descriptors |
//! | standard output | a pipe: one line, as soon as what may hang is about to begin |
//! | standard error | a pipe: why it failed, in words |
//! | exit code | 0: it went well; 1: it did not |
//! | environment | the renderer's own, so that both see the same libraries and devices |
//!
//! Nothing else is inherited. The child ends with the thread that waits for it, and so with the renderer, however that ends.

mod child;
mod import;
mod kernel;

pub use child::end_with_parent;
pub(crate) use import::ImportTrial;
pub use import::try_import;
pub(crate) use kernel::Trial;
pub use kernel::try_kernel;
