// A stand-in for libcuda.so.1 with one device, for tests only. What it answers comes from the environment:
//
//   FAKE_CUDA_VERSION   what cuDriverGetVersion says (default 12000)
//   FAKE_CUDA_UUID      32 hexadecimal digits: the device's UUID (default all zero)
//   FAKE_CUDA_INIT      what cuInit answers (default 0, success)
//
// Everything after choosing a device answers 999 (unknown error): these tests never get that far.
// Built with -DWITHOUT_TIMELINES it lacks the functions that came with external semaphores.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int number(const char *name, int fallback)
{
    const char *text = getenv(name);
    return text ? atoi(text) : fallback;
}

int cuInit(unsigned flags) { return flags ? 1 : number("FAKE_CUDA_INIT", 0); }
int cuDriverGetVersion(int *version) { *version = number("FAKE_CUDA_VERSION", 12000); return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal == 0 ? 0 : 101; }
int cuDeviceGetName(char *name, int size, int device) { snprintf(name, size, "Fake CUDA device"); return device; }
int cuDeviceGetAttribute(int *value, int which, int device) { *value = 1; return device + 0 * which; }

int cuDeviceGetUuid(unsigned char *uuid, int device)
{
    const char *text = getenv("FAKE_CUDA_UUID");
    memset(uuid, 0, 16);
    for (int i = 0; text && i < 16; i++)
        sscanf(text + 2 * i, "%2hhx", &uuid[i]);
    return device;
}
int cuDeviceGetLuid(char *luid, unsigned *mask, int device) { (void)luid; (void)mask; return device + 801; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { return cuDeviceGetUuid(uuid, device); }

int cuGetErrorName(int code, const char **text)
{
    *text = code == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_UNKNOWN";
    return 0;
}
int cuGetErrorString(int code, const char **text)
{
    *text = code == 100 ? "no CUDA-capable device is detected" : "unknown error";
    return 0;
}

#define LATER(name) int name(void) { return 999; }
LATER(cuDevicePrimaryCtxRetain)
LATER(cuDevicePrimaryCtxRelease_v2)
LATER(cuCtxSetCurrent)
LATER(cuStreamCreate)
LATER(cuStreamDestroy_v2)
LATER(cuStreamSynchronize)
LATER(cuStreamQuery)
LATER(cuEventCreate)
LATER(cuEventDestroy_v2)
LATER(cuEventRecord)
LATER(cuEventElapsedTime)
LATER(cuEventQuery)
LATER(cuModuleLoadDataEx)
LATER(cuModuleUnload)
LATER(cuModuleGetFunction)
LATER(cuLaunchKernel)
LATER(cuLinkCreate_v2)
LATER(cuLinkAddData_v2)
LATER(cuLinkComplete)
LATER(cuLinkDestroy)
LATER(cuMemAlloc_v2)
LATER(cuMemFree_v2)
LATER(cuMemsetD32Async)
LATER(cuMemcpyDtoDAsync_v2)
LATER(cuMemcpyDtoHAsync_v2)
LATER(cuMemcpyHtoDAsync_v2)
LATER(cuImportExternalMemory)
LATER(cuExternalMemoryGetMappedBuffer)
LATER(cuExternalMemoryGetMappedMipmappedArray)
LATER(cuMipmappedArrayGetLevel)
LATER(cuMipmappedArrayDestroy)
LATER(cuSurfObjectCreate)
LATER(cuSurfObjectDestroy)
LATER(cuTexObjectCreate)
LATER(cuTexObjectDestroy)
LATER(cuDestroyExternalMemory)
#ifndef WITHOUT_TIMELINES
LATER(cuImportExternalSemaphore)
LATER(cuSignalExternalSemaphoresAsync)
LATER(cuWaitExternalSemaphoresAsync)
LATER(cuDestroyExternalSemaphore)
#endif
