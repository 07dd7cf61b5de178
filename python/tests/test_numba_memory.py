"""Numba's memory manager, with Numba's own classes and a stand-in for the driver."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import compilers
import wavefield
from fake_driver import FakeDriver
from fake_renderer import FakeRenderer, Session

compilers.numba_cuda()


def manager(device: int = 1) -> Any:
    return wavefield.NumbaMemoryManager(context=SimpleNamespace(device=SimpleNamespace(id=device)))


def test_numba_accepts_it() -> None:
    from numba import cuda
    from numba.cuda.cudadrv import driver as numba_driver

    before = numba_driver._memory_manager
    try:
        cuda.set_memory_manager(wavefield.NumbaMemoryManager)
    finally:
        numba_driver._memory_manager = before
    assert wavefield._numba_memory_manager is wavefield.NumbaMemoryManager


def test_large_arrays_are_the_renderers(field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver) -> None:
    numba = manager()
    numba.initialize()
    size = 3 * 5 * 16
    pointer = numba.memalloc(size)
    assert renderer.received[-1] == {"type": "allocate", "bytes": size}
    assert pointer.size == size
    address = int(pointer.handle)
    assert address in driver.mapped

    class Array:
        __cuda_array_interface__ = {  # noqa: RUF012
            "version": 3, "shape": (3, 5, 4), "typestr": "<f4", "data": (address, False), "strides": None,
        }  # fmt: skip

    assert field.show(Array()) == wavefield.Shown.WITHOUT_COPY
    small = numba.memalloc(size - 1)
    assert int(small.handle) in driver.allocations
    del pointer, small
    gc.collect()
    assert address not in driver.mapped
    assert not driver.allocations
    field.status()
    assert renderer.released == [1]
    assert numba.get_memory_info() == (1000, 2000)
    with numba.defer_cleanup():
        pass


def test_what_the_renderer_has_no_room_for_is_ordinary_memory(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver
) -> None:
    def full(session: Session, *_: Any) -> None:
        session.send({"type": "failed", "request": "allocate", "reason": "64 at a time"})

    renderer.answers["allocate"] = full
    numba = manager()
    pointer = numba.memalloc(1000)
    assert int(pointer.handle) in driver.allocations
    other = manager(device=0).memalloc(1000)
    assert int(other.handle) in driver.allocations
    assert len([1 for message in renderer.received if message["type"] == "allocate"]) == 1
    field.close()
    after = numba.memalloc(1000)
    assert int(after.handle) in driver.allocations
    del pointer, other, after
    gc.collect()


def test_a_reset_gives_everything_back(field: wavefield.Field, driver: FakeDriver) -> None:
    numba = manager()
    pointer = numba.memalloc(1000)
    assert len(driver.mapped) == 4
    numba.reset()
    gc.collect()
    assert len(driver.mapped) == 3
    del pointer  # finds nothing left to free
