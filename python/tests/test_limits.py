"""What is drawn is what the array says: limits, units, masks and colours, against references computed in NumPy."""

from __future__ import annotations

import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

import wavefield
from fake_driver import FakeDriver
from fake_renderer import FakeRenderer
from started import Started
from test_arrays import GPU, Dlpack
from test_cuda import DeviceArray
from test_end_to_end import SMALL, WHY_NOT
from test_show import prepared_of
from wavefield import _say, _show
from wavefield._look import limits as _limits, range as _range
from wavefield._memory import numbers as _numbers, source as _source
from wavefield._memory.layout import Kind, Layout

pytestmark = pytest.mark.usefixtures("started")
RAMP = np.linspace(0, 1, 24).reshape(4, 6)
IMAGE = RAMP.astype(np.float32)
LARGEST32, LARGEST = float(np.finfo(np.float32).max), np.finfo(np.float64).max

DETAIL = {
    "1e6 ± 1e-3": 1e6 + 1e-3 * (2 * RAMP - 1),
    "Unix seconds": 1.7e9 + 100 * RAMP,
    "Unix nanoseconds": 1_700_000_000_000_000_123 + np.arange(24).reshape(4, 6),
    "ids near 2^27": 2**27 + np.arange(24).reshape(4, 6),
    "ids near 2^27, int32": (2**27 + np.arange(24).reshape(4, 6)).astype(np.int32),
    "negative ids": -(2**30) - 7 * np.arange(24).reshape(4, 6),
    "unsigned": (2**32 - 1 - np.arange(24).reshape(4, 6)).astype(np.uint32),
    "unsigned, 64 bits": np.uint64(2**63 + 2**40) + np.arange(24, dtype=np.uint64).reshape(4, 6),
    "big-endian": (1e6 + 1e-3 * RAMP).astype(">f8"),
    "all of int64": np.linspace(-(2.0**63), 2.0**63 - 1024, 24).astype(np.int64).reshape(4, 6),
    "2e39": 2e39 * (RAMP - 0.5),
    "1e-60": 1e-60 * RAMP,
    "1e-60 beside 1": 1 + 1e-15 * np.round(20 * RAMP),
    "all of float64": LARGEST * (2 * RAMP - 1),
    "denormal": 5e-324 * np.arange(24).reshape(4, 6),
    "float32 that spans 2e38": (2e38 * RAMP).astype(np.float32),
    "all of float32": (LARGEST32 * (2 * RAMP - 1)).astype(np.float32),
    "denormal float32": (1e-40 * RAMP).astype(np.float32),
    "plain float64": 3 * RAMP - 1,
    "plain int16": np.arange(24, dtype=np.int16).reshape(4, 6) - 7,
}


def fractions(values: np.ndarray, limits: Any = None) -> np.ndarray:
    """Return the reference: where each number lies between the limits, computed with more than float64 has."""
    low, high = (values.min(), values.max()) if limits is None else limits
    precise = values.astype(np.longdouble)
    return np.asarray((precise - np.longdouble(low)) / (np.longdouble(high) - np.longdouble(low)), np.float64)


def drawn(renderer: FakeRenderer, frame: np.ndarray | None = None) -> np.ndarray:
    """Return where the renderer draws each number between its limits, in 32-bit floats, as its shaders do."""
    low, high = (np.float32(limit) for limit in renderer.parameters["limits"])
    scale = np.float32(1) / (high - low)
    assert np.isfinite(scale) and abs(scale) >= np.finfo(np.float32).tiny, "a denormal scale is zero in a shader"
    frame = renderer.frames[-1] if frame is None else frame
    assert not ((frame != 0) & (abs(frame) < np.finfo(np.float32).tiny)).any(), "and so is a denormal number"
    return np.asarray((frame.astype(np.float32) - low) * scale)


@pytest.mark.parametrize("kind", ["image", "surface", "points", "mesh"])
@pytest.mark.parametrize("name", DETAIL)
def test_numbers_keep_what_matters(renderer: FakeRenderer, kind: Kind, name: str) -> None:
    values = DETAIL[name]
    array, places = values, None
    if kind in ("points", "mesh"):
        places = np.arange(72).reshape(4, 6, 3).astype(values.dtype)
        array = np.concatenate([places, values[..., None]], axis=2)
        array = array.reshape(-1, 4) if kind == "points" else array
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        field = wavefield.show(array, kind=kind, memory="host", limits="auto")
    field.status()
    shown = renderer.frames[-1]
    if places is not None:
        np.testing.assert_array_equal(shown[..., :3].reshape(-1), places.reshape(-1))
        shown = shown[..., 3].reshape(4, 6)
    np.testing.assert_allclose(drawn(renderer, shown), fractions(values), atol=2e-6)
    assert field.parameters["limits"] == (values.min(), values.max()), "the true numbers"
    offset, factor = renderer.parameters.get("units", (0, 1))
    labels = [float(offset + factor * limit) for limit in renderer.parameters["limits"]]
    span = float(values.max()) - float(values.min())
    assert labels == pytest.approx([float(values.min()), float(values.max())], rel=1e-6, abs=1e-6 * span)


