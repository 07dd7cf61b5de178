"""`wavefield.show` against the fake renderer: what it starts, sends and keeps."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wavefield
from fake_driver import FakeDriver
from fake_renderer import USUAL_CAMERA, FakeRenderer, Session
from started import Started
from test_arrays import GPU, Dlpack
from wavefield import _say, _show
from wavefield._look import arguments as _arguments, prepare as _prepare
from wavefield.errors import CudaMissing

TESTS = Path(__file__).parent


IMAGE = np.random.default_rng(11).random((4, 6), np.float32)


@pytest.mark.usefixtures("without_cuda")
def test_one_line(
    started: list[Started],
    renderer: FakeRenderer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_show, "NVIDIA", ())
    field = wavefield.show(IMAGE)
    assert (field.kind, field.shape, field.memory) == ("image", (4, 6), "host")
    assert wavefield.show(IMAGE + 1)._field is field._field, "the next frame of the same field"
    field.status()
    assert [renderer.arguments for renderer in started] == [["--grid", "256x256", "--headless"]]
    np.testing.assert_array_equal(renderer.frames[0], IMAGE)
    np.testing.assert_array_equal(renderer.frames[1], IMAGE + 1)
    said = capsys.readouterr().err
    assert "CUDA" not in said, "there is no GPU that would be faster"
    assert said.count("there is no display") == 1, said


def test_a_computer_with_a_gpu_is_told_that_it_has_no_cuda(
    started: list[Started],
    renderer: FakeRenderer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(_show, "NVIDIA", (tmp_path,))
    wavefield.show(IMAGE)
    assert capsys.readouterr().err.count("no CUDA driver") == 1


SAVE = 'field.save("picture.png")'


def test_only_a_program_that_saves_nothing_is_told_to_save(
    started: list[Started], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    wavefield.show(IMAGE, memory="host")
    assert SAVE not in capsys.readouterr().err, "it may save later"
    _show._before_the_end()
    assert capsys.readouterr().err.count(SAVE) == 1
    _say.said.discard(next(words for words in _say.said if SAVE in words))
    wavefield.show(IMAGE, memory="host").save(tmp_path / "picture.png")
    wavefield.show(IMAGE[:3], memory="host")
    _show._before_the_end()
    assert SAVE not in capsys.readouterr().err


def test_an_interactive_session_is_told_at_once(
    started: list[Started], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    wavefield.show(IMAGE, memory="host")
    wavefield.show(IMAGE, memory="host")
    _show._before_the_end()
    assert capsys.readouterr().err.count(SAVE) == 1


def limits_set(renderer: FakeRenderer) -> list[Any]:
    sets = [message["parameters"] for message in renderer.received if message["type"] == "set"]
    return [values.get("limits") for values in sets if values.keys() - {"fit"}]


def test_limits_are_the_first_array_s_and_stay(started: list[Started], renderer: FakeRenderer) -> None:
    image = IMAGE.copy()
    image[0, 0], image[1, 1], image[2, 2] = np.nan, 7, -2
    field = wavefield.show(image, memory="host")
    wavefield.show(10 * image, memory="host")
    assert limits_set(renderer) == [[-2.0, 7.0]]
    wavefield.show(image, memory="host", limits=(0, 1), colormap="magma")
    assert renderer.parameters["limits"] == [0.0, 1.0]
    assert renderer.parameters["colormap"] == "magma"
    other = wavefield.show(np.full((3, 6), 4.0, np.float32), memory="host")
    assert other is not field
    assert field.open, "its renderer goes on"
    with pytest.raises(wavefield.FieldClosed):
        field.status()
    assert renderer.parameters["limits"] == [3.5, 4.5], "a constant is in the middle"
    assert len(started) == 1, "the renderer stays"
    assert started[0].ended == 0


@pytest.mark.parametrize(
    ("array", "kind", "limits"),
    [
        (np.zeros((4, 6, 3), np.uint8), None, []),
        (np.ones((4, 6, 4), np.float32), None, []),
        (np.zeros((4, 6, 4), np.float32), "mesh", []),
        (np.arange(24, dtype=np.float32).reshape(4, 6), "surface", [[0.0, 23.0]]),
        (np.arange(24, dtype=np.uint8).reshape(4, 6), None, [[0.0, 23.0]]),
        (np.arange(12, dtype=np.float32).reshape(4, 3), None, [[1.0, 10.0]]),
        (np.arange(12, dtype=np.float32).reshape(3, 4), None, [[3.0, 11.0]]),
        pytest.param(
            np.full((4, 6), np.nan, np.float32),
            None,
            [],
            marks=pytest.mark.filterwarnings("ignore:The array is not seen"),
        ),
        ([[0.0, 1.0], [2.0, 3.0]], None, [[0.0, 3.0]]),
    ],
)
def test_what_the_limits_are_taken_of(
    started: list[Started], renderer: FakeRenderer, array: Any, kind: Any, limits: list[Any]
) -> None:
    wavefield.show(array, kind=kind, memory="host").status()
    assert limits_set(renderer) == limits
    np.testing.assert_array_equal(renderer.frames[0], np.asarray(array, renderer.frames[0].dtype))


CONVERTED = [
    (IMAGE.astype(np.float64), "float32", "it is float64 and was converted"),
    (IMAGE.astype(">f4"), "float32", "it is >f4 and was converted"),
    (IMAGE.astype(">f2"), "float16", "it is >f2 and was converted"),
    (np.arange(24, dtype=">i4").reshape(4, 6), "float32", "it is >i4 and was converted"),
    (np.arange(15, dtype=">f4").reshape(5, 3), "float32", "it is >f4 and was converted"),
    (np.arange(24).reshape(4, 6), "float32", "it is int64"),
    (IMAGE > 0.5, "uint8", "it is bool"),
    (np.asfortranarray(IMAGE), "float32", "not contiguous and was copied; create it contiguous"),
    (IMAGE[::-1, ::2], "float32", "not contiguous and was copied; create it contiguous"),
    (np.zeros((5, 3)), "float32", "it is float64"),
]


@pytest.mark.parametrize(("array", "dtype", "words"), CONVERTED)
def test_what_is_converted(
    started: list[Started], renderer: FakeRenderer, array: np.ndarray, dtype: str, words: str
) -> None:
    field = wavefield.show(array, memory="host")
    field.status()
    assert field.dtype == np.dtype(dtype)
    assert field.kind == ("points" if array.shape[1] == 3 else "image")
    assert field.shown is not None
    assert words in field.shown.reason
    np.testing.assert_array_equal(renderer.frames[0], array.astype(dtype))


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((3, 40, 60), np.float32), r"permute\(1, 2, 0\)"),
        (np.zeros((4, 6), np.complex64), r"abs\(x\)"),
        (np.zeros((4, 6), ">c8"), r"abs\(x\)"),
        (np.zeros((4, 6), "datetime64[ns]"), r'x\.astype\("int64"\)'),
        (np.zeros((4, 6), object), "not object"),
        (np.zeros(1, np.float32), "at least 2 points"),
        (np.zeros((0, 6), np.float32), "too small"),
    ],
)
def test_what_cannot_be_drawn_starts_nothing(started: list[Started], array: np.ndarray, words: str) -> None:
    with pytest.raises(wavefield.ArrayMismatch, match=words):
        wavefield.show(array, memory="host")
    assert started == []


def test_the_same_array_again(started: list[Started], renderer: FakeRenderer) -> None:
    field = wavefield.show(IMAGE, memory="host")
    mine = np.asarray(field.empty())
    for value in range(5):
        mine[...] = value
        field = wavefield.show(mine, memory="host")
        assert (field.shown == wavefield.Shown.WITHOUT_COPY) == (value == 0), "later ones are copied"
    assert field.shown is not None
    assert "show two in turn" in field.shown.reason
    field.status()
    # The first was written again while it was drawn, so it may be torn. The others are copies.
    assert [shown[0, 0] for shown in renderer.frames[2:]] == [1, 2, 3, 4]


def test_a_call_that_says_the_same_prepares_nothing(
    started: list[Started], renderer: FakeRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only if all is as it was: what the call says, the array's kind, and what the user has chosen since."""
    calls: list[Any] = []

    def prepare(*arguments: Any) -> Any:
        calls.append(arguments)
        return prepared(*arguments)

    prepared = _prepare.prepare
    monkeypatch.setattr(_prepare, "prepare", prepare)

    def prepares(array: Any = IMAGE, **said: Any) -> bool:
        calls.clear()
        field = wavefield.show(array, **{"memory": "host", "limits": (0, 1), "colormap": "magma", **said})
        field.status()
        shown = renderer.frames[-1]
        np.testing.assert_array_equal(shown, np.ma.filled(array, np.nan).astype(np.float32).reshape(shown.shape))
        wanted = said.get("colormap", "magma")
        assert not isinstance(wanted, str) or renderer.parameters["colormap"] == wanted
        return bool(calls)

    assert prepares()
    assert not prepares()
    assert not prepares(IMAGE * 2)
    assert prepares(colormap="gray")
    assert prepares()
    assert prepares(IMAGE[:3])
    for other in (IMAGE.astype(np.float64), IMAGE[:, ::-1], np.ma.array(IMAGE, mask=IMAGE > 1)):
        assert prepares(other)
        assert prepares(other), "it is converted each time"
    assert not prepares()
    table = np.zeros((256, 3))
    assert prepares(colormap=table)
    assert prepares(colormap=table), "its numbers may have changed"
    assert prepares()
    for _ in range(2):
        calls.clear()
        wavefield.show({"it": IMAGE}, memory="host", limits=(0, 1), colormap="magma")
        assert calls
    assert prepares()
    assert not prepares()
    # The user has another map now, and the call says "magma".
    renderer.parameters["colormap"] = "plasma"
    renderer.session.send({"type": "parameters", "parameters": renderer.parameters})  # type: ignore[union-attr]
    assert prepares()
    assert not prepares()
    wavefield.show(IMAGE, memory="host").close()
    assert prepares()


