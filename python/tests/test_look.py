"""Colour maps and norms, drawn by the real renderer and computed in NumPy by matplotlib's formulas."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import wavefield
from test_end_to_end import WHY_NOT
from wavefield import _show
from wavefield._look.colors import _table

pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")

PLACES = (0.1, 0.35, 0.5, 0.8)
MATPLOTLIB = {
    "gray": [(25, 25, 25), (89, 89, 89), (128, 128, 128), (204, 204, 204)],
    "turbo": [(69, 89, 203), (32, 234, 172), (164, 252, 60), (240, 91, 18)],
    "coolwarm": [(89, 119, 227), (175, 202, 252), (221, 220, 220), (238, 132, 104)],
    "RdBu": [(177, 24, 43), (248, 191, 164), (246, 247, 247), (67, 147, 195)],
    "twilight": [(166, 191, 202), (93, 58, 158), (47, 20, 54), (192, 117, 94)],
    "viridis": [(72, 36, 117), (47, 108, 142), (33, 145, 140), (122, 209, 81)],
}
"""The colours of matplotlib 3.11 at PLACES."""


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Return `show` without a window."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("wavefield._say.said", set())

    def shown(x: Any, **named: Any) -> Any:
        return wavefield.show(x, memory="host", window=False, **named)

    yield shown
    if _show._shower is not None:
        _show._shower.close()
        _show._shower = None


def cells(picture: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """Return the colours in the middles of an image's pixels, which fill the picture's width or height."""
    height, width = picture.shape[:2]
    side = min(width / cols, height / rows)
    y = height / 2 + (np.arange(rows) - rows / 2 + 0.5) * side
    x = width / 2 + (np.arange(cols) - cols / 2 + 0.5) * side
    return picture[y.astype(int)[:, None], x.astype(int)[None, :], :3].astype(int)


def gray(value: np.ndarray) -> np.ndarray:
    """Return the colours of `gray`, from 0 to 1."""
    return np.asarray(np.clip(256 * value - 0.5, 0, 255)[..., None].repeat(3, -1))


def log_norm(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return LogNorm."""
    return np.asarray((np.log(x) - np.log(low)) / (np.log(high) - np.log(low)))


def symlog_norm(x: np.ndarray, low: float, high: float, linthresh: float) -> np.ndarray:
    """Return SymLogNorm(linthresh, linscale=1, base=10)."""

    def transformed(x: Any) -> np.ndarray:
        x = np.asarray(x, np.float64)
        linear = 1 / (1 - 1 / 10)
        outside = np.sign(x) * linthresh * (linear + np.log10(np.maximum(np.abs(x), linthresh) / linthresh))
        return np.asarray(np.where(np.abs(x) <= linthresh, x * linear, outside))

    return np.asarray((transformed(x) - transformed(low)) / (transformed(high) - transformed(low)))


@pytest.mark.parametrize("name", MATPLOTLIB)
def test_a_colour_map_is_matplotlibs(show: Callable[..., Any], name: str) -> None:
    image = np.array([PLACES], np.float32)
    found = cells(show(image, kind="image", limits=(0, 1), colormap=name).snapshot(), *image.shape)
    assert np.abs(found[0] - MATPLOTLIB[name]).max() <= 3, found
    turned = cells(show(1 - image, kind="image", limits=(0, 1), colormap=f"{name}_r").snapshot(), *image.shape)
    assert np.abs(turned[0] - MATPLOTLIB[name]).max() <= 3, turned


