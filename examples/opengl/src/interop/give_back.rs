//! The recipe's end: both sides come to rest, then GL, CUDA and Vulkan let go, in that order.

use std::thread::sleep;
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use glow::HasContext;
use vulkan_cuda::cuda_advice;

use super::semaphore::Semaphore;
use super::{Buffer, Frames, Slot};

impl<S: Slot> Drop for Frames<'_, S> {
    fn drop(&mut self) {
        // Asked again and again, not waited for: if GL has failed, nobody signals what CUDA waits for.
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
            // After a fault CUDA signals nothing more, and GL would wait for ever.
            let faulted = error.0 != sys::CUresult::CUDA_ERROR_NOT_READY;
            // SAFETY: a broken context executes nothing more.
            let release = |(ready, _): &(Semaphore, Semaphore)| unsafe { ready.signal_from_host(self.frame) };
            if !(faulted && self.semaphores.iter().all(release)) {
                // Only the end of the process ends such a wait.
                eprintln!(
                    "error: CUDA and OpenGL do not come to rest: {error}{}",
                    cuda_advice("", error.0 as u32)
                );
                std::process::exit(1);
            }
        }
        self.gpu.gl.finish();
    }
}

/// What a frame may take.
const LIMIT: Duration = Duration::from_secs(10);

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: GL is done with it, and nothing is made of it any more.
        unsafe { self.context.raw.delete_buffer(self.gl) };
        self.context.delete_memory(self.memory);
    }
}
