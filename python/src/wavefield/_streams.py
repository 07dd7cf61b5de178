"""CUDA streams: what a library's stream object is as a number, and which one the user works on."""

from __future__ import annotations

import sys
from typing import Any

from ._cuda import LEGACY_STREAM
from .errors import WavefieldError


class Stream:
    """A CUDA stream of the user's, or the field's own.

    `int(stream)` is the handle: `cupy.cuda.Stream.from_external(stream)`, `torch.cuda.ExternalStream(int(stream))` and
    `numba.cuda.external_stream(int(stream))` take it. The default stream is 1 (`CU_STREAM_LEGACY`).
    """

    def __init__(self, handle: int, owner: object = None) -> None:
        self.handle = handle or LEGACY_STREAM
        # A library's stream object, which destroys the stream when it goes.
        self._owner = owner

    def __int__(self) -> int:
        return self.handle

    def __index__(self) -> int:
        return self.handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return (0, handle): the CUDA stream protocol of cuda.core."""
        return (0, self.handle)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.handle == self.handle

    def __hash__(self) -> int:
        return hash(self.handle)

    def __repr__(self) -> str:
        return f"<wavefield.Stream {self.handle:#x}>"


def stream_of(stream: Any) -> Stream:
    """Return a stream given as a handle, or as CuPy's, PyTorch's, Numba's or cuda.core's object."""
    if isinstance(stream, Stream):
        return stream
    owner = stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return Stream(int((protocol() if callable(protocol) else protocol)[1]), owner)
    for name in ("cuda_stream", "ptr", "handle"):
        handle = getattr(stream, name, None)
        if handle is not None:
            stream = handle
            break
    # Older Numba has a ctypes pointer there.
    stream = getattr(stream, "value", stream)
    try:
        return Stream(int(stream or 0), owner)
    except (TypeError, ValueError):
        raise TypeError(f"{owner!r} is no CUDA stream: give its handle, or a library's stream object") from None


def current_streams(device: int) -> dict[str, Stream]:
    """Return the streams that CuPy and PyTorch work on now in this thread; nothing of one that is not loaded.

    A library that nobody has imported is not imported here either.
    """
    found: dict[str, Stream] = {}
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        found["CuPy"] = stream_of(cupy.cuda.get_current_stream(device))
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        found["PyTorch"] = stream_of(torch.cuda.current_stream(device))
    return found


def current_stream(device: int) -> Stream | None:
    """Return the stream that CuPy and PyTorch work on now in this thread, or None when neither is loaded."""
    found = current_streams(device)
    streams = list(dict.fromkeys(found.values()))
    if len(streams) > 1:
        raise WavefieldError(
            f"the current streams of {' and '.join(found)} differ: say which one writes the frames, by field.stream = "
            "… or connect(stream=…)"
        )
    return streams[0] if streams else None


def others_loaded() -> bool:
    """Return whether another library is loaded that takes `__cuda_array_interface__` and has streams of its own."""
    return any(name in sys.modules for name in ("numba.cuda", "cuda.core", "jax"))
