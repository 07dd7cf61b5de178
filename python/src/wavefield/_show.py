"""`wavefield.show`: shows an array with one line. It keeps a renderer for the next calls."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from dataclasses import replace
from operator import is_
from typing import TYPE_CHECKING, Any, Literal

from . import _libraries, _open, _say
from ._launch import BROWSER, NO_WINDOW, Renderer, gpu_arguments
from ._look import arguments as _arguments, prepare as _prepare
from ._look.looks import KEPT, USUAL
from ._memory import cuda as _cuda, numbers as _numbers
from ._memory.array import rows_are_contiguous
from ._memory.source import Source
from ._renderer.status import camera_of
from ._say import say, say_once
from .errors import (
    ArrayMismatch,
    CudaError,
    CudaMissing,
    DeviceMismatch,
    FieldClosed,
    NoRenderer,
    Refused,
    RendererGone,
    StillShown,
    WavefieldError,
    brief,
)
from .field import Field

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ._handoff.shown import Shown
    from ._memory.layout import Kind, Layout
    from ._renderer.protocol import Memory
    from ._renderer.status import Camera

SAVE = 'field.save("picture.png") writes the picture'
NO_DISPLAY = f"there is no display, so no window opens; {BROWSER}"

NVIDIA = ("/dev/nvidiactl", "/dev/dxg")
"""The files of NVIDIA's driver, on Linux and in WSL."""

UNSEEN_SECONDS = 30.0
"""How long a program without a terminal waits at its end for its window to come to the screen."""

GRID = "256x256"
"""The grid of the renderer's own wave, which is drawn until the first array arrives."""


class Showing(Field):
    """What one call of `show` shows: the field of `show`, whose pictures are of another array after the next call."""

    __slots__ = ("_field", "_mine", "_shower")
    _writes_frames = False

    def __init__(self, shower: _Shower, field: Field) -> None:
        # All else is the field's.
        self.__dict__ = field.__dict__
        self._shower, self._field, self._mine = shower, field, field._shown

    @property
    def _over(self) -> bool:
        return self._shower.showing is not self

    def __repr__(self) -> str:
        state = "another array was shown since" if self._over else "closed" if self._closed else self.server
        return f"<wavefield.show of {self._welcome.layout} on {self.device_name}, {state}>"

    @property
    def shown(self) -> Shown | None:
        """Return how the array was shown."""
        return self._mine if self._over else self._shown

    @property
    def closed(self) -> bool:
        """Return whether the window, or the renderer without one, has ended.

        Once a program has asked, `show` is no error when the user closes the window: it shows nothing.
        """
        return self._shower.ended or (self._shower.field is not None and self._shower.field.closed)

    def _before_a_picture(self) -> None:
        if self._over:
            raise FieldClosed(
                "another array was shown since, so the picture of this one is gone: use what the last show() returned, "
                "or save this one before the next show()"
            )
        super()._before_a_picture()

    def _check_open(self) -> None:
        if self._closed and self._over and not self._shower.ended:
            _refuse_over({})
        if self._closed:
            raise FieldClosed("the window, or the renderer without one, was closed: wavefield.show(x) starts another")
        super()._check_open()

    def _show_unless_over(self, array: Any, copy: bool | None, wait: bool, parts: Mapping[str, Any]) -> Shown:
        try:
            return super()._show_unless_over(array, copy, wait, parts)
        except ArrayMismatch as error:
            if "; the field is" not in str(error):
                raise
            raise ArrayMismatch(f"{error}; wavefield.show(x) takes other shapes and types, and converts them") from None

    def _repr_png_(self) -> bytes | None:
        return None if self._over else super()._repr_png_()

    def close(self) -> None:
        """Close the window, or end the renderer without one."""
        self._shower.close()

    def __del__(self) -> None:
        """Leave the field open: it is that of `show`."""


def _refuse_over(_values: dict[str, Any]) -> None:
    raise FieldClosed("another array was shown since: use what the last show() returned")


