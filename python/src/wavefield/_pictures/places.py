"""Where pictures lie: places in memory of `allocate`, used again and again.

Every array made of the pictures of one call holds a *lease* of their place. After its end an event is recorded, by the
next lease, that follows everything in the CUDA context. The renderer writes the place again only after that event.
"""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .._memory import cuda as _cuda
from .._memory.cuda import DeviceMemory
from ..errors import CudaError, PicturesInUse

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._handoff.allocations import Allocations
    from .._memory.host import HostMemory

MOST_OUT = 8
"""The most calls of one kind and size whose pictures are held at once."""

MOST_POOLS = 4
"""How many kinds and sizes keep their places. The least recently used one makes room."""

MOST_BYTES = 4 << 30
"""The most bytes of all places: half of what the renderer gives. A single place may be larger."""


class Place:
    """Memory for the pictures of one call."""

    def __init__(self, memory: DeviceMemory | HostMemory, number: int) -> None:
        self.memory = memory
        self.number = number
        # The end of all that the GPU did in the last lease. None in host memory.
        self.end = _cuda.Event(memory.context) if isinstance(memory, DeviceMemory) else None

    @property
    def done(self) -> bool:
        """Return whether the last lease is over on the GPU, too."""
        return self.end is None or self.end.done


@dataclass
class Pool:
    """The places for one kind and size."""

    bytes: int
    all: weakref.WeakSet[Place] = field(default_factory=weakref.WeakSet)
    ended: list[Place] = field(default_factory=list)
    """Places whose lease has ended. The GPU may still use them. Finalizers append to this list."""
    free: list[Place] = field(default_factory=list)
    """Those without a lease, in the order in which their leases ended."""


class Lease:
    """The use of a place. Its pictures hold this, and so does every array that was made of one."""

    def __init__(self, place: Place, pool: Pool) -> None:
        self.place, self._pool = place, pool

    def __del__(self) -> None:
        self._pool.ended.append(self.place)


def _take_back(pool: Pool) -> None:
    """Let places be used again, after what the GPU still does.

    Other streams than those that took the pictures may use them, too, so the event is that of the whole context. A
    driver older than CUDA 12.5 has none. Then the place is dropped: its memory is unmapped when the GPU is idle.
    """
    while pool.ended:
        place = pool.ended.pop(0)
        if place.end is not None:
            try:
                with place.end.context.current():
                    if not place.end.record_all():
                        continue
            except CudaError:
                continue
        pool.free.append(place)


class Places:
    """The places for the pictures of one field."""

    def __init__(self, allocations: Allocations, wait_for: Callable[[_cuda.Event], None] | None) -> None:
        self._allocations = allocations
        self._wait_for = wait_for
        # The newest is the last.
        self._pools: OrderedDict[object, Pool] = OrderedDict()

    def lease(self, key: object, size: int) -> Lease:
        """Lease a place of `size` bytes that nobody uses, for pictures whose kinds and size are `key`."""
        pool = self._pools.pop(key, None) or Pool(size)
        self._pools[key] = pool
        _take_back(pool)
        if not pool.free and (len(pool.all) >= MOST_OUT or not self._fits(pool)):
            gc.collect()  # what was dropped may still hold pictures in cycles
            _take_back(pool)
        if not pool.free or not pool.free[0].done:
            if len(pool.all) < MOST_OUT and self._fits(pool):
                memory = self._allocations.make(size)
                place = Place(memory, self._allocations.number_of(memory))
                pool.all.add(place)
                pool.free.insert(0, place)
            elif not pool.free:
                raise PicturesInUse(
                    f"{len(pool.all)} pictures of this kind and size are in use, of {size} bytes each, and there is no "
                    "room for more: drop some, or copy them (PyTorch: x.clone(), others: x.copy())"
                )
            elif pool.free[0].end is not None and self._wait_for is not None:
                self._wait_for(pool.free[0].end)
        return Lease(pool.free.pop(0), pool)

    def close(self) -> None:
        """Forget the places. Leases keep theirs."""
        self._pools.clear()

    def _fits(self, pool: Pool) -> bool:
        """Return whether one more place may be made. For the first one of a pool, older pools make room."""
        while not pool.all and len(self._pools) > 1:
            if len(self._pools) <= MOST_POOLS and self._bytes() + pool.bytes <= MOST_BYTES:
                break
            self._pools.popitem(last=False)
        return not pool.all or self._bytes() + pool.bytes <= MOST_BYTES

    def _bytes(self) -> int:
        return sum(len(pool.all) * pool.bytes for pool in self._pools.values())
