"""Another library's array, to show or to copy: where it lies, and what must finish before it may be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _cuda, _dlpack, _streams
from ._array import Array, require_shape
from ._layout import compact
from ._streams import Stream
from .errors import ArrayMismatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._layout import Layout


@dataclass
class Source:
    """A checked array. `held` keeps its memory alive until the GPU has read it."""

    pointer: int
    pitch: int
    """Bytes from row to row."""
    on_device: bool
    held: object
    writers: set[Stream] = field(default_factory=set)
    """The streams that may write the array later, as far as they are known."""
    peer: _cuda.Context | None = None
    """The GPU that the array is on, if it is not the renderer's. Then the writers must wait for the copy."""


class _Held:
    """Owns a DLPack capsule that was taken, and releases it when dropped."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release

    def __del__(self) -> None:
        self._release()


def of(array: Any, layout: Layout, context: _cuda.Context | None, stream: Stream | None) -> Source:
    """Check an array, and make `stream` wait, on the GPU, until the array is written."""
    if context is not None and stream is not None:
        ordinal = gpu_of(array)
        if ordinal is not None and ordinal != context.ordinal:
            return _of_peer(array, layout, context, stream, _cuda.Context.at(ordinal))
        if _is_ours(array):
            array._order_after(context, stream)
            pitch = require_shape(layout, array.shape, array.strides, str(array.dtype))
            return Source(array.pointer, pitch, True, array, {*array._consumers, array._stream or stream})
        if _is_cuda_dlpack(array):
            with context.current():
                return _by_dlpack(array, layout, stream)
        interface = getattr(array, "__cuda_array_interface__", None)
        if interface is not None:
            return _by_interface(array, interface, layout, context, stream)
    import numpy as np

    host = np.asarray(array)
    pitch = require_shape(layout, host.shape, host.strides, str(host.dtype))
    return Source(host.ctypes.data, pitch, False, host)


def gpu_of(array: Any) -> int | None:
    """Return the CUDA ordinal of the GPU that an array is on; None for memory of no GPU."""
    if _is_cuda_dlpack(array):
        return int(array.__dlpack_device__()[1])
    interface = getattr(array, "__cuda_array_interface__", None)
    pointer = 0 if interface is None else int(interface["data"][0])
    # An empty array's pointer may be null.
    ordinal = _cuda.device_of(pointer) if pointer else -1
    return ordinal if ordinal >= 0 else None


def describe(array: Any) -> tuple[int, tuple[int, ...], tuple[int, ...], str] | None:
    """Return address, shape, strides in bytes and dtype of an array in CUDA memory; None for any other array."""
    if _is_ours(array):
        return array.pointer, array.shape, array.strides, str(array.dtype)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        shape = tuple(interface["shape"])
        strides = interface.get("strides")
        if strides is None:
            strides = compact(shape, _item_bytes(interface))
        return int(interface["data"][0]), shape, tuple(strides), _dtype(interface)
    if not _is_cuda_dlpack(array):
        return None
    # With -1 the producer orders nothing: nobody reads the array here.
    taken = _dlpack.take(array.__dlpack__(stream=-1))
    try:
        return taken.pointer, taken.shape, tuple(step * taken.item_bytes for step in taken.strides), taken.dtype
    finally:
        taken.release()


def describe_host(array: Any) -> tuple[int, tuple[int, ...], tuple[int, ...], str]:
    """Return the same for an array in host memory."""
    import numpy as np

    host = np.asarray(array)
    return host.ctypes.data, host.shape, host.strides, str(host.dtype)


def _dtype(interface: dict[str, Any]) -> str:
    import numpy as np

    return str(np.dtype(interface["typestr"]))


def _item_bytes(interface: dict[str, Any]) -> int:
    import numpy as np

    return int(np.dtype(interface["typestr"]).itemsize)


def _is_ours(array: Any) -> bool:
    """Return whether it is a frame or an array of a field, which knows the streams that write it."""
    return isinstance(array, Array) and _is_cuda_dlpack(array)


def _is_cuda_dlpack(array: Any) -> bool:
    return hasattr(array, "__dlpack_device__") and int(array.__dlpack_device__()[0]) in (
        _dlpack.CUDA,
        _dlpack.CUDA_MANAGED,
    )


def _by_dlpack(array: Any, layout: Layout, stream: Stream) -> Source:
    # The producer makes this stream wait for what it has enqueued.
    with _streams.its_gpu_is_current(array):
        try:
            capsule = array.__dlpack__(stream=stream.handle, max_version=(1, 0))
        except TypeError:
            capsule = array.__dlpack__(stream=stream.handle)
    taken = _dlpack.take(capsule)
    held = _Held(taken.release)
    strides = tuple(step * taken.item_bytes for step in taken.strides)
    pitch = require_shape(layout, taken.shape, strides, taken.dtype)
    return Source(taken.pointer, pitch, True, (held, array))


def _by_interface(
    array: Any, interface: dict[str, Any], layout: Layout, context: _cuda.Context, stream: Stream
) -> Source:
    pointer = int(interface["data"][0])
    if interface.get("mask") is not None:
        raise ArrayMismatch("the array has a mask, which cannot be drawn")
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    if strides is None:
        strides = compact(shape, _item_bytes(interface))
    pitch = require_shape(layout, shape, tuple(strides), _dtype(interface))
    producer = interface.get("stream")
    if producer is not None and producer != stream.handle:
        with context.current():
            _cuda.order(context, int(producer), stream.handle)
    return Source(pointer, pitch, True, array, set() if producer is None else {Stream(int(producer))})


def _of_peer(array: Any, layout: Layout, context: _cuda.Context, stream: Stream, peer: _cuda.Context) -> Source:
    """Do the same for an array on another GPU: its default stream waits for what writes it, and `stream` for that."""
    default = Stream(_cuda.LEGACY_STREAM)
    context.reach(peer)
    # Libraries name the streams of the current GPU.
    with peer.current():
        source = of(array, layout, peer, default)
        source.writers |= {default, *_streams.current_streams(peer.ordinal).values()}
    _cuda.order_across(peer, default.handle, context, [stream.handle])
    source.peer = peer
    return source


def why_peer(ordinal: int, context: _cuda.Context, gaps: bool) -> str:
    """Return the reason why an array on another GPU is copied, as `field.shown` says it."""
    call = "cuMemcpy3DPeerAsync" if gaps else "cuMemcpyPeerAsync"
    return (
        f"copied from GPU {ordinal} to GPU {context.ordinal} ({call}), the renderer's; launch(like=x) or "
        f"device={ordinal} starts a renderer on the array's GPU"
    )


def copy(source: Source, layout: Layout, destination: int, context: _cuda.Context, stream: Stream) -> None:
    """Enqueue a copy of all rows to the device address `destination`."""
    kinds = context.driver.CUmemorytype
    peer = source.peer
    copy = context.driver.CUDA_MEMCPY2D() if peer is None else context.driver.CUDA_MEMCPY3D_PEER()
    if source.on_device:
        copy.srcMemoryType = kinds.CU_MEMORYTYPE_DEVICE
        copy.srcDevice = source.pointer
    else:
        copy.srcMemoryType = kinds.CU_MEMORYTYPE_HOST
        copy.srcHost = source.pointer
    copy.srcPitch = source.pitch
    copy.dstMemoryType = kinds.CU_MEMORYTYPE_DEVICE
    copy.dstDevice = destination
    copy.dstPitch = layout.row_bytes
    copy.WidthInBytes = layout.row_bytes
    copy.Height = layout.shape[0]
    with context.current():
        if peer is None:
            context.call("cuMemcpy2DAsync", copy, stream.handle)
            return
        # Without peer access, only these calls read what `cuMemCreate` made, such as PyTorch's expandable segments.
        if source.pitch == layout.row_bytes:
            size = layout.bytes
            context.call("cuMemcpyPeerAsync", destination, context.raw, source.pointer, peer.raw, size, stream.handle)
        else:
            copy.srcContext, copy.dstContext, copy.Depth = peer.raw, context.raw, 1
            copy.srcHeight = copy.dstHeight = copy.Height
            context.call("cuMemcpy3DPeerAsync", copy, stream.handle)
    _cuda.order_across(context, stream.handle, peer, [writer.handle for writer in source.writers])
