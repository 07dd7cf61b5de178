"""Another library's array, to show or to copy: where it lies, what must finish before it is read, what it becomes."""

from __future__ import annotations

import contextlib
import os
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import ArrayMismatch, CudaError, CudaMissing, WavefieldError, brief
from . import cuda as _cuda, dlpack as _dlpack, numbers as _numbers, streams as _streams
from .array import Array, require_shape
from .layout import compact, dtype_name, native_name
from .streams import LEGACY_STREAM, Stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from .layout import Layout


# What arrays of PyTorch and CuPy that were read have said: to ask them takes as long as all else that a frame costs.
_known: dict[int, _Known] = {}


class _Known:
    """What an array has said, as long as it would say the same."""

    def __init__(self, array: Any, source: Source) -> None:
        key = id(array)
        self._array = weakref.ref(array, lambda _gone: _known.pop(key, None))
        self._said = _said_by(array)
        self.of_source = {name: getattr(source, name) for name in _SAID}

    def holds(self, array: Any) -> bool:
        return self._array() is array and _said_by(array) == self._said


# What a `Source` has from its array alone.
_SAID = ("ordinal", "_interface", "on_device", "context", "before_mask", "pointer", "shape", "strides", "dtype")


def _said_by(array: Any) -> tuple[Any, ...]:
    """Return address, shape, strides and type of an array of PyTorch, which counts strides in elements, or CuPy."""
    if hasattr(array, "data_ptr"):  # PyTorch
        return array.data_ptr(), array.shape, array.stride(), array.dtype
    return array.data.ptr, array.shape, array.strides, array.dtype


