//! A CUDA context that sharing goes through.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::{CudaContext, sys};

use super::api::{self, Code};
use super::driver::{check, require};
use super::{CudaInfo, Driver, Stream};
use crate::error::cleanup_error;
use crate::{Error, Result};

/// A CUDA context: a device's primary one, or any that somebody else owns. Cloning is cheap; every shared object holds a clone,
/// so the context outlives them all.
#[derive(Clone)]
pub struct Cuda(Arc<Context>);

struct Context {
    raw: sys::CUcontext,
    info: CudaInfo,
    /// A kernel faulted: from then on every call answers with the same error.
    faulted: Arc<AtomicBool>,
    keep: Keep,
}

/// What keeps a context alive.
enum Keep {
    /// We retained the device's primary context.
    Retained(sys::CUdevice),
    /// Somebody else's.
    Theirs { _keep: Arc<dyn Any + Send + Sync> },
}

// SAFETY: a CUDA context may be made current on any thread, and the driver API is thread-safe.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Cuda {
    /// Retains a device's primary context, the one that CUDA's runtime, CuPy, Numba and PyTorch share in a process. The
    /// [`Driver`] is the proof that calls may be made.
    ///
    /// # Errors
    /// What the driver answers: 2 (`OUT_OF_MEMORY`), for example.
    pub fn primary(_driver: Driver, info: &CudaInfo) -> Result<Self> {
        let device = CudaInfo::device(info.ordinal, &info.name)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle.
        check("cuDevicePrimaryCtxRetain", &info.name, unsafe {
            api::cuDevicePrimaryCtxRetain(&mut raw, device)
        })?;
        let faulted = fault_of(info.ordinal);
        let keep = Keep::Retained(device);
        let cuda = Self(Arc::new(Context { raw, info: info.clone(), faulted, keep }));
        cuda.bind()?;
        Ok(cuda)
    }

    /// Adopts a context. It is never destroyed here; `keep` owns it, and is dropped after everything that was made from it.
    ///
    /// # Errors
    /// No driver, one too old, or what it answers.
    ///
    /// # Safety
    /// `context` lives until `keep` is dropped.
    pub unsafe fn from_raw(context: sys::CUcontext, keep: Arc<dyn Any + Send + Sync>) -> Result<Self> {
        let driver = Driver::load()?;
        require(&["cuCtxGetDevice"], "CUDA 2.0")?;
        let whose = "the given CUDA context";
        // SAFETY: a live context, the caller's promise.
        check("cuCtxSetCurrent", whose, unsafe { api::cuCtxSetCurrent(context) })?;
        let mut device = 0;
        // SAFETY: writes one handle; a context is current.
        check("cuCtxGetDevice", whose, unsafe { api::cuCtxGetDevice(&mut device) })?;
        for info in driver.devices()? {
            if CudaInfo::device(info.ordinal, &info.name)? == device {
                let keep = Keep::Theirs { _keep: keep };
                return Ok(Self(Arc::new(Context { raw: context, info, faulted: Arc::default(), keep })));
            }
        }
        Err(Error::Unsupported(format!("{whose} is of device {device}, which cuDeviceGet does not list")))
    }

    /// Adopts cudarc's context, and keeps it alive.
    ///
    /// # Errors
    /// As [`Cuda::from_raw`].
    pub fn from_cudarc(context: &Arc<CudaContext>) -> Result<Self> {
        // SAFETY: cudarc's context lives as long as the `Arc`.
        unsafe { Self::from_raw(context.cu_ctx(), context.clone()) }
    }

    /// The device it belongs to.
    pub fn info(&self) -> &CudaInfo {
        &self.0.info
    }

    /// CUDA's handle of that device.
    ///
    /// # Errors
    /// What the driver answers.
    pub(crate) fn device(&self) -> Result<sys::CUdevice> {
        CudaInfo::device(self.0.info.ordinal, &self.0.info.name)
    }

    /// CUDA's handle of the context, valid as long as `self` or a clone of it. Do not destroy it.
    pub fn raw(&self) -> sys::CUcontext {
        self.0.raw
    }

    /// Bytes of device memory that are free, and all that there are, as other processes leave them.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two sizes; the context is current.
        self.check("cuMemGetInfo", unsafe { api::cuMemGetInfo(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Makes it the calling thread's current context, and leaves it so. Every call of this crate does, as cudarc's do; a
    /// thread that uses another context too sets it again. Cheap when it already is current.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn bind(&self) -> Result<()> {
        // SAFETY: the context is alive.
        self.check("cuCtxSetCurrent", unsafe { api::cuCtxSetCurrent(self.0.raw) })
    }

    /// For calls that take objects of one context only: what they do with another's is undefined.
    ///
    /// # Errors
    /// `other` is not this context.
    pub fn require_same(&self, other: sys::CUcontext, call: &str) -> Result<()> {
        if self.0.raw == other {
            return Ok(());
        }
        Err(Error::Rule(format!(
            "{call} takes objects of one CUDA context, that of {} here, and was given one of another context",
            self.info().name
        )))
    }

    /// For calls that take a stream.
    ///
    /// # Errors
    /// A stream of another context, and the per-thread default stream (`CU_STREAM_PER_THREAD`): that is another one on each
    /// thread, so nothing that is enqueued on it from two threads is in order.
    pub(crate) fn require_stream(&self, stream: &dyn Stream, call: &str) -> Result<()> {
        if stream.raw().addr() == CU_STREAM_PER_THREAD {
            return Err(Error::Rule(format!(
                "{call} was given the per-thread default stream: make one of your own"
            )));
        }
        self.require_same(stream.context(), call)
    }

    /// Whether a kernel has faulted in it, as far as any call has shown: then every call from now on fails, and nothing more
    /// can be learnt from this context.
    pub fn has_faulted(&self) -> bool {
        self.0.faulted.load(Ordering::Relaxed)
    }

    /// Turns the answer of a driver call into an error that names the call and this device.
    ///
    /// # Errors
    /// Every answer but success.
    #[doc(hidden)]
    pub fn check(&self, call: &'static str, code: Code) -> Result<()> {
        if is_sticky(code.0) {
            self.0.faulted.store(true, Ordering::Relaxed);
        }
        check(call, &self.info().name, code)
    }

    /// For `Drop`: binds, calls, and reports what went wrong ([`crate::on_cleanup_error`]), because nothing can be returned.
    #[doc(hidden)]
    pub fn cleanup(&self, call: &'static str, release: impl FnOnce() -> Code) {
        let known = self.has_faulted();
        let released = self.bind().and_then(|()| self.check(call, release()));
        // After a fault every call repeats it, and that was reported when it was met first.
        if let (Err(error), false) = (released, known) {
            cleanup_error(&error);
        }
    }
}

const CU_STREAM_PER_THREAD: usize = 2;

impl Drop for Context {
    fn drop(&mut self) {
        let Keep::Retained(device) = self.keep else { return };
        let known = self.faulted.load(Ordering::Relaxed);
        // SAFETY: retained once, released once; every object of the context holds a clone of it.
        let code = unsafe { api::cuDevicePrimaryCtxRelease(device) };
        if let (Err(error), false) = (check("cuDevicePrimaryCtxRelease", &self.info.name, code), known) {
            cleanup_error(&error);
        }
    }
}

/// Whether a device's primary context has faulted: of every [`Cuda`] that retained it the same, since they stand for the same
/// one of CUDA's, and forgotten with the last of them.
fn fault_of(ordinal: i32) -> Arc<AtomicBool> {
    static FAULTS: Mutex<BTreeMap<i32, Weak<AtomicBool>>> = Mutex::new(BTreeMap::new());
    let mut faults = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = faults.entry(ordinal).or_default();
    known.upgrade().unwrap_or_else(|| {
        let faulted = Arc::default();
        *known = Arc::downgrade(&faulted);
        faulted
    })
}

/// Whether an error code leaves the context unusable: a fault of a kernel or of the device, after which every call
/// repeats it.
#[doc(hidden)]
pub fn is_sticky(code: u32) -> bool {
    matches!(code, 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::mem::ManuallyDrop;

    use super::*;
    use crate::identity::DeviceUuid;

    /// A stream with nothing behind it.
    pub(crate) struct UnrealStream(sys::CUcontext);

    // SAFETY: it is never dereferenced.
    unsafe impl Send for UnrealStream {}
    // SAFETY: as above.
    unsafe impl Sync for UnrealStream {}

    // SAFETY: it never reaches the driver, which is what its tests are about.
    unsafe impl Stream for UnrealStream {
        fn raw(&self) -> sys::CUstream {
            std::ptr::null_mut()
        }

        fn context(&self) -> sys::CUcontext {
            self.0
        }
    }

    pub(crate) fn cuda_device(ordinal: i32, uuid: u8) -> CudaInfo {
        CudaInfo {
            ordinal,
            name: format!("CUDA {uuid}"),
            uuid: DeviceUuid([uuid; 16]),
            luid: None,
            compute_capability: (9, 0),
            timeline_interop: true,
        }
    }

    /// A context and a stream with nothing behind them, for what must be refused before CUDA is asked. They are never
    /// dropped, because that would ask it.
    pub(crate) fn unreal(number: u8) -> ManuallyDrop<(Cuda, UnrealStream)> {
        let info = cuda_device(number.into(), number);
        let raw = std::ptr::without_provenance_mut(usize::from(number));
        let keep = Keep::Theirs { _keep: Arc::new(()) };
        let cuda = Cuda(Arc::new(Context { raw, info, faulted: Arc::default(), keep }));
        ManuallyDrop::new((cuda, UnrealStream(raw)))
    }

    #[test]
    fn objects_of_two_contexts_are_not_mixed() {
        let [ours, theirs] = [1, 2].map(unreal);
        let text = ours.0.require_same(theirs.0.raw(), "cuEventRecord").unwrap_err().to_string();
        assert!(text.starts_with("cuEventRecord takes objects of one CUDA context"), "{text}");
        assert!(ours.0.require_same(Stream::context(&ours.1), "cuEventRecord").is_ok());
    }
}
