"""What a field does with its user: the panel, keys and clicks, loops until the window is closed, orbits, films."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .._memory.numbers import number
from .._renderer import panel as _panel
from .._renderer.panel import Button, Checkbox
from ..errors import RendererGone, WavefieldError, brief
from . import film as _film
from .pictured import Pictured

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from .._renderer.panel import Slider
    from .._renderer.viewer import Viewer
    from ..frame import Frame

STEP = 1 / 60
"""The seconds between two steps of what moves by itself."""


class Interactive(Pictured):
    """The part of a field that is for its user."""

    _viewer: Viewer | None = None
    """The viewer of the window, if that is in a notebook."""
    _writes_frames = True
    """Whether `until_closed` yields frames."""

    if TYPE_CHECKING:

        @property
        def closed(self) -> bool: ...
        def _begin(self) -> Frame: ...
        def _is_over(self, gone: RendererGone) -> bool: ...

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Show the window, if it is in the notebook."""
        if self._viewer is None:
            return {}
        from .window import Window

        return Window(self)._repr_mimebundle_(**options)

    def slider(self, label: str, low: float, high: float, value: float | None = None) -> Slider:
        """Show a slider from `low` to `high` in the window's panel, and return it: read its `value` in each frame.

        It begins at `value`, or at `low`. With three whole numbers it has whole numbers only. A second call with the
        same label and ends returns the slider that is there, with the value that the user chose, so it may stand in a
        loop or in a cell of a notebook. A panel has at most 64 entries.
        """
        return self._panel.slider(label, low, high, value)

    def checkbox(self, label: str, value: bool = False) -> Checkbox:
        """Show a check box in the window's panel, and return it: read its `value` in each frame. See `slider`."""
        return self._panel.add(Checkbox(self._panel, label, kind="checkbox"), value)

    def button(self, label: str) -> Button:
        """Show a button in the window's panel, and return it: its `pressed` is true once for each press."""
        return self._panel.add(Button(self._panel, label, kind="button"))

    def on_key(self, function: Callable[[str], object] | None, *keys: str) -> None:
        """Call `function(key)` when the user presses one of these keys in the window, such as "r", "left", "space".

        The window then leaves them to the program. Without `keys` it is called for all others that the window does not
        use itself (F1 lists those). Of several functions for a key the newest is called; None removes it. In a browser,
        S, V and F stay the page's.

        The functions of `on_key` and `on_click` are called by the program's next `show`, `frame` or round of a loop
        over frames or `until_closed`, in its thread. That call also raises what they raise.
        """
        for key in map(_panel.key_of, keys) if keys else (None,):
            if function is None:
                self._panel.keys.pop(key, None)
            else:
                self._panel.keys[key] = _panel.callable_of(function)
        self._panel.send()

    def on_click(self, function: Callable[..., object] | None) -> None:
        """Call `function(row, col, value)` when the user clicks on an element.

        Of points, lines and triangles it is `function(index, value)`, and of several arrays the name comes first. The
        value is a tuple for colours, else the last number, and for points of three numbers the height. A triangle has
        the mean of its corners' values. A line has the value of its first point. A drag is no click. None removes the
        function. See `on_key` for when it is called.
        """
        self._panel.click = None if function is None else _panel.callable_of(function)
        self._panel.send()

    def until_closed(self) -> Iterator[Any]:
        """Yield until the user closes the window, which is then no error, or until the field is closed otherwise.

        Yields the next frame to write, as iterating over the field does. The result of `wavefield.show` yields 0, 1,
        2, …: show the next array in each round. A round that shows nothing waits for 1/60 s.
        """
        count = 0
        while not self.closed:
            self._panel.call()
            handed = self._panel.handed
            try:
                frame = self._begin() if self._writes_frames else None
                yield count if frame is None else frame
                if frame is not None and not frame.handed_over and not self.closed:
                    frame.hand_over()
            except RendererGone as gone:
                if not self._is_over(gone):
                    raise
            count += 1
            if handed == self._panel.handed:
                self._panel.pump(STEP)

    def orbit(self, seconds: float = 5.0) -> None:
        """Turn the camera once around, in this time, and return when it is where it was.

        Inside of `record` it adds its pictures to the film instead, as many as the film shows in this time.
        """
        if self.kind == "image":
            raise WavefieldError("the camera of an image does not turn: show points, a surface or a mesh")
        if number("seconds", seconds) <= 0:
            raise ValueError(f"seconds must be above 0, not {brief(seconds)}")
        self._check_open()
        start, film = self._fit.to_drawn(self.camera), self._panel.film

        def turn(part: float) -> None:
            self._set_parameters({}, replace(start, azimuth=start.azimuth + math.tau * part))

        try:
            if film is not None:
                steps = max(1, round(seconds * film.fps))
                for step in range(steps):
                    turn(step / steps)
                    film.add(self)
            else:
                began = time.monotonic()
                while (passed := time.monotonic() - began) < seconds:
                    self._panel.call()
                    turn(passed / seconds)
                    time.sleep(max(0.0, began + passed + STEP - time.monotonic()))
            turn(0.0)
        except RendererGone as gone:
            if not self._is_over(gone):
                raise

    @contextlib.contextmanager
    def record(
        self, path: str | os.PathLike[str], fps: float = 30.0, size: tuple[int, int] | None = None
    ) -> Iterator[None]:
        """Record a film, .mp4 or .gif: each frame that is shown or handed over inside of `with` is one picture of it.

        MP4 needs the program ffmpeg. A GIF has 256 colours for each picture, and at most 50 of them in a second. `size`
        is (width, height), by default that of the picture on screen; MP4 makes it even.
        Each picture is as `save` writes it. With a colour bar, axes or columns, each is waited for.

        The file is written whole at the end of the block. After an exception inside, such as Ctrl-C, it has what was
        shown until then. If the film fails, the block goes on, and its end raises.
        """
        self._check_open()
        if self._panel.film is not None:
            raise WavefieldError(f"{self._panel.film.path} is being recorded already: leave that block first")
        panel, film = self._panel, _film.Film(path, fps, size)
        panel.film = film
        try:
            yield
        finally:
            panel.film = None
            try:
                film.end()
            except BaseException:
                film.give_up()
                raise
        if film.failure is not None:
            raise WavefieldError(f"{film.path} was not written: {film.failure}")
