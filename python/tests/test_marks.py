"""The colour bar and the axes in pictures of the real renderer: where they are is computed in double precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wavefield
from projection import project
from test_end_to_end import WHY_NOT
from test_look import show

pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")

__all__ = ["show"]

IMAGE = np.linspace(0.01, 100, 60 * 80).reshape(60, 80)
TABLE = np.stack([np.arange(256), 255 - np.arange(256), np.full(256, 200)], 1).astype(np.uint8)
"""Colours that nothing else in a picture has."""
TOP, HEIGHT = 16, 220
"""Of the colour bar, in a picture of 1280 by 720."""


def bar_of(picture: np.ndarray, table: np.ndarray) -> range:
    """Return the columns in which a picture has the colours of a table, the last on top."""
    parts = 1 - (np.arange(HEIGHT) + 0.5) / HEIGHT
    want = table[(256 * parts).astype(int)].astype(int)
    rows = picture[TOP : TOP + HEIGHT, :, :3].astype(int)
    (columns,) = np.nonzero(np.abs(rows - want[:, None]).max((0, 2)) <= 2)
    assert len(columns) == 14, columns
    return range(columns[0], columns[-1] + 1)


def ticks_of(picture: np.ndarray, column: int) -> list[int]:
    """Return the rows from the bar's top at which a column beside it is brightest."""
    bright = picture[TOP - 2 : TOP + HEIGHT + 3, column, :3].astype(int).sum(-1)
    peaks = [y for y in range(1, len(bright) - 1) if bright[y] > 200 and bright[y - 1] < bright[y] >= bright[y + 1]]
    return [y - 2 for y in peaks]


