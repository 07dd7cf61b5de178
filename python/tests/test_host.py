"""Frames in host memory, against the fake renderer."""

from __future__ import annotations

import contextlib
import gc
import math
import sys
import time
from typing import Any

import numpy as np
import pytest

import wavefield
from fake_driver import FakeDriver
from fake_renderer import FakeRenderer, Session


def test_what_a_field_says_of_itself(host: wavefield.Field, renderer: FakeRenderer) -> None:
    assert host.grid == (5, 3)
    assert host.shape == (3, 5, 4)
    assert (host.ring, host.memory, host.device) == (3, "host", None)
    assert (host.device_name, host.server, host.frame_seconds) == ("a fake", "fake 1.0", 0.5)
    assert host.socket == renderer.path
    hello = renderer.received[0]
    assert hello["protocol"] == 2
    assert hello["memory"] == "host"
    assert "ring" not in hello
    # The renderer adds the process id, which it gets from the socket.
    assert hello["client"].endswith(" (Python)")
    assert "a mesh of shape (3, 5, 4), float32 on a fake" in repr(host)


def test_every_frame_arrives_as_it_was_written(host: wavefield.Field, renderer: FakeRenderer) -> None:
    for frame in host.frames(10):
        v = np.asarray(frame)
        assert v.shape == (3, 5, 4)
        assert v.dtype == np.float32
        v[...] = frame.index
        v[2, 4, 3] = frame.time
    host.status()  # the answer comes after everything before it is handled
    assert len(renderer.frames) == 10
    for index, shown in enumerate(renderer.frames):
        assert shown[0, 0, 0] == index
        assert shown[2, 4, 3] == index * 0.5


def test_slots_may_be_larger_than_a_frame(renderer: FakeRenderer) -> None:
    renderer.gap = 48
    with wavefield.connect(renderer.path, memory="host") as field:
        for frame in field.frames(4):
            np.asarray(frame)[...] = np.arange(60, dtype=np.float32).reshape(3, 5, 4)
        field.status()
    np.testing.assert_array_equal(renderer.frames[3].ravel(), np.arange(60))


def test_the_ring_that_was_asked_for(renderer: FakeRenderer) -> None:
    with wavefield.connect(renderer.path, memory="host", ring=7) as field:
        assert field.ring == 7


def test_a_slot_is_not_written_before_it_is_free(renderer: FakeRenderer) -> None:
    renderer.frees = False
    field = wavefield.connect(renderer.path, memory="host")
    frames = field.frames()
    for _ in range(3):
        next(frames)
    # The fourth waits for a message, which must end if the renderer is gone.
    renderer.answers["ready"] = lambda session, *_: renderer.hang_up()
    with pytest.raises(wavefield.RendererGone, match="restart the renderer"):
        next(frames)
    field.close()


def test_a_frame_is_not_usable_after_it_was_handed_over(host: wavefield.Field) -> None:
    frames = host.frames()
    first = next(frames)
    array = np.asarray(first)
    assert np.asarray(first) is array
    next(frames)
    assert first.handed_over
    for use in (lambda: np.asarray(first), first.__dlpack__, first.hand_over, lambda: first.copy_from(array)):
        with pytest.raises(wavefield.FrameHandedOver, match="frame 0 was handed over"):
            use()
    with pytest.raises(ValueError, match="read-only"):
        array[...] = 1
    assert array.sum() == 0, "it can still be read"


def test_numpy_takes_a_frame_by_dlpack(host: wavefield.Field) -> None:
    with host.frame() as frame:
        assert frame.__dlpack_device__() == (1, 0)
        assert np.from_dlpack(frame).ctypes.data == np.asarray(frame).ctypes.data
        assert not hasattr(frame, "__cuda_array_interface__")
        with pytest.raises(BufferError):
            frame.__dlpack__(copy=True)
        with pytest.raises(BufferError):
            frame.__dlpack__(stream=1)
        with pytest.raises(BufferError):
            frame.__dlpack__(dl_device=(2, 0))
        np.testing.assert_array_equal(np.asarray(frame, dtype=np.float64), np.zeros((3, 5, 4)))
        copy = np.array(frame)
        copy[...] = 3
        assert np.asarray(frame).sum() == 0


def test_an_array_outlives_frame_and_field(renderer: FakeRenderer) -> None:
    with wavefield.connect(renderer.path, memory="host") as field:
        for frame in field.frames(1):
            array = np.asarray(frame)
            view = np.from_dlpack(frame)
            array[...] = 5
    del field, frame
    renderer.close()
    gc.collect()
    assert array.sum() == 5 * 60
    assert view.sum() == 5 * 60


