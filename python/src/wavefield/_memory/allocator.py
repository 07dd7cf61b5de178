"""Memory for CuPy that the renderer can import: from `cuMemCreate`, with handles that can be exported."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from .. import _libraries
from ..errors import CudaError
from . import cuda as _cuda


@contextmanager
def allocator() -> Iterator[None]:
    """Make CuPy allocate, inside `with`, memory that `show` can draw without a copy.

    The memory comes from a separate pool, which reuses what is freed. Arrays made inside stay valid outside. If the GPU
    is out of memory, CuPy raises its usual `OutOfMemoryError`.
    """
    cupy = _libraries.need("cupy", "allocator()")
    if not _pool:
        _pool.append(cupy.cuda.MemoryPool(cupy.cuda.PythonFunctionAllocator(_allocate, _free).malloc))
    with cupy.cuda.using_allocator(_pool[0].malloc):
        yield


_pool: list[Any] = []
_lock = threading.Lock()
# The device's context, the size and the handle, by address.
_chunks: dict[int, tuple[_cuda.Context, int, Any]] = {}


IDLE_SECONDS = 1.0
"""How long an allocation waits for freed memory to be unmapped, if the GPU is out of memory."""

_OUT_OF_MEMORY = 2
"""`cudaErrorMemoryAllocation`."""


def _allocate(size: int, ordinal: int) -> int:
    try:
        return _map(size, ordinal)
    except CudaError as error:
        if error.name != "CUDA_ERROR_OUT_OF_MEMORY":
            raise
        # Freed memory is unmapped only once the GPU is idle. Give it time, for the next try.
        context = _cuda.Context.at(ordinal)
        end = time.monotonic() + IDLE_SECONDS
        while context.retired and time.monotonic() < end:
            time.sleep(1e-3)
            context.reap()
        # This error makes CuPy's pool free its unused blocks and try again. If that fails, it raises OutOfMemoryError.
        cupy = _libraries.need("cupy", "allocator()")
        raise cupy.cuda.runtime.CUDARuntimeError(_OUT_OF_MEMORY) from error


def _map(size: int, ordinal: int) -> int:
    context = _cuda.Context.at(ordinal)
    driver = context.driver
    prop = driver.CUmemAllocationProp()
    prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.requestedHandleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = ordinal
    access = driver.CUmemAccessDesc()
    access.location = prop.location
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    least = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    with context.current():
        context.reap()
        step = int(context.call("cuMemGetAllocationGranularity", prop, least))
        size = -(-size // step) * step
        handle = context.call("cuMemCreate", size, prop, 0)
        address = 0
        try:
            address = int(context.call("cuMemAddressReserve", size, 0, 0, 0))
            context.call("cuMemMap", address, size, 0, handle, 0)
            context.call("cuMemSetAccess", address, size, [access], 1)
        except BaseException:
            _unmap(context, address, size, handle)
            raise
    with _lock:
        _chunks[address] = (context, size, handle)
    return address


def _free(address: int, _ordinal: int) -> None:
    with _lock:
        context, size, handle = _chunks.pop(address)
    # Unmapped once the GPU is idle. At the interpreter's end this may fail; the process's end frees the memory.
    with suppress(Exception):
        context.retire(partial(_unmap, context, address, size, handle))


def _unmap(context: _cuda.Context, address: int, size: int, handle: Any) -> None:
    if address:
        with suppress(CudaError):  # if it was not mapped yet
            context.call("cuMemUnmap", address, size)
        context.call("cuMemAddressFree", address, size)
    context.call("cuMemRelease", handle)
