"""`wavefield.show`: one array, one line. It keeps a renderer of its own for the calls to come."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any, Literal

from . import _cuda, _libraries, _open, _source
from ._array import rows_are_contiguous
from ._launch import Renderer
from ._layout import Layout, dtypes_of, kind_of, native_name
from .errors import ArrayMismatch, CudaError, NoRenderer, Refused, RendererGone, StillShown, WavefieldError

if TYPE_CHECKING:
    from ._protocol import Memory
    from ._status import Camera
    from .field import Field

GRID = "256x256"
"""Of the renderer's own wave, which is drawn until the first array is there."""


class _Shower:
    """A renderer, and the connection that has the shape of what is shown now."""

    def __init__(self, array: Any, window: bool) -> None:
        self.window = window
        self.owner = os.getpid()
        self.field: Field | None = None
        self.title: str | None = None
        self.memory: str = "auto"
        self.layout: Layout | None = None
        """Of the connection, or of the last one that there was."""
        self.camera: Camera | None = None
        """Of the last connection, for the next one."""
        # Whether the connection was not told yet how to draw.
        self.new = True
        # The parameters and the camera that were asked for last.
        self.asked: dict[str, Any] = {}
        # Where arrays begin that were written while they were on show. From then on they are copied.
        self.rewritten: set[int] = set()
        arguments = ["--grid", GRID, *([] if window else ["--headless"])]
        self.renderer = _start(arguments, array)

    @property
    def usable(self) -> bool:
        """Return whether it can show more: nobody has closed it or cut a hand-over short, and it is this process's."""
        field = self.field
        return self.owner == os.getpid() and (field is None or not (field.closed or field._handing_over is not None))

    def close(self) -> None:
        """End the renderer."""
        if self.field is not None:
            self.field.close()
        self.renderer.close()

    def connect(self, layout: Layout, memory: str, title: str | None) -> None:
        """Have a connection for arrays of this layout."""
        if memory not in ("auto", "cuda", "host"):
            raise ValueError(f'memory is "auto", "cuda" or "host", not {memory!r}')
        if title is None:
            title = self.title
        if self.field is not None:
            if (layout, memory, title) == (self.layout, self.memory, self.title):
                return
            # The renderer stays for the next connection, which begins with the usual camera.
            self.camera = self.field.camera
            self.field._on_close = None
            self.field.close()
            self.field = None
        self.field = self._connect(layout, memory, title)
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
            _say_once(f'frames go through the CPU\'s memory, as with memory="host": {first}')
            wanted = "host"
        else:
            wanted = memory  # type: ignore[assignment]
        return self.renderer.connect(wanted, None, None, title, layout)


_shower: _Shower | None = None


def show(
    array: Any,
    *,
    kind: str | None = None,
    limits: tuple[float, float] | None = None,
    colormap: str | None = None,
    size: float | None = None,
    camera: Camera | None = None,
    title: str | None = None,
    memory: Literal["auto", "cuda", "host"] = "auto",
    window: bool | None = None,
) -> Field:
    """Show an array of any library in a window or a notebook, and return the field; call it again to show the next.

    `array`: of CuPy, PyTorch, Numba, JAX, NumPy, or anything with `__cuda_array_interface__` or DLPack.
    `kind`: "image", "points", "surface" or "mesh". By default (n, 3 or 4) floats are points, and (rows, cols) and
    (rows, cols, 1, 3 or 4) are an image.
    `limits`: the numbers between which the colour map spans, and a surface's height. By default the smallest and the
    largest of the first array; they stay for the arrays that follow, until the shape, type or kind changes. Colours
    (RGB and RGBA) span 0 to 1, or 0 to 255 as bytes.
    `colormap`, `size`: of the points, in pixels; `camera`: as in `field.parameters` and `field.camera`; where it is, it
    stays until the kind changes.
    `title`: a name for the renderer to show.
    `memory`: "cuda" draws arrays of the GPU from where they are or with one copy on the GPU, "host" goes through the
    CPU's memory, "auto" takes CUDA where there is any. `field.memory` says which.
    `window`: True or False; by default there is one unless this is a notebook, or there is no display.

    `field.shown` says whether the array was copied, and why. A program with a window waits at its end until the window
    is closed. Where there is none, a notebook shows the field as a picture, and `field.save("picture.png")` writes one.
    """
    global _shower
    array, layout, converted = _prepare(array, kind)
    if _shower is not None and (not _shower.usable or window not in (None, _shower.window)):
        if _shower.owner == os.getpid():
            _shower.close()
        _shower = None
    if _shower is None:
        _shower = _Shower(array, _wants_window() if window is None else window)
    shower = _shower
    try:
        shower.connect(layout, memory, title)
        assert shower.field is not None
        field = shower.field
        _keep_window_open()
        if limits is None and shower.new:
            limits = _limits(array, layout)
        span: Any = limits
        if hasattr(span, "__iter__"):
            span = tuple(span)
        wanted = {"limits": span, "colormap": colormap, "size": size}
        # Once is enough: the user may have chosen something else in the window since, and asking takes time.
        changes = {name: value for name, value in wanted.items() if value not in (None, shower.asked.get(name))}
        if changes:
            field.parameters.update(**changes)
        if camera not in (None, shower.asked.get("camera")):
            field.camera = camera
        shower.asked |= {**changes, "camera": camera or shower.asked.get("camera")}
        _draw(shower, field, array, converted)
        shower.new = False
    except RendererGone as gone:
        shower.close()
        _shower = None
        if shower.window:
            raise RendererGone(
                f"the window was closed, or its renderer has ended ({gone}); show() opens another"
            ) from None
        raise
    except BaseException as error:
        # After an array that is refused the window stays for the next one; it has shown others before.
        if shower.field is None and (shower.layout is None or isinstance(error, NoRenderer)):
            shower.close()
            _shower = None
        raise
    return field


