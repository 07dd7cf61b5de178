"""The smallest and the largest finite numbers of an array, found where it lies: for the limits, and for the fit."""

from __future__ import annotations

import ctypes
import math
import struct
from dataclasses import replace
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING, Any

from .._memory import cuda as _cuda, numbers as _numbers
from .._memory.source import Source
from .._memory.streams import Stream
from ..errors import ArrayMismatch
from . import fit as _fit, limits as _limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from .._memory.layout import Layout

Ends = tuple[_numbers.Pair | None, _fit.Box | None]
"""The range of the values, and the corners of the box around the places, if there are any."""

THREADS, KEYS = 256, 8
"""As in range.cu, and so are these."""
_SIZES = {"uint8": 1, "float16": 2, "uint32": 4, "int32": 4, "float32": 4, "uint64": 8, "int64": 8, "float64": 8}
_ARGUMENTS = struct.Struct("=Q2Q3q3Q2Q")
"""Eight bytes for each, of which range.cu reads the first four of an `unsigned int`."""

RESULT, RESULTS = 8 * (KEYS + 1), 1024
"""The bytes of a result, and how many searches may run on a GPU at the same time."""


def limits_of(
    last: _limits.Choice,
    layout: Layout,
    dtype: str,
    wish: Any,
    ends: Callable[[], Ends],
    positive: Callable[[], _numbers.Pair | None] | None = None,
) -> _limits.Choice:
    """Return the limits for an array of this type, drawn with this layout, after `last`.

    `positive`: for a logarithm, what finds the smallest and the largest number above 0.
    """
    import numpy as np

    if positive is not None and not last.given and min(last.limits) <= 0:
        last = replace(last, sort=None)

    def span() -> _numbers.Pair | None:
        if positive is not None:
            low, high = ends()[0] or (0.0, 0.0)
            if low <= 0:
                low, high = positive() or (1.0, 10.0)
            return (low, high) if low < high else (low / 2, 2 * low)
        if wish is None and not last.follows:
            if layout.colours:
                return 0, int(np.iinfo(dtype).max) if _numbers.is_whole(dtype) else 1
            if layout.kind == "mesh":
                return 0.0, 1.0
        return ends()[0]

    return _limits.choose(last, layout.sort(dtype), wish, span)


def fit_of(last: _fit.Fit, layout: Layout, dtype: str, wish: Any, ends: Callable[[], Ends]) -> _fit.Fit:
    """Return the fit for an array of this type, drawn with this layout, after `last`."""
    if layout.has_places:
        return _fit.choose(last, layout.sort(dtype), wish, lambda: ends()[1])
    # An extent holds for arrays of this shape and type.
    kept = last if last.box and last.sort == layout.sort(dtype) else _fit.Fit()
    return replace(kept, fresh=wish == "fit")


def units_of(choice: _limits.Choice, fit: _fit.Fit, layout: Layout, dtype: str, given: str, norm: str) -> _numbers.Pair:
    """Return the units to draw an array of this type in. `given`: its type before a mask was filled."""
    import numpy as np

    if layout.dtype != "float32":
        return _numbers.PLAIN
    # The fourth number of points has units of its own. Without it, the value is y, a place.
    if layout.has_places and layout.shape[-1] == 3:
        if norm != "linear" and fit.units[1][0]:
            raise ValueError(f'norm="{norm}" needs values of their own here: give each point a fourth number')
        return fit.units[1]
    if layout.colours:  # also alpha, which limits do not reach
        return (0.0, float(np.iinfo(given).max)) if _numbers.is_whole(given) else _numbers.PLAIN
    return _limits.units(choice.limits, dtype, norm)


