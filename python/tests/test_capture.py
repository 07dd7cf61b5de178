"""While a CUDA graph is being captured, nothing is enqueued, and the capture stays whole. With the stand-in driver."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import wavefield
from fake_driver import STATUS, FakeDriver
from fake_renderer import FakeRenderer
from started import Started
from test_arrays import GPU, Cuda, Dlpack
from wavefield._memory import dlpack as _dlpack

ACTIVE = STATUS.CU_STREAM_CAPTURE_STATUS_ACTIVE
IMAGE = np.ones((3, 5, 4), np.float32)
WORDS = "a CUDA graph is being captured, on stream .* call show, picture or the next frame outside the capture"


class Library:
    """Stands for CuPy: it works on stream 50, and captures on it."""

    def __init__(self, driver: FakeDriver, stream: int = 50) -> None:
        self.driver, self.stream = driver, stream
        driver.streams[50] = []
        driver.blocking.add(50)  # as CuPy makes them

    def __enter__(self) -> None:
        self.driver.capturing = {50: ACTIVE}

    def __exit__(self, *_: Any) -> None:
        assert self.driver.capturing == {50: ACTIVE}, "the capture was ended"
        assert not self.driver.streams[50], "something became a part of the graph"
        self.driver.capturing = {}

    def get_current_stream(self, _device: int) -> Any:
        return SimpleNamespace(ptr=self.stream)


@pytest.fixture(params=[50, 0], ids=["its stream", "the default stream"])
def library(request: Any, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Library:
    """The library's current stream is the one that is captured, or the default stream, which is ordered with it."""
    library = Library(driver, request.param)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=library))
    return library


@pytest.fixture
def shown(library: Library, renderer: FakeRenderer, driver: FakeDriver) -> Iterator[wavefield.Field]:
    """A field that has shown a frame."""
    with wavefield.connect(renderer.path) as field:
        field.show(IMAGE)
        renderer.draw(driver)
        yield field


def entries(field: wavefield.Field, frame: wavefield.Frame, picture: Any) -> dict[str, Callable[[], Any]]:
    array = field.empty()
    producer = Dlpack(IMAGE, GPU)
    return {
        "show": lambda: field.show(IMAGE),
        "show, DLPack": lambda: field.show(producer),
        "show, the interface": lambda: field.show(Cuda(IMAGE)),
        "show, without a copy": lambda: field.show(array),
        "the next frame": lambda: next(field.frames()),
        "with a frame": lambda: field.frame().__enter__(),
        "hand_over": lambda: frame.hand_over(),
        "copy_from": lambda: frame.copy_from(IMAGE),
        "copy_from, DLPack": lambda: frame.copy_from(producer),
        "a frame by DLPack": lambda: frame.__dlpack__(stream=50),
        "an array by DLPack": lambda: array.__dlpack__(stream=2),
        "picture": field.picture,
        "render": lambda: field.render("depth", size=(8, 8)),
        "a picture by DLPack": lambda: picture.__dlpack__(stream=50),
        "a picture by the interface": lambda: picture.__cuda_array_interface__,
    }


def test_nothing_is_enqueued_and_the_capture_stays_whole(
    shown: wavefield.Field, library: Library, renderer: FakeRenderer, driver: FakeDriver
) -> None:
    picture = shown.render(size=(8, 8))
    shown.stream = 51
    driver.streams[51] = []
    with shown.frame() as frame:
        for name, call in entries(shown, frame, picture).items():
            with library:
                asked = dict(driver.enqueued)
                with pytest.raises(wavefield.CudaError, match=WORDS) as caught:
                    call()
                assert caught.value.name == "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
                assert driver.enqueued == asked, f"{name} enqueued something"
        frame.copy_from(IMAGE + 1)
    shown.show(IMAGE + 2)
    shown.status()
    renderer.draw(driver)
    assert [seen[0, 0, 0] for seen in renderer.frames] == [1, 2, 3], "the field goes on"
    shown.stream = None


def test_wavefield_show(started: list[Started], library: Library, renderer: FakeRenderer, driver: FakeDriver) -> None:
    """The first call, and later ones."""

    class Double(Dlpack):
        shape, dtype = (4, 6), np.dtype(np.float64)

        def astype(self, dtype: str) -> Any:
            raise AssertionError("this would enqueue the conversion")

    def make() -> Any:
        return Dlpack(np.ones((4, 6), np.float32), GPU)

    for _ in range(2):
        for array in (make(), Double(np.ones((4, 6)), GPU), Cuda(np.ones((4, 6), np.float32))):
            with library, pytest.raises(wavefield.CudaError, match=WORDS):
                wavefield.show(array)
            assert array.asked["capsule"] == 0
        wavefield.show(make(), limits=(0, 1)).status()
        renderer.draw(driver)
    assert len(renderer.frames) == 2


def test_wavefield_show_on_a_chosen_stream(started: list[Started], renderer: FakeRenderer, driver: FakeDriver) -> None:
    """The stream is captured, and it is no library's current one."""
    library = Library(driver)
    array = Dlpack(np.ones((4, 6), np.float32), GPU)
    wavefield.show(array, limits=(0, 1)).stream = 50
    array.asked.clear()
    array.shape, array.dtype = (4, 6), np.dtype(np.float32)  # type: ignore[attr-defined]
    with library, pytest.raises(wavefield.CudaError, match=WORDS):
        wavefield.show(array)
    assert array.asked["capsule"] == 0, "the producer enqueued nothing"


def test_closing_keeps_what_a_copy_still_reads(
    shown: wavefield.Field, library: Library, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wavefield._handoff.rings._abandoned", [])
    array = IMAGE + 1
    read = weakref.ref(array)
    frame = next(shown.frames())
    stopped = [True]
    driver.streams[int(frame.stream)].append(lambda: not stopped)
    frame.copy_from(Dlpack(array, GPU))
    del array
    with library:
        shown.close()
        gc.collect()
        assert read() is not None
        stopped.clear()
        driver.run()


def test_what_needs_no_stream_goes_on(
    shown: wavefield.Field, library: Library, renderer: FakeRenderer, driver: FakeDriver
) -> None:
    """Also what is dropped meanwhile: its memory is unmapped later."""
    array = shown.empty()
    address = array.pointer
    with library:
        assert shown.snapshot().any()
        assert shown.status().frame_shown is not None
        assert array.pointer == address
        del array
        assert address in driver.mapped
        other = shown.empty()
    with shown.frame():
        assert address not in driver.mapped
    del other


def test_a_capture_on_a_stream_that_nobody_works_on(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver
) -> None:
    """Of another thread, for example: calls such as cuEventQuery do not end it, and the field goes on."""
    library = Library(driver)
    with library:
        for value in range(6):
            field.show(IMAGE * value)
            renderer.draw(driver)
        assert field.snapshot().any()
    field.status()
    renderer.draw(driver)
    assert [seen[0, 0, 0] for seen in renderer.frames] == [0, 1, 2, 3, 4, 5]


def test_a_hand_off_that_was_refused_is_done_later(
    shown: wavefield.Field, library: Library, renderer: FakeRenderer, driver: FakeDriver
) -> None:
    frames = shown.frames(2)
    frame = next(frames)
    frame.copy_from(IMAGE + 1)
    with library, pytest.raises(wavefield.CudaError, match=WORDS):
        frame.hand_over()
    frame.hand_over()
    renderer.draw(driver)
    assert [seen[0, 0, 0] for seen in renderer.frames] == [1, 2]
    _dlpack.take(next(frames).__dlpack__(stream=-1)).release()
