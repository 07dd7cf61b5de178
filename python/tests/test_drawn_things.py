"""Several arrays in one view and in a grid of views: the real renderer's pictures, and computed ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wavefield
from projection import project
from test_drawn_parts import BYTES, CLOUD, FAR, agree, fresh, nearest, show
from test_end_to_end import WHY_NOT
from wavefield import Camera

__all__ = ["fresh"]
# Not that of `test_drawn_parts`, whose pictures would change.
RANDOM = np.random.default_rng(57)
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
OTHER = 1.4 * RANDOM.normal(size=(200, 3))
OTHER_BYTES = RANDOM.integers(0, 256, (200, 3), np.uint8)
TABLE = RANDOM.integers(0, 256, (7, 9, 3), np.uint8)


def discs(cloud: np.ndarray, sizes: Any, camera: Camera, size: tuple[int, int]) -> np.ndarray:
    """Return the depth of each dot at each pixel of a picture, row by row, or infinity."""
    width, height = size
    middles = np.stack(np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5), -1).reshape(-1, 2)
    at, deep = project(cloud, camera, width, height)
    away = np.hypot(*(middles[:, None] - at[None]).transpose(2, 0, 1))
    return np.where((away <= np.broadcast_to(sizes, len(cloud)) / 2), deep, np.inf)


def seen(field: Any, size: tuple[int, int], camera: Camera | None = None) -> tuple[np.ndarray, ...]:
    return tuple(np.array(one).squeeze() for one in field.render("index", "depth", "color", size=size, camera=camera))


@pytest.mark.parametrize("offset", [0.0, FAR], ids=["here", "far"])
def test_clouds_in_one_view_hide_each_other(offset: Any) -> None:
    sizes = RANDOM.uniform(2, 12, 300)
    one = {"array": CLOUD + offset, "colors": BYTES, "sizes": sizes}
    field: Any = show({"one": one, "other": {"array": OTHER + offset, "colors": OTHER_BYTES, "size": 11}})
    size, camera = (260, 180), field.camera
    index, depth, color = seen(field, size)
    depths = [discs(CLOUD + offset, sizes, camera, size), discs(OTHER + offset, 11, camera, size)]
    wanted, deep = nearest(np.hstack(depths))
    assert min((wanted >= 300).sum(), (wanted >= 0).sum() - (wanted >= 300).sum()) > 1000, "both are seen"
    same = agree(index.ravel(), wanted, 0.01)
    np.testing.assert_allclose(depth.ravel()[same], deep[same], rtol=1e-4)
    every = np.vstack([BYTES, OTHER_BYTES]).astype(int)
    off = abs(color.reshape(-1, 4)[same][:, :3] - every[wanted[same]]).max(1)
    assert (off <= 1).mean() > 0.999
    # The other order of names is the same picture, and the same arrays again, moved, are another.
    again = show({"other": {"array": OTHER + offset, "colors": OTHER_BYTES, "size": 11}, "one": {**one, "size": 3}})
    assert (seen(again, size, camera)[2] == color).all(2).mean() > 0.999
    moved = {**one, "array": CLOUD + offset + [0.3, 0, 0]}
    field = show({"other": {"array": OTHER + offset, "colors": OTHER_BYTES, "size": 11}, "one": moved})
    depths[0] = discs(CLOUD + offset + [0.3, 0, 0], sizes, camera, size)
    _, deep = nearest(np.hstack(depths))
    depth = seen(field, size, camera)[1].ravel()
    assert (np.isclose(depth, deep, rtol=1e-4) | (np.isinf(depth) & np.isinf(deep))).mean() > 0.995


def test_a_grid_has_the_view_of_each_array() -> None:
    """The picture is 261 by 181, so views differ in size; and the last row is not full."""
    arrays: dict[str, Any] = {
        "cloud": {"array": CLOUD, "colors": BYTES, "size": 7},
        "far": {"array": OTHER + FAR, "colors": OTHER_BYTES, "size": 9},
        "table": TABLE,
    }
    size = (261, 181)
    field = show(arrays, columns=2)
    index, depth, color = seen(field, size)
    cells = [(slice(0, 90), slice(0, 130)), (slice(0, 90), slice(130, 261)), (slice(90, 181), slice(0, 130))]
    drawn = field._fit.to_drawn(field.camera)
    fits = [field._fit, *(look.fit for look in field._others)]
    clouds = [(CLOUD, 7, BYTES), (OTHER + FAR, 9, OTHER_BYTES)]
    # Elements are counted through all arrays.
    firsts = [0, len(CLOUD), len(CLOUD) + len(OTHER)]
    for first, cell in zip(firsts, cells, strict=True):
        index[cell] = np.where(index[cell] >= 0, index[cell] - first, -1)
    for (cloud, diameter, colors), fit, cell in zip(clouds, fits, cells, strict=False):
        high, wide = index[cell].shape
        camera = fit.to_true(drawn)
        wanted, deep = nearest(discs(cloud, diameter, camera, (wide, high)))
        same = agree(index[cell].ravel(), wanted, 0.02)
        np.testing.assert_allclose(depth[cell].ravel()[same], deep[same], rtol=1e-4)
        assert (abs(color[cell].reshape(-1, 4)[same][:, :3] - colors[wanted[same]].astype(int)).max(1) <= 1).all()
    # The table fills its view, which is 130 by 91: it is nearer than usual, and its middle is in the view's middle.
    pixels = min(130 / 9, 91 / 7) * 3.3 / drawn.distance
    shift = np.array([-drawn.target[0], drawn.target[1]]) * pixels * 4.5
    x, y = np.arange(130) + 0.5, np.arange(91) + 0.5
    col = np.floor((x - 65 - shift[0]) / pixels + 4.5).astype(int)
    row = np.floor((y - 45.5 - shift[1]) / pixels + 3.5).astype(int)
    inside = ((col >= 0) & (col < 9))[None] & ((row >= 0) & (row < 7))[:, None]
    wanted = np.where(inside, 9 * row.clip(0, 6)[:, None] + col.clip(0, 8), -1)
    same = agree(index[cells[2]].ravel(), wanted.ravel(), 0.02)
    off = abs(color[cells[2]].reshape(-1, 4)[same][:, :3] - TABLE.reshape(-1, 3)[wanted.ravel()[same]].astype(int))
    assert (off.max(1) <= 1).mean() > 0.9, "but at edges"
    # Nothing is in the last view.
    rest = (slice(90, 181), slice(130, 261))
    assert (index[rest] == -1).all() and np.isinf(depth[rest]).all() and (color[rest][..., :3] < 64).all()
    # Each is what the array alone is in this size.
    for cell, fit, arguments in zip(cells, fits, arrays.values(), strict=True):
        entry = arguments if isinstance(arguments, dict) else {"array": arguments}
        alone = show(entry["array"], **{name: value for name, value in entry.items() if name != "array"})
        high, wide = index[cell].shape
        pictures = seen(alone, (wide, high), alone._fit.to_true(drawn) if fit.sort else fit.to_true(drawn))
        assert (pictures[0] == index[cell]).all()
        assert (pictures[1] == depth[cell]).all()
        assert (abs(pictures[2].astype(int) - color[cell]) <= 1).all()


def test_each_array_has_its_limits_and_all_are_saved_on_screen() -> None:
    """Also many cameras at once, and more arrays than before in a session."""
    ramp = np.linspace(0, 1, 30, dtype=np.float32)[None].repeat(20, 0)
    arrays: dict[str, Any] = {"up": ramp, "down": {"array": ramp, "limits": (1, 0)}, "far": 1000 * ramp}
    field = show(arrays, columns=3)
    picture = np.array(field.snapshot())
    high, wide = picture.shape[:2]
    assert (high, wide) == (720, 1280)
    views = [picture[:, wide * n // 3 : wide * (n + 1) // 3, :3] for n in range(3)]
    # In the middle of a block of the same colour.
    columns = [[view[360, int(426 * (n + 0.5) / 30)].astype(int) for n in range(30)] for view in views]
    up, down, far = map(np.array, columns)
    assert abs(up - down[::-1]).max() <= 2 and abs(up - far).max() <= 2 and abs(up - down).max() > 100
    # Each view has its name at its corner, and nothing else is over it: the same view without is a ramp.
    bare = np.array(field.render(size=(wide, high)))[..., :3].astype(int)
    written = (abs(picture[..., :3] - bare) > 8).any(2)
    for number, name in enumerate(arrays):
        ys, xs = np.nonzero(written[:, wide * number // 3 : wide * (number + 1) // 3])
        assert 4 <= xs.min() <= 10 and ys.min() >= 4 and ys.max() < 30, name
        assert 4 * len(name) < xs.max() < 8 + 11 * len(name), "as long as the name"
    # viridis from end to end.
    assert abs(up[0] - [68, 1, 84]).max() <= 6 and abs(up[-1] - [253, 231, 37]).max() <= 6
    show({**arrays, "down": {"array": ramp, "limits": (0, 1)}}, columns=3)
    picture = np.array(field._field.snapshot())
    down = np.array([picture[360, 426 + int(426 * (n + 0.5) / 30), :3].astype(int) for n in range(30)])
    assert abs(up - down).max() <= 2
    many = {f"array {number}": ramp + number for number in range(16)}
    field = show(many, columns=4)
    cameras = [Camera(0, 0, 3.3), Camera(0, 0, 6.6)]
    near, distant = np.array(field.render("index", cameras=cameras, size=(160, 120)))
    assert (near >= 0).mean() > 1.8 * (distant >= 0).mean() > 0
    assert (near[90:, 120:] - near[:30, :40] == np.where(near[:30, :40] >= 0, 15 * ramp.size, 0)).all() and (
        near[:30, :40] >= 0
    ).any()


def test_the_renderer_goes_on_after_what_it_refuses() -> None:
    pair: dict[str, Any] = {"a": CLOUD, "b": {"array": CLOUD, "size": 99}}
    with pytest.raises(wavefield.Refused, match="`more` 0: size 99"):
        show(pair)
    field = show({"a": CLOUD, "b": CLOUD})
    assert (np.array(field.render("index", size=(50, 40))) >= 0).any()