class Search:
    """A search for the ends of an array, where it lies. It begins with `start`, or when they are asked for."""

    def __init__(self, array: Any, layout: Layout, context: _cuda.Context | None = None) -> None:
        """`context`: of a GPU that can read the array if it is on none."""
        self.array, self.layout = array, layout
        self.source = array if isinstance(array, Source) else Source(array)
        # Which of a place's numbers is its value. Points without a value have their height's colour.
        self.value = (3 if layout.shape[-1] == 4 else 1) if layout.has_places else None
        self.on_device = self.source.on_device
        self._context = self.source.context or context
        self._keys: Any = None
        self._ends: Ends | None = None

    def start(self) -> _Finder:
        """Enqueue it. The array must be on a GPU."""
        assert self._context is not None
        if (finder := _finders.get(self._context)) is None:
            finder = _finders[self._context] = _Finder(self._context)
        if self._keys is None:
            with self._context.current():
                source = self.source.read(self._context, finder.stream)
                if source.dtype not in _SIZES:
                    raise ArrayMismatch(
                        f"the range of {source.dtype} in CUDA memory is unknown: give limits=(low, high), or show "
                        'x.astype("float32")'
                    )
                self._keys = finder.start(source, self.value)
        return finder

    @property
    def is_known(self) -> bool:
        """Return whether the ends were asked for."""
        return self._ends is not None

    @property
    def done(self) -> bool:
        """Return whether `ends` would not wait."""
        return self._keys is None or self._keys[KEYS] != 0

    def ends(self, meanwhile: Callable[[], object]) -> Ends:
        """Return the ends. Calls `meanwhile` while it waits for the GPU, where the array may be written later."""
        if self._ends is None:
            if self.on_device and self._context is not None:
                finder = self.start()

                def slowly() -> None:
                    finder.check()
                    meanwhile()

                _cuda.wait(lambda: self.done, slowly)
                self._ends = self._of(self._keys)
            else:
                # On a GPU, but without CUDA's driver for Python.
                host: Any = self.source.as_numpy()
                self._ends = _on_the_host(host, self.value)
        return self._ends

    def above_zero(self) -> _numbers.Pair | None:
        """Return the smallest and the largest number above 0, after `ends`. Copies an array on a GPU to the CPU."""
        import numpy as np

        try:
            host: Any = self.source.as_numpy()
        except ArrayMismatch:  # a frame in CUDA memory; so as many decades as a colour map shows well
            _, high = (self._ends and self._ends[0]) or (0.0, 0.0)
            return (1e-3 * high, high) if high > 0 else None
        values = host
        if self.value is not None:
            places = host.reshape(-1, host.shape[-1])
            values = places[np.isfinite(places[:, :3]).all(1), self.value]
        values = values[(values > 0) & np.isfinite(values)]
        return (float(values.min()), float(values.max())) if values.size else None

    def _of(self, keys: Any) -> Ends:
        dtype = self.source.dtype
        x, y, z, found = (_decoded(keys[at], keys[at + 1], dtype) for at in range(0, KEYS, 2))
        if x is None or y is None or z is None or self.value is None:
            return found, None
        return found, ((x[0], y[0], z[0]), (x[1], y[1], z[1]))


