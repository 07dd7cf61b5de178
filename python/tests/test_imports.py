"""The user's own arrays, drawn in place, with the stand-in driver: what is shared, kept and released."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import wavefield
from fake_driver import FakeDriver
from fake_renderer import FakeRenderer, Session

CHUNK = 8192


def mapped(driver: FakeDriver, *sizes: int) -> int:
    """Return the address of chunks that are mapped one after the other, like expandable segments."""
    _, start = driver.cuMemAddressReserve(sum(sizes), 0, 0, 0)
    at = int(start)
    for size in sizes:
        handle = driver.make_chunk(size)
        driver.cuMemMap(at, size, 0, handle, 0)
        driver.cuMemRelease(handle)
        at += size
    return int(start)


def unmapped(driver: FakeDriver, address: int) -> None:
    driver.cuMemUnmap(address, driver.ranges[address][0])


class Tensor:
    """A library's array in the stand-in's memory."""

    def __init__(self, address: int, shape: tuple[int, ...] = (3, 5, 4), dtype: str = "<f4") -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        size = int(np.prod(shape)) * self.dtype.itemsize
        raw: Any = (ctypes.c_char * size).from_address(address)
        self.numpy = np.frombuffer(raw, self.dtype).reshape(shape)
        interface = {"shape": shape, "typestr": dtype, "data": (address, False), "version": 3, "stream": 1}
        self.__cuda_array_interface__ = interface


def imports(renderer: FakeRenderer) -> list[list[int]]:
    return [message["chunks"] for message in renderer.received if message["type"] == "import"]


def show(field: wavefield.Field, tensor: Tensor, value: float) -> wavefield.Shown:
    tensor.numpy[...] = value
    return field.show(tensor)


def drawn(field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver) -> None:
    """Draw what is ready, after the renderer has read all messages."""
    field.status()
    renderer.draw(driver)


def test_a_tensor_is_drawn_from_where_it_lies(
    field: wavefield.Field, driver: FakeDriver, renderer: FakeRenderer
) -> None:
    start = mapped(driver, CHUNK)
    first, second = Tensor(start + 512), Tensor(start + 2048)
    for frame in range(6):
        assert show(field, (first, second)[frame % 2], frame) == wavefield.Shown.WITHOUT_COPY
        drawn(field, renderer, driver)
    assert imports(renderer) == [[CHUNK]], "one import for both, which lie in one chunk"
    shows = [message for message in renderer.received if message["type"] == "show"]
    assert [(message["allocation"], message["offset"]) for message in shows[:2]] == [(1000, 512), (1000, 2048)]
    assert [shown[0, 0, 0] for shown in renderer.frames] == [0, 1, 2, 3, 4, 5]
    assert "cuMemcpy2DAsync" not in driver.calls
    with pytest.raises(wavefield.StillShown):
        show(field, second, 6)


def test_an_array_over_several_chunks(field: wavefield.Field, driver: FakeDriver, renderer: FakeRenderer) -> None:
    start = mapped(driver, 4096, CHUNK, 4096)
    with wavefield.connect(_next(field, renderer), shape=(50, 60)) as large:
        tensor = Tensor(start + 2048, (50, 60))
        tensor.numpy[...] = np.arange(3000).reshape(50, 60)
        assert large.show(tensor) == wavefield.Shown.WITHOUT_COPY
        drawn(large, renderer, driver)
        np.testing.assert_array_equal(renderer.frames[-1], tensor.numpy)
    assert imports(renderer) == [[4096, CHUNK, 4096]]
    assert all(count == 1 for count in driver.references.values()), "what was retained is released"


def _next(field: wavefield.Field, renderer: FakeRenderer) -> Path:
    field.close()
    return renderer.path


def test_what_cannot_be_shared_says_why(
    field: wavefield.Field, driver: FakeDriver, renderer: FakeRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wavefield._say.said", set())
    ordinary = np.full((3, 5, 4), 4, np.float32)
    tensor = Tensor(ordinary.ctypes.data)
    for library, cure in [
        ("torch", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        ("cupy._core", r"with wavefield\.allocator\(\)"),
        ("numba.cuda", "NumbaMemoryManager"),
        ("jaxlib", "one copy is needed"),
        ("else", r"field\.empty\(\)"),
    ]:
        monkeypatch.setattr(Tensor, "__module__", library)
        with pytest.warns(wavefield.CopyWarning, match=cure):
            assert field.show(tensor) == wavefield.Shown.COPIED
        field.show(tensor)  # the same reason again would be an error
        drawn(field, renderer, driver)
    assert imports(renderer) == []
    # JAX's memory is copied even if CUDA could share it.
    start = mapped(driver, CHUNK)
    with monkeypatch.context() as patch:
        patch.setattr(Tensor, "__module__", "jaxlib")
        assert field.show(Tensor(start)) == wavefield.Shown.COPIED
        drawn(field, renderer, driver)
    assert imports(renderer) == []
    # The renderer does not take this offset. It cannot import the other memory, and is asked only once.
    assert "its offset in its memory, 8 bytes" in show(field, Tensor(start + 8), 1).reason
    drawn(field, renderer, driver)
    renderer.answers["import"] = lambda session, *_: session.send(
        {"type": "failed", "request": "import", "reason": "the driver answered -2"}
    )
    for _ in range(3):
        shown = show(field, Tensor(start), 2)
        assert "the driver answered -2" in shown.reason
        with pytest.raises(ValueError, match="the driver answered -2"):
            field.show(Tensor(start), copy=False)
        drawn(field, renderer, driver)
    assert len(imports(renderer)) == 1
    assert renderer.frames[-1][0, 0, 0] == 2
    driver.fail["cuMemExportToShareableHandle"] = driver.CUresult.CUDA_ERROR_NOT_PERMITTED
    assert "cuMemExportToShareableHandle" in show(field, Tensor(mapped(driver, CHUNK)), 3).reason


def test_what_was_freed_is_let_go_of(field: wavefield.Field, driver: FakeDriver, renderer: FakeRenderer) -> None:
    before = len(os.listdir("/proc/self/fd"))
    first = mapped(driver, CHUNK)
    show(field, Tensor(first), 1)
    drawn(field, renderer, driver)
    assert len(driver.chunks) == 1
    unmapped(driver, first)
    gc.collect()
    assert len(driver.chunks) == 1, "held while it is remembered, so CUDA cannot reuse its handle"
    # Another chunk at the same address must not be taken for the one before.
    handle = driver.make_chunk(CHUNK)
    driver.cuMemMap(first, CHUNK, 0, handle, 0)
    driver.cuMemRelease(handle)
    show(field, Tensor(first), 2)
    drawn(field, renderer, driver)
    field.status()
    assert renderer.frames[-1][0, 0, 0] == 2
    assert imports(renderer) == [[CHUNK], [CHUNK]]
    assert renderer.released == [1000]
    assert len(driver.chunks) == 1
    field.close()
    unmapped(driver, first)
    assert driver.chunks == {}
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_what_is_shown_is_held_on_whatever_stream_comes_next(
    field: wavefield.Field, driver: FakeDriver, renderer: FakeRenderer
) -> None:
    driver.streams |= {50: [], 51: []}
    tensors = [Tensor(mapped(driver, CHUNK)) for _ in range(2)]
    alive = [weakref.ref(tensor) for tensor in tensors]
    for stream, tensor in zip((50, 51), tensors, strict=True):
        field.stream = stream
        assert show(field, tensor, stream) == wavefield.Shown.WITHOUT_COPY
    del tensor
    tensors.clear()
    field.stream = 50
    for _ in field.frames(2):  # the second has the slot of the first tensor, which the renderer still draws
        gc.collect()
        assert [ref() is not None for ref in alive] == [True, True]
    for _ in range(4):
        drawn(field, renderer, driver)
        with field.frame():
            pass
    gc.collect()
    assert [ref() for ref in alive] == [None, None]
    assert [shown[0, 0, 0] for shown in renderer.frames[:2]] == [50, 51]
    field.stream = None


def test_what_is_shown_last_is_held_until_the_renderer_has_left(
    field: wavefield.Field, driver: FakeDriver, renderer: FakeRenderer
) -> None:
    """Otherwise its library reuses the memory while the renderer shows the last frames after `bye`."""
    tensors = [Tensor(mapped(driver, CHUNK)) for _ in range(2)]
    alive = [weakref.ref(tensor) for tensor in tensors]
    for tensor in tensors:
        assert show(field, tensor, 1) == wavefield.Shown.WITHOUT_COPY
    del tensor
    field.status()
    seen: list[bool] = []

    def goodbye(_session: Session) -> None:
        time.sleep(0.2)
        seen.append(alive[1]() is not None)

    renderer.goodbye = goodbye
    renderer.draw(driver)
    tensors.clear()
    field.close()
    assert renderer.farewell.wait(5)
    assert seen == [True]
    gc.collect()
    assert [ref() for ref in alive] == [None, None]


def test_only_so_many_are_kept(
    field: wavefield.Field, driver: FakeDriver, renderer: FakeRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wavefield._handoff.imports.MOST_IMPORTS", 2)
    tensors = [Tensor(mapped(driver, CHUNK)) for _ in range(3)]
    for value, index in enumerate((0, 1, 0, 2, 0, 1)):
        show(field, tensors[index], value)
        drawn(field, renderer, driver)
    field.status()
    assert len(imports(renderer)) == 4
    assert renderer.released == [1001, 1002], "the least recently used ones"


class OutOfMemory(Exception):
    """Stands for CuPy's OutOfMemoryError."""


