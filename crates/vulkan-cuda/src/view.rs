//! A slot's bytes, for cudarc's launches and copies.

use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::AnyBitPattern;
use cudarc::driver::{
    CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, LaunchArgs, PushKernelArg, SyncOnDrop, result, sys,
};

use crate::cuda::Stream;
use crate::error::cleanup_error;
use crate::hand_over::RingCore;
use crate::slot::{Resource, Slot};
use crate::{Error, Result};

/// The elements of a slot while CUDA owns it. If the ring's stream is cudarc's, pass the view to a launch
/// (`launch.arg(&mut view)`, or `&view` if the kernel only reads) or to a copy (`stream.memcpy_htod`).
///
/// Use the view on the ring's stream. A copy or memset of cudarc on another stream waits for the ring's
/// stream, and blocks the CPU until it is done. A launch on another stream is not ordered with the ring's.
/// cudarc panics if a copy's source is longer than the view.
///
/// A copy *from* the view on a stream of another context fails with `CUDA_ERROR_INVALID_VALUE`, because
/// cudarc offers no way to wait for that copy: copy on the ring's stream first, and then between the
/// contexts. A copy on a stream that is being captured fails too. Other bindings can use
/// [`address`](SlotView::address).
pub struct SlotView<'a, T, C = Arc<CudaStream>> {
    address: sys::CUdeviceptr,
    len: usize,
    stream: &'a C,
    elements: PhantomData<&'a mut [T]>,
}

impl<'a, T: AnyBitPattern, C: Stream> SlotView<'a, T, C> {
    /// Fails as [`crate::CudaTurn::view`] does: work on a stream that is being captured goes into its graph.
    pub(crate) fn new<S: Slot>(core: &'a RingCore<S, C>, slot: &S) -> Result<Self> {
        let (resource, stream) = (slot.resource(), &core.owned.stream);
        core.owned.pair.cuda().require_uncaptured(stream, "view")?;
        let refused = |why: String| {
            Error::Rule(format!("a slot cannot be viewed as {}: {why}", std::any::type_name::<T>()))
        };
        let Resource::Buffer { bytes: Some((address, size)), .. } = resource else {
            return Err(refused("it is no buffer with an address of CUDA".into()));
        };
        let (one, align) = (size_of::<T>() as u64, align_of::<T>() as u64);
        if one == 0 || !size.is_multiple_of(one) || !address.is_multiple_of(align) {
            return Err(refused(format!(
                "{size} bytes at {address:#x} are not a whole number of elements of {one} bytes, aligned to {align}"
            )));
        }
        Ok(Self { address, len: (size / one) as usize, stream, elements: PhantomData })
    }
}

impl<T, C> SlotView<'_, T, C> {
    /// Returns the address of the first element, for bindings other than cudarc.
    pub fn address(&self) -> sys::CUdeviceptr {
        self.address
    }

    /// Returns the number of elements.
    #[allow(clippy::len_without_is_empty)] // A shared buffer has at least one byte.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl<T> DeviceSlice<T> for SlotView<'_, T> {
    fn len(&self) -> usize {
        self.len
    }

    fn stream(&self) -> &Arc<CudaStream> {
        self.stream
    }
}

impl<T> SlotView<'_, T> {
    /// Returns the address for work on `stream`, and a guard that makes later work on the ring's stream
    /// follow that work. Returns a null address, which the driver refuses, if the work cannot be ordered.
    fn on<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        let none = Ok(sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE);
        if [self.stream, stream].iter().any(|stream| stream.capture_status() != none) {
            return refuse("a stream is being captured");
        }
        // Compares the contexts too, because the default streams of all contexts have the same handle.
        if *stream == **self.stream {
            return (self.address, SyncOnDrop::Record(None));
        }
        // The other stream waits for the ring's stream. The guard's drop waits for the other stream.
        match stream.join(self.stream) {
            Ok(()) => (self.address, SyncOnDrop::sync_stream(stream)),
            Err(error) => refuse(&format!("another stream cannot wait for the ring's: {error}")),
        }
    }
}

/// Reports, as a cleanup error, why cudarc's call is about to fail: cudarc can return only the driver's
/// error. Returns null, and a guard that does nothing.
fn refuse(why: &str) -> (sys::CUdeviceptr, SyncOnDrop<'static>) {
    cleanup_error(&Error::Rule(format!(
        "a view of a slot was refused: {why}; copy on the ring's stream first"
    )));
    (0, SyncOnDrop::Record(None))
}

impl<T> DevicePtr<T> for SlotView<'_, T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        // For a copy to another context, cudarc binds that context and asks for the address on the ring's
        // stream, but then copies on a stream that it does not pass here.
        let another = |current: sys::CUcontext| current != stream.context().cu_ctx();
        if *stream == **self.stream
            && result::ctx::get_current().is_ok_and(|current| current.is_some_and(another))
        {
            return refuse("a stream of another context cannot copy it");
        }
        self.on(stream)
    }
}

impl<T> DevicePtrMut<T> for SlotView<'_, T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.on(stream)
    }
}

// SAFETY: the kernel's parameter is the address, which lives as long as the view.
unsafe impl<'a, 'b: 'a, T, C> PushKernelArg<&'b SlotView<'_, T, C>> for LaunchArgs<'a> {
    fn arg(&mut self, view: &'b SlotView<'_, T, C>) -> &mut Self {
        self.arg(&view.address)
    }
}

// SAFETY: as above.
unsafe impl<'a, 'b: 'a, T, C> PushKernelArg<&'b mut SlotView<'_, T, C>> for LaunchArgs<'a> {
    fn arg(&mut self, view: &'b mut SlotView<'_, T, C>) -> &mut Self {
        self.arg(&view.address)
    }
}
