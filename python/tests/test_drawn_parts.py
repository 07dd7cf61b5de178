"""Points with colours and sizes, triangles, lines, arrows, plots: the real renderer's pictures, and computed ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wavefield
from projection import project
from test_end_to_end import WHY_NOT
from wavefield import Camera, _show

pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
RANDOM = np.random.default_rng(56)
WIDTH, HEIGHT = SIZE = (260, 180)
MIDDLES = np.stack(np.meshgrid(np.arange(WIDTH) + 0.5, np.arange(HEIGHT) + 0.5), -1).reshape(-1, 2)
HALF = np.tan(0.36)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("wavefield._say.said", set())
    yield
    if _show._shower is not None:
        _show._shower.close()
        _show._shower = None


def show(array: Any, **options: Any) -> _show.Showing:
    return wavefield.show(array, memory="host", window=False, **options)


def pictures(field: _show.Showing, camera: Camera, *kinds: Any) -> list[np.ndarray]:
    """Return pictures with a row for each pixel."""
    found = field.render(*kinds, camera=camera, size=SIZE)
    return [np.array(picture).reshape(WIDTH * HEIGHT, -1).squeeze() for picture in found]


def linear(srgb: np.ndarray) -> np.ndarray:
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def encoded(light: np.ndarray) -> np.ndarray:
    light = light.clip(0, 1)
    return 255 * np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)


def nearest(depths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which of each pixel's depths is the least, -1 for none, and that depth."""
    number = depths.argmin(1)
    depth = depths[np.arange(len(depths)), number]
    return np.where(np.isfinite(depth), number, -1), depth


def agree(index: np.ndarray, wanted: np.ndarray, part: float) -> np.ndarray:
    """Check that all but a part of the pixels have the element that is wanted, and return which do and have one."""
    assert (wanted >= 0).mean() > 0.02, "something is seen"
    same = index == wanted
    assert (~same).sum() <= part * (wanted >= 0).sum(), f"{(~same).sum()} of {(wanted >= 0).sum()}"
    return np.asarray(same & (wanted >= 0))


CLOUD = RANDOM.normal(size=(300, 3))
BYTES = RANDOM.integers(0, 256, (300, 3), np.uint8)
FAR = np.array([5e6, -300.0, 4e5])


@pytest.mark.parametrize(
    ("colors", "offset"),
    [
        (BYTES, 0.0),
        (BYTES / 255, FAR),
        ((BYTES / 255).astype(np.float32), 0.0),
        ((BYTES / 255).astype(np.float16), 0.0),
        (BYTES.astype(np.int64), FAR),
        (BYTES.astype(">u2"), 0.0),
        (np.hstack([BYTES, np.full((300, 1), 255, np.uint8)]), 0.0),
        (BYTES[:, ::-1].tolist(), 0.0),
    ],
    ids=["uint8", "float64", "float32", "float16", "int64", "big-endian", "RGBA", "list"],
)
def test_points_have_their_colours_and_sizes(colors: Any, offset: Any) -> None:
    cloud = CLOUD + offset
    cloud[7], cloud[8, 1] = np.nan, np.inf
    sizes = RANDOM.uniform(0, 30, 300)
    sizes[:9] = 0
    field = show(cloud, colors=colors, sizes=sizes)
    assert field.shown == wavefield.Shown.COPIED
    camera = field.camera
    index, depth, color = pictures(field, camera, "index", "depth", "color")
    with np.errstate(invalid="ignore"):
        at, deep = project(cloud, camera, WIDTH, HEIGHT)
        away = np.hypot(*(MIDDLES[:, None] - at[None]).transpose(2, 0, 1))
        inside = (away <= np.maximum(sizes / 2, 0.71)) & (sizes > 0)
    wanted, _ = nearest(np.where(inside & np.isfinite(deep), deep, np.inf))
    same = agree(index, wanted, 0.01)
    np.testing.assert_allclose(depth[same], deep[wanted[same]], rtol=1e-4)
    rgb = np.asarray(colors, np.float64)[:, :3] * (255 if np.asarray(colors).dtype.kind == "f" else 1)
    assert abs(color[same][:, :3] - rgb[wanted[same]]).max() <= 1


KEY, SKY, GROUND = np.array([-0.46, 0.74, 0.49]), np.array([0.62, 0.72, 0.92]), np.array([0.20, 0.16, 0.22])
KEY_COLOUR = np.array([1.00, 0.95, 0.87])