def test_numbers_that_need_nothing_are_drawn_as_they_are(renderer: FakeRenderer) -> None:
    for array in (IMAGE, 3 * RAMP - 1, np.arange(24).reshape(4, 6)):
        wavefield.show(array, memory="host").status()
        assert "units" not in renderer.parameters
        np.testing.assert_array_equal(renderer.frames[-1], array.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32, np.uint32, np.float64])
def test_numbers_beyond_the_limits_have_an_ends_colour(renderer: FakeRenderer, dtype: Any) -> None:
    """A difference that does not fit the type must not wrap around."""
    most = LARGEST if dtype == np.float64 else np.iinfo(dtype).max
    least = -LARGEST if dtype == np.float64 else np.iinfo(dtype).min
    for low in (2**30, *([least + 5] if dtype in (np.int32, np.int64) else [])):
        array = np.array([[least, low, low + 50], [low + 100, low + 200, most]], dtype)
        wavefield.show(array, kind="image", memory="host", limits=(low, low + 100)).status()
        seen = np.clip(drawn(renderer), 0, 1)
        np.testing.assert_allclose(seen, np.clip(fractions(array, (low, low + 100)), 0, 1), atol=1e-6)


def test_the_next_array_is_drawn_between_the_same_limits(renderer: FakeRenderer) -> None:
    times = 1_700_000_000_000_000_000 + 1000 * np.arange(24).reshape(4, 6)
    field = wavefield.show(times, memory="host")
    wavefield.show(times + 5000, memory="host").status()
    np.testing.assert_allclose(drawn(renderer), fractions(times + 5000, (times.min(), times.max())), atol=1e-6)
    field.parameters["limits"] = (int(times.min()) + 1000, int(times.min()) + 2000)
    assert field.parameters["limits"] == (times.min() + 1000, times.min() + 2000)
    np.testing.assert_allclose(renderer.parameters["limits"], (1 / 23, 2 / 23))
    wavefield.show(times, memory="host").status()
    wanted = fractions(times, field.parameters["limits"])
    np.testing.assert_allclose(drawn(renderer), wanted, atol=1e-6)
    # The user moves an end in the window.
    renderer.parameters["limits"] = [0.0, 2.0]
    renderer.session.send({"type": "parameters", "parameters": renderer.parameters})  # type: ignore[union-attr]
    field.status()
    assert field.parameters["limits"] == pytest.approx((times.min() + 1000, times.min() + 3000), abs=512)


class Device:
    """Stands for an array of a library on the GPU: it computes there, and counts what is copied to the CPU."""

    copied = 0

    def __init__(self, array: np.ndarray) -> None:
        self.memory, self.shape, self.dtype = np.asarray(array), np.shape(array), np.asarray(array).dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.memory.__array_interface__, "version": 3, "stream": 1}

    def __getitem__(self, key: Any) -> Device:
        return Device(self.memory[key.memory if isinstance(key, Device) else key])

    def __setitem__(self, key: Any, value: Device) -> None:
        self.memory[key] = value.memory

    def scalar(self) -> Any:
        Device.copied += self.memory.nbytes
        return self.memory.item()

    def __int__(self) -> int:
        return int(self.scalar())

    def __float__(self) -> float:
        return float(self.scalar())

    def min(self) -> Device:
        return Device(self.memory.min())

    def max(self) -> Device:
        return Device(self.memory.max())

    def clip(self, low: Any, high: Any) -> Device:
        return Device(self.memory.clip(low, high))

    def astype(self, dtype: Any) -> Device:
        return Device(self.memory.astype(dtype))

    def __sub__(self, other: Any) -> Device:
        return Device(self.memory - getattr(other, "memory", other))

    def __add__(self, other: Any) -> Device:
        return Device(self.memory + other)

    def __truediv__(self, other: Any) -> Device:
        return Device(self.memory / other)

    def __eq__(self, other: Any) -> Any:
        return Device(self.memory == other)

    def get(self) -> np.ndarray:
        raise AssertionError("the array was copied to the CPU")


@pytest.mark.filterwarnings("ignore::wavefield.CopyWarning")
@pytest.mark.parametrize("name", DETAIL)
def test_the_array_s_own_device_converts_it(renderer: FakeRenderer, driver: FakeDriver, name: str) -> None:
    values = DETAIL[name]
    with_gaps = np.where(RAMP[1, 1] == RAMP, np.nan, values) if values.dtype.kind == "f" else values
    Device.copied = 0
    field = wavefield.show(Device(with_gaps))
    assert Device.copied <= 64
    assert field.memory == "cuda"
    renderer.draw(driver)
    with np.errstate(invalid="ignore"):
        wanted = np.where(np.isnan(with_gaps.astype(np.float64)), np.nan, fractions(values))
    np.testing.assert_allclose(drawn(renderer), wanted, atol=2e-6)


