"""Several arrays with colour maps, norms, bars and axes of their own; films and pictures of any size have them, too."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wavefield
from test_end_to_end import WHY_NOT
from test_film import write_encoder
from test_look import show
from test_marks import IMAGE, TABLE, bar_of
from wavefield import Camera

pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")

__all__ = ["show"]

OTHER = np.stack([np.full(256, 90), np.arange(256), np.arange(256)], 1).astype(np.uint8)
CLOUD = np.random.default_rng(4).normal(size=(300, 4))


def colours_of(picture: np.ndarray, table: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Return by how much the middles of an image's pixels, 40 by 30 in a whole picture, are not as computed."""
    rows, cols = part.shape
    height, width = picture.shape[:2]
    side = min(width / cols, height / rows)
    y = height / 2 + (np.arange(rows) - rows / 2 + 0.5) * side
    x = width / 2 + (np.arange(cols) - cols / 2 + 0.5) * side
    found = picture[y.astype(int)[:, None], x.astype(int)[None], :3].astype(int)
    want = table[np.clip(256 * part, 0, 255).astype(int)].astype(int)
    return np.asarray(abs(found - want).max(-1))


def test_each_view_has_its_map_its_norm_its_bar_and_its_axes(show: Callable[..., Any]) -> None:
    p = 10 ** np.linspace(-2, 2, 1200).reshape(30, 40)
    v = np.linspace(-3, 3, 1200).reshape(30, 40)[::-1]
    arrays: dict[str, Any] = {
        "p": {"array": p, "colormap": TABLE, "norm": "log", "limits": (0.01, 100), "label": "p / Pa"},
        "v": {"array": v, "colormap": OTHER, "extent": (0, 8, 0, 6)},
    }
    field = show(arrays, columns=2)
    bare = field.render(size=(1280, 720)).to_numpy()
    parts = (np.log10(p) + 2) / 4, (v + 3) / 6
    for number, (table, part) in enumerate(zip((TABLE, OTHER), parts, strict=True)):
        assert colours_of(bare[:, 640 * number : 640 * (number + 1)], table, part).max() <= 3, number
    picture = show(arrays, columns=2, colorbar=True, axes=True).snapshot()
    halves = picture[:, :640], picture[:, 640:]
    # The bars are at the right of each view; the image's middle is at 320, and its own colours are elsewhere.
    for half, table in zip(halves, (TABLE, OTHER), strict=True):
        assert bar_of(half[:, 500:], table).stop > 60
    # The image is 640 by 480: its left edge is a line, with ticks at 0, 10 and 20, and 2, 4 and 6.
    rows: list[list[float]] = [[0.5, 10.5, 20.5], [5 * (6 - y) for y in (2, 4, 6)]]
    for half, bare_half, ticks in zip(halves, (bare[:, :640], bare[:, 640:]), rows, strict=True):
        column = (half[:, 4, :3].min(-1) > 150) & (half[:, 4] != bare_half[:, 4]).any(-1)
        found = np.flatnonzero(column[:590])
        for tick in ticks:
            assert abs(found - (120 + 16 * tick)).min() <= 1.5, (tick, found)
    # Only where they are asked for; and what was said of the arrays stays with them.
    again = show({"p": p, "v": v}, columns=2, colorbar=False, axes=False)
    assert again._others[0].label == "" and again.parameters["label"] == "p / Pa"
    assert (abs(again.render(size=(1280, 720)).to_numpy().astype(int) - bare) <= 1).all()


def test_what_is_given_for_all_holds_for_all(show: Callable[..., Any]) -> None:
    v = np.linspace(-3, 3, 1200).reshape(30, 40)
    arrays: dict[str, Any] = {"a": v, "b": {"array": v, "invert": True}, "c": {"array": v, "colormap": "gray_r"}}
    field = show(arrays, columns=3, colormap=OTHER, limits=(-6, 6))
    picture = field.render(size=(1200, 400)).to_numpy()
    part = (v + 6) / 12
    gray = np.arange(256)[:, None].repeat(3, 1)
    wanted: list[tuple[np.ndarray, np.ndarray]] = [(OTHER, part), (OTHER, 1 - part), (gray, 1 - part)]
    for number, (table, place) in enumerate(wanted):
        assert colours_of(picture[:, 400 * number : 400 * (number + 1)], table, place).max() <= 3, number
    # The user changes the colour map in the window: those without one of their own follow.
    field._field.parameters.update(colormap="gray")
    picture = field.render(size=(1200, 400)).to_numpy()
    for number, place in enumerate([part, 1 - part, 1 - part]):
        assert colours_of(picture[:, 400 * number : 400 * (number + 1)], gray, place).max() <= 3, number


def test_bars_of_one_view_are_side_by_side(show: Callable[..., Any]) -> None:
    arrays = {"left": {"array": CLOUD, "colormap": TABLE}, "right": {"array": CLOUD + [3, 0, 0, 9], "colormap": OTHER}}
    picture = show(arrays, colorbar=True).snapshot()
    bars = [bar_of(picture, table) for table in (TABLE, OTHER)]
    assert bars[0].stop + 20 < bars[1].start, "in the order of the arrays"
    # Without a bar, where points have colours.
    picture = show({**arrays, "left": {"array": CLOUD, "colors": "red"}}, colorbar=True).snapshot()
    assert bar_of(picture, OTHER)
    with pytest.raises(AssertionError):
        bar_of(picture, TABLE)