class Source:
    """An array that was asked, once, where it lies. `read` fills in `pointer` and what follows it."""

    ordinal: int | None
    """The CUDA ordinal of its GPU."""
    context: _cuda.Context | None
    """The context of its GPU; None without CUDA."""
    before_mask: str
    """The type of an array with a mask, which becomes one of floats if something is masked."""
    held: object = None
    """Keeps the memory alive until the GPU has read it. None until `read`."""
    parts: Mapping[str, Source] = {}
    """What is shown with it, by name: see `layout.PARTS`."""
    more: Sequence[Source] = ()
    """Other arrays that are shown at the same time."""
    peer: _cuda.Context | None = None
    """The GPU that the array is on, if it is not the renderer's. Then the writers must wait for the copy."""
    # The stream that waits until the array is written, if it is known.
    _ready: Stream | None = None
    library_knows = False
    """Whether that is the library's own stream, which does not wait for what others enqueue."""

    def __init__(self, array: Any) -> None:
        self.writers: set[Stream] = set()
        """The streams that may write the array later, as far as they are known."""
        if (known := _known.get(id(array))) is not None and known.holds(array):
            self.__dict__.update(known.of_source)
            if self.context is not None:
                self.context.refuse_capture()
            # Another tensor of the same memory, which this one may leave.
            self.array = self.held = array.detach() if hasattr(array, "detach") else array
            self._ready, self.library_knows = _streams.stream_that_writes(array, self.ordinal or 0), True
            return
        whole = array
        if isinstance(array, str | bytes | os.PathLike):
            raise ArrayMismatch(
                f"{brief(array)} is a name, not an array: read the file first, such as with "
                "numpy.asarray(PIL.Image.open(name))"
            )
        if hasattr(array, "detach"):  # PyTorch: without gradients
            array = array.detach()
        device, self.ordinal, self._interface = _where(array)
        if device not in (_dlpack.CPU, _dlpack.CUDA_HOST, *_GPUS):
            raise ArrayMismatch(f"the array is on DLPack device type {device}: copy it to the CPU or to a CUDA GPU")
        self.on_device = device in _GPUS
        self.context = None
        if self.ordinal is not None:
            with contextlib.suppress(CudaMissing):
                self.context = _cuda.Context.at(self.ordinal)
                self.context.refuse_capture()
        if hasattr(array, "is_neg") and array.is_neg():  # PyTorch's DLPack leaves the sign out
            array = array.resolve_neg()
        masked = hasattr(array, "mask") and hasattr(array, "filled")
        self.before_mask = native_name(dtype_name(array.dtype)) if masked else ""
        if not (self.on_device or hasattr(array, "to")):  # PyTorch's stay, all others become NumPy's
            array = on_the_host(array)
        self.array = array
        # With gradients, as the caller has it.
        self._whole = whole
        self._lies(0, (), (), "")

    def read(self, context: _cuda.Context | None = None, stream: Stream | None = None) -> Source:
        """Ask where the array lies, the first time. `stream` belongs to `context`; see `order`."""
        if self.held is None:
            with refusing(self.array, "does not show its memory"):
                self._read(stream if context is not None and context.ordinal == self.ordinal else None)
                if len(self.strides) != len(self.shape) or (not self.pointer and 0 not in self.shape):
                    raise ValueError(f"address {self.pointer:#x}, shape {self.shape}, strides {self.strides}")
        return self

    def _read(self, stream: Stream | None) -> None:
        array = self.array
        if not self.on_device:
            array = on_the_host(array)
            self._lies(array.ctypes.data, array.shape, array.strides, array.dtype)
        elif isinstance(array, Array):
            self._lies(array.pointer, array.shape, array.strides, array.dtype)
        elif self._interface is not None:
            self._read_interface(self._interface)
        elif self.ordinal is not None and (ready := _streams.stream_that_writes(array, self.ordinal)) is not None:
            # PyTorch and CuPy say all that DLPack would, in a fifth of the time.
            pointer, shape, strides, dtype = _said_by(array)
            if hasattr(array, "element_size"):
                strides = tuple(step * array.element_size() for step in strides)
            self._lies(pointer, tuple(shape), strides, dtype_name(dtype))
            self._ready, self.library_knows = ready, True
            self._remember()
        else:
            try:
                array = (self._read_dlpack(array, stream), array)
            except Exception as error:
                # The standard lets a producer refuse, for example memory that is read-only.
                if isinstance(error, CudaError) or not hasattr(array, "__cuda_array_interface__"):
                    raise
                self._read_interface(array.__cuda_array_interface__)
        self.held = array

    def _remember(self) -> None:
        # One that is stored with the other sign was copied.
        if _said_by(self._whole)[0] == self.pointer:
            _known[id(self._whole)] = _Known(self._whole, self)

    def _read_dlpack(self, array: Any, stream: Stream | None) -> object:
        # The producer makes this stream wait for what it has enqueued. Without CUDA nobody waits.
        ready, number = stream or Stream(LEGACY_STREAM), -1
        with contextlib.ExitStack() as within:
            if self.context is not None:
                self.context.refuse_capture(ready)
                number = ready.handle
                within.enter_context(self.context.current())
            within.enter_context(_streams.its_gpu_is_current(array))
            taken, knows = _dlpack.export(array, stream=number)
        if taken.device[0] not in _GPUS:
            raise ValueError(f"its capsule is on DLPack device type {taken.device[0]}")
        self._lies(taken.pointer, taken.shape, taken.strides, taken.dtype)
        self._ready = ready if knows else Stream(LEGACY_STREAM)
        return taken

    def _read_interface(self, interface: dict[str, Any]) -> None:
        import numpy as np

        if interface.get("mask") is not None:
            raise ArrayMismatch("the array has a mask, which cannot be drawn: fill what is masked")
        dtype, shape = np.dtype(interface["typestr"]), tuple(map(int, interface["shape"]))
        strides = interface.get("strides")
        # Before version 3 it named no stream, and libraries used the default one.
        stream = interface.get("stream", LEGACY_STREAM if interface.get("version", 0) < 3 else None)
        strides = compact(shape, dtype.itemsize) if strides is None else tuple(map(int, strides))
        self._lies(int(interface["data"][0]), shape, strides, dtype)
        if stream is not None:
            self._ready = Stream(int(stream))

    def _lies(self, pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: object) -> None:
        """Note where it lies. `strides` counts bytes."""
        self.pointer, self.shape, self.strides, self.dtype = pointer, shape, strides, str(dtype)

    def shape_and_dtype(self) -> tuple[tuple[int, ...], str]:
        """Return the shape and NumPy's name of the type, if possible without `read`."""
        if self.held is None and hasattr(self.array, "shape") and hasattr(self.array, "dtype"):
            return tuple(int(side) for side in self.array.shape), dtype_name(self.array.dtype)
        return self.read().shape, self.dtype

    def as_numpy(self) -> NDArray[Any]:
        """Return it as NumPy's array, copied from the GPU if needed."""
        host: Any = on_the_host(self.array) if self.on_device else self.read().held
        array: NDArray[Any] = host
        return array

    def cast(self, dtype: str) -> Source:
        """Return it converted to another type, by its own library and on its device."""
        return Source(_cast(self.array, self.shape_and_dtype()[1], dtype))

    def clipped(self, low: int, high: int) -> Source:
        """Return whole numbers, those beyond these ends as an end, as `cast` would not."""
        import numpy as np

        dtype = native_name(self.shape_and_dtype()[1])
        info = np.iinfo(dtype)
        with refusing(self.array, f"cannot be converted from {dtype}"):
            array = self.array.long() if hasattr(self.array, "long") else self.array
            return Source(array.clip(max(low, info.min), min(high, info.max)))

    def scaled(self, units: Sequence[_numbers.Pair]) -> Source:
        """Return 32-bit floats in units for all numbers, or for each column, computed in its own precision."""
        dtype = native_name(self.shape_and_dtype()[1])
        if len(units) == 1:
            return Source(_scaled(self.array, dtype, units[0]))
        array = self.array
        columns = enumerate(units)
        values = {
            column: _scaled(array[..., column], dtype, unit) for column, unit in columns if unit != _numbers.PLAIN
        }
        with refusing(array, "cannot be scaled"):
            array = _cast(array, dtype, "float32") if dtype != "float32" else array + 0
            for column, numbers in values.items():
                if hasattr(array, "at"):  # JAX's arrays cannot be written
                    array = array.at[..., column].set(numbers)
                else:
                    array[..., column] = numbers
        return Source(array)

    def copied(self, in_torch: str = "clone") -> Source:
        """Return a copy without gaps by its own library, on its device. PyTorch's "clone" may keep gaps."""
        array = self.array if self.on_device else self.read().held
        with refusing(array, "cannot be copied without gaps"):
            for name in (in_torch, "copy"):  # PyTorch; NumPy, CuPy, JAX
                if hasattr(array, name):
                    return Source(getattr(array, name)())
        raise ArrayMismatch(f"{type(array).__module__} cannot copy the array without gaps: create it contiguous")

    def pitch(self, layout: Layout) -> int:
        """Check the array against the field's layout, and return its bytes from row to row."""
        return require_shape(layout, self.shape, self.strides, self.dtype)

    def written_on(self, context: _cuda.Context) -> Stream | None:
        """Return the stream that writes the array, if it is known, and a stream of this context."""
        return self._ready if self.ordinal == context.ordinal else None

    def order(self, context: _cuda.Context, stream: Stream) -> None:
        """Make `stream` wait, on the GPU, until the array is written."""
        if self.ordinal in (None, context.ordinal):
            self._order(context, stream)
            return
        self.peer = peer = _cuda.Context.at(self.ordinal)
        default = Stream(LEGACY_STREAM)
        context.reach(peer)
        peer.refuse_capture(default)
        # Libraries name the streams of the current GPU.
        with peer.current():
            self._order(peer, default)
            self.writers |= {default, *_streams.current_streams(peer.ordinal).values()}
        _cuda.order_across(peer, default.handle, context, [stream.handle])

    def _order(self, context: _cuda.Context, stream: Stream) -> None:
        if self.on_device and isinstance(self.array, Array):
            self.array._order_after(context, stream)
            self.writers = {*self.array._consumers, self.array._stream or stream}
        elif self._ready is not None:
            if self._ready != stream:
                context.refuse_capture(self._ready, stream)
                with context.current():
                    _cuda.order(context, self._ready.handle, stream.handle)
            self.writers = {self._ready}


