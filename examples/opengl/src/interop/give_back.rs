//! The end of the recipe: both sides finish, then GL, CUDA and Vulkan release everything, in that order.

use std::thread::sleep;
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use glow::HasContext;
use vulkan_cuda::cuda_advice;

use super::semaphore::Semaphore;
use super::{Buffer, Frames, Slot};

impl<S: Slot> Drop for Frames<'_, S> {
    fn drop(&mut self) {
        // Polls instead of waiting: if GL has failed, CUDA may wait for a signal that never comes.
        let begin = Instant::now();
        let cuda = loop {
            // SAFETY: a live stream.
            match unsafe { sys::cuStreamQuery(self.gpu.stream.cu_stream()) } {
                sys::CUresult::CUDA_ERROR_NOT_READY if begin.elapsed() < LIMIT => {
                    sleep(Duration::from_millis(1))
                }
                answer => break answer.result(),
            }
        };
        if let Err(error) = cuda {
            // After a fault CUDA signals nothing more, so GL would wait for ever.
            let faulted = error.0 != sys::CUresult::CUDA_ERROR_NOT_READY;
            // SAFETY: a broken context executes nothing more.
            let release = |(ready, _): &(Semaphore, Semaphore)| unsafe { ready.signal_from_host(self.frame) };
            if !(faulted && self.semaphores.iter().all(release)) {
                // Only the end of the process can end such a wait.
                eprintln!(
                    "error: CUDA and OpenGL did not finish their work: {error}{}",
                    cuda_advice("", error.0 as u32)
                );
                std::process::exit(1);
            }
        }
        self.gpu.gl.finish();
    }
}

/// The longest time for a frame.
const LIMIT: Duration = Duration::from_secs(10);

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: GL has finished with it, and nothing that was made from it is left.
        unsafe { self.context.raw.delete_buffer(self.gl) };
        self.context.delete_memory(self.memory);
    }
}