def test_surfaces_of_one_view_have_one_scale_of_height(show: Callable[..., Any]) -> None:
    flat = np.zeros((20, 30))
    # Along the axis of the camera, the upper plane is nearer by its height over the sine of the elevation.
    camera = Camera(0, 0.9, 4.0)
    for kinds in ({}, {"a": "uint8"}):
        arrays = {name: (flat + height).astype(kinds.get(name, "float64")) for name, height in {"a": 0, "b": 5}.items()}
        field = show(arrays, kind="surface", camera=camera)
        depth = float(field.render("depth", size=(101, 101)).to_numpy()[50, 50, 0])
        assert depth == pytest.approx(4 - 0.3 / math.sin(0.9), rel=1e-4)
        field = show({"b": arrays["b"], "a": arrays["a"]}, kind="surface", limits=(0, 10))
        assert float(field.render("depth", size=(101, 101)).to_numpy()[50, 50, 0]) == pytest.approx(4.0, rel=1e-4)
    # A new range is that of all.
    field = show({"a": flat, "b": flat + 500}, kind="surface", limits="auto")
    assert field.parameters["limits"] == (0, 500) == field._others[0].choice.limits
    both = {name: {"array": flat, "kind": "surface"} for name in "ab"}
    both["b"]["limits"] = (0, 1)
    assert show(both).parameters["limits"] == (0, 1)
    both["a"]["limits"] = (0, 2)
    with pytest.raises(ValueError, match='"a" and "b" have different limits, and one view has one scale of height'):
        show(both)
    show(both, columns=2)
    for name, extent in {"a": (0, 1, 0, 1), "b": (0, 2, 0, 1)}.items():
        both[name] = {"array": flat, "kind": "surface", "extent": extent}
    with pytest.raises(wavefield.ArrayMismatch, match='"a" and "b" have different extents'):
        show(both)
    with pytest.raises(wavefield.ArrayMismatch, match='"a" has 30 numbers and "b" 20, and line plots in one view'):
        show({"a": flat[0], "b": flat[:, 0]})


def test_a_film_has_what_a_saved_picture_has(
    show: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_encoder(tmp_path, monkeypatch)
    field = show(IMAGE, limits=(0, 100), colormap=TABLE)
    with field.record(tmp_path / "film.mp4", size=(1280, 720)):
        show(IMAGE)
        show(IMAGE, colorbar=True)
        show(IMAGE)
        show(IMAGE, colorbar=False)
    film = np.frombuffer((tmp_path / "film.mp4").read_bytes(), np.uint8).reshape(-1, 720, 1280, 4)
    assert len(film) == 4
    assert bar_of(film[1], TABLE) == bar_of(film[2], TABLE)
    for bare in (film[0], film[3]):
        with pytest.raises(AssertionError):
            bar_of(bare, TABLE)


@pytest.mark.parametrize("size", [(640, 400), (1920, 1080)])
def test_a_picture_of_another_size(show: Callable[..., Any], tmp_path: Path, size: tuple[int, int]) -> None:
    image = pytest.importorskip("PIL.Image")
    part = np.linspace(0, 1, 1200).reshape(30, 40)
    field = show(100 * part, limits=(0, 100), colormap=OTHER)
    for named in ({}, {"colorbar": True}):
        field = show(100 * part, **named)
        field.save(tmp_path / "picture.png", size=size)
        with image.open(tmp_path / "picture.png") as saved:
            picture = np.asarray(saved)
        assert picture.shape == (size[1], size[0], 4)
        off = colours_of(picture, OTHER, part)
        assert (off <= 3).mean() > 0.9, "but where the bar is"
        assert (off.max() <= 3) == (not named or size[0] == 1920)
    # A scale of 1.5 for 1080 rows; 40 % of 400.
    scale = max(1.0, size[1] / 720)
    high = round(scale * min(220, 0.4 * size[1] / scale))
    top = round(16 * scale)
    rows = OTHER[(256 * (1 - (np.arange(high) + 0.5) / high)).astype(int)].astype(int)
    near = abs(picture[top : top + high, :, :3].astype(int) - rows[:, None]).max((0, 2)) <= 6
    assert abs(near.sum() - 14 * scale) <= 1
    with pytest.raises(ValueError, match="the size of a picture is"):
        field.snapshot(size=(0, 3))
    assert field.snapshot().shape == (720, 1280, 4), "that on screen stays"


@pytest.mark.parametrize(
    ("color", "want"),
    [("orange", (255, 165, 0)), ("#1e90ff", (30, 144, 255)), ((0, 1, 0.2), (0, 255, 51)), ([200, 0, 7], (200, 0, 7))],
)
def test_one_colour_for_all(show: Callable[..., Any], color: Any, want: tuple[int, ...]) -> None:
    field = show(CLOUD, colors=color, sizes=9)
    index, picture = (field.render(kind, size=(300, 200)).to_numpy() for kind in ("index", "color"))
    inner = index[..., 0] >= 0
    assert inner.sum() > 1000
    off = abs(picture[inner][:, :3].astype(int) - want).max(1)
    # The rest is at edges.
    assert (off <= 1).mean() > 0.7
    assert (abs(picture[~inner][:, :3].astype(int) - want).max(1) > 60).all()
