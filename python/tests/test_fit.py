"""Points and meshes of any size and place are in the picture, and cameras are in the user's units."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import wavefield
from fake_renderer import FakeRenderer
from projection import project
from test_end_to_end import WHY_NOT
from wavefield import _launch, _show
from wavefield._memory.layout import Kind

pytestmark = pytest.mark.usefixtures("started")
RANDOM = np.random.default_rng(51)
NORMAL = RANDOM.normal(size=(500, 3))
SPHERE = NORMAL / np.linalg.norm(NORMAL, axis=1)[:, None]
UTM = np.array([500_000.0, 300.0, 5_400_000.0]) + [400, 20, 700] * RANDOM.random((700, 3))
CAMERA = {"azimuth": 0.58, "elevation": 0.52, "distance": 3.3, "target": [0.0, 0.0, 0.0]}


def with_gaps(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array[3, 1], array[5], array[7, 2], array[8, 0] = np.nan, np.nan, np.inf, -np.inf
    return array


CLOUDS = {
    "UTM": UTM,
    "UTM, float32": UTM.astype(np.float32),
    "UTM, whole": np.round(UTM).astype(np.int64),
    "UTM, unsigned": np.round(UTM).astype(np.uint32),
    "UTM, millimetres": UTM[0] + 1e-3 * RANDOM.random((400, 3)),
    "UTM, with values": np.column_stack([UTM, RANDOM.random(700)]),
    "nanoseconds": 1_700_000_000_000_000_000 + RANDOM.integers(0, 1000, (400, 3)),
    "1 mm": 1e-3 * NORMAL,
    "1000 normal": 1000 * NORMAL,
    "1000 normal, float32": (1000 * NORMAL).astype(np.float32),
    "unit sphere": SPHERE,
    "unit cube": RANDOM.random((5000, 3)),
    "a prime number": RANDOM.random((4999, 3)),
    "gaps": with_gaps(UTM),
    "gaps, float32": with_gaps(50 * NORMAL).astype(np.float32),
    "gaps in values": np.column_stack([UTM, np.where(np.arange(700) < 9, 1, np.nan)]),
    "huge": 1e300 * NORMAL,
    "huge, float32": (1e38 * SPHERE).astype(np.float32),
    "tiny": 1e-50 * NORMAL,
}


def reference(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the middle and the radius of the fit, computed with more than float64 has."""
    places = places.reshape(-1, places.shape[-1])[:, :3].astype(np.longdouble)
    places = places[np.isfinite(places).all(axis=1)]
    low, high = places.min(axis=0), places.max(axis=0)
    return (low + high) / 2, np.sqrt((((high - low) / 2) ** 2).sum()) / np.longdouble(1.1)


def in_the_fit(renderer: FakeRenderer) -> np.ndarray:
    """Return where the renderer draws the places of the last frame, as its shaders do with 32-bit floats."""
    fit = renderer.parameters["fit"]
    center, radius = np.float32(fit["center"]), np.float32(fit["radius"])
    assert 1e-37 <= radius <= 1e37
    return np.asarray((renderer.frames[-1][..., :3] - center) / radius)


