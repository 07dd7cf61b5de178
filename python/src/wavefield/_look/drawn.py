"""How a field is drawn: its limits, its place in the view, its camera and its parameters. A base of `Field`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .._memory import numbers as _numbers
from .._renderer import protocol as _protocol, status as _status
from .._renderer.connection import close_all
from .._renderer.described import Described
from .._say import say_once
from ..frame import Frame
from . import fit as _fit, limits as _limits, nothing as _nothing, range as _range

if TYPE_CHECKING:
    from collections import deque

    from .._handoff.rings import Ring
    from .._renderer.panel import Panel
    from .._renderer.protocol import Message
    from .._renderer.status import Camera, Status
    from .fit import Fit
    from .looks import Look
    from .parameters import Parameters

MOST_SEARCHES = 16
"""Of so many arrays at most, the ends are not looked at yet."""


class Drawn(Described):
    """The part of a field that says how it is drawn."""

    parameters: Parameters
    _ring: Ring
    _panel: Panel
    _fit: Fit
    _axes: dict[str, Any]
    _others: tuple[Look, ...]
    _sent: tuple[list[str], list[Message]]
    _searches: deque[_range.Search]
    _screen: tuple[int, int] | None
    _closed: bool
    _camera_then: Camera | None = None
    """The camera when the renderer last said where it is, if it was not moved from here since."""

    if TYPE_CHECKING:

        def _check_open(self) -> None: ...

    def _fit_to(self, array: Any) -> None:
        """Choose limits and fit for an array that is drawn as it is, as `wavefield.show` does."""
        self._connection.pump()  # the user may have changed them in the window
        choice, fit, layout = self.parameters._choice, self._fit, self._welcome.layout
        sort = layout.sort(layout.dtype)
        new = choice.sort != sort or (layout.has_places and fit.sort != sort)
        new = new or choice.units != _numbers.PLAIN or fit.moves
        if new or not self._is_chosen:
            search = _range.Search(array, layout, self._context)
            self._searches.append(search)
            # To wait for each array would take as long as a frame.
            if search.on_device and not new:
                search.start()
        else:
            self._searches.clear()
        self._look(wait=new)

    @property
    def _is_chosen(self) -> bool:
        """Return whether no array changes limits and view."""
        choice, layout = self.parameters._choice, self._welcome.layout
        has_limits = choice.given or (layout.kind == "mesh" and not choice.follows)
        return has_limits and (self._fit.given or not layout.has_places)

    def _look(self, wait: bool) -> bool:
        """Use what was found out about the last arrays. With `wait`, about all. Return whether they are drawn anew."""
        changed = False
        while self._searches and (wait or len(self._searches) > MOST_SEARCHES or self._searches[0].done):
            search = self._searches.popleft()
            last = self.parameters._choice
            choice, fit = self._after(search)
            if choice is last and fit == self._fit:
                continue
            near = choice.drawn_in(_numbers.PLAIN)
            if near.limits != choice.limits:
                say_once("numbers of more than 4e37 have the colour of an end; wavefield.show(x) scales them")
            self._draw_in(near, fit)
            changed = True
        return changed

    def _draw_as(self, array: Any) -> bool:
        """Draw with the limits and the fit of an array, and return whether its numbers can be drawn as they are."""
        if self._is_chosen:
            return True
        last, layout = self.parameters._choice, self._welcome.layout
        choice, fit = self._after(_range.Search(array, layout, self._context))
        norm = self.parameters.get("norm", "linear")
        units = _range.units_of(choice, fit, layout, layout.dtype, layout.dtype, norm)
        if units != _numbers.PLAIN or fit.moves:
            return False
        if choice is not last or fit != self._fit:
            self._draw_in(choice.drawn_in(units), fit)
        return True

    def _after(self, search: _range.Search) -> tuple[_limits.Choice, Fit]:
        """Return the limits and the fit for an array, and warn if nothing of it is seen.

        Waits until the array is written if they depend on its numbers.
        """
        last, layout, fit = self.parameters._choice, self._welcome.layout, self._fit

        def ends() -> _range.Ends:
            return search.ends(self._connection.pump)

        is_log = self.parameters.get("norm") == "log"
        choice = _range.limits_of(last, layout, layout.dtype, None, ends, search.above_zero if is_log else None)
        # Frames of a mesh are what `Array` says they are.
        if layout.kind != "mesh" or not isinstance(search.array, Frame) or fit.moves:
            fit = _range.fit_of(fit, layout, layout.dtype, None, ends)
        if search.is_known:
            _nothing.warn_of(search, ends, "log" if is_log else "linear", fit, self)
        return choice, fit

    def _draw_in(
        self,
        choice: _limits.Choice,
        fit: Fit,
        wish: Camera | str | None = None,
        changes: dict[str, Any] | None = None,
    ) -> None:
        """Draw with these limits, `changes` and this fit, and move the camera to `wish`, or to a new fit."""
        self.parameters._apply(choice, changes)
        camera = fit.to_drawn(wish) if isinstance(wish, _status.Camera) else None
        if camera is None and fit.fresh:
            first, *different = self._welcome.layout.views
            camera = _fit.CAMERA if different else _fit.CAMERAS.get(first, _fit.CAMERA)
            if wish is None and self._fit.sort is not None:  # the user may have turned it
                camera = replace(self.status().camera, distance=camera.distance, target=camera.target)
        values = {"fit": fit.message()} if fit.message() != self._fit.message() else {}
        axes = self._axes
        if not (axes and fit is self._fit):
            axes = fit.axes(self._welcome.layout) if fit.box or axes else {}
        if "axes" in self.parameters and axes != self._axes:
            values |= axes
        if values or camera is not None:
            self._set_parameters(values, camera)
        self._fit, self._axes = replace(fit, fresh=False) if fit.fresh else fit, axes

    def _draw_others(self, others: tuple[Look, ...], names: tuple[str, ...]) -> None:
        """Draw the other arrays of a frame like this, and all with these names."""
        more = [look.message(layout) for look, layout in zip(others, self._welcome.layout.more, strict=True)]
        values = {"names": [*names], "more": more}
        if values := {name: now for (name, now), old in zip(values.items(), self._sent, strict=True) if now != old}:
            self._set_parameters(values)
        self._others, self._sent = others, ([*names], more)

    def status(self) -> Status:
        """Ask the renderer for its state."""
        self._check_open()
        return self._status()

    def _status(self) -> Status:
        state, files = self._connection.request({"type": "status"}, "state")
        close_all(files)
        status = _status.status(state)
        status = replace(status, camera=self._fit.to_true(status.camera))
        self._screen = None if 0 in status.picture else status.picture
        self._camera_then = status.camera
        return status

    @property
    def camera(self) -> Camera:
        """Return the present camera. Set it to move the camera; the user moves it with the mouse."""
        self._look(wait=True)
        return self.status().camera

    @camera.setter
    def camera(self, camera: Camera) -> None:
        self._look(wait=True)
        self._set_parameters({}, self._fit.to_drawn(_status.camera_of(camera)))
        self._fit = replace(self._fit, given=True)

    def _set_parameters(self, values: dict[str, Any], camera: Camera | None = None) -> None:
        """Set parameters, and the camera in the renderer's units."""
        self._check_open()
        if self._panel.film is not None:
            self._panel.film.settle()
        view = {} if camera is None else {"camera": camera._message()}
        if camera is not None:
            self._camera_then = None
        message, files = self._connection.request({"type": "set", "parameters": values, **view}, "parameters")
        close_all(files)
        self._told(message)

    def _told(self, message: Message) -> None:
        self.parameters._set(_protocol.mapping(message, "parameters"))
