"""Show arrays in a window or a notebook: `wavefield.show(x)`.

Arrays on the GPU are drawn in place, if CUDA can share their memory. You can also write frame after frame
straight into the renderer's memory:

    import cupy as cp, wavefield

    with wavefield.connect() as field:           # to a running `wavefield serve`; launch() starts one
        rows, cols, _ = field.shape
        x, z = cp.linspace(-1, 1, cols), cp.linspace(-1, 1, rows)[:, None]
        for frame in field:                      # waits, on the GPU, until a slot is free
            v = cp.asarray(frame)                # the renderer's own memory: (rows, cols, 4) float32, x, y, z, w
            wave = cp.sin(8 * x + 3 * z + frame.time)
            v[..., 0], v[..., 1], v[..., 2], v[..., 3] = x, 0.3 * wave, z, 0.5 + 0.5 * wave
            # the next frame hands this one over, on the stream

Importing this package imports neither CUDA nor any array library.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if sys.platform != "linux":
    raise ImportError("wavefield runs on Linux only, because programs hand their arrays over as file descriptors")

from ._connect import connect
from ._handoff.shown import Shown
from ._launch import launch
from ._memory.allocator import allocator
from ._memory.array import Array
from ._memory.streams import Stream
from ._pictures.render import Picture
from ._renderer.status import Camera, Status
from ._show import show
from .errors import (
    ArrayMismatch,
    Busy,
    CopyWarning,
    CudaError,
    CudaMissing,
    DeviceMismatch,
    FieldClosed,
    FrameHandedOver,
    LibraryMissing,
    NoRenderer,
    PicturesInUse,
    ProtocolError,
    Refused,
    RendererGone,
    StillShown,
    VersionMismatch,
    WavefieldError,
    WrongUser,
)
from .field import Field
from .frame import Frame

if TYPE_CHECKING:
    from .numba_memory import NumbaMemoryManager as NumbaMemoryManager
    from .widget import Widget as Widget

__version__ = "0.1.0"

__all__ = [
    "Array",
    "ArrayMismatch",
    "Busy",
    "Camera",
    "CopyWarning",
    "CudaError",
    "CudaMissing",
    "DeviceMismatch",
    "Field",
    "FieldClosed",
    "Frame",
    "FrameHandedOver",
    "LibraryMissing",
    "NoRenderer",
    "Picture",
    "PicturesInUse",
    "ProtocolError",
    "Refused",
    "RendererGone",
    "Shown",
    "Status",
    "StillShown",
    "Stream",
    "VersionMismatch",
    "WavefieldError",
    "WrongUser",
    "allocator",
    "connect",
    "launch",
    "show",
]


def __dir__() -> list[str]:
    return sorted({*globals(), "NumbaMemoryManager", "Widget"})


def __getattr__(name: str) -> Any:
    # Their base classes are Numba's and jupyter_rfb's, so import them only on demand. `__all__` leaves them out: with
    # them, `from wavefield import *` would need both libraries. NUMBA_CUDA_MEMORY_MANAGER=wavefield looks for
    # _numba_memory_manager.
    if name in ("NumbaMemoryManager", "_numba_memory_manager"):
        from .numba_memory import NumbaMemoryManager

        return NumbaMemoryManager
    if name == "Widget":
        try:
            from .widget import Widget
        except LibraryMissing as missing:
            if "rename" in str(missing):  # a file hides the library
                raise
            try:
                from ._pictures.window import Window as Widget  # type: ignore[assignment]  # which needs less
            except LibraryMissing:
                raise missing from None

        return Widget
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
