"""The widget for notebooks: shows the renderer's picture, and the mouse moves its camera. Imports jupyter_rfb."""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from typing import TYPE_CHECKING, Any

from . import _libraries
from ._pictures import picture as _picture
from .errors import WavefieldError, brief
from .field import Field

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from ._renderer.status import Camera
    from .frame import Frame

# As in tool/window/src/controls.rs and tool/draw/src/view.rs: pixels of the wheel, and where an image just fits.
PIXELS_PER_NOTCH, FITTING_DISTANCE = 40.0, 3.3


class Widget(_libraries.need("jupyter_rfb", "wavefield.Widget").RemoteFrameBuffer):  # type: ignore[misc]
    """A field's picture in a notebook. A drag turns it; with the right button or Shift, a drag moves it.

    After a click, the wheel zooms, and R or Home resets the camera, as a double click does. `write(frame)`, if given,
    writes a frame before each picture, while the widget is in sight and no cell runs. Without it, `request_draw()`
    shows what was handed over. `options`: those of `jupyter_rfb.RemoteFrameBuffer`, such as `css_width="800px"`.
    """

    def __new__(cls, field: Field, *arguments: Any, **options: Any) -> Any:
        """Return the window itself, if the field has it in the notebook."""
        if getattr(field, "_viewer", None) is None:
            return super().__new__(cls, field, *arguments, **options)
        from ._pictures.window import Window

        return Window(field, *arguments, **options)

    def __init__(self, field: Field, write: Callable[[Frame], object] | None = None, **options: Any) -> None:
        super().__init__(**{"css_width": "640px", "resizable": False, "cursor": "grab", **options})
        if not isinstance(field, Field):
            raise TypeError(f"Widget shows a field, such as Widget(wavefield.show(x)), not {brief(field)}")
        # What `show` returned has the pictures of one array, and a widget shows those after it, too.
        self._field: Field = getattr(field, "_field", field)
        self._first, self.write = field._fit.to_drawn(field.camera), write
        # Events may come in another thread than this loop's, and only one may use a field. So an event notes a move of
        # the camera, and the next frame makes the moves.
        self._moves: deque[Callable[[Camera], Camera]] = deque()
        self._loop, self._over = asyncio._get_running_loop(), False
        self._last = self._next()
        height, width, _ = self._last.shape
        self._size, self._pointer = (width, height), (0.0, 0.0)  # on the page
        if "css_height" not in options:
            self.css_height = f"calc({self.css_width} * {height / width:.4f})"

    def _repr_mimebundle_(self, **more: Any) -> Any:
        """Add a still, for viewers that run no widgets."""
        data, metadata = super()._repr_mimebundle_(**more)
        return {**data, "image/png": base64.b64encode(_picture.png(self._last)).decode()}, metadata

    def get_frame(self) -> NDArray[np.uint8] | None:
        """Return the next picture. After an error, such as a closed field, it is the last one for good."""
        if self._loop is not None and asyncio._get_running_loop() is not self._loop:
            self._loop.call_soon_threadsafe(self.request_draw)
            return None
        if not self._over:
            try:
                self._last = self._next()
            except Exception as error:
                self._over = True  # so that an error is shown once, not with every event
                if not isinstance(error, WavefieldError):
                    raise
                self.print(f"wavefield: the picture stays as it is: {error}")
        return self._last

    def _next(self) -> NDArray[np.uint8]:
        if self._moves:
            fit = self._field._fit
            camera = fit.to_drawn(self._field.camera)
            while self._moves:
                camera = self._moves.popleft()(camera)
            self._field.camera = fit.to_true(camera)
        if self.write is not None:
            with self._field.frame() as frame:
                self.write(frame)
            self.request_draw()
        return self._field.snapshot()

    def handle_event(self, event: dict[str, Any]) -> None:
        """Note how an event moves the camera."""
        match event:
            case {"type": "resize", "width": width, "height": height}:
                self._size = (max(width, 1.0), max(height, 1.0))
            case {"type": "pointer_down", "x": x, "y": y}:
                self._pointer = (x, y)
            case {"type": "pointer_move", "x": x, "y": y, "button": 1 | 2 as button, "modifiers": modifiers}:
                (left, top), self._pointer = self._pointer, (x, y)
                self._note(self._drag(x - left, y - top, button == 2 or "Shift" in modifiers))
            case {"type": "wheel", "dy": dy}:
                self._note(lambda camera: camera._zoom(-dy / PIXELS_PER_NOTCH))
            case {"type": "double_click"} | {"type": "key_down", "key": "r" | "R" | "Home"}:
                self._note(lambda _: self._first)

    def _note(self, move: Callable[[Camera], Camera]) -> None:
        if not self._over:
            self._moves.append(move)
            self.request_draw()

    def _drag(self, right: float, down: float, pans: bool) -> Callable[[Camera], Camera]:
        # A drag counts in pixels of the picture, whatever its size on the page.
        height, width, _ = self._last.shape
        right, down = right * width / self._size[0], down * height / self._size[1]
        layout = self._field._welcome.layout
        view = layout.view
        if layout.columns:  # and in those of a view
            width, height = width // layout.columns, height // -(-(1 + len(layout.more)) // layout.columns)
        if layout.views <= {"image", "plot"}:
            rows, cols = self._field.shape[:2] if view == "image" else (height, width)
            unit = 0.5 * max(rows, cols) * min(width / cols, height / rows) * FITTING_DISTANCE  # at a distance of 1
            unit *= 1 if view == "image" else 0.9  # a plot has so much of the picture
            return lambda camera: camera._shift(-right / unit * camera.distance, down / unit * camera.distance, 0.0)
        if pans:
            return lambda camera: camera._pan(right / height, down / height)
        return lambda camera: camera._orbit(right, down)
