"""Pictures for the user's own program: with the stand-ins for driver and renderer, and from the real renderer."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import wavefield
from fake_driver import FakeDriver
from fake_renderer import FakeRenderer
from test_end_to_end import EXAMPLES, WHY_NOT
from wavefield import Camera
from wavefield._memory import dlpack as _dlpack
from wavefield._memory.streams import Stream
from wavefield._pictures import picture as _picture, places as _places, render as _render

KINDS: tuple[Any, ...] = ("color", "depth", "normal", "index")
DTYPES = {"color": "uint8", "depth": "float32", "normal": "float32", "index": "int32"}
CHANNELS = {"color": 4, "depth": 1, "normal": 4, "index": 1}


def of_frame(frame: int, kind: str = "color", camera: int = 0) -> int:
    """Return the number that the fake renderer writes."""
    return 10 * frame + camera + 1 + list(KINDS).index(kind)


def hand_over(field: wavefield.Field, frames: int = 1) -> None:
    for _ in field.frames(frames):
        pass


class Reader:
    """A consumer's kernel: keeps what it sees when its turn on the stream comes."""

    def __init__(self, picture: wavefield.Picture, driver: FakeDriver, stream: int, after: Any = None) -> None:
        self.seen: set[float] = set()
        dtype = np.dtype(DTYPES[picture.kind])
        kernel = np.ctypeslib.as_array((ctypes.c_uint8 * picture.nbytes).from_address(picture.pointer)).view(dtype)

        def step() -> bool:
            if after is not None and not after.is_set():
                return False
            self.seen = set(kernel.tolist())
            return True

        driver.enqueue(stream, step)


def asked(renderer: FakeRenderer) -> list[dict[str, Any]]:
    return [message for message in renderer.received if message["type"] == "render"]


# On the GPU.


@pytest.fixture
def drawn(field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver) -> Callable[[], None]:
    """Return a function that lets the renderer draw all that it was asked for."""

    def draw() -> None:
        field.status()  # every message before it is read
        renderer.draw(driver)

    return draw


def test_a_stream_waits_for_the_picture_and_the_cpu_does_not(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver, drawn: Callable[[], None]
) -> None:
    driver.streams[50] = []
    hand_over(field)
    picture = field.picture()
    assert (picture.kind, picture.shape, picture.dtype) == ("color", (2, 3, 4), np.dtype("u1"))
    assert picture.__dlpack_device__() == (2, 1)
    capsule = picture.__dlpack__(stream=50)
    reader = Reader(picture, driver, 50)
    assert driver.streams[50], "it waits"
    assert not renderer.frames, "nothing is drawn yet"
    drawn()
    assert reader.seen == {of_frame(0)}
    assert picture.frame == 0
    taken = _dlpack.take(capsule)
    assert (taken.shape, taken.dtype) == ((2, 3, 4), "uint8")
    taken.release()
    assert "cuMemcpy2DAsync" not in driver.calls, "nothing is copied"


def test_pictures_come_to_the_cpu_while_the_program_goes_on(
    field: wavefield.Field, driver: FakeDriver, drawn: Callable[[], None]
) -> None:
    pictures = []
    for _ in field.frames(7):
        if field._next:
            pictures.append(field.picture())
            pictures[-1].prefetch()
            drawn()
    host = [picture.to_numpy() for picture in pictures]
    for frame, array in enumerate(host):
        assert (array.shape, set(array.flat)) == ((2, 3, 4), {of_frame(frame)})
        assert array.dtype == "uint8"
    assert driver.calls.count("cuMemcpyDtoHAsync") == 6, "each once"
    made = driver.calls.count("cuMemHostAlloc")
    del host, array
    gc.collect()
    again = field.picture()
    drawn()
    assert set(again.to_numpy().flat) == {of_frame(6)}
    assert driver.calls.count("cuMemHostAlloc") == made, "the memory is used again"
    field.close()
    assert set(pictures[0].to_numpy().flat) == {of_frame(0)}, "also when the field is closed"


