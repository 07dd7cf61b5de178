"""Colours, sizes, faces, edges and vectors: what is sent, what is copied, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wavefield
from fake_driver import FakeDriver
from fake_renderer import FakeRenderer
from started import Started
from test_cuda import DeviceArray
from test_show import OnTheGpu
from test_window import until
from wavefield._memory.layout import Layout

CLOUD = np.random.default_rng(5).normal(size=(6, 3)).astype(np.float32)
RGB = np.arange(18, dtype=np.uint8).reshape(6, 3)
SIZES = np.arange(6, dtype=np.float32)
FACES = np.array([[0, 1, 2], [3, 4, 5]], np.int32)
EDGES = FACES[:, :2]


def test_parts_lie_behind_the_array(started: list[Started], renderer: FakeRenderer) -> None:
    field = wavefield.show(CLOUD, colors=RGB, sizes=SIZES, memory="host")
    field.status()
    described = next(message for message in renderer.received if message["type"] == "hello")["array"]
    assert described == {
        "kind": "points",
        "shape": [6, 3],
        "dtype": "<f4",
        "colors": {"shape": [6, 3], "dtype": "|u1"},
        "sizes": {"shape": [6], "dtype": "<f4"},
    }
    np.testing.assert_array_equal(renderer.frames[0], CLOUD)
    np.testing.assert_array_equal(renderer.parts[0]["colors"], RGB)
    np.testing.assert_array_equal(renderer.parts[0]["sizes"], SIZES)
    assert field.shown == wavefield.Shown.COPIED
    assert field.shown is not None
    assert field.shown.reason == "colors, sizes and the array are copied, to lie one behind the other"
    wavefield.show(CLOUD, colors=RGB[::-1], sizes=SIZES[::-1], memory="host").status()
    np.testing.assert_array_equal(renderer.parts[1]["colors"], RGB[::-1])
    np.testing.assert_array_equal(renderer.parts[1]["sizes"], SIZES[::-1])
    assert len(started) == 1


@pytest.mark.parametrize(
    ("parts", "kind", "drawn"),
    [
        ({"faces": FACES.astype(np.int64)}, "triangles", {"faces": FACES}),
        ({"faces": FACES.astype(np.uint16), "colors": RGB / 255}, "triangles", {"colors": np.float32(RGB / 255)}),
        ({"faces": FACES.tolist()}, "triangles", {"faces": FACES}),
        ({"edges": EDGES.astype(">i8")}, "lines", {"edges": EDGES}),
        ({"vectors": CLOUD.astype(np.float64)}, "lines", {"vectors": CLOUD}),
        ({"sizes": [0, 1, 2, 3, 4, 5]}, "points", {"sizes": SIZES}),
        ({"sizes": SIZES.astype(np.float16)}, "points", {"sizes": SIZES}),
        ({"colors": RGB.astype(np.int32)}, "points", {"colors": RGB}),
        ({"colors": RGB.astype(np.int8)}, "points", {"colors": RGB}),
        ({"colors": RGB.astype(np.float16) / 32}, "points", {"colors": RGB.astype(np.float16) / 32}),
    ],
)
def test_parts_become_what_is_drawn(
    started: list[Started], renderer: FakeRenderer, parts: dict[str, Any], kind: str, drawn: dict[str, np.ndarray]
) -> None:
    field = wavefield.show(CLOUD, memory="host", **parts)
    assert field.kind == kind
    field.status()
    for name, wanted in drawn.items():
        np.testing.assert_array_equal(renderer.parts[0][name], wanted)
        assert renderer.parts[0][name].dtype == wanted.dtype


def test_a_size_for_all(started: list[Started], renderer: FakeRenderer) -> None:
    wavefield.show(CLOUD, sizes=7, memory="host").status()
    assert renderer.parameters["size"] == 7
    assert renderer.parts[0] == {}


def test_vectors_have_the_units_of_the_places(started: list[Started], renderer: FakeRenderer) -> None:
    """Huge places are scaled, and so are the vectors."""
    wavefield.show(1e300 * CLOUD.astype(np.float64), vectors=1e300 * CLOUD.astype(np.float64), memory="host").status()
    np.testing.assert_allclose(renderer.parts[0]["vectors"], renderer.frames[0], rtol=1e-6)
    assert np.isfinite(renderer.frames[0]).all()


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"colors": RGB[:5]}, "^colors must have a row for each of the 6 points, not 5"),
        ({"colors": RGB[:, :2]}, r"^colors must have the shape \(n, 3\) or \(n, 4\), not \(6, 2\)"),
        ({"colors": RGB[:, 0]}, "^colors must have the shape"),
        ({"colors": np.float32(1)}, "^colors must have the shape"),
        ({"colors": RGB > 3}, "^colors: they must be numbers, not bool"),
        ({"colors": RGB.astype(np.complex64)}, "^colors: they must be numbers, not complex64"),
        ({"colors": RGB.astype(np.int64) * 300}, "^colors as int64 go from 0 to 255, and these from 0 to 5100"),
        ({"colors": "red.png"}, "^colors as text must be \"#rrggbb\" or a name such as black, .*, not 'red.png'"),
        ({"colors": (1, 0, 7.5)}, "^a colour is three or four numbers from 0 to 1"),
        ({"colors": np.ones(6)}, "one number for each point is its fourth: show numpy.column_stack"),
        ({"colors": [[1, 2], [3]]}, "^colors: this list cannot be read"),
        ({"sizes": SIZES[:, None]}, r"^sizes must have the shape \(n,\), not \(6, 1\)"),
        ({"sizes": SIZES - 2}, "^sizes must not be negative, and the smallest is -2"),
        ({"sizes": np.zeros(0)}, "^sizes must have the shape"),
        ({"faces": FACES.astype(np.float32)}, r"^faces: they must be whole numbers, not float32: faces.astype"),
        ({"faces": FACES + 1}, "^faces has the index 6; the 6 points are numbered from 0"),
        ({"faces": FACES - 1}, "^faces has the index -1"),
        ({"faces": FACES.astype(np.int64) + 2**40}, "^faces has the index 1099511627781"),
        ({"faces": FACES[:0]}, "^faces must have the shape"),
        ({"faces": np.zeros((2, 4), np.int32)}, "^faces must have the shape .* for squares, give both halves"),
        ({"faces": FACES, "sizes": SIZES}, "^sizes is for points, not for the corners of triangles"),
        ({"edges": EDGES - 1}, "^edges has the index -1"),
        ({"edges": FACES}, r"^edges must have the shape \(m, 2\), not \(2, 3\)"),
        ({"edges": EDGES, "vectors": CLOUD}, "vectors or edges, not both"),
        ({"vectors": CLOUD[:, :2]}, r"^vectors must have the shape \(n, 3\)"),
        ({"vectors": CLOUD[:3]}, "^vectors must have a row for each"),
        ({"kind": "triangles"}, "triangles need faces=f"),
        ({"kind": "image", "colors": RGB}, "^colors is for points, triangles or lines, not for an image"),
        ({"kind": "points", "faces": FACES}, "^faces is for triangles, not for a set of points"),
        ({"faces": OnTheGpu(FACES)}, "^faces must be where the array is: the array is in the CPU's memory"),
    ],
)
def test_wrong_parts_are_named_and_start_nothing(
    started: list[Started], parts: dict[str, Any], words: str, driver: FakeDriver
) -> None:
    with pytest.raises(wavefield.ArrayMismatch, match=words):
        wavefield.show(CLOUD, memory="host", **parts)
    assert started == []


@pytest.mark.parametrize("part", ["colors", "vectors", "edges"])
def test_a_line_plot_has_no_places(started: list[Started], part: str) -> None:
    parts: dict[str, Any] = {"colors": RGB[:5], "vectors": CLOUD, "edges": EDGES}
    with pytest.raises(wavefield.ArrayMismatch, match=f"^{part}"):
        wavefield.show(SIZES, memory="host", **{part: parts[part]})


def test_floats_beyond_one_are_clipped_with_a_warning(started: list[Started]) -> None:
    with pytest.warns(UserWarning, match="colors as floats go from 0 to 1, and these go from 0 to 17"):
        wavefield.show(CLOUD, colors=RGB.astype(np.float32), memory="host")
    wavefield.show(CLOUD, colors=RGB.astype(np.float32), memory="host")


def test_what_is_refused_changes_nothing(started: list[Started], renderer: FakeRenderer) -> None:
    field = wavefield.show(CLOUD, colors=RGB, memory="host")
    with pytest.raises(wavefield.ArrayMismatch):
        wavefield.show(CLOUD, colors=RGB[:4], memory="host")
    wavefield.show(CLOUD, colors=RGB, memory="host")
    field.close()
    wavefield.show(CLOUD, colors=RGB, memory="host")
    assert len(started) == 2
    with pytest.raises(wavefield.FieldClosed):
        field._field.show(CLOUD, colors=RGB)


def test_parts_on_the_gpu_are_copied_there(started: list[Started], driver: FakeDriver, renderer: FakeRenderer) -> None:
    field = wavefield.show(OnTheGpu(CLOUD), colors=OnTheGpu(RGB), sizes=OnTheGpu(SIZES[::-1].copy()))
    assert field.memory == "cuda"
    assert driver.calls.count("cuMemcpy2DAsync") == 3, "each once"
    renderer.draw(driver)
    np.testing.assert_array_equal(renderer.frames[0], CLOUD)
    np.testing.assert_array_equal(renderer.parts[0]["colors"], RGB)
    np.testing.assert_array_equal(renderer.parts[0]["sizes"], SIZES[::-1])
    with pytest.raises(wavefield.ArrayMismatch, match="sizes must be where the array is"):
        wavefield.show(OnTheGpu(CLOUD), sizes=SIZES)


PARTS: Any = {"faces": (2, 3), "colors": ((6, 3), "uint8")}


def test_frames_on_the_gpu_have_parts(renderer: FakeRenderer, driver: FakeDriver) -> None:
    driver.streams[50] = []
    with wavefield.connect(renderer.path, shape=(6, 3), parts=PARTS) as field:
        for frame in field.frames(1):
            assert (frame.colors.shape, str(frame.colors.dtype)) == ((6, 3), "uint8")
            assert frame.faces.pointer == frame.pointer + 512
            assert frame.colors.__cuda_array_interface__["data"] == (frame.pointer + 256, False)
            # The hand-over waits for the stream that writes a part.
            frame.colors.__dlpack__(stream=50)
            assert 50 in {stream.handle for stream in frame._writers}
            colors = frame.colors
        with pytest.raises(wavefield.errors.FrameHandedOver):
            _ = colors.pointer
        with pytest.raises(AttributeError, match="has no sizes, only colors, faces: connect with parts"):
            _ = field.empty().sizes
        array = field.empty()
        assert array.faces.pointer == array.pointer + 512
        assert field.show(array) == wavefield.Shown.WITHOUT_COPY
        device = [DeviceArray(part) for part in (CLOUD, FACES, RGB)]
        assert field.show(device[0], faces=device[1], colors=device[2]) == wavefield.Shown.COPIED
        with pytest.raises(wavefield.ArrayMismatch, match="the field's arrays have colors, faces: show"):
            field.show(device[0])
        with pytest.raises(wavefield.ArrayMismatch, match="colors: the array"):
            field.show(device[0], faces=device[1], colors=DeviceArray(RGB[:3]))
        with pytest.raises(TypeError, match="unexpected keyword argument 'colours'"):
            field.show(device[0], colours=device[2])
        renderer.draw(driver)
        np.testing.assert_array_equal(renderer.parts[2]["faces"], FACES)
    with wavefield.connect(renderer.path) as field, pytest.raises(wavefield.ArrayMismatch, match="have no parts"):
        field.show(DeviceArray(np.zeros((3, 5, 4), np.float32)), colors=DeviceArray(RGB))


def test_parts_are_kept_for_a_busy_renderer(started: list[Started], renderer: FakeRenderer) -> None:
    renderer.frees = False
    colors = RGB.copy()
    for value in range(9):
        colors[...] = value
        field = wavefield.show(CLOUD, colors=colors, memory="host", wait=False)
    colors[...] = 99
    assert field.shown is not None and "shown later" in field.shown.reason
    until(lambda: len(renderer.frames) == 3)
    renderer.frees = True
    assert renderer.session is not None
    for frame in range(3):
        renderer.session.send({"type": "free", "frame": frame})
    until(lambda: len(renderer.frames) == 4)
    assert [int(parts["colors"].max()) for parts in renderer.parts] == [0, 1, 2, 8]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"parts": {"faces": (2, 3)}}, "shape=… is missing"),
        ({"shape": (6, 3), "parts": {"colours": (6, 3)}}, "there is no colours; there are colors, sizes"),
        ({"shape": (6, 3), "parts": {"colors": (5, 3)}}, "a row for each of the 6 points"),
        ({"shape": (6, 3), "parts": {"colors": ((6, 3), "int64")}}, "colors must be float32, float16 or uint8"),
        ({"shape": (6, 3), "parts": {"colors": 6}}, "colors must be a tuple of whole numbers"),
        ({"shape": (6, 3), "kind": "triangles"}, "triangles need faces"),
    ],
)
def test_wrong_parts_of_a_connection(renderer: FakeRenderer, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(wavefield.ArrayMismatch, match=words):
        wavefield.connect(renderer.path, memory="host", **arguments)


def test_where_parts_lie() -> None:
    layout = Layout.of("triangles", (100, 3), "float32")
    layout = layout.having({"faces": ((7, 3), "int32"), "colors": ((100, 3), "uint8")})
    assert layout.offsets == {"colors": 1280, "faces": 1792, "": 1876}
    assert (layout.bytes, layout.frame_bytes) == (1200, 1876)
    assert str(layout) == "the corners of triangles of shape (100, 3), float32, with colors, faces"
