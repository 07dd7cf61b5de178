"""The array libraries: imports them, and calls the few functions of theirs that `show` needs."""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING, Any

from ._layout import dtype_name
from .errors import ArrayMismatch, LibraryMissing

if TYPE_CHECKING:
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
        raise LibraryMissing(
            f"{call} needs {module}, which cannot be imported ({error}): pip install {INSTALL[module]}"
        ) from None


def shape_and_dtype(array: Any) -> tuple[tuple[int, ...], str]:
    """Return the shape and NumPy's name of the type of any library's array."""
    interface = getattr(array, "__cuda_array_interface__", None)
    if not hasattr(array, "dtype") and interface is not None:
        import numpy as np

        return tuple(interface["shape"]), str(np.dtype(interface["typestr"]))
    return tuple(int(side) for side in array.shape), dtype_name(array.dtype)


def detached(array: Any) -> Any:
    """Return an array whose memory can be used: a tensor without its gradients, NumPy's array for a list."""
    if hasattr(array, "detach"):
        return array.detach()
    if hasattr(array, "__cuda_array_interface__") or (hasattr(array, "shape") and hasattr(array, "dtype")):
        return array
    import numpy as np

    return np.asarray(array)


def cast(array: Any, dtype: str) -> Any:
    """Return the array converted to another type, by its own library and on its device."""
    if hasattr(array, "astype"):
        return array.astype(dtype)
    if hasattr(array, "to"):  # PyTorch
        return getattr(array, {"float32": "float", "float16": "half", "uint8": "byte"}[dtype])()
    _, now = shape_and_dtype(array)
    raise ArrayMismatch(f"{type(array).__module__} cannot convert the array from {now}: create it as {dtype}")


def packed(array: Any) -> Any:
    """Return the array without gaps, copied by its own library on its device."""
    if hasattr(array, "contiguous"):  # PyTorch
        return array.contiguous()
    if hasattr(array, "copy"):  # NumPy, CuPy
        return array.copy(order="C")
    raise ArrayMismatch(f"{type(array).__module__} cannot copy the array without gaps: create it contiguous")


def on_the_host(array: Any) -> NDArray[Any]:
    """Return any library's array as NumPy's, copied from the GPU if needed."""
    import numpy as np

    for name in ("get", "copy_to_host"):  # CuPy, Numba
        if hasattr(array, "__cuda_array_interface__") and hasattr(array, name):
            array = getattr(array, name)()
    if hasattr(array, "cpu"):  # PyTorch
        array = array.cpu()
    return np.asarray(array)


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
