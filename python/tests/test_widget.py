"""The notebook's widget, without a browser: events come in as jupyter_rfb gives them. `jupyterlab_check.py` has one."""

from __future__ import annotations

import asyncio
import base64
import itertools
import random
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import test_end_to_end
import wavefield
from fake_renderer import FakeRenderer
from readmes import ROOT
from started import Started
from wavefield import Camera

FIRST = Camera(0.5, 0.5, 3.0, (0.0, -0.2, 0.0))
"""The fake renderer's. Its picture is 3 wide and 2 high."""


def of(field: wavefield.Field, *arguments: Any) -> wavefield.Widget:
    """Return a widget that is as large on the page as its picture."""
    widget = wavefield.Widget(field, *arguments)
    height, width, _ = field.snapshot().shape
    widget.handle_event({"type": "resize", "width": width, "height": height})
    return widget


@pytest.fixture
def widget(host: wavefield.Field) -> wavefield.Widget:
    return of(host)


def press(widget: wavefield.Widget, x: float = 40.0, y: float = 30.0) -> None:
    widget.handle_event({"type": "pointer_down", "x": x, "y": y, "button": 1, "modifiers": ()})


def move(widget: wavefield.Widget, x: float, y: float, button: int = 1, modifiers: tuple[str, ...] = ()) -> None:
    widget.handle_event({"type": "pointer_move", "x": x, "y": y, "button": button, "modifiers": modifiers})


def drag(widget: wavefield.Widget, right: float, down: float, *more: Any) -> None:
    press(widget)
    move(widget, 40 + right, 30 + down, *more)


def picture(widget: wavefield.Widget) -> np.ndarray:
    shown = widget.get_frame()
    assert shown is not None
    return shown


def camera(widget: wavefield.Widget) -> Camera:
    """Return the camera of the next picture."""
    widget.get_frame()
    return widget._field.camera


def same(one: Camera, other: Camera) -> None:
    np.testing.assert_allclose(one._row(), other._row(), rtol=1e-6, atol=1e-6)


def said(widget: wavefield.Widget) -> list[str]:
    return [output["text"] for output in widget._output_context.outputs]


def test_a_drag_turns_the_camera(widget: wavefield.Widget) -> None:
    drag(widget, 10, 5)
    same(camera(widget), replace(FIRST, azimuth=0.44, elevation=0.53))
    drag(widget, 90, 0)
    same(camera(widget), replace(FIRST, azimuth=2 * np.pi - 0.1, elevation=0.53))
    drag(widget, 0, 1000)
    assert camera(widget).elevation == 1.5
    drag(widget, 0, -1000)
    assert camera(widget).elevation == -1.5


def test_the_wheel_zooms(widget: wavefield.Widget) -> None:
    for pixels, distance in [(-40, 2.7), (-40, 2.43), (80, 3.0), (-1e9, 0.4), (1e9, 20.0)]:
        widget.handle_event({"type": "wheel", "dy": pixels})
        same(camera(widget), replace(FIRST, distance=distance))


@pytest.mark.parametrize("how", [(2,), (1, ("Shift",))])
def test_the_right_button_or_shift_moves_the_target(widget: wavefield.Widget, how: tuple[Any, ...]) -> None:
    drag(widget, 0.6, 0.4, *how)
    # As camera.rs has it, with vectors.
    sin_a = sin_e = np.sin(0.5)
    cos_a = cos_e = np.cos(0.5)
    back = np.array([sin_a * cos_e, sin_e, cos_a * cos_e])
    across = np.cross([0, 1, 0], back)
    across /= np.linalg.norm(across)
    up = np.cross(back, across)
    height = 2 * 3.0 * np.tan(0.72 / 2)
    target = FIRST.target + height * (0.4 / 2 * up - 0.6 / 2 * across)
    same(camera(widget), replace(FIRST, target=tuple(target)))
    drag(widget, 1e6, 1e6, *how)
    assert np.linalg.norm(camera(widget).target) == pytest.approx(3.0)


def test_an_image_slides_with_the_pointer(renderer: FakeRenderer) -> None:
    with wavefield.connect(renderer.path, memory="host", kind="image", shape=(3, 5)) as field:
        widget = of(field)

        def middle(camera: Camera) -> np.ndarray:
            """Return the image's middle in pixels of the picture, 3 x 2: see `Placement` in view.rs."""
            longer = 5 * min(3 / 5, 2 / 3) * 3.3 / camera.distance
            return np.array([1.5 - camera.target[0] * longer / 2, 1 + camera.target[1] * longer / 2])

        for button in (1, 2):
            before = field.camera
            drag(widget, 0.7, -0.4, button)
            after = camera(widget)
            np.testing.assert_allclose(middle(after) - middle(before), (0.7, -0.4), atol=1e-6)
            assert (after.azimuth, after.elevation) == (before.azimuth, before.elevation)