def test_a_table_of_ones_own(show: Callable[..., Any]) -> None:
    rng = np.random.default_rng(5)
    image = np.linspace(-0.1, 1.1, 40, dtype=np.float32).reshape(5, 8)
    # Neighbours are alike, as in every colour map.
    table = np.sort(rng.integers(0, 256, (256, 3)), axis=0)[:, [2, 0, 1]].astype(np.uint8)
    table[:, 1] = table[::-1, 1]

    def expected(values: np.ndarray) -> np.ndarray:
        at = np.clip(256 * values.astype(np.float64) - 0.5, 0, 255)
        return np.stack([np.interp(at, np.arange(256), table[:, channel]) for channel in range(3)], -1)

    field = show(image, limits=(0, 1), colormap=table)
    assert np.abs(cells(field.snapshot(), 5, 8) - expected(image)).max() <= 3
    assert field.parameters["colormap"] == "#" + table.tobytes().hex()
    # The same as floats, and turned around.
    field = show(image, colormap=table / 255, invert=True)
    assert np.abs(cells(field.snapshot(), 5, 8) - expected(1 - image)).max() <= 3
    # It stays for the next array, and a name is not turned around.
    wide = np.tile(image, 2)
    assert np.abs(cells(show(wide, limits=(0, 1)).snapshot(), 5, 16) - expected(1 - wide)).max() <= 3
    field = show(image, limits=(0, 1), colormap="gray")
    assert np.abs(cells(field.snapshot(), 5, 8) - gray(image)).max() <= 3
    field.parameters["colormap"] = "gray_r"
    assert np.abs(cells(field.snapshot(), 5, 8) - gray(1 - image)).max() <= 3