class _Shower:
    """A renderer, and a connection with the layout of what is shown now."""

    def __init__(self, array_gpu: int | None, window: bool | Literal["notebook"], device: int | None = None) -> None:
        if isinstance(window, str):
            if window != "notebook":
                raise ValueError(f'window must be True, False or "notebook", not {brief(window)}')
            _libraries.need("anywidget", 'window="notebook"')
        self.window = window
        self.owner = os.getpid()
        self.ended = False
        self.on_gpu = array_gpu is not None
        self.title: str | None = None
        self.memory = "auto"
        self.field: Field | None = None
        """The connection, if there is one now."""
        self.last: Field | None = None
        """The newest connection, which may be closed."""
        self.camera: Camera | None = None
        """The camera of the connection before, in the renderer's units."""
        self.showing: Showing | None = None
        # The addresses of arrays that were shown twice in a row: they may be written while the renderer draws them,
        # so from then on they are copied.
        self.rewritten: set[int] = set()
        self.kept: dict[str, Any] = {}
        """What the next array takes over from the connection before."""
        self.call: tuple[Any, ...] | None = None
        """What the last call said, if the next can be compared with it. A camera moves again with each call."""
        self.wanted: dict[str, Any] = {}
        """The parameters that the last call wanted."""
        # Only the colours' scale is over the data. Tab brings the rest.
        arguments = ["--grid", GRID, *(["--overlay", "legend"] if window else ["--headless"])]
        arguments += gpu_arguments(device, array_gpu)
        self.renderer = Renderer(arguments, True) if window == "notebook" else Renderer(arguments)

    @property
    def usable(self) -> bool:
        """Return whether it can show more: it is open, belongs to this process, and no hand-off was interrupted."""
        field = self.field
        whole = field is None or field._connection.refused or field._handing_over is None
        return self.owner == os.getpid() and not self.ended and whole and not (field is not None and field._closed)

    def close(self) -> None:
        """End the renderer. Does nothing the second time, or in a forked child."""
        if self.ended or self.owner != os.getpid():
            return
        self.ended = True
        (self.field or self.renderer).close()  # the field ends its renderer

    def connect(self, layout: Layout, memory: Memory | Literal["auto"], title: str | None) -> Field:
        """Return the connection for arrays of this layout."""
        if memory not in ("auto", "cuda", "host"):
            raise ValueError(f'memory must be "auto", "cuda" or "host", not {memory!r}')
        title = self.title if title is None else title
        if (field := self.field) is not None:
            if not field._connection.refused:
                if (layout, memory, title) == (field._welcome.layout, self.memory, self.title):
                    return field
                self.camera = field._fit.to_drawn(field.camera)
            if field._panel.film is not None:
                field._panel.film.settle()
            # The renderer stays.
            field._on_close = self.field = None
            field.close()
            field.parameters._ask = _refuse_over
        self.field = field = self._connect(layout, memory, title)
        last, self.last = self.last, field
        self.memory, self.title = memory, title
        self.rewritten.clear()
        if last is not None:  # each connection starts with the default camera and size
            field._pictured, field._watched = last._pictured, last._watched
            field._panel = last._panel
            field._panel.attach(field._connection)
            if self.camera is not None and last._welcome.layout.view == layout.view:
                field._fit = last._fit
                field._set_parameters({"fit": last._fit.message()}, self.camera)
            now, then = field.parameters, last.parameters
            self.kept = {name: then[name] for name in KEPT if then.get(name) != now.get(name)}
        return field

    def check_device(self, device: int | None) -> None:
        """Refuse another device than the renderer's."""
        uuid = None if device is None else _cuda.uuid_of(device)
        if self.last is not None and uuid not in (None, self.last.device_uuid):
            name, other = self.last.device_name, self.last.device_uuid
            raise DeviceMismatch(
                f"device={device} is the GPU with UUID {uuid}, but the renderer already runs on {name}, with UUID "
                f"{other}: close() the field that show() returned, and show() starts another renderer"
            )

    def was_called(self, array: Any, said: tuple[Any, ...]) -> bool:
        """Return whether the last call said the same."""
        call = self.call  # another thread may forget it
        if call is None or isinstance(array, dict):
            return False
        # In a loop, they are mostly the same objects. True is equal to 1, but not the same.
        return all(map(is_, said, call)) or (all(map(_is_plain, said)) and repr(said) == repr(call))

    def another(self, array: Any, limits: Any, wait: bool) -> Showing | None:
        """Show an array whose call says what the last one said, if it can be drawn as that one is."""
        with self._window_may_close():
            if (field := self.field) is None or field._connection.refused:
                return None
            field._connection.pump()  # the user may have changed what the call says
            source, layout, choice = Source(array), field._welcome.layout, field.parameters._choice
            is_alone = not (self.kept or layout.parts or layout.more)
            # Colours and meshes are looked at while nobody has given their limits, and places for the first axes.
            has_limits = choice.given or not (layout.colours or layout.kind == "mesh")
            has_axes = field._fit.box is not None or not (layout.has_places and field.parameters.get("axes"))
            is_plain = choice.units == _numbers.PLAIN and not (field._fit.moves or source.before_mask)
            if not (is_alone and has_limits and has_axes and is_plain):
                return None
            # What is read waits for the field's own stream, which another layout would close. For a field in the CPU's
            # memory, an array on a GPU would be copied here, and its gaps not said.
            is_copied = field._context is None and source.on_device
            if is_copied or source.shape_and_dtype() != (layout.shape, layout.dtype):
                return None
            source = field._read(source)
            if not rows_are_contiguous(layout, source.shape, source.strides):
                return None
            if not field._draw_as(source if source.library_knows else source.array):
                return None
            now, choice = field.parameters, field.parameters._choice
            if any(now.get(name) != value for name, value in self.wanted.items()):
                return None
            if limits is not None and not (choice.follows if limits == "auto" else choice.limits == limits):
                return None
            self._draw(field, source, "", wait)
        return self._showing()

    def show(
        self,
        prepared: _prepare.Prepared,
        settings: dict[str, Any],
        camera: Any,
        title: str | None,
        memory: Any,
        wait: bool,
    ) -> Showing:
        """Show an array, with what its call of `show` says."""
        before = None
        try:
            with self._window_may_close():
                field = self.connect(prepared.layout, memory, title)
                _keep_window_open()
                parameters, before = field.parameters, field.parameters._choice
                others = prepared.looks[1:]
                # What a call says always holds. Each request takes time, so leave out what is so already.
                self.wanted = dict(prepared.changes)
                self.wanted |= {name: value for name, value in settings.items() if value is not None}
                wanted = {**self.kept, **self.wanted}
                changes = {name: value for name, value in wanted.items() if value != parameters.get(name, USUAL[name])}
                field._draw_in(prepared.choice, prepared.fit, camera, changes)
                field._draw_others(others, prepared.names)
                self.kept = {}
                self._draw(field, field._read(prepared.source), prepared.converted, wait)
        except RendererGone:
            raise
        except BaseException as error:
            if before is not None:
                now = parameters._choice
                parameters._choice = replace(before, limits=now.limits, units=now.units)
            # If an array is refused, a window that has shown others stays for the next one.
            if self.field is None and (self.last is None or isinstance(error, NoRenderer)):
                self.close()
            raise
        return self._showing()

    @contextlib.contextmanager
    def _window_may_close(self) -> Iterator[None]:
        """Close with the window, which is no error if the program asks whether it is closed."""
        try:
            yield
        except RendererGone as gone:
            over = self.last is not None and self.last._is_over(gone)
            self.close()
            if over:
                return
            if self.window:
                raise RendererGone(
                    f"the window was closed, or its renderer has ended ({gone}); show() opens another"
                ) from None
            raise

    def _draw(self, field: Field, source: Source, converted: str, wait: bool) -> None:
        try:
            field.show(source, copy=source.pointer in self.rewritten or None, wait=wait)
        except StillShown:
            self.rewritten.add(source.pointer)
            field.show(source, copy=True)
        reason = "" if field.shown is None else field.shown.reason
        if converted or reason.startswith("copy=True"):
            words = converted or "it is the same array as before; show two in turn"
            if reason.startswith("copied from GPU"):
                words += f". And it was {reason}"
            field._say_copied(words, source.on_device)

    def _showing(self) -> Showing:
        assert self.last is not None
        self.showing = Showing(self, self.last)
        return self.showing

    def _connect(self, layout: Layout, memory: Memory | Literal["auto"], title: str | None) -> Field:
        if memory == "auto":
            memory = "host"
            try:
                _cuda.driver()
                return self.renderer.connect("cuda", None, None, title, layout)
            except (CudaError, Refused) as why:
                error = why
                if isinstance(error, Refused) and error.code != "memory":
                    raise
                first, *_ = str(error).split(". ")
            # Without an NVIDIA GPU, an array in the CPU's memory loses nothing. A notebook shows warnings in red.
            has_gpu = not isinstance(error, CudaMissing) or any(map(os.path.exists, NVIDIA))
            is_lost = self.on_gpu or (has_gpu and not _in_a_notebook())
            level = logging.WARNING if is_lost else logging.INFO
            say_once(f'frames go through the CPU\'s memory, as with memory="host": {first}', level=level)
        return self.renderer.connect(memory, None, None, title, layout)