CLOUD = np.random.default_rng(5).normal(size=(6, 3)).astype(np.float32)
ENDS = (0.0, 1.0)
CALLS: dict[str, list[tuple[Any, dict[str, Any]]]] = {
    "one colour": [(CLOUD, {"colors": "red"}), (CLOUD + 1, {"colors": "red"})],
    "a kind within a dictionary": [({"it": {"array": IMAGE, "kind": "surface"}}, {}), (IMAGE, {})],
    "a colour within a dictionary": [({"it": {"array": CLOUD, "colors": "red"}}, {}), (CLOUD, {})],
    "an end of its own": [(IMAGE, {"limits": (None, 1)}), (IMAGE - 10, {"limits": (None, 1)})],
    "other limits": [(IMAGE, {"limits": (0, 1)}), (IMAGE, {"limits": (0, 2)}), (IMAGE, {"limits": (0, 1)})],
    "its range": [(IMAGE, {}), (1000 * IMAGE, {}), (1000 * IMAGE, {})],
    "limits that follow": [
        (IMAGE, {"limits": "auto"}),
        (3 * IMAGE, {"limits": "auto"}),
        (IMAGE - 1, {"limits": "auto"}),
    ],
    "a logarithm": [(IMAGE + 1, {"norm": "log"}), (IMAGE - 0.5, {"norm": "log"}), (IMAGE * 100, {"norm": "log"})],
    "huge numbers": [(IMAGE, {}), (IMAGE * np.float32(3e38), {}), (IMAGE * np.float32(3e38), {})],
    "tiny numbers": [(IMAGE, {}), (IMAGE * np.float32(1e-39), {}), (IMAGE, {})],
    "huge places": [(CLOUD, {}), (CLOUD * np.float32(1e37), {}), (CLOUD, {})],
    "tiny places": [(CLOUD, {}), (CLOUD * np.float32(1e-32), {}), (CLOUD * np.float32(1e-32), {})],
    "places that leave the view": [
        (CLOUD, {"limits": ENDS}),
        (CLOUD + 1000, {"limits": ENDS}),
        (CLOUD, {"limits": ENDS}),
    ],
    "a fitted camera": [(CLOUD, {"camera": "fit"}), (CLOUD * 2, {"camera": "fit"}), (CLOUD / 2, {"camera": "fit"})],
    "points with values": [
        (np.column_stack([CLOUD, CLOUD[:, :1]]), {}),
        (np.column_stack([CLOUD, CLOUD[:, 1:2] + 5]), {}),
    ],
    "colours": [(np.zeros((4, 6, 3), np.float32), {}), (np.full((4, 6, 3), 1, np.float32), {})],
    "an extent": [
        (IMAGE, {"extent": (0, 6, 0, 4)}),
        (IMAGE, {"extent": (0, 6, 0, 4)}),
        (IMAGE, {"extent": (0, 9, 0, 4)}),
    ],
    "a surface with an extent": [(IMAGE, {"kind": "surface", "extent": (0, 6, 0, 4)})] * 3,
    "axes of what has no place": [(CLOUD * np.float32(np.nan), {"axes": True}), (CLOUD, {"axes": True})],
    "True for 1": [(IMAGE, {"size": 1, "limits": (0, 1)}), (IMAGE, {"size": 1.0, "limits": (0.0, 1.0)})],
    "axes": [(CLOUD, {"axes": True, "colorbar": True}), (CLOUD * 1.2, {"axes": True, "colorbar": True}), (CLOUD, {})],
    "a label": [(IMAGE, {"label": "p"}), (IMAGE, {"label": "p"}), (IMAGE[:2], {"label": "p"}), (IMAGE[:2], {})],
    "a plot": [(IMAGE[0], {}), (IMAGE[1] * 50, {}), (IMAGE[0], {})],
}
"""Calls of which each may be taken for the one before."""


