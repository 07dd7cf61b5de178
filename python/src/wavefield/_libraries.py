"""The array libraries: imports them, and calls the few functions of theirs that `show` needs."""

from __future__ import annotations

import contextlib
import importlib.util
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import _dlpack, _fit, _limits
from ._layout import dtype_name
from .errors import ArrayMismatch, LibraryMissing, WavefieldError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ._layout import Layout

INSTALL = {
    "cupy": "cupy-cuda13x",
    "torch": "torch",
    "numba.cuda": "'numba-cuda[cu13]'",
    "jupyter_rfb": "jupyter_rfb",
    "anywidget": "anywidget",
}


def need(module: str, call: str) -> Any:
    """Return a library's module. Raises `LibraryMissing`, which says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise LibraryMissing(f"{call} needs {module}, which {why_missing(module, error, INSTALL[module])}") from None


def why_missing(module: str, error: ImportError, package: str) -> str:
    """Return why a module cannot be imported, and what to do: install it, or rename a file that hides it."""
    top = module.partition(".")[0]
    with contextlib.suppress(ImportError, ValueError):
        found = importlib.util.find_spec(top)
        # These are packages: a folder with __init__.py, or several folders.
        if found is not None and found.submodule_search_locations is None:
            return f"cannot be imported, because {found.origin} has the same name: rename that file"
    return f"cannot be imported ({error}): pip install {package}"


@contextmanager
def refusing(array: Any, what: str) -> Iterator[None]:
    """Turn what an array's own code raises into an `ArrayMismatch` that says what to do."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (WavefieldError, MemoryError)) or "OutOfMemory" in type(error).__name__:
            raise
        cure = 'show an array of plain numbers, such as x.astype("float32"), in PyTorch x.float()'
        if "sparse" in f"{type(array).__module__} {getattr(array, 'layout', '')}":
            dense = [name for name in ("to_dense", "toarray", "todense") if hasattr(array, name)]
            cure = f"it is sparse: show {f'x.{dense[0]}()' if dense else 'a dense copy of it'}"
        kind, words = f"{type(array).__module__}.{type(array).__qualname__}", " ".join(str(error).split())
        if kind.startswith("builtins."):
            kind, cure = kind[9:], "show an array of numbers, with rows and columns"
        raise ArrayMismatch(f"this {kind} {what} ({type(error).__name__}: {words}): {cure}") from error


def shape_and_dtype(array: Any) -> tuple[tuple[int, ...], str]:
    """Return the shape and NumPy's name of the type of any library's array."""
    return tuple(int(side) for side in array.shape), dtype_name(array.dtype)


def cast(array: Any, now: str, dtype: str) -> Any:
    """Return the array converted to another type, by its own library and on its device."""
    import numpy as np

    # A number that is too large becomes infinite, which NumPy warns of.
    with refusing(array, f"cannot be converted from {now}"), np.errstate(over="ignore"):
        if hasattr(array, "astype"):
            return array.astype(dtype)
        if hasattr(array, "to"):  # PyTorch
            return getattr(array, {"float32": "float", "float16": "half", "uint8": "byte", "int32": "int"}[dtype])()
    raise ArrayMismatch(f"{type(array).__module__} cannot convert the array from {now}: create it as {dtype}")


def scaled(array: Any, layout: Layout, dtype: str, units: _limits.Pair, fit: _fit.Fit) -> Any:
    """Return the array as 32-bit floats in these units, computed in its own precision, on its device."""
    if not layout.has_places:
        return _scaled(array, dtype, units)
    # Only the fourth numbers are values. The others are places.
    columns = enumerate([*fit.units, units][: layout.shape[-1]])
    values = {column: _scaled(array[..., column], dtype, units) for column, units in columns if units != _limits.PLAIN}
    with refusing(array, "cannot be scaled"):
        array = cast(array, dtype, "float32") if dtype != "float32" else array + 0
        for column, numbers in values.items():
            if hasattr(array, "at"):  # JAX's arrays cannot be written
                array = array.at[..., column].set(numbers)
            else:
                array[..., column] = numbers
    return array


def _scaled(array: Any, dtype: str, units: _limits.Pair) -> Any:
    import numpy as np

    offset, factor = units
    with refusing(array, "cannot be scaled"), np.errstate(all="ignore"):
        array = _in_long(array, dtype)
        if offset and _limits.is_whole(dtype):
            info = np.iinfo(dtype)
            offset = max(info.min, min(int(offset), info.max))
            # A difference that the type does not hold would wrap around.
            array = array.clip(info.min + max(offset, 0), info.max + min(offset, 0))
        array = (array - offset if offset else array) / factor
    now = dtype_name(array.dtype)
    return array if now == "float32" else cast(array, now, "float32")


def _in_long(array: Any, dtype: str) -> Any:
    """Return the array with a type that its library computes with: PyTorch's `uint32` and `uint64` have no `min`."""
    return array.long() if dtype in ("uint32", "uint64") and hasattr(array, "long") else array


def copied(array: Any, in_torch: str = "clone") -> Any:
    """Return a copy without gaps by the array's own library, on its device. PyTorch's "clone" may keep gaps."""
    with refusing(array, "cannot be copied without gaps"):
        for name in (in_torch, "copy"):  # PyTorch; NumPy, CuPy, JAX
            if hasattr(array, name):
                return getattr(array, name)()
    raise ArrayMismatch(f"{type(array).__module__} cannot copy the array without gaps: create it contiguous")


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


def units_of(choice: _limits.Choice, fit: _fit.Fit, layout: Layout, dtype: str, given: str, norm: str) -> _limits.Pair:
    """Return the units to draw an array of this type in. `given`: its type before a mask was filled."""
    import numpy as np

    if layout.dtype != "float32":
        return _limits.PLAIN
    # The fourth number of points has units of its own. Without it, the value is y, a place.
    if layout.has_places and layout.shape[-1] == 3:
        if norm != "linear" and fit.units[1][0]:
            raise ValueError(f'norm="{norm}" needs values of their own here: give each point a fourth number')
        return fit.units[1]
    if layout.colours:  # also alpha, which limits do not reach
        return (0.0, float(np.iinfo(given).max)) if _limits.is_whole(given) else _limits.PLAIN
    return _limits.units(choice.limits, dtype, norm)
