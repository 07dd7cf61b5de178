"""Frames in ordinary shared memory: for NumPy, and where there is no CUDA. The renderer copies each to its device."""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import TYPE_CHECKING, Any

from .errors import ProtocolError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

    from ._layout import Layout


def _cannot_shrink(descriptor: int) -> bool:
    """Return whether nobody can cut the file short. Only a memfd can say so."""
    try:
        return bool(fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK)
    except OSError:
        return False


class HostMemory(mmap.mmap):
    """A mapped memfd. Takes the descriptor, also when it fails.

    It is the mapping itself, so that it lives for as long as any array of it.
    """

    start: int
    """Where in the file the array begins."""

    def __new__(cls, descriptor: int, size: int, start: int = 0, writable: bool = True) -> Self:
        """Map `size` bytes of the file, which begins with `start` bytes that are not meant."""
        try:
            if not _cannot_shrink(descriptor):
                raise ProtocolError(
                    "the renderer sent shared memory that is not sealed: whoever cut it short would end this program"
                )
            there = os.fstat(descriptor).st_size
            # Reading beyond a file's end is a SIGBUS, which nobody can catch.
            if there < start + size:
                raise ProtocolError(f"the renderer sent a file of {there} bytes where {start + size} were to be")
            protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
            mapped = super().__new__(cls, descriptor, start + size, mmap.MAP_SHARED, protection)
        except OSError as error:
            raise ProtocolError(f"the renderer's shared memory cannot be mapped: {error}") from None
        finally:
            os.close(descriptor)
        mapped.start = start
        return mapped

    def array(self, layout: Layout, offset: int) -> NDArray[Any]:
        """Return the array at `offset`."""
        import numpy as np

        array: NDArray[Any] = np.ndarray(layout.shape, layout.dtype, self, self.start + offset)
        return array

    @property
    def address(self) -> int:
        """Return where the first byte is in this process."""
        import numpy as np

        return int(np.frombuffer(self, np.uint8).ctypes.data) + self.start