def _draw(shower: _Shower, field: Field, array: Any, converted: str) -> None:
    if field.memory == "host":
        array = _libraries.on_the_host(array)
    on_the_gpu = _source.describe(array)
    pointer = (on_the_gpu or _source.describe_host(array))[0]
    if pointer in shower.rewritten:
        field.show(array, copy=True)
    else:
        try:
            field.show(array)
        except StillShown:
            shower.rewritten.add(pointer)
            field.show(array, copy=True)
    if converted or (field.shown is not None and field.shown.reason.startswith("copy=True")):
        field._say_copied(converted or "it is the same array as before; show two in turn", on_the_gpu is not None)


def _prepare(array: Any, kind: str | None) -> tuple[Any, Layout, str]:
    """Return an array that can be drawn, its layout, and how it was converted for that."""
    array = _libraries.detached(array)
    shape, dtype = _libraries.shape_and_dtype(array)
    native = native_name(dtype)
    kind = kind_of(shape, native) if kind is None else kind
    target = _target(kind, shape, native)
    layout = Layout.of(kind, shape, target)
    converted = ""
    if target != dtype:
        array = _libraries.cast(array, target)
        converted = f"it is {dtype}, and was converted; make it {target} at first"
    described = _source.describe(array) or _source.describe_host(array)
    _, shape, strides, _ = described
    # A layout leaves out a last dimension of 1.
    shape, strides = shape[: len(layout.shape)], strides[: len(layout.shape)]
    if not rows_are_contiguous(layout, shape, strides):
        array = _libraries.packed(array)
        converted = (
            converted or "its numbers do not lie one after the other, and were put so; make it contiguous at first"
        )
    return array, layout, converted


def _target(kind: str, shape: tuple[int, ...], dtype: str) -> str:
    """Return the type that an array is drawn in: its own, or the one that it is converted to."""
    known: Any = kind
    types = dtypes_of(known)
    if dtype in types:
        return dtype
    if kind == "image" and len(shape) == 3 and shape[2] > 1 and dtype.startswith(("int", "uint")):
        raise ArrayMismatch(
            f'colours as {dtype}: bytes are 0 to 255, x.astype("uint8") (in PyTorch x.byte()), and floats are 0 to 1'
        )
    if dtype == "bool" and "uint8" in types and not (len(shape) == 3 and shape[2] > 1):
        return "uint8"
    real = ("float", "bfloat", "int", "uint", "bool")
    return "float32" if dtype.startswith(real) else dtype


def _limits(array: Any, layout: Layout) -> tuple[float, float] | None:
    """Return what the first array spans; None where the colours are its own."""
    if layout.kind == "mesh" or (layout.kind == "image" and len(layout.shape) == 3):
        return None
    if layout.kind != "points":
        return _libraries.extent(array)
    if not hasattr(array, "min"):  # such as Numba's
        array = _libraries.on_the_host(array)
    return _libraries.extent(array[:, 3 if layout.shape[1] == 4 else 1])


def _start(arguments: list[str], array: Any) -> Renderer:
    """Start a renderer; where there are several GPUs, on the array's."""
    described = _source.describe(array)
    if described is not None:
        with contextlib.suppress(CudaError):
            if (uuid := _cuda.uuid_among_several(described[0])) is not None:
                arguments = [*arguments, "--device", uuid]
    return Renderer(arguments)


def _wants_window() -> bool:
    if _in_a_notebook():
        return False
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return True
    _say_once('there is no display, so there is no window: field.save("picture.png") writes the picture')
    return False


def _in_a_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


_said: set[str] = set()


def _say_once(words: str) -> None:
    if words not in _said:
        _said.add(words)
        print(f"wavefield: {words}", file=sys.stderr)


def _keep_window_open() -> None:
    if _wait_until_the_window_is_closed not in _open.before_closing:
        _open.before_closing.append(_wait_until_the_window_is_closed)


def _wait_until_the_window_is_closed() -> None:
    """Wait at the end of a script; not where somebody types, nor after an exception."""
    if _shower is None or not _shower.window or not _shower.usable or _shower.field is None:
        return
    if hasattr(sys, "ps1") or sys.flags.interactive or hasattr(sys, "last_value"):
        return
    print("wavefield: the program ends when its window is closed, or by Ctrl-C", file=sys.stderr, flush=True)
    with contextlib.suppress(WavefieldError, KeyboardInterrupt):
        while True:
            _shower.field._connection.pump(timeout=1.0)
