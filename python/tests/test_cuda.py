"""Frames in CUDA memory, with a stand-in for the driver: layout, order on the streams, lifetime."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import threading
import time
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import wavefield
from fake_driver import FakeDriver
from fake_renderer import FakeRenderer, Session
from wavefield._memory import cuda as _cuda, dlpack as _dlpack


class DeviceArray:
    """Stands for CuPy's array: memory with `__cuda_array_interface__`."""

    def __init__(self, array: np.ndarray, stream: int | None = None) -> None:
        self.array = array
        self.stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        array = self.array
        return {
            "version": 3,
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, False),
            "strides": None if array.flags.c_contiguous else array.strides,
            "stream": self.stream,
        }


class DlpackArray:
    """Stands for JAX's array: memory with DLPack, on a CUDA device."""

    def __init__(self, array: np.ndarray, device: tuple[int, int] = (2, 1)) -> None:
        self.array = array
        self.device = device
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        self.streams.append(stream)
        strides = tuple(step // 4 for step in self.array.strides)
        return _dlpack.make(
            self.array.ctypes.data, self.device, self.array.shape, strides, "float32", self, bool(max_version)
        )


def write(frame: wavefield.Array, driver: FakeDriver, value: float) -> None:
    """Enqueue a write, like a kernel."""
    address, size, stream = frame.pointer, frame.nbytes, frame.stream

    def step() -> bool:
        memory = np.ctypeslib.as_array((ctypes.c_float * (size // 4)).from_address(address))
        memory[...] = value
        return True

    driver.enqueue(int(stream), step)


def test_the_device_is_the_renderers(field: wavefield.Field) -> None:
    assert field.device == 1, "chosen by the UUID, not the first one"
    assert field.memory == "cuda"


def test_the_interface_of_a_frame(field: wavefield.Field) -> None:
    with field.frame() as frame:
        interface = frame.__cuda_array_interface__
        assert interface["version"] == 3
        assert interface["shape"] == (3, 5, 4)
        assert interface["typestr"] == "<f4"
        assert interface["data"] == (frame.pointer, False)
        assert interface["strides"] is None
        assert interface["stream"] == int(frame.stream) > 2
        with pytest.raises(TypeError, match=r"cupy\.asarray"):
            np.asarray(frame)


def test_the_capsule_of_a_frame(field: wavefield.Field) -> None:
    with field.frame() as frame:
        assert frame.__dlpack_device__() == (2, 1)
        for version in (None, (0, 8), (1, 0), (1, 2), (2, 0)):
            capsule = frame.__dlpack__(stream=-1, max_version=version)
            expected = "dltensor_versioned" if version and version[0] >= 1 else "dltensor"
            assert f'"{expected}"' in repr(capsule)
            taken = _dlpack.take(capsule)
            assert (taken.pointer, taken.device) == (frame.pointer, (2, 1))
            assert (taken.shape, taken.strides, taken.dtype) == ((3, 5, 4), (80, 16, 4), "float32")
            taken.release()
        with pytest.raises(BufferError, match="ambiguous"):
            frame.__dlpack__(stream=0)
        with pytest.raises(BufferError, match="-2 is not a CUDA stream"):
            frame.__dlpack__(stream=-2)
        with pytest.raises(BufferError):
            frame.__dlpack__(dl_device=(1, 0))
        with pytest.raises(BufferError):
            frame.__dlpack__(copy=True)


def test_frames_arrive_in_order_and_no_slot_is_written_early(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver
) -> None:
    """Three frames can be enqueued. The fourth waits, on the stream, until the renderer frees the first."""
    frames = field.frames()
    for _ in range(3):
        write(next(frames), driver, 1)
    fourth = next(frames)
    write(fourth, driver, 4)
    assert renderer.session is not None
    assert renderer.session.ready.value == 3
    first_slot = renderer.session.shown(0)
    assert first_slot[0, 0, 0] == 1, "frame 3 uses the same slot, and must not be in it yet"
    assert renderer.draw(driver) == 3
    assert renderer.session.shown(3)[0, 0, 0] == 4
    for index in range(4, 20):
        frame = next(frames)
        assert frame.index == index
        write(frame, driver, index)
        renderer.draw(driver)
    renderer.frames.clear()
    frame.hand_over()
    renderer.draw(driver)
    assert [shown[2, 4, 3] for shown in renderer.frames] == [19]
    assert renderer.session.ready.history == list(range(1, 21))


def test_the_cpu_is_not_more_than_a_ring_ahead(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver
) -> None:
    """Otherwise the program would enqueue without limit on a stream that waits."""
    frames = field.frames()
    for _ in range(3):
        write(next(frames), driver, 1)
    driver.streams[int(field.stream)].insert(0, lambda: renderer_goes_on.is_set())
    renderer_goes_on = threading.Event()
    write(next(frames), driver, 1)  # hands over the third, which the stream has not finished
    write(next(frames), driver, 1)
    took = threading.Event()

    def one_more() -> None:
        write(next(frames), driver, 1)
        took.set()

    thread = threading.Thread(target=one_more)
    thread.start()
    assert not took.wait(0.2), "frame 5 has to wait until frame 2 is finished"
    renderer_goes_on.set()
    assert took.wait(5)
    thread.join()
    renderer.draw(driver)


def test_using_a_frame_after_it_was_handed_over(field: wavefield.Field) -> None:
    frames = field.frames()
    first = next(frames)
    next(frames)
    for use in (
        lambda: first.__cuda_array_interface__,
        lambda: first.pointer,
        lambda: first.__dlpack__(stream=-1),
        lambda: first.copy_from(np.zeros((3, 5, 4), np.float32)),
        lambda: hasattr(first, "__cuda_array_interface__"),
        first.hand_over,
    ):
        with pytest.raises(wavefield.FrameHandedOver, match="frame 0 was handed over"):
            use()
    assert (first.index, first.time, first.shape) == (0, 0.0, (3, 5, 4))


def test_an_array_that_outlives_its_frame_keeps_the_memory(renderer: FakeRenderer, driver: FakeDriver) -> None:
    with wavefield.connect(renderer.path) as field:
        for frame in field.frames(1):
            owner = DeviceArray.__new__(DeviceArray)
            owner.frame = frame  # type: ignore[attr-defined]  # as CuPy's and Numba's arrays hold the object
            by_dlpack = _dlpack.take(frame.__dlpack__(stream=-1))
        assert len(driver.mapped) == 3
    del field, frame
    gc.collect()
    assert len(driver.mapped) == 1, "only the slot that an array still holds"
    del owner
    gc.collect()
    assert len(driver.mapped) == 1
    by_dlpack.release()
    gc.collect()
    assert not driver.mapped
    assert not driver.memories


def test_everything_is_given_back(renderer: FakeRenderer, driver: FakeDriver) -> None:
    before = None
    for _ in range(5):
        with wavefield.connect(renderer.path, ring=4) as field:
            frames = iter(field)
            for _ in range(4):
                write(next(frames), driver, 1)
            del frames
        alive = weakref.ref(field)
        del field
        assert alive() is None, "without waiting for the garbage"
        assert not (driver.mapped or driver.memories or driver.semaphores or driver.events)
        assert set(driver.streams) == {0, 1, 2}
        assert renderer.farewell.wait(5)
        renderer.farewell.clear()
        before = before or len(os.listdir("/proc/self/fd"))
    assert driver.calls.count("cuDevicePrimaryCtxRetain") == 1
    assert "cuDevicePrimaryCtxRelease" not in driver.calls


def test_a_renderer_that_dies_leaves_no_stream_stuck(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver
) -> None:
    frames = iter(field)
    for _ in range(4):
        write(next(frames), driver, 1)  # the fourth waits for `free`, which is never signalled
    stream = int(field.stream)
    assert driver.streams[stream]
    renderer.hang_up()
    with pytest.raises(wavefield.RendererGone):
        for _ in range(100):
            next(frames)
    field.close()
    assert stream not in driver.streams, "it was released, finished, and was destroyed"
    assert not driver.semaphores


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("draws", [True, False])
def test_two_never_signal_free(renderer: FakeRenderer, driver: FakeDriver, draws: bool) -> None:
    """The renderer shows the last frames after `bye`, and signals `free` for them."""
    seen = []

    def goodbye(session: Session) -> None:
        time.sleep(0.3)
        seen.append(list(session.free.history))
        if draws:
            renderer.draw(driver)
            seen.append(list(session.free.history))

    renderer.goodbye = goodbye
    with wavefield.connect(renderer.path) as field:
        for _ in field.frames(4):
            pass
        session = renderer.session
        assert session is not None
    if draws:
        assert seen == [[], []]
        assert session.free.value == 3
        assert session.free.history == [], "the stream had the value that it waited for"
    else:
        assert seen == [[]]
        assert session.free.history == [1], "signalled after the renderer had closed its end"
    assert set(driver.streams) == {0, 1, 2}, "released, finished and destroyed"


@pytest.mark.usefixtures("quick")
def test_a_value_that_is_there_is_not_signalled_again(renderer: FakeRenderer, driver: FakeDriver) -> None:
    """The stream hangs, but not because of the renderer."""
    with wavefield.connect(renderer.path) as field:
        for _ in field.frames(4):
            pass
        renderer.draw(driver)
        held = threading.Event()
        with field.frame() as frame:
            driver.enqueue(int(frame.stream), held.is_set)
    session = renderer.session
    assert session is not None
    assert session.free.history == []
    held.set()
    driver.run()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("how", ["shown", "given up"])
def test_closing_lets_go_of_every_stream_that_waits(renderer: FakeRenderer, driver: FakeDriver, how: str) -> None:
    """Also if the wait comes after the last frame."""
    driver.streams[50] = []
    with wavefield.connect(renderer.path, stream=50) as field:
        if how == "shown":
            for array in [field.empty(), field.empty()]:
                field.show(array)
        else:
            for _ in field.frames(3):
                pass
            with contextlib.suppress(ZeroDivisionError), field.frame():
                raise ZeroDivisionError
        assert driver.streams[50]
    assert not driver.streams[50]


@pytest.mark.parametrize("how", ["shown", "given up"])
def test_a_change_of_stream_keeps_what_the_last_one_waits_for(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver, how: str
) -> None:
    driver.streams |= {50: [], 51: []}
    field.stream = 50
    held = threading.Event()
    if how == "shown":
        for array in [field.empty(), field.empty()]:
            field.show(array)
    else:
        with contextlib.suppress(ZeroDivisionError), field.frame() as frame:
            driver.enqueue(50, held.is_set)
            write(frame, driver, 1)
            raise ZeroDivisionError
    assert driver.streams[50]
    field.stream = 51
    with field.frame() as frame:
        write(frame, driver, 2)
        assert len(driver.streams[51]) > 1, "it comes after what the other waits for"
    held.set()
    renderer.draw(driver)
    field.stream = None


def test_what_a_frame_that_was_given_up_reads_lives_until_it_was_read(
    field: wavefield.Field, driver: FakeDriver
) -> None:
    source = DeviceArray(np.ones((3, 5, 4), np.float32))
    alive = weakref.ref(source)
    held = threading.Event()
    with contextlib.suppress(ZeroDivisionError), field.frame() as frame:
        driver.enqueue(int(frame.stream), held.is_set)
        frame.copy_from(source)
        raise ZeroDivisionError
    del source, frame
    gc.collect()
    assert alive() is not None
    held.set()
    with field.frame():
        pass
    gc.collect()
    assert alive() is None


@pytest.mark.usefixtures("quick")
def test_a_gpu_that_is_stuck_is_left_alone(renderer: FakeRenderer, driver: FakeDriver) -> None:
    field = wavefield.connect(renderer.path)
    array = field.empty()
    with field.frame() as frame:
        driver.enqueue(int(frame.stream), lambda: False)
    field.close()
    del array, frame, field
    gc.collect()
    assert len(driver.mapped) == 4, "what the GPU may still write is not unmapped"
    assert len(driver.semaphores) == 2


def test_a_finalizer_does_not_wait_for_a_stream_that_waits(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver
) -> None:
    """The last array of some memory is dropped while the stream waits for a renderer whose window is hidden."""
    array = field.empty()
    address = array.pointer
    for _ in field.frames(4):
        pass
    assert driver.streams[int(field.stream)], "it waits for `free`"
    del array
    gc.collect()
    field.status()
    assert renderer.released == [1]
    assert address in driver.mapped
    renderer.draw(driver)
    with field.frame():
        assert address not in driver.mapped, "the stream has finished"


def test_memory_that_dies_in_another_thread_is_unmapped(field: wavefield.Field, driver: FakeDriver) -> None:
    arrays = [field.empty()]
    thread = threading.Thread(target=arrays.clear)
    thread.start()
    thread.join()
    assert len(driver.mapped) == 3


def test_memory_that_dies_after_the_event_is_left_to_the_next_time(
    field: wavefield.Field, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = [field.empty()], [field.empty()]
    addresses = first[0].pointer, second[0].pointer
    record_all = _cuda.Event.record_all

    def meanwhile(event: _cuda.Event) -> bool:
        recorded = record_all(event)
        second.clear()  # as in another thread, which may have enqueued more since the event
        return recorded

    with monkeypatch.context() as patch:
        patch.setattr(_cuda.Event, "record_all", meanwhile)
        first.clear()
    assert [address in driver.mapped for address in addresses] == [False, True]
    with field.frame():
        assert addresses[1] not in driver.mapped


def test_a_driver_that_cannot_record_a_context(field: wavefield.Field, driver: FakeDriver) -> None:
    driver.fail["cuCtxRecordEvent"] = RuntimeError('Function "cuCtxRecordEvent" not found')
    array = field.empty()
    held = threading.Event()
    # A stream that the default stream does not wait for.
    driver.enqueue(_cuda.Context.at(1).make_stream(ordered=False), held.is_set)
    del array
    gc.collect()
    with field.frame():
        assert len(driver.mapped) == 4
    held.set()
    end = time.monotonic() + 60
    while len(driver.mapped) > 3:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_descriptor_that_cuda_owns_is_not_closed(driver: FakeDriver) -> None:
    class Interrupted(_cuda.Context):
        def __init__(self) -> None:
            self.driver, self.raw = driver, 77
            self.success = driver.CUresult.CUDA_SUCCESS
            self.relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED

        def call(self, function: str, *arguments: object) -> object:
            # Ctrl-C comes when the import has succeeded.
            if function.startswith("cuImport"):
                raise KeyboardInterrupt
            return super().call(function, *arguments)

    descriptor = os.memfd_create("exported")
    with pytest.raises(KeyboardInterrupt):
        _cuda.Timeline(Interrupted(), descriptor)
    with pytest.raises(KeyboardInterrupt):
        _cuda.DeviceMemory(Interrupted(), descriptor, 4096, 0, 4096)
    os.close(descriptor)  # fails if it is closed already


def test_a_context_that_has_failed_is_not_unmapped(field: wavefield.Field, driver: FakeDriver) -> None:
    for function in ("cuCtxRecordEvent", "cuEventQuery", "cuCtxPushCurrent"):
        array = field.empty()
        driver.fail[function] = driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
        del array
        gc.collect()
        driver.fail.clear()
        assert len(driver.mapped) == 4
        with field.frame():
            assert len(driver.mapped) == 3, "what was left is unmapped later"


def test_arrays_that_come_and_go_without_a_pause_do_not_pile_up(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wavefield._handoff.allocations.MOST_RETIRED", 4)
    monkeypatch.setattr("wavefield._handoff.allocations.RETIRED_SECONDS", 0.01)
    held = threading.Event()
    driver.enqueue(1, held.is_set)
    for _ in range(6):
        field.empty()
    assert len(driver.mapped) == 3 + 6, "it waits a while, and then goes on"
    held.set()
    monkeypatch.setattr("wavefield._handoff.allocations.RETIRED_SECONDS", 60.0)
    array = field.empty()
    assert len(driver.mapped) == 3 + 1
    del array


def test_the_stream_is_the_users(field: wavefield.Field, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    own = field.stream
    assert int(own) in driver.blocking, "ordered with the default stream"
    # CuPy's current stream on the renderer's device.
    asked = []

    def current(device: int) -> Any:
        asked.append(device)
        return SimpleNamespace(ptr=1)

    cupy = SimpleNamespace(cuda=SimpleNamespace(get_current_stream=current))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert field.stream == wavefield.Stream(1)
    assert asked == [1]
    with field.frame() as frame:
        assert frame.__cuda_array_interface__["stream"] is None, "its consumer works on the same stream"
    # With Numba loaded too, the consumer's stream is not known.
    monkeypatch.setitem(sys.modules, "numba.cuda", SimpleNamespace())
    with field.frame() as frame:
        assert frame.__cuda_array_interface__["stream"] == 1
    # PyTorch counts once it uses the GPU. The streams of both must then be the same.
    torch = SimpleNamespace(
        cuda=SimpleNamespace(is_initialized=lambda: True, current_stream=lambda device: SimpleNamespace(cuda_stream=0))
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert field.stream == wavefield.Stream(1), "0 and 1 are the same stream"
    driver.streams[99] = []
    torch.cuda.current_stream = lambda device: SimpleNamespace(cuda_stream=99)
    with pytest.raises(wavefield.WavefieldError, match="CuPy and PyTorch differ"):
        next(iter(field))
    field.stream = 2
    assert int(field.stream) == 2
    with field.frame() as frame:
        assert frame.__cuda_array_interface__["stream"] == 2
    monkeypatch.delitem(sys.modules, "cupy")
    monkeypatch.delitem(sys.modules, "torch")
    field.stream = None
    assert field.stream == own


@pytest.mark.parametrize(
    ("given", "handle"),
    [
        (7, 7),
        (0, 1),
        (SimpleNamespace(ptr=7), 7),
        (SimpleNamespace(cuda_stream=7), 7),
        (SimpleNamespace(handle=ctypes.c_void_p(7)), 7),
        (SimpleNamespace(handle=ctypes.c_void_p(0)), 1),
        (SimpleNamespace(handle=7), 7),
        (SimpleNamespace(__cuda_stream__=lambda: (0, 7)), 7),
        (SimpleNamespace(__cuda_stream__=(0, 7)), 7),
        (wavefield.Stream(7), 7),
    ],
)
def test_streams_of_many_libraries(field: wavefield.Field, driver: FakeDriver, given: Any, handle: int) -> None:
    driver.streams[7] = []
    field.stream = given
    assert field.stream == wavefield.Stream(handle)
    assert field.stream.__cuda_stream__() == (0, handle)
    with pytest.raises(TypeError, match="not a CUDA stream"):
        field.stream = object()


def test_a_change_of_stream_keeps_the_order(field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver) -> None:
    driver.streams |= {50: [], 51: []}
    held = threading.Event()
    field.stream = 50
    with field.frame() as frame:
        driver.enqueue(50, held.is_set)
        write(frame, driver, 1)
    field.stream = 51
    with field.frame() as frame:
        write(frame, driver, 2)
    assert renderer.session is not None
    assert renderer.session.ready.history == [], "the second must not be ready before the first"
    held.set()
    driver.run()
    assert renderer.session.ready.history == [1, 2]
    field.stream = None


def test_a_dlpack_consumer_on_another_stream_is_waited_for(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver
) -> None:
    driver.streams[50] = []
    slow = threading.Event()
    with field.frame() as frame:
        taken = _dlpack.take(frame.__dlpack__(stream=50))
        driver.enqueue(50, slow.is_set)
    assert renderer.draw(driver) == 0
    slow.set()
    assert renderer.draw(driver) == 1
    taken.release()


def test_the_next_frame_waits_for_whoever_took_one_that_was_given_up(
    field: wavefield.Field, driver: FakeDriver
) -> None:
    """Both frames have the same slot, and may be written on two streams."""
    driver.streams[50] = []
    slow = threading.Event()
    for frame in field:
        taken = _dlpack.take(frame.__dlpack__(stream=50))
        driver.enqueue(50, slow.is_set)
        break
    with field.frame() as again:
        assert again.index == frame.index == 0
        write(again, driver, 2)
        assert driver.streams[int(again.stream)], "what the other stream writes comes first"
        slow.set()
        driver.run()
        assert not driver.streams[int(again.stream)]
    taken.release()


@pytest.mark.parametrize("abandon", ["zip", "exception"])
def test_a_frame_that_a_loop_leaves_behind_is_not_shown(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver, abandon: str
) -> None:
    if abandon == "zip":
        for frame, _ in zip(field, range(5), strict=False):
            write(frame, driver, 1)
            renderer.draw(driver)
    else:
        with contextlib.suppress(ZeroDivisionError):
            for frame in field:
                write(frame, driver, 1)
                renderer.draw(driver)
                assert frame.index < 5 or 1 / 0
    for frame in field.frames(4):
        write(frame, driver, 7)
        renderer.draw(driver)
    renderer.draw(driver)
    assert [shown[0, 0, 0] for shown in renderer.frames] == [1] * 5 + [7] * 4
    assert renderer.session is not None
    assert renderer.session.ready.history == list(range(1, 10))


class Library:
    """Stands for CuPy, with its current stream."""

    def __init__(self, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
        driver.streams |= {50: [], 51: []}
        self.stream = 50
        cuda = SimpleNamespace(get_current_stream=lambda _device: SimpleNamespace(ptr=self.stream))
        monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, from_dlpack=lambda array: array))


def test_an_interface_consumer_on_another_stream_is_ordered(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`for frame in field: with my_stream: v = cp.asarray(frame); …`."""
    cupy = Library(driver, monkeypatch)
    slow = threading.Event()
    for index in range(4):
        cupy.stream = 50
        with field.frame() as frame:
            assert frame.__cuda_array_interface__["stream"] is None
            cupy.stream = 51
            assert frame.__cuda_array_interface__["stream"] == 50
            if index == 3:
                assert driver.streams[51], "it waits for the slot, too"
                renderer.draw(driver)
                assert not driver.streams[51]
                driver.enqueue(51, slow.is_set)
    assert renderer.draw(driver) == 0, "the hand-off waits for it"
    slow.set()
    assert renderer.draw(driver) == 1


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("by", ["DLPack", "the array interface"])
def test_who_took_an_array_is_waited_for_when_it_is_shown(
    field: wavefield.Field,
    renderer: FakeRenderer,
    driver: FakeDriver,
    monkeypatch: pytest.MonkeyPatch,
    copy: bool | None,
    by: str,
) -> None:
    cupy = Library(driver, monkeypatch)
    field.camera = wavefield.Camera(0, 0, 3)  # otherwise the first `show` waits for the array's range
    field.stream = 50
    array = field.empty()
    cupy.stream = 51
    if by == "DLPack":
        _dlpack.take(array.__dlpack__(stream=51)).release()
    else:
        assert array.__cuda_array_interface__["stream"] == 50
    cupy.stream = 50
    for _ in range(2):
        slow = threading.Event()
        driver.enqueue(51, slow.is_set)
        field.show(array, copy=copy)
        assert renderer.draw(driver) == 0
        slow.set()
        field.status()  # now the renderer has read the messages
        assert renderer.draw(driver) == 1
        with field.frame():
            pass
        renderer.draw(driver)
    field.stream = None


def test_whoever_takes_an_array_waits_until_it_is_free(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver
) -> None:
    """On whatever stream it was shown."""
    driver.streams |= {50: [], 51: [], 52: []}
    field.stream = 50
    arrays = [field.empty(), field.empty()]
    field.stream = 51
    for array in arrays:
        field.show(array)
    assert driver.streams[51]
    _dlpack.take(arrays[0].__dlpack__(stream=52)).release()
    assert driver.streams[52], "the renderer still draws it"
    field.status()
    renderer.draw(driver)
    assert not driver.streams[52]
    field.stream = None


def test_a_closed_fields_array_names_no_stream(renderer: FakeRenderer, driver: FakeDriver) -> None:
    with wavefield.connect(renderer.path) as field:
        array = field.empty()
        own = int(field.stream)
        assert array.__cuda_array_interface__["stream"] == own
    assert own not in driver.streams
    assert array.__cuda_array_interface__["stream"] is None
    _dlpack.take(array.__dlpack__(stream=2)).release()
    with pytest.raises(wavefield.FieldClosed):
        _ = array.stream
    # Another field can still copy it.
    renderer.farewell.wait(5)
    with wavefield.connect(renderer.path) as other, other.frame() as frame:
        frame.copy_from(array)


def test_a_stream_object_lives_as_long_as_it_is_needed(
    renderer: FakeRenderer, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stream:
        ptr = 50

    driver.streams[50] = []
    stream = Stream()
    alive = weakref.ref(stream)
    field = wavefield.connect(renderer.path, stream=stream)
    del stream
    gc.collect()
    assert alive() is not None, "it is the field's"
    array = field.empty()
    with field.frame() as frame:
        pass
    field.close()
    del field, frame, array
    gc.collect()
    assert alive() is None
    # The same for a consumer's stream.
    with wavefield.connect(renderer.path) as field:
        array = field.empty()
        stream = Stream()
        alive = weakref.ref(stream)
        cupy = SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda _device, it=stream: it))
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "cupy", cupy)
            _dlpack.take(array.__dlpack__(stream=50)).release()
        del stream, cupy, patch
        gc.collect()
        assert alive() is not None
        field.show(array)
        assert array.stream == field.stream
    gc.collect()
    assert alive() is None


def test_copy_from_a_device_array(field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver) -> None:
    driver.streams[50] = []
    good = np.arange(60, dtype=np.float32).reshape(3, 5, 4)
    produced = threading.Event()
    source = np.zeros_like(good)

    def produce() -> bool:
        if produced.is_set():
            source[...] = good
        return produced.is_set()

    driver.enqueue(50, produce)
    with field.frame() as frame:
        frame.copy_from(DeviceArray(source, stream=50))
    assert renderer.draw(driver) == 0, "the copy waits for the array's producer"
    produced.set()
    renderer.draw(driver)
    np.testing.assert_array_equal(renderer.frames[0], good)
    wide = np.zeros((3, 9, 4), np.float32)
    wide[:, :5] = good + 1
    for source_of_frame in (DeviceArray(wide[:, :5]), DlpackArray(good), good):
        with field.frame() as frame:
            frame.copy_from(source_of_frame)
        renderer.draw(driver)
    np.testing.assert_array_equal(renderer.frames[1], good + 1)
    np.testing.assert_array_equal(renderer.frames[2], good)
    np.testing.assert_array_equal(renderer.frames[3], good)


def test_a_jax_like_source_waits_on_our_stream_and_lives_until_it_was_read(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver
) -> None:
    source = DlpackArray(np.ones((3, 5, 4), np.float32))
    alive = weakref.ref(source)
    with field.frame() as frame:
        frame.copy_from(source)
        assert source.streams == [int(frame.stream)]
    del source
    gc.collect()
    assert alive() is not None
    for _ in range(3):
        renderer.draw(driver)
        with field.frame():
            pass
    del frame
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(
    ("array", "error"),
    [
        (DeviceArray(np.zeros((3, 5, 4), np.float64)), wavefield.ArrayMismatch),
        (DeviceArray(np.zeros((5, 3, 4), np.float32)), wavefield.ArrayMismatch),
        (DeviceArray(np.zeros((3, 5, 8), np.float32)[..., ::2]), wavefield.ArrayMismatch),
        (DlpackArray(np.zeros((3, 4, 4), np.float32), (2, 0)), wavefield.ArrayMismatch),
        (DlpackArray(np.zeros((3, 4, 4), np.float32)), wavefield.ArrayMismatch),
        (np.zeros((3, 5), np.float32), wavefield.ArrayMismatch),
    ],
)
def test_sources_that_do_not_fit(field: wavefield.Field, array: Any, error: type[Exception]) -> None:
    with field.frame() as frame, pytest.raises(error):
        frame.copy_from(array)
    gc.collect()
    assert not _dlpack._held


@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize("dtype", ["float64", "int32", ">f4"])
def test_another_dtype_is_named_with_the_cure(field: wavefield.Field, dtype: str, copy: bool | None) -> None:
    with pytest.raises(wavefield.ArrayMismatch, match=rf"{dtype}; the field.*astype\(.float32.\).*\.float\(\)"):
        field.show(DeviceArray(np.ones((3, 5, 4), dtype)), copy=copy)


def test_show_without_a_copy_holds_the_stream_until_the_other_array_is_free(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver
) -> None:
    arrays = [field.empty(), field.empty()]
    for index in range(8):
        array = arrays[index % 2]
        write(array, driver, index)
        assert field.show(array) == wavefield.Shown.WITHOUT_COPY
        if index == 3:
            with pytest.raises(wavefield.StillShown):
                field.show(array)
        # The next write is to the array before, which the renderer draws until it draws this one.
        if index > 0:
            write(arrays[(index + 1) % 2], driver, -1)
            field.status()  # now the renderer has read the messages
            assert renderer.session is not None
            assert renderer.session.shown(index - 1)[0, 0, 0] == index - 1, "torn"
        field.status()
        renderer.draw(driver)
    assert [shown[2, 4, 3] for shown in renderer.frames] == list(range(8))


def test_show_copies_what_the_renderer_cannot_draw(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver
) -> None:
    for array in (
        DeviceArray(np.full((3, 5, 4), 3, np.float32)),
        DlpackArray(np.full((3, 5, 4), 3, np.float32)),
        np.full((3, 5, 4), 3, np.float32),
    ):
        assert field.show(array) == wavefield.Shown.COPIED
        renderer.draw(driver)
        assert renderer.frames[-1].sum() == 180
    own = field.empty()
    write(own, driver, 4)
    assert field.show(own, copy=True) == wavefield.Shown.COPIED
    renderer.draw(driver)
    assert renderer.frames[-1].sum() == 240
    assert renderer.session is not None
    assert renderer.session.shows == {}


@pytest.mark.parametrize("by", ["show", "copy_from"])
def test_numpys_memory_is_copied_once_the_slot_is_free(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver, by: str
) -> None:
    """Otherwise the driver's call waits for the stream, and notices neither Ctrl-C nor a renderer that ends."""

    def copy(value: float) -> None:
        array = np.full((3, 5, 4), value, np.float32)
        if by == "show":
            field.show(array)
        else:
            with field.frame() as frame:
                frame.copy_from(array)

    def three_more() -> None:
        for value in range(3, 6):
            copy(value)

    for value in range(3):
        copy(value)
    thread = threading.Thread(target=three_more)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive(), "the renderer still draws the first"
    while thread.is_alive():
        renderer.draw(driver)
        thread.join(0.01)
    renderer.draw(driver)
    assert [shown[0, 0, 0] for shown in renderer.frames] == [0, 1, 2, 3, 4, 5]
    renderer.hang_up()
    with pytest.raises(wavefield.RendererGone):
        for value in range(4):
            copy(value)


def test_an_allocation_is_released_with_its_last_array(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver
) -> None:
    array = field.empty()
    assert len(driver.mapped) == 4
    taken = _dlpack.take(array.__dlpack__(stream=-1))
    del array
    gc.collect()
    assert len(driver.mapped) == 4
    taken.release()
    gc.collect()
    assert len(driver.mapped) == 3
    field.status()
    assert renderer.released == [1]


@pytest.mark.parametrize("call", ["cuCtxPushCurrent", "cuImportExternalMemory", "cuExternalMemoryGetMappedBuffer"])
def test_an_allocation_that_cannot_be_mapped_is_given_back(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver, call: str
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    driver.fail[call] = driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(wavefield.CudaError, match=call):
        field.empty()
    driver.fail.clear()
    field.status()
    assert renderer.released == [1]
    assert len(driver.memories) == 3
    # The fake renderer keeps its own descriptor.
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_no_cuda(renderer: FakeRenderer, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.init_result = driver.CUresult.CUDA_ERROR_NO_DEVICE
    with pytest.raises(wavefield.CudaMissing, match=r"CUDA_ERROR_NO_DEVICE, 100\).*nvidia-smi.*memory=\"host\""):
        wavefield.connect(renderer.path)

    def no_library(flags: int) -> Any:
        raise RuntimeError("Failed to dlopen libcuda.so.1")

    monkeypatch.setattr(driver, "cuInit", no_library, raising=False)
    with pytest.raises(wavefield.CudaMissing, match=r"no CUDA driver: Failed to dlopen.*memory=\"host\""):
        wavefield.connect(renderer.path)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(wavefield.CudaMissing, match="pip install cuda-bindings"):
        wavefield.connect(renderer.path)
    assert renderer.received == [], "the renderer was not disturbed"


def test_another_gpu(renderer: FakeRenderer, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.uuid = b"\x22" * 16
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with pytest.raises(wavefield.DeviceMismatch) as caught:
        wavefield.connect(renderer.path)
    for part in ("00112233445566778899aabbccddeeff", "22" * 16, "CUDA_VISIBLE_DEVICES is '3'", "wavefield devices"):
        assert part in str(caught.value)
    assert renderer.farewell.wait(5)


@pytest.mark.parametrize(
    "call",
    [
        "cuImportExternalMemory",
        "cuExternalMemoryGetMappedBuffer",
        "cuImportExternalSemaphore",
        "cuEventCreate",
        "cuStreamCreate",
        "cuDevicePrimaryCtxRetain",
        "cuCtxPushCurrent",
    ],
)
def test_a_failing_call_is_said_and_leaves_nothing(renderer: FakeRenderer, driver: FakeDriver, call: str) -> None:
    with wavefield.connect(renderer.path):
        pass
    renderer.farewell.wait(5)
    for memory in list(driver.memories):
        os.close(driver.memories.pop(memory))
    before = len(os.listdir("/proc/self/fd"))
    driver.fail[call] = driver.CUresult.CUDA_ERROR_OPERATING_SYSTEM
    _cuda._contexts.clear()
    renderer.farewell.clear()
    with pytest.raises(wavefield.CudaError, match=f"{call}: .*own words.*CUDA_ERROR_OPERATING_SYSTEM, 304") as caught:
        wavefield.connect(renderer.path)
    assert caught.value.name == "CUDA_ERROR_OPERATING_SYSTEM"
    assert ("WSL2" in str(caught.value)) == call.startswith("cuImport")
    assert renderer.farewell.wait(5)
    del caught
    gc.collect()
    if call == "cuEventCreate":
        # Without events it is unknown whether the GPU still uses the memory.
        driver.fail.clear()
        _cuda._contexts[1].reap()
    assert not (driver.mapped or driver.memories or driver.semaphores or driver.events)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_kernel_that_faulted_before_is_named(field: wavefield.Field, driver: FakeDriver) -> None:
    for _ in field.frames(3):
        pass
    driver.fail["cuEventQuery"] = driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(wavefield.CudaError, match=r"CUDA_ERROR_ILLEGAL_ADDRESS.*a kernel that ran"):
        next(iter(field))
    with pytest.warns(ResourceWarning, match="while closing the field"):
        field.close()
    driver.fail.clear()


def test_a_descriptor_named_twice(renderer: FakeRenderer, driver: FakeDriver) -> None:
    def twice(session: Session, message: dict[str, Any], _files: list[int]) -> None:
        text, files = session.welcome(message)
        session.send({**text, "free": text["ready"]}, files)

    renderer.answers["hello"] = twice
    with pytest.raises(wavefield.ProtocolError, match="a descriptor twice"):
        wavefield.connect(renderer.path)
    gc.collect()
    assert not (driver.mapped or driver.memories or driver.semaphores)