def _extent(values: NDArray[Any]) -> _numbers.Pair | None:
    import numpy as np

    def number(value: Any) -> float:
        # Whole numbers may have more digits than float64. Those with a mask have become longdouble.
        exact = values.dtype.kind in "iu" or (
            values.dtype.itemsize > 8 and value == np.floor(value) and value - value == 0
        )
        return int(value) if exact else float(value)

    with np.errstate(all="ignore"):
        low, high = number(values.min()), number(values.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            values = values[np.isfinite(values)]
            return (number(values.min()), number(values.max())) if values.size else None
    return low, high


def _on_the_host(array: NDArray[Any], value: int | None) -> Ends:
    import numpy as np

    if value is None:
        return _extent(array), None
    places = array.reshape(-1, array.shape[-1])

    def corner(name: str) -> _fit.Triple:
        # NumPy is slow at few columns of many rows. So reduce parts of the rows, side by side, and then these.
        count = len(places)
        fold = next((side for side in range(math.isqrt(count), 31, -1) if count % side == 0), 1)
        folded = getattr(places.reshape(fold, -1), name)(0).reshape(-1, places.shape[-1])
        x, y, z = getattr(folded, name)(0)[:3].tolist()
        return x, y, z

    with np.errstate(all="ignore"):
        box = corner("min"), corner("max")
        if not all(map(math.isfinite, (*box[0], *box[1]))):
            # What has no place is not drawn, so its value does not count either.
            places = places[np.isfinite(places[:, :3]).all(1)]
            if not len(places):
                return None, None
            box = corner("min"), corner("max")
    return _extent(places[:, value]), box


_SIGN, _ALL = 1 << 63, (1 << 64) - 1
_TWO_KEYS, _TWO_FLOATS = struct.Struct("=2Q"), struct.Struct("=2d")


def _decoded(low: int, high: int, dtype: str) -> _numbers.Pair | None:
    """Return the numbers of two keys of range.cu."""
    low = _ALL - low
    if dtype.startswith("uint"):
        return low, high
    if dtype.startswith("int"):
        return low - _SIGN, high - _SIGN
    if not high:
        return None
    least, most = (key ^ _SIGN if key & _SIGN else key ^ _ALL for key in (low, high))
    return _TWO_FLOATS.unpack(_TWO_KEYS.pack(least, most))


class _Finder:
    """The kernel on one GPU, with its stream and the memory for its results."""

    def __init__(self, context: _cuda.Context) -> None:
        self.context = context
        self.lock = Lock()
        image = files("wavefield._look").joinpath("range.ptx").read_bytes()
        with context.current():
            self.function = context.call("cuModuleGetFunction", context.call("cuModuleLoadData", image), b"range")
            self.found = int(context.call("cuMemAlloc", RESULTS * RESULT))
            self.host = int(context.call("cuMemHostAlloc", RESULTS * RESULT, 0))
            # For arrays of which nobody says which stream writes them. Independent of the default stream, which may
            # wait for the renderer.
            self.stream = Stream(context.make_stream(ordered=False))
            context.call("cuMemsetD8Async", self.found, 0, RESULTS * RESULT, self.stream.handle)
            _cuda.wait(lambda: context.passed("cuStreamQuery", self.stream.handle), lambda: None)
        self.started = 0
        # The driver copies them when the kernel is launched.
        self.arguments = (ctypes.c_uint64 * (_ARGUMENTS.size // 8))()
        first = ctypes.addressof(self.arguments)
        self.pointers = (ctypes.c_void_p * len(self.arguments))(*range(first, first + _ARGUMENTS.size, 8))

    def start(self, source: Source, value: int | None) -> Any:
        """Enqueue the kernel, in the current context. Return where the keys will be, and then a word that is not 0."""
        # Elements of some numbers each, in two dimensions. Without places the numbers may be elements.
        inner = len(source.shape) - (value is not None or len(source.shape) == 3)
        rows, cols, *_ = (*source.shape[:inner], 1)
        row_stride, col_stride, *_ = (*source.strides[:inner], 0)
        components, step = (*source.shape[inner:], 1)[0], (*source.strides[inner:], 0)[0]
        # A stream that waits for another, while that waits for the renderer, may keep the GPU for 2 ms (H200).
        stream = source.written_on(self.context) or self.stream
        self.context.refuse_capture(stream)
        with self.lock:
            found, to = (there + RESULT * (self.started % RESULTS) for there in (self.found, self.host))
            self.started += 1
            keys = (ctypes.c_uint64 * (KEYS + 1)).from_address(to)
            keys[KEYS] = 0
            numbers = (rows, cols, row_stride, col_stride, step, components, components if value is None else value)
            item = ord(source.dtype[0]) * 256 + _SIZES[source.dtype]
            _ARGUMENTS.pack_into(self.arguments, 0, source.pointer, *numbers, item, found, to)
            launch = (min(-(-rows * cols // THREADS), 256), 1, 1, THREADS, 1, 1, 0, stream.handle)
            source.order(self.context, stream)
            self.context.call("cuLaunchKernel", self.function, *launch, ctypes.addressof(self.pointers), 0)
        return keys

    def check(self) -> None:
        """Raise if the GPU has failed, for then there will be no result."""
        with self.context.current():
            self.context.passed("cuStreamQuery", self.stream.handle)


_finders: dict[_cuda.Context, _Finder] = {}
