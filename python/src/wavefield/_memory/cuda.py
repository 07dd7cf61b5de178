"""The CUDA driver, through `cuda.bindings`: only what a client needs, with errors that a user can read.

Each handle has an object that owns it, and releases it when dropped. At the interpreter's end nothing is released: the
end of the process does that.
Nothing imports `cuda.bindings` before a field in CUDA memory is connected.
"""

from __future__ import annotations

import _thread
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial, wraps
from numbers import Integral
from typing import Any, TypeVar, cast

from ..errors import CudaError, CudaMissing, DeviceMismatch, brief
from . import streams as _streams

WITHOUT_CUDA = 'Without CUDA, use connect(memory="host") or launch(memory="host") with NumPy'

_contexts: dict[int, Context] = {}


class _Here(threading.local):
    """What this thread knows inside `with context.current()`."""

    def __init__(self) -> None:
        # The contexts that blocks have made current, the innermost last.
        self.blocks: list[Context] = []
        # The handles of each device's streams on which no graph is captured: the libraries' current ones, and others.
        self.uncaptured: dict[int, set[int]] = {}


_here = _Here()
NOTHING = nullcontext()

AWAKE_SECONDS = 200e-6
"""How long a wait looks again and again before it sleeps, which takes 60 µs at least."""


def driver() -> Any:
    """Return `cuda.bindings.driver` with the driver initialised. Raises `CudaMissing`."""
    try:
        from cuda.bindings import driver as module
    except ImportError as error:
        from .._libraries import why_missing

        why = why_missing("cuda", error, "cuda-bindings")
        raise CudaMissing(f"cuda-bindings {why}. {WITHOUT_CUDA}") from None
    try:
        (result,) = module.cuInit(0)
    except RuntimeError as error:
        # cuda.bindings raises it if there is no libcuda.
        raise CudaMissing(
            f"no CUDA driver: {str(error).rstrip('. ')}. It comes with NVIDIA's display driver. {WITHOUT_CUDA}"
        ) from None
    if int(result) != 0:
        raise CudaMissing(
            f"cuInit: {_words(module, result)}. Is there an NVIDIA GPU, and does `nvidia-smi` list it? {WITHOUT_CUDA}"
        )
    return module


def _words(module: Any, result: Any) -> str:
    """Return the driver's words for a result, such as "out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2)"."""
    _, name = module.cuGetErrorName(result)
    _, what = module.cuGetErrorString(result)
    name = name.decode() if isinstance(name, bytes) else str(name)
    what = what.decode() if isinstance(what, bytes) else str(what)
    return f"{what} ({name}, {int(result)})"


