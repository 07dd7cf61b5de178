"""What a field is: its layout, its memory and its device, as the renderer has said. The base of `Field`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._memory import cuda as _cuda

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from .._memory.layout import Kind
    from .connection import Connection
    from .protocol import Welcome


class Described:
    """The part of a field that never changes."""

    _welcome: Welcome
    _connection: Connection
    _context: _cuda.Context | None

    @property
    def grid(self) -> tuple[int, int]:
        """Return (cols, rows), like the renderer's `--grid`."""
        return self._welcome.layout.grid

    @property
    def kind(self) -> Kind:
        """Return what a frame is drawn as: "mesh", "surface", "points", "image", "triangles" or "lines"."""
        return self._welcome.layout.kind

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of a frame."""
        return self._welcome.layout.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return NumPy's type of a frame: float32, float16 or uint8."""
        import numpy as np

        return np.dtype(self._welcome.layout.dtype)

    @property
    def ring(self) -> int:
        """Return the number of slots of the ring."""
        return self._welcome.ring

    @property
    def memory(self) -> str:
        """Return "cuda" or "host"."""
        return self._welcome.memory

    @property
    def device(self) -> int | None:
        """Return the CUDA ordinal of the renderer's GPU in this process, or None in host memory."""
        return None if self._context is None else self._context.ordinal

    @property
    def device_name(self) -> str:
        """Return the name of the renderer's device."""
        return self._welcome.device_name

    @property
    def device_uuid(self) -> str:
        """Return the UUID of the renderer's device, 32 hexadecimal digits."""
        return self._welcome.device_uuid

    @property
    def server(self) -> str:
        """Return the renderer's name and version."""
        return self._welcome.server

    @property
    def frame_seconds(self) -> float:
        """Return the seconds of the field's clock from one frame to the next, at speed 1."""
        return self._welcome.frame_seconds

    @property
    def socket(self) -> Path:
        """Return the path of the renderer's socket."""
        return self._connection.path

    @property
    def window(self) -> bool:
        """Return whether the renderer has a window, on a display or in a browser."""
        return self._welcome.window