class CUDARuntimeError(RuntimeError):
    """Stands for CuPy's error. With status 2 it makes the pool free its unused blocks and try again."""

    def __init__(self, status: int) -> None:
        self.status = status


class FakeCupy(ModuleType):
    """The part of CuPy that `allocator` needs. Its pool keeps nothing."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.current: Any = None
        """The current allocator."""

        @contextmanager
        def using(allocator: Any) -> Iterator[None]:
            before, self.current = self.current, allocator
            yield
            self.current = before

        class Functions:
            def __init__(self, malloc: Any, free: Any) -> None:
                self.malloc, self.free = malloc, free

        def pooled(malloc: Any) -> Any:
            def try_thrice(size: int) -> Any:
                for _ in range(3):
                    try:
                        return malloc(size)
                    except CUDARuntimeError as error:
                        if error.status != 2:
                            raise
                raise OutOfMemory

            return SimpleNamespace(malloc=try_thrice)

        self.cuda = SimpleNamespace(
            runtime=SimpleNamespace(CUDARuntimeError=CUDARuntimeError),
            MemoryPool=pooled,
            PythonFunctionAllocator=lambda malloc, free: SimpleNamespace(malloc=lambda size: (malloc(size, 1), free)),
            using_allocator=using,
            get_current_stream=lambda _device: SimpleNamespace(ptr=0),
        )


def test_cupys_memory(
    field: wavefield.Field, driver: FakeDriver, renderer: FakeRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr("wavefield._memory.allocator._pool", [])
    with wavefield.allocator():
        address, free = cupy.current(3000)
    assert vars(cupy)["current"] is None
    assert driver.ranges[address][0] == 4096, "whole steps"
    assert show(field, Tensor(address), 5) == wavefield.Shown.WITHOUT_COPY
    drawn(field, renderer, driver)
    assert renderer.frames[-1][0, 0, 0] == 5
    field.close()
    free(address, 1)
    assert (driver.ranges, driver.chunks) == ({}, {})
    driver.fail["cuMemMap"] = driver.CUresult.CUDA_ERROR_NOT_PERMITTED
    with wavefield.allocator(), pytest.raises(wavefield.CudaError, match="cuMemMap"):
        cupy.current(3000)
    assert driver.chunks == {}, "nothing is left of what failed"
    driver.calls.clear()
    driver.fail = {"cuMemCreate": driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY}
    with wavefield.allocator(), pytest.raises(OutOfMemory):
        cupy.current(3000)
    assert driver.calls.count("cuMemCreate") == 3


def test_cupys_memory_that_is_freed_while_the_gpu_works_is_waited_for(
    field: wavefield.Field, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CuPy's pool frees its unused blocks when the GPU is out of memory. They are unmapped once the GPU is idle."""
    cupy = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr("wavefield._memory.allocator._pool", [])
    create = driver.cuMemCreate

    def one_chunk(size: int, prop: Any, flags: int) -> Any:
        return (driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY, None) if driver.chunks else create(size, prop, flags)

    monkeypatch.setattr(driver, "cuMemCreate", one_chunk, raising=False)
    held = threading.Event()
    with wavefield.allocator():
        address, free = cupy.current(3000)
        driver.enqueue(1, held.is_set)
        free(address, 1)
        assert address in driver.ranges, "the GPU may still use it"
        threading.Timer(0.1, held.set).start()
        address, free = cupy.current(3000)
    free(address, 1)
    assert (driver.ranges, driver.chunks) == ({}, {})