def test_the_numbers_are_the_windows() -> None:
    source = "".join((ROOT / f"tool/{name}.rs").read_text() for name in ("draw/src/camera", "window/src/controls"))
    from wavefield import widget
    from wavefield._renderer import status as _status

    for pattern, number in [
        (r"PER_PIXEL: f32 = ([\d.]+)", _status._PER_PIXEL),
        (r"STEEPEST: f32 = ([\d.]+)", _status._STEEPEST),
        (r"= ([\d.]+)\.\.=20\.0", _status._NEAREST),
        (r"= 0\.4\.\.=([\d.]+)", _status._MOST_DISTANT),
        (r"FARTHEST: f32 = ([\d.]+)", _status._TARGET_FARTHEST),
        (r"FIELD_OF_VIEW: f32 = ([\d.]+)", _status._FIELD_OF_VIEW),
        (r"UPRIGHT: Self = .*distance: ([\d.]+)", widget.FITTING_DISTANCE),
        (r"Point => delta\.y / ([\d.]+)", widget.PIXELS_PER_NOTCH),
        (r"distance \* ([\d.]+)f32\.powf\(notches\)", 0.9),
    ]:
        assert re.findall(pattern, source) == [str(number)], pattern


@pytest.mark.parametrize(
    "event",
    [{"type": "double_click", "x": 1, "y": 1}, *({"type": "key_down", "key": key} for key in ("r", "R", "Home"))],
)
def test_a_reset(widget: wavefield.Widget, event: dict[str, Any]) -> None:
    drag(widget, 10, 5)
    drag(widget, 1, 1, 2)
    widget.handle_event({"type": "key_down", "key": "x"})
    assert camera(widget) != FIRST
    widget.handle_event(event)
    assert camera(widget) == FIRST


def test_many_moves_are_one_request(widget: wavefield.Widget, renderer: FakeRenderer) -> None:
    press(widget)
    for step in range(1, 11):
        move(widget, 40 + step, 30 + step / 2)
    assert [message["type"] for message in renderer.received].count("set") == 0
    same(camera(widget), replace(FIRST, azimuth=0.44, elevation=0.53))
    widget.get_frame()
    assert [message["type"] for message in renderer.received].count("set") == 1


def test_a_drag_counts_in_pixels_of_the_picture(widget: wavefield.Widget) -> None:
    widget.handle_event({"type": "resize", "width": 6, "height": 8})
    drag(widget, 20, 20)
    same(camera(widget), replace(FIRST, azimuth=0.44, elevation=0.53))


def test_a_move_without_a_button_is_none(widget: wavefield.Widget) -> None:
    drag(widget, 10, 5, 0)
    drag(widget, 10, 5, 3)
    assert camera(widget) == FIRST


def test_the_program_may_move_the_camera_too(widget: wavefield.Widget, host: wavefield.Field) -> None:
    host.camera = Camera(1.0, 0.0, 5.0)
    drag(widget, 10, 5)
    same(camera(widget), Camera(0.94, 0.03, 5.0))


def test_it_is_as_wide_as_high_as_the_picture(widget: wavefield.Widget, host: wavefield.Field) -> None:
    assert (widget.css_width, widget.css_height, widget.resizable) == ("640px", "calc(640px * 0.6667)", False)
    other = wavefield.Widget(host, css_width="10em", resizable=True)
    assert (other.css_width, other.css_height, other.resizable) == ("10em", "calc(10em * 0.6667)", True)
    assert wavefield.Widget(host, css_height="10em").css_height == "10em"
    np.testing.assert_array_equal(widget.get_frame(), host.snapshot())


def test_a_viewer_without_widgets_shows_a_still(widget: wavefield.Widget, host: wavefield.Field) -> None:
    data, _ = widget._repr_mimebundle_()
    assert base64.b64decode(data["image/png"]) == host._repr_png_()
    assert "application/vnd.jupyter.widget-view+json" in data


def test_a_closed_field(widget: wavefield.Widget, host: wavefield.Field) -> None:
    last = widget.get_frame()
    host.close()
    for _ in range(5):
        drag(widget, 10, 5)
        assert widget.get_frame() is last
    assert said(widget) == ["wavefield: the picture stays as it is: the field is closed: connect again\n"]
    assert len(widget._moves) <= 1, "nothing is kept for later"
    with pytest.raises(wavefield.FieldClosed):
        wavefield.Widget(host)


def test_a_renderer_that_is_gone(widget: wavefield.Widget, renderer: FakeRenderer) -> None:
    last = widget.get_frame()
    renderer.hang_up()
    for _ in range(5):
        drag(widget, 10, 5)
        assert widget.get_frame() is last
    (words,) = said(widget)
    assert "the renderer is gone" in words


@pytest.mark.usefixtures("without_cuda")
def test_an_array_of_another_shape_closes_the_field_that_show_returned(started: list[Started]) -> None:
    image = np.random.default_rng(3).random((4, 6), np.float32)
    field = wavefield.show(image)
    widget = of(field)
    drag(widget, 0.5, 0)
    assert camera(widget).target[0] < 0
    wavefield.show(image[1:])
    widget.get_frame()
    assert len(said(widget)) == 1