@pytest.mark.parametrize("kind", ["points", "mesh"])
@pytest.mark.parametrize("name", CLOUDS)
def test_a_cloud_is_in_the_unit_sphere(renderer: FakeRenderer, kind: Any, name: str) -> None:
    cloud = CLOUDS[name]
    if kind == "mesh":
        cloud = np.column_stack([cloud[:, :3], np.zeros(len(cloud))]).astype(cloud.dtype)
        cloud = cloud[: len(cloud) // 20 * 20].reshape(20, -1, 4)
    middle, radius = reference(cloud)
    field = wavefield.show(cloud, kind=kind, memory="host")
    field.status()
    wanted = ((cloud[..., :3].astype(np.longdouble) - middle) / radius).astype(np.float64)
    # 32-bit floats that far from the origin have these steps.
    step = float(abs(middle).max() / radius) * 2**-23 if cloud.dtype == np.float32 else 0
    np.testing.assert_allclose(in_the_fit(renderer), wanted, atol=2e-6 + step)
    assert renderer.camera == CAMERA
    np.testing.assert_allclose(field.camera.distance, float(3.3 * radius), rtol=1e-6)
    np.testing.assert_allclose(field.camera.target, middle.astype(float), atol=float(radius) * 1e-5, rtol=1e-7)


def test_colours_by_y_are_the_users_numbers(renderer: FakeRenderer) -> None:
    cloud = UTM[:, [0, 2, 1]]
    limits = (cloud[:, 1].min(), cloud[:, 1].max())
    field = wavefield.show(cloud, memory="host")
    field.status()
    assert field.parameters["limits"] == limits
    low, high = renderer.parameters["limits"]
    offset, factor = renderer.parameters["units"]
    np.testing.assert_allclose(offset + factor * renderer.frames[-1][:, 1].astype(float), cloud[:, 1], atol=1e-4)
    assert (offset + factor * low, offset + factor * high) == pytest.approx(limits, abs=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("count", [1, 9])
def test_equal_points(renderer: FakeRenderer, count: int, dtype: Any) -> None:
    field = wavefield.show(np.full((count, 3), 5e6, dtype), kind="points", memory="host")
    field.status()
    assert np.array_equal(in_the_fit(renderer), np.zeros((count, 3)))
    assert field.camera == wavefield.Camera(0.58, 0.52, 3.3, (5e6, 5e6, 5e6))


@pytest.mark.filterwarnings("ignore:The array is not seen")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_finite_point(renderer: FakeRenderer, dtype: Any) -> None:
    wavefield.show(np.full((4, 3), np.nan, dtype), memory="host").status()
    assert renderer.parameters["fit"] == {"center": [0, 0, 0], "radius": 1}


@pytest.mark.parametrize("name", ["UTM", "UTM, float32", "UTM, millimetres", "1 mm", "unit cube", "huge"])
def test_cameras_are_in_the_users_units(renderer: FakeRenderer, name: str) -> None:
    cloud = CLOUDS[name]
    middle, radius = (np.float64(number) for number in reference(cloud))
    target = middle + radius * np.array([0.3, -0.2, 0.5])
    camera = wavefield.Camera(0.3, -0.4, float(2.5 * radius), tuple(target.tolist()))
    field = wavefield.show(cloud, memory="host", camera=camera)

    def same(seen: wavefield.Camera) -> None:
        assert (seen.azimuth, seen.elevation) == (0.3, -0.4)
        assert seen.distance == pytest.approx(camera.distance)
        np.testing.assert_allclose(seen.target, target, rtol=1e-12, atol=radius * 1e-9)

    def drawn(azimuth: float, elevation: float, distance: float, *place: float) -> None:
        assert (azimuth, elevation) == (0.3, -0.4)
        np.testing.assert_allclose([distance, *place], [2.5, 0.3, -0.2, 0.5], atol=1e-3 if "float32" in name else 1e-5)

    same(field.camera)
    same(field.status().camera)
    drawn(0.3, -0.4, renderer.camera["distance"], *renderer.camera["target"])
    field.camera = camera
    same(field.camera)
    field.render(camera=camera)
    field.render(cameras=[camera])
    field.render(cameras=np.array([[0.3, -0.4, camera.distance, *target]] * 1000))
    rendered = [message["cameras"] for message in renderer.received if message["type"] == "render"]
    assert [len(views) for views in rendered] == [1, 1, 1000]
    for views in rendered:
        drawn(*views[-1])
    for distance, words in [(0.3, "distance must be"), (21.0, "distance must be")]:
        with pytest.raises(wavefield.Refused, match=words) as refused:
            field.camera = wavefield.Camera(0, 0, float(distance * radius), tuple(middle.tolist()))
        assert f"{20 * field._fit.radius:.4g}" in str(refused.value)
        views = np.array([[0.3, -0.4, camera.distance, *target], [0, 0, distance * radius, *middle]])
        with pytest.raises(wavefield.Refused, match=words):
            field.render(cameras=views)
    with pytest.raises(wavefield.Refused, match="the target at most"):
        field.render(camera=wavefield.Camera(0, 0, float(radius), tuple((middle + 4 * radius).tolist())))
    for edge in (0.4, 20):
        field.camera = wavefield.Camera(0, 0, edge * float(field._fit.radius), tuple(middle.tolist()))
        assert 0.4 <= renderer.camera["distance"] <= 20
        field.render(cameras=np.array([[0, 0, edge * field._fit.radius, *middle]]))
        wish = next(message for message in reversed(renderer.received) if message["type"] == "render")
        assert 0.4 <= wish["cameras"][0][2] <= 20


def test_images_and_surfaces_keep_their_cameras(renderer: FakeRenderer) -> None:
    kinds: list[Kind] = ["image", "surface"]
    for kind in kinds:
        camera = wavefield.Camera(0.25, 0.5, 2.0, (0.5, 0.0, 0.0))
        field = wavefield.show(NORMAL[:8, :3] * 1e5, kind=kind, memory="host", camera=camera)
        assert field.camera == camera
        assert renderer.camera == camera._message()
        assert renderer.parameters["fit"]["radius"] == 1.0
        wavefield.show(NORMAL[:8, :3] * 1e5, kind=kind, memory="host", camera="fit")
        assert renderer.camera["distance"] == 3.3


def test_a_surface_has_its_extent(renderer: FakeRenderer) -> None:
    heights = NORMAL[:8, :3].astype(np.float32)
    show: Any = partial(wavefield.show, memory="host", kind="surface")
    field = show(heights, extent=(500_000, 500_100, 0, 40))
    assert renderer.parameters["fit"]["aspect"] == 2.5
    assert field.camera.distance == pytest.approx(3.3 * 50)
    assert field.camera.target == pytest.approx((500_050, -0.2 * 50, 20))
    field = show(2 * heights, camera=wavefield.Camera(0, 1, 100, (500_000, 0, 20)))
    assert renderer.parameters["fit"]["aspect"] == 2.5, "it holds for the next one"
    assert (renderer.camera["distance"], renderer.camera["target"]) == (2, [-1, 0, 0])
    show(heights[:5])
    assert "aspect" not in renderer.parameters["fit"], "but not for another shape"
    wrong: Any
    for wrong in (3, (0, 1, 2), (0, 1, 2, "3"), "0123"):
        with pytest.raises(TypeError, match="extent must be"):
            show(heights, extent=wrong)
    for wrong in ((1, 0, 0, 1), (0, 1, 0, np.nan), (0, 1, 0, 0), (0, 1, 0, 2000)):
        with pytest.raises(ValueError, match="extent must be"):
            show(heights, extent=wrong)
    with pytest.raises(TypeError, match="extent is for surfaces and images"):
        show(np.zeros((5, 3), np.float32), kind="points", extent=(0, 1, 0, 1))


def radius_of(renderer: FakeRenderer) -> float:
    field = _show._shower.field  # type: ignore[union-attr]
    return float(field._fit.factor * renderer.parameters["fit"]["radius"])  # type: ignore[union-attr]


STEPS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "a little larger": (lambda x: 1.05 * x, False),
    "jitter": (lambda x: x + 1e-3, False),
    "half": (lambda x: 0.5 * x, False),
    "5 times smaller": (lambda x: 0.2 * x, False),
    "11 times smaller": (lambda x: x / 11, True),
    "larger": (lambda x: 1.5 * x, True),
    "100 times larger": (lambda x: 100 * x, True),
    "elsewhere": (lambda x: x + 10, True),
    "another number": (lambda x: x[:-1], False),
    "another type": (lambda x: 2 * x.astype(np.float64), True),
    "with values": (lambda x: np.column_stack([2 * x, x[:, 0]]), True),
    "nothing finite": (lambda x: x * np.float32(np.nan), False),
}


@pytest.mark.filterwarnings("ignore:The array is not seen")
@pytest.mark.parametrize("way", ["wavefield.show", "field.show"])
@pytest.mark.parametrize("name", STEPS)
def test_a_new_fit(renderer: FakeRenderer, name: str, way: str, capsys: pytest.CaptureFixture[str]) -> None:
    step, fits = STEPS[name]
    before = SPHERE.astype(np.float32)
    after = step(before)
    if way == "field.show" and (after.shape, after.dtype) != (before.shape, before.dtype):
        pytest.skip("a field has one shape and type")
    field = wavefield.show(before, memory="host")
    old = radius_of(renderer)
    renderer.camera["azimuth"] = 0.25  # the user turns it
    for _ in range(2):
        if way == "field.show":
            field.show(after)
        else:
            field = wavefield.show(after, memory="host")
    field.status()
    assert renderer.camera["azimuth"] == (0.25 if name != "with values" else renderer.camera["azimuth"])
    assert radius_of(renderer) == pytest.approx(float(reference(after)[1]) if fits else old, rel=1e-6)
    said = capsys.readouterr().err
    assert said.count("the view now fits this array") == (1 if fits else 0), said


def test_a_chosen_camera_holds(renderer: FakeRenderer) -> None:
    camera = wavefield.Camera(0.5, 0.25, 2.0, (0.5, 0.0, 0.0))
    field = wavefield.show(SPHERE, memory="host", camera=camera)
    old = radius_of(renderer)
    field = wavefield.show(100 * SPHERE, memory="host")
    assert field.camera.distance == pytest.approx(2.0)
    assert radius_of(renderer) == old
    field = wavefield.show(100 * SPHERE, memory="host", camera="fit")
    assert renderer.camera == CAMERA
    assert radius_of(renderer) == pytest.approx(100 * old)
    field.camera = wavefield.Camera(0.5, 0.25, 200.0)
    wavefield.show(SPHERE, memory="host")
    assert radius_of(renderer) == pytest.approx(100 * old)
    field = wavefield.show(SPHERE[:-1], memory="host")  # a connection of its own
    assert field.camera.distance == pytest.approx(200.0)
    assert radius_of(renderer) == pytest.approx(100 * old)
    wavefield.show(SPHERE.astype(np.float32), memory="host")
    assert radius_of(renderer) == pytest.approx(old, rel=1e-3)


def test_a_passed_camera_comes_with_a_new_fit(renderer: FakeRenderer) -> None:
    wavefield.show(SPHERE, memory="host")
    field = wavefield.show(UTM, memory="host", camera=wavefield.Camera(0.1, 0.2, 2000.0, tuple(UTM[0].tolist())))
    assert field.camera.distance == pytest.approx(2000.0)
    assert field.camera.target == pytest.approx(tuple(UTM[0].tolist()), abs=1e-5)


@pytest.mark.parametrize("camera", ["near", (0, 1, 3), 3, np.zeros(6)])
def test_what_is_no_camera(renderer: FakeRenderer, camera: Any) -> None:
    with pytest.raises(TypeError, match="a camera is wavefield"):
        wavefield.show(SPHERE, memory="host", camera=camera)


def test_frames_of_points_fit_the_first(renderer: FakeRenderer) -> None:
    cloud = (1000 * NORMAL).astype(np.float32)
    with wavefield.connect(renderer.path, memory="host", kind="points", shape=cloud.shape) as field:
        for scale in (1, 100):
            with field.frame() as frame:
                frame[:] = scale * cloud
        assert renderer.parameters["fit"]["radius"] == pytest.approx(float(reference(cloud)[1]), rel=1e-6)
    with wavefield.connect(renderer.path, memory="host") as field:
        with field.frame() as frame:
            frame[:] = 0.5
        assert renderer.parameters["fit"] == {"center": [0, 0, 0], "radius": 1}, "frames of a mesh are in its units"


def test_a_widget_moves_in_the_users_units(renderer: FakeRenderer) -> None:
    pytest.importorskip("jupyter_rfb")
    field = wavefield.show(UTM, memory="host")
    widget = wavefield.Widget(field)
    first = field.camera
    widget.handle_event({"type": "wheel", "dy": -40.0})
    widget.get_frame()
    assert renderer.camera["distance"] == pytest.approx(3.3 * 0.9)
    assert field.camera.distance == pytest.approx(0.9 * first.distance)
    widget.handle_event({"type": "double_click"})
    widget.get_frame()
    assert field.camera.distance == pytest.approx(first.distance)
    assert field.camera.target == pytest.approx(first.target, abs=1e-6)


@pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
@pytest.mark.parametrize("name", ["UTM", "UTM, float32", "UTM, millimetres", "UTM, whole", "1 mm", "gaps", "unit cube"])
def test_pixels_are_where_a_projection_says(name: str) -> None:
    cloud = CLOUDS[name][:400]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_show, "Renderer", _launch.Renderer)
        field = wavefield.show(cloud, memory="host", kind="points", size=1)
        try:
            turned = wavefield.Camera(2.0, -0.3, 0.7 * field.camera.distance, field.camera.target)
            for camera in (field.camera, turned):
                index, depth = (
                    np.asarray(p)[..., 0] for p in field.render("index", "depth", camera=camera, size=(400, 300))
                )
                rows, cols = np.nonzero(index >= 0)
                assert len(rows) > 250, "nearly all points are in the picture"
                seen = cloud[index[rows, cols]].astype(np.float64)
                assert np.isfinite(seen).all()
                at, deep = project(seen, camera, 400, 300)
                assert abs(at - np.stack([cols + 0.5, rows + 0.5], 1)).max() < 1.05
                np.testing.assert_allclose(depth[rows, cols], deep, rtol=1e-4)
        finally:
            shower, _show._shower = _show._shower, None
            assert shower is not None
            shower.close()


@pytest.mark.parametrize(
    ("place", "target"), [((3, 0, 0), (0, 0, 0)), ((1.0, 2.0, -3.0), (0.5, -1.0, 0.25)), ((0, 0.1, 5), (0, 0, 0))]
)
def test_a_camera_at_a_place(place: Any, target: Any) -> None:
    camera = wavefield.Camera.at(place, target)
    pixels, depth = project(np.array([target], float), camera, 270, 200)
    np.testing.assert_allclose(pixels, [[135, 100]], atol=1e-9)
    np.testing.assert_allclose(depth, math.dist(place, target))
    # What is beside the camera's place, as seen from there, is at the picture's side.
    beside = np.array(target) + np.cross([0, 1, 0], np.subtract(place, target))
    pixels, depth = project(beside[None], camera, 270, 200)
    assert pixels[0, 0] > 135 and abs(pixels[0, 1] - 100) < 1e-9 and np.isclose(depth, math.dist(place, target)).all()
    assert wavefield.Camera.at((0, 9, 0)).elevation == 1.5, "the steepest"
    with pytest.raises(TypeError, match="place must be 3 numbers"):
        wavefield.Camera.at((1, 2))