def lit(base: np.ndarray, normal: np.ndarray, to_eye: np.ndarray) -> np.ndarray:
    """Return the light of light.wgsl."""
    ambient = GROUND + (SKY - GROUND) * (0.5 + 0.5 * normal[:, 1:2])
    half = KEY + to_eye
    half /= np.linalg.norm(half, axis=1)[:, None]
    diffuse = (normal @ KEY).clip(0)[:, None] * KEY_COLOUR
    gloss = ((normal * half).sum(1).clip(0) ** 48 * 0.30)[:, None] * KEY_COLOUR
    rim = ((1 - (normal * to_eye).sum(1).clip(0)) ** 4 * 0.22)[:, None] * SKY
    return np.asarray(base * (0.42 * ambient + 0.95 * diffuse) + gloss + rim)


def eye_and_rays(camera: Camera) -> tuple[np.ndarray, np.ndarray]:
    """Return the eye, and each pixel's direction, whose length along the axis is 1."""
    (sin_a, cos_a), (sin_e, cos_e) = ((np.sin(t), np.cos(t)) for t in (camera.azimuth, camera.elevation))
    back, right = np.array([sin_a * cos_e, sin_e, cos_a * cos_e]), np.array([cos_a, 0.0, -sin_a])
    across = (MIDDLES - [WIDTH / 2, HEIGHT / 2]) / HEIGHT * 2 * HALF
    rays = across[:, :1] * right - across[:, 1:] * np.cross(back, right) - back
    return np.array(camera.target) + camera.distance * back, rays


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint16])
@pytest.mark.parametrize("offset", [0.0, FAR], ids=["here", "far"])
def test_triangles_are_where_rays_meet_them(dtype: Any, offset: Any) -> None:
    corners = RANDOM.normal(size=(60, 3))
    corners[11, 2] = np.nan
    faces = np.stack([RANDOM.permutation(60) for _ in range(2)]).reshape(-1, 3).astype(dtype)
    colors = RANDOM.random((60, 3))
    field = show(corners + offset, faces=faces, colors=colors)
    camera = field.camera
    index, depth, normal, color = pictures(field, camera, "index", "depth", "normal", "color")
    eye, rays = eye_and_rays(camera)
    a, b, c = (corners + offset)[faces].transpose(1, 0, 2)
    normals = np.cross(b - a, c - a)
    # Moeller and Trumbore.
    with np.errstate(all="ignore"):
        across = np.cross(rays[:, None], (c - a)[None])
        scale = (across * (b - a)).sum(2)
        u = (across * (eye - a)).sum(2) / scale
        other = np.cross(eye - a, b - a)
        v = (rays[:, None] * other).sum(2) / scale
        t = ((c - a) * other).sum(1) / scale
        hit = (u >= 0) & (v >= 0) & (u + v <= 1) & (t > 0) & np.isfinite(a + b + c).all(1)
    wanted, deep = nearest(np.where(hit, t, np.inf))
    same = agree(index, wanted, 0.02)
    np.testing.assert_allclose(depth[same], deep[same], rtol=2e-4)
    face = wanted[same]
    up = normals[face] / np.linalg.norm(normals[face], axis=1)[:, None]
    up *= -np.sign((up * rays[same]).sum(1))[:, None]
    np.testing.assert_allclose(normal[same][:, :3], up, atol=1e-3)
    assert (normal[same][:, 3] == 1).all()
    rows = np.flatnonzero(same)
    share = np.stack([1 - (u + v)[rows, face], u[rows, face], v[rows, face]], 1)
    base = (share[:, :, None] * linear(colors)[faces[face].astype(int)]).sum(1)
    to_eye = -rays[same] / np.linalg.norm(rays[same], axis=1)[:, None]
    off = abs(color[same][:, :3] - encoded(lit(base, up, to_eye))).max(1)
    # A pixel at an edge has the colours of several triangles.
    assert (off[inner(wanted)[same]] <= 2).mean() > 0.97


def inner(index: np.ndarray) -> np.ndarray:
    """Return which pixels have the same element as their neighbours."""
    there = np.pad(index.reshape(HEIGHT, WIDTH), 1, constant_values=-2)
    steps = [(y, x) for y in range(3) for x in range(3)]
    return np.asarray(np.all([there[y : y + HEIGHT, x : x + WIDTH].ravel() == index for y, x in steps], 0))


