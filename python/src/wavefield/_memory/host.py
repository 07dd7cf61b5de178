"""Frames in shared host memory, for NumPy and without CUDA. The renderer copies each frame to its device."""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import TYPE_CHECKING, Any

from ..errors import ProtocolError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

    from .layout import Layout


def _cannot_shrink(descriptor: int) -> bool:
    """Return whether the file is sealed against shrinking. Only a memfd can be."""
    try:
        return bool(fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK)
    except OSError:
        return False


class HostMemory(mmap.mmap):
    """A mapped memfd. Owns the descriptor from the start, even if the mapping fails.

    This object is the mapping itself, so every array of it keeps it alive.
    """

    start: int
    """The offset of the array in the file."""

    def __new__(cls, descriptor: int, size: int, start: int = 0, writable: bool = True) -> Self:
        """Map `size` bytes that follow the first `start` bytes of the file."""
        try:
            if not _cannot_shrink(descriptor):
                raise ProtocolError(
                    "the renderer sent shared memory that is not sealed: if it shrank, this program would crash"
                )
            there = os.fstat(descriptor).st_size
            # Reading beyond the end of a file is a SIGBUS, which Python cannot catch.
            if there < start + size:
                raise ProtocolError(f"the renderer sent a file of {there} bytes; {start + size} were expected")
            protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
            mapped = super().__new__(cls, descriptor, start + size, mmap.MAP_SHARED, protection)
        except OSError as error:
            raise ProtocolError(f"the renderer's shared memory cannot be mapped: {error}") from None
        finally:
            os.close(descriptor)
        mapped.start = start
        return mapped

    def array(self, layout: Layout, offset: int) -> NDArray[Any]:
        """Return NumPy's array at `offset`."""
        import numpy as np

        array: NDArray[Any] = np.ndarray(layout.shape, layout.dtype, self, self.start + offset)
        return array

    @property
    def address(self) -> int:
        """Return the address of the array's first byte in this process."""
        import numpy as np

        return int(np.frombuffer(self, np.uint8).ctypes.data) + self.start


class Strided:
    """What NumPy's array of some memory holds. `strides` counts bytes; None means without gaps."""

    def __init__(
        self, owner: object, pointer: int, shape: tuple[int, ...], typestr: str, strides: tuple[int, ...] | None = None
    ) -> None:
        self.owner = owner
        described = {"version": 3, "shape": shape, "typestr": typestr, "data": (pointer, False), "strides": strides}
        self.__array_interface__ = described
