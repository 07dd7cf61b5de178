"""Memory outside the ring that the renderer can draw: its own, and CUDA memory that it has imported."""

from __future__ import annotations

import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._memory import cuda as _cuda
from .._memory.host import HostMemory
from .._renderer import protocol as _protocol
from .._renderer.connection import close_all
from ..errors import ProtocolError

if TYPE_CHECKING:
    from .._renderer.connection import Connection

MOST_RETIRED = 16
"""With this many unused arrays still mapped, making another one first waits; see `Context.reap`."""

RETIRED_SECONDS = 1.0
"""The longest such wait, until unused arrays are unmapped."""


@dataclass
class Allocation:
    """Memory that the renderer can draw, as long as somebody holds it."""

    number: int
    address: int
    bytes: int
    shown: tuple[int, int] | None = None
    """The last frame that showed it, and the offset of that frame's array."""

    def offset_of(self, pointer: int, size: int, alignment: int) -> int | None:
        """Return the offset of an array in it, or None if the renderer cannot draw the array from there."""
        offset = pointer - self.address
        return offset if 0 <= offset <= self.bytes - size and offset % alignment == 0 else None


class Allocations:
    """Memory that the renderer made for this client."""

    def __init__(self, connection: Connection, context: _cuda.Context | None) -> None:
        self._connection = connection
        self._context = context
        self._all: weakref.WeakKeyDictionary[_cuda.DeviceMemory | HostMemory, Allocation]
        self._all = weakref.WeakKeyDictionary()

    def make(self, size: int) -> _cuda.DeviceMemory | HostMemory:
        """Ask for memory. Raises `Refused` if the renderer has none left."""
        self._make_room()
        message, files = self._connection.request({"type": "allocate", "bytes": size}, "allocated")
        try:
            number = _protocol.integer(message, "id")
            offset = _protocol.integer(message, "offset") if "offset" in message else 0
            whole = _protocol.integer(message, "allocation_bytes", size)
            if len(files) != 1 or offset + size > whole:
                raise ProtocolError(f"the renderer's allocation is not one descriptor with {size} bytes at {offset}")
        except BaseException:
            close_all(files)
            raise
        memory: _cuda.DeviceMemory | HostMemory
        release = {"type": "release", "id": number}
        try:
            if self._context is not None:
                memory = _cuda.DeviceMemory(self._context, files[0], whole, offset, size)
                address = memory.pointer
            else:
                memory = HostMemory(files[0], size, offset)
                address = memory.address
        except BaseException:
            self._connection.send_later(release)
            raise
        # Arrays made of the memory hold it. When the last one is gone, the renderer is told.
        _cuda._finally(memory, self._connection.send_later, release)
        self._all[memory] = Allocation(number, address, size)
        return memory

    def number_of(self, memory: _cuda.DeviceMemory | HostMemory) -> int:
        """Return the renderer's number of an allocation."""
        return self._all[memory].number

    def find(self, pointer: int, size: int, alignment: int) -> tuple[Allocation, int] | None:
        """Return the allocation that an array lies in, and its offset there."""
        for allocation in list(self._all.values()):
            offset = allocation.offset_of(pointer, size, alignment)
            if offset is not None:
                return allocation, offset
        return None

    def _make_room(self) -> None:
        """Pause until the GPU is idle, if many arrays wait to be unmapped. Without pauses it might never be idle."""
        end = time.monotonic() + RETIRED_SECONDS
        while self._context is not None and self._context.retired >= MOST_RETIRED and time.monotonic() < end:
            self._connection.pump()
            time.sleep(1e-3)
            self._context.reap()
