"""CUDA streams: the handle of a library's stream object, and the stream that the user works on."""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ..errors import WavefieldError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

LEGACY_STREAM = 1
"""`CU_STREAM_LEGACY`: the default stream's number in stream protocols. The driver treats it like 0."""


class _Asked(threading.local):
    """The libraries' current streams in this thread, by device, while they cannot change; see `Context.current`."""

    found: dict[int, dict[str, Stream]] | None = None


asked = _Asked()


class Stream:
    """A CUDA stream: the user's, or the field's own.

    `int(stream)` is the handle. `cupy.cuda.Stream.from_external(stream)`, `torch.cuda.ExternalStream(int(stream))` and
    `numba.cuda.external_stream(int(stream))` take the stream. The default stream is 1 (`CU_STREAM_LEGACY`).
    """

    def __init__(self, handle: int, owner: object = None) -> None:
        self.handle = handle or LEGACY_STREAM
        # A library's stream object. When it is dropped, it destroys the stream.
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
    """Return the stream of a handle, or of an object of CuPy, PyTorch, Numba or cuda.core."""
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
    # In older Numba it is a ctypes pointer.
    stream = getattr(stream, "value", stream)
    try:
        return Stream(int(stream or 0), owner)
    except (TypeError, ValueError):
        raise TypeError(f"{owner!r} is not a CUDA stream: give a handle or a library's stream object") from None


def its_gpu_is_current(array: Any) -> AbstractContextManager[object]:
    """Make an array's GPU PyTorch's current one inside `with`, if it is PyTorch's, which exports no others.

    PyTorch remembers its current GPU. So it may be another than that of the driver's current context.
    """
    torch = sys.modules.get("torch")
    tensor: Any = getattr(torch, "Tensor", None)
    if torch is None or tensor is None or not isinstance(array, tensor):
        return nullcontext()
    gpu: AbstractContextManager[object] = torch.cuda.device(array.device)
    return gpu


def stream_that_writes(array: Any, device: int) -> Stream | None:
    """Return the current stream of the library of an array, if that is CuPy or PyTorch."""
    name = {"cupy": "CuPy", "torch": "PyTorch"}.get(type(array).__module__.partition(".")[0])
    return None if name is None else current_streams(device).get(name)


def current_streams(device: int) -> dict[str, Stream]:
    """Return the current streams of CuPy and PyTorch in this thread, by the library's name.

    Does not import a library that is not loaded yet.
    """
    if asked.found is not None and device in asked.found:
        return asked.found[device]
    found: dict[str, Stream] = {}
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        found["CuPy"] = stream_of(cupy.cuda.get_current_stream(device))
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        # The handle alone, which PyTorch's compiler asks for, takes a tenth of the time. PyTorch destroys no stream.
        raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
        found["PyTorch"] = stream_of(torch.cuda.current_stream(device)) if raw is None else Stream(raw(device))
    if asked.found is not None:
        asked.found[device] = found
    return found


def current_stream(device: int) -> Stream | None:
    """Return the current stream of CuPy and PyTorch in this thread, or None if neither is loaded."""
    found = current_streams(device)
    first, *others = found.values() or (None,)
    if any(other != first for other in others):
        raise WavefieldError(
            f"the current streams of {' and '.join(found)} differ: choose the one that writes the frames, with "
            "field.stream = … or connect(stream=…)"
        )
    return first


def others_loaded() -> bool:
    """Return whether a library is loaded that takes `__cuda_array_interface__` on a stream that is not known here."""
    return any(name in sys.modules for name in ("numba.cuda", "cuda.core", "jax"))