def test_jax() -> None:
    jax = pytest.importorskip("jax")
    array = jax.numpy.asarray(2**27 + np.arange(24).reshape(4, 6), "int32")
    assert _limits.units((2**27, 2**27 + 23), "int32") != _numbers.PLAIN
    scaled = _source.Source(array).scaled([(float(2**27), 23.0)]).array
    assert scaled.dtype == "float32"
    np.testing.assert_allclose(np.asarray(scaled), np.arange(24).reshape(4, 6) / 23, atol=1e-6)
    search = _range.Search(jax.numpy.asarray([[np.nan, 2.0], [np.inf, 3.0]]), Layout.of("image", (2, 2), "float32"))
    assert search.ends(lambda: None) == ((2.0, 3.0), None)


# Masks and colours.


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int16, np.int64, bool])
def test_a_mask_is_nan(renderer: FakeRenderer, dtype: Any) -> None:
    values = np.arange(24).reshape(4, 6).astype(dtype)
    values[0, 0] = np.array(99).astype(dtype)
    masked = np.ma.masked_array(values, np.zeros((4, 6), bool))
    wavefield.show(masked, memory="host").status()
    np.testing.assert_array_equal(renderer.frames[-1], values)
    masked[0, 0] = np.ma.masked
    field = wavefield.show(masked, memory="host", limits="auto")
    field.status()
    wanted = values.astype(np.float64)
    wanted[0, 0] = np.nan
    np.testing.assert_array_equal(renderer.frames[-1], wanted)
    assert field.parameters["limits"] == _limits.padded((np.nanmin(wanted), np.nanmax(wanted)))
    field.close()
    with wavefield.connect(renderer.path, memory="host", kind="image", shape=(4, 6)) as other:
        if dtype == np.float32:
            other.show(masked)
            other.status()
            np.testing.assert_array_equal(renderer.frames[-1], wanted)
        else:
            with pytest.raises(wavefield.ArrayMismatch):
                other.show(masked)


