"""The renderer's memory, as other libraries take it: the base of frames and of a field's arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _libraries
from ..errors import ArrayMismatch, FieldClosed
from . import cuda as _cuda, dlpack as _dlpack, streams as _streams
from .cuda import DeviceMemory
from .layout import PARTS, compact

if TYPE_CHECKING:
    import cupy
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from .host import HostMemory
    from .layout import Layout
    from .streams import Stream


class Array:
    """Memory that the renderer draws, of the field's shape and dtype.

    A mesh is (rows, cols, 4) float32: x, y, z, w. x and z span -1 to 1. y is up; the renderer's wave stays within ±0.3.
    w, from 0 to 1, selects the colour.

    `as_cupy()`, `as_torch()`, `as_numba()` and `as_numpy()` return that library's array, without a copy, ordered with
    the stream that the library works on now.

    In CUDA memory it offers `__cuda_array_interface__` and DLPack, so these calls take it without a copy:
    `cupy.asarray(v)`, `torch.from_dlpack(v)`, `numba.cuda.as_cuda_array(v, sync=False)`, cuda.core's
    `StridedMemoryView`. In host memory `numpy.asarray(v)` and DLPack take it. Each array made of it keeps the memory
    mapped.
    """

    def __init__(
        self,
        layout: Layout,
        memory: DeviceMemory | HostMemory,
        offset: int,
        stream: Stream | None,
    ) -> None:
        self._layout = layout
        self._memory = memory
        # What each array that is made of it holds.
        self._owner: object = memory
        # None in host memory, and once the field is closed: then there is nothing to order.
        self._stream = stream
        # The streams on which libraries took it, as they named them or as assumed. The hand-off waits for these.
        self._consumers: set[Stream] = set()
        self._offset = offset
        self._array: NDArray[Any] | None = None

    def __repr__(self) -> str:
        return f"<wavefield.Array {self._layout.shape} {self._layout.dtype}>"

    def _move_to(self, stream: Stream | None) -> None:
        """Change to another stream, which waits for the renderer from now on."""
        if self._stream is not None and self._stream != stream:
            self._consumers.add(self._stream)
        self._stream = stream

    def _field_closed(self) -> None:
        """Forget the streams: they must not be used any more."""
        self._stream = None
        self._consumers.clear()

    def _check(self) -> None:
        """Raise if it must not be used any more."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the field's shape."""
        return self._layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the bytes from one element to the next, along each axis."""
        return self._layout.strides

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return NumPy's type: float32, float16 or uint8; int32 of a picture of kind "index"."""
        import numpy as np

        return np.dtype(self._layout.dtype)

    def part(self, name: str) -> Array:
        """Return the array's "colors", "sizes", "vectors", "faces" or "edges", if the field has such: to write, too.

        `array.colors` is the same. Each is memory of the renderer, which other libraries take as they take the array.
        """
        return Part(self, *self._place(name))

    def _place(self, name: str) -> tuple[Layout, int]:
        """Return the layout of a part, and where it begins."""
        layouts = dict(self._layout.parts)
        if name not in layouts:
            names = f"only {', '.join(layouts)}" if layouts else "no parts"
            raise AttributeError(f"an array of this field has no {name}, {names}: connect with parts={{…}}")
        return layouts[name], self._layout.offsets[name]

    def __getattr__(self, name: str) -> Any:
        if name in PARTS:
            return self.part(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def nbytes(self) -> int:
        """Return its size in bytes."""
        return self._layout.bytes

    @property
    def stream(self) -> Stream:
        """Return the CUDA stream to write it on. Raises `ValueError` in host memory."""
        if self._stream is None:
            if isinstance(self._memory, DeviceMemory):
                raise FieldClosed("the field is closed, and its stream is gone")
            raise ValueError('memory="host" has no streams')
        return self._stream

    @property
    def pointer(self) -> int:
        """Return the CUDA address of the first number."""
        return self._device().pointer + self._offset

    def _device(self) -> DeviceMemory:
        self._check()
        if not isinstance(self._memory, DeviceMemory):
            # An AttributeError, so that hasattr(frame, "__cuda_array_interface__") is False.
            raise AttributeError("this memory is on the CPU: use numpy.asarray")
        return self._memory

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Return the description, version 3.

        `stream` names the stream to wait for. CuPy and Numba make the CPU wait for it. So it is None, which means that
        there is nothing to wait for, if all loaded libraries already work on the frame's stream.

        The interface does not say which stream uses the array. This assumes the current streams of CuPy and of PyTorch:
        they wait until the memory may be written, and the hand-off waits for them, as with DLPack.
        """
        device = self._device()
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self._layout.typestr,
            "data": (self.pointer, False),
            "strides": None,
            "stream": self._stream_to_wait_for(device.context),
        }

    def _stream_to_wait_for(self, context: _cuda.Context) -> int | None:
        if self._stream is None:
            return None
        consumers = _streams.current_streams(context.ordinal).values()
        for consumer in consumers:
            self._order_consumer(context, consumer)
        if consumers and not _streams.others_loaded() and all(consumer == self._stream for consumer in consumers):
            return None
        context.refuse_capture(self._stream)  # some libraries make the CPU wait for it
        return self._stream.handle

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return NumPy's array of the memory, in host memory only; a copy if `copy` or another `dtype` asks for one."""
        self._check()
        if isinstance(self._memory, DeviceMemory):
            raise TypeError(
                "this memory is on the GPU: use cupy.asarray, torch.from_dlpack or numba.cuda.as_cuda_array, or "
                'wavefield.connect(memory="host") for NumPy'
            )
        if self._array is None:
            self._array = self._numpy(self._memory)
        if dtype is not None and dtype != self._array.dtype:
            if copy is False:
                raise ValueError(f"the array is {self._layout.dtype}, so {dtype} needs a copy")
            return self._array.astype(dtype)
        return self._array.copy() if copy else self._array

    def _numpy(self, memory: HostMemory) -> NDArray[Any]:
        return memory.array(self._layout, self._offset)

    def as_numpy(self) -> NDArray[Any]:
        """Return NumPy's array of it, without a copy. Raises `TypeError` in CUDA memory."""
        return self.__array__()

    def as_cupy(self) -> cupy.ndarray[Any, Any]:
        """Return CuPy's array of it, without a copy, ordered with CuPy's current stream."""
        self._device()
        return _libraries.need("cupy", "as_cupy()").from_dlpack(self)

    def as_torch(self) -> torch.Tensor:
        """Return PyTorch's tensor of it, without a copy, ordered with PyTorch's current stream."""
        return _libraries.need("torch", "as_torch()").from_dlpack(self)

    def as_numba(self) -> Any:
        """Return Numba's array of it, without a copy, ordered with Numba's default stream. Selects Numba's device."""
        device = self._device()
        cuda = _libraries.need("numba.cuda", "as_numba()")
        cuda.select_device(device.context.ordinal)
        if self._stream is not None:
            self._order_consumer(device.context, _streams.stream_of(cuda.default_stream()))
        # With sync=True the CPU would wait for the stream.
        return cuda.as_cuda_array(self, sync=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return (2, ordinal) in CUDA memory, (1, 0) in host memory."""
        if isinstance(self._memory, DeviceMemory):
            return (_dlpack.CUDA, self._memory.context.ordinal)
        return (_dlpack.CPU, 0)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a capsule, and order it with the consumer's `stream`, both ways."""
        self._check()
        if copy:
            raise BufferError("wavefield does not copy for DLPack: copy with the other library")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"this memory is on device {self.__dlpack_device__()}, not on {tuple(dl_device)}")
        if isinstance(self._memory, DeviceMemory):
            with self._memory.context.current():
                if (consumer := self._dlpack_consumer(self._memory.context, stream)) is not None:
                    self._order_consumer(self._memory.context, consumer)
            address = self.pointer
        else:
            if stream is not None:
                raise BufferError("this memory is on the CPU, which has no streams")
            address = self.__array__().ctypes.data
        return _dlpack.make(
            address,
            self.__dlpack_device__(),
            self.shape,
            compact(self.shape),
            self._layout.dtype,
            self._owner,
            _dlpack.wants_version_1(max_version),
        )

    def _dlpack_consumer(self, context: _cuda.Context, stream: int | None) -> Stream | None:
        """Return the stream that a consumer's number means, or None if there is nothing to order."""
        if stream == 0:
            raise BufferError("stream 0 is ambiguous in DLPack: use 1 for the default stream, 2 for the thread's own")
        if stream is not None and stream < -1:
            raise BufferError(f"{stream} is not a CUDA stream")
        if stream == -1 or self._stream is None:
            return None
        consumer = _streams.Stream(_streams.LEGACY_STREAM if stream is None else stream)
        # If it is a library's current stream, hold the library's object: that keeps the stream alive.
        for current in _streams.current_streams(context.ordinal).values():
            if current == consumer:
                return current
        return consumer

    def _order_consumer(self, context: _cuda.Context, consumer: Stream) -> None:
        """Make a stream wait until the memory may be written, and the hand-off wait for that stream."""
        if self._stream is not None and consumer != self._stream:
            context.refuse_capture(self._stream, consumer)
            with context.current():
                _cuda.order(context, self._stream.handle, consumer.handle)
            self._consumers.add(consumer)

    @property
    def _writers(self) -> set[Stream]:
        """The streams that may have written the memory."""
        return self._consumers if self._stream is None else {self._stream, *self._consumers}

    def _order_after(self, context: _cuda.Context, stream: Stream) -> None:
        """Make `stream` wait for every stream that may have written the memory."""
        with context.current():
            for writer in self._writers - {stream}:
                _cuda.order(context, writer.handle, stream.handle)


class Part(Array):
    """A part of an array, or another array behind it, ordered with the same streams."""

    def __init__(self, whole: Array, layout: Layout, offset: int) -> None:
        self._whole = whole
        super().__init__(layout, whole._memory, whole._offset + offset, None)
        self._consumers = whole._consumers

    @property
    def _stream(self) -> Stream | None:
        return self._whole._stream

    @_stream.setter
    def _stream(self, stream: Stream | None) -> None:
        """Keep that of the whole."""

    def _check(self) -> None:
        self._whole._check()


def require_shape(layout: Layout, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> int:
    """Check an array against the field's layout, and return its bytes from row to row. `strides` counts bytes."""
    if len(shape) == 3 == len(layout.shape) + 1 and layout.kind == "image" and shape[2] == 1:
        shape, strides = shape[:2], strides[:2]
    if tuple(shape) != layout.shape or dtype != layout.dtype:
        in_torch = {"float32": "float", "float16": "half", "uint8": "byte", "int32": "int"}[layout.dtype]
        cure = f': convert it with array.astype("{layout.dtype}"), in PyTorch array.{in_torch}()'
        raise ArrayMismatch(
            f"the array is {tuple(shape)}, {dtype}; the field is {layout.shape}, {layout.dtype}"
            f"{'' if dtype == layout.dtype else cure}"
        )
    if not rows_are_contiguous(layout, tuple(shape), tuple(strides)):
        raise ArrayMismatch(
            f"the array's rows are not contiguous (strides {tuple(strides)} bytes): use ascontiguousarray(array), in "
            "PyTorch array.contiguous()"
        )
    return layout.row_bytes if layout.shape[0] == 1 else strides[0]


def rows_are_contiguous(layout: Layout, shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether each row has no gaps and begins after the one before. The stride of an axis of one is ignored."""
    inner = zip(shape[1:], strides[1:], layout.strides[1:], strict=True)
    return all(size == 1 or stride == wanted for size, stride, wanted in inner) and (
        shape[0] == 1 or strides[0] >= layout.row_bytes
    )
