//! The recipe's end: both sides come to rest, then GL, CUDA and Vulkan let go, in that order.

use glow::HasContext;

use super::{Buffer, Frames, Slot};

impl<S: Slot> Drop for Frames<'_, S> {
    fn drop(&mut self) {
        let cuda = self.gpu.stream.synchronize();
        // After a fault CUDA signals nothing more, and GL would wait for ever.
        if let Err(error) = cuda {
            let released = self.semaphores.iter().all(|(ready, _)| ready.signal_for_cuda(self.frame));
            if !released {
                // Only the end of the process ends GL's wait for a binary semaphore.
                eprintln!("error: CUDA failed, and OpenGL waits for it: {error}");
                std::process::exit(1);
            }
        }
        self.gpu.gl.finish();
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: GL is done with it, and nothing is made of it any more.
        unsafe { self.context.raw.delete_buffer(self.gl) };
        self.context.delete_memory(self.memory);
    }
}