def abandoned_by_zip(field: wavefield.Field) -> None:
    for frame, _ in zip(field, range(2), strict=False):
        np.asarray(frame)[...] = 1


def abandoned_by_an_exception(field: wavefield.Field) -> None:
    with contextlib.suppress(ZeroDivisionError):
        for frame in field:
            np.asarray(frame)[:2] = 1
            if frame.index == 2:
                raise ZeroDivisionError
            np.asarray(frame)[2:] = 1


def abandoned_by_a_break(field: wavefield.Field) -> None:
    for frame in field:
        if frame.index == 2:
            break
        np.asarray(frame)[...] = 1


def abandoned_by_an_iterator_that_is_held(field: wavefield.Field) -> None:
    frames = field.frames()
    for _ in range(2):
        np.asarray(next(frames))[...] = 1
    next(frames)
    field._held_by_the_test = frames  # type: ignore[attr-defined]


def then_another_loop(field: wavefield.Field) -> None:
    for frame in field.frames(1):
        assert frame.index == 2, "it has the number of the one that was given up"
        np.asarray(frame)[...] = 7


def then_one_frame(field: wavefield.Field) -> None:
    with field.frame() as frame:
        np.asarray(frame)[...] = 7


def then_show_with_a_copy(field: wavefield.Field) -> None:
    assert field.show(np.full((3, 5, 4), 7, np.float32)) == wavefield.Shown.COPIED


def then_show_without_a_copy(field: wavefield.Field) -> None:
    array = np.asarray(field.empty())
    array[...] = 7
    assert field.show(array) == wavefield.Shown.WITHOUT_COPY
    field.status()  # until then the renderer may read the array


@pytest.mark.parametrize(
    "abandon",
    [abandoned_by_zip, abandoned_by_an_exception, abandoned_by_a_break, abandoned_by_an_iterator_that_is_held],
)
@pytest.mark.parametrize(
    ("then", "shown"),
    [
        (then_another_loop, [1, 1, 7]),
        (then_one_frame, [1, 1, 7]),
        (then_show_with_a_copy, [1, 1, 7]),
        (then_show_without_a_copy, [1, 1, 7]),
        (wavefield.Field.snapshot, [1, 1]),
        (wavefield.Field.close, [1, 1]),
    ],
)
def test_a_frame_that_a_loop_leaves_behind_is_not_shown(
    host: wavefield.Field, renderer: FakeRenderer, abandon: Any, then: Any, shown: list[int]
) -> None:
    abandon(host)
    then(host)
    host.close()
    assert renderer.farewell.wait(5)
    assert [set(frame.ravel()) for frame in renderer.frames] == [{value} for value in shown]


def test_a_frame_that_is_left_behind_can_still_be_handed_over(host: wavefield.Field, renderer: FakeRenderer) -> None:
    for frame in host:
        np.asarray(frame)[...] = frame.index
        if frame.index == 2:
            frame.hand_over()
            break
    frame = next(iter(host))
    host.snapshot()  # does not give up the open frame
    np.asarray(frame)[...] = 3
    frame.hand_over()
    host.status()
    assert [shown[2, 4, 3] for shown in renderer.frames] == [0, 1, 2, 3]


def test_a_frame_that_was_given_up_says_so(renderer: FakeRenderer) -> None:
    with wavefield.connect(renderer.path, memory="host") as field:
        with pytest.raises(ZeroDivisionError), field.frame() as broken:
            raise ZeroDivisionError
        assert broken.handed_over
        with field.frame() as again:
            assert again.index == broken.index == 0
        last = next(iter(field))
    for given_up in (broken, last):
        with pytest.raises(wavefield.FrameHandedOver, match="was given up"):
            np.asarray(given_up)


def test_copy_from_takes_what_numpy_takes_and_checks_it(host: wavefield.Field, renderer: FakeRenderer) -> None:
    good = np.arange(60, dtype=np.float32).reshape(3, 5, 4)
    with host.frame() as frame:
        frame.copy_from(good)
        for bad in (good.astype(np.float64), good[:2], good.reshape(5, 3, 4), good[..., ::-1], np.swapaxes(good, 0, 1)):
            with pytest.raises(wavefield.ArrayMismatch):
                frame.copy_from(bad)
    host.status()
    np.testing.assert_array_equal(renderer.frames[0], good)


