"""The array libraries: imports them, and calls the few functions of theirs that `show` needs."""

from __future__ import annotations

import contextlib
import importlib.util
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import _dlpack
from ._layout import dtype_name
from .errors import ArrayMismatch, LibraryMissing, WavefieldError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

INSTALL = {
    "cupy": "cupy-cuda13x",
    "torch": "torch",
    "numba.cuda": "'numba-cuda[cu13]'",
    "jupyter_rfb": "jupyter_rfb",
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
    with refusing(array, f"cannot be converted from {now}"):
        if hasattr(array, "astype"):
            return array.astype(dtype)
        if hasattr(array, "to"):  # PyTorch
            return getattr(array, {"float32": "float", "float16": "half", "uint8": "byte"}[dtype])()
    raise ArrayMismatch(f"{type(array).__module__} cannot convert the array from {now}: create it as {dtype}")


def packed(array: Any) -> Any:
    """Return the array without gaps, copied by its own library on its device."""
    with refusing(array, "cannot be copied without gaps"):
        if hasattr(array, "contiguous"):  # PyTorch
            return array.contiguous()
        if hasattr(array, "copy"):  # NumPy, CuPy
            return array.copy(order="C")
    raise ArrayMismatch(f"{type(array).__module__} cannot copy the array without gaps: create it contiguous")


def copied(array: Any) -> Any:
    """Return a copy by the array's own library, on its device; the array itself if that cannot copy."""
    with refusing(array, "cannot be copied"):
        for name in ("clone", "copy"):  # PyTorch; NumPy, CuPy, JAX
            if hasattr(array, name):
                return getattr(array, name)()
    return array


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
        host = np.asarray(array)
        if host.dtype == object and not host.ndim:
            raise TypeError("it is no array")
        return host


MOST = 1.7e38
"""The largest limit: half of the largest 32-bit float."""


def extent(values: Any) -> tuple[float, float]:
    """Return the smallest and the largest finite number; (0, 1) if there is none."""
    if hasattr(values, "min") and hasattr(values, "max"):
        low, high = float(values.min()), float(values.max())
    else:
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high)):
        import numpy as np

        host = on_the_host(values).astype("float64")
        host = host[np.isfinite(host)]
        if host.size == 0:
            return 0.0, 1.0
        low, high = float(host.min()), float(host.max())
    import numpy as np

    # The renderer uses 32-bit floats, and the difference of the limits must be one, too.
    low, high = max(low, -MOST), min(high, MOST)
    if np.float32(high) - np.float32(low) < np.finfo(np.float32).tiny:
        around = max(0.5, abs(low) * 2**-20)
        low, high = low - around, high + around
    return low, high