def test_a_saved_picture_has_a_colour_bar(show: Callable[..., Any], tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    field = show(IMAGE, limits=(0, 100), colormap=TABLE)
    without = field.snapshot()
    field = show(IMAGE, colorbar=True)
    picture = field.snapshot()
    right = bar_of(picture, TABLE).stop
    for row, part in zip(ticks_of(picture, right + 1), (1, 0.75, 0.5, 0.25, 0), strict=True):
        assert abs(row - HEIGHT * (1 - part)) <= 1.5, (row, part)
    field.save(tmp_path / "bar.png")
    with image.open(tmp_path / "bar.png") as saved:
        np.testing.assert_array_equal(np.asarray(saved), picture)
    # Only there, and not for programs.
    (rows, columns) = np.nonzero((picture != without).any(-1))
    assert (rows.max(), columns.min()) < (TOP + HEIGHT + 40, 1280)
    assert columns.min() > 1280 - 100
    np.testing.assert_array_equal(field.render().to_numpy(), without)
    # A label is written below, in place of "value".
    named = show(IMAGE, label="Druck / µPa").snapshot()
    (rows, _) = np.nonzero((named != picture).any(-1))
    assert rows.max() > TOP + HEIGHT
    bar_of(named, TABLE)
    # The bar stays, also for the next shape, until a call says otherwise. What it says is of this one.
    assert show(IMAGE).parameters["label"] == "Druck / µPa"
    assert show(IMAGE[::2], limits=(0, 100)).parameters["label"] == ""
    np.testing.assert_array_equal(show(IMAGE, limits=(0, 100)).snapshot(), picture)
    np.testing.assert_array_equal(show(IMAGE, colorbar=False).snapshot(), without)


def test_the_bar_follows_norm_and_inversion(show: Callable[..., Any]) -> None:
    field = show(IMAGE, limits=(0.1, 50), norm="log", colormap=TABLE, colorbar=True)
    picture = field.snapshot()
    right = bar_of(picture, TABLE).stop
    want = [(math.log(tick) - math.log(0.1)) / math.log(500) for tick in (10, 1, 0.1)]
    for row, part in zip(ticks_of(picture, right + 1), want, strict=True):
        assert abs(row - HEIGHT * (1 - part)) <= 1.5, (row, part)
    picture = show(IMAGE, invert=True).snapshot()
    # The table is as it was: the numbers are turned around.
    right = bar_of(picture, TABLE).stop
    for row, part in zip(ticks_of(picture, right + 1), want[::-1], strict=True):
        assert abs(row - HEIGHT * part) <= 1.5, (row, part)


def test_colours_have_no_bar_and_small_pictures_have_no_room(show: Callable[..., Any]) -> None:
    rgb = np.full((40, 60, 3), 90, np.uint8)
    without = show(rgb).snapshot()
    np.testing.assert_array_equal(show(rgb, colorbar=True).snapshot(), without)
    small = ["--size", "100x80"]
    with wavefield.launch(kind="image", shape=(4, 5), dtype="float32", memory="host", arguments=small) as field:
        field.show(np.ones((4, 5), np.float32))
        before = field.snapshot()
        field.parameters.update(colorbar=True, label="x" * 100)
        np.testing.assert_array_equal(field.snapshot(), before)
        field.parameters["axes"] = True
        assert field.snapshot().shape == before.shape


def lines(picture: np.ndarray, without: np.ndarray) -> np.ndarray:
    """Return where a picture became bright."""
    return np.asarray((picture[..., :3].min(-1) > 70) & (picture != without).any(-1))


def is_drawn(found: np.ndarray, x: float, y: float) -> bool:
    """Return whether something was drawn at most 1.5 pixels from a place."""
    left, top = int(x - 1), int(y - 1)
    return bool(found[max(top, 0) : top + 3, max(left, 0) : left + 3].any())


def test_ticks_of_an_image(show: Callable[..., Any]) -> None:
    black = np.zeros((60, 80))
    named = {"limits": (0, 1), "colormap": "gray"}
    without = show(black, **named).snapshot()
    # The image is 960 wide and 720 high, in the middle.
    picture = show(black, extent=(-4, 4, 10, 40), axes=True).snapshot()
    row = lines(picture, without)[715, 162:1118]
    # A tick is where its number is.
    found = np.flatnonzero(row) + 162
    assert sorted({round((x + 0.5 - 160) / 960 * 8 - 4) for x in found}) == [-2, 0, 2]
    for x in found:
        at = (x + 0.5 - 160) / 960 * 8 - 4
        assert abs(at - round(at)) < 1.5 * 8 / 960, x
    column = np.flatnonzero(lines(picture, without)[:, 163])
    values = [40 - 30 * (y + 0.5) / 720 for y in column if y < 690]
    assert sorted({round(value) for value in values}) == [20, 30], values
    # Without an extent, pixels are counted from the top, and whole numbers are at their middles.
    picture = show(np.zeros((6, 8)), axes=True, **named).snapshot()
    bright = picture[715, 162:1118, :3].min(-1) > 100
    found = np.flatnonzero(bright) + 162
    assert sorted({round((x + 0.5 - 160) / 120 - 0.5) for x in found}) == [0, 2, 4, 6]
    # Enlarged four times around its middle.
    field = show(np.zeros((60, 80)), extent=(-4, 4, 10, 40), **named)
    field.camera = wavefield.Camera(0, 0, 3.3 / 4)
    found = np.flatnonzero(field.snapshot()[715, 5:1275, :3].min(-1) > 100) + 5
    ticks = sorted({round(2 * ((x + 0.5 - 640) / 3840 * 8)) / 2 for x in found})
    assert ticks == [-1, 0, 1], "of the part that is seen"


def check_axes(
    found: np.ndarray, camera: wavefield.Camera, ends: list[tuple[float, float]], numbers: Sequence[Mapping[Any, float]]
) -> None:
    """Check the lines and the ticks. `numbers`: of each axis, where ticks are in the camera's units."""
    (x0, x1), (y0, y1), (z0, z1) = ends
    # From a little above, to the right: the edges in front, and the upright one at the left.
    edges = [((x0, y0, z1), (x1, y0, z1)), ((x0, y0, z1), (x0, y1, z1)), ((x1, y0, z0), (x1, y0, z1))]
    for axis, edge in enumerate(edges):
        line = np.linspace(np.array(edge[0]), np.array(edge[1]), 41)
        pixels, _ = project(line, camera, 1280, 720)
        assert all(is_drawn(found, x, y) for x, y in pixels[2:-2]), axis
        middle, _ = project(np.mean([edge[0], edge[1]], 0)[None], camera, 1280, 720)
        centre, _ = project(np.mean(ends, 1)[None], camera, 1280, 720)
        along = np.subtract(*project(np.array(edge), camera, 1280, 720)[0])
        out = np.array([along[1], -along[0]]) / np.linalg.norm(along)
        out = out if out @ (centre - middle)[0] < 0 else -out
        for number, at in numbers[axis].items():
            place = np.array(edge[0])
            place[axis] = at
            tick, _ = project(place[None], camera, 1280, 720)
            assert is_drawn(found, *(tick[0] + 4 * out)), (axis, number)


@pytest.mark.parametrize("azimuth", [0.58, 0.3])
def test_axes_of_a_surface(show: Callable[..., Any], azimuth: float) -> None:
    heights = np.zeros((40, 60))
    named = {"kind": "surface", "limits": (0, 8), "extent": (100, 103, 20, 22), "colormap": "gray"}
    camera = wavefield.Camera(azimuth, 0.52, 3.3 * 1.5, (101.5, -0.3, 21))
    without = show(heights, camera=camera, **named).snapshot()
    picture = show(heights, camera=camera, axes=True, **named).snapshot()
    drawn = wavefield.Camera(azimuth, 0.52, 3.3, (0, -0.2, 0))
    numbers: list[dict[Any, float]] = [
        {x: (x - 101.5) / 1.5 for x in (100, 101, 102, 103)},
        {h: 0.6 * (h / 8 - 0.5) for h in (0, 2, 4, 6, 8)},
        {z: (z - 21) / 1.5 for z in (20.0, 20.5, 21.0, 21.5, 22.0)},
    ]
    check_axes(lines(picture, without), drawn, [(-1, 1), (-0.3, 0.3), (-2 / 3, 2 / 3)], numbers)


@pytest.mark.parametrize("offset", [0, 5_000_003])
def test_axes_of_points_have_the_arrays_numbers(show: Callable[..., Any], offset: int) -> None:
    rng = np.random.default_rng(2)
    places = rng.uniform(-1, 1, (200, 3)) * [40, 10, 20]
    places[:2] = [[-40, -10, -20], [40, 10, 20]]
    places += offset
    named = {"kind": "points", "size": 1, "colormap": np.zeros((256, 3))}
    without = show(places, **named).snapshot()
    field = show(places, axes=True)
    radius = math.hypot(40, 10, 20) / 1.1
    ends = [(-side / radius, side / radius) for side in (40.0, 10.0, 20.0)]
    # The round numbers of the array between its ends.
    steps = {40: 20, 10: 5, 20: 10}
    numbers = [
        {at: at / radius for at in range(-side, side + 1) if (at + offset) % step == 0} for side, step in steps.items()
    ]
    assert [len(there) for there in numbers] == ([5, 5, 5] if offset == 0 else [4, 4, 4])
    check_axes(lines(field.snapshot(), without), wavefield.Camera(0.58, 0.52, 3.3), ends, numbers)
    # A given camera needs no fit, but axes do.
    camera = wavefield.Camera(0.58, 0.52, 3.3)
    unit = show(np.array([[-0.5] * 3, [0.5] * 3], np.float32), kind="points", camera=camera)
    flat = np.zeros_like(without)
    check_axes(lines(unit.snapshot(), flat), camera, [(-0.5, 0.5)] * 3, [{0.0: 0.0}] * 3)