def test_show_says_whether_it_copied(host: wavefield.Field, renderer: FakeRenderer) -> None:
    plain = np.full((3, 5, 4), 2, np.float32)
    assert host.show(plain) == wavefield.Shown.COPIED
    first, second = np.asarray(host.empty()), np.asarray(host.empty())
    for index in range(6):
        array = (first, second)[index % 2]
        array[...] = 10 + index
        assert host.show(array) == wavefield.Shown.WITHOUT_COPY
    host.status()
    assert [shown[0, 0, 0] for shown in renderer.frames] == [2, 10, 11, 12, 13, 14, 15]
    with pytest.raises(wavefield.StillShown, match="two arrays in turn"):
        host.show(second)
    assert host.show(second, copy=True) == wavefield.Shown.COPIED
    with pytest.raises(ValueError, match=r"field\.empty"):
        host.show(plain, copy=False)
    with pytest.raises(wavefield.ArrayMismatch):
        host.show(plain[:2])


@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "uint8", "bool", ">f4", "object"])
def test_another_dtype_is_named_with_the_cure(host: wavefield.Field, dtype: str, copy: bool | None) -> None:
    lent = np.asarray(host.empty())
    for array in (np.ones((3, 5, 4), dtype), *([lent.view(dtype)] if dtype in ("int32", ">f4") else [])):
        with pytest.raises(wavefield.ArrayMismatch, match=rf"{dtype}.*is .*float32.*astype\(.float32.\).*\.float\(\)"):
            host.show(array, copy=copy)
        assert host.show(array.astype("float32")) == wavefield.Shown.COPIED


def test_another_shape_of_the_right_dtype_is_not_to_be_converted(host: wavefield.Field) -> None:
    with pytest.raises(
        wavefield.ArrayMismatch, match=r"the array is \(2, 5, 4\), float32; the field is \(3, 5, 4\), float32$"
    ):
        host.show(np.ones((2, 5, 4), np.float32))


def test_memory_is_released_when_the_last_array_is_gone(host: wavefield.Field, renderer: FakeRenderer) -> None:
    array = np.asarray(host.empty())
    view = array[1:]
    del array
    gc.collect()
    host.status()
    assert renderer.released == []
    del view
    gc.collect()
    host.status()
    assert renderer.released == [1]


def test_an_allocation_that_is_refused(host: wavefield.Field, renderer: FakeRenderer) -> None:
    renderer.answers["allocate"] = lambda session, *_: session.send(
        {"type": "failed", "request": "allocate", "reason": "64 at a time; release one"}
    )
    with pytest.raises(wavefield.Refused, match="could not allocate: 64 at a time; release one"):
        host.empty()
    assert host.status().frames_drawn == 10


def test_snapshot(host: wavefield.Field) -> None:
    picture = host.snapshot()
    assert picture.shape == (2, 3, 4)
    assert picture.dtype == np.uint8
    assert picture[1, 0].tolist() == [12, 13, 14, 15]
    picture[...] = 0  # the caller owns it


def test_a_snapshot_waits_for_the_last_frame(host: wavefield.Field, renderer: FakeRenderer) -> None:
    host.snapshot()
    for _ in host.frames(3):
        pass
    host.snapshot()
    host.snapshot(after=1)
    asked = [message for message in renderer.received if message["type"] == "snapshot"]
    assert [message.get("after") for message in asked] == [None, 2, 1]
    for never in (3, -1):
        with pytest.raises(ValueError, match="was not handed over yet: 3 frames were"):
            host.snapshot(after=never)


def test_a_picture_of_an_earlier_frame_is_refused(host: wavefield.Field, renderer: FakeRenderer) -> None:
    def early(session: Session, message: dict[str, object], files: list[int]) -> None:
        session.drawn -= 1
        session.on_snapshot({}, files)
        session.drawn += 1

    for _ in host.frames(3):
        pass
    renderer.answers["snapshot"] = early
    with pytest.raises(wavefield.ProtocolError, match="'frame' as 1"):
        host.snapshot()


