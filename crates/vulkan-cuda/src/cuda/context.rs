//! The CUDA context that sharing uses.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cudarc::driver::{CudaContext, sys};

use super::api::{self, Code};
use super::driver::check;
use super::{CudaInfo, Driver, Stream};
use crate::error::cleanup_error;
use crate::{Error, Result};

/// A CUDA context: a device's primary context, or one that your program created. Cloning is cheap. Every
/// shared object holds a clone, so the context outlives every shared object.
///
/// # Examples
/// ```no_run
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use cudarc::driver::CudaContext;
/// use vulkan_cuda::Cuda;
///
/// let context = CudaContext::new(0)?;
/// let cuda = Cuda::from_cudarc(&context)?;
/// println!("{} ({})", cuda.info().name, cuda.info().uuid);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Cuda(Arc<Context>);

struct Context {
    raw: sys::CUcontext,
    info: CudaInfo,
    /// Whether a kernel is known to have faulted. After a fault, every call returns the same error.
    faulted: Arc<AtomicBool>,
    /// CUDA's address of the 4 bytes that [`Cuda::guard`] writes, or 0 until they are allocated.
    guard: Mutex<sys::CUdeviceptr>,
    /// The device whose primary context this crate retained. `None` for an adopted context.
    retained: Option<sys::CUdevice>,
    /// Owns an adopted context.
    _keep: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: a CUDA context may be made current on any thread, and the driver API is thread-safe.
unsafe impl Send for Context {}
// SAFETY: as for `Send`. The fields that change are atomic or in a mutex.
unsafe impl Sync for Context {}

impl Cuda {
    /// Retains a device's primary context (`cuDevicePrimaryCtxRetain`), which CUDA's runtime, CuPy, Numba and
    /// PyTorch also use. Afterwards the context is current on this thread: see [`Cuda::bind`].
    ///
    /// # Errors
    /// Fails if `info` is not what the driver reports for this device.
    pub fn primary(_driver: Driver, info: &CudaInfo) -> Result<Self> {
        // The fields of `info` are public, so they may be made up: compare them with the driver's answer.
        let found = CudaInfo::query(info.ordinal)?;
        if found != *info {
            return Err(Error::Rule(format!(
                "CUDA's device {} is {} ({}), not {} ({}) as described: pass what Driver::devices returned",
                info.ordinal, found.name, found.uuid, info.name, info.uuid
            )));
        }
        let device = CudaInfo::device(info.ordinal, &info.name)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle.
        check("cuDevicePrimaryCtxRetain", &info.name, unsafe {
            api::cuDevicePrimaryCtxRetain(&mut raw, device)
        })?;
        let (faulted, guard, retained) = (fault_of(info.ordinal), Mutex::default(), Some(device));
        let cuda = Self(Arc::new(Context { raw, info: found, faulted, guard, retained, _keep: None }));
        cuda.bind()?;
        Ok(cuda)
    }

    /// Adopts a context, which this crate never destroys: `keep` owns it, and is dropped after all objects
    /// that use the context. Makes the context current on this thread, even if a later step fails. Fails if
    /// the driver is missing or too old.
    ///
    /// # Safety
    /// `context` must live until `keep` is dropped.
    pub unsafe fn from_raw(context: sys::CUcontext, keep: Arc<dyn Any + Send + Sync>) -> Result<Self> {
        let driver = Driver::load_without_cudarc()?;
        let whose = "the given CUDA context";
        // SAFETY: a live context (the caller's promise).
        check("cuCtxSetCurrent", whose, unsafe { api::cuCtxSetCurrent(context) })?;
        let mut device = 0;
        // SAFETY: writes one handle; a context is current.
        check("cuCtxGetDevice", whose, unsafe { api::cuCtxGetDevice(&mut device) })?;
        for info in driver.devices()? {
            if CudaInfo::device(info.ordinal, &info.name)? == device {
                let (faulted, guard, _keep) = (Arc::default(), Mutex::default(), Some(keep));
                let context = Context { raw: context, info, faulted, guard, retained: None, _keep };
                return Ok(Self(Arc::new(context)));
            }
        }
        Err(Error::DeviceLacks(format!("{whose} is of device {device}, which cuDeviceGet does not list")))
    }

    /// Adopts cudarc's context, like [`Cuda::from_raw`]. Also fails as [`Driver::load`] does.
    pub fn from_cudarc(context: &Arc<CudaContext>) -> Result<Self> {
        Driver::load()?;
        // SAFETY: cudarc's context lives until the last clone of the `Arc` is dropped.
        unsafe { Self::from_raw(context.cu_ctx(), context.clone()) }
    }

    /// Returns what CUDA reports about the context's device.
    pub fn info(&self) -> &CudaInfo {
        &self.0.info
    }

    /// Returns CUDA's handle of the context. It is valid while `self` or a clone lives. Do not destroy it.
    pub fn raw(&self) -> sys::CUcontext {
        self.0.raw
    }

