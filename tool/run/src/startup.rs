//! Starts CUDA and Vulkan at the same time.
//!
//! Both start slowly and independently: a thread loads CUDA's driver while the caller makes Vulkan's
//! instance. Later a thread makes CUDA's context while the caller makes Vulkan's device.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use tracing::trace_span;

use super::{Choice, Config};
use wavefield_gpu::Result;
use wavefield_gpu::cuda::{Cuda, CudaInfo, Driver, load_driver};
use wavefield_gpu::vulkan::cuda_inside_vulkan;

/// Work on its own thread. Dropping this joins the thread: after a failed run, none is inside a driver.
struct Background<T> {
    work: Arc<dyn Fn() -> T + Send + Sync>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Background<T> {
    fn begin(name: &str, work: impl Fn() -> T + Send + Sync + 'static) -> Self {
        let work = Arc::new(work);
        let copy = work.clone();
        let thread = Builder::new().name(name.into()).spawn(move || copy());
        Self { work, thread: thread.ok() }
    }

    /// Waits for the result. If the thread could not start, or panicked, does the work on this thread.
    fn finish(mut self) -> T {
        let done = self.thread.take().and_then(|thread| thread.join().ok());
        done.unwrap_or_else(|| (self.work)())
    }
}

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A thread that loads CUDA's driver and lists its devices. Begin it before making Vulkan's instance.
pub struct DriverThread(Background<Result<(Driver, Vec<CudaInfo>)>>);

impl DriverThread {
    /// Starts the thread. From now on, the clean-up errors of `vulkan_cuda` are printed.
    pub fn begin() -> Self {
        vulkan_cuda::on_cleanup_error(|error| wavefield_gpu::report::cleanup_error(&error.clone().into()));
        Self(Background::begin("CUDA driver", || {
            let _span = trace_span!("CUDA driver").entered();
            let driver = load_driver()?;
            Ok((driver, driver.devices()?))
        }))
    }

    pub(crate) fn finish(self) -> Result<(Driver, Vec<CudaInfo>)> {
        let _span = trace_span!("wait for CUDA driver").entered();
        self.0.finish()
    }
}

/// A thread that makes the CUDA context of a run. Begin it before making Vulkan's device.
pub struct ContextThread(Option<Background<Result<Cuda>>>);

impl ContextThread {
    /// Starts the thread if the run may use CUDA. `inline`: the device will run kernels in command buffers.
    pub fn begin(choice: &Choice, config: &Config, inline: bool) -> Self {
        Self(choice.cuda.clone().filter(|_| config.producer.may_use_cuda()).map(|(driver, info)| {
            Background::begin("CUDA context", move || {
                // Such a device and the context must not be made at the same time: see `cuda_inside_vulkan`.
                let _alone = inline.then(cuda_inside_vulkan);
                let _span = trace_span!("CUDA context").entered();
                Ok(Cuda::primary(driver, &info)?)
            })
        }))
    }

    /// Waits for the context and makes it current on this thread. Returns `None` if the run needs none.
    pub(crate) fn finish(self) -> Result<Option<Cuda>> {
        let Some(context) = self.0 else { return Ok(None) };
        let context = trace_span!("wait for CUDA context").in_scope(|| context.finish())?;
        // So far, the context is current only on the thread that made it.
        context.bind()?;
        Ok(Some(context))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::sync::mpsc::channel;
    use std::thread::{ThreadId, current};
    use std::time::Duration;

    use super::*;

    fn this_thread() -> ThreadId {
        current().id()
    }

    #[test]
    fn the_work_is_done_beside_its_owner() {
        let (send, receive) = channel();
        let job = Background::begin("test", move || send.send(this_thread()));
        // The work is done before anyone asks for it.
        let there = receive.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_ne!(there, this_thread());
        assert_eq!(job.finish(), Ok(()));
    }

    #[test]
    fn without_a_thread_the_work_is_done_here() {
        let job = Background { work: Arc::new(this_thread), thread: None };
        assert_eq!(job.finish(), this_thread());
    }

    #[test]
    fn after_a_panic_of_the_thread_the_work_is_done_here() {
        let home = this_thread();
        let job = Background::begin("test", move || {
            assert_eq!(this_thread(), home, "this panic is part of the test");
            7
        });
        assert_eq!(job.finish(), 7);
    }

    #[test]
    fn dropped_it_waits_for_the_thread_and_does_nothing_twice() {
        static DONE: AtomicBool = AtomicBool::new(false);
        static TIMES: AtomicU32 = AtomicU32::new(0);
        drop(Background::begin("test", || {
            TIMES.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(20));
            DONE.store(true, Ordering::SeqCst);
        }));
        assert!(DONE.load(Ordering::SeqCst));
        assert_eq!(TIMES.load(Ordering::SeqCst), 1);
    }
}