def test_a_picture_that_does_not_come(
    host: wavefield.Field, renderer: FakeRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wavefield._pictures.picture.DRAWN_SECONDS", 0.05)
    renderer.answers["snapshot"] = lambda *_: None
    for _ in host.frames(1):
        pass
    with pytest.raises(wavefield.WavefieldError, match=r"frame 0 was not drawn within 0\.05 s: is the window hidden"):
        host.snapshot()
    assert host.status().frame_shown == 0, "the field is good still"


def test_what_the_user_changes_meanwhile_is_no_answer(host: wavefield.Field, renderer: FakeRenderer) -> None:
    def both(session: Session, message: dict[str, Any], files: list[int]) -> None:
        session.send({"type": "parameters", "parameters": {**renderer.parameters, "speed": 9.0}, "request_id": None})
        time.sleep(0.05)
        session.on_set(message, files)

    renderer.answers["set"] = both
    host.parameters["speed"] = 2.0
    assert host.parameters["speed"] == 2.0


def test_the_camera(host: wavefield.Field, renderer: FakeRenderer) -> None:
    assert host.camera == wavefield.Camera(0.5, 0.5, 3.0, (0.0, -0.2, 0.0))
    host.camera = wavefield.Camera(np.float32(0.25), 1, 2.5)
    assert renderer.camera == {"azimuth": 0.25, "elevation": 1.0, "distance": 2.5, "target": [0.0, 0.0, 0.0]}
    assert host.camera == wavefield.Camera(0.25, 1.0, 2.5)
    for bad in (wavefield.Camera(math.nan, 0, 1), wavefield.Camera(0, 0, 1, (0, 0))):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="three finite numbers"):
            host.camera = bad


def test_limits_and_size(host: wavefield.Field, renderer: FakeRenderer) -> None:
    host.parameters.update(limits=np.array([-2, 5.5]), size=4)
    assert renderer.received[-1] == {"type": "set", "parameters": {"limits": [-2.0, 5.5], "size": 4.0}}
    assert host.parameters["limits"] == (-2.0, 5.5)
    for bad in (3, (1,), (1, 2, 3), "ab", ("a", "b")):
        with pytest.raises(TypeError, match="limits must be"):
            host.parameters["limits"] = bad
    with pytest.raises(ValueError, match="finite"):
        host.parameters["limits"] = (0, math.inf)


ARRAYS = [
    ("image", (4, 6), "float32"),
    ("image", (4, 6), "uint8"),
    ("image", (4, 6, 3), "uint8"),
    ("image", (4, 6, 4), "float16"),
    ("surface", (4, 6), "float16"),
    ("points", (7, 3), "float32"),
    ("points", (7, 4), "float32"),
    ("mesh", (2, 3, 4), "float32"),
]


@pytest.mark.parametrize(("kind", "shape", "dtype"), ARRAYS)
def test_arrays_of_each_kind_arrive(renderer: FakeRenderer, kind: Any, shape: tuple[int, ...], dtype: str) -> None:
    random = np.random.default_rng(5)
    with wavefield.connect(renderer.path, memory="host", kind=kind, shape=shape, dtype=dtype) as field:
        assert (field.kind, field.shape, field.dtype) == (kind, shape, np.dtype(dtype))
        sent = [(200 * random.random(shape)).astype(dtype) for _ in range(4)]
        with field.frame() as frame:
            v = np.asarray(frame)
            assert (v.shape, v.dtype, frame.nbytes) == (shape, np.dtype(dtype), sent[0].nbytes)
            v[...] = sent[0]
            np.testing.assert_array_equal(np.from_dlpack(frame), sent[0])
        mine = np.asarray(field.empty())
        mine[...] = sent[1]
        assert field.show(mine) == field.shown == wavefield.Shown.WITHOUT_COPY
        assert field.show(sent[2]) == field.shown == wavefield.Shown.COPIED
        with field.frame() as frame:
            frame.copy_from(sent[3])
        field.status()
    for shown, was in zip(renderer.frames, sent, strict=True):
        assert shown.dtype == was.dtype
        np.testing.assert_array_equal(shown, was)


def test_why_it_was_copied(host: wavefield.Field) -> None:
    plain = np.zeros(host.shape, np.float32)
    for array, words in ((plain, "not in the renderer's memory"), (np.asarray(host.empty()), "copy=True asks for it")):
        assert words in host.show(array, copy=array is not plain or None).reason
    assert wavefield.Shown.WITHOUT_COPY.reason == ""
    with pytest.raises(ValueError, match=r"would be copied: .* np.asarray\(field.empty\(\)\)"):
        host.show(plain, copy=False)


def test_an_image_with_one_channel_is_one_without(renderer: FakeRenderer) -> None:
    with wavefield.connect(renderer.path, memory="host", shape=(4, 6, 1)) as field:
        assert (field.kind, field.shape) == ("image", (4, 6))
        image = np.random.default_rng(1).random((4, 6, 1), np.float32)
        field.show(image)
        field.show(image[..., 0])
        field.status()
    np.testing.assert_array_equal(renderer.frames[0], image[..., 0])
    np.testing.assert_array_equal(renderer.frames[1], image[..., 0])


