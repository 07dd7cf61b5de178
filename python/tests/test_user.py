"""A user at the real window, under Xvfb: sliders are moved, keys pressed, elements clicked. Needs xdotool."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import wavefield
from projection import project
from test_end_to_end import WHY_NOT
from wavefield import _show

MISSING = [tool for tool in ("Xvfb", "xdotool") if shutil.which(tool) is None]
pytestmark = pytest.mark.skipif(
    WHY_NOT is not None or bool(MISSING), reason=WHY_NOT or f"{', '.join(MISSING)} are not installed"
)

WIDTH, HEIGHT = 1280, 720
RNG = np.random.default_rng(5)


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


class User:
    """Types and clicks in the window of `wavefield.show`."""

    def __init__(self, display: str) -> None:
        self.environment = {**os.environ, "DISPLAY": display}
        self.window = ""

    def do(self, *arguments: object) -> str:
        command = ["xdotool", *map(str, arguments)]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True).stdout.strip()

    def find(self, field: wavefield.Field) -> None:
        """Wait until the window is on the screen, and give it the focus."""
        until(lambda: 0 not in field.status().picture)
        assert _show._shower is not None
        process = _show._shower.renderer.process.pid
        criteria = ("search", "--all", "--onlyvisible", "--pid", process, "--name", ".")
        until(lambda: bool(self.do(*criteria)))
        self.window = self.do(*criteria).split()[0]
        assert field.status().picture == (WIDTH, HEIGHT)
        self.do("windowfocus", self.window)

    def key(self, *keys: str) -> None:
        for key in keys:
            self.do("key", key)

    def drag(self, start: tuple[float, float], *path: tuple[float, float]) -> None:
        self.do("mousemove", "--window", self.window, *map(round, start), "mousedown", 1)
        for place in path:
            time.sleep(0.1)
            self.do("mousemove", "--window", self.window, *map(round, place))
        time.sleep(0.1)
        self.do("mouseup", 1)

    def click(self, x: float, y: float) -> None:
        self.do("mousemove", "--window", self.window, round(x), round(y), "click", 1)


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    arguments = f"-displayfd 1 -screen 0 {WIDTH}x{HEIGHT}x24 -nolisten tcp -noreset -r".split()
    with subprocess.Popen(["Xvfb", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        display = f":{server.stdout.readline().strip()}"
        monkeypatch.setenv("DISPLAY", display)
        monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
        monkeypatch.setattr("wavefield._say.said", set())
        yield User(display)
        if _show._shower is not None:
            _show._shower.close()
            _show._shower = None
        server.kill()


def show(array: Any, **options: Any) -> wavefield.Field:
    return wavefield.show(array, memory="host", window=True, **options)


# Where the entries are, below each other in the window's corner. Short labels make a column of 40 pixels.
ROW = 19.0, 42.0, 65.0, 88.0


def drag_until(user: User, done: Callable[[], bool], start: tuple[float, float], *path: tuple[float, float]) -> None:
    """Drag until it is done: on a slow machine a whole drag may come between two layouts, which is then none."""

    def dragged() -> bool:
        user.drag(start, *path)
        time.sleep(0.3)
        return done()

    until(dragged)


def test_a_user_moves_sliders_and_presses_buttons(user: User) -> None:
    image = RNG.random((12, 16), np.float32)
    field = show(image, kind="image")
    speed, steps = field.slider("x", 0, 1, 0.25), field.slider("n", 1, 9, 3)
    reset, wind = field.button("reset"), field.checkbox("w", False)
    camera = field.camera
    user.find(field)
    time.sleep(1)  # the panel is laid out
    # The rails are at the same place in both rows: a drag to the right end, and beyond.
    drag_until(user, lambda: speed.value == 1.0, (70, ROW[0]), (100, ROW[0]), (400, ROW[0]))
    drag_until(user, lambda: steps.value == 1, (70, ROW[1]), (80, ROW[1]), (1, ROW[1]))
    assert type(steps.value) is int and speed.value == 1.0
    for _ in range(2):
        user.click(70, ROW[2])
        time.sleep(0.3)
    presses = 0

    def pressed_twice() -> bool:
        nonlocal presses
        presses += reset.pressed
        return presses == 2

    until(pressed_twice)
    assert not reset.pressed
    user.click(66, ROW[3])
    until(lambda: wind.value)
    # By the keyboard: a click into the number, and another number.
    speed.value = 0.75
    time.sleep(0.5)
    user.click(185, ROW[0])
    time.sleep(0.5)
    user.key("ctrl+a", "0", "period", "3", "7", "5", "Return")
    until(lambda: speed.value == 0.375)
    # The panel takes what is meant for it: the image stays, also for the keys.
    assert field.camera == camera and field.parameters["colormap"] == "viridis" and field.open
    # The entries stay for another layout, and in the whole panel.
    other = show(image[:5], kind="image")
    user.key("Tab")
    time.sleep(1)
    lower = ROW[0] + 47
    drag_until(user, lambda: speed.value == 1.0, (70, lower), (80, lower), (400, lower))
    assert other.slider("x", 0, 1, 0.25) is speed


def test_keys_and_clicks_reach_the_program(user: User) -> None:
    image = RNG.random((12, 16), np.float32)
    field, got = show(image, kind="image"), list[Any]()
    user.find(field)

    def heard() -> list[Any]:
        show(image if len(got) % 2 else image.copy(), kind="image")
        return got

    # Without a function the keys are the window's.
    user.key("c")
    until(lambda: bool(field.status()) and field.parameters["colormap"] != "viridis")
    field.on_key(lambda key: got.append(key))
    field.on_key(lambda key: got.append(f"mine {key}"), "q", "C", "left")
    field.on_click(lambda *found: got.append(found))
    field.status()
    colormap = field.parameters["colormap"]
    user.key("q", "c", "x", "Left", "F5", "minus")
    until(lambda: len(heard()) == 6)
    assert got == ["mine q", "mine c", "x", "mine left", "f5", "-"]
    assert field.open and field.parameters["colormap"] == colormap
    # An image of 16 by 12 pixels fills the window's height.
    unit, left = HEIGHT / 12, (WIDTH - HEIGHT / 12 * 16) / 2
    for row, col in ((0, 0), (11, 15), (6, 3), (6, 4)):
        got.clear()
        user.click(left + (col + 0.5) * unit, (row + 0.5) * unit)
        until(lambda: bool(heard()))
        assert got == [(row, col, image[row, col])]
    # Beside the image there is nothing, and a drag is no click.
    got.clear()
    user.click(left / 2, HEIGHT / 2)
    user.drag((600, 300), (640, 300), (600, 300))
    user.click(left + 0.5 * unit, 0.5 * unit)
    until(lambda: bool(heard()))
    assert got == [(0, 0, image[0, 0])]


def test_a_click_on_a_point_says_which(user: User) -> None:
    points = np.concatenate([RNG.normal(size=(40, 3)), 1000 + RNG.random((40, 1))], 1).astype(np.float32)
    field, got = show(points, size=12), []
    field.on_click(lambda *found: got.append(found))
    user.find(field)
    places, depths = project(points[:, :3].astype(float), field.camera, WIDTH, HEIGHT)
    # Those that no other dot is near to.
    apart = np.abs(places[:, None] - places[None]).max(-1) + 1e9 * np.eye(len(points))
    clear = [n for n in np.argsort(depths) if apart[n].min() > 20 and (places[n] > 60).all() and places[n, 0] < 1150]
    assert len(clear) >= 5
    for index in clear[:5]:
        got.clear()
        user.click(*places[index])
        until(lambda: bool(show(points.copy(), size=12)) and bool(got))
        assert got == [(index, points[index, 3])]


def test_colours_that_are_clicked_are_a_tuple(user: User) -> None:
    image = RNG.integers(0, 255, (6, 8, 3), np.uint8)
    field, got = show(image), []
    field.on_click(lambda *found: got.append(found))
    user.find(field)
    user.click(160 + 3.5 * 120, 4.5 * 120)
    until(lambda: bool(show(image.copy())) and bool(got))
    assert got == [(4, 3, tuple(image[4, 3]))]


def test_an_orbit_ends_where_it_began(user: User) -> None:
    field = show(RNG.random((20, 30), np.float32), kind="surface")
    user.find(field)
    before, first = field.camera, field.snapshot()
    field.orbit(0.5)
    assert field.camera == before
    np.testing.assert_array_equal(field.snapshot(), first)


def test_a_loop_ends_with_the_window(user: User) -> None:
    field, rounds = show(RNG.random((20, 30), np.float32)), 0
    user.find(field)
    for rounds in field.until_closed():
        show(RNG.random((20, 30), np.float32), limits=(0, 1))
        if rounds == 3:
            user.key("q")
        assert rounds < 10_000
    assert rounds >= 3 and field.closed