def test_a_refused_capture_is_refused_again_in_the_same_call(field: wavefield.Field, driver: FakeDriver) -> None:
    driver.streams[50] = []
    driver.capturing[50] = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
    context = field._context
    assert context is not None
    with context.current():
        for streams in ((Stream(50),), (Stream(50),)):
            with pytest.raises(wavefield.CudaError, match="is being captured"):
                context.refuse_capture(*streams)
        del driver.capturing[50]
        context.refuse_capture(Stream(50))


def test_a_picture_that_the_renderer_refuses_is_none_on_the_cpu_either(
    field: wavefield.Field, renderer: FakeRenderer, drawn: Callable[[], None]
) -> None:
    hand_over(field)
    renderer.refuses = "no memory"
    picture = field.picture()
    picture.prefetch()
    drawn()
    with pytest.raises(wavefield.Refused, match="no memory"):
        picture.to_numpy()


def test_the_kinds_of_one_frame(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver, drawn: Callable[[], None]
) -> None:
    hand_over(field)
    pictures = field.render(*KINDS, cameras=[Camera(1.0, 0.2, 3.0), Camera(2.0, 0.2, 3.0)], size=(7, 5))
    assert [picture.kind for picture in pictures] == list(KINDS)
    drawn()
    (wish,) = asked(renderer)
    assert wish["cameras"] == [[1.0, 0.2, 3.0, 0.0, 0.0, 0.0], [2.0, 0.2, 3.0, 0.0, 0.0, 0.0]]
    assert (wish["width"], wish["height"], wish["after"]) == (7, 5, 0)
    for picture in pictures:
        assert picture.shape == (2, 5, 7, CHANNELS[picture.kind])
        assert picture.dtype == DTYPES[picture.kind]
        assert picture.pointer % 256 == pictures[0].pointer % 256
        reader = Reader(picture, driver, int(picture.stream))
        assert reader.seen == {of_frame(0, picture.kind, 1), of_frame(0, picture.kind, 2)}
        assert picture.frame == 0


def test_the_interface_of_a_picture(
    field: wavefield.Field, driver: FakeDriver, drawn: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over(field)
    index = field.picture("index")
    interface = index.__cuda_array_interface__
    assert (interface["typestr"], interface["shape"], interface["strides"]) == ("<i4", (2, 3, 1), None)
    assert interface["data"] == (index.pointer, False)
    named = interface["stream"]
    assert driver.streams[named], "the stream that it names waits"
    driver.streams[50] = []
    cupy = SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda _device: SimpleNamespace(ptr=50)))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert index.__cuda_array_interface__["stream"] is None, "CuPy would make the CPU wait"
    assert driver.streams[50], "its stream waits instead"
    drawn()
    assert not driver.streams[50]
    assert not driver.streams[named]
    with pytest.raises(TypeError, match=r"cupy\.asarray"):
        np.asarray(index)


def test_memory_is_used_again_only_when_the_consumers_work_is_finished(
    field: wavefield.Field, driver: FakeDriver, drawn: Callable[[], None]
) -> None:
    """The consumer reads on a stream that nobody named, and drops the picture before."""
    driver.streams |= {50: [], 51: []}
    hand_over(field)
    late = threading.Event()
    addresses, readers = set(), []
    for _ in range(_places.MOST_OUT - 1):
        picture = field.picture()
        picture.__dlpack__(stream=50)
        addresses.add(picture.pointer)
        readers.append(Reader(picture, driver, 51, late))
        drawn()
        del picture
    assert len(addresses) == _places.MOST_OUT - 1, "all are read by a kernel that is not there yet"
    late.set()
    driver.run()
    assert all(reader.seen == {of_frame(0)} for reader in readers)
    hand_over(field)
    for _ in range(20):
        picture = field.picture()
        assert picture.pointer in addresses
        picture.__dlpack__(stream=50)
        drawn()