@pytest.mark.parametrize("name", CALLS)
def test_what_is_remembered_draws_the_same(started: list[Started], renderer: FakeRenderer, name: str) -> None:
    def last(remembers: bool) -> Any:
        renderer.parameters.update(before)
        renderer.camera = dict(USUAL_CAMERA)
        for array, said in CALLS[name]:
            if _show._shower is not None and not remembers:
                _show._shower.call = None
            field = wavefield.show(array, memory="host", **said)
        field.status()
        drawn = renderer.frames[-1], renderer.parts[-1:], dict(renderer.parameters), dict(renderer.camera)
        field.close()
        return field.kind, field.shape, drawn

    more = {"norm": "linear", "linthresh": 0.0, "label": "", "invert": False, "colorbar": False, "axes": False}
    before = {**renderer.parameters, **more}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        *described, remembered = last(True)
        *anew, prepared = last(False)
    assert described == anew
    np.testing.assert_equal(remembered, prepared)


def test_the_call_before_may_come_from_a_function_of_the_panel(started: list[Started], renderer: FakeRenderer) -> None:
    def show() -> wavefield.Field:
        return wavefield.show(IMAGE, memory="host", colormap="magma", limits=(0, 1))

    show()
    field = show()
    field.on_key(lambda _key: wavefield.show(IMAGE * 5, memory="host", colormap="gray", limits=(0, 5)))
    show()
    renderer.session.send({"type": "key", "key": "r"})  # type: ignore[union-attr]
    field._connection.pump(timeout=5.0)
    field = show()
    field.status()
    assert field.parameters["limits"] == (0, 1)
    assert renderer.parameters["colormap"] == "magma"
    assert [5 * IMAGE[0, 0], IMAGE[0, 0]] == [frame[0, 0] for frame in renderer.frames[-2:]]