class Context:
    """The primary context of one device, which CuPy, PyTorch, JAX and Numba use too.

    The process retains it once and never releases it, like the CUDA runtime: the last release would destroy what those
    libraries still hold.
    """

    def __init__(self, module: Any, ordinal: int) -> None:
        self.driver = module
        self.success = module.CUresult.CUDA_SUCCESS
        self.relaxed = module.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self.ordinal = ordinal
        self.device = self.call("cuDeviceGet", ordinal)
        name = self.call("cuDeviceGetName", 128, self.device)
        self.name = name.split(b"\0")[0].decode() if isinstance(name, bytes) else str(name)
        self.raw = self.call("cuDevicePrimaryCtxRetain", self.device)
        # What is used again and again, for each thread.
        self.threads = threading.local()
        # The GPUs that it was allowed to read.
        self._reached: set[int] = set()
        # The address of a word that `guard` writes and nothing reads.
        self._word: Any = None
        # Each call unmaps memory that nobody holds any more.
        self._retired: list[Callable[[], None]] = []
        self._reaping = threading.Lock()

    @classmethod
    def of(cls, uuid: str) -> Context:
        """Return the context of the device with that UUID (32 hexadecimal digits)."""
        module = driver()
        count = _call(module, "cuDeviceGetCount")
        seen = []
        for ordinal in range(count):
            device = _call(module, "cuDeviceGet", ordinal)
            seen.append(_uuid(module, device))
            if seen[-1] == uuid:
                return cls.at(ordinal)
        shown = ", ".join(seen) or "none"
        raise DeviceMismatch(
            f"the renderer draws on the GPU with UUID {uuid}, but CUDA shows this process {shown}{_hidden()}: let both "
            "see the same GPU; `wavefield devices` lists the GPUs"
        )

    @classmethod
    def at(cls, ordinal: int) -> Context:
        """Return the context of the device with this number in this process."""
        if ordinal not in _contexts:
            _contexts[ordinal] = cls(driver(), ordinal)
        return _contexts[ordinal]

    def call(self, function: str, *arguments: Any) -> Any:
        """Call the driver, and return what it returns: None, a value, or a tuple of values. Raises `CudaError`."""
        # `is`, because comparing two enums takes as long as the shortest call.
        answer = getattr(self.driver, function)(*arguments)
        if answer[0] is not self.success:
            return _returned(self.driver, function, answer)
        return None if len(answer) == 1 else answer[1] if len(answer) == 2 else answer[1:]

    def passed(self, function: str, raw: Any) -> bool:
        """Return whether the GPU has passed an event, or done all of a stream. The context must be current."""
        result, *_ = getattr(self.driver, function)(raw)
        if result is self.success or int(result) in (0, 600):  # CUDA_ERROR_NOT_READY
            return int(result) == 0
        raise CudaError(
            f"the stream failed before the frame was finished: {_words(self.driver, result)}. The likely cause is a "
            "kernel that ran earlier in this process"
        )

    def reach(self, other: Context) -> None:
        """Let this GPU read memory of another one, if it can: a copy over NVLink is then many times as fast."""
        if other.ordinal not in self._reached:
            self._reached.add(other.ordinal)
            # It fails if a library has done so already, or if the two GPUs do not reach each other.
            with suppress(CudaError), self.current():
                self.call("cuCtxEnablePeerAccess", other.raw, 0)

    def current(self) -> AbstractContextManager[None]:
        """Make this context the thread's current one inside `with`.

        A graph that is being captured elsewhere survives the calls there, such as cuEventQuery. Inside another `with`
        of the same context it takes no time. Until the outermost `with` ends, the libraries' current streams, and
        whether a graph is captured on a stream, are asked for once. So no code of the user may run in it.
        """
        blocks = _here.blocks
        return NOTHING if blocks and blocks[-1] is self else _Current(self)

    def refuse_capture(self, *streams: _streams.Stream) -> None:
        """Raise if a graph is being captured on one of the streams, or on a library's current stream.

        Nothing must be enqueued there: that would end the capture, or become a part of the graph.
        """
        known = _here.uncaptured.get(self.ordinal)
        if known is not None:
            for stream in streams:
                if stream.handle not in known:
                    break
            else:
                return
        with self.current():
            current = _streams.current_streams(self.ordinal).values()
            asked = {stream.handle for stream in (*streams, *current)}.difference(known or ())
            for handle in asked:
                result, status = self.driver.cuStreamIsCapturing(handle)
                # CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: a stream that is ordered with this default stream is captured.
                if int(result) == 906 or (int(result) == 0 and int(status) != 0):
                    raise CudaError(
                        f"a CUDA graph is being captured, on stream {handle:#x} or one ordered with it, and the "
                        "hand-off to the renderer cannot be part of a graph: capture only what computes the array, and "
                        "call show, picture or the next frame outside the capture, after each replay",
                        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
                    )
            _here.uncaptured.setdefault(self.ordinal, set()).update(asked)

    def keep_current(self) -> None:
        """Make it the thread's current context if there is none: the user's driver calls, such as memset, need one."""
        if int(self.call("cuCtxGetCurrent")) == 0:
            self.call("cuCtxSetCurrent", self.raw)

    def prepare_guard(self) -> None:
        """Allocate what `guard` needs, once. The context must be current."""
        if self._word is None:
            self._word = self.call("cuMemAlloc", 4)

    def guard(self, stream: int) -> None:
        """Keep a signal on `stream` from overtaking a small memset (`docs/reports/signal-overtakes-memset`).

        Libraries use memsets for `zero_()` and `fill(0)`. The write has a memory barrier before it.
        """
        self.call("cuStreamWriteValue32", stream, self._word, 0, 0)

    @property
    def retired(self) -> int:
        """Return how many pieces of memory are still mapped, although nobody holds them."""
        return len(self._retired)

    def retire(self, unmap: Callable[[], None]) -> None:
        """Unmap memory that nobody holds any more: at once if the GPU is idle, else in a later `reap`."""
        self._retired.append(unmap)
        self.reap()

    def reap(self) -> None:
        """Unmap what was retired, if the GPU is idle. It never waits, so finalizers may call it.

        Any stream may have used the memory, and `cuMemFree` may wait for everything that is enqueued in the context.
        A field's stream may wait for the renderer as long as a window is hidden. So nothing is unmapped before all
        streams have finished.
        """
        # A finalizer can run inside any line here, on any thread. If another one holds the lock, leave the work to it.
        if not self._retired or not self._reaping.acquire(blocking=False):
            return
        handed_over = False
        try:
            with self.current():
                everything = Event(self)
                # What another thread retires from here on may be in use after the event. It is appended, so it is not
                # counted.
                count = len(self._retired)
                if not everything.record_all():
                    # Not by `threading`, whose locks the interrupted line may hold.
                    _thread.start_new_thread(self._wait_and_unmap, (count,))
                    handed_over = True
                elif everything.done:
                    self._unmap(count)
        except (CudaError, RuntimeError):
            pass  # the context has failed, or no thread can be started: unmap nothing, since the memory may be in use
        finally:
            if not handed_over:
                self._reaping.release()

    def _wait_and_unmap(self, count: int) -> None:
        """Unmap on a thread of its own, once everything enqueued so far is done. Then the next `reap` may begin."""
        try:
            with self.current():
                self.call("cuCtxSynchronize")
                self._unmap(count)
        except CudaError:
            pass  # as in `reap`
        finally:
            self._reaping.release()

    def _unmap(self, count: int) -> None:
        for _ in range(count):
            self._retired.pop(0)()

    def make_stream(self, ordered: bool) -> int:
        """Return a new stream: `ordered` with the default stream, which Numba uses, or independent of it."""
        flags = self.driver.CUstream_flags
        with self.current():
            return int(
                self.call("cuStreamCreate", flags.CU_STREAM_DEFAULT if ordered else flags.CU_STREAM_NON_BLOCKING)
            )