@pytest.mark.usefixtures("quick")
def test_the_cpu_waits_for_the_oldest_if_all_are_busy(
    field: wavefield.Field, driver: FakeDriver, drawn: Callable[[], None]
) -> None:
    driver.streams[51] = []
    hand_over(field)
    late, addresses = threading.Event(), []
    for _ in range(_places.MOST_OUT):
        picture = field.picture()
        addresses.append(picture.pointer)
        Reader(picture, driver, 51, late)
        drawn()
        del picture
    timer = threading.Timer(0.2, late.set)
    timer.start()
    picture = field.picture()
    assert late.is_set(), "it has waited"
    assert picture.pointer == addresses[0]
    timer.join()


@pytest.mark.usefixtures("quick")
def test_what_is_made_of_a_picture_holds_its_memory(
    field: wavefield.Field, driver: FakeDriver, drawn: Callable[[], None]
) -> None:
    hand_over(field)
    color, depth = field.picture("color", "depth")
    address = color.pointer
    taken = _dlpack.take(depth.__dlpack__(stream=1))
    drawn()
    del color, depth
    other = field.picture("color", "depth")[0]
    assert other.pointer != address
    taken.release()
    del other
    addresses = {field.picture("color", "depth")[0].pointer for _ in range(4)}
    assert address in addresses


def test_a_ninth_is_refused(field: wavefield.Field, drawn: Callable[[], None]) -> None:
    hand_over(field)
    held = [field.picture() for _ in range(_places.MOST_OUT)]
    with pytest.raises(wavefield.PicturesInUse, match=r"8 pictures .* drop some, or copy"):
        field.picture()
    assert field.render(size=(9, 9)).shape == (9, 9, 4), "of another size there are more"
    held.pop()
    field.picture()
    drawn()
    assert held[0].frame == 0