def test_a_colour_map_of_matplotlib(show: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Any object with a size that maps 0 to 1 to RGBA, and any name that it knows."""

    class Map:
        N = 256

        def __call__(self, x: np.ndarray) -> np.ndarray:
            return np.stack([x, 0 * x, 1 - x, 1 + 0 * x], 1)

    image = np.array([PLACES], np.float32)
    red = np.clip(256 * image - 0.5, 0, 255)
    want = np.stack([red, 0 * red, 255 - red], -1)
    picture = show(image, kind="image", limits=(0, 1), colormap=Map()).snapshot()
    assert np.abs(cells(picture, *image.shape) - want).max() <= 3
    matplotlib = ModuleType("matplotlib")
    matplotlib.colormaps = {"cool_r": Map()}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "matplotlib", matplotlib)
    show(image, kind="image", limits=(0, 1), colormap="gray")
    picture = show(image, kind="image", limits=(0, 1), colormap="cool_r").snapshot()
    assert np.abs(cells(picture, *image.shape) - want).max() <= 3
    with pytest.raises(wavefield.Refused, match=r"no colour map `hot`.*twilight"):
        show(image, kind="image", colormap="hot")


@pytest.mark.parametrize("invert", [False, True])
def test_norms(show: Callable[..., Any], invert: bool) -> None:
    def turned(value: np.ndarray) -> np.ndarray:
        return gray(1 - value if invert else value)

    image = np.logspace(-6, 6, 60).reshape(6, 10)
    for limits in ((1e-4, 1e5), (1e5, 1e-4), (3.0, 4.0)):
        picture = show(image, norm="log", limits=limits, colormap="gray", invert=invert).snapshot()
        want = turned(np.clip(log_norm(image.astype(np.float32), *limits), 0, 1))
        assert np.abs(cells(picture, 6, 10) - want).max() <= 3, limits
    both = np.concatenate([-image[::-1], image])
    for linthresh in (0.01, 100.0):
        field = show(both, norm="symlog", linthresh=linthresh, limits=(-1e6, 1e4), colormap="gray", invert=invert)
        want = turned(np.clip(symlog_norm(both.astype(np.float32), -1e6, 1e4, linthresh), 0, 1))
        assert np.abs(cells(field.snapshot(), 12, 10) - want).max() <= 3
    field.parameters["linthresh"] = 0
    want = turned(np.clip(symlog_norm(both.astype(np.float32), -1e6, 1e4, 1e3), 0, 1))
    assert np.abs(cells(field.snapshot(), 12, 10) - want).max() <= 3, "a thousandth of the larger limit"
    field.parameters["norm"] = "linear"
    want = turned(np.clip((both + 1e6) / 1.01e6, 0, 1))
    assert np.abs(cells(field.snapshot(), 12, 10) - want).max() <= 3


def test_a_logarithm_of_numbers_beyond_32_bits(show: Callable[..., Any]) -> None:
    image = np.logspace(200, 220, 24).reshape(4, 6)
    field = show(image, norm="log", colormap="gray")
    assert np.abs(cells(field.snapshot(), 4, 6) - gray(log_norm(image, 1e200, 1e220))).max() <= 3
    near = 1e6 + np.arange(24.0).reshape(4, 6)
    picture = show(near, norm="log").snapshot()
    assert np.abs(cells(picture, 4, 6) - gray(log_norm(near, near.min(), near.max()))).max() <= 3
    symlog = show(image, norm="symlog", linthresh=1e210, limits=(0, 1e220)).snapshot()
    assert np.abs(cells(symlog, 4, 6) - gray(symlog_norm(image, 0, 1e220, 1e210))).max() <= 3


def test_numbers_that_have_no_logarithm_have_no_colour(show: Callable[..., Any]) -> None:
    image = np.array([[-1.0, 0.0, np.nan], [0.01, 1.0, 100.0]])
    # Turned around, so that the lowest colour is not as dark as the background.
    field = show(image, kind="image", norm="log", colormap="gray_r")
    assert field.parameters["limits"] == pytest.approx((0.01, 100)), "from the smallest number above 0"
    found = cells(field.snapshot(), 2, 3)
    assert found[0].max() < 64, "the background"
    assert np.abs(found[1] - [[255] * 3, [127.5] * 3, [0] * 3]).max() <= 3
    # Points without a colour are not drawn.
    places = np.array([[-0.5, 0, 0, 0.0], [0.5, 0, 0, 1.0]], np.float32)
    picture = show(places, kind="points", norm="log", limits=(1, 10), size=30).snapshot()[..., :3].astype(int)
    assert (picture.min(-1) > 200).sum() > 500, "the second is white"
    left = picture[:, : picture.shape[1] // 2]
    assert left.max() < 64, "the first is not there"


def test_heights_stay_linear(show: Callable[..., Any]) -> None:
    rows = np.linspace(1, 100, 32)
    surface = np.tile(rows, (32, 1))
    linear, log = (
        show(surface, kind="surface", norm=norm, limits=(1, 100), camera=wavefield.Camera(0.6, 0.5, 3.3)).render(
            "depth"
        )
        for norm in ("linear", "log")
    )
    np.testing.assert_array_equal(linear.to_numpy(), log.to_numpy())


def test_automatic_limits_follow_the_norm(show: Callable[..., Any]) -> None:
    image = np.array([[-4.0, 0.5], [2.0, 8.0]])
    field = show(image)
    assert field.parameters["limits"] == (-4, 8)
    field = show(image, norm="log")
    assert field.parameters["limits"] == (0.5, 8)
    field = show(image, norm="linear")
    assert field.parameters["limits"] == (-4, 8)
    with pytest.warns(UserWarning, match=r'not seen: norm="log" shows numbers above 0, and the largest is -0\.5'):
        field = show(-np.abs(image), norm="log")
    assert field.parameters["limits"] == (1, 10), "there is no number above 0"
    assert show(image).parameters["norm"] == "log", "it holds for the next array"
    assert show(np.full((2, 5), 3.0)).parameters["norm"] == "linear", "but not for one of another shape"
    assert show(np.zeros((2, 5, 3), np.uint8)).parameters["norm"] == "linear", "colours have none"


def test_automatic_limits_are_of_the_values(show: Callable[..., Any]) -> None:
    points = np.array([[-9.0, 1, 1, 0], [0, 0, 0, 2], [1, 1, 1, 50], [np.inf, 0, 0, 1e-9], [0, 0, 9, -3]], np.float32)
    assert show(points, kind="points", norm="log").parameters["limits"] == (2, 50)
    mesh = np.zeros((2, 3, 4), np.float32)
    mesh[..., 3] = [[0, 0.5, 3], [4, -1, np.nan]]
    assert show(mesh, kind="mesh", norm="log").parameters["limits"] == (0.5, 4)
    assert show(np.full((3, 5), 8.0), norm="log").parameters["limits"] == (4, 16), "around one number"


def test_frames_of_a_field_have_a_norm(show: Callable[..., Any]) -> None:
    image = np.array([[-1, 1], [10, 100]], np.float32)
    with wavefield.launch(kind="image", shape=(2, 2), dtype="float32", memory="host") as field:
        field.show(image)
        with pytest.raises(wavefield.Refused, match="above 0"):
            field.parameters["norm"] = "log"
        field.parameters.update(norm="log", limits=(1, 100), colormap="gray")
        assert np.abs(cells(field.snapshot(), 2, 2)[1] - [[127.5] * 3, [255] * 3]).max() <= 3
        with pytest.raises(ValueError, match="norm must be"):
            field.parameters["norm"] = "sqrt"
        with pytest.raises(wavefield.Refused, match="above 0"):
            field.parameters["limits"] = (0, 1)
        assert field.parameters["limits"] == (1, 100)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"norm": "log", "limits": (0, 1)}, ValueError, "above 0"),
        ({"norm": "sqrt"}, ValueError, "linear"),
        ({"norm": 3}, TypeError, "linear"),
        ({"norm": "symlog", "linthresh": -1}, ValueError, "below 0"),
        ({"norm": "symlog", "linthresh": float("nan")}, ValueError, "finite"),
        ({"norm": "symlog", "linthresh": 1e-60, "limits": (0, 1)}, wavefield.Refused, "linthresh"),
        ({"colormap": np.zeros((1, 3))}, TypeError, "256, 3"),
        ({"colormap": np.zeros((257, 3))}, TypeError, "256, 3"),
        ({"colormap": np.zeros((256, 4))}, TypeError, "256, 3"),
        ({"colormap": np.zeros((256, 3), np.int16)}, TypeError, "uint8"),
        ({"colormap": np.full((256, 3), 2.0)}, ValueError, "from 0 to 1"),
        ({"colormap": np.full((256, 3), np.nan)}, ValueError, "from 0 to 1"),
        ({"colormap": [["red"] * 3] * 256}, TypeError, "256, 3"),
        ({"colormap": "#00"}, wavefield.Refused, "hexadecimal"),
        ({"colormap": "no such map"}, wavefield.Refused, "no such map"),
        ({"invert": "yes"}, TypeError, "invert must be True or False"),
        ({"label": 3}, TypeError, "label must be text"),
        ({"label": "x" * 10_000}, wavefield.Refused, "longer than 100"),
        ({"label": "two\nlines"}, wavefield.Refused, "control character"),
        ({"colorbar": 1.5}, TypeError, "colorbar must be"),
    ],
)
def test_wrong_arguments_change_nothing(
    show: Callable[..., Any], arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    image = np.array([[1.0, 2.0], [3.0, 4.0]])
    field = show(image, colormap="magma")
    before = field.snapshot()
    with pytest.raises(error, match=words):
        show(image, **arguments)
    np.testing.assert_array_equal(show(image).snapshot(), before)


def test_a_norm_is_not_for_colours(show: Callable[..., Any]) -> None:
    image = np.zeros((4, 4, 3), np.uint8)
    with pytest.raises(ValueError, match="each pixel of this image is a colour"):
        show(image, norm="log")
    assert show(image, norm="linear").parameters["norm"] == "linear"


def test_a_short_table_is_resampled() -> None:
    table = bytes.fromhex(_table(np.array([[0, 0, 0], [255, 255, 255]], np.uint8))[1:])
    np.testing.assert_array_equal(np.frombuffer(table, np.uint8).reshape(256, 3), np.arange(256)[:, None].repeat(3, 1))
