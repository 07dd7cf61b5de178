"""An External Memory Manager for Numba: puts Numba's device arrays into memory that the renderer can draw.

The interface is https://nvidia.github.io/numba-cuda/user/external-memory.html. This module imports Numba, so
`wavefield.NumbaMemoryManager` imports it on first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from numba import cuda

from . import _open
from ._memory import cuda as _cuda
from .errors import Refused
from .field import Field


class NumbaMemoryManager(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """Call `numba.cuda.set_memory_manager(wavefield.NumbaMemoryManager)` before Numba first uses the GPU.

    From then on Numba's arrays of a frame's size or more, made while a field is open, lie in the renderer's memory, and
    `field.show(array)` shows them without a copy. Smaller arrays, arrays on other devices, and arrays for which the
    renderer has no memory left lie in ordinary CUDA memory, and are copied once.
    """

    def initialize(self) -> None:
        """Do nothing: there is nothing to set up."""

    @property
    def interface_version(self) -> int:
        """Return the version of Numba's interface."""
        return 1

    def memalloc(self, size: int) -> Any:
        """Return a `numba.cuda.MemoryPointer` to `size` bytes on the current device."""
        memory = self._of_the_renderer(size)
        if memory is None:
            memory = _Ordinary(_driver_call("cuMemAlloc", size))
        from cuda.bindings import driver

        address = memory.pointer
        # Numba empties it when the context is reset. The finalizer removes the entry when the array is gone.
        allocations = self.allocations
        allocations[address] = memory
        return cuda.MemoryPointer(
            self.context, driver.CUdeviceptr(address), size, finalizer=lambda: allocations.pop(address, None)
        )

    def _of_the_renderer(self, size: int) -> Any:
        field = _newest_in_cuda()
        if field is None or size < field._welcome.layout.frame_bytes or self.context.device.id != field.device:
            return None
        try:
            return field._allocate(size)
        except Refused:
            return None  # the renderer has no memory left

    def get_memory_info(self) -> Any:
        """Return (free, total) bytes of the current device."""
        free, total = _driver_call("cuMemGetInfo")
        return cuda.MemoryInfo(free=free, total=total)

    @contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        """Defer the cleanup of host memory, which Numba asks for. Device memory is always freed at once."""
        with super().defer_cleanup():
            yield


def _newest_in_cuda() -> Field | None:
    """Return the newest open field in CUDA memory."""
    for field in reversed(_open.those()):
        if isinstance(field, Field) and not field._closed and field.memory == "cuda":
            return field
    return None


class _Ordinary:
    """Ordinary CUDA memory."""

    def __init__(self, pointer: Any) -> None:
        self.pointer = int(pointer)

    def __del__(self) -> None:
        # The context may already be gone, and with it the memory. At the interpreter's end the modules may be gone too.
        with suppress(Exception):
            _driver_call("cuMemFree", self.pointer)


def _driver_call(function: str, *arguments: Any) -> Any:
    return _cuda._call(_cuda.driver(), function, *arguments)