def segments(
    a: np.ndarray, b: np.ndarray, camera: Camera, width: float, is_arrow: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each pixel and line, the depth, or infinity; and how far it is along the line in the picture."""
    (p, deep_p), (q, deep_q) = (project(place, camera, WIDTH, HEIGHT) for place in (a, b))
    step, from_p = q - p, MIDDLES[:, None] - p[None]
    along = (from_p * step).sum(2) / (step * step).sum(1)
    part = along.clip(0, 1)
    away = np.hypot(*(from_p - part[:, :, None] * step).transpose(2, 0, 1))
    inside = away <= width / 2
    if is_arrow:
        long = np.hypot(*step.T)
        head, to_tip = np.minimum(0.4 * long, 5 * width), (1 - along) * long
        inside = np.where(to_tip < head, (to_tip >= 0) & (away <= to_tip / 2), inside)
    return np.where(inside, 1 / ((1 - part) / deep_p + part / deep_q), np.inf), part


@pytest.mark.parametrize("case", ["one after another", "edges", "vectors"])
@pytest.mark.parametrize("offset", [0.0, FAR], ids=["here", "far"])
def test_lines_have_their_width_depth_and_colours(case: str, offset: Any) -> None:
    places = RANDOM.normal(size=(40, 3)) + offset
    colors, size = RANDOM.integers(0, 256, (40, 3), np.uint8), 6.0
    if case == "edges":
        edges = RANDOM.integers(0, 40, (25, 2))
        edges = edges[edges[:, 0] != edges[:, 1]]
        field = show(places, edges=edges, colors=colors, size=size)
        first, (a, b), ends = edges[:, 0], places[edges].transpose(1, 0, 2), colors[edges]
    elif case == "vectors":
        vectors = RANDOM.normal(size=(40, 3))
        vectors[3], vectors[4, 1] = 0, np.nan
        field = show(places, vectors=vectors, colors=colors, size=size)
        first = np.array([number for number in range(40) if number not in (3, 4)])
        a, b, ends = places[first], (places + vectors)[first], np.stack([colors[first]] * 2, 1)
    else:
        places[20] = np.nan
        field = show(places, kind="lines", colors=colors, size=size)
        first = np.array([number for number in range(39) if number not in (19, 20)])
        a, b, ends = places[first], places[first + 1], np.stack([colors[first], colors[first + 1]], 1)
    camera = field.camera
    index, depth, normal, color = pictures(field, camera, "index", "depth", "normal", "color")
    depths, along = segments(a, b, camera, size, case == "vectors")
    which, deep = nearest(depths)
    wanted = np.where(which >= 0, first[which], -1)
    # Where two end in one point, either is nearest.
    of_index = np.where(first[None] == index[:, None], depths, np.inf).min(1)
    wanted = np.where(of_index < 1.01 * deep, index, wanted)
    same = agree(index, wanted, 0.02) & (which >= 0) & (first[which] == index)
    # Beyond the middle of an end, a depth is nearly the end's.
    assert (abs(depth[same] / deep[same] - 1) < 2e-3).mean() > 0.98
    eye, _ = eye_and_rays(camera)
    axis = (np.array(camera.target) - eye) / camera.distance
    np.testing.assert_allclose(normal[same][:, :3], np.broadcast_to(-axis, (same.sum(), 3)), atol=1e-5)
    # In perspective.
    part, number = along[np.arange(len(which)), which][same], which[same]
    share = part / project(b, camera, WIDTH, HEIGHT)[1][number] * deep[same]
    light = linear(ends[number] / 255)
    mixed = (1 - share[:, None]) * light[:, 0] + share[:, None] * light[:, 1]
    off = abs(color[same][:, :3] - encoded(mixed)).max(1)
    # A pixel at an edge shows the background, too.
    assert (off[inner(index)[same]] <= 3).mean() > 0.9


@pytest.mark.parametrize("offset", [0.0, 1e12], ids=["here", "far"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_values_are_plotted_over_their_indices(dtype: Any, offset: float) -> None:
    if offset and dtype != np.float64:
        pytest.skip("the type has no such number")
    values = (100 * np.sin(np.linspace(0, 9, 70)) + offset).astype(dtype)
    if dtype != np.int32:
        values[30:33] = np.nan
    field = show(values, size=5)
    assert (field.kind, field.shape) == ("lines", (70,))
    index, depth, normal = pictures(field, field.camera, "index", "depth", "normal")
    low, high = np.nanmin(values), np.nanmax(values)
    assert field.parameters["limits"] == (low, high)
    # Nine tenths of the picture.
    x = WIDTH * (0.05 + 0.9 * np.arange(70) / 69)
    y = HEIGHT * (0.95 - 0.9 * (values.astype(np.longdouble) - low).astype(float) / float(high - low))
    p = np.stack([x, y], 1)
    first = np.array([n for n in range(69) if not np.isnan(values[n : n + 2].astype(float)).any()])
    step, from_p = p[first + 1] - p[first], MIDDLES[:, None] - p[first][None]
    along = ((from_p * step).sum(2) / (step * step).sum(1)).clip(0, 1)
    away = np.hypot(*(from_p - along[:, :, None] * step).transpose(2, 0, 1))
    covered = (away <= 2.5).any(1)
    assert (covered != (index >= 0)).sum() <= 0.02 * covered.sum()
    both = covered & (index >= 0)
    # Where two meet, it is one of them.
    at = np.searchsorted(first, index[both])
    assert (away[both, at] <= 2.6).all()
    assert (depth[both] == np.float32(3.3)).all()
    assert (normal[both] == [0, 0, 1, 1]).all()


def test_all_kinds_in_one_session_are_saved(tmp_path: Path) -> None:
    """One renderer shows all of them, one after another, and goes on after what is wrong."""
    cloud = CLOUD.astype(np.float32)
    shown = [
        show(cloud, colors=BYTES),
        show(cloud, sizes=4),
        show(cloud, faces=np.arange(300).reshape(-1, 3)),
        show(cloud, kind="lines"),
        show(cloud[:, 0]),
    ]
    with pytest.raises(wavefield.ArrayMismatch, match="faces has the index 300"):
        show(cloud, faces=[[0, 1, 300]])
    assert shown[1].parameters["size"] == 4
    shown.append(show(cloud, faces=[[0, 1, 299]]))
    shown[-1].save(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000
    assert len({field.server for field in shown}) == 1


def test_later_indices_that_lead_nowhere_are_left_out() -> None:
    """Only the first array of a layout is looked at. The renderer looks at all of them."""
    corners = np.array([[-1, -1, 0], [1, -1, 0], [0, 1, 0], [2, 2, 0]], np.float32)
    show(corners, faces=np.array([[0, 1, 2], [1, 2, 3]]))
    field = show(corners, faces=np.array([[0, 1, 2], [1, 2, 4]]))
    index = np.array(field.render("index", size=SIZE))
    assert set(np.unique(index)) == {-1, 0}
    field = show(corners, faces=np.array([[0, 1, 2**40], [1, 2, -1]]))
    assert set(np.unique(np.array(field.render("index", size=SIZE)))) == {-1}


def test_frames_have_their_parts_in_place() -> None:
    corners = np.array([[-1, -1, 0], [1, -1, 0], [0, 1, 0], [2, 2, 0]], np.float32)
    faces, colors = np.array([[0, 1, 2], [1, 2, 3]], np.int32), BYTES[:4]
    wanted = np.array(show(corners, faces=faces, colors=colors).snapshot())
    with wavefield.launch(
        memory="host",
        shape=(4, 3),
        parts={"faces": (2, 3), "colors": ((4, 3), "uint8")},
        arguments=["--size", "1280x720"],
    ) as field:
        assert field.kind == "triangles"
        for frame in field.frames(3):
            frame[...] = corners
            frame.faces[...] = faces
            kept = frame.colors.as_numpy()
            kept[...] = colors
        assert not kept.flags.writeable
        first = field.snapshot()
        own = field.empty()
        for part, array in ((own, corners), (own.faces, faces), (own.colors, colors)):
            np.asarray(part)[...] = array
        assert field.show(own) == wavefield.Shown.WITHOUT_COPY
        second = field.snapshot()
        assert field.show(corners, faces=faces, colors=colors) == wavefield.Shown.COPIED
        third = field.snapshot()
    # The light of a pixel at an edge may be any of two triangles'.
    for picture in (first, second, third):
        assert (abs(picture.astype(int) - wanted).max(2) > 2).mean() < 0.001
