//! The functions of `libcuda` that only the tool calls. For the others, see [`vulkan_cuda::cuda::api`].

use std::ffi::{c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::*;
use vulkan_cuda::cuda_functions;

pub use vulkan_cuda::cuda::api::{
    Code, cuDeviceGet, cuMemAlloc, cuMemFree, cuMipmappedArrayDestroy, cuStreamQuery,
};

cuda_functions! {
    cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice) = ["cuDeviceCanAccessPeer"];
    cuStreamCreate(stream: *mut CUstream, flags: c_uint) = ["cuStreamCreate"];
    cuStreamDestroy(stream: CUstream) = ["cuStreamDestroy_v2"];
    cuStreamSynchronize(stream: CUstream) = ["cuStreamSynchronize"];
    cuEventCreate(event: *mut CUevent, flags: c_uint) = ["cuEventCreate"];
    cuEventDestroy(event: CUevent) = ["cuEventDestroy_v2"];
    cuEventRecord(event: CUevent, stream: CUstream) = ["cuEventRecord"];
    cuEventQuery(event: CUevent) = ["cuEventQuery"];
    cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) = ["cuEventElapsedTime"];
    cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        count: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void
    ) = ["cuModuleLoadDataEx"];
    cuModuleUnload(module: CUmodule) = ["cuModuleUnload"];
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) = ["cuModuleGetFunction"];
    cuFuncGetAttribute(value: *mut c_int, which: CUfunction_attribute, function: CUfunction) = ["cuFuncGetAttribute"];
    cuLaunchKernel(
        function: CUfunction,
        blocks_x: c_uint,
        blocks_y: c_uint,
        blocks_z: c_uint,
        threads_x: c_uint,
        threads_y: c_uint,
        threads_z: c_uint,
        shared_bytes: c_uint,
        stream: CUstream,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void
    ) = ["cuLaunchKernel"];
    cuLinkCreate(
        count: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
        state: *mut CUlinkState
    ) = ["cuLinkCreate_v2"];
    cuLinkAddData(
        state: CUlinkState,
        kind: CUjitInputType,
        data: *mut c_void,
        size: usize,
        name: *const c_char,
        count: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void
    ) = ["cuLinkAddData_v2"];
    cuLinkComplete(state: CUlinkState, cubin: *mut *mut c_void, size: *mut usize) = ["cuLinkComplete"];
    cuLinkDestroy(state: CUlinkState) = ["cuLinkDestroy"];
    cuMemsetD32Async(target: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) = ["cuMemsetD32Async"];
    cuMemcpyDtoDAsync(to: CUdeviceptr, from: CUdeviceptr, size: usize, stream: CUstream) = ["cuMemcpyDtoDAsync_v2"];
    cuMemcpyDtoHAsync(to: *mut c_void, from: CUdeviceptr, size: usize, stream: CUstream) = ["cuMemcpyDtoHAsync_v2"];
    cuMipmappedArrayCreate(
        mipmap: *mut CUmipmappedArray,
        desc: *const CUDA_ARRAY3D_DESCRIPTOR,
        levels: c_uint
    ) = ["cuMipmappedArrayCreate"];
}
