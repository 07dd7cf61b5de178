"""A stand-in for `cuda.bindings.driver`. Its streams really wait, and its memory is the fake renderer's files.

Structures and enumerations are the real ones, so a misspelled field is an error. What is enqueued on a stream runs as
soon as nothing before it waits. So a wrong order shows as wrong bytes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from cuda.bindings import driver as real

OK = real.CUresult.CUDA_SUCCESS
LIBC = ctypes.CDLL(None)
LIBC.mmap.restype = ctypes.c_size_t
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
DEVICE_0, DEVICE_1 = 76, 77
"""The devices' contexts."""
MODES, STATUS = real.CUstreamCaptureMode, real.CUstreamCaptureStatus
ENDED = real.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
NOT_READY = real.CUresult.CUDA_ERROR_NOT_READY


def range_keys(numbers: np.ndarray) -> tuple[int, int]:
    """Return the keys of range.cu: the one's complement of the smallest number's, and the largest number's."""
    if not numbers.size:
        return 0, 0
    keys = []
    for number in (numbers.min(), numbers.max()):
        if numbers.dtype.kind == "f":
            bits = int.from_bytes(np.float64(number).tobytes(), "little")
            keys.append(bits ^ (2**64 - 1 if bits >> 63 else 2**63))
        else:
            keys.append(int(number) + 2**63 * (numbers.dtype.kind == "i"))
    return 2**64 - 1 - keys[0], keys[1]


class Timeline:
    """A timeline. Both sides have handles of it."""

    def __init__(self) -> None:
        self.value = 0
        self.history: list[int] = []


class Timelines:
    """The timelines by the inodes of the files that stand for them, which the client's descriptors share."""

    _all: dict[int, Timeline] = {}  # noqa: RUF012

    @classmethod
    def new(cls) -> int:
        descriptor = os.memfd_create("timeline")
        cls._all[os.fstat(descriptor).st_ino] = Timeline()
        return descriptor

    @classmethod
    def of(cls, descriptor: int) -> Timeline:
        return cls._all[os.fstat(descriptor).st_ino]