def test_status(host: wavefield.Field) -> None:
    status = host.status()
    assert (status.frame_shown, status.shown_at) == (None, None)
    assert (status.producer, status.seconds, status.late_us) == ("client, fake", 1.5, 3)
    assert status.gaps_us["p50"] == 1
    for _ in host.frames(1):
        pass
    assert host.status().shown_at == 2.5


def test_parameters_both_ways(host: wavefield.Field, renderer: FakeRenderer) -> None:
    parameters = host.parameters
    own = {"speed": 1.0, "colormap": "viridis", "paused": False, "limits": (0.0, 1.0), "size": 3.0}
    assert dict(parameters) == own
    parameters["speed"] = 2.0
    parameters.update(colormap="magma")
    assert (parameters["speed"], parameters["colormap"]) == (2.0, "magma")
    assert renderer.received[-1] == {"type": "set", "parameters": {"colormap": "magma"}}
    with pytest.raises(KeyError, match="colour"):
        parameters["colour"] = "red"
    renderer.session.send({"type": "parameters", "parameters": {"speed": 4.0, "paused": False}})  # type: ignore[union-attr]
    host.status()
    assert dict(parameters) == {"speed": 4.0, "paused": False}


def test_a_parameter_of_another_kind_does_not_reach_the_renderer(host: wavefield.Field, renderer: FakeRenderer) -> None:
    parameters = host.parameters
    for name, value, error in [
        ("speed", "fast", "speed must be a number, not 'fast'"),
        ("speed", True, "number"),
        ("speed", float("nan"), "finite"),
        ("paused", 1, "True or False"),
        ("colormap", 3, "a name"),
    ]:
        with pytest.raises((TypeError, ValueError), match=error):
            parameters[name] = value
    parameters.update(speed=np.float32(0.5), paused=np.True_)
    sent = [message for message in renderer.received if message["type"] == "set"]
    assert sent == [{"type": "set", "parameters": {"speed": 0.5, "paused": True}}]


def test_time_follows_the_speed_without_a_step(host: wavefield.Field) -> None:
    times = []
    for frame in host.frames(7):
        times.append(frame.time)
        if frame.index == 1:
            host.parameters["speed"] = 2.0
        if frame.index == 3:
            host.parameters["paused"] = True
        if frame.index == 4:
            host.parameters.update(paused=False, speed=-1.0)
    assert times == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0, 2.5]


def test_streams_are_not_for_host_memory(host: wavefield.Field, renderer: FakeRenderer) -> None:
    with pytest.raises(ValueError, match="no streams"):
        host.stream = 1
    with pytest.raises(ValueError, match="no streams"):
        _ = host.stream
    with host.frame() as frame, pytest.raises(ValueError, match="no streams"):
        _ = frame.stream


@pytest.mark.parametrize("options", [{"memory": "host", "stream": 1}, {"memory": "cuda", "stream": object()}])
def test_a_stream_that_cannot_be_disturbs_nobody(
    renderer: FakeRenderer, driver: FakeDriver, options: Any, recwarn: pytest.WarningsRecorder
) -> None:
    with pytest.raises((ValueError, TypeError), match="stream"):
        wavefield.connect(renderer.path, **options)
    gc.collect()
    assert not recwarn.list, "no `Exception ignored in Field.__del__`"
    assert renderer.received == []


def test_a_frame_is_written_by_its_index(host: wavefield.Field, renderer: FakeRenderer) -> None:
    plain = np.random.default_rng(3).random(host.shape, np.float32)
    with host.frame() as frame:
        frame[:] = plain
    with host.frame() as frame:
        frame[...] = 2
        frame[0, :, 1] = plain[0, :, 1]
    with pytest.raises(wavefield.FrameHandedOver):
        frame[:] = plain
    host.status()
    np.testing.assert_array_equal(renderer.frames[0], plain)
    expected = np.full(host.shape, 2, np.float32)
    expected[0, :, 1] = plain[0, :, 1]
    np.testing.assert_array_equal(renderer.frames[1], expected)


def test_a_frame_in_cuda_memory_is_written_whole(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver
) -> None:
    plain = np.random.default_rng(3).random(field.shape, np.float32)
    with field.frame() as frame:
        frame[:] = plain
        with pytest.raises(TypeError, match="as_torch"):
            frame[0] = 1
    renderer.draw(driver)
    np.testing.assert_array_equal(renderer.frames[0], plain)


def test_torch_takes_a_frame_in_host_memory(host: wavefield.Field, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", np)
    with host.frame() as frame:
        taken: Any = frame.as_torch()
        assert np.shares_memory(taken, np.asarray(frame))