def test_write_writes_a_frame_before_each_picture(host: wavefield.Field, renderer: FakeRenderer) -> None:
    def write(frame: wavefield.Frame) -> None:
        frame.as_numpy()[...] = frame.index

    widget = of(host, write)
    widget._rfb_draw_requested = False
    for _ in range(3):
        widget.get_frame()
        assert widget._rfb_draw_requested, "the next picture"
    host.status()
    assert [frame[0, 0, 0] for frame in renderer.frames] == [0, 1, 2, 3]
    widget.write = None
    widget.get_frame()
    host.status()
    assert len(renderer.frames) == 4


def test_a_write_that_fails_is_not_called_again(host: wavefield.Field, renderer: FakeRenderer) -> None:
    calls: list[int] = []

    def write(frame: wavefield.Frame) -> None:
        calls.append(frame.index)
        if len(calls) > 1:
            raise ZeroDivisionError

    widget = of(host, write)
    last = widget._last
    with pytest.raises(ZeroDivisionError):
        widget.get_frame()
    assert widget.get_frame() is last
    assert calls == [0, 1]
    with host.frame() as frame:
        assert frame.index == 1, "the frame was given up"


def test_the_field_is_used_in_one_thread(host: wavefield.Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """JupyterLab's events come in a thread with a loop of its own."""
    threads: list[int] = []
    snapshot = wavefield.Field.snapshot

    def noted(field: wavefield.Field) -> Any:
        threads.append(threading.get_ident())
        return snapshot(field)

    monkeypatch.setattr(wavefield.Field, "snapshot", noted)

    async def elsewhere(widget: wavefield.Widget) -> None:
        drag(widget, 10, 5)
        await asyncio.sleep(0.05)

    async def notebook() -> None:
        widget = of(host)
        widget._has_visible_views = True
        threads.clear()
        await asyncio.to_thread(asyncio.run, elsewhere(widget))
        await asyncio.sleep(0.05)
        same(host.camera, replace(FIRST, azimuth=0.44, elevation=0.53))

    asyncio.run(notebook(), debug=True)
    assert threads == [threading.get_ident()]


KINDS = (
    "resize",
    "pointer_down",
    "pointer_move",
    "pointer_up",
    "wheel",
    "double_click",
    "key_down",
    "close",
    "char",
    "",
)


def test_events_at_random_do_no_harm(real: wavefield.Field) -> None:
    """The renderer would refuse a camera out of its range."""
    chance = random.Random(5)
    widget = of(real)

    def number() -> float:
        return chance.choice([0, -1, 1, chance.uniform(-500, 500), chance.uniform(-1e9, 1e9)])

    for _ in range(20):
        for _ in range(50):
            event: dict[str, Any] = {"type": chance.choice(KINDS)}
            event |= {name: number() for name in ("x", "y", "dx", "dy", "width", "height")}
            event |= {"button": chance.randrange(5), "modifiers": chance.choice([(), ("Shift",), ("Alt", "Control")])}
            event["key"] = chance.choice(["r", "Home", "q"])
            for name in chance.sample(sorted(event.keys() - {"type"}), chance.choice([0, 0, 0, 3])):
                del event[name]
            widget.handle_event(event)
        widget.get_frame()
    assert said(widget) == []
    widget.handle_event({"type": "double_click"})
    assert camera(widget) == widget._first


@pytest.fixture
def real() -> Iterator[wavefield.Field]:
    if test_end_to_end.WHY_NOT:
        pytest.skip(test_end_to_end.WHY_NOT)
    with wavefield.launch(grid=(48, 32), memory="host", arguments=test_end_to_end.SMALL) as field:
        yield field


def test_a_drag_turns_the_wave(real: wavefield.Field) -> None:
    def write(frame: wavefield.Frame) -> None:
        v = frame.as_numpy()
        test_end_to_end.flat(v, 0.0, 0.0)
        v[..., 1] = v[..., 3] = 0.3 * np.sin(5 * v[..., 0])

    widget = of(real, write)
    pictures = [picture(widget)]
    drag(widget, 40, 10)
    pictures.append(picture(widget))
    drag(widget, 10, 0, 2)
    pictures.append(picture(widget))
    widget.handle_event({"type": "wheel", "dy": -100})
    pictures.append(picture(widget))
    for one, other in itertools.pairwise(pictures):
        assert (one != other).any(axis=2).mean() > 0.1
    widget.handle_event({"type": "double_click"})
    np.testing.assert_array_equal(widget.get_frame(), pictures[0])


def test_an_image_is_dragged_pixel_by_pixel() -> None:
    if test_end_to_end.WHY_NOT:
        pytest.skip(test_end_to_end.WHY_NOT)
    shape = (90, 160)
    with wavefield.launch(
        memory="host", kind="image", shape=shape, dtype="uint8", arguments=test_end_to_end.SMALL
    ) as field:
        field.parameters["limits"] = (0, 255)
        field.show(np.random.default_rng(1).integers(0, 256, shape, np.uint8))
        widget = of(field)
        before = picture(widget)
        drag(widget, 30, -20)
        after = picture(widget)
        np.testing.assert_array_equal(after[:70, 30:], before[20:, :130])