def test_masked_nanoseconds_keep_theirs(renderer: FakeRenderer) -> None:
    times = 1_700_000_000_000_000_123 + np.arange(24).reshape(4, 6)
    masked = np.ma.masked_equal(times, times[2, 3])
    wavefield.show(masked, memory="host").status()
    wanted = fractions(times)
    wanted[2, 3] = np.nan
    seen = drawn(renderer)
    np.testing.assert_allclose((seen - seen[0, 0]) / (seen[-1, -1] - seen[0, 0]), wanted, atol=1e-6)


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("dtype", [np.uint16, np.int16, np.uint32, np.int64, np.uint64])
def test_whole_colours_span_their_type(
    renderer: FakeRenderer, capsys: pytest.CaptureFixture[str], dtype: Any, channels: int
) -> None:
    most = np.iinfo(dtype).max
    colours = (np.linspace(0, 1, 24 * channels) * float(most) * (1 - 2**-30)).astype(dtype).reshape(4, 6, channels)
    field = wavefield.show(colours, memory="host")
    field.status()
    np.testing.assert_allclose(drawn(renderer), colours.astype(np.float64) / most, atol=1e-6)
    assert field.parameters["limits"] == (0, most)
    said = capsys.readouterr().err
    assert f"colours as {np.dtype(dtype)} go from 0 to" in said and 'x.astype("uint8")' in said
    wavefield.show(colours, memory="host", limits=(0, most // 2)).status()
    np.testing.assert_allclose(drawn(renderer)[..., :3], colours[..., :3].astype(np.float64) / (most // 2), atol=1e-6)
    np.testing.assert_allclose(renderer.frames[-1][..., 3:], colours[..., 3:].astype(np.float64) / most, atol=1e-6)


def test_masked_colours(renderer: FakeRenderer) -> None:
    colours = np.ma.masked_array(np.arange(72, dtype=np.uint8).reshape(4, 6, 3), np.zeros((4, 6, 3), bool))
    colours[1, 2] = np.ma.masked
    wavefield.show(colours, memory="host").status()
    wanted = np.ma.filled(colours.astype(np.float64), np.nan) / 255
    np.testing.assert_allclose(drawn(renderer), wanted, atol=1e-6)


@pytest.mark.parametrize("channels", [3, 4])
def test_colours_above_1_are_said(channels: int) -> None:
    colours = np.linspace(0, 255, 24 * channels).reshape(4, 6, channels)
    with pytest.warns(UserWarning, match=r"from 0 to 255, so they are clipped: show x / 255"):
        wavefield.show(colours, memory="host")
    for fine in (colours / 255, colours > 7, colours.astype(np.uint8)):
        wavefield.show(fine, memory="host")  # a warning would be an error
    _say.said.clear()
    wavefield.show(colours, memory="host", limits=(0, 255))


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.eye(3), '(3, 3) is drawn as points, a row each; kind="image"'),
        (np.eye(3, 4), "(3, 4) is drawn as points"),
        (np.zeros((100, 6)), "(100, 6) is drawn as an image; for points"),
        (np.zeros((100, 2)), "(100, 2) is drawn as an image; for points, a row each, show numpy.column_stack"),
        (np.zeros((100, 3)), ""),
        (np.zeros((100, 3), int), "(100, 3) is drawn as an image; for points"),
        (np.zeros((4, 6)), ""),
        (np.zeros((480, 640)), ""),
    ],
)
def test_a_shape_with_two_readings_is_said(capsys: pytest.CaptureFixture[str], array: np.ndarray, words: str) -> None:
    for _ in range(2):
        wavefield.show(array, memory="host")
    said = capsys.readouterr().err
    assert said.count(words or "is drawn as") == bool(words), said
    _say.said.clear()
    wavefield.show(array, memory="host", kind="image")
    assert "is drawn as" not in capsys.readouterr().err


def test_a_table_of_pandas(renderer: FakeRenderer, capsys: pytest.CaptureFixture[str]) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(np.arange(30.0).reshape(10, 3), columns=["a", "b", "c"])
    assert wavefield.show(table, memory="host").kind == "points"
    assert "(10, 3) is drawn as points" in capsys.readouterr().err
    assert wavefield.show(table, kind="image", memory="host").parameters["limits"] == (0, 29)


# One rule for limits.

RESET = "the colours' limits are now"


def test_limits_follow_the_rule(renderer: FakeRenderer, capsys: pytest.CaptureFixture[str]) -> None:
    def limits(array: np.ndarray, **how: Any) -> Any:
        return wavefield.show(array, memory="host", **how).parameters["limits"]

    assert limits(IMAGE) == (0, 1)
    assert limits(3 * IMAGE) == limits(0.5 * IMAGE + 0.9) == limits(0 * IMAGE) == limits(0 * IMAGE + 2) == (0, 1)
    assert RESET not in capsys.readouterr().err
    assert limits(100 * IMAGE) == (0, 100)
    assert "(0.0, 100.0), those of this array, because its range is outside, or 10 times" in capsys.readouterr().err
    assert limits(IMAGE) == (0, 1)
    assert limits(IMAGE + 50) == (50, 51)
    assert limits(IMAGE + 52) == (52, 53), "all of it would have the colour of an end"
    assert limits(IMAGE + 50) == (50, 51)
    assert RESET not in capsys.readouterr().err, "once"
    # What a call passes holds.
    assert limits(IMAGE, limits=(-1, 2)) == (-1, 2)
    assert limits(100 * IMAGE) == limits(np.full_like(IMAGE, np.nan)) == (-1, 2)
    # Each of these is new.
    _say.said.clear()
    assert limits(IMAGE[:3]) == (0, IMAGE[:3].max())
    said = capsys.readouterr().err
    assert said.count(RESET) == 1 and "because it has another kind, shape or type" in said
    assert limits(IMAGE[:3], limits=(-1, 2)) == (-1, 2)
    assert limits(IMAGE[:3], kind="surface") == (0, IMAGE[:3].max())
    assert limits(IMAGE[:3], kind="surface", limits=(-1, 2)) == (-1, 2)
    assert limits(IMAGE[:3].astype(np.float64), kind="surface") == (0, IMAGE[:3].max())
    # "auto" follows each array, until a call passes others.
    assert limits(IMAGE, limits="auto") == (0, 1)
    assert limits(2 * IMAGE) == (0, 2)
    assert limits(7 * IMAGE[:2]) == (0, 7 * IMAGE[:2].max())
    assert limits(IMAGE, limits=(0, 3)) == limits(2 * IMAGE) == (0, 3)


def test_points_may_change_their_number(renderer: FakeRenderer, capsys: pytest.CaptureFixture[str]) -> None:
    points = np.linspace(0, 1, 24).reshape(6, 4)
    wavefield.show(points, memory="host", limits=(-1, 2), size=7)
    field = wavefield.show(points[:5], memory="host")
    assert (field.parameters["limits"], field.parameters["size"]) == ((-1, 2), 7)
    assert renderer.parameters["limits"] == [-1, 2]
    assert RESET not in capsys.readouterr().err
    assert wavefield.show(points[:5], memory="host", title="another").parameters["limits"] == (-1, 2)


@pytest.mark.parametrize(
    ("wish", "limits"),
    [((None, 5), (1, 5)), ((0, None), (0, 3)), ((None, None), (1, 3)), ((None, 0.5), (0, 0.5)), ((7, None), (7, 7.5))],
)
def test_one_sided_limits(wish: Any, limits: Any) -> None:
    array = 2 * IMAGE + 1
    assert wavefield.show(array, memory="host", limits=wish).parameters["limits"] == limits
    assert wavefield.show(100 * array, memory="host").parameters["limits"] == limits, "it was passed"


@pytest.mark.parametrize(
    "wish", [3, "none", (1,), (1, 2, 3), (1, "2"), (1, 1), (0, np.nan), (0, 10**400), (True, 2), {}]
)
def test_limits_that_are_none(started: list[Started], wish: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="limits must be"):
        wavefield.show(IMAGE, memory="host", limits=wish)
    assert started == []


def test_a_call_always_wins(renderer: FakeRenderer) -> None:
    camera = wavefield.Camera(0.0, 1.0, 2.0)
    wanted: dict[str, Any] = {"limits": (0.1, 0.7), "colormap": "magma", "size": 5}

    def check(field: wavefield.Field) -> None:
        assert {name: field.parameters[name] for name in wanted} == wanted
        assert field.camera == camera

    field = wavefield.show(IMAGE, memory="host", camera=camera, **wanted)
    check(field)
    field.parameters.update(limits=(0, 10), colormap="plasma", size=9)
    field.camera = wavefield.Camera(0.5, 1.0, 2.0)
    check(wavefield.show(IMAGE, memory="host", camera=camera, **wanted))
    # In the window.
    renderer.parameters.update(limits=[0.0, 10.0], colormap="plasma", size=9)
    renderer.session.send({"type": "parameters", "parameters": renderer.parameters})  # type: ignore[union-attr]
    renderer.camera = {**renderer.camera, "azimuth": 0.5}
    check(wavefield.show(IMAGE, memory="host", camera=camera, **wanted))
    # What was chosen there stays without the keyword.
    field.parameters.update(limits=(0, 10))
    assert wavefield.show(1000 * IMAGE, memory="host").parameters["limits"] == (0, 10)
    renderer.received.clear()
    wavefield.show(1000 * IMAGE, memory="host", limits=(0, 10), colormap="magma").status()
    assert "set" not in [message["type"] for message in renderer.received], "it is so already"


# Fields of `connect` and `launch`.

KINDS: list[tuple[str, np.ndarray, Any]] = [
    ("image", 2 * IMAGE - 1, (-1, 1)),
    ("surface", 2 * IMAGE - 1, (-1, 1)),
    ("points", np.column_stack([IMAGE[:, :3], 5 * IMAGE[:, 0]]), (0, 5 * IMAGE[-1, 0])),
    ("image", np.arange(24, dtype=np.uint8).reshape(4, 6), (0, 23)),
    ("image", np.zeros((4, 6, 3), np.uint8), (0, 255)),
    ("image", np.zeros((4, 6, 3), np.float32), (0, 1)),
    ("mesh", 9 * np.ones((4, 6, 4), np.float32), (0, 1)),
]


@pytest.mark.filterwarnings("ignore:a mesh's values")
@pytest.mark.parametrize(("kind", "array", "limits"), KINDS)
@pytest.mark.parametrize("way", ["show", "frame", "copy"])
def test_a_field_has_the_limits_of_show(
    renderer: FakeRenderer, way: str, kind: Kind, array: np.ndarray, limits: Any
) -> None:
    def give(field: wavefield.Field, array: np.ndarray) -> Any:
        if way == "show":
            field.show(array)
        else:
            with field.frame() as frame:
                if way == "copy":
                    frame.copy_from(array)
                else:
                    np.asarray(frame)[...] = array
        return field.parameters["limits"]

    def connect() -> wavefield.Field:
        return wavefield.connect(renderer.path, memory="host", kind=kind, shape=array.shape, dtype=str(array.dtype))

    assert wavefield.show(array, kind=kind, memory="host").parameters["limits"] == limits
    _show._shower.field.close()  # type: ignore[union-attr]
    with connect() as field:
        assert give(field, array) == limits
    assert renderer.parameters["limits"] == list(limits)
    with connect() as field:
        field.parameters["limits"] = (0, 255 if array.dtype == np.uint8 else 1)  # which they are already
        chosen = field.parameters["limits"]
        assert give(field, array) == give(field, array) == chosen


def test_a_field_whose_array_is_far_away_says_so(renderer: FakeRenderer, capsys: pytest.CaptureFixture[str]) -> None:
    with wavefield.connect(renderer.path, memory="host", kind="image", shape=(4, 6)) as field:
        field.show(IMAGE)
        field.show(1000 * IMAGE)
        assert field.parameters["limits"] == (0, 1000)
        assert RESET in capsys.readouterr().err
        field.show((LARGEST32 * (2 * RAMP - 1)).astype(np.float32))
        assert "wavefield.show(x) scales them" in capsys.readouterr().err
        low, high = field.parameters["limits"]
        assert high - low <= _limits.LARGEST
        with pytest.warns(UserWarning, match="The array is not seen: none of its numbers is finite"):
            field.show(np.full((4, 6), np.nan, np.float32))


GPU_ARRAYS: dict[str, Any] = {
    "float16": np.linspace(-3, 5, 24).reshape(4, 6).astype(np.float16),
    "float32": np.where(IMAGE[1, 1] == IMAGE, np.nan, IMAGE).astype(np.float32),
    "float64": np.where(IMAGE[1, 1] == IMAGE, -np.inf, IMAGE.astype(np.float64) * 1e300),
    "int32": np.arange(-12, 12, dtype=np.int32).reshape(4, 6) * 100_000_000,
    "int64": np.arange(24, dtype=np.int64).reshape(4, 6) * 123_456_789_012_345_678 - 2**62,
    "uint8": np.arange(24, dtype=np.uint8).reshape(4, 6) * 7 + 3,
    "uint32": np.arange(24, dtype=np.uint32).reshape(4, 6) * 123_456_789 + 5,
    "uint64": np.arange(24, dtype=np.uint64).reshape(4, 6) * np.uint64(700_000_000_000_000_000) + np.uint64(2**60),
}


@pytest.mark.parametrize("dtype", GPU_ARRAYS)
@pytest.mark.parametrize("gaps", [False, True])
def test_the_ends_of_an_array_on_a_gpu(driver: FakeDriver, dtype: str, gaps: bool) -> None:
    array = GPU_ARRAYS[dtype]
    assert str(array.dtype) == dtype
    array = np.ascontiguousarray(array.T)[::2, ::-1].T if gaps else array
    search = _range.Search(DeviceArray(array), Layout.of("image", array.shape, "float32"))
    finite = [number for number in array.ravel().tolist() if np.isfinite(number)]
    assert search.ends(lambda: None) == ((min(finite), max(finite)), None)


@pytest.mark.parametrize("kind", ["points", "mesh"])
def test_the_box_of_places_on_a_gpu(driver: FakeDriver, kind: str) -> None:
    shape = (60, 4) if kind == "points" else (6, 10, 4)
    array = np.random.default_rng(1).normal(size=shape)
    flat = array.reshape(-1, 4)
    flat[3, 1], flat[4, 0], flat[5, 3] = np.nan, np.inf, 1e9
    search = _range.Search(DeviceArray(array), Layout.of(kind, shape, "float32"))
    places = np.delete(flat, [3, 4], 0)[:, :3]
    flat[4, 3] = 1e12  # of no place
    values = (np.delete(flat, [3, 4], 0)[:, 3].min(), 1e9)
    assert search.ends(lambda: None) == (values, (tuple(places.min(0)), tuple(places.max(0))))
    array[...] = np.nan
    assert _range.Search(DeviceArray(array), Layout.of(kind, shape, "float32")).ends(lambda: None) == (None, None)


def test_later_arrays_of_a_field_are_looked_at_without_waiting(
    renderer: FakeRenderer, driver: FakeDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    """An array may be written late, and then its range is known late."""
    driver.streams[50] = []
    late = threading.Event()
    with wavefield.connect(renderer.path, kind="image", shape=(4, 6)) as field:
        field.show(Dlpack(IMAGE, GPU))
        assert field.parameters["limits"] == (IMAGE.min(), IMAGE.max())
        driver.enqueue(50, late.is_set)
        for times in (100, 10_000):
            field.show(DeviceArray(IMAGE * np.float32(times), stream=50))
            assert field.parameters["limits"] == (IMAGE.min(), IMAGE.max()), "nothing waits"
        late.set()
        driver.run()
        field._before_a_picture()
        assert field.parameters["limits"] == (IMAGE.min() * 10_000, IMAGE.max() * 10_000)
    assert "the colours' limits are now" in capsys.readouterr().err


def test_a_picture_is_asked_for_before_its_array_is_known(renderer: FakeRenderer, driver: FakeDriver) -> None:
    """And once more if the array then has other limits."""
    driver.streams[50] = []
    written = threading.Event()

    def asked() -> int:
        return sum(message["type"] == "render" for message in renderer.received)

    def write() -> int:
        end = time.monotonic() + 10
        while not asked() and time.monotonic() < end:
            time.sleep(0.001)
        before = asked()
        written.set()
        driver.run()
        return before

    with wavefield.connect(renderer.path, kind="image", shape=(4, 6)) as field:
        field.show(Dlpack(IMAGE, GPU))
        for times, pictures in ((1, 1), (100, 2)):
            written.clear()
            renderer.received.clear()
            driver.enqueue(50, written.is_set)
            field.show(DeviceArray(IMAGE * np.float32(times), stream=50))
            with ThreadPoolExecutor() as pool:
                writer = pool.submit(write)
                field.picture()
                assert writer.result() == 1, "before it is written"
            field.status()
            assert asked() == pictures
            renderer.draw(driver)


def show_late(field: wavefield.Field, driver: FakeDriver, array: np.ndarray) -> None:
    """Show an array that is written a little later."""
    written = threading.Event()
    driver.streams.setdefault(50, [])
    driver.enqueue(50, written.is_set)

    def write() -> None:
        written.set()
        driver.run()

    threading.Timer(0.05, write).start()
    field.show(DeviceArray(array, stream=50))


def test_what_a_fields_own_show_has_shown_does_not_come_later(
    started: list[Started], renderer: FakeRenderer, driver: FakeDriver
) -> None:
    field = wavefield.show(DeviceArray(IMAGE))
    field.status()
    renderer.draw(driver)
    show_late(field, driver, IMAGE * np.float32(1000))
    field.status()
    renderer.draw(driver)
    field = wavefield.show(DeviceArray(IMAGE))
    field.status()
    renderer.draw(driver)
    assert field.camera
    assert field.parameters["limits"] == (IMAGE.min(), IMAGE.max())


def test_a_camera_reaches_an_array_that_was_not_known(renderer: FakeRenderer, driver: FakeDriver) -> None:
    cloud = np.random.default_rng(5).normal(size=(6, 3)).astype(np.float32)
    camera = wavefield.Camera.at((1000, 1000, 1010), (1000, 1000, 1000))
    for use in ("render", "set", "get"):
        with wavefield.connect(renderer.path, kind="points", shape=(6, 3)) as field:
            field.show(DeviceArray(cloud))
            renderer.draw(driver)
            show_late(field, driver, cloud + np.float32(1000))
            if use == "render":
                field.render(camera=camera)
            elif use == "set":
                field.camera = camera
            np.testing.assert_allclose(field.camera.target, 1000, atol=2)
            renderer.draw(driver)


def test_a_picture_that_is_taken_again_fails_once(renderer: FakeRenderer, driver: FakeDriver) -> None:
    with wavefield.connect(renderer.path, kind="image", shape=(4, 6)) as field:
        field.show(DeviceArray(IMAGE))
        renderer.draw(driver)
        show_late(field, driver, IMAGE * np.float32(100))
        renderer.refuses = "out of memory"
        picture = field.picture()
        field.status()
        renderer.draw(driver)
        with pytest.raises(wavefield.Refused, match="out of memory"):
            picture.to_numpy()
        assert sum(message["type"] == "render" for message in renderer.received) == 2
        field.show(DeviceArray(IMAGE))
        renderer.draw(driver)


def test_the_limits_of_masked_whole_numbers_are_exact(renderer: FakeRenderer) -> None:
    times = np.ma.array(1_700_000_000_000_000_050 + np.arange(24).reshape(4, 6))
    times[0, 0] = np.ma.masked
    field = wavefield.show(times, memory="host")
    assert field.parameters["limits"] == (1_700_000_000_000_000_051, 1_700_000_000_000_000_073)


def test_colours_may_follow_their_range(renderer: FakeRenderer, capsys: pytest.CaptureFixture[str]) -> None:
    colours = np.linspace(3, 200, 4 * 6 * 4, dtype=np.float32).reshape(4, 6, 4)
    wishes: Any = (("auto", (3, 200)), ((0, None), (0, 200)), ((None, 100), (3, 100)))
    for wish, limits in wishes:
        assert wavefield.show(colours[..., :3].copy(), limits=wish, memory="host").parameters["limits"][0] == limits[0]
    assert "alpha" not in capsys.readouterr().err
    wavefield.show(colours, limits=(0, 255), memory="host")
    assert "alpha goes from 0 to 1, as float32" in capsys.readouterr().err
    _say.said.clear()
    wavefield.show(colours.astype(np.uint16), limits=(0, 255), memory="host")
    assert "alpha goes from 0 to 65535, as uint16" in capsys.readouterr().err


@pytest.mark.parametrize(("low", "high"), [(250, 350), (0.001, 0.01), (-1, 1)])
def test_a_mesh_whose_values_are_not_from_0_to_1_is_said(renderer: FakeRenderer, low: float, high: float) -> None:
    mesh = np.linspace(low, high, 4 * 6 * 4, dtype=np.float32).reshape(4, 6, 4)
    with pytest.warns(UserWarning, match=r"a mesh's values go from 0 to 1, and .* limits=\"auto\""):
        wavefield.show(mesh, kind="mesh", memory="host")
    wavefield.show(mesh, kind="mesh", memory="host", limits="auto")


def test_points_without_a_place_do_not_count(renderer: FakeRenderer) -> None:
    points = np.random.default_rng(5).normal(size=(100, 3)).astype(np.float32)
    points[:10] = -9999, -9999, np.nan
    field = wavefield.show(points, memory="host")
    assert field.parameters["limits"] == (points[10:, 1].min(), points[10:, 1].max())


# What `show` returns.


def test_what_show_returns_says_what_it_shows(renderer: FakeRenderer, tmp_path: Any) -> None:
    a = wavefield.show(IMAGE, memory="host")
    b = wavefield.show(np.asfortranarray(IMAGE), memory="host")
    assert a is not b and isinstance(a, wavefield.Field)
    assert "not contiguous" in b.shown.reason and "not contiguous" not in a.shown.reason  # type: ignore[union-attr]
    assert "another array was shown since" in repr(a) and "another" not in repr(b)
    for take in (a.snapshot, a.picture, a.render, partial(a.save, tmp_path / "a.png")):
        with pytest.raises(wavefield.FieldClosed, match=r"another array was shown since, .* use what the last"):
            take()
    assert not (tmp_path / "a.png").exists()
    assert a._repr_png_() is None and b._repr_png_() is not None
    b.save(tmp_path / "b.png")
    c = wavefield.show(IMAGE[:3], memory="host")
    with pytest.raises(wavefield.FieldClosed, match="another array was shown since"):
        b.save(tmp_path / "b2.png")
    assert (a.shape, c.shape) == ((4, 6), (3, 6))
    del a, b
    c.save(tmp_path / "c.png")
    c.camera = wavefield.Camera(0.0, 1.0, 2.0)
    assert c.camera == wavefield.Camera(0.0, 1.0, 2.0)
    c.close()
    assert c.closed and _show._shower.field.closed  # type: ignore[union-attr]


def test_a_widget_shows_the_later_arrays_too() -> None:
    pytest.importorskip("jupyter_rfb")
    widget = wavefield.Widget(wavefield.show(IMAGE, memory="host"))
    wavefield.show(2 * IMAGE, memory="host")
    assert widget.get_frame() is not None and not widget._over


# The picture of the real renderer.

STOPS = np.array([[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]])
"""matplotlib's viridis at 0, 1/4, 1/2, 3/4 and 1."""
STEPS = np.array([[0, 4, 2], [1, 3, 0], [2, 2, 4]])
PICTURES = {
    "1e6 ± 1e-3": 1e6 + 5e-4 * STEPS,
    "Unix nanoseconds": 1_700_000_000_000_000_000 + 1000 * STEPS,
    "ids near 2^27": 2**27 + STEPS,
    "2e39": 2e39 * STEPS,
    "1e-60": 1e-60 * STEPS,
    "float32 that spans 2e38": (5e37 * STEPS).astype(np.float32),
    "all of float32": (LARGEST32 * (STEPS / 2 - 1)).astype(np.float32),
    "a sine": np.sin(np.pi / 4 * (STEPS - 2)).round().astype(np.float32),
    "a mask": np.ma.masked_array(1e6 + STEPS, STEPS == 1),
    "a mask of bytes": np.ma.masked_array(STEPS.astype(np.uint8), STEPS == 1),
}


@pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_shows_the_detail(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    array = PICTURES[name]
    monkeypatch.undo()
    field = wavefield.launch(memory="host", kind="image", shape=(3, 3), arguments=SMALL)
    with field:
        prepared = prepared_of(array, "image")
        field.parameters._apply(prepared.choice)
        field.show(prepared.source)
        picture = field.snapshot()
        place = fractions(np.ma.getdata(array))
        masked = np.ma.getmaskarray(array)
        stops = STOPS[np.clip(np.round(place * 4), 0, 4).astype(int)]
        for row in range(3):
            for col in range(3):
                seen = picture[15 + 30 * row, 50 + 30 * col, :3].astype(int)
                if masked[row, col]:
                    assert seen.max() < 64, "the background"
                else:
                    assert abs(seen - stops[row, col]).max() <= 4, (row, col, seen, stops[row, col])


@pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
def test_the_browser_recipe_shows_a_whole_sine(monkeypatch: pytest.MonkeyPatch) -> None:
    """README's line, with a renderer of the test's own."""
    monkeypatch.undo()
    y, x = np.mgrid[-3:3:90j, -4:4:160j]
    x = np.sin(x * x + y * y)
    with wavefield.launch(memory="host", kind="image", shape=x.shape, arguments=SMALL) as field:
        field.show(x.astype("float32"))
        picture = field.snapshot().astype(int)
    stops = np.round(4 * fractions(x))
    exact = abs(4 * fractions(x) - stops) < 0.02
    assert len(np.unique(stops[exact])) == 5
    assert abs(picture[..., :3][exact] - STOPS[stops.astype(int)][exact]).max() <= 6


def test_what_to_do_after_the_next_show_is_said(renderer: FakeRenderer, tmp_path: Any) -> None:
    first = wavefield.show(IMAGE, memory="host")
    last = wavefield.show(IMAGE[:2], memory="host")
    calls: list[Any] = [first.snapshot, first.render, first.status, partial(first.save, tmp_path / "a.png")]
    for call in [*calls, partial(first.parameters.update, colormap="gray")]:
        with pytest.raises(wavefield.FieldClosed, match=r"another array was shown since.* use what the last show\(\)"):
            call()
    with pytest.raises(wavefield.ArrayMismatch, match=r"float64.*; wavefield.show\(x\) takes other shapes and types"):
        last.show(np.float64(IMAGE[:2]))
    last.close()
    for field in (first, last):
        with pytest.raises(wavefield.FieldClosed, match=r"was closed: wavefield.show\(x\) starts another"):
            field.status()


def test_rounded_limits_are_no_news(renderer: FakeRenderer, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = np.random.default_rng(8).normal(size=(5, 7))
    wavefield.show(numbers, memory="host")
    wavefield.show(numbers.astype(np.float32), memory="host")
    assert "limits are now" not in capsys.readouterr().err
    wavefield.show(2 * numbers, memory="host")
    assert "limits are now" in capsys.readouterr().err
