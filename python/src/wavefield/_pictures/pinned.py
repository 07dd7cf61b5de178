"""Pictures on their way to the CPU: page-locked memory, which the GPU writes while the program goes on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from .._memory import cuda as _cuda
from .._memory.host import Strided
from .._memory.streams import Stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .._handoff.rings import CudaRing

MOST_LENT = 4
"""So many arrays of page-locked memory are given out at most. It is scarce, so what comes after is copied."""

MOST_FREE = 4
"""So much memory of one size is kept for later pictures."""

MOST_SIZES = 4
"""How many sizes of pictures keep their memory."""


class Pinned:
    """Page-locked memory, and the point at which the GPU has written it."""

    def __init__(self, context: _cuda.Context, size: int) -> None:
        self.end = _cuda.Event(context)
        with context.current():
            self.address = int(context.call("cuMemHostAlloc", size, 0))
        # What still writes it ends first.
        _cuda._finally(self, context.retire, partial(context.call, "cuMemFreeHost", self.address))


class _Lent:
    """What an array of page-locked memory holds. When it is gone, the memory is used again."""

    def __init__(self, memory: Pinned, free: list[Pinned], lent: list[None]) -> None:
        self._memory, self._free, self._lent = memory, free, lent
        lent.append(None)

    def __del__(self) -> None:
        self._lent.pop()
        if len(self._free) < MOST_FREE:
            self._free.append(self._memory)


class Copies:
    """Copies the pictures of one field."""

    def __init__(self, ring: CudaRing) -> None:
        self._ring = ring
        self._stream: Stream | None = None
        # By size: the memory that nobody uses, and an entry for each array that was given out. Finalizers change them.
        self._pools: dict[int, tuple[list[Pinned], list[None]]] = {}

    def start(self, pointer: int, size: int, drawn: int) -> Pinned:
        """Copy what lies at a device address once the timeline `drawn` has this value.

        Raises `CudaError` if there is no page-locked memory left.
        """
        context = self._ring.context
        with context.current():
            if self._stream is None:
                self._stream = Stream(context.make_stream(ordered=False))
            free, _ = self._pools.setdefault(size, ([], []))
            while len(self._pools) > MOST_SIZES:
                del self._pools[next(iter(self._pools))]
            memory = free.pop() if free else Pinned(context, size)
            self._ring.wait_drawn(drawn, self._stream)
            context.call("cuMemcpyDtoHAsync", memory.address, pointer, size, self._stream.handle)
            memory.end.record(self._stream.handle)
        return memory

    def finish(self, memory: Pinned, shape: tuple[int, ...], typestr: str, size: int) -> NDArray[Any]:
        """Wait for a copy, and return it."""
        import numpy as np

        self._ring.wait_for(memory.end)
        free, lent = self._pools.setdefault(size, ([], []))
        scarce = len(lent) >= MOST_LENT
        array: NDArray[Any] = np.asarray(Strided(_Lent(memory, free, lent), memory.address, shape, typestr))
        return np.array(array) if scarce else array

    def close(self) -> None:
        """Forget the memory that nobody uses. Arrays keep theirs."""
        self._pools.clear()
        if self._stream is not None:
            _cuda._destroy(self._ring.context, "cuStreamDestroy", self._stream.handle)
            self._stream = None