_shower: _Shower | None = None
_lock = threading.RLock()


def _unlock() -> None:
    """In a forked child no other thread runs that could release the lock."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_unlock)


def show(
    array: Any,
    *,
    columns: int | None = None,
    colors: Any = None,
    sizes: Any = None,
    vectors: Any = None,
    faces: Any = None,
    edges: Any = None,
    kind: Kind | None = None,
    limits: tuple[float | None, float | None] | Literal["auto"] | None = None,
    colormap: Any = None,
    norm: Literal["linear", "log", "symlog"] | None = None,
    linthresh: float | None = None,
    invert: bool | None = None,
    colorbar: bool | None = None,
    label: str | None = None,
    axes: bool | None = None,
    size: float | None = None,
    camera: Camera | Literal["fit"] | None = None,
    extent: tuple[float, float, float, float] | None = None,
    title: str | None = None,
    memory: Literal["auto", "cuda", "host"] = "auto",
    window: bool | Literal["notebook"] | None = None,
    device: int | None = None,
    wait: bool = True,
) -> Showing:
    """Show an array of any library in a window or a notebook. Call it again to show the next.

    Returns the field, whose pictures are of this array until the next call.

    `array`: an array of CuPy, PyTorch, Numba, JAX or NumPy, or any with `__cuda_array_interface__` or DLPack.
    `colors`: RGB or RGBA of each point, (n, 3 or 4): floats from 0 to 1, or bytes. Or one colour for all: "orange",
    "#rrggbb", or a tuple of three or four numbers. For one number for each point, make it the fourth column.
    `sizes`: the diameters of points in pixels, (n,) or one for all; up to 64, and 0 hides a point.
    `faces`: (m, 3) whole numbers: the points that each triangle connects. `edges`: (m, 2), the same for lines.
    `vectors`: (n, 3): an arrow from each point, as long as this.
    These are on the device of the array, and are copied once.
    For several arrays at once, `array` is a dictionary of names to arrays, or to dictionaries of an `array` and its own
    arguments: `show({"p": {"array": p, "norm": "log", "label": "p / Pa"}, "v": v}, columns=2, colorbar=True)`. Outside
    of these, an argument is for all arrays that have none of their own. They are copied once, and hide each other. With
    `columns=2` each has a view, a bar and axes of its own in a grid with so many columns. Without `columns` all share
    one view, its axes, and its scale of height: surfaces have common limits, and so have line plots. Colours of points
    have limits of their own, and each array a bar, with its name if it has no label.
    `kind`: "image", "points", "surface", "mesh", "triangles" or "lines". By default, (n, 3 or 4) floats are points, and
    with `faces` triangles; (rows, cols) and (rows, cols, 1, 3 or 4) are an image; (n,) is a line plot. kind="lines"
    connects points one after another, up to a NaN.
    `limits`: (low, high), the numbers that the colour map and a surface's height span, or the ends of colours. They
    hold for this array and those after it. In place of None in (None, 1) is the array's own end. "auto" follows each
    array. Without any they are the array's smallest and largest number, and of colours and meshes 0 to 1 (0 to the
    type's largest number for whole ones). An array whose range is 10 times away sets them anew, unless a call,
    `field.parameters` or the window chose them.
    `colormap`: "viridis", "plasma", "magma", "inferno", "cividis", "gray", "turbo", "coolwarm", "RdBu", "twilight", a
    name or a colour map of matplotlib, or an array (256, 3) of floats from 0 to 1 or uint8. `invert`, or a name that
    ends in "_r", turns it around.
    `norm`: "linear", "log" or "symlog", for colours; heights stay linear. "log" needs limits above 0; other numbers
    have no colour. "symlog" is linear up to `linthresh`, by default a thousandth of the larger limit.
    `colorbar`: whether `save`, `snapshot` and stills have a colour bar. A window always has. `label`: what it says, for
    example "pressure / Pa".
    `axes`: whether there are axes with numbers.
    `size`: of points and lines, in pixels.
    What is said of the numbers (`limits`, `norm`, `linthresh`, `label`, `extent`) ends with an array of another kind,
    shape or type; more points are no other shape. All else (`colormap`, `invert`, `size`, `colorbar`, `axes`) stays
    until another call or the window changes it.
    `camera`: as in `field.camera`. By default it shows all finite points, or all of a mesh, from above. It stays until
    the limits would change, or the array leaves the view; "fit" fits it to this array.
    `extent`: (x0, x1, y0, y1), where a surface's first and last column and its first and last row lie. Cameras and
    depths are in these units. Without it, cells are square, and the longer side goes from -1 to 1. Of an image it is
    (left, right, bottom, top), the numbers of its axes. It holds for this array and those after it of the same shape.
    `title`: the window's title; by default the program's name.
    `memory`: "cuda" draws arrays on the GPU in place, or copies them once on the GPU. "host" goes through the CPU's
    memory. "auto" is CUDA if available, otherwise "host". `field.memory` says which.
    `window`: whether to open a window. By default only outside notebooks, and if there is a display. It shows the array
    and the scale of its colours. Tab shows more, and F1 lists the keys. "notebook" opens it in a notebook, where the
    result as a cell's last line shows it; this needs anywidget.
    `device`: the renderer's GPU, by its CUDA ordinal in this process; by default the first array's. An array on another
    GPU is copied once. If a renderer already runs on another GPU, `show` raises `DeviceMismatch`.
    `wait`: if False, `show` does not wait for a renderer that is busy; the newest array is shown when it can be.

    `field.shown` says whether the array was copied, and why. A program with a window waits at its end until the window
    is closed. Without a window, a notebook shows the field as a picture, and `field.save("picture.png")` writes it.
    """
    its = {"colors": colors, "sizes": sizes, "vectors": vectors, "faces": faces, "edges": edges, "extent": extent}
    usual = {"kind": kind, "limits": limits, "size": size, "colormap": colormap, "invert": invert}
    usual |= {"norm": norm, "linthresh": linthresh, "label": label}
    settings = {"colorbar": colorbar, "axes": axes}
    said = (*its.values(), *usual.values(), columns, colorbar, axes, camera, title, memory, window, device)
    several: _arguments.Entries = {}
    if _shower is None or not _shower.was_called(array, said):
        several = _arguments.checked(array, its, usual, columns)
        _check(title, settings, camera)
    told = False
    if _shower is not None and _shower.last is not None:
        _shower.last._panel.call()
    with _lock:
        while True:
            try:
                stays = _shower if _shower is not None and _shower.usable and window in (None, _shower.window) else None
                last = None if stays is None else stays.last
                kept = {} if stays is None else stays.kept
                with _cuda.NOTHING if last is None or last._context is None else last._context.current():
                    if last is not None and not (last._closed or last._connection.refused):
                        with contextlib.suppress(RendererGone):  # which what follows says, too
                            last._look(wait=True)  # what `field.show` has shown comes before
                    is_same = stays is not None and stays.was_called(array, said)
                    if stays is not None and is_same and (showing := stays.another(array, limits, wait)) is not None:
                        return showing
                    several = several or _arguments.checked(array, its, usual, columns)
                    prepared = _prepare.prepare(several, columns, camera, last, kept, axes)
                    shower = _started(prepared.source, window, device) if stays is None else stays
                    shower.check_device(device)
                    shower.call = None
                    showing = shower.show(prepared, settings, camera, title, memory, wait)
                    if not (prepared.converted or isinstance(array, dict) or camera) and all(map(_is_plain, said)):
                        shower.call = said
                    return showing
            except KeyboardInterrupt as stop:
                raise stop.with_traceback(None) from None  # without the lines of this package
            except Refused as refused:
                # What the renderer has refused meanwhile belongs to an earlier array.
                field = None if _shower is None else _shower.field
                if told or field is None or not field._connection.refused or field._next == 0:
                    raise
                say(f"what was shown before could not be drawn: {refused}")
                told = True


def _is_plain(value: Any) -> bool:
    """Return whether a value means the same in each call: limits of (None, 1) are each array's own."""
    plain = (bool, int, float, str)
    return value is None or type(value) in plain or (type(value) is tuple and all(type(one) in plain for one in value))