_GPUS = (_dlpack.CUDA, _dlpack.CUDA_MANAGED)


def of(array: Any, context: _cuda.Context | None, stream: Stream | None) -> Source:
    """Return where an array lies: on any GPU if there is a `context`, else in the CPU's memory."""
    source = array if isinstance(array, Source) else Source(array)
    parts = {name: of(part, context, stream) for name, part in source.parts.items()}
    more = [of(other, context, stream) for other in source.more]
    if context is None and source.on_device:
        source = Source(on_the_host(source.array))
    if parts or more:
        source.parts, source.more = parts, more
    return source.read(context, stream)


def gpu_of(array: Any) -> int | None:
    """Return the CUDA ordinal of the GPU that an array is on; None for memory of no GPU."""
    device, ordinal, _ = _where(array)
    return ordinal if device in _GPUS else None


def _where(array: Any) -> tuple[int, int | None, Any]:
    """Return DLPack's type of the device that an array is on, its GPU, and its interface if it has no DLPack there."""
    with refusing(array, "does not say where it lies"):
        device = _dlpack.CPU
        if hasattr(array, "__dlpack_device__"):
            device, ordinal = map(int, array.__dlpack_device__())
            if device in _GPUS:
                return device, ordinal, None
        # Numba's managed arrays are NumPy's, too.
        interface = getattr(array, "__cuda_array_interface__", None)
        if interface is None:
            return device, None, None
        pointer, ordinal = int(interface["data"][0]), -1
        if pointer:  # an empty array's may be null
            with contextlib.suppress(CudaError):
                ordinal = _cuda.device_of(pointer)
        return _dlpack.CUDA, ordinal if ordinal >= 0 else None, interface