Method = TypeVar("Method", bound=Callable[..., Any])


def at_once(method: Method) -> Method:
    """Make the field's CUDA context current in a method that runs no code of the user; see `Context.current`."""

    @wraps(method)
    def whole(field: Any, *arguments: Any, **named: Any) -> Any:
        with NOTHING if field._context is None else field._context.current():
            return method(field, *arguments, **named)

    return cast("Method", whole)


class _Current:
    """What `Context.current` returns. A class, because a generator takes 2 µs longer."""

    __slots__ = ("context", "depth", "mode")

    def __init__(self, context: Context) -> None:
        self.context = context
        self.mode: Any = None

    def __enter__(self) -> None:
        context = self.context
        self.depth, self.mode = len(_here.blocks), None
        context.call("cuCtxPushCurrent", context.raw)
        try:
            self.mode = context.call("cuThreadExchangeStreamCaptureMode", context.relaxed)
            if self.depth == 0:
                _streams.asked.found = {}
            _here.blocks.append(context)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_error: object) -> None:
        try:
            del _here.blocks[self.depth :]
            if self.depth == 0:
                _streams.asked.found = None
                _here.uncaptured.clear()
            if self.mode is not None:
                self.context.call("cuThreadExchangeStreamCaptureMode", self.mode)
        finally:
            self.context.call("cuCtxPopCurrent")


def _call(module: Any, function: str, *arguments: Any) -> Any:
    return _returned(module, function, getattr(module, function)(*arguments))


def _returned(module: Any, function: str, answer: tuple[Any, ...]) -> Any:
    """Return what the driver has returned beside its result. Raises `CudaError`."""
    result, *values = answer
    if result != 0:
        _, name = module.cuGetErrorName(result)
        hint = ""
        if function.startswith("cuImportExternal") and int(result) == 304:
            hint = ". Under WSL2, CUDA cannot import what Vulkan exports"
        raise CudaError(
            f"{function}: {_words(module, result)}{hint}",
            name.decode() if isinstance(name, bytes) else str(name),
        )
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


