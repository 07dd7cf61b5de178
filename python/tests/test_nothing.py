"""An empty picture is not drawn without a word."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import wavefield
from fake_driver import FakeDriver
from fake_renderer import FakeRenderer
from started import Started
from test_show import OnTheGpu
from wavefield import Camera, _say
from wavefield._look import nothing as _nothing

NAN = np.full((4, 6), np.nan, np.float32)
CLOUD = np.random.default_rng(5).normal(size=(6, 3)).astype(np.float32)
CLEAR = np.zeros((6, 4), np.uint8) + np.array([9, 9, 9, 0], np.uint8)


@pytest.mark.parametrize(
    ("array", "named", "words"),
    [
        (NAN, {}, "^The array is not seen: none of its numbers is finite"),
        (NAN, {"limits": (0, 1)}, "none of its numbers is finite"),
        (np.full((4, 6), -np.inf), {"kind": "surface"}, "none of its numbers is finite"),
        (NAN[0], {}, "none of its numbers is finite"),
        (np.full((5, 3), np.nan), {}, "none of its points has three finite numbers"),
        (np.where([1, 0, 1], CLOUD, np.nan), {}, "none of its points has three finite numbers"),
        (np.column_stack([CLOUD, np.full(6, np.nan)]), {}, "none of its numbers is finite"),
        ({"a": CLOUD, "b": CLOUD * np.nan}, {}, '^"b" is not seen: none of its points'),
        (np.zeros((4, 6, 4), np.uint8) + np.array([9, 9, 9, 0], np.uint8), {}, "its alpha is 0 everywhere"),
        (CLOUD, {"sizes": np.zeros(6)}, "all its sizes are 0"),
        (CLOUD, {"vectors": np.zeros((6, 3))}, "all its vectors are 0"),
        (CLOUD, {"colors": CLEAR}, "the alpha of all its colors is 0"),
        (CLOUD, {"colors": CLEAR / 255}, "the alpha of all its colors is 0"),
    ],
)
@pytest.mark.parametrize("memory", ["host", "cuda"])
def test_what_is_not_seen_is_said(
    started: list[Started],
    renderer: FakeRenderer,
    driver: FakeDriver,
    array: Any,
    named: dict[str, Any],
    words: str,
    memory: Any,
) -> None:
    if memory == "cuda":
        if "its alpha" in words:
            pytest.skip("this is looked at in the CPU's memory only")
        if isinstance(array, dict):
            array = {name: OnTheGpu(one) for name, one in array.items()}
        else:
            array = OnTheGpu(np.ascontiguousarray(array))
        named = {name: OnTheGpu(one) if isinstance(one, np.ndarray) else one for name, one in named.items()}
    with pytest.warns(UserWarning, match=words) as said:
        wavefield.show(array, memory=memory, **named)
    assert [one.filename for one in said if "seen" in str(one.message)] == [__file__], "the line of the program"


@pytest.mark.parametrize(
    ("array", "named"),
    [
        (np.where(np.arange(6) == 2, 1, NAN), {}),
        (np.column_stack([CLOUD, np.full(6, np.nan)]), {"colors": CLEAR + np.uint8(1)}),
    ],
)
def test_what_may_be_seen_is_not(started: list[Started], array: Any, named: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wavefield.show(array, memory="host", **named)


def test_the_camera_that_was_given_stays(started: list[Started], renderer: FakeRenderer) -> None:
    wavefield.show(CLOUD, memory="host", camera=Camera(0, 0, 10.0))
    seen = [(8, 0, 0), (0, 0, -500)]
    for away in [*seen, (20, 0, 0), (0, -1000, 0), (0, 0, 30)]:
        _say.said.discard(_nothing.UNSEEN)  # it is said once
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            field = wavefield.show(CLOUD + np.array(away, np.float32), memory="host")
        words = ['The array is not seen: the camera that was given sees none of it; camera="fit" shows all of it']
        assert [str(one.message) for one in said] == ([] if away in seen else words), away
        assert field.camera.distance == pytest.approx(10)
