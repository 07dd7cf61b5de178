//! The functions of `libcuda` that this crate calls. `cuda_functions` generates them from the table below.
//!
//! cudarc provides the types. This crate does not use cudarc's functions: they panic if `libcuda` lacks them,
//! and they return a Rust enum with the codes of one CUDA version. If a newer driver returns another code,
//! that is undefined behaviour. Here a missing function is an error, and a code is a number.

use std::ffi::{c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::*;

use crate::cuda_functions;

/// The result of a call: a `CUresult` as a number, because later versions of CUDA may add codes.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u32);

impl Code {
    pub const SUCCESS: Self = Self(0);
    /// `CUDA_ERROR_NOT_INITIALIZED`. The functions of this module also return it before [`look_up`] succeeds.
    pub const NOT_INITIALIZED: Self = Self(3);
    /// `CUDA_ERROR_NOT_READY`: the stream's work has not finished yet. This is not a failure.
    pub const NOT_READY: Self = Self(600);
}

cuda_functions! {
    cuInit(flags: c_uint) = ["cuInit"];
    cuDriverGetVersion(version: *mut c_int) = ["cuDriverGetVersion"];
    cuGetErrorName(code: Code, text: *mut *const c_char) = ["cuGetErrorName"];
    cuGetErrorString(code: Code, text: *mut *const c_char) = ["cuGetErrorString"];
    cuDeviceGetCount(count: *mut c_int) = ["cuDeviceGetCount"];
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int) = ["cuDeviceGet"];
    cuDeviceGetName(name: *mut c_char, size: c_int, device: CUdevice) = ["cuDeviceGetName"];
    cuDeviceGetAttribute(value: *mut c_int, which: CUdevice_attribute, device: CUdevice) = ["cuDeviceGetAttribute"];
    // The `_v2` function (CUDA 11.4) distinguishes MIG instances. Older drivers have only `cuDeviceGetUuid`.
    cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice) = ["cuDeviceGetUuid_v2", "cuDeviceGetUuid"];
    cuDeviceGetLuid(luid: *mut c_char, node_mask: *mut c_uint, device: CUdevice) = ["cuDeviceGetLuid"];
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) = ["cuDevicePrimaryCtxRetain"];
    cuDevicePrimaryCtxRelease(device: CUdevice) = ["cuDevicePrimaryCtxRelease_v2"];
    cuCtxSetCurrent(context: CUcontext) = ["cuCtxSetCurrent"];
    cuCtxGetDevice(device: *mut CUdevice) = ["cuCtxGetDevice"];
    cuStreamQuery(stream: CUstream) = ["cuStreamQuery"];
    // The status is a `CUstreamCaptureStatus` as a number, because a newer driver may return other values.
    cuStreamIsCapturing(stream: CUstream, status: *mut c_uint) = ["cuStreamIsCapturing"];
    // The `_v2` function needs no option of the kernel module. Older drivers have only the plain one.
    cuStreamWriteValue32(
        stream: CUstream,
        pointer: CUdeviceptr,
        value: u32,
        flags: c_uint
    ) = ["cuStreamWriteValue32_v2", "cuStreamWriteValue32"];
    cuMemGetInfo(free: *mut usize, total: *mut usize) = ["cuMemGetInfo_v2"];
    cuMemAlloc(pointer: *mut CUdeviceptr, size: usize) = ["cuMemAlloc_v2"];
    cuMemFree(pointer: CUdeviceptr) = ["cuMemFree_v2"];
    cuMemcpy2DAsync(copy: *const CUDA_MEMCPY2D, stream: CUstream) = ["cuMemcpy2DAsync_v2"];
    cuMemGetAllocationGranularity(
        granularity: *mut usize,
        prop: *const CUmemAllocationProp,
        option: CUmemAllocationGranularity_flags
    ) = ["cuMemGetAllocationGranularity"];
    cuMemAddressReserve(
        pointer: *mut CUdeviceptr,
        size: usize,
        alignment: usize,
        address: CUdeviceptr,
        flags: u64
    ) = ["cuMemAddressReserve"];
    cuMemAddressFree(pointer: CUdeviceptr, size: usize) = ["cuMemAddressFree"];
    cuMemCreate(
        handle: *mut CUmemGenericAllocationHandle,
        size: usize,
        prop: *const CUmemAllocationProp,
        flags: u64
    ) = ["cuMemCreate"];
    cuMemRelease(handle: CUmemGenericAllocationHandle) = ["cuMemRelease"];
    cuMemMap(
        pointer: CUdeviceptr,
        size: usize,
        offset: usize,
        handle: CUmemGenericAllocationHandle,
        flags: u64
    ) = ["cuMemMap"];
    cuMemUnmap(pointer: CUdeviceptr, size: usize) = ["cuMemUnmap"];
    cuMemSetAccess(
        pointer: CUdeviceptr,
        size: usize,
        descs: *const CUmemAccessDesc,
        count: usize
    ) = ["cuMemSetAccess"];
    cuMemExportToShareableHandle(
        shareable: *mut c_void,
        handle: CUmemGenericAllocationHandle,
        kind: CUmemAllocationHandleType,
        flags: u64
    ) = ["cuMemExportToShareableHandle"];
    cuMemImportFromShareableHandle(
        handle: *mut CUmemGenericAllocationHandle,
        shareable: *mut c_void,
        kind: CUmemAllocationHandleType
    ) = ["cuMemImportFromShareableHandle"];
    cuMemGetAllocationPropertiesFromHandle(
        prop: *mut CUmemAllocationProp,
        handle: CUmemGenericAllocationHandle
    ) = ["cuMemGetAllocationPropertiesFromHandle"];
    cuImportExternalMemory(
        memory: *mut CUexternalMemory,
        desc: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC
    ) = ["cuImportExternalMemory"];
    cuExternalMemoryGetMappedBuffer(
        pointer: *mut CUdeviceptr,
        memory: CUexternalMemory,
        desc: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC
    ) = ["cuExternalMemoryGetMappedBuffer"];
    cuExternalMemoryGetMappedMipmappedArray(
        mipmap: *mut CUmipmappedArray,
        memory: CUexternalMemory,
        desc: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC
    ) = ["cuExternalMemoryGetMappedMipmappedArray"];
    cuMipmappedArrayGetLevel(
        array: *mut CUarray,
        mipmap: CUmipmappedArray,
        level: c_uint
    ) = ["cuMipmappedArrayGetLevel"];
    cuMipmappedArrayDestroy(mipmap: CUmipmappedArray) = ["cuMipmappedArrayDestroy"];
    cuSurfObjectCreate(object: *mut CUsurfObject, desc: *const CUDA_RESOURCE_DESC) = ["cuSurfObjectCreate"];
    cuSurfObjectDestroy(object: CUsurfObject) = ["cuSurfObjectDestroy"];
    cuDestroyExternalMemory(memory: CUexternalMemory) = ["cuDestroyExternalMemory"];
    cuImportExternalSemaphore(
        semaphore: *mut CUexternalSemaphore,
        desc: *const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC
    ) = ["cuImportExternalSemaphore"];
    cuSignalExternalSemaphoresAsync(
        semaphores: *const CUexternalSemaphore,
        params: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
        count: c_uint,
        stream: CUstream
    ) = ["cuSignalExternalSemaphoresAsync"];
    cuWaitExternalSemaphoresAsync(
        semaphores: *const CUexternalSemaphore,
        params: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
        count: c_uint,
        stream: CUstream
    ) = ["cuWaitExternalSemaphoresAsync"];
    cuDestroyExternalSemaphore(semaphore: CUexternalSemaphore) = ["cuDestroyExternalSemaphore"];
}