def why_peer(ordinal: int, context: _cuda.Context, gaps: bool) -> str:
    """Return the reason why an array on another GPU is copied, as `field.shown` says it."""
    call = "cuMemcpy3DPeerAsync" if gaps else "cuMemcpyPeerAsync"
    return (
        f"copied from GPU {ordinal} to GPU {context.ordinal} ({call}), the renderer's; launch(like=x) or "
        f"device={ordinal} starts a renderer on the array's GPU"
    )


def copy(source: Source, layout: Layout, destination: int, context: _cuda.Context, stream: Stream) -> None:
    """Enqueue a copy of all rows to the device address `destination`."""
    pitch = source.pitch(layout)
    kinds = context.driver.CUmemorytype
    peer = source.peer
    copy = context.driver.CUDA_MEMCPY2D() if peer is None else context.driver.CUDA_MEMCPY3D_PEER()
    if source.on_device:
        copy.srcMemoryType = kinds.CU_MEMORYTYPE_DEVICE
        copy.srcDevice = source.pointer
    else:
        copy.srcMemoryType = kinds.CU_MEMORYTYPE_HOST
        copy.srcHost = source.pointer
    copy.srcPitch = pitch
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
        if pitch == layout.row_bytes:
            size = layout.bytes
            context.call("cuMemcpyPeerAsync", destination, context.raw, source.pointer, peer.raw, size, stream.handle)
        else:
            copy.srcContext, copy.dstContext, copy.Depth = peer.raw, context.raw, 1
            copy.srcHeight = copy.dstHeight = copy.Height
            context.call("cuMemcpy3DPeerAsync", copy, stream.handle)
    _cuda.order_across(context, stream.handle, peer, [writer.handle for writer in source.writers])


