"""The renderer's memory, as other libraries take it: what frames and arrays of a field have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _cuda, _dlpack, _libraries, _streams
from ._cuda import DeviceMemory
from ._layout import compact
from .errors import ArrayMismatch, FieldClosed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ._host import HostMemory
    from ._layout import Layout
    from ._streams import Stream


class Array:
    """Memory that the renderer draws, of the field's shape and dtype.

    Of a mesh, (rows, cols, 4) float32: x, y, z, w. x and z span -1 to 1 and y is up, within ±0.3 for the wave; w, 0 to
    1, is what the colour map shows.

    `as_cupy()`, `as_torch()`, `as_numba()` and `as_numpy()` give the array of that library, with no copy and ordered
    with what that library works on now.

    In CUDA memory it offers `__cuda_array_interface__` and DLPack, so these take it with no copy:
    `cupy.asarray(v)`, `torch.from_dlpack(v)`, `numba.cuda.as_cuda_array(v, sync=False)`, cuda.core's
    `StridedMemoryView`. In host memory `numpy.asarray(v)` and DLPack do. Whatever was made of it keeps the memory
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
        # None in host memory, and once the field is closed: then nothing has to be ordered any more.
        self._stream = stream
        # Streams that those who took it said they would use, or seem to use; a hand-off waits for them.
        self._consumers: set[Stream] = set()
        self._offset = offset
        self._array: NDArray[Any] | None = None

    def __repr__(self) -> str:
        return f"<wavefield.Array {self._layout.shape} {self._layout.dtype}>"

    def _move_to(self, stream: Stream | None) -> None:
        """Take note of the stream that waits for the renderer from now on."""
        if self._stream is not None and self._stream != stream:
            self._consumers.add(self._stream)
        self._stream = stream

    def _field_closed(self) -> None:
        """Forget the streams, which are not to be used any more."""
        self._stream = None
        self._consumers.clear()

    def _check(self) -> None:
        """Raise if it must not be used now."""

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
        """Return NumPy's type: float32, float16 or uint8."""
        import numpy as np

        return np.dtype(self._layout.dtype)

    @property
    def nbytes(self) -> int:
        """Return its size in bytes."""
        return self._layout.bytes

    @property
    def stream(self) -> Stream:
        """Return the CUDA stream on which it is written; there is none in host memory."""
        if self._stream is None:
            if isinstance(self._memory, DeviceMemory):
                raise FieldClosed("the field is closed, and its stream is gone")
            raise ValueError('there are no streams in memory="host"')
        return self._stream

    @property
    def pointer(self) -> int:
        """Return the CUDA address of the first number."""
        return self._device().pointer + self._offset

    def _device(self) -> DeviceMemory:
        self._check()
        if not isinstance(self._memory, DeviceMemory):
            # An AttributeError, so that hasattr(frame, "__cuda_array_interface__") is False.
            raise AttributeError("these vertices are in host memory: numpy.asarray takes them")
        return self._memory

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Return the description of version 3.

        `stream` is the stream whose present work must be waited for. CuPy and Numba make the CPU wait for it, so it is
        left out (None: nothing to wait for) where the libraries that are loaded work on that very stream now. The
        protocol does not tell on which stream the array is going to be used. It is taken to be the present one of CuPy
        and of PyTorch: that is made to wait, and the hand-over waits for it, as by DLPack.
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
        return self._stream.handle

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the vertices as a NumPy array, in host memory; the renderer's own unless a copy is asked for."""
        self._check()
        if isinstance(self._memory, DeviceMemory):
            raise TypeError(
                "the vertices are in the GPU's memory: cupy.asarray, torch.from_dlpack or numba.cuda.as_cuda_array "
                'take them, and wavefield.connect(memory="host") gives NumPy arrays'
            )
        if self._array is None:
            self._array = self._memory.array(self._layout, self._offset)
        if dtype is not None and dtype != self._array.dtype:
            if copy is False:
                raise ValueError(f"the array is {self._layout.dtype}; as {dtype} it is a copy")
            return self._array.astype(dtype)
        return self._array.copy() if copy else self._array

    def as_numpy(self) -> NDArray[Any]:
        """Return NumPy's array of it, in host memory: the renderer's own, to be written."""
        return self.__array__()

    def as_cupy(self) -> Any:
        """Return CuPy's array of it, with no copy, ordered with CuPy's current stream."""
        self._device()
        return _libraries.need("cupy", "as_cupy()").from_dlpack(self)

    def as_torch(self) -> Any:
        """Return PyTorch's tensor of it, with no copy, ordered with PyTorch's current stream."""
        self._device()
        return _libraries.need("torch", "as_torch()").from_dlpack(self)

    def as_numba(self) -> Any:
        """Return Numba's array of it, with no copy, ordered with Numba's default stream. Selects Numba's device."""
        device = self._device()
        cuda = _libraries.need("numba.cuda", "as_numba()")
        cuda.select_device(device.context.ordinal)
        if self._stream is not None:
            self._order_consumer(device.context, _streams.stream_of(cuda.default_stream()))
        # sync=True would make the CPU wait.
        return cuda.as_cuda_array(self, sync=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return (2, ordinal) for CUDA, (1, 0) for host memory."""
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
        """Return a capsule. `stream` is the consumer's: it is made to wait, and the hand-off then waits for it."""
        self._check()
        if copy:
            raise BufferError("these are the renderer's vertices: copy them with the other library")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the vertices are on device {self.__dlpack_device__()}, not on {tuple(dl_device)}")
        if isinstance(self._memory, DeviceMemory):
            if (consumer := self._dlpack_consumer(self._memory.context, stream)) is not None:
                self._order_consumer(self._memory.context, consumer)
            address = self.pointer
        else:
            if stream is not None:
                raise BufferError("these vertices are in host memory, which has no streams")
            address = self.__array__().ctypes.data
        return _dlpack.make(
            address,
            self.__dlpack_device__(),
            self.shape,
            compact(self.shape),
            self._layout.dtype,
            self._memory,
            _dlpack.wants_version_1(max_version),
        )

    def _dlpack_consumer(self, context: _cuda.Context, stream: int | None) -> Stream | None:
        """Return the stream that a consumer's number means, or None if nothing is to be ordered."""
        if stream == 0:
            raise BufferError("stream 0 is ambiguous in DLPack: 1 is the default stream, 2 the thread's own")
        if stream is not None and stream < -1:
            raise BufferError(f"{stream} is no CUDA stream")
        if stream == -1 or self._stream is None:
            return None
        consumer = _streams.Stream(_cuda.LEGACY_STREAM if stream is None else stream)
        # The library's object, if that is its stream, keeps it from being destroyed.
        for current in _streams.current_streams(context.ordinal).values():
            if current == consumer:
                return current
        return consumer

    def _order_consumer(self, context: _cuda.Context, consumer: Stream) -> None:
        """Make a stream wait until the vertices may be written, and the hand-over wait for it."""
        if self._stream is not None and consumer != self._stream:
            with context.current():
                _cuda.order(context, self._stream.handle, consumer.handle)
            self._consumers.add(consumer)

    def _order_after(self, context: _cuda.Context, stream: Stream) -> None:
        """Make `stream` wait for those who may have written the vertices."""
        with context.current():
            for writer in {self._stream, *self._consumers}:
                if writer is not None and writer != stream:
                    _cuda.order(context, writer.handle, stream.handle)


def require_shape(layout: Layout, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> int:
    """Check another array against the field's; `strides` counts bytes. Return its bytes from row to row."""
    if len(shape) == 3 == len(layout.shape) + 1 and layout.kind == "image" and shape[2] == 1:
        shape, strides = shape[:2], strides[:2]
    if tuple(shape) != layout.shape or dtype != layout.dtype:
        in_torch = {"float32": "float", "float16": "half", "uint8": "byte"}[layout.dtype]
        cure = f': convert it by array.astype("{layout.dtype}"), in PyTorch by array.{in_torch}()'
        raise ArrayMismatch(
            f"an array of shape {tuple(shape)}, {dtype}; the field is {layout.shape}, {layout.dtype}"
            f"{'' if dtype == layout.dtype else cure}"
        )
    if not rows_are_contiguous(layout, tuple(shape), tuple(strides)):
        raise ArrayMismatch(
            f"an array whose rows are not contiguous (strides {tuple(strides)} bytes): make it so first, by its "
            "library's ascontiguousarray() or contiguous()"
        )
    return layout.row_bytes if layout.shape[0] == 1 else strides[0]


def rows_are_contiguous(layout: Layout, shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether each row is without gaps, and begins after the one before. An axis of one has any stride."""
    inner = zip(shape[1:], strides[1:], layout.strides[1:], strict=True)
    return all(size == 1 or stride == wanted for size, stride, wanted in inner) and (
        shape[0] == 1 or strides[0] >= layout.row_bytes
    )
