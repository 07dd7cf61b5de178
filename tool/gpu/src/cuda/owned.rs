use std::mem::MaybeUninit;

use cudarc::driver::sys;
use vulkan_cuda::Result;

use super::Cuda;
use super::api::{self, Code};

/// Destroys its handle when dropped. A stream or an event may have pending work, which still completes. For
/// any other handle, wait until the streams that used it are idle before you drop it.
pub(super) struct AutoDestroy<T: Destroy> {
    pub(super) raw: T,
    pub(super) context: Cuda,
}

// SAFETY: the driver API is thread-safe, and every use binds the context first.
unsafe impl<T: Destroy> Send for AutoDestroy<T> {}
// SAFETY: as above.
unsafe impl<T: Destroy> Sync for AutoDestroy<T> {}

impl<T: Destroy> AutoDestroy<T> {
    /// Makes the context current and calls `create`, which writes the new handle.
    pub(super) fn new(
        context: &Cuda,
        call: &'static str,
        create: impl FnOnce(*mut T) -> Code,
    ) -> Result<Self> {
        let mut raw = MaybeUninit::zeroed();
        call_in(context, call, || create(raw.as_mut_ptr()))?;
        // SAFETY: a handle is a pointer or an address, for which zero is also a valid value.
        Ok(Self { raw: unsafe { raw.assume_init() }, context: context.clone() })
    }
}

impl<T: Destroy> Drop for AutoDestroy<T> {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed only here, and not in use, as the type demands.
        unsafe { self.raw.destroy(&self.context) };
    }
}

/// Makes the context current, calls `call`, and checks its result. `name` is for the error.
pub(super) fn call_in(context: &Cuda, name: &'static str, call: impl FnOnce() -> Code) -> Result<()> {
    context.bind()?;
    context.check(name, call())
}

pub(super) trait Destroy: Copy {
    /// # Safety
    /// The caller must keep the rules of the CUDA function that destroys this kind of handle.
    unsafe fn destroy(self, context: &Cuda);
}

macro_rules! destroyed {
    ($($handle:ident by $destroy:ident,)*) => {
        $(impl Destroy for sys::$handle {
            unsafe fn destroy(self, context: &Cuda) {
                // SAFETY: the caller keeps the rules of this call.
                context.cleanup(stringify!($destroy), || unsafe { api::$destroy(self) });
            }
        })*
    };
}

destroyed! {
    CUdeviceptr by cuMemFree,
    CUevent by cuEventDestroy,
    CUlinkState by cuLinkDestroy,
    CUmipmappedArray by cuMipmappedArrayDestroy,
    CUmodule by cuModuleUnload,
    CUstream by cuStreamDestroy,
}