def device_of(pointer: int) -> int:
    """Return the ordinal of the device that a pointer belongs to; negative if it belongs to none."""
    module = driver()
    attribute = module.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    try:
        handle = _call(module, "cuMemRetainAllocationHandle", pointer)
    except CudaError:
        return int(_call(module, "cuPointerGetAttribute", attribute, pointer))
    # For memory of `cuMemCreate`, such as PyTorch's expandable segments, the attribute is 0 on every device.
    try:
        found = _call(module, "cuMemGetAllocationPropertiesFromHandle", handle)
    finally:
        _call(module, "cuMemRelease", handle)
    # `location` is a part of `found`, which must live as long.
    on_device = found.location.type == module.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    return int(found.location.id) if on_device else -1


def count() -> int:
    """Return the number of devices that this process sees."""
    return int(_call(driver(), "cuDeviceGetCount"))


def uuid_of(ordinal: int) -> str:
    """Return the UUID of a device, 32 hexadecimal digits. Raises `DeviceMismatch` if this process does not see it."""
    if not isinstance(ordinal, Integral):
        raise TypeError(f"device must be the number of a CUDA device, such as 0, not {brief(ordinal)}")
    if not 0 <= ordinal < count():
        raise DeviceMismatch(
            f"there is no CUDA device {ordinal}: this process sees {count()}, numbered from 0{_hidden()}; `wavefield "
            "devices` lists the GPUs"
        )
    return _uuid(driver(), _call(driver(), "cuDeviceGet", ordinal))


def _hidden() -> str:
    """Return a hint on what may hide devices."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if hidden is None else f" (CUDA_VISIBLE_DEVICES is {hidden!r})"


def _uuid(module: Any, device: Any) -> str:
    # In cuda.bindings 13, cuDeviceGetUuid is version 2 of the call. Version 1 cannot tell MIG instances apart.
    version2 = getattr(module, "cuDeviceGetUuid_v2", None)
    return bytes(_call(module, "cuDeviceGetUuid_v2" if version2 else "cuDeviceGetUuid", device).bytes).hex()


class Event:
    """A point on a stream. The CPU can test it, and another stream can wait for it."""

    def __init__(self, context: Context) -> None:
        flags = context.driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
        self.context = context
        with context.current():
            self.raw = context.call("cuEventCreate", flags)
        _finally(self, _destroy, context, "cuEventDestroy", self.raw)

    def record(self, stream: int) -> None:
        """Set the point to the stream's present end. The context must be current."""
        self.context.call("cuEventRecord", self.raw, stream)

    def record_all(self) -> bool:
        """Set the point to the present end of all streams of the context, which must be current.

        Return False if the driver is older than CUDA 12.5 and cannot: the default stream would not do, because others
        may be independent of it. Raise if a graph is being captured: the call would end that.
        """
        self.context.refuse_capture(_streams.Stream(_streams.LEGACY_STREAM))
        try:
            self.context.call("cuCtxRecordEvent", self.context.raw, self.raw)
        except CudaError:
            raise
        except RuntimeError:
            return False
        return True

    def hold(self, stream: int) -> None:
        """Make what is enqueued on `stream` from now on wait for the point. The context must be current."""
        self.context.call("cuStreamWaitEvent", stream, self.raw, 0)

    @property
    def done(self) -> bool:
        """Return whether the point is reached; True if it was never set."""
        with self.context.current():
            return self.context.passed("cuEventQuery", self.raw)


def wait(done: Callable[[], bool], meanwhile: Callable[[], object], awake: float = AWAKE_SECONDS) -> None:
    """Wait until `done`. Unlike cuEventSynchronize, hears Ctrl-C, and what `meanwhile` raises."""
    start, pause = time.monotonic(), 20e-6
    while not done():
        if time.monotonic() - start > awake:
            meanwhile()
            time.sleep(pause)
            pause = min(2 * pause, 1e-3)


def order(context: Context, first: int, then: int) -> None:
    """Make what is enqueued on `then` from now on wait for what is on `first`. The context must be current."""
    # One event for each thread, because the wait is for the point at the time of the call.
    event = getattr(context.threads, "event", None)
    if event is None:
        event = context.threads.event = Event(context)
    event.record(first)
    event.hold(then)


def order_across(first: Context, stream: int, then: Context, others: Iterable[int]) -> None:
    """Make what is enqueued from now on on other streams, those of `then`, wait for what is on a stream of `first`."""
    event = Event(first)
    # The default stream's number means that of the current context.
    with first.current():
        event.record(stream)
    with then.current():
        for other in others:
            event.hold(other)


