"""Several arrays at once: what is sent, what is copied, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wavefield
from fake_driver import FakeDriver
from fake_renderer import FakeRenderer
from started import Started
from test_parts import CLOUD, FACES, RGB
from test_show import OnTheGpu
from test_window import until
from wavefield._look import looks as _looks, prepare as _prepare
from wavefield._memory.layout import Layout
from wavefield._renderer.protocol import hello, welcome

OTHER = (10 + 2 * CLOUD).astype(np.float64)
IMAGE = np.arange(15, dtype=np.float32).reshape(3, 5)


def show(arrays: dict[str, Any], **options: Any) -> wavefield.Field:
    field = wavefield.show(arrays, memory="host", **options)
    field.status()
    return field


def test_arrays_lie_behind_each_other(started: list[Started], renderer: FakeRenderer) -> None:
    mesh = {"array": OTHER, "faces": FACES.astype(np.int64), "colors": RGB}
    field = show({"cloud": CLOUD, "mesh": mesh, "again": {"array": CLOUD, "size": 7, "limits": (2, 4)}}, size=5)
    described = next(message for message in renderer.received if message["type"] == "hello")["array"]
    cloud = {"kind": "points", "shape": [6, 3], "dtype": "<f4"}
    parts = {"faces": {"shape": [2, 3], "dtype": "<i4"}, "colors": {"shape": [6, 3], "dtype": "|u1"}}
    assert described == {**cloud, "more": [{**cloud, "kind": "triangles", **parts}, cloud]}
    assert renderer.names == ["cloud", "mesh", "again"]
    np.testing.assert_array_equal(renderer.frames[0], CLOUD)
    for name, array in {"1": np.float32(OTHER), "1.faces": FACES, "1.colors": RGB, "2": CLOUD}.items():
        np.testing.assert_array_equal(renderer.parts[0][name], array)
    assert field.shown == wavefield.Shown.COPIED
    assert field.shown is not None and field.shown.reason.startswith("it is float64 and was converted")
    # One sphere around all of them, and limits of their own.
    every = np.vstack([CLOUD, np.float32(OTHER)])
    fit = renderer.parameters["fit"]
    assert all(more["fit"] == fit for more in renderer.more)
    middle = (every.min(0) + every.max(0)) / 2
    np.testing.assert_allclose(fit["center"], middle, rtol=1e-6)
    assert fit["radius"] == pytest.approx(np.linalg.norm(every.max(0) - middle) / 1.1)
    limits = [renderer.parameters["limits"], *(more["limits"] for more in renderer.more)]
    heights = [[array[:, 1].min(), array[:, 1].max()] for array in (CLOUD, OTHER)]
    np.testing.assert_allclose(limits, [*heights, [2, 4]], rtol=1e-6)
    assert [renderer.parameters["size"], *(more["size"] for more in renderer.more)] == [5, 5, 7]
    # Once more: nothing but the frame is sent.
    before = len(renderer.received)
    show({"cloud": CLOUD[::-1], "mesh": {**mesh, "colors": RGB[::-1]}, "again": {"array": CLOUD}})
    assert [message["type"] for message in renderer.received[before:]] == ["ready", "status"]
    np.testing.assert_array_equal(renderer.frames[1], CLOUD[::-1])
    np.testing.assert_array_equal(renderer.parts[1]["1.colors"], RGB[::-1])
    assert len(started) == 1


def test_views_side_by_side_have_fits_of_their_own(started: list[Started], renderer: FakeRenderer) -> None:
    other = np.float32(OTHER)
    show({"image": IMAGE, "cloud": CLOUD, "other": other}, columns=2)
    described = next(message for message in renderer.received if message["type"] == "hello")["array"]
    assert (described["columns"], [more["kind"] for more in described["more"]]) == (2, ["points", "points"])
    assert renderer.parameters["limits"] == [0, 14]
    for more, array in zip(renderer.more, (CLOUD, other), strict=True):
        np.testing.assert_allclose(more["fit"]["center"], (array.min(0) + array.max(0)) / 2, rtol=1e-6)
    assert renderer.names == ["image", "cloud", "other"]
    # Seen from above, though the first is an image.
    assert renderer.camera["elevation"] == pytest.approx(0.52)
    # A view's limits change alone, and more columns than views make one row.
    show({"image": IMAGE, "cloud": CLOUD, "other": {"array": other, "limits": (0, 9)}}, columns=9)
    assert [more["limits"] for more in renderer.more][1] == [0, 9]
    hellos = [message["array"] for message in renderer.received if message["type"] == "hello"]
    assert hellos[-1]["columns"] == 3
    # One array is no grid, and has the renderer's usual description.
    show({"image": IMAGE}, columns=3)
    wavefield.show(IMAGE, memory="host").status()
    hellos = [message["array"] for message in renderer.received if message["type"] == "hello"]
    assert hellos[-1] == {"kind": "image", "shape": [3, 5], "dtype": "<f4"} and len(hellos) == 3


def test_one_view_of_plots_and_of_surfaces(started: list[Started], renderer: FakeRenderer) -> None:
    show({"a": IMAGE[0], "b": 5 * IMAGE[1]})
    assert renderer.parameters["limits"] == renderer.more[0]["limits"] == [0, 45]
    show({"cloud": CLOUD, "ground": {"array": IMAGE, "kind": "surface"}, "again": CLOUD})
    assert renderer.parameters["fit"] == {"center": [0, 0, 0], "radius": 1}, "as a surface is drawn"
    show({"cloud": CLOUD, "ground": {"array": IMAGE, "kind": "surface", "extent": (0, 10, 0, 4)}})
    places = {"center": [5, 0, 2], "radius": 5, "aspect": 2.5}
    assert renderer.parameters["fit"] == renderer.more[0]["fit"] == places


@pytest.mark.parametrize(
    ("arrays", "options", "error", "words"),
    [
        ({}, {}, ValueError, "takes 1 to 16 arrays at once, not 0"),
        ({f"{n}": CLOUD for n in range(17)}, {}, ValueError, "takes 1 to 16 arrays at once, not 17"),
        ({7: CLOUD}, {}, TypeError, "the names of arrays must be text, not 7"),
        ({"two\nlines": CLOUD}, {}, ValueError, "the name of an array has one line of at most 100 bytes"),
        ({"x" * 101: CLOUD}, {}, ValueError, "the name of an array has one line of at most 100 bytes"),
        ({"a": {"array": CLOUD, "colours": RGB}}, {}, TypeError, "\"a\": there is no argument 'colours'"),
        ({"a": {"colors": RGB}}, {}, TypeError, '"a": its array is missing'),
        ({"a": CLOUD, "b": {"array": CLOUD, "colors": RGB[:5]}}, {}, ValueError, '"b": colors must have a row for'),
        ({"a": CLOUD, "b": np.zeros((3, 3), complex)}, {}, ValueError, '"b": '),
        ({"a": CLOUD, "b": {"array": CLOUD, "limits": (1, 1)}}, {}, ValueError, '"b": limits must be two different'),
        ({"a": CLOUD, "b": {"array": CLOUD, "size": "big"}}, {}, TypeError, '"b": size must be'),
        ({"a": CLOUD, "b": {"array": CLOUD, "extent": (0, 1, 0, 1)}}, {}, TypeError, '"b": extent is for'),
        ({"a": CLOUD, "b": OnTheGpu(CLOUD)}, {}, ValueError, '"b": it must be where "a" is: that is in the CPU'),
        ({"a": CLOUD, "b": IMAGE}, {}, ValueError, '"a", a set of points .* cannot be in one view: give columns=2'),
        ({"a": IMAGE, "b": IMAGE}, {}, ValueError, '"a" and "b" would hide each other in one view: give columns=2'),
        ({"a": CLOUD}, {"colors": RGB}, TypeError, "colors must be with its array"),
        ({"a": CLOUD, "b": {"array": CLOUD, "label": 7}}, {}, TypeError, '"b": label must be text, not 7'),
        ({"a": CLOUD, "b": {"array": CLOUD, "norm": "ln"}}, {}, ValueError, '"b": norm must be "linear"'),
        ({"a": CLOUD, "b": {"array": CLOUD, "colormap": 7}}, {}, TypeError, '"b": colormap must be a name'),
        (
            {"a": CLOUD, "b": {"array": IMAGE - 1, "norm": "log", "limits": (0, 1)}},
            {"columns": 2},
            ValueError,
            '"b": .*log',
        ),
        ({"a": IMAGE[:, :2], "b": CLOUD}, {"kind": "lines"}, ValueError, '"a": .* a plot is of y over its index'),
        ({"a": CLOUD}, {"extent": (0, 1, 0, 1)}, TypeError, "extent must be with its array"),
        ({"a": CLOUD}, {"columns": 0}, TypeError, "columns must be a whole number of at least 1, not 0"),
        ({"a": CLOUD}, {"columns": True}, TypeError, "columns must be a whole number"),
        ({"a": CLOUD}, {"columns": "2"}, TypeError, "columns must be a whole number"),
        (CLOUD, {"columns": 2}, TypeError, "columns is for several arrays"),
    ],
)
def test_wrong_dictionaries(
    started: list[Started], driver: FakeDriver, arrays: Any, options: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        wavefield.show(arrays, memory="host", **options)
    # Nothing is lost: the next call shows.
    show({"a": CLOUD, "b": CLOUD})


def test_arrays_on_the_gpu_are_copied_there(started: list[Started], driver: FakeDriver, renderer: FakeRenderer) -> None:
    other = OnTheGpu(np.float32(OTHER))
    field = wavefield.show({"a": OnTheGpu(CLOUD), "b": {"array": other, "colors": OnTheGpu(RGB)}})
    assert field.memory == "cuda"
    assert driver.calls.count("cuMemcpy2DAsync") == 3, "each once"
    assert field.shown is not None and "to lie one behind the other" in field.shown.reason
    renderer.draw(driver)
    np.testing.assert_array_equal(renderer.frames[0], CLOUD)
    np.testing.assert_array_equal(renderer.parts[0]["1"], np.float32(OTHER))
    np.testing.assert_array_equal(renderer.parts[0]["1.colors"], RGB)
    with pytest.raises(wavefield.ArrayMismatch, match="the field shows several arrays at once"):
        field._field.show(OnTheGpu(CLOUD))
    with pytest.raises(wavefield.ArrayMismatch, match="the field shows several arrays at once"):
        next(iter(field))
    with pytest.raises(wavefield.ArrayMismatch, match="the field shows several arrays at once"), field.frame():
        pass


def test_arrays_are_kept_for_a_busy_renderer(started: list[Started], renderer: FakeRenderer) -> None:
    renderer.frees = False
    colors = RGB.copy()
    arrays: dict[str, Any] = {"a": CLOUD, "b": {"array": CLOUD, "colors": colors}}
    for value in range(9):
        colors[...] = value
        wavefield.show(arrays, memory="host", wait=False)
    colors[...] = 99
    until(lambda: len(renderer.frames) == 3)
    renderer.frees = True
    assert renderer.session is not None
    for frame in range(3):
        renderer.session.send({"type": "free", "frame": frame})
    until(lambda: len(renderer.frames) == 4)
    assert [int(parts["1.colors"].max()) for parts in renderer.parts] == [0, 1, 2, 8]


def test_what_is_wrong_in_a_welcome() -> None:
    cloud = Layout.of("points", (100, 3), "float32")
    layout = Layout("points", (100, 3), "float32", more=(cloud, cloud), columns=2)
    assert (layout.beginnings, layout.frame_bytes) == ((0, 1280, 2560, 3760), 3760)
    assert str(layout) == "a set of points of shape (100, 3), float32, and 2 more"
    array = hello("host", None, "test", layout)["array"]
    for wrong in (7, [7], [array]):
        message = {"protocol": 2, "memory": "host", "array": {**array, "more": wrong}}
        with pytest.raises(wavefield.errors.ProtocolError, match="'more'"):
            welcome(message, "host", 1)
    with pytest.raises(wavefield.errors.ProtocolError, match="was asked for a set of points"):
        welcome({"protocol": 2, "memory": "host", "array": {**array, "columns": 1}}, "host", 1, layout)


def test_what_is_for_all_and_what_is_for_each(started: list[Started], renderer: FakeRenderer) -> None:
    renderer.parameters |= {"norm": "linear", "linthresh": 0.0, "invert": False, "label": "", "colorbar": False}
    other = {"array": 1 + IMAGE, "label": "T / K", "norm": "log", "colormap": "magma"}
    show({"a": IMAGE, "b": other, "c": CLOUD}, columns=2, colorbar=True, label="p / Pa", sizes=6, invert=True)
    assert [renderer.parameters["label"], *(more["label"] for more in renderer.more)] == ["p / Pa", "T / K", "p / Pa"]
    assert [renderer.parameters["norm"], *(more["norm"] for more in renderer.more)] == ["linear", "log", "linear"]
    assert [more["colormap"] for more in renderer.more] == ["magma", ""], "that of the first"
    assert [renderer.parameters["size"], *(more["size"] for more in renderer.more)] == [6, 6, 6]
    assert all(more["invert"] for more in renderer.more) and renderer.parameters["colorbar"]
    show({"a": {"array": CLOUD, "sizes": 4}})
    assert renderer.parameters["size"] == 4
    # What is said of numbers ends with them. The rest stays, also of arrays that are new.
    renderer.parameters |= {"label": "p / Pa", "norm": "symlog"}
    show({"a": {"array": CLOUD, "label": "1", "norm": "symlog"}, "b": IMAGE}, columns=2)
    assert (renderer.more[0]["label"], renderer.more[0]["invert"], renderer.more[0]["size"]) == ("", True, 4)
    show({"a": CLOUD[:4], "b": IMAGE}, columns=2)
    assert (renderer.parameters["label"], renderer.parameters["norm"]) == ("1", "symlog")
    show({"a": IMAGE, "b": IMAGE}, columns=2)
    assert (renderer.parameters["label"], renderer.parameters["norm"]) == ("", "linear")
    assert renderer.parameters["invert"] and renderer.parameters["colorbar"]


def test_the_look_of_an_array_goes_with_its_name(started: list[Started], renderer: FakeRenderer) -> None:
    renderer.parameters.update(_looks.USUAL)
    positive, other = IMAGE + 1, IMAGE + 3
    log = {"array": positive, "norm": "log", "label": "p / Pa", "colormap": "magma"}
    show({"p": log, "v": other}, columns=2)
    assert (renderer.parameters["norm"], renderer.more[0]["norm"]) == ("log", "linear")
    show({"v": other, "p": positive}, columns=2)
    assert (renderer.parameters["norm"], renderer.parameters["label"]) == ("linear", "")
    assert [renderer.more[0][name] for name in ("norm", "label", "colormap")] == ["log", "p / Pa", "magma"]
    show({"new": other, "p": positive}, columns=2)
    assert renderer.parameters["norm"] == "linear", "a new name has no logarithm"
    assert renderer.more[0]["norm"] == "log"


def test_what_the_user_changes_while_an_array_is_looked_at_stays(
    started: list[Started], renderer: FakeRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    renderer.parameters.update(_looks.USUAL)
    field = wavefield.show(IMAGE, memory="host", colormap="magma", size=4)
    finished = _prepare._finished

    def meanwhile(*arguments: Any) -> Any:
        field._told({"type": "parameters", "parameters": {**renderer.parameters, "invert": True, "colormap": "gray"}})
        return finished(*arguments)

    monkeypatch.setattr(_prepare, "_finished", meanwhile)
    before = len(renderer.received)
    show_one = wavefield.show(IMAGE + 1, memory="host")
    show_one.status()
    assert "set" not in [message["type"] for message in renderer.received[before:]]
    wavefield.show(IMAGE, memory="host", colormap="turbo").status()
    assert renderer.parameters["colormap"] == "turbo", "what a call says always holds"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("linthresh", np.float32(0.5), ""),
        ("invert", np.True_, ""),
        ("invert", np.array([1, 0]), "invert must be True or False"),
        ("size", True, "size must be a number"),
        ("size", float("nan"), "size must be a finite number"),
        ("sizes", (1, 2, 3), "sizes must be with its array"),
        ("sizes", "big", "sizes must be with its array"),
    ],
)
def test_arguments_of_arrays_behind_the_first(
    started: list[Started], renderer: FakeRenderer, name: str, value: Any, words: str
) -> None:
    second = {"array": CLOUD, **({} if name == "sizes" else {name: value})}
    options = {name: value} if name == "sizes" else {}
    if not words:
        show({"a": CLOUD, "b": second})
        assert renderer.more[0][name] == pytest.approx(value)
        return
    with pytest.raises((TypeError, ValueError), match=words):
        show({"a": CLOUD, "b": second}, **options)


def test_warnings_name_the_array_and_the_users_line(started: list[Started]) -> None:
    with pytest.warns(UserWarning, match='"b" is not seen: all its sizes are 0') as warned:
        show({"a": CLOUD, "b": {"array": CLOUD, "sizes": np.zeros(6, np.float32)}})
    assert warned[0].filename == __file__
    with pytest.raises(ValueError, match='"rgb": norm="log" is for values'):
        show({"p": IMAGE + 1, "rgb": np.zeros((3, 5, 3), np.float32)}, columns=2, norm="log")
    with pytest.raises(wavefield.ArrayMismatch, match="kind must be"):
        wavefield.show(IMAGE, kind=["image"])  # type: ignore[arg-type]
