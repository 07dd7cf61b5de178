"""`wavefield.show`: shows an array with one line. It keeps a renderer for the next calls."""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
import time
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from . import _cuda, _libraries, _open
from ._array import Array, rows_are_contiguous
from ._launch import BROWSER, NO_WINDOW, Renderer, gpu_arguments
from ._layout import Layout, dtypes_of, kind_of, native_name
from ._rings import CudaRing
from ._say import say
from ._source import Source
from .errors import (
    ArrayMismatch,
    CudaError,
    DeviceMismatch,
    NoRenderer,
    Refused,
    RendererGone,
    StillShown,
    WavefieldError,
    brief,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._layout import Colormap, Kind
    from ._protocol import Memory
    from ._status import Camera
    from .field import Field

SAVE = 'field.save("picture.png") writes the picture'
NO_DISPLAY = f"there is no display, so no window opens; {BROWSER}"

UNSEEN_SECONDS = 30.0
"""How long a program without a terminal waits at its end for its window to come to the screen."""

GRID = "256x256"
"""The grid of the renderer's own wave, which is drawn until the first array arrives."""


class _Shower:
    """A renderer, and a connection with the layout of what is shown now."""

    def __init__(self, array_gpu: int | None, window: bool, device: int | None = None) -> None:
        self.window = window
        self.owner = os.getpid()
        self.on_gpu = array_gpu is not None
        self.field: Field | None = None
        self.title: str | None = None
        self.memory: str = "auto"
        self.layout: Layout | None = None
        """The layout of the connection, or of the last one."""
        self.camera: Camera | None = None
        """The camera of the last connection, for the next one."""
        # The name and the UUID of the renderer's device.
        self.device = ("", "")
        # Whether nothing was shown on this connection yet.
        self.new = True
        # Whether a picture of an earlier connection was taken.
        self.pictured = False
        # The parameters and the camera that were last set.
        self.asked: dict[str, Any] = {}
        # The addresses of arrays that were shown twice in a row: they may be written while the renderer draws them,
        # so from then on they are copied.
        self.rewritten: set[int] = set()
        # Only the colours' scale is over the data. Tab brings the rest.
        arguments = ["--grid", GRID, *(["--overlay", "legend"] if window else ["--headless"])]
        self.renderer = Renderer([*arguments, *gpu_arguments(device, array_gpu)])

    @property
    def usable(self) -> bool:
        """Return whether it can show more: it is open, belongs to this process, and no hand-off was interrupted."""
        field = self.field
        if self.owner != os.getpid() or field is None:
            return self.owner == os.getpid()
        return not field._closed and (field._handing_over is None or field._connection.refused)

    def close(self) -> None:
        """End the renderer."""
        if self.field is not None:
            self.field.close()
        self.renderer.close()

    def drop(self) -> None:
        """Disconnect. The renderer stays."""
        assert self.field is not None
        self.pictured |= self.field._pictured
        self.field._on_close = None
        self.field.close()
        self.field = None

    def connect(self, layout: Layout, memory: str, title: str | None) -> None:
        """Connect for arrays of this layout, unless that connection exists."""
        if memory not in ("auto", "cuda", "host"):
            raise ValueError(f'memory must be "auto", "cuda" or "host", not {memory!r}')
        if title is None:
            title = self.title
        if self.field is not None and self.field._connection.refused:
            self.drop()
        if self.field is not None:
            if (layout, memory, title) == (self.layout, self.memory, self.title):
                return
            # The renderer stays. Each connection starts with the default camera.
            self.camera = self.field.camera
            self.drop()
        self.field = self._connect(layout, memory, title)
        if self.window and not self.field.window:
            _say_once(NO_WINDOW)
        self.device = (self.field.device_name, self.field.device_uuid)
        if self.camera is not None and self.layout is not None and self.layout.kind == layout.kind:
            self.field.camera = self.camera
        self.layout, self.memory, self.title = layout, memory, title
        self.rewritten.clear()
        self.asked.clear()
        self.new = True

    def _connect(self, layout: Layout, memory: str, title: str | None) -> Field:
        wanted: Memory
        if memory == "auto":
            try:
                _cuda.driver()
                return self.renderer.connect("cuda", None, None, title, layout)
            except CudaError as error:
                why: Exception = error
            except Refused as refused:
                if refused.code != "memory":
                    raise
                why = refused
            first, *_ = str(why).split(". ")
            # A notebook shows warnings in red, and an array in the CPU's memory loses nothing.
            level = logging.INFO if _in_a_notebook() and not self.on_gpu else logging.WARNING
            _say_once(f'frames go through the CPU\'s memory, as with memory="host": {first}', level)
            wanted = "host"
        else:
            wanted = memory  # type: ignore[assignment]
        return self.renderer.connect(wanted, None, None, title, layout)


_shower: _Shower | None = None
_lock = threading.RLock()


def _unlock() -> None:
    """In a forked child no other thread runs that could release the lock."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_unlock)

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _one_at_a_time(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make threads take turns. What the renderer has refused meanwhile belongs to an earlier array."""

    @functools.wraps(call)
    def locked(*args: _P.args, **keywords: _P.kwargs) -> _R:
        with _lock:
            try:
                return call(*args, **keywords)
            except Refused as refused:
                field = None if _shower is None else _shower.field
                if field is None or not field._connection.refused or field._next == 0:
                    raise
                say(f"what was shown before could not be drawn: {refused}")
                return call(*args, **keywords)

    return locked


@_one_at_a_time
def show(
    array: Any,
    *,
    kind: Kind | None = None,
    limits: tuple[float, float] | None = None,
    colormap: Colormap | None = None,
    size: float | None = None,
    camera: Camera | None = None,
    title: str | None = None,
    memory: Literal["auto", "cuda", "host"] = "auto",
    window: bool | None = None,
    device: int | None = None,
    wait: bool = True,
) -> Field:
    """Show an array of any library in a window or a notebook. Call it again to show the next. Returns the field.

    `array`: an array of CuPy, PyTorch, Numba, JAX or NumPy, or any with `__cuda_array_interface__` or DLPack.
    `kind`: "image", "points", "surface" or "mesh". By default, (n, 3 or 4) floats are points; (rows, cols) and
    (rows, cols, 1, 3 or 4) are an image.
    `limits`: the numbers that the colour map and a surface's height span. By default they are the smallest and the
    largest number of the first array, until the shape, type or kind changes. Colours (RGB and RGBA) span 0 to 1, or 0
    to 255 as bytes.
    `colormap`, `size` (of points, in pixels): as in `field.parameters`.
    `camera`: as in `field.camera`. The camera stays until the kind changes.
    `title`: the window's title; by default the program's name.
    `memory`: "cuda" draws arrays on the GPU in place, or copies them once on the GPU. "host" goes through the CPU's
    memory. "auto" is CUDA if available, otherwise "host". `field.memory` says which.
    `window`: whether to open a window. By default only outside notebooks, and if there is a display. It shows the array
    and the scale of its colours. Tab shows more, and F1 lists the keys.
    `device`: the renderer's GPU, by its CUDA ordinal in this process; by default the first array's. An array on another
    GPU is copied once. If a renderer already runs on another GPU, `show` raises `DeviceMismatch`.
    `wait`: if False, `show` does not wait for a renderer that is busy; the newest array is shown when it can be.

    `field.shown` says whether the array was copied, and why. A program with a window waits at its end until the window
    is closed. Without a window, a notebook shows the field as a picture, and `field.save("picture.png")` writes it.
    """
    global _shower
    _check(title, colormap, size)
    source, layout, converted = _prepare(array, kind)
    uuid = None if device is None else _cuda.uuid_of(device)
    if _shower is not None and (not _shower.usable or window not in (None, _shower.window)):
        if _shower.owner == os.getpid():
            _shower.close()
        _shower = None
    if _shower is None:
        _shower = _Shower(source.ordinal, _wants_window() if window is None else window, device)
    elif uuid not in (None, _shower.device[1]):
        name, other = _shower.device
        raise DeviceMismatch(
            f"device={device} is the GPU with UUID {uuid}, but the renderer already runs on {name}, with UUID {other}: "
            "close() the field that show() returned, and show() starts another renderer"
        )
    shower = _shower
    try:
        shower.connect(layout, memory, title)
        assert shower.field is not None
        field = shower.field
        _keep_window_open()
        source = field._read(source)
        if limits is None and shower.new:
            limits = _limits(source.array, layout)
        span: Any = limits
        if hasattr(span, "__iter__"):
            span = tuple(span)
        wanted = {"limits": span, "colormap": colormap, "size": size}
        # Set only what changes: the user may have chosen something else in the window, and each request takes time.
        changes = {name: value for name, value in wanted.items() if value not in (None, shower.asked.get(name))}
        if changes:
            field.parameters.update(**changes)
        if camera not in (None, shower.asked.get("camera")):
            field.camera = camera
        shower.asked |= {**changes, "camera": camera or shower.asked.get("camera")}
        _draw(shower, field, source, converted, wait)
        shower.new = False
    except RendererGone as gone:
        over = shower.field is not None and shower.field._is_over(gone)
        shower.close()
        _shower = None
        if over:
            assert shower.field is not None
            return shower.field
        if shower.window:
            raise RendererGone(
                f"the window was closed, or its renderer has ended ({gone}); show() opens another"
            ) from None
        raise
    except BaseException as error:
        # If an array is refused, a window that has shown others stays for the next one.
        if shower.field is None and (shower.layout is None or isinstance(error, NoRenderer)):
            shower.close()
            _shower = None
        raise
    return field


def _draw(shower: _Shower, field: Field, source: Source, converted: str, wait: bool) -> None:
    if not wait:
        field.show(source, wait=False)
    elif source.pointer in shower.rewritten:
        field.show(source, copy=True)
    else:
        try:
            field.show(source)
        except StillShown:
            shower.rewritten.add(source.pointer)
            field.show(source, copy=True)
    reason = "" if field.shown is None else field.shown.reason
    if converted or reason.startswith("copy=True"):
        words = converted or "it is the same array as before; show two in turn"
        if reason.startswith("copied from GPU"):
            words += f". And it was {reason}"
        field._say_copied(words, source.on_device)


def _prepare(array: Any, kind: str | None) -> tuple[Source, Layout, str]:
    """Return an array that can be drawn, its layout, and a text on how it was converted."""
    field = _shower.field if _shower is not None and _shower.usable else None
    ring = None if field is None else field._ring
    # Not the field's own stream: if `connect` closes the field, it destroys that.
    where = (ring.context, ring.stream()) if isinstance(ring, CudaRing) and ring.stream() != ring.own else (None, None)
    source = Source(array)
    shape, dtype = source.shape_and_dtype()
    native = native_name(dtype)
    kind = kind_of(shape, native) if kind is None else kind
    target = _target(kind, shape, native)
    layout = Layout.of(kind, shape, target)
    converted = ""
    if target != dtype:
        source = Source(_libraries.cast(source.array, dtype, target))
        converted = f"it is {dtype} and was converted; create it as {target}"
    source.read(*where)
    # A layout leaves out a last dimension of 1.
    shape, strides = source.shape[: len(layout.shape)], source.strides[: len(layout.shape)]
    if not rows_are_contiguous(layout, shape, strides):
        source = Source(_libraries.packed(source.array if source.on_device else source.held)).read(*where)
        converted = converted or "it was not contiguous and was copied; create it contiguous"
    return source, layout, converted


def _target(kind: str, shape: tuple[int, ...], dtype: str) -> str:
    """Return the type that an array is drawn as: its own, or the one to convert it to."""
    known: Any = kind
    types = dtypes_of(known)
    if dtype in types:
        return dtype
    if kind == "image" and len(shape) == 3 and shape[2] > 1 and dtype.startswith(("int", "uint")):
        raise ArrayMismatch(
            f'the range of colours as {dtype} is unknown: use bytes from 0 to 255, x.astype("uint8"), in PyTorch '
            "x.byte(), or floats from 0 to 1"
        )
    if dtype == "bool" and "uint8" in types and not (len(shape) == 3 and shape[2] > 1):
        return "uint8"
    real = ("float", "bfloat", "int", "uint", "bool")
    return "float32" if dtype.startswith(real) else dtype


def _limits(array: Any, layout: Layout) -> tuple[float, float] | None:
    """Return the limits of the first array, or None if it has colours of its own."""
    if layout.kind == "mesh" or (layout.kind == "image" and len(layout.shape) == 3):
        return None
    readable = any(hasattr(array, name) for name in ("min", "copy_to_host", "__array__"))
    if not readable or (isinstance(array, Array) and array._stream is not None):
        raise ArrayMismatch(
            "the span of this array in CUDA memory is unknown: give limits=(low, high), or show what a library makes "
            "of it, such as torch.from_dlpack(x)"
        )
    if layout.kind != "points":
        return _libraries.extent(array)
    if not hasattr(array, "min"):  # such as Numba's
        array = _libraries.on_the_host(array)
    return _libraries.extent(array[:, 3 if layout.shape[1] == 4 else 1])


def _wants_window() -> bool:
    if _in_a_notebook():
        return False
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return True
    _say_once(NO_DISPLAY)
    if _is_interactive():
        _say_once(SAVE)
    return False


def _is_interactive() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _in_a_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


_said: set[str] = set()


def _say_once(words: str, level: int = logging.WARNING) -> None:
    if words not in _said:
        _said.add(words)
        say(words, level)


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
        if not (_shower.window and field.window):
            if {NO_DISPLAY, NO_WINDOW} & _said and not (_shower.pictured or field._pictured):
                _say_once(f"what was shown was not seen: {SAVE}")
            return
        say("the program ends when its window is closed, or by Ctrl-C")
        # Nobody can press Ctrl-C without a terminal, so a window that never comes to the screen is not waited for.
        seen, end = os.isatty(0), time.monotonic() + UNSEEN_SECONDS
        while seen or time.monotonic() < end:
            seen = seen or 0 not in field.status().picture
            if seen:
                field._show_kept()
            field._connection.pump(timeout=1.0)
    except Refused as refused:
        say(f"what was shown could not be drawn: {refused}")
    except (WavefieldError, KeyboardInterrupt):
        pass


def _check(title: object, colormap: object, size: object) -> None:
    """Refuse arguments of a wrong type before anything changes."""
    for name, value in (("title", title), ("colormap", colormap)):
        if not isinstance(value, str | None):
            raise TypeError(f"{name} must be text, not {brief(value)}")
    if not isinstance(size, Real | None):
        raise TypeError(f"size must be one number, the width of all points in pixels, not {brief(size)}")
