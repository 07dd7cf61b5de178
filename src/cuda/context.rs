//! The device's primary context, streams and events.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::sys;

use super::api::{self, Code};
use super::driver::{check, require};
use super::{DeviceInfo, Driver};
use crate::{Error, Result};

/// A device's primary context: the one that CUDA's runtime, CuPy, Numba and PyTorch share in a process. Retained while
/// this lives.
pub struct Context {
    raw: sys::CUcontext,
    device: sys::CUdevice,
    info: DeviceInfo,
    /// A kernel faulted: from then on every call answers with the same error.
    faulted: Arc<AtomicBool>,
}

// SAFETY: a CUDA context may be made current on any thread, and the driver API is thread-safe.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the primary context of `info`'s device. The [`Driver`] is the proof that calls may be made.
    pub fn new(_driver: Driver, info: &DeviceInfo) -> Result<Arc<Self>> {
        let _span = tracing::trace_span!("CUDA context").entered();
        let mut device = 0;
        // SAFETY: writes one handle.
        check("cuDeviceGet", &info.name, unsafe { api::cuDeviceGet(&mut device, info.ordinal) })?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle.
        check("cuDevicePrimaryCtxRetain", &info.name, unsafe {
            api::cuDevicePrimaryCtxRetain(&mut raw, device)
        })?;
        let faulted = fault_of(info.ordinal);
        let context = Arc::new(Self { raw, device, info: info.clone(), faulted });
        context.bind()?;
        Ok(context)
    }

    /// Bytes of device memory that are free, and all that there are, as other processes leave them.
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two sizes; the context is current.
        self.check("cuMemGetInfo", unsafe { api::cuMemGetInfo(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// The device it belongs to.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Makes it the calling thread's current context, which every call below needs. Cheap when it already is.
    pub fn bind(&self) -> Result<()> {
        // SAFETY: the context is retained.
        self.check("cuCtxSetCurrent", unsafe { api::cuCtxSetCurrent(self.raw) })
    }

    /// For calls that take objects of one context only: what they do with another's is undefined.
    ///
    /// # Errors
    /// `other` is not this context.
    pub(crate) fn require_same(&self, other: &Self, call: &str) -> Result<()> {
        if self.raw == other.raw {
            return Ok(());
        }
        Err(Error::Rule(format!(
            "{call} takes objects of one CUDA context, and was given one of {} and one of {}",
            self.info.name, other.info.name
        )))
    }

    /// Whether a kernel has faulted in it, as far as any call has shown: then every call from now on fails, and nothing more
    /// can be learnt from this context.
    pub fn has_faulted(&self) -> bool {
        self.faulted.load(Ordering::Relaxed)
    }

    /// Names this device in the error of a call.
    pub(crate) fn check(&self, call: &'static str, code: Code) -> Result<()> {
        if is_sticky(code.0) {
            self.faulted.store(true, Ordering::Relaxed);
        }
        check(call, &self.info.name, code)
    }

    /// For `Drop`: binds, calls, and says on stderr what went wrong, because nothing can be returned.
    pub(crate) fn cleanup(&self, call: &'static str, release: impl FnOnce() -> Code) {
        self.say(|| self.bind().and_then(|()| self.check(call, release())));
    }

    /// Says what is wrong with a release. After a fault every call repeats it, and that was reported when it was met first.
    fn say(&self, release: impl FnOnce() -> Result<()>) {
        let known = self.faulted.load(Ordering::Relaxed);
        if let (Err(error), false) = (release(), known) {
            crate::report::cleanup_error(&error);
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.say(|| {
            // SAFETY: retained once, released once; every object of the context holds an Arc of it.
            let code = unsafe { api::cuDevicePrimaryCtxRelease(self.device) };
            self.check("cuDevicePrimaryCtxRelease", code)
        });
    }
}

/// Whether a device's primary context has faulted: of every [`Context`] of the device the same, since they stand for the same
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
pub(crate) fn is_sticky(code: u32) -> bool {
    matches!(code, 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721)
}

/// How urgent a stream's work is beside that of other streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Priority {
    /// What CUDA gives a stream that asks for nothing.
    #[default]
    Usual,
    /// The most urgent that the device has.
    Highest,
}

/// A queue of CUDA work, in order.
pub struct Stream {
    raw: sys::CUstream,
    context: Arc<Context>,
}

// SAFETY: the driver API is thread-safe, and every use binds the context first.
unsafe impl Send for Stream {}

impl Stream {
    /// A stream that does not wait for the legacy default stream.
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle; the context is current.
        context.check("cuStreamCreate", unsafe {
            api::cuStreamCreate(&mut raw, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32)
        })?;
        Ok(Self { raw, context: context.clone() })
    }

    /// The same with a priority.
    pub fn with_priority(context: &Arc<Context>, priority: Priority) -> Result<Self> {
        if priority == Priority::Usual {
            return Self::new(context);
        }
        require(&["cuCtxGetStreamPriorityRange", "cuStreamCreateWithPriority"], "CUDA 5.5")?;
        context.bind()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: writes two integers; the context is current.
        context.check("cuCtxGetStreamPriorityRange", unsafe {
            api::cuCtxGetStreamPriorityRange(&mut least, &mut greatest)
        })?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: writes one handle; the context is current.
        context.check("cuStreamCreateWithPriority", unsafe {
            api::cuStreamCreateWithPriority(&mut raw, flags, greatest)
        })?;
        Ok(Self { raw, context: context.clone() })
    }

    /// The raw handle.
    pub fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// The context that it belongs to.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Whether everything enqueued is done; does not wait. An error is what a kernel did wrong.
    pub fn is_idle(&self) -> Result<bool> {
        self.context.bind()?;
        // SAFETY: a live stream of the current context.
        match unsafe { api::cuStreamQuery(self.raw) } {
            Code::NOT_READY => Ok(false),
            code => self.context.check("cuStreamQuery", code).map(|()| true),
        }
    }

    /// Blocks the CPU until everything enqueued is done, and reports what a kernel did wrong.
    pub fn synchronize(&self) -> Result<()> {
        self.context.bind()?;
        // SAFETY: a live stream of the current context.
        self.context.check("cuStreamSynchronize", unsafe { api::cuStreamSynchronize(self.raw) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: created above; destroying a stream with work left is allowed, the work goes on.
        self.context.cleanup("cuStreamDestroy", || unsafe { api::cuStreamDestroy(self.raw) });
    }
}

/// A mark in a stream, with a time.
pub struct Event {
    raw: sys::CUevent,
    context: Arc<Context>,
}

// SAFETY: as for `Stream`.
unsafe impl Send for Event {}

impl Event {
    /// An event that keeps time.
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle; the context is current.
        context.check("cuEventCreate", unsafe {
            api::cuEventCreate(&mut raw, sys::CUevent_flags::CU_EVENT_DEFAULT as u32)
        })?;
        Ok(Self { raw, context: context.clone() })
    }

    /// Marks the end of what is enqueued on `stream` so far.
    ///
    /// # Errors
    /// A stream of another context, before CUDA is asked.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.context.require_same(&stream.context, "cuEventRecord")?;
        self.context.bind()?;
        // SAFETY: event and stream are alive and of one context, checked above.
        self.context.check("cuEventRecord", unsafe { api::cuEventRecord(self.raw, stream.raw()) })
    }

    /// Whether everything before the mark is done (also if it was never recorded); does not wait.
    pub fn is_done(&self) -> Result<bool> {
        self.context.bind()?;
        // SAFETY: a live event of the current context.
        match unsafe { api::cuEventQuery(self.raw) } {
            Code::NOT_READY => Ok(false),
            code => self.context.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Milliseconds from `self` to `end`, both recorded; `None` while one of them is not reached.
    ///
    /// # Errors
    /// An event of another context, before CUDA is asked.
    pub fn elapsed_ms(&self, end: &Event) -> Result<Option<f32>> {
        self.context.require_same(&end.context, "cuEventElapsedTime")?;
        self.context.bind()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive and of one context, checked above.
        match unsafe { api::cuEventElapsedTime(&mut milliseconds, self.raw, end.raw) } {
            Code::NOT_READY => Ok(None),
            code => self.context.check("cuEventElapsedTime", code).map(|()| Some(milliseconds)),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created above.
        self.context.cleanup("cuEventDestroy", || unsafe { api::cuEventDestroy(self.raw) });
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::mem::ManuallyDrop;

    use super::*;
    use crate::cuda::DeviceMemory;

    /// A context and a stream with nothing behind them, for what must be refused before CUDA is asked. They are never
    /// dropped, because that would ask it.
    pub(crate) fn unreal(number: u8) -> ManuallyDrop<(Arc<Context>, Stream)> {
        let info = DeviceInfo {
            ordinal: number.into(),
            name: format!("device {number}"),
            uuid: crate::interop::DeviceUuid([number; 16]),
            luid: None,
            compute_capability: (9, 0),
            timeline_interop: true,
        };
        let raw = std::ptr::without_provenance_mut(usize::from(number));
        let context = Arc::new(Context { raw, device: 0, info, faulted: Arc::default() });
        let stream = Stream { raw: std::ptr::null_mut(), context: context.clone() };
        ManuallyDrop::new((context, stream))
    }

    #[test]
    fn objects_of_two_contexts_are_not_mixed() {
        let [ours, theirs] = [1, 2].map(unreal);
        let event = |context: &Arc<Context>| {
            ManuallyDrop::new(Event { raw: std::ptr::null_mut(), context: context.clone() })
        };
        let memory = ManuallyDrop::new(DeviceMemory::unreal(&ours.0));
        for (call, answer) in [
            ("cuEventRecord", event(&ours.0).record(&theirs.1)),
            ("cuEventElapsedTime", event(&ours.0).elapsed_ms(&event(&theirs.0)).map(drop)),
            ("cuMemcpyHtoDAsync", memory.write(&theirs.1, &[0])),
            ("cuMemcpyDtoHAsync", memory.read(&theirs.1, &mut [0])),
        ] {
            let text = answer.unwrap_err().to_string();
            let wanted = format!(
                "{call} takes objects of one CUDA context, and was given one of device 1 and one of device 2"
            );
            assert_eq!(text, wanted);
        }
        assert!(ours.0.require_same(&ours.1.context, "cuEventRecord").is_ok());
    }
}
