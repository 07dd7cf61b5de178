"""Numba's External Memory Manager: device arrays of Numba's in memory that the renderer can draw.

The interface is https://nvidia.github.io/numba-cuda/user/external-memory.html. Import this module only after Numba;
`wavefield.NumbaMemoryManager` does it when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from numba import cuda

from . import _cuda, _open
from .errors import Refused


class NumbaMemoryManager(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """`numba.cuda.set_memory_manager(wavefield.NumbaMemoryManager)`, before Numba first uses the GPU.

    Arrays that hold a frame or more, and that are made while a field is open, then lie in memory of the renderer's, and
    `field.show(array)` shows them without a copy. Smaller ones, those of other devices, and those that the renderer
    has no more room for, are CUDA's ordinary memory, and are shown with one copy.
    """

    def initialize(self) -> None:
        """Do nothing: there is no pool to set up."""

    @property
    def interface_version(self) -> int:
        """Return the version of Numba's interface that this is written for."""
        return 1

    def memalloc(self, size: int) -> Any:
        """Return a `numba.cuda.MemoryPointer` to so many bytes of the current device."""
        memory = self._of_the_renderer(size)
        if memory is None:
            memory = _Ordinary(_driver_call("cuMemAlloc", size))
        from cuda.bindings import driver

        address = memory.pointer
        # Emptied by Numba when the context is reset, and by the finalizer when the array is gone.
        allocations = self.allocations
        allocations[address] = memory
        return cuda.MemoryPointer(
            self.context, driver.CUdeviceptr(address), size, finalizer=lambda: allocations.pop(address, None)
        )

    def _of_the_renderer(self, size: int) -> Any:
        field = _open.newest_in_cuda()
        if field is None or size < field._welcome.layout.bytes or self.context.device.id != field.device:
            return None
        try:
            return field._allocate(size)
        except Refused:
            return None  # no more room there

    def get_memory_info(self) -> Any:
        """Return (free, total) bytes of the current device."""
        free, total = _driver_call("cuMemGetInfo")
        return cuda.MemoryInfo(free=free, total=total)

    @contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        """Numba asks for this while it must not be held up; here nothing is freed later than at once."""
        with super().defer_cleanup():
            yield


class _Ordinary:
    """Memory of CUDA's own."""

    def __init__(self, pointer: Any) -> None:
        self.pointer = int(pointer)

    def __del__(self) -> None:
        # Without the context the memory is gone, too; and at the interpreter's end everything else may be.
        with suppress(Exception):
            _driver_call("cuMemFree", self.pointer)


def _driver_call(function: str, *arguments: Any) -> Any:
    return _cuda._call(_cuda.driver(), function, *arguments)