def test_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(wavefield.LibraryMissing, match="pip install cupy-cuda13x"), wavefield.allocator():
        pass


def test_as_each_library_has_it(field: wavefield.Field, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[Any, ...]] = []

    def take_by(name: str) -> Any:
        def take(array: Any, **more: Any) -> Any:
            taken.append((name, array, *more.values()))
            return array

        return take

    def library(name: str, **more: Any) -> None:
        module: Any = ModuleType(name)
        module.from_dlpack = take_by(name)
        module.cuda = SimpleNamespace(
            get_current_stream=lambda _device: SimpleNamespace(ptr=0),
            current_stream=lambda _device: SimpleNamespace(cuda_stream=0),
            is_initialized=lambda: True,
            **more,
        )
        monkeypatch.setitem(sys.modules, name, module)

    for name in ("cupy", "torch", "numba.cuda"):
        monkeypatch.setitem(sys.modules, name, None)
    with field.frame() as frame:
        for take, install in (
            (frame.as_cupy, "cupy-cuda13x"),
            (frame.as_torch, "torch"),
            (frame.as_numba, r"'numba-cuda\[cu13\]'"),
        ):
            with pytest.raises(wavefield.LibraryMissing, match=f"pip install {install}"):
                take()
        with pytest.raises(TypeError, match="on the GPU"):
            frame.as_numpy()
    for name in ("cupy", "torch"):
        library(name)
    cuda: Any = ModuleType("numba.cuda")
    cuda.select_device = take_by("device")
    cuda.default_stream = lambda: SimpleNamespace(handle=SimpleNamespace(value=None))
    cuda.as_cuda_array = take_by("numba")
    numba: Any = ModuleType("numba")
    numba.cuda = cuda
    monkeypatch.setitem(sys.modules, "numba", numba)
    monkeypatch.setitem(sys.modules, "numba.cuda", cuda)
    with field.frame() as frame:
        assert frame.as_cupy() is frame.as_torch() is frame.as_numba() is frame
    assert taken == [("cupy", frame), ("torch", frame), ("device", 1), ("numba", frame, False)]
    with pytest.raises(wavefield.FrameHandedOver):
        frame.as_cupy()