    /// Returns the free and the total device memory in bytes. Other processes also change the free amount.
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two sizes; the context is current.
        self.check("cuMemGetInfo", unsafe { api::cuMemGetInfo(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Makes this context current on the calling thread (`cuCtxSetCurrent`). Cheap if it is current already.
    ///
    /// The context stays current afterwards. Every function of this crate that calls CUDA may do this, and so
    /// does cudarc. If your thread also uses another context, make that one current again.
    pub fn bind(&self) -> Result<()> {
        // SAFETY: `self` keeps the context alive.
        self.check("cuCtxSetCurrent", unsafe { api::cuCtxSetCurrent(self.0.raw) })
    }

    /// Fails if `other` is another context. Use it before a call that needs all its objects in one context,
    /// because mixing contexts is undefined behaviour. `call` is the call's name, for the error.
    pub fn require_same(&self, other: sys::CUcontext, call: &str) -> Result<()> {
        if self.0.raw == other {
            return Ok(());
        }
        Err(Error::Rule(format!(
            "{call} takes objects of one CUDA context, here that of {}, but was given one of another context",
            self.info().name
        )))
    }

    /// Fails for a stream of another context, and for the per-thread default stream (`CU_STREAM_PER_THREAD`),
    /// which is a different stream on each thread: work from two threads would not run in order.
    #[doc(hidden)]
    pub fn require_stream(&self, stream: &dyn Stream, call: &str) -> Result<()> {
        if stream.raw().addr() == CU_STREAM_PER_THREAD {
            return Err(Error::Rule(format!(
                "{call} was given the per-thread default stream: create a stream of your own"
            )));
        }
        self.require_same(stream.context(), call)
    }

    /// Fails as [`Cuda::require_stream`] does, and if the stream is being captured into a graph. A captured
    /// signal happens only when the graph is launched: without a launch, Vulkan would wait forever, and a
    /// second launch would signal the same value again. Makes the context current.
    pub(crate) fn require_uncaptured(&self, stream: &dyn Stream, call: &'static str) -> Result<()> {
        self.require_stream(stream, call)?;
        let mut status = 0;
        self.bind()?;
        // SAFETY: a live stream (by the contract of `Stream`) of the current context; writes one number.
        self.check("cuStreamIsCapturing", unsafe { api::cuStreamIsCapturing(stream.raw(), &mut status) })?;
        match status {
            NOT_CAPTURED => Ok(()),
            _ => Err(Error::Rule(format!(
                "{call} was given a stream that is being captured into a graph: end the capture first"
            ))),
        }
    }

    /// Allocates the 4 bytes for [`Cuda::guard`], unless that is already done. The context must be current.
    pub(crate) fn prepare_guard(&self) -> Result<()> {
        match &mut *self.guard_word() {
            // SAFETY: writes one address; the context is current.
            word @ 0 => self.check("cuMemAlloc", unsafe { api::cuMemAlloc(word, 4) }),
            _ => Ok(()),
        }
    }

    /// Enqueues a guard: a write to 4 bytes that belong to the context. Earlier work on the stream finishes
    /// before later work begins, because `cuStreamWriteValue32` puts a memory barrier before its write.
    ///
    /// # Safety
    /// - The stream must belong to this context, and must pass the guard before the context is dropped.
    /// - The context must be current, and [`Cuda::prepare_guard`] must have succeeded.
    pub(crate) unsafe fn guard(&self, stream: &dyn Stream) -> Result<()> {
        let word = *self.guard_word();
        // SAFETY: `word` is allocated, and lives until the context is dropped. The caller promises the rest.
        self.check("cuStreamWriteValue32", unsafe { api::cuStreamWriteValue32(stream.raw(), word, 0, 0) })
    }

    fn guard_word(&self) -> MutexGuard<'_, sys::CUdeviceptr> {
        self.0.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a call of this crate has reported that a kernel faulted in this context. After a
    /// fault, every call fails. Faults are the errors that leave a process "in an inconsistent state"
    /// (`CUresult`).
    pub fn has_faulted(&self) -> bool {
        self.0.faulted.load(Ordering::Relaxed)
    }

    /// Returns an error that names the call and this device, unless `code` means success. Also notes a fault
    /// for [`Cuda::has_faulted`].
    #[doc(hidden)]
    pub fn check(&self, call: &'static str, code: Code) -> Result<()> {
        // `code` may come from another context, or be made up. So ask this context, which repeats its fault
        // in every call: after a fault, this crate frees memory without waiting for the GPU.
        let ask = || {
            let (mut free, mut total) = (0, 0);
            // SAFETY: `self` keeps the context alive; writes two sizes.
            unsafe {
                match api::cuCtxSetCurrent(self.0.raw) {
                    Code::SUCCESS => api::cuMemGetInfo(&mut free, &mut total),
                    code => code,
                }
            }
        };
        if is_sticky(code.0) && is_sticky(ask().0) {
            self.0.faulted.store(true, Ordering::Relaxed);
        }
        check(call, &self.info().name, code)
    }

    /// Calls `release` with the context current, and reports errors to [`crate::on_cleanup_error`].
    #[doc(hidden)]
    pub fn cleanup(&self, call: &'static str, release: impl FnOnce() -> Code) {
        let known = self.has_faulted();
        let released = self.bind().and_then(|()| self.check(call, release()));
        // After a fault, every call returns the same error. An earlier call has reported it.
        if let (Err(error), false) = (released, known) {
            cleanup_error(&error);
        }
    }
}

const CU_STREAM_PER_THREAD: usize = 2;
/// `CU_STREAM_CAPTURE_STATUS_NONE`.
const NOT_CAPTURED: u32 = 0;

impl Drop for Context {
    fn drop(&mut self) {
        let known = self.faulted.load(Ordering::Relaxed);
        let report = |call, code| {
            if let (Err(error), false) = (check(call, &self.info.name, code), known) {
                cleanup_error(&error);
            }
        };
        let word = *self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        if word != 0 {
            // SAFETY: the context is alive. No stream will write the word: each guard comes before a signal
            // of a semaphore, and the code that enqueued it promised to keep the semaphore, which keeps this
            // context, until the stream has passed the signal.
            let code = unsafe {
                match api::cuCtxSetCurrent(self.raw) {
                    Code::SUCCESS => api::cuMemFree(word),
                    code => code,
                }
            };
            report("cuMemFree", code);
        }
        if let Some(device) = self.retained {
            // SAFETY: retained once, in `Cuda::primary`, released once. No object uses the context any more.
            report("cuDevicePrimaryCtxRelease", unsafe { api::cuDevicePrimaryCtxRelease(device) });
        }
    }
}

/// Returns the flag that says whether a device's primary context has faulted. All [`Cuda`] values that
/// retained this context share the flag, which is dropped with the last of them.
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

/// Returns whether an error code means a fault. A fault makes the context unusable: every later call fails.
#[doc(hidden)]
pub fn is_sticky(code: u32) -> bool {
    matches!(code, 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::mem::ManuallyDrop;

    use super::*;
    use crate::identity::DeviceUuid;

    /// A stream that refers to nothing.
    pub(crate) struct UnrealStream {
        raw: usize,
        context: sys::CUcontext,
    }

    // SAFETY: it is never dereferenced.
    unsafe impl Send for UnrealStream {}
    // SAFETY: as above.
    unsafe impl Sync for UnrealStream {}

    // SAFETY: it never reaches the driver. Its tests check exactly that.
    unsafe impl Stream for UnrealStream {
        fn raw(&self) -> sys::CUstream {
            std::ptr::without_provenance_mut(self.raw)
        }

        fn context(&self) -> sys::CUcontext {
            self.context
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

    /// A context and a stream that refer to nothing, to test requests that must be refused before CUDA is
    /// called. They are never dropped, because that would call CUDA.
    pub(crate) fn unreal(number: u8) -> ManuallyDrop<(Cuda, UnrealStream)> {
        let info = cuda_device(number.into(), number);
        let raw = std::ptr::without_provenance_mut(usize::from(number));
        let (faulted, guard) = (Arc::default(), Mutex::default());
        let cuda = Cuda(Arc::new(Context { raw, info, faulted, guard, retained: None, _keep: None }));
        ManuallyDrop::new((cuda, UnrealStream { raw: 0, context: raw }))
    }

    /// A context's per-thread default stream.
    pub(crate) fn per_thread(cuda: &Cuda) -> UnrealStream {
        UnrealStream { raw: CU_STREAM_PER_THREAD, context: cuda.raw() }
    }

    #[test]
    fn objects_of_two_contexts_are_not_mixed() {
        let [ours, theirs] = [1, 2].map(unreal);
        let text = ours.0.require_same(theirs.0.raw(), "cuEventRecord").unwrap_err().to_string();
        assert!(text.starts_with("cuEventRecord takes objects of one CUDA context"), "{text}");
        assert!(ours.0.require_same(Stream::context(&ours.1), "cuEventRecord").is_ok());
    }

    #[test]
    fn a_stream_that_differs_by_thread_is_refused() {
        let [ours, theirs] = [1, 2].map(unreal);
        for (words, stream) in
            [("per-thread default stream", &per_thread(&ours.0)), ("one CUDA context", &theirs.1)]
        {
            let text = ours.0.require_stream(stream, "cuMemcpy2DAsync").unwrap_err().to_string();
            assert!(text.contains("cuMemcpy2DAsync") && text.contains(words), "{text}");
        }
        assert!(ours.0.require_stream(&ours.1, "cuMemcpy2DAsync").is_ok());
    }
}