@pytest.mark.usefixtures("quick")
def test_places_are_bounded(
    field: wavefield.Field, renderer: FakeRenderer, drawn: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over(field)
    for side in range(1, 30):
        field.render(size=(side, side))
        drawn()
    field.status()
    made = sum(message["type"] == "allocate" for message in renderer.received)
    assert made == 29
    assert len(renderer.released) >= 29 - _places.MOST_POOLS - 1, renderer.released
    monkeypatch.setattr(_places, "MOST_BYTES", 3000)
    held = [field.render(size=(16, 16)) for _ in range(2)]
    with pytest.raises(wavefield.PicturesInUse, match="2 pictures"):
        field.render(size=(16, 16))
    assert field.render(size=(100, 100)).nbytes > 3000, "one may be larger"
    del held


@pytest.mark.usefixtures("quick")
def test_memory_is_not_released_before_its_answer(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver, drawn: Callable[[], None]
) -> None:
    hand_over(field)
    for side in range(1, 20):
        field.render(size=(side, side))
    field.status()
    assert renderer.released == []
    drawn()
    field.render(size=(1, 1))
    field.status()
    assert len(renderer.released) == 19 - _places.MOST_POOLS + 1 or len(renderer.released) == 19 - _places.MOST_POOLS


@pytest.mark.parametrize("where", ["frame", "export", "the next call"])
def test_a_failure_is_said_once(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver, drawn: Callable[[], None], where: str
) -> None:
    driver.streams[50] = []
    hand_over(field)
    renderer.refuses = "no such elevation"
    picture = field.picture()
    picture.__dlpack__(stream=50)
    drawn()
    assert not driver.streams[50], "its stream goes on"
    renderer.refuses = ""
    match = "could not draw a picture: no such elevation"
    if where == "frame":
        with pytest.raises(wavefield.Refused, match=match):
            _ = picture.frame
    elif where == "export":
        field._connection.pump()
        with pytest.raises(wavefield.Refused, match=match):
            picture.__dlpack__(stream=50)
    else:
        field._connection.pump()
        with pytest.raises(wavefield.Refused, match=match):
            field.status()
    picture = field.picture()
    drawn()
    assert picture.frame == 0


def test_an_answer_with_another_number_is_an_error(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver, drawn: Callable[[], None]
) -> None:
    hand_over(field)
    picture = field.picture()
    field.status()
    assert renderer.session is not None
    renderer.session.rendered = 3
    renderer.draw(driver)
    with pytest.raises(wavefield.ProtocolError, match="'drawn' as 4"):
        _ = picture.frame


def test_a_picture_of_exactly_the_last_frame(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver, drawn: Callable[[], None]
) -> None:
    """The stream that takes a picture hands the next frame over only after the picture is drawn."""
    pictures, readers = [], []
    for index in range(12):
        hand_over(field)
        pictures.append(field.picture())
        stream = int(field.stream)
        pictures[-1].__dlpack__(stream=stream)
        readers.append(Reader(pictures[-1], driver, stream))
        if index >= 2:
            drawn()
            pictures.pop(0)
    drawn()
    assert [picture.frame for picture in pictures] == [10, 11]
    assert [reader.seen for reader in readers] == [{of_frame(index) % 256} for index in range(12)]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("how", ["dies", "never draws"])
def test_closing_lets_go_of_streams_that_wait_for_pictures(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver, how: str
) -> None:
    driver.streams[50] = []
    hand_over(field)
    pictures = [field.picture() for _ in range(3)]
    pictures[1].__dlpack__(stream=50)
    session = renderer.session
    assert session is not None
    field.status()
    if how == "dies":
        renderer.hang_up()
        with pytest.raises(wavefield.RendererGone):
            _ = pictures[0].frame
    field.close()
    assert not driver.streams[50]
    assert session.pictures.history == [3], "signalled once, for all"
    with pytest.raises(wavefield.FieldClosed, match="closed before"):
        _ = pictures[0].frame
    with pytest.raises(wavefield.FieldClosed, match="closed before"):
        pictures[1].__dlpack__(stream=50)
    del pictures
    assert not (driver.semaphores or driver.memories)


def test_a_picture_outlives_its_field(
    renderer: FakeRenderer, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.streams[50] = []

    def goodbye(_session: Any) -> None:
        renderer.draw(driver)

    renderer.goodbye = goodbye
    with wavefield.connect(renderer.path) as field:
        hand_over(field)
        picture = field.picture()
        unread = field.picture("depth")
        field.status()
        renderer.draw(driver)
    assert picture.frame == 0
    assert unread.__cuda_array_interface__["stream"] is None
    unread.__dlpack__(stream=50)
    assert Reader(picture, driver, 50).seen == {of_frame(0)}
    assert Reader(unread, driver, 50).seen == {of_frame(0, "depth")}
    with pytest.raises(wavefield.FieldClosed):
        field.picture()
    del picture, unread, field
    gc.collect()
    assert not (driver.mapped or driver.memories or driver.semaphores or driver.events)


def test_a_driver_that_cannot_record_a_context(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver, drawn: Callable[[], None]
) -> None:
    """It is older than CUDA 12.5. Each picture then gets memory of its own."""
    driver.fail["cuCtxRecordEvent"] = RuntimeError("no such function")
    hand_over(field)
    for _ in range(20):
        field.picture()
        drawn()
    assert sum(message["type"] == "allocate" for message in renderer.received) == 20
    end = time.monotonic() + 60
    while len(renderer.released) < 19 and time.monotonic() < end:
        field.status()
    assert len(renderer.released) >= 19


@pytest.mark.usefixtures("quick")
def test_memory_without_an_event_is_not_used_again(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver, drawn: Callable[[], None]
) -> None:
    """As if the context had failed."""
    hand_over(field)
    picture = field.picture()
    drawn()
    driver.fail["cuCtxRecordEvent"] = driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    del picture
    field.picture()
    del driver.fail["cuCtxRecordEvent"]
    assert sum(message["type"] == "allocate" for message in renderer.received) == 2


def test_closing_waits_for_pictures_that_no_stream_waits_for(renderer: FakeRenderer, driver: FakeDriver) -> None:
    with wavefield.connect(renderer.path) as field:
        hand_over(field)
        picture = field.picture()
        field.status()
        timer = threading.Timer(0.2, renderer.draw, [driver])
        timer.start()
    timer.join()
    assert picture.frame == 0


def test_a_copy_waits_for_the_picture(renderer: FakeRenderer, driver: FakeDriver) -> None:
    with wavefield.connect(renderer.path, kind="image", shape=(2, 3)) as field:
        hand_over(field)
        picture = field.picture("depth")
        with field.frame() as frame:
            frame.copy_from(picture)
        for _ in range(2):
            field.status()
            renderer.draw(driver)
        assert (renderer.frames[1] == of_frame(0, "depth")).all()


def test_so_many_calls_wait_for_a_frame(
    field: wavefield.Field, drawn: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_render, "MOST_WAITING", 3)
    monkeypatch.setattr(_picture, "DRAWN_SECONDS", 0.1)
    hand_over(field)
    for _ in range(3):
        field.picture()
    for _ in range(2):
        with pytest.raises(wavefield.WavefieldError, match="frame 0 was not drawn"):
            field.picture()
    drawn()
    field.picture()
    drawn()
    assert field._pictured, "the program has seen what it shows"


@pytest.mark.parametrize("most", [_places.MOST_BYTES, 600])
def test_pictures_in_cycles_make_room(
    field: wavefield.Field, drawn: Callable[[], None], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(_places, "MOST_BYTES", most)
    hand_over(field)
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            cycle: list[Any] = [field.picture()]
            cycle.append(cycle)
            drawn()
    finally:
        gc.enable()


def test_an_interrupted_call_is_said(
    field: wavefield.Field, drawn: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over(field)
    picture = field.picture()
    drawn()

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(field._connection, "post", interrupted)
        with pytest.raises(KeyboardInterrupt):
            field.picture()
    assert picture.frame == 0
    with pytest.raises(wavefield.WavefieldError, match="a call for a picture was interrupted"):
        field.picture()


@pytest.mark.usefixtures("quick")
def test_the_size_before_the_first_draw(field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver) -> None:
    def status(session: Any, message: dict[str, Any], files: list[int]) -> None:
        renderer.screen = [3, 2] if session.drawn else [0, 0]
        session.on_status(message, files)

    renderer.answers["status"] = status
    hand_over(field)
    assert field.status().picture == (0, 0)
    assert field.picture().shape == (2, 3, 4)
    assert [message["type"] for message in renderer.received].count("snapshot") == 1


def test_what_makes_no_sense(field: wavefield.Field, drawn: Callable[[], None]) -> None:
    with pytest.raises(wavefield.WavefieldError, match="hand a frame over first"):
        field.picture()
    hand_over(field)
    eye = Camera(0.0, 0.0, 3.0)
    for arguments, options in (
        (("colour",), {}),
        (("color", "color"), {}),
        ((), {"size": (0, 5)}),
        ((), {"size": (2.5, 5)}),
        ((), {"camera": eye, "cameras": [eye]}),
        ((), {"cameras": []}),
        ((), {"cameras": np.zeros((3, 5))}),
        ((), {"cameras": np.full((2, 6), np.nan)}),
        ((), {"cameras": np.zeros((_render.MOST_VIEWS + 1, 6))}),
    ):
        with pytest.raises(ValueError):  # noqa: PT011
            field.render(*arguments, **options)
    with pytest.raises(wavefield.ProtocolError, match="at most 131072"):
        field.render(cameras=np.full((_render.MOST_VIEWS, 6), -1e250 / 3), size=(1, 1))
    picture = field.render(cameras=[eye], size=(1, 1))
    drawn()
    assert picture.frame == 0, "what was not sent does not count"


def test_a_thousand_cameras_fit(field: wavefield.Field, renderer: FakeRenderer, drawn: Callable[[], None]) -> None:
    hand_over(field)
    low, high = [-2 * math.pi, -1.5, 0.4, -3, -3, -3], [2 * math.pi, 1.5, 20, 3, 3, 3]
    cameras = np.random.default_rng(5).uniform(low, high, (_render.MOST_VIEWS, 6))
    picture = field.render(cameras=cameras, size=(1, 1))
    drawn()
    assert picture.shape == (1024, 1, 1, 4)
    (many,) = asked(renderer)
    np.testing.assert_allclose(many["cameras"], cameras, atol=5.1e-10)


# In host memory.


def test_a_picture_in_host_memory(host: wavefield.Field, renderer: FakeRenderer) -> None:
    hand_over(host)
    color, depth = host.picture("color", "depth")
    assert np.asarray(color).tolist() == np.full((2, 3, 4), of_frame(0)).tolist()
    assert (depth.as_numpy() == of_frame(0, "depth")).all()
    assert np.from_dlpack(depth).dtype == np.float32
    assert color.__dlpack_device__() == (1, 0)
    assert not hasattr(color, "__cuda_array_interface__")
    assert (color.frame, depth.frame) == (0, 0)
    kept = [np.asarray(color), np.from_dlpack(host.picture("depth", "color")[0])]
    del color, depth
    for _ in range(20):
        hand_over(host)
        host.picture("color", "depth")
    assert [set(array.ravel().tolist()) for array in kept] == [{1}, {2}], "it holds what it was made of"
    made = sum(message["type"] == "allocate" for message in renderer.received)
    assert made == 3
    renderer.refuses = "too dark"
    with pytest.raises(wavefield.Refused, match="too dark"):
        host.picture()
    with pytest.raises(ValueError, match="no streams"):
        _ = host_picture_stream(host, renderer)


def host_picture_stream(host: wavefield.Field, renderer: FakeRenderer) -> Any:
    renderer.refuses = ""
    return host.picture().stream


# From the real renderer.

real_only = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
ROWS, COLS = 40, 60
SMALL = ["--size", "160x90", "--pace", "0"]


@pytest.fixture
def real() -> Iterator[wavefield.Field]:
    with wavefield.launch(memory="host", kind="surface", shape=(ROWS, COLS), dtype="float32", arguments=SMALL) as field:
        yield field


def slope_of(frame: int) -> float:
    return 0.2 + 0.1 * frame


def plane(frame: int) -> np.ndarray:
    """Return heights that rise along x, differently in each frame."""
    rise = 0.3 + slope_of(frame) * (np.arange(COLS) / (COLS - 1) - 0.5)
    return np.tile(rise.astype(np.float32), (ROWS, 1))


@real_only
def test_a_real_picture_is_the_snapshot(real: wavefield.Field) -> None:
    for frame in range(3):
        real.show(plane(frame))
        picture = real.picture()
        assert picture.frame == frame
        np.testing.assert_array_equal(picture.as_numpy(), real.snapshot())
    real.camera = Camera(0.9, 0.7, 2.5, (0.1, 0.0, 0.0))
    seen = real.render("color", camera=Camera(0.9, 0.7, 2.5, (0.1, 0.0, 0.0)))
    real.show(plane(2))
    np.testing.assert_array_equal(seen.as_numpy(), real.snapshot())


@real_only
def test_real_depth_normal_and_index_are_those_of_the_plane(real: wavefield.Field) -> None:
    width, height = 84, 60
    cameras = [Camera(0.4 + 0.3 * view, 0.5, 3.0, (0.1, -0.1, 0.0)) for view in range(3)]
    real.parameters["limits"] = (0, 1)  # otherwise those of the first frame
    for frame in range(3):
        real.show(plane(frame))
        depth, normal, index = real.render("depth", "normal", "index", cameras=cameras, size=(width, height))
        assert depth.frame == frame
        for view, camera in enumerate(cameras):
            far, up, col, row = meets(camera, frame, width, height)
            inside = (col > 0.02) & (col < COLS - 1.02) & (row > 0.02) & (row < ROWS - 1.02)
            outside = (col < -0.02) | (col > COLS - 0.98) | (row < -0.02) | (row > ROWS - 0.98)
            assert min(inside.sum(), outside.sum()) > 700
            d, n, i = (picture.as_numpy()[view] for picture in (depth, normal, index))
            np.testing.assert_allclose(d[..., 0][inside], far[inside], atol=1e-4)
            np.testing.assert_allclose(n[inside], np.tile([*up, 1], (inside.sum(), 1)), atol=1e-3)
            found_row, found_col = np.divmod(i[..., 0][inside], COLS)
            assert np.abs(found_col - col[inside]).max() < 0.51
            assert np.abs(found_row - row[inside]).max() < 0.51
            assert (d[outside] == np.inf).all() and (n[outside] == 0).all() and (i[outside] == -1).all()


def meets(camera: Camera, frame: int, width: int, height: int) -> tuple[np.ndarray, ...]:
    """Return what each pixel's ray meets, in 64 bits: the depth, the normal, the column and the row of the array."""
    target = np.array(camera.target)
    sine, cosine = math.sin(camera.elevation), math.cos(camera.elevation)
    away = np.array([math.sin(camera.azimuth) * cosine, sine, math.cos(camera.azimuth) * cosine])
    eye, axis = target + camera.distance * away, -away
    right = np.cross(axis, [0, 1, 0])
    right /= np.linalg.norm(right)
    above = np.cross(right, axis)
    # At depth d the picture shows a height of 0.7528 d, or if it is narrow a width of 1.0163 d (docs/protocol.md).
    scale = 0.75282 if width >= 1.35 * height else 0.75282 * 1.35 * height / width
    up = scale * (0.5 - (np.arange(height) + 0.5) / height)[:, None, None]
    across = scale * width / height * ((np.arange(width) + 0.5) / width - 0.5)[None, :, None]
    ray = axis + up * above + across * right
    cell = 2 / (COLS - 1)
    b = 0.6 * slope_of(frame) / 2
    a = 0.6 * (0.3 - 0.5)  # y = a + b x
    far = (a - eye[1] + b * eye[0]) / (ray[..., 1] - b * ray[..., 0])
    hit = eye + far[..., None] * ray
    col, row = (hit[..., 0] + 1) / cell, hit[..., 2] / cell + (ROWS - 1) / 2
    missed = far <= 0
    return far, np.array([-b, 1, 0]) / math.hypot(b, 1), np.where(missed, -99, col), np.where(missed, -99, row)


@real_only
def test_the_example_learns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Needs PyTorch. gpu_check.py runs the program itself."""
    torch = pytest.importorskip("torch", reason="skipped: no PyTorch; gpu_check.py runs the example")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import torch_sees

    @contextlib.contextmanager
    def show(_: str | None) -> Iterator[tuple[wavefield.Field, SimpleNamespace]]:
        with wavefield.launch(grid=(32, 32), memory="host", arguments=SMALL) as field:
            yield field, SimpleNamespace(frames=200)

    monkeypatch.setattr(torch_sees, "show", show)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch_sees.main()
    finally:
        torch.set_num_threads(threads)
    degrees = float(capsys.readouterr().out.splitlines()[-1].split()[2])
    assert degrees < 30, "by chance it is 90"


@real_only
def test_the_real_renderers_words(real: wavefield.Field) -> None:
    real.show(plane(0))
    with pytest.raises(wavefield.Refused, match="elevation"):
        real.render(camera=Camera(0.0, 2.0, 3.0))
    held = [real.picture() for _ in range(8)]
    with pytest.raises(wavefield.PicturesInUse):
        real.picture()
    del held
    for side in range(1, 70):  # more than the renderer gives at once
        real.render(size=(side, side))