@contextmanager
def refusing(array: Any, what: str) -> Iterator[None]:
    """Turn what an array's own code raises into an `ArrayMismatch` that says what to do."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (WavefieldError, MemoryError)) or "OutOfMemory" in type(error).__name__:
            raise
        cure = 'show an array of plain numbers, such as x.astype("float32"), in PyTorch x.float()'
        if hasattr(array, "to_numpy"):  # Taichi, pandas
            cure = "show x.to_numpy()"
        if "sparse" in f"{type(array).__module__} {getattr(array, 'layout', '')}":
            dense = [name for name in ("to_dense", "toarray", "todense") if hasattr(array, name)]
            cure = f"it is sparse: show {f'x.{dense[0]}()' if dense else 'a dense copy of it'}"
        kind, words = f"{type(array).__module__}.{type(array).__qualname__}", " ".join(str(error).split())
        if kind.startswith("builtins."):
            kind, cure = kind[9:], "show an array of numbers, with rows and columns"
        raise ArrayMismatch(f"this {kind} {what} ({type(error).__name__}: {words}): {cure}") from error


def _cast(array: Any, now: str, dtype: str) -> Any:
    """Return the array converted to another type, by its own library and on its device."""
    import numpy as np

    # A number that is too large becomes infinite, which NumPy warns of.
    with refusing(array, f"cannot be converted from {now}"), np.errstate(over="ignore"):
        if hasattr(array, "astype"):
            return array.astype(dtype)
        if hasattr(array, "to"):  # PyTorch
            return getattr(array, {"float32": "float", "float16": "half", "uint8": "byte", "int32": "int"}[dtype])()
    raise ArrayMismatch(f"{type(array).__module__} cannot convert the array from {now}: create it as {dtype}")


def _scaled(array: Any, dtype: str, units: _numbers.Pair) -> Any:
    import numpy as np

    offset, factor = units
    with refusing(array, "cannot be scaled"), np.errstate(all="ignore"):
        array = _in_long(array, dtype)
        if offset and _numbers.is_whole(dtype):
            info = np.iinfo(dtype)
            offset = max(info.min, min(int(offset), info.max))
            # A difference that the type does not hold would wrap around.
            array = array.clip(info.min + max(offset, 0), info.max + min(offset, 0))
        array = (array - offset if offset else array) / factor
    now = dtype_name(array.dtype)
    return array if now == "float32" else _cast(array, now, "float32")


def _in_long(array: Any, dtype: str) -> Any:
    """Return the array with a type that its library computes with: PyTorch's `uint32` and `uint64` have no `min`."""
    return array.long() if dtype in ("uint32", "uint64") and hasattr(array, "long") else array


def on_the_host(array: Any) -> NDArray[Any]:
    """Return any library's array as NumPy's, copied from the GPU if needed."""
    import numpy as np

    with refusing(array, "cannot be read on the CPU"):
        for name in ("get", "copy_to_host"):  # CuPy, Numba
            if hasattr(type(array), "__cuda_array_interface__") and hasattr(array, name):
                array = getattr(array, name)()
        if hasattr(array, "cpu"):  # PyTorch
            array = array.cpu()
        if hasattr(array, "__dlpack__") and not hasattr(array, "__array__"):
            return _dlpack.numpy(array)
        host = unmasked(array) if isinstance(array, np.ma.MaskedArray) else np.asarray(array)
        if host.dtype == object and (not host.ndim or "sparse" in type(array).__module__):
            raise TypeError("it is no array")
        return host


def unmasked(array: Any) -> NDArray[Any]:
    """Return one of `numpy.ma` as a plain array, with NaN for what is masked."""
    import numpy as np

    if not np.ma.is_masked(array) or array.dtype.kind not in "biuf":
        return np.ma.getdata(array)
    if array.dtype.kind != "f":
        # Whole numbers of 64 bits need more than float64.
        array = array.astype(np.longdouble if array.dtype.itemsize == 8 else np.float64)
    filled: NDArray[Any] = array.filled(np.nan)
    return filled