@pytest.mark.parametrize("where", ["show", "_draw_as", "_draw_in"])
def test_a_call_wins_over_what_the_user_does_while_it_waits(
    started: list[Started], renderer: FakeRenderer, where: str
) -> None:
    def show(array: np.ndarray = IMAGE) -> None:
        wavefield.show(array, memory="host", colormap="magma", limits=(0, 1)).status()

    for _ in range(3):
        show()
    waits = getattr(wavefield.Field, where)

    def while_it_waits(field: wavefield.Field, *arguments: Any, **named: Any) -> Any:
        answer = waits(field, *arguments, **named)
        renderer.parameters["colormap"] = "plasma"
        renderer.session.send({"type": "parameters", "parameters": renderer.parameters})  # type: ignore[union-attr]
        field._connection.pump(timeout=5.0)
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wavefield.Field, where, while_it_waits)
        show(IMAGE if where != "_draw_in" else IMAGE[:2])
    show(IMAGE if where != "_draw_in" else IMAGE[:2])
    assert renderer.parameters["colormap"] == "magma"


def test_a_field_that_was_closed_is_opened_anew(started: list[Started]) -> None:
    wavefield.show(IMAGE, memory="host").close()
    assert started[0].ended == 1
    assert not wavefield.show(IMAGE, memory="host").closed
    assert len(started) == 2