def _finally(owner: object, function: Callable[..., None], *arguments: Any) -> weakref.finalize[..., Any]:
    """Call a function once the owner is gone, but not at the interpreter's end."""
    finalizer = weakref.finalize(owner, function, *arguments)
    finalizer.atexit = False
    return finalizer


def _destroy(context: Context, function: str, raw: Any) -> None:
    """Release a handle. A failure is a warning: no caller could catch an exception from a finalizer."""
    try:
        with context.current():
            context.call(function, raw)
    except CudaError as error:
        warnings.warn(f"while releasing a CUDA handle: {error}", ResourceWarning, stacklevel=2)


def _import(context: Context, function: str, desc: Any, descriptor: int) -> Any:
    """Import what Vulkan exported. Closes the descriptor unless CUDA owns it, or may own it after an interrupt."""
    ours = True
    try:
        with context.current():
            ours = False
            try:
                return context.call(function, desc)
            except CudaError:
                ours = True  # only a successful import owns it
                raise
    except BaseException:
        if ours:
            os.close(descriptor)
        raise


class Timeline:
    """One of the renderer's timeline semaphores. Owns the descriptor from the start, even if the import fails."""

    def __init__(self, context: Context, descriptor: int) -> None:
        kinds = context.driver.CUexternalSemaphoreHandleType
        desc = context.driver.CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC()
        desc.type = kinds.CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD
        desc.handle.fd = descriptor
        self.context = context
        self.raw = _import(context, "cuImportExternalSemaphore", desc, descriptor)
        self._finalizer = _finally(self, _destroy, context, "cuDestroyExternalSemaphore", self.raw)
        with context.current():
            context.prepare_guard()

    def wait(self, stream: int, value: int) -> None:
        """Make what is enqueued on `stream` from now on wait for the value. The context must be current."""
        self._enqueue("Wait", value, stream)

    def signal(self, stream: int, value: int) -> None:
        """Set the value once everything enqueued on `stream` so far is done. The context must be current."""
        self.context.guard(stream)
        self._enqueue("Signal", value, stream)

    def _enqueue(self, what: str, value: int, stream: int) -> None:
        # The parameters are used again. A finalizer may run inside any line here, so nobody else has them meanwhile.
        kept = self.context.threads.__dict__
        params = kept.pop(what, None) or [
            getattr(self.context.driver, f"CUDA_EXTERNAL_SEMAPHORE_{what.upper()}_PARAMS")()
        ]
        params[0].params.fence.value = value
        self.context.call(f"cu{what}ExternalSemaphoresAsync", [self.raw], params, 1, stream)
        kept[what] = params

    def close(self) -> None:
        """Release it. Nothing on the GPU may wait for it."""
        self._finalizer()

    def abandon(self) -> None:
        """Leak it: a stream still waits for it."""
        self._finalizer.detach()


class DeviceMemory:
    """Memory that Vulkan exported, mapped in CUDA: `bytes` at `pointer`.

    Owns the descriptor from the start, even if the import fails. Frames hold this object, and so does every array that
    was made of one. When the last of them is gone, the memory is retired; see `Context.retire`.
    """

    def __init__(self, context: Context, descriptor: int, allocation_bytes: int, offset: int, size: int) -> None:
        desc = context.driver.CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
        desc.type = context.driver.CUexternalMemoryHandleType.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD
        desc.handle.fd = descriptor
        desc.size = allocation_bytes
        desc.flags = context.driver.CUDA_EXTERNAL_MEMORY_DEDICATED
        self.context = context
        self.bytes = size
        memory = _import(context, "cuImportExternalMemory", desc, descriptor)
        part = context.driver.CUDA_EXTERNAL_MEMORY_BUFFER_DESC()
        part.offset = offset
        part.size = size
        try:
            with context.current():
                self.pointer = int(context.call("cuExternalMemoryGetMappedBuffer", memory, part))
        except BaseException:
            _destroy(context, "cuDestroyExternalMemory", memory)
            raise
        _finally(self, context.retire, partial(_unmap, context, self.pointer, memory))


def _unmap(context: Context, pointer: int, memory: Any) -> None:
    """Unmap. The context must be current, and the GPU must not use the memory."""
    try:
        context.call("cuMemFree", pointer)
        context.call("cuDestroyExternalMemory", memory)
    except CudaError as error:
        warnings.warn(f"while unmapping the renderer's memory: {error}", ResourceWarning, stacklevel=2)