def test_as_numba_is_ordered_with_its_default_stream(
    renderer: FakeRenderer, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = driver.cuStreamCreate
    with wavefield.connect(renderer.path) as field:
        with field._context.current():  # type: ignore[union-attr]
            stream = int(own(1)[1])
        field.stream = stream
        cuda: Any = ModuleType("numba.cuda")
        cuda.select_device = lambda _ordinal: None
        cuda.default_stream = lambda: SimpleNamespace(handle=0)
        cuda.as_cuda_array = lambda array, sync: array
        monkeypatch.setitem(sys.modules, "numba", ModuleType("numba"))
        monkeypatch.setitem(sys.modules, "numba.cuda", cuda)
        blocked = [True]
        with field.frame() as frame:
            frame.as_numba()
            driver.enqueue(1, lambda: not blocked[0])  # a launch of Numba's
        assert renderer.draw(driver) == 0, "the hand-off waits for it"
        blocked[0] = False
        assert renderer.draw(driver) == 1


def test_as_numpy(host: wavefield.Field) -> None:
    with host.frame() as frame:
        frame.as_numpy()[...] = 3
        for take in (frame.as_cupy, frame.as_numba):
            with pytest.raises(AttributeError, match=r"numpy\.asarray"):
                take()


def test_an_import_that_was_interrupted_is_given_back(
    field: wavefield.Field, driver: FakeDriver, renderer: FakeRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials: list[int] = []

    def late(session: Session, message: dict[str, Any], files: list[int]) -> None:
        """Try one import at a time, like the renderer, and read messages meanwhile."""
        if trials:
            session.send({"type": "failed", "request": "import", "reason": "another import is being tried"})
            return
        number = session.request_id
        trials.append(1)

        def passed() -> None:
            trials.clear()
            session.request_id = number
            session.on_import(message, files)

        threading.Timer(0.2, passed).start()

    renderer.answers["import"] = late
    start = mapped(driver, CHUNK)
    field.camera = wavefield.Camera(0, 0, 3)  # otherwise `show` first asks for another view
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):

        def press(*_: Any) -> Any:
            raise KeyboardInterrupt

        patch.setattr(field._connection, "_wait_for", press)
        show(field, Tensor(start), 1)
    assert show(field, Tensor(start), 1) == wavefield.Shown.WITHOUT_COPY, "once the first was answered"
    field.status()
    assert renderer.released == [1000]
    assert len(imports(renderer)) == 2