def _started(source: Source, window: bool | Literal["notebook"] | None, device: int | None) -> _Shower:
    """Start another renderer, instead of the one that is there."""
    global _shower
    if _shower is not None:
        _shower.close()
        _shower = None
    _shower = _Shower(source.ordinal, _wants_window() if window is None else window, device)
    return _shower


def _wants_window() -> bool:
    if _in_a_notebook():
        return False
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return True
    say_once(NO_DISPLAY)
    if _is_interactive():
        say_once(SAVE)
    return False


def _is_interactive() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _in_a_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def _keep_window_open() -> None:
    # A test would never end.
    if "pytest" in sys.modules and {"PYTEST_VERSION", "PYTEST_CURRENT_TEST"} & {*os.environ}:
        return
    if _before_the_end not in _open.before_closing:
        _open.before_closing.append(_before_the_end)


def _before_the_end() -> None:
    """Wait until the window is closed, but not in an interactive session or after an exception."""
    if _shower is None or not _shower.usable or _shower.field is None:
        return
    if _is_interactive() or hasattr(sys, "last_value"):
        return
    field = _shower.field
    try:
        field._connection.pump()
        if not (_shower.window is True and field.window):
            if {NO_DISPLAY, NO_WINDOW} & _say.said and not field._pictured:
                say_once(f"what was shown was not seen: {SAVE}")
            return
        say("the program ends when its window is closed, or by Ctrl-C")
        # Nobody can press Ctrl-C without a terminal, so a window that never comes to the screen is not waited for.
        seen, end = os.isatty(0), time.monotonic() + UNSEEN_SECONDS
        while seen or time.monotonic() < end:
            seen = seen or 0 not in field.status().picture
            if seen:
                field._before_a_picture()
                field._look(wait=True)
            field._connection.pump(timeout=1.0)
    except Refused as refused:
        say(f"what was shown could not be drawn: {refused}")
    except (WavefieldError, KeyboardInterrupt):
        pass


def _check(title: object, settings: dict[str, Any], camera: object) -> None:
    """Refuse arguments of a wrong type before anything changes."""
    if not isinstance(title, str | None):
        raise TypeError(f"title must be text, not {brief(title)}")
    for name, value in settings.items():
        if value not in (None, True, False):
            raise TypeError(f"{name} must be True or False, not {brief(value)}")
    if camera is not None and not (isinstance(camera, str) and camera == "fit"):
        camera_of(camera)