class FakeDriver(ModuleType):
    """Answers like the module `cuda.bindings.driver`."""

    def __init__(self, uuid: str) -> None:
        super().__init__("cuda.bindings.driver")
        self.uuid = bytes.fromhex(uuid)
        self.init_result = OK
        self.fail: dict[str, Any] = {}
        """Results instead of success, or exceptions to raise, by the call's name."""
        self.calls: list[str] = []
        self.lock = threading.RLock()
        self.streams: dict[int, list[Callable[[], bool]]] = {0: [], 1: [], 2: []}
        """Device 1, which draws, has all of them but -1, the default stream of device 0."""
        self.devices = 2
        self.ordinals: dict[int, int] = {}
        """The device of each address that is not on device 1."""
        self.home: dict[int, int] = {-1: DEVICE_0}
        """The context of each stream and event that is not in device 1's."""
        self.handle_types: dict[int, Any] = {}
        """The handle types of chunks that have no descriptors."""
        self.blocking: set[int] = set()
        self.capturing: dict[int, Any] = {}
        """The state of the graph that is being captured on a stream."""
        self.thread = threading.local()
        self.handles = iter(range(1000, 10**9))
        self.memories: dict[int, int] = {}
        self.mapped: dict[int, mmap.mmap] = {}
        self.semaphores: dict[int, Timeline] = {}
        self.events: dict[int, list[tuple[int, int]]] = {}
        self.done: dict[int, int] = {}
        self.asked: dict[int, float] = {}
        """Since when an event that is not done was asked for."""
        self.enqueued: dict[int, int] = {}
        self.contexts: list[int] = []
        self.allocations: dict[int, Any] = {}
        # The streams whose last call was the guard of a signal.
        self.guarded: set[int] = set()
        self.chunks: dict[int, int] = {}
        """The file of each handle."""
        self.references: dict[int, int] = {}
        self.ranges: dict[int, tuple[int, int]] = {}
        """The size and the handle of what is mapped at an address."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not name.startswith("cu") or name.startswith("cuda"):
            return getattr(real, name)
        if hasattr(real, name):
            raise NotImplementedError(f"the fake driver has no {name}")
        raise AttributeError(name)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        # The last one waits, and other calls must go on meanwhile.
        if not name.startswith("cu") or name in ("cuGetErrorName", "cuGetErrorString", "cuCtxSynchronize"):
            return found
        fail = super().__getattribute__("fail")

        def call(*arguments: Any) -> Any:
            with self.lock:
                self.calls.append(name)
                if self.ends_capture(name):
                    return (ENDED, None)
                if isinstance(fail.get(name), Exception):
                    # A new one, because an exception holds the variables of the calls that it went through.
                    raise type(fail[name])(*fail[name].args)
                if name in fail:
                    return (fail[name], None)
                return found(*arguments)

        return call

    # A stream is a list of steps. A step that returns False blocks the stream, and is tried again.

    def stream_of(self, stream: Any) -> int:
        """Return the stream that a handle means: the default stream is the current context's."""
        number = int(stream) or 1
        if number == 1 and self.contexts and self.contexts[-1] == DEVICE_0:
            number = -1
            self.streams.setdefault(number, [])
        if number not in self.streams:
            raise AssertionError(f"no stream {number}")
        return number

    def implicit(self, stream: Any) -> bool:
        """Whether it is the default stream, and a stream that is ordered with it is captured."""
        return int(stream) in (0, 1) and bool(self.blocking & {*self.capturing})

    def ends_capture(self, name: str) -> bool:
        """End what is being captured if a call does that, as CUDA's documentation has it."""
        unsafe = name in ("cuEventQuery", "cuMemAlloc", "cuMemFree", "cuMemCreate", "cuImportExternalMemory")
        if name == "cuCtxRecordEvent" or (unsafe and self.mode() != MODES.CU_STREAM_CAPTURE_MODE_RELAXED):
            self.end_captures()
            return bool(self.capturing)
        return False

    def mode(self) -> Any:
        return getattr(self.thread, "mode", MODES.CU_STREAM_CAPTURE_MODE_GLOBAL)

    def end_captures(self) -> None:
        self.capturing = dict.fromkeys(self.capturing, STATUS.CU_STREAM_CAPTURE_STATUS_INVALIDATED)

    def cuStreamIsCapturing(self, stream: int) -> Any:
        self.stream_of(stream)
        if self.implicit(stream):
            return (real.CUresult.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, None)
        return (OK, self.capturing.get(int(stream), STATUS.CU_STREAM_CAPTURE_STATUS_NONE))

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> Any:
        before, self.thread.mode = self.mode(), mode
        return (OK, before)

    def enqueue(self, stream: int, step: Callable[[], bool]) -> None:
        if int(stream) in self.capturing or self.implicit(stream):
            self.end_captures()
        stream = self.stream_of(stream)
        self.enqueued[stream] = self.enqueued.get(stream, 0) + 1
        self.streams[stream].append(step)
        self.run()

    def run(self) -> None:
        """Run every stream as far as possible."""
        with self.lock:
            moved = True
            while moved:
                moved = False
                for stream, steps in self.streams.items():
                    while steps and steps[0]():
                        steps.pop(0)
                        self.done[stream] = self.done.get(stream, 0) + 1
                        moved = True

    # The calls, by their C names.

    def cuInit(self, flags: int) -> Any:
        return (self.init_result,)

    def cuGetErrorName(self, error: Any) -> Any:
        return (OK, error.name.encode())

    def cuGetErrorString(self, error: Any) -> Any:
        return (OK, b"the driver's own words")

    def cuDeviceGetCount(self) -> Any:
        return (OK, self.devices)

    def cuDeviceGet(self, ordinal: int) -> Any:
        return (OK, real.CUdevice(ordinal))

    def cuDeviceGetName(self, length: int, device: Any) -> Any:
        return (OK, b"a fake\0\0")

    def cuDeviceGetUuid(self, device: Any) -> Any:
        class Uuid:
            bytes = self.uuid if int(device) == 1 else b"\x11" * 16

        return (OK, Uuid())

    def cuDeviceGetAttribute(self, attribute: Any, device: Any) -> Any:
        return (OK, 9 if "MAJOR" in attribute.name else 0)

    def cuDevicePrimaryCtxRetain(self, device: Any) -> Any:
        return (OK, real.CUcontext(DEVICE_0 + int(device)))

    def cuCtxPushCurrent(self, context: Any) -> Any:
        self.contexts.append(int(context))
        return (OK,)

    def cuCtxPopCurrent(self) -> Any:
        return (OK, self.contexts.pop())

    def cuCtxGetCurrent(self) -> Any:
        return (OK, real.CUcontext(self.contexts[-1] if self.contexts else 0))

    def cuCtxSetCurrent(self, context: Any) -> Any:
        return (OK,)

    def need_context(self) -> None:
        assert self.contexts, "no context is current"

    def cuCtxRecordEvent(self, context: Any, event: Any) -> Any:
        self.need_context()
        self.events[int(event)] = [(stream, self.enqueued.get(stream, 0)) for stream in self.streams]
        return (OK,)

    def cuCtxSynchronize(self) -> Any:
        self.need_context()
        points = [(stream, self.enqueued.get(stream, 0)) for stream in self.streams]
        while not self.passed(points):
            self.run()
            time.sleep(0.001)
        return (OK,)

    def cuStreamCreate(self, flags: int) -> Any:
        self.need_context()
        handle = next(self.handles)
        self.streams[handle] = []
        if self.contexts[-1] == DEVICE_0:
            self.home[handle] = DEVICE_0
        if not int(flags):
            self.blocking.add(handle)
        return (OK, real.CUstream(handle))

    def cuStreamDestroy(self, stream: Any) -> Any:
        assert not self.streams.pop(int(stream))
        return (OK,)

    def cuEventCreate(self, flags: int) -> Any:
        self.need_context()
        handle = next(self.handles)
        self.events[handle] = []
        self.home[handle] = self.contexts[-1]
        return (OK, real.CUevent(handle))

    def cuEventDestroy(self, event: Any) -> Any:
        del self.events[int(event)]
        return (OK,)

    def cuEventRecord(self, event: Any, stream: int) -> Any:
        if int(stream) in self.capturing or self.implicit(stream):
            self.end_captures()
        stream = self.stream_of(stream)
        assert self.home[int(event)] == self.home.get(stream, DEVICE_1), "an event is for its own context's streams"
        self.events[int(event)] = [(stream, self.enqueued.get(stream, 0))]
        return (OK,)

    def passed(self, points: list[tuple[int, int]]) -> bool:
        return all(self.done.get(stream, 0) >= end for stream, end in points)

    def cuEventQuery(self, event: Any) -> Any:
        self.run()
        if self.passed(self.events[int(event)]):
            self.asked.pop(int(event), None)
            return (OK,)
        since = self.asked.setdefault(int(event), time.monotonic())
        assert time.monotonic() < since + 3, "this is waited for in vain"
        return (NOT_READY,)

    def cuStreamWaitEvent(self, stream: int, event: Any, flags: int) -> Any:
        points = self.events[int(event)]
        self.enqueue(stream, lambda: self.passed(points))
        return (OK,)

    def cuImportExternalMemory(self, desc: Any) -> Any:
        assert desc.type == real.CUexternalMemoryHandleType.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD
        assert desc.flags == real.CUDA_EXTERNAL_MEMORY_DEDICATED
        assert desc.size == os.fstat(desc.handle.fd).st_size, "the whole allocation is imported"
        handle = next(self.handles)
        self.memories[handle] = desc.handle.fd
        return (OK, real.CUexternalMemory(handle))

    def cuExternalMemoryGetMappedBuffer(self, memory: Any, desc: Any) -> Any:
        mapped = mmap.mmap(self.memories[int(memory)], desc.offset + desc.size)
        view = ctypes.c_char.from_buffer(mapped, desc.offset)
        address = ctypes.addressof(view)
        del view
        self.mapped[address] = mapped
        return (OK, real.CUdeviceptr(address))

    def cuMemFree(self, pointer: Any) -> Any:
        if int(pointer) in self.allocations:
            del self.allocations[int(pointer)]
        else:
            assert not any(self.streams.values()), "the call may wait for everything that is enqueued"
            self.mapped.pop(int(pointer))
        return (OK,)

    def cuMemAlloc(self, size: int) -> Any:
        memory = ctypes.create_string_buffer(size)
        self.allocations[ctypes.addressof(memory)] = memory
        return (OK, real.CUdeviceptr(ctypes.addressof(memory)))

    # Memory with handles: a chunk is a file, mapped at a reserved address.

    def cuMemGetAllocationGranularity(self, prop: Any, option: Any) -> Any:
        return (OK, 4096)

    def cuMemCreate(self, size: int, prop: Any, flags: int) -> Any:
        assert size % 4096 == 0
        assert prop.requestedHandleTypes == real.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        assert prop.location.type == real.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        return (OK, self.make_chunk(size))

    def make_chunk(self, size: int) -> int:
        handle = next(self.handles)
        self.chunks[handle] = os.memfd_create("chunk")
        os.ftruncate(self.chunks[handle], size)
        self.references[handle] = 1
        return handle

    def cuMemAddressReserve(self, size: int, alignment: int, address: int, flags: int) -> Any:
        return (OK, real.CUdeviceptr(LIBC.mmap(None, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)))

    def cuMemMap(self, address: int, size: int, offset: int, handle: int, flags: int) -> Any:
        shared = mmap.MAP_SHARED | 0x10  # fixed
        at = LIBC.mmap(int(address), size, mmap.PROT_READ | mmap.PROT_WRITE, shared, self.chunks[int(handle)], offset)
        assert at == int(address)
        self.references[int(handle)] += 1
        self.ranges[at] = (size, int(handle))
        return (OK,)

    def cuMemSetAccess(self, address: int, size: int, access: Any, count: int) -> Any:
        return (OK,)

    def cuMemUnmap(self, address: int, size: int) -> Any:
        if int(address) not in self.ranges:
            return (real.CUresult.CUDA_ERROR_INVALID_VALUE,)
        there, handle = self.ranges.pop(int(address))
        assert there == size
        return self.cuMemRelease(handle)

    def cuMemAddressFree(self, address: int, size: int) -> Any:
        LIBC.munmap(int(address), size)
        return (OK,)

    def chunk_at(self, address: int) -> tuple[int, int, int] | None:
        for base, (size, handle) in self.ranges.items():
            if base <= int(address) < base + size:
                return base, size, handle
        return None

    def cuMemRetainAllocationHandle(self, address: int) -> Any:
        found = self.chunk_at(address)
        if found is None:
            return (real.CUresult.CUDA_ERROR_INVALID_VALUE, None)
        self.references[found[2]] += 1
        return (OK, found[2])

    def cuMemGetAddressRange(self, address: int) -> Any:
        found = self.chunk_at(address)
        assert found is not None
        return (OK, real.CUdeviceptr(found[0]), found[1])

    def cuMemExportToShareableHandle(self, handle: int, kind: Any, flags: int) -> Any:
        assert kind == real.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        if int(handle) in self.handle_types:
            return (real.CUresult.CUDA_ERROR_INVALID_VALUE, None)
        return (OK, os.dup(self.chunks[int(handle)]))

    def cuMemGetAllocationPropertiesFromHandle(self, handle: int) -> Any:
        prop = real.CUmemAllocationProp()
        posix = real.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        prop.requestedHandleTypes = self.handle_types.get(int(handle), posix)
        base = next(base for base, (_, mapped) in self.ranges.items() if mapped == int(handle))
        prop.location.type = real.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        prop.location.id = self.ordinals.get(base, 1)
        return (OK, prop)

    def cuMemRelease(self, handle: int) -> Any:
        self.references[int(handle)] -= 1
        if self.references[int(handle)] == 0:
            os.close(self.chunks.pop(int(handle)))
            del self.references[int(handle)]
        return (OK,)

    def cuMemGetInfo(self) -> Any:
        return (OK, 1000, 2000)

    def cuDestroyExternalMemory(self, memory: Any) -> Any:
        os.close(self.memories.pop(int(memory)))
        return (OK,)

    def cuImportExternalSemaphore(self, desc: Any) -> Any:
        kind = real.CUexternalSemaphoreHandleType.CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD
        assert desc.type == kind
        handle = next(self.handles)
        self.semaphores[handle] = Timelines.of(desc.handle.fd)
        os.close(desc.handle.fd)
        return (OK, real.CUexternalSemaphore(handle))

    def cuDestroyExternalSemaphore(self, semaphore: Any) -> Any:
        del self.semaphores[int(semaphore)]
        return (OK,)

    def cuWaitExternalSemaphoresAsync(self, semaphores: Any, params: Any, count: int, stream: int) -> Any:
        self.need_context()
        timeline, value = self.semaphores[int(semaphores[0])], params[0].params.fence.value
        self.enqueue(stream, lambda: timeline.value >= value)
        return (OK,)

    def cuStreamWriteValue32(self, stream: int, pointer: Any, value: int, flags: int) -> Any:
        self.need_context()
        assert int(pointer) in self.allocations and flags == 0
        self.guarded.add(int(stream))
        return (OK,)

    def cuSignalExternalSemaphoresAsync(self, semaphores: Any, params: Any, count: int, stream: int) -> Any:
        self.need_context()
        assert int(stream) in self.guarded, "the signal could overtake a memset"
        self.guarded.discard(int(stream))
        timeline, value = self.semaphores[int(semaphores[0])], params[0].params.fence.value

        def signal() -> bool:
            assert value > timeline.value, "values strictly increase"
            timeline.value = value
            timeline.history.append(value)
            return True

        self.enqueue(stream, signal)
        return (OK,)

    # The kernel of range.cu, in NumPy.

    def cuModuleLoadData(self, image: bytes) -> Any:
        self.need_context()
        assert b".entry range(" in image
        return (OK, real.CUmodule(1))

    def cuModuleGetFunction(self, module: Any, name: bytes) -> Any:
        assert name == b"range"
        return (OK, real.CUfunction(1))

    def cuMemHostAlloc(self, size: int, flags: int) -> Any:
        return self.cuMemAlloc(size)

    def is_allocated(self, address: int) -> bool:
        return any(base <= int(address) < base + len(memory) for base, memory in self.allocations.items())

    def cuMemsetD8Async(self, pointer: int, value: int, size: int, stream: int) -> Any:
        self.need_context()
        assert self.is_allocated(pointer)

        def step() -> bool:
            ctypes.memset(int(pointer), value, size)
            return True

        self.enqueue(stream, step)
        return (OK,)

    def cuStreamQuery(self, stream: int) -> Any:
        self.run()
        return (NOT_READY if self.streams[self.stream_of(stream)] else OK,)

    def cuLaunchKernel(self, function: Any, *launch: Any) -> Any:
        self.need_context()
        *grid, shared, stream, pointers, extra = launch
        assert (grid[1:], shared, extra) == ([1, 1, 256, 1, 1], 0, 0)
        word, number, step = ctypes.c_uint64, ctypes.c_uint, ctypes.c_int64
        types: list[Any] = [word, number, number, step, step, step, number, number, number, word, word]
        addresses = (ctypes.c_uint64 * len(types)).from_address(pointers)
        arguments = [kind.from_address(at).value for kind, at in zip(types, addresses, strict=True)]
        data, rows, cols, row_stride, col_stride, inner, components, value, kind, found, host = arguments
        assert self.is_allocated(found) and self.is_allocated(host)
        dtype = np.dtype(f"{chr(kind // 256)}{kind % 256}")

        def run() -> bool:
            shape, strides = (rows, cols, components), (row_stride, col_stride, inner)
            steps = [(count - 1) * stride for count, stride in zip(shape, strides, strict=True)]
            before = -sum(min(far, 0) for far in steps)
            size = before + sum(max(far, 0) for far in steps) + dtype.itemsize
            memory = np.frombuffer((ctypes.c_char * size).from_address(data - before), np.uint8)
            array = np.ndarray(shape, dtype, memory, before, strides).reshape(-1, components)
            finite = np.isfinite(array)
            if value == components:
                pairs = [array[finite]]
            else:
                placed = finite[:, :3].all(1)
                pairs = [*array[placed, :3].T, array[placed & finite[:, value], value]]
            keys = [key for numbers in pairs for key in range_keys(numbers)]
            there = (ctypes.c_uint64 * 9).from_address(host)
            for at, key in enumerate([0] * (8 - len(keys)) + keys + [1]):
                there[at] = key
            return True

        self.enqueue(stream, run)
        return (OK,)

    def cuPointerGetAttribute(self, attribute: Any, pointer: int) -> Any:
        if self.chunk_at(pointer) is not None:
            return (OK, 0)  # as NVIDIA's driver says of memory of `cuMemCreate`, wherever it is
        return (OK, self.ordinals.get(int(pointer), 1))

    def cuCtxEnablePeerAccess(self, context: Any, flags: int) -> Any:
        assert (self.contexts[-1], int(context), flags) == (DEVICE_1, DEVICE_0, 0)
        return (OK,)

    def cuMemcpyPeerAsync(self, to: int, to_context: Any, source: int, context: Any, size: int, stream: int) -> Any:
        self.need_peer(source, context, to_context)

        def step() -> bool:
            ctypes.memmove(to, source, size)
            return True

        self.enqueue(stream, step)
        return (OK,)

    def cuMemFreeHost(self, address: int) -> Any:
        return self.cuMemFree(address)

    def cuMemcpyDtoHAsync(self, to: int, source: int, size: int, stream: int) -> Any:
        self.need_context()
        assert self.is_allocated(to)

        def step() -> bool:
            ctypes.memmove(to, int(source), size)
            return True

        self.enqueue(stream, step)
        return (OK,)

    def cuMemcpyDtoH(self, to: int, source: int, size: int) -> Any:
        self.need_context()
        ctypes.memmove(to, int(source), size)
        return (OK,)

    def cuMemcpy3DPeerAsync(self, copy: Any, stream: int) -> Any:
        self.need_peer(int(copy.srcDevice), copy.srcContext, copy.dstContext)
        assert copy.Depth == 1 and copy.srcHeight == copy.dstHeight == copy.Height
        return self.copy_rows(copy, int(copy.srcDevice), stream)

    def need_peer(self, source: int, context: Any, to_context: Any) -> None:
        assert self.contexts[-1] == int(to_context) == DEVICE_1
        assert int(context) == DEVICE_0 + self.ordinals.get(source, 1) == DEVICE_0

    def cuMemcpy2DAsync(self, copy: Any, stream: int) -> Any:
        self.need_context()
        on_host = copy.srcMemoryType == real.CUmemorytype.CU_MEMORYTYPE_HOST
        assert not (on_host and self.streams[int(stream) or 1]), "the call would wait for the stream"
        source = int(copy.srcHost if on_host else copy.srcDevice)
        assert on_host or self.ordinals.get(source, 1) in (1, -2), "another device's memory needs a peer copy"
        return self.copy_rows(copy, source, stream)

    def copy_rows(self, copy: Any, source: int, stream: int) -> Any:
        target, width = int(copy.dstDevice), copy.WidthInBytes
        source_pitch, target_pitch, height = copy.srcPitch, copy.dstPitch, copy.Height

        def step() -> bool:
            for row in range(height):
                ctypes.memmove(target + row * target_pitch, source + row * source_pitch, width)
            return True

        self.enqueue(stream, step)
        return (OK,)
