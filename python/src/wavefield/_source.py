"""Another library's array, to show or to copy: where it lies, and what must finish before it may be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _cuda, _dlpack
from ._array import Array, require_shape
from ._layout import compact
from .errors import ArrayMismatch, DeviceMismatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._layout import Layout
    from ._streams import Stream


@dataclass
class Source:
    """A checked array. `held` keeps its memory alive until the GPU has read it."""

    pointer: int
    pitch: int
    """Bytes from row to row."""
    on_device: bool
    held: object


class _Held:
    """Owns a DLPack capsule that was taken, and releases it when dropped."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release

    def __del__(self) -> None:
        self._release()


def of(array: Any, layout: Layout, context: _cuda.Context | None, stream: Stream | None) -> Source:
    """Check an array, and make `stream` wait, on the GPU, until the array is written."""
    if context is not None and stream is not None:
        if _is_ours(array):
            array._order_after(context, stream)
            _same_device(array.__dlpack_device__()[1], context)
            return Source(
                array.pointer, require_shape(layout, array.shape, array.strides, str(array.dtype)), True, array
            )
        if _is_cuda_dlpack(array):
            return _by_dlpack(array, layout, context, stream)
        interface = getattr(array, "__cuda_array_interface__", None)
        if interface is not None:
            return _by_interface(array, interface, layout, context, stream)
    import numpy as np

    host = np.asarray(array)
    pitch = require_shape(layout, host.shape, host.strides, str(host.dtype))
    return Source(host.ctypes.data, pitch, False, host)


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


def _by_dlpack(array: Any, layout: Layout, context: _cuda.Context, stream: Stream) -> Source:
    # The producer makes this stream wait for what it has enqueued.
    try:
        capsule = array.__dlpack__(stream=stream.handle, max_version=(1, 0))
    except TypeError:
        capsule = array.__dlpack__(stream=stream.handle)
    taken = _dlpack.take(capsule)
    held = _Held(taken.release)
    _same_device(taken.device[1], context)
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
    if shape == layout.shape:  # an empty array's pointer may be null
        _same_device(context.device_of(pointer), context)
    strides = interface.get("strides")
    if strides is None:
        strides = compact(shape, _item_bytes(interface))
    pitch = require_shape(layout, shape, tuple(strides), _dtype(interface))
    producer = interface.get("stream")
    if producer is not None and producer != stream.handle:
        with context.current():
            _cuda.order(context, int(producer), stream.handle)
    return Source(pointer, pitch, True, array)


def _same_device(ordinal: int, context: _cuda.Context) -> None:
    if ordinal != context.ordinal:
        raise DeviceMismatch(
            f"the array is on CUDA device {ordinal}, and the field on device {context.ordinal} ({context.name}): "
            "create the array there"
        )


def copy(source: Source, layout: Layout, destination: int, context: _cuda.Context, stream: Stream) -> None:
    """Enqueue a copy of all rows to the device address `destination`."""
    kinds = context.driver.CUmemorytype
    copy = context.driver.CUDA_MEMCPY2D()
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
        context.call("cuMemcpy2DAsync", copy, stream.handle)
