"""Sliders, buttons and check boxes, keys and clicks, loops until the window is closed: what Python says and hears."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wavefield
from fake_driver import FakeDriver
from fake_renderer import FakeRenderer
from started import Started
from wavefield._renderer import panel as _panel

IMAGE = np.random.default_rng(3).random((4, 6), np.float32)


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not done():
        assert time.monotonic() < end
        time.sleep(0.005)


def hear(renderer: FakeRenderer, **message: Any) -> None:
    """Send what the user has done."""
    assert renderer.session is not None
    renderer.session.send(message)


def changed(renderer: FakeRenderer, label: str, value: Any) -> None:
    hear(renderer, type="changed", label=label, value=value)


def asked(renderer: FakeRenderer, field: wavefield.Field) -> dict[str, Any]:
    """Return the last request for a panel, once it is there."""
    field.status()
    return renderer.panel


def test_entries_are_asked_for_and_their_values_are_heard(host: wavefield.Field, renderer: FakeRenderer) -> None:
    viscosity = host.slider("viscosity", 0, 1, 0.1)
    steps = host.slider("steps", 1, 10, 3)
    wind, reset = host.checkbox("wind", True), host.button("reset")
    wish = asked(renderer, host)
    assert wish["entries"] == [
        {"kind": "slider", "label": "viscosity", "low": 0, "high": 1, "integer": False},
        {"kind": "slider", "label": "steps", "low": 1, "high": 10, "integer": True},
        {"kind": "checkbox", "label": "wind"},
        {"kind": "button", "label": "reset"},
    ], "only the newest entry has its value: the others keep the user's"
    assert not wish["clicks"] and "keys" not in wish
    first = next(message for message in renderer.received if message["type"] == "panel")
    assert first["entries"][0]["value"] == 0.1
    assert (viscosity.value, steps.value, wind.value, reset.pressed) == (0.1, 3, True, False)
    changed(renderer, "viscosity", 0.75)
    changed(renderer, "steps", 7.0)
    changed(renderer, "wind", False)
    changed(renderer, "reset", True)
    changed(renderer, "reset", True)
    changed(renderer, "gone", 1.0)
    host.status()
    assert (viscosity.value, steps.value, wind.value) == (0.75, 7, False)
    assert type(steps.value) is int
    assert [reset.pressed for _ in range(3)] == [True, True, False], "once for each press"
    viscosity.value = 1
    wish = asked(renderer, host)
    assert wish["entries"][0]["value"] == 1.0 and "value" not in wish["entries"][1]
    assert type(viscosity.value) is float
    count = len(renderer.received)
    viscosity.value = 1.0
    host.status()
    assert len(renderer.received) == count + 1, "nothing to say"


def test_the_same_entry_again_is_the_same(host: wavefield.Field, renderer: FakeRenderer) -> None:
    for _ in range(3):  # as in a loop, or in a cell that is run again
        speed = host.slider("speed", 0, 2.0, 1.0)
        changed(renderer, "speed", 1.5)
        until(lambda speed=speed: speed.value == 1.5)  # type: ignore[misc]
    host.status()
    assert [message["type"] for message in renderer.received].count("panel") == 1
    other = host.slider("speed", 0, 3.0, 2.0)
    assert other is not speed and other.value == 2.0
    assert [entry["high"] for entry in asked(renderer, host)["entries"]] == [3.0]


def test_entries_stay_when_show_connects_again(started: list[Started], renderer: FakeRenderer) -> None:
    field = wavefield.show(IMAGE, memory="host", window=True)
    speed, wind = field.slider("speed", 0, 1, 0.5), field.checkbox("wind")
    field.on_key(print, "q")
    changed(renderer, "speed", 0.25)
    changed(renderer, "wind", True)
    until(lambda: (speed.value, wind.value) == (0.25, True))
    renderer.panel = {}
    other = wavefield.show(IMAGE[:2], memory="host", window=True)
    wish = asked(renderer, other)
    assert [entry["value"] for entry in wish["entries"]] == [0.25, True] and wish["keys"] == ["q"]
    changed(renderer, "speed", 0.125)
    until(lambda: speed.value == 0.125)
    assert field.button("reset") is other.button("reset")
    assert len(asked(renderer, other)["entries"]) == 3


def test_a_closed_window_leaves_the_values(started: list[Started], renderer: FakeRenderer) -> None:
    field = wavefield.show(IMAGE, memory="host", window=True)
    speed, reset = field.slider("speed", 0, 1, 0.5), field.button("reset")
    hear(renderer, type="error", code="ended", reason="the window was closed")
    until(lambda: field.closed)
    assert (speed.value, reset.pressed) == (0.5, False)
    speed.value = 0.75
    assert speed.value == 0.75
    with pytest.raises(ValueError, match="from 0 to 1"):
        speed.value = 2


BAD: list[tuple[str, tuple[Any, ...], type[Exception], str]] = [
    ("slider", (3, 0, 1), TypeError, "a label must be text, not 3"),
    ("slider", ("", 0, 1), ValueError, "1 to 100 characters"),
    ("slider", ("x" * 101, 0, 1), ValueError, "1 to 100 characters"),
    ("slider", ("\ud800", 0, 1), ValueError, "1 to 100 characters"),
    ("slider", ("a", 1, 1), ValueError, "low must be less than high"),
    ("slider", ("a", 2, 1), ValueError, "low must be less than high"),
    ("slider", ("a", -1e308, 1e308), ValueError, "low must be less than high"),
    ("slider", ("a", float("nan"), 1), ValueError, "low must be a finite number"),
    ("slider", ("a", 0, 10**400), ValueError, "high must be a finite number"),
    ("slider", ("a", "0", 1), TypeError, "low must be a number"),
    ("slider", ("a", 0, 1, 2), ValueError, "'a' must be from 0 to 1, not 2"),
    ("slider", ("a", 0, 1, "x"), TypeError, "value must be a number"),
    ("checkbox", ("a", 1), TypeError, "True or False, not 1"),
    ("checkbox", ("a", None), TypeError, "True or False, not None"),
    ("button", (None,), TypeError, "a label must be text"),
    ("on_key", ("r",), TypeError, "this calls a function, not 'r'"),
    ("on_key", (print, "ctrl+r"), ValueError, "there is no key 'ctrl\\+r'"),
    ("on_key", (print, ""), ValueError, "there is no key"),
    ("on_key", (print, 7), TypeError, "a key is text"),
    ("on_click", (3,), TypeError, "this calls a function, not 3"),
]


@pytest.mark.parametrize(("call", "arguments", "kind", "words"), BAD)
def test_a_wrong_argument_changes_nothing(
    host: wavefield.Field, renderer: FakeRenderer, call: str, arguments: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        getattr(host, call)(*arguments)
    host.status()
    assert [message["type"] for message in renderer.received] == ["hello", "status"]
    assert not host._panel.entries and not host._panel.keys and host._panel.click is None


def test_a_panel_has_64_entries(host: wavefield.Field) -> None:
    for number in range(64):
        host.slider(f"😀{number}" + "x" * 90, 0, 1)
    with pytest.raises(ValueError, match="at most 64"):
        host.button("one more")
    host.slider("😀0" + "x" * 90, 0, 2)  # takes its place
    host.status()


def test_an_entry_is_neither_true_nor_false(host: wavefield.Field) -> None:
    for entry, word in (
        (host.button("a"), "pressed"),
        (host.checkbox("b"), "value"),
        (host.slider("c", 0, 1), "value"),
    ):
        with pytest.raises(TypeError, match=f"read its {word}"):
            bool(entry)


def test_a_refusal_is_raised(host: wavefield.Field, renderer: FakeRenderer) -> None:
    renderer.answers["panel"] = lambda session, *_: session.send(
        {"type": "failed", "request": "panel", "reason": "65 entries"}
    )
    host.button("a")
    with pytest.raises(wavefield.Refused, match="65 entries"):
        host.status()


# Keys and clicks


def test_functions_are_called_by_the_next_call_in_its_thread(host: wavefield.Field, renderer: FakeRenderer) -> None:
    got: list[Any] = []

    def note(*arguments: Any) -> None:
        got.append((*arguments, threading.get_ident()))

    host.on_key(note)
    host.on_key(lambda key: got.append("mine"), "Q", " ")
    host.on_click(note)
    wish = asked(renderer, host)
    assert wish["keys"] == ["q", "space"] and wish["clicks"]
    hear(renderer, type="key", key="left")
    hear(renderer, type="key", key="q")
    hear(renderer, type="click", index=7, values=[0.5])
    host.status()
    assert not got, "status calls no function"
    host.show(np.zeros(host.shape, np.float32))
    me = threading.get_ident()
    assert got == [("left", me), "mine", (1, 2, 0.5, me)], "a mesh of 3 rows and 5 columns"
    host.on_key(None, "q")
    host.on_click(None)
    wish = asked(renderer, host)
    assert wish["keys"] == ["space"] and not wish["clicks"]


@pytest.mark.parametrize(
    ("array", "kind", "values", "expected"),
    [
        (np.zeros((3, 4), np.float32), "image", [0.25], (1, 3, 0.25)),
        (np.zeros((3, 4, 3), np.uint8), "image", [1, 2, 3], (1, 3, (1, 2, 3))),
        (np.zeros((3, 4), np.float32), "surface", [None], (1, 3, None)),
        (np.zeros((9, 3), np.float32), "points", [0.25], (7, 0.25)),
    ],
)
def test_a_click_says_where_and_what(
    started: list[Started], renderer: FakeRenderer, array: Any, kind: Any, values: Any, expected: Any
) -> None:
    field = wavefield.show(array, kind=kind, memory="host", limits=(0, 1), window=True)
    got: list[Any] = []
    field.on_click(lambda *found: got.append(found))
    hear(renderer, type="click", index=7, values=values)
    until(lambda: bool(field.open and got) or not wavefield.show(array, kind=kind, memory="host", window=True))
    (found,) = got
    assert found[:-1] == expected[:-1]
    assert found[-1] == expected[-1] or (expected[-1] is None and np.isnan(found[-1]))


def test_a_click_on_one_of_several_arrays_says_which(started: list[Started], renderer: FakeRenderer) -> None:
    arrays = {"a": {"array": np.zeros((3, 4), np.float32), "kind": "image"}, "b": np.zeros((9, 3), np.float32)}

    def show() -> Any:
        return wavefield.show(arrays, columns=2, memory="host", window=True)

    got: list[Any] = []
    show().on_click(lambda *found: got.append(found))
    hear(renderer, type="click", index=7, values=[0.25])
    hear(renderer, type="click", array=1, index=7, values=[0.5])
    until(lambda: len(got) == 2 or not show())
    assert got == [("a", 1, 3, 0.25), ("b", 7, 0.5)]


def test_an_exception_reaches_the_caller_and_loses_no_event(host: wavefield.Field, renderer: FakeRenderer) -> None:
    got: list[str] = []

    def fail(key: str) -> None:
        got.append(key)
        host.show(np.zeros(host.shape, np.float32))  # calls none
        if key == "a":
            raise KeyError("mine")

    host.on_key(fail)
    for key in "ab":
        hear(renderer, type="key", key=key)
    host.status()
    with pytest.raises(KeyError, match="mine"), host.frame():
        pytest.fail("the function comes first")
    assert got == ["a"]
    with host.frame():
        assert got == ["a", "b"]


def test_what_waits_is_bounded(host: wavefield.Field, renderer: FakeRenderer) -> None:
    got: list[str] = []
    host.on_key(got.append)
    for number in range(_panel.MOST_EVENTS + 5):
        hear(renderer, type="key", key=f"f{number}")
    host.status()
    next(iter(host))
    assert (len(got), got[0]) == (_panel.MOST_EVENTS, "f5")


@pytest.mark.parametrize("message", [{"label": 3}, {"type": "key"}, {"type": "click", "index": -1, "values": []}])
def test_a_wrong_message_is_said(host: wavefield.Field, renderer: FakeRenderer, message: dict[str, Any]) -> None:
    hear(renderer, **{"type": "changed", "value": 1, **message})
    with pytest.raises(wavefield.ProtocolError):
        host.status()


# Loops


def test_a_loop_writes_frames_until_the_window_is_closed(renderer: FakeRenderer) -> None:
    field = wavefield.connect(renderer.path, memory="host")
    count = 0
    for frame in field.until_closed():
        np.asarray(frame)[...] = count
        count += 1
        if count == 4:
            field.status()
            assert [frame.flat[0] for frame in renderer.frames] == [0, 1, 2]
            hear(renderer, type="error", code="ended", reason="the window was closed")
        assert count < 1000
    assert field.closed and count >= 4


def test_a_loop_shows_arrays_until_the_window_is_closed(started: list[Started], renderer: FakeRenderer) -> None:
    field, counts = wavefield.show(IMAGE, memory="host", window=True), []
    for count in field.until_closed():
        counts.append(count)
        if count < 3:
            wavefield.show(IMAGE[: count + 1], memory="host", window=True)
        if count == 4:  # a round without a picture
            hear(renderer, type="error", code="ended", reason="the window was closed")
        assert count < 1000
    assert counts[:4] == [0, 1, 2, 3] and len(renderer.frames) == 4 and len(started) == 1


def test_a_loop_ends_when_its_body_closes_the_field(renderer: FakeRenderer) -> None:
    with wavefield.connect(renderer.path, memory="host") as field:
        for _ in field.until_closed():
            field.close()
    assert not renderer.frames


def test_a_renderer_that_refuses_is_an_error_in_a_loop(renderer: FakeRenderer) -> None:
    field = wavefield.connect(renderer.path, memory="host")
    with pytest.raises(wavefield.Refused, match="bad frame"):
        for _ in field.until_closed():
            hear(renderer, type="error", code="value", reason="bad frame")
            time.sleep(0.05)
    field.close()


def test_a_camera_goes_round(host: wavefield.Field, renderer: FakeRenderer) -> None:
    before = dict(renderer.camera)
    host.orbit(0.2)
    turns = [message["camera"]["azimuth"] for message in renderer.received if message["type"] == "set"]
    assert turns[:-1] == sorted(turns[:-1]) and len(turns) > 2
    assert before["azimuth"] <= turns[0] and turns[-2] < before["azimuth"] + 2 * np.pi
    assert renderer.camera == before, "where it was"
    for seconds, kind in ((0, ValueError), (-1, ValueError), (float("inf"), ValueError), ("1", TypeError)):
        with pytest.raises(kind):
            host.orbit(seconds)  # type: ignore[arg-type]


def test_an_image_has_no_orbit(started: list[Started]) -> None:
    with pytest.raises(wavefield.WavefieldError, match="does not turn"):
        wavefield.show(IMAGE, memory="host").orbit(1)


@pytest.mark.usefixtures("quick")
def test_a_panel_in_cuda_memory(field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver) -> None:
    speed = field.slider("speed", 0, 1, 0.5)
    changed(renderer, "speed", 0.25)
    with field.frame():
        until(lambda: speed.value == 0.25)
