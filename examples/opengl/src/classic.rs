//! `--classic`: the functions that CUDA has had for OpenGL since its first version. GL owns the buffer. CUDA registers
//! it once, and maps and unmaps it in every frame. Neither Vulkan nor semaphores are needed: map and unmap
//! order the two sides.

use std::ffi::c_uint;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use cudarc::driver::{CudaStream, sys};
use glow::HasContext;
use vulkan_cuda::cuda_advice;

use crate::gl::Gl;
use crate::interop::Gpu;

/// One of GL's buffers that CUDA may map.
pub struct Registered {
    pub gl: glow::Buffer,
    resource: sys::CUgraphicsResource,
    context: Rc<Gl>,
}

/// The kernel writes the whole buffer, so its earlier content need not be kept.
const WRITE_DISCARD: c_uint =
    sys::CUgraphicsRegisterFlags::CU_GRAPHICS_REGISTER_FLAGS_WRITE_DISCARD as c_uint;

type RegisterBuffer = unsafe extern "C" fn(*mut sys::CUgraphicsResource, u32, c_uint) -> sys::CUresult;

/// cudarc has all of the driver's functions except those for OpenGL.
fn register_buffer() -> Result<RegisterBuffer> {
    // SAFETY: the CUDA driver, which is open already.
    let library =
        unsafe { libloading::Library::new("libcuda.so.1") }.context("libcuda.so.1 could not be opened")?;
    // SAFETY: the function has this type in `cudaGL.h`.
    let function = unsafe { library.get::<RegisterBuffer>(b"cuGraphicsGLRegisterBuffer\0") };
    let function = *function.context("the CUDA driver has no cuGraphicsGLRegisterBuffer")?;
    // Keep the driver open.
    std::mem::forget(library);
    Ok(function)
}

/// Turns an error code into an error with the call and the device.
fn check(gl: &Gl, call: &str, code: sys::CUresult) -> Result<()> {
    code.result()
        .map_err(|error| anyhow!("{call} failed on {}: {error}{}", gl.name, cuda_advice(call, code as u32)))
}

impl Registered {
    pub fn new(gpu: &Gpu, size: u64) -> Result<Self> {
        let gl = &gpu.gl;
        gpu.vulkan.cuda.bind_to_thread()?;
        let mut resource = std::ptr::null_mut();
        // SAFETY: both contexts are current on this thread.
        unsafe {
            let buffer = gl.raw.create_named_buffer().map_err(anyhow::Error::msg)?;
            gl.raw.named_buffer_data_size(buffer, size as i32, glow::DYNAMIC_COPY);
            gl.check("glNamedBufferData")?;
            let code = register_buffer()?(&mut resource, buffer.0.get(), WRITE_DISCARD);
            check(gl, "cuGraphicsGLRegisterBuffer", code)?;
            Ok(Self { gl: buffer, resource, context: gl.clone() })
        }
    }

    /// `write` enqueues the work that writes the buffer, at its address in this frame. Before that the stream waits for
    /// GL's use of the buffer; afterwards GL waits for the stream.
    pub fn mapped(&self, stream: &Arc<CudaStream>, write: impl FnOnce(u64) -> Result<()>) -> Result<()> {
        let (mut resource, mut pointer, mut size) = (self.resource, 0, 0);
        let gl = &self.context;
        stream.context().bind_to_thread()?;
        // SAFETY: registered in `new`, not mapped, and unmapped below.
        unsafe {
            let code = sys::cuGraphicsMapResources(1, &mut resource, stream.cu_stream());
            check(gl, "cuGraphicsMapResources", code)?;
            let code = sys::cuGraphicsResourceGetMappedPointer_v2(&mut pointer, &mut size, resource);
            let found = check(gl, "cuGraphicsResourceGetMappedPointer", code);
            let written = found.and_then(|()| write(pointer));
            let code = sys::cuGraphicsUnmapResources(1, &mut resource, stream.cu_stream());
            written.and(check(gl, "cuGraphicsUnmapResources", code))
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: not mapped, and GL and CUDA have finished with it.
        unsafe {
            let _ = sys::cuGraphicsUnregisterResource(self.resource);
            self.context.raw.delete_buffer(self.gl);
        }
    }
}