def test_a_window_that_was_closed_is_said_once(started: list[Started], renderer: FakeRenderer) -> None:
    field = wavefield.show(IMAGE, memory="host", window=True)
    assert started[0].arguments == ["--grid", "256x256", "--overlay", "legend"]
    renderer.session.send({"type": "error", "code": "ended", "reason": "the window was closed"})  # type: ignore[union-attr]
    with pytest.raises(wavefield.RendererGone, match=r"the window was closed, .*show\(\) opens another"):
        for _ in range(10):
            wavefield.show(IMAGE, memory="host")
    assert field.closed
    assert not wavefield.show(IMAGE, memory="host").closed
    assert len(started) == 2


def test_where_there_is_a_window(
    started: list[Started], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Shell:
        kernel = object()

    class IPython:
        shell: Any = None

        @classmethod
        def get_ipython(cls) -> Any:
            return cls.shell

    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    wavefield.show(IMAGE, memory="host")
    assert started[-1].arguments == ["--grid", "256x256", "--overlay", "legend"], "nothing is over the data"
    wavefield.show(IMAGE, memory="host", window=False)
    assert "--headless" in started[-1].arguments
    assert started[0].ended
    wavefield.show(IMAGE, memory="host").close()
    monkeypatch.setitem(sys.modules, "IPython", IPython)
    wavefield.show(IMAGE, memory="host").close()
    assert "--headless" not in started[-1].arguments, "IPython in a terminal is not a notebook"
    IPython.shell = Shell
    wavefield.show(IMAGE, memory="host").close()
    assert "--headless" in started[-1].arguments
    assert capsys.readouterr().err == ""


def test_the_camera_stays_while_the_kind_does(started: list[Started]) -> None:
    usual = wavefield.show(IMAGE, memory="host").camera
    wavefield.show(np.zeros((4, 3), np.float32), memory="host").camera = wavefield.Camera(0.25, 1.0, 2.0)
    points = wavefield.show(np.zeros((5, 3), np.float32), memory="host")
    assert points.camera == wavefield.Camera(0.25, 1.0, 2.0), "each number of points has a connection of its own"
    assert wavefield.show(IMAGE, memory="host").camera == usual


def test_a_title_and_the_camera(started: list[Started], renderer: FakeRenderer) -> None:
    camera = wavefield.Camera(0.0, 1.0, 2.0)
    wavefield.show(IMAGE, memory="host", title="ß" * 300)
    assert renderer.received[0]["client"] == "ß" * 100, "a name has at most 200 bytes"
    renderer.received.clear()
    field = wavefield.show(IMAGE, memory="host", title="my waves", camera=camera, size=2)
    hellos = [message for message in renderer.received if message["type"] == "hello"]
    assert [message["client"] for message in hellos] == ["my waves"]
    assert field.camera == camera
    assert field.parameters["size"] == 2
    wavefield.show(IMAGE, memory="host", camera=wavefield.Camera(0.5, 1.0, 2.0), size=3)
    assert (field.camera.azimuth, field.parameters["size"]) == (0.5, 3)
    assert wavefield.show(IMAGE, memory="host")._field is field._field, "the title stays"
    with pytest.raises(TypeError, match="limits must be 2 numbers"):
        wavefield.show(IMAGE, memory="host", limits=3)  # type: ignore[arg-type]
    wavefield.show(IMAGE, memory="host", limits=np.array([0, 1]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='"auto", "cuda" or "host"'):
        wavefield.show(IMAGE, memory="disk")  # type: ignore[arg-type]


def test_a_refused_array_leaves_nothing_behind(started: list[Started], renderer: FakeRenderer) -> None:
    def refuse(session: Session, *_: Any) -> None:
        session.send({"type": "refused", "code": "array", "reason": "larger than one allocation; show a part of it"})
        session.socket.shutdown(2)

    renderer.answers["hello"] = refuse
    with pytest.raises(wavefield.Refused, match="show a part of it") as caught:
        wavefield.show(IMAGE, memory="host")
    assert caught.value.code == "array"
    assert started[0].ended == 1


def test_a_refused_array_keeps_the_window(started: list[Started], renderer: FakeRenderer) -> None:
    camera = wavefield.Camera(0.5, 1.0, 2.0)
    wavefield.show(IMAGE, memory="host", window=True, camera=camera)

    def refuse(session: Session, *_: Any) -> None:
        session.send({"type": "refused", "code": "array", "reason": "larger than one allocation; show a part of it"})
        session.socket.shutdown(2)

    renderer.answers["hello"] = refuse
    with pytest.raises(wavefield.Refused, match="show a part of it"):
        wavefield.show(IMAGE[:2], memory="host", window=True)
    del renderer.answers["hello"]
    field = wavefield.show(IMAGE[:3], memory="host", window=True)
    field.status()
    assert (len(started), started[0].ended) == (1, 0)
    assert field.camera == camera
    np.testing.assert_array_equal(renderer.frames[-1], IMAGE[:3])


def test_a_mistake_in_memory_changes_nothing(started: list[Started]) -> None:
    field = wavefield.show(IMAGE, memory="host")
    with pytest.raises(ValueError, match='"auto", "cuda" or "host"'):
        wavefield.show(IMAGE, memory="disk")  # type: ignore[arg-type]
    assert wavefield.show(IMAGE, memory="host")._field is field._field


def test_a_renderer_that_ended_between_two_layouts_is_started_anew(
    started: list[Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    wavefield.show(IMAGE, memory="host")

    def ended(*_: Any) -> None:
        raise wavefield.NoRenderer("the renderer ended at once")

    with monkeypatch.context() as patch, pytest.raises(wavefield.NoRenderer):
        patch.setattr(Started, "still_starting", ended)
        wavefield.show(IMAGE[:2], memory="host")
    assert started[0].ended == 1
    wavefield.show(IMAGE[:2], memory="host")
    assert len(started) == 2


def test_limits_after_a_failed_first_show(
    started: list[Started], renderer: FakeRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits are those of the first array that is shown."""

    def refuse(session: Session, *_: Any) -> None:
        session.send({"type": "failed", "request": "set", "reason": "no such map"})

    renderer.answers["set"] = refuse
    with pytest.raises(wavefield.Refused, match="no such map"):
        wavefield.show(IMAGE, memory="host", colormap="no such map")
    del renderer.answers["set"]
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(wavefield.Field, "show", lambda *_, **__: 1 / 0)
        wavefield.show(IMAGE + 1, memory="host")
    image = np.array([[2.0, 3.0]] * 2 + [[4.0, 5.0]] * 2, np.float32).repeat(3, axis=1)
    wavefield.show(image, memory="host")
    wavefield.show(image + 1, memory="host")
    assert renderer.parameters["limits"] == [2.0, 5.0]
    assert len(started) == 1


def test_show_after_ctrl_c(started: list[Started], renderer: FakeRenderer, monkeypatch: pytest.MonkeyPatch) -> None:
    field = wavefield.show(IMAGE, memory="host")
    field.status()  # now the renderer has read everything
    whole = field._connection.pump

    def press(timeout: float = 0.0) -> None:
        whole(timeout)
        raise KeyboardInterrupt

    renderer.frees = False
    with monkeypatch.context() as patch:
        patch.setattr(field._connection, "pump", press)  # while it waits for a slot
        with pytest.raises(KeyboardInterrupt):
            for _ in range(4):
                wavefield.show(IMAGE, memory="host")
    field.status()
    for frame in range(1, renderer.session.drawn):  # type: ignore[union-attr]
        renderer.session.send({"type": "free", "frame": frame})  # type: ignore[union-attr]
    renderer.frees = True
    assert wavefield.show(IMAGE + 1, memory="host")._field is field._field, "nothing was lost"
    send = field._connection.send

    def cut_short(message: Any, *more: Any) -> None:
        send(message, *more)
        if message["type"] == "ready":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(field._connection, "send", cut_short)  # while it hands a frame over
        with pytest.raises(KeyboardInterrupt):
            wavefield.show(IMAGE + 2, memory="host")
    assert started[0].ended == 0
    other = wavefield.show(IMAGE + 3, memory="host")
    other.status()
    assert (field.closed, started[0].ended > 0, len(started)) == (True, True, 2)
    np.testing.assert_array_equal(renderer.frames[-1], IMAGE + 3)


def test_a_gpu_that_cannot_be_shared(
    started: list[Started], driver: FakeDriver, renderer: FakeRenderer, capsys: pytest.CaptureFixture[str]
) -> None:
    driver.uuid = b"\x22" * 16
    field = wavefield.show(IMAGE)
    assert field.memory == "host"
    assert "frames go through the CPU's memory" in capsys.readouterr().err
    driver.init_result = driver.CUresult.CUDA_ERROR_NO_DEVICE
    with pytest.raises(CudaMissing):
        wavefield.show(IMAGE, memory="cuda")


class OnTheGpu:
    """Stands for CuPy's array: NumPy's memory, presented as the GPU's."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.array.__array_interface__, "version": 3, "stream": 1}

    def __getitem__(self, key: Any) -> Any:
        return OnTheGpu(self.array[key])

    def min(self) -> Any:
        return self.array.min()

    def max(self) -> Any:
        return self.array.max()

    def astype(self, dtype: Any) -> Any:
        return OnTheGpu(self.array.astype(dtype))

    def copy(self, order: str = "C") -> Any:
        return OnTheGpu(self.array.copy(order))  # type: ignore[arg-type]

    def get(self) -> np.ndarray:
        return self.array


@pytest.mark.parametrize("array", [IMAGE, IMAGE.astype(np.float64), IMAGE.T], ids=["as it is", "float64", "transposed"])
def test_an_array_on_the_gpu_is_copied_there(
    started: list[Started], driver: FakeDriver, renderer: FakeRenderer, array: np.ndarray
) -> None:
    with pytest.warns(wavefield.CopyWarning, match="the array is copied, once, on the GPU: ") as warned:
        field = wavefield.show(OnTheGpu(array))
    wavefield.show(OnTheGpu(array))  # a second warning would be an error
    assert all("once" in str(warning.message) for warning in warned)
    assert field.memory == "cuda"
    assert started[0].arguments[-2:] == ["--device", driver.uuid.hex()]
    renderer.draw(driver)
    np.testing.assert_array_equal(renderer.frames[0], array.astype(np.float32))


def test_two_shapes_of_a_library_whose_streams_are_unknown(
    started: list[Started], driver: FakeDriver, renderer: FakeRenderer
) -> None:
    """The second closes the first field. What it exports its array on is not that field's own stream."""
    streams: list[int] = []

    class Jax(Dlpack):
        shape, dtype = property(lambda self: self.memory.shape), np.dtype(np.float32)

        def __dlpack__(self, **options: Any) -> Any:
            streams.append(options["stream"])
            return super().__dlpack__(**options)

    for array in (IMAGE, np.tile(IMAGE, (2, 1))):
        field = wavefield.show(Jax(array, GPU), limits=(0, 1))
        field.status()
        renderer.draw(driver)
        np.testing.assert_array_equal(renderer.frames[-1], array)
    assert {*streams} <= {*driver.streams}, "it still exists"
    # As when a library works on the field's own stream.
    field.stream = int(field.stream)
    wavefield.show(Jax(IMAGE, GPU), limits=(0, 1))
    assert {*streams} <= {*driver.streams}


@pytest.mark.usefixtures("without_cuda")
def test_an_array_on_a_gpu_that_the_renderer_has_not(started: list[Started], renderer: FakeRenderer) -> None:
    field = wavefield.show(OnTheGpu(IMAGE))
    assert field.memory == "host"
    field.status()
    np.testing.assert_array_equal(renderer.frames[0], IMAGE)


SCRIPT = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
import numpy as np, wavefield
from wavefield import _show
import started
started.Started.fake = type("Fake", (), {{"path": __import__("pathlib").Path(sys.argv[1])}})
_show.Renderer = started.Started
field = wavefield.show(np.ones((4, 6), np.float32), memory="host", window=sys.argv[2] != "headless")
print("shown", flush=True)
if sys.argv[2] == "another":
    other = wavefield.connect(sys.argv[3], memory="host")
    for _ in other.frames(2): pass
    print("shown there", flush=True)
elif len(sys.argv) > 3: raise RuntimeError(sys.argv[3])
"""


def run(renderer: FakeRenderer, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent / "src")}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(renderer.path), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_a_script_waits_until_its_window_is_closed(renderer: FakeRenderer) -> None:
    program = run(renderer, "window")
    assert program.stdout is not None
    assert program.stderr is not None
    assert program.stdout.readline() == "shown\n"
    assert program.stderr.readline() == "wavefield: the program ends when its window is closed, or by Ctrl-C\n"
    assert program.poll() is None
    renderer.session.send({"type": "error", "code": "ended", "reason": "the window was closed"})  # type: ignore[union-attr]
    _, said = program.communicate(timeout=30)
    assert (program.returncode, said) == (0, "")


def test_a_field_beside_the_window_stays_open_with_it(renderer: FakeRenderer, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with contextlib.closing(FakeRenderer(tmp_path / "other")) as other:
        program = run(renderer, "another", str(other.path))
        assert program.stdout is not None
        assert program.stderr is not None
        assert [program.stdout.readline() for _ in range(2)] == ["shown\n", "shown there\n"]
        assert program.stderr.readline() == "wavefield: the program ends when its window is closed, or by Ctrl-C\n"
        assert not other.farewell.wait(0.2), "its last frame is still in view"
        renderer.session.send({"type": "error", "code": "ended", "reason": "the window was closed"})  # type: ignore[union-attr]
        _, said = program.communicate(timeout=30)
        assert (program.returncode, said) == (0, "")
        assert other.farewell.wait(5)
        assert [message["type"] for message in other.received] == ["hello", "ready", "ready", "bye"]


@pytest.mark.parametrize("arguments", [["headless"], ["window", "a mistake"]])
def test_a_script_without_a_window_or_with_an_error_does_not_wait(renderer: FakeRenderer, arguments: list[str]) -> None:
    program = run(renderer, *arguments)
    _, said = program.communicate(timeout=30)
    assert ("a mistake" in said) == (program.returncode == 1), said
    assert "is closed" not in said


def prepared_of(array: Any, kind: Any = None) -> _prepare.Prepared:
    """Return an array as `show` draws it."""
    return _prepare.prepare({"": _arguments.entry({"array": array, "kind": kind})})


@pytest.mark.filterwarnings("ignore:The array is not seen")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "values",
    [[1e9, 1e9], [1e30, 1e30], [0.0, 1e-40], [-3e38, 3e38], [0.0, 2e38], [np.nan, 5.0], [np.inf, 1.0, 2.0], [np.nan]],
)
def test_default_limits_are_limits_that_the_renderer_takes(values: list[float], dtype: Any) -> None:
    for kind in ("surface", "points"):  # those of y are drawn as they are
        array = np.tile(np.array([values], dtype).T, (2, 3))
        prepared = prepared_of(array, kind)
        low, high = (np.float32(prepared.choice.to_drawn(limit)) for limit in prepared.choice.limits)
        # The same check as `checked_limits` in tool/serve/src/settings.rs.
        assert np.isfinite(low) and np.isfinite(high) and np.finfo(np.float32).tiny <= high - low < 2**126


def test_what_is_converted_keeps_its_meaning() -> None:
    mask = np.ones((4, 5, 3), bool)
    prepared = prepared_of(mask)
    source = prepared.source
    assert (prepared.layout.kind, source.dtype, source.array.max()) == ("image", "float32", 1.0)
    prepared = prepared_of(np.zeros((4, 5, 3), np.uint8)[..., :1])
    assert prepared.layout.shape == (4, 5) and "create it contiguous" in prepared.converted
