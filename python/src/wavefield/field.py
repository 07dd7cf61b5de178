"""The field: a connection to a renderer, and the frames that are drawn in it."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from . import _cuda, _kernel, _open, _picture, _protocol, _source, _status, _streams
from ._allocations import Allocation, Allocations
from ._array import Array, require_shape
from ._connection import Connection, close_all
from ._imports import Imports
from ._parameters import Clock, Parameters
from ._rings import CudaRing, HostRing, Ring
from ._sent import Kernels
from ._shown import Shown
from .errors import (
    CopyWarning,
    FieldClosed,
    ProtocolError,
    Refused,
    RendererGone,
    StillShown,
    WavefieldError,
)
from .frame import Frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Self

    from ._host import HostMemory
    from ._layout import Kind, Layout
    from ._protocol import Memory, Message
    from ._status import Camera, Status
    from ._streams import Stream

SNAPSHOT_SECONDS = 30.0
"""How long a snapshot waits for the last frame to be drawn."""


# The reasons that were said in a warning.
_said: set[str] = set()


class Field:
    """A field that a renderer draws; made by `show`, `connect` or `launch`, and used with `with`.

    Going through it gives frame after frame, each the renderer's own memory of the field's shape and dtype. One thread
    uses a field.
    """

    # Until all of it is made there is nothing to close.
    _closed = True

    def __init__(
        self,
        path: Path,
        memory: Memory,
        ring: int | None,
        stream: Any,
        client: str,
        timeout: float,
        layout: Layout | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._on_close = on_close
        self._pending: Frame | None = None
        self._next = 0
        # The frame that is just being handed over. Where that is cut short, by Ctrl-C for example, it stays here: the
        # renderer may have been told or not, so that nothing more can be said about any frame.
        self._handing_over: int | None = None
        self._arrays: weakref.WeakSet[Array] = weakref.WeakSet()
        # Whether the last frame lay in one of them.
        self._shown_before = False
        self._shown: Shown | None = None
        if memory == "cuda":
            _cuda.driver()  # without it there is no need to disturb the renderer
        elif memory != "host":
            raise ValueError(f'memory is "cuda" or "host", not {memory!r}')
        elif stream is not None:
            raise ValueError('there are no streams in memory="host"')
        chosen = None if stream is None else _streams.stream_of(stream)
        self._connection = Connection(path)
        try:
            message, files = self._connection.request(
                _protocol.hello(memory, ring, client, layout), "welcome", timeout=timeout
            )
            try:
                self._welcome = _protocol.welcome(message, memory, len(files), layout)
                self.parameters = Parameters(self._welcome.parameters, self._set_parameters)
                """What the user can change in the window: read it, or set it from here."""
                self._clock = Clock(self._welcome.frame_seconds, self.parameters)
                self._context = _cuda.Context.of(self._welcome.device_uuid) if memory == "cuda" else None
            except BaseException:
                close_all(files)
                raise
            self._ring: Ring
            if self._context is not None:
                self._ring = CudaRing(self._connection, self._welcome, files, self._context, chosen)
            else:
                self._ring = HostRing(self._connection, self._welcome, files)
        except BaseException:
            self._connection.close()
            raise
        self._kernels = Kernels(self._connection)
        self._allocations = Allocations(self._connection, self._context)
        self._imports = None if self._context is None else Imports(self._connection, self._context)
        self._connection.unasked = self._unasked
        self._connection.late = self._late
        self._closed = False
        _open.opened(self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else self._welcome.server
        return f"<wavefield.Field of {self._welcome.layout} on {self.device_name}, {state}>"

    # What it is.

    @property
    def grid(self) -> tuple[int, int]:
        """Return (cols, rows), as the renderer's `--grid`."""
        return self._welcome.layout.grid

    @property
    def kind(self) -> Kind:
        """Return what it is drawn as: "mesh", "surface", "points" or "image"."""
        return self._welcome.layout.kind

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of a frame."""
        return self._welcome.layout.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return NumPy's type of a frame: float32, float16 or uint8."""
        import numpy as np

        return np.dtype(self._welcome.layout.dtype)

    @property
    def ring(self) -> int:
        """Return the number of slots: how many frames can be under way at once."""
        return self._welcome.ring

    @property
    def memory(self) -> str:
        """Return "cuda" or "host"."""
        return self._welcome.memory

    @property
    def device(self) -> int | None:
        """Return the CUDA ordinal of the renderer's GPU in this process; None in host memory."""
        return None if self._context is None else self._context.ordinal

    @property
    def device_name(self) -> str:
        """Return the name of the renderer's device."""
        return self._welcome.device_name

    @property
    def device_uuid(self) -> str:
        """Return the UUID of the renderer's device, 32 hexadecimal digits."""
        return self._welcome.device_uuid

    @property
    def server(self) -> str:
        """Return the renderer's name and version."""
        return self._welcome.server

    @property
    def frame_seconds(self) -> float:
        """Return the seconds that one frame stands for, at speed 1."""
        return self._welcome.frame_seconds

    @property
    def socket(self) -> Path:
        """Return the socket's path."""
        return self._connection.path

    @property
    def closed(self) -> bool:
        """Return whether it was closed."""
        return self._closed

    @property
    def stream(self) -> Stream:
        """Return the CUDA stream that the next frame is written on; there is none in host memory.

        The one that was set; else the stream that CuPy or PyTorch has as its current one, where one of them is
        imported; else one of the field's own, which is ordered with the default stream (that of Numba's launches, too).
        Set it to a handle or to a stream object of these libraries or of cuda.core, or to None for that rule.
        """
        stream = self._ring.stream()
        if stream is None:
            raise ValueError('there are no streams in memory="host"')
        return stream

    @stream.setter
    def stream(self, stream: Any) -> None:
        if not isinstance(self._ring, CudaRing):
            raise ValueError('there are no streams in memory="host"')
        self._ring.chosen = None if stream is None else _streams.stream_of(stream)

    # Frames.

    def __iter__(self) -> Iterator[Frame]:
        """Go through frames without an end; see `frames`."""
        return self.frames()

    def frames(self, count: int | None = None) -> Iterator[Frame]:
        """Go through `count` frames, or through frames without an end.

        Each is handed over when the loop asks for the next one, and only then. The frame that a loop leaves behind, by
        a `break`, an exception, or `zip` with something shorter, may be half written: nobody sees it, unless
        `frame.hand_over()` is called. The field's next frame, `show`, `run` or `close` gives it up.
        """
        made = 0
        while count is None or made < count:
            frame = self._begin()
            yield frame
            if not frame.handed_over:
                frame.hand_over()
            made += 1

    @contextlib.contextmanager
    def frame(self) -> Iterator[Frame]:
        """Give one frame to a `with`, which hands it over at its end, or gives it up if there is an exception."""
        frame = self._begin()
        try:
            yield frame
        except BaseException:
            self._give_up(frame)
            raise
        if not frame.handed_over:
            frame.hand_over()

    def _begin(self) -> Frame:
        self._leave_frame()
        if self._kernels.running is not None:
            raise WavefieldError(
                f"the renderer runs {self._kernels.running}, for which this connection gave up its ring: close the "
                "field and connect again to write frames"
            )
        stream = self._ring.stream()
        self._ring.begin(self._next, stream)
        memory, offset = self._ring.memory(self._next)
        self._pending = Frame(
            self._next,
            self._clock.at(self._next),
            self._welcome.layout,
            memory,
            offset,
            stream,
            self._finish,
            self._ring.catch_up,
        )
        return self._pending

    def _finish(self, frame: Frame, shown: Allocation | None = None, offset: int = 0) -> None:
        """Hand a frame over, whose array lies in its slot or, at an offset, in what is `shown`."""
        if self._closed:
            raise FieldClosed("the field is closed, and the frame is gone with it")
        self._check_whole()
        self._handing_over = frame.index
        if shown is not None:
            show = {"type": "show", "frame": frame.index, "allocation": shown.number, "offset": offset}
            self._connection.send(show)
            shown.shown = (frame.index, offset)
        self._ring.finish(frame)
        frame._end("handed over")
        self._pending = None
        self._next += 1
        waits = self._shown_before
        self._shown_before = waits or shown is not None
        self._handing_over = None
        # The frame before this one may lie in an array of the user's. The renderer lets go of it when it draws this
        # one; until then nothing that the user enqueues from now on may run, because it may write that array.
        if waits:
            self._ring.wait_until_free(frame.index - 1, frame._stream)
            for array in self._arrays:
                array._move_to(frame._stream)
            self._shown_before = shown is not None

    def _give_up(self, frame: Frame) -> None:
        """Forget a frame that was not finished. The next one has its number and its slot."""
        if not frame.handed_over:
            try:
                self._ring.give_up(frame)
            finally:
                frame._end("given up")
        if self._pending is frame:
            self._pending = None

    # Arrays.

    def empty(self) -> Array:
        """Return memory beside the ring that the renderer can draw, of the field's shape and dtype, not initialised.

        `show` shows an array that was made of it without a copy. It is the renderer's memory: at most 64 at a time.
        """
        memory = self._allocate(self._welcome.layout.bytes)
        array = Array(self._welcome.layout, memory, 0, self._ring.stream())
        self._arrays.add(array)
        return array

    @property
    def shown(self) -> Shown | None:
        """Return how the last array was shown, as `show` did; None before the first."""
        return self._shown

    def show(self, array: Any, *, copy: bool | None = None) -> Shown:
        """Show an array of the field's shape and dtype as the next frame, and say whether it was copied, and why.

        An array that lies in memory of `empty`, of `NumbaMemoryManager`, or in CUDA memory that can be shared
        (PyTorch's expandable segments, `allocator`) is drawn from where it is, and must not be written until something
        else is shown: use two of them in turn. All that is needed then is done here: what is enqueued on `stream` after
        showing the second waits until the renderer has let go of the first. Showing the same array twice running raises
        `StillShown`. Any other array, or with `copy=True` any at all, is copied once. `copy=False` raises `ValueError`
        where a copy would be needed.
        """
        self._leave_frame()
        place = "copy=True asks for it" if copy else self._place(array)
        if isinstance(place, str):
            if copy is False:
                raise ValueError(f"the array would be copied: {place}")
            with self.frame() as frame:
                frame.copy_from(array)
            return self._say_copied(place, not copy and _source.describe(array) is not None)
        allocation, offset = place
        if allocation.shown is not None:
            last, there = allocation.shown
            if last == self._next - 1 and abs(offset - there) < self._welcome.layout.bytes:
                raise StillShown(
                    "the renderer still draws this array, so writing it since has torn the picture: show two arrays in "
                    "turn, or show(array, copy=True)"
                )
        frame = self._begin()
        try:
            frame._held.append(array)
            if self._context is not None:
                # Orders the stream after what writes the array.
                _source.of(array, self._welcome.layout, self._context, frame._stream)
            self._finish(frame, allocation, offset)
        except BaseException:
            self._give_up(frame)
            raise
        self._shown = Shown.WITHOUT_COPY
        return self._shown

    def _say_copied(self, reason: str, warn: bool) -> Shown:
        """Take note of a copy, and warn of what is on the GPU and need not be copied, once for each reason."""
        self._shown = Shown(True, reason)
        if warn and self._context is not None and reason not in _said:
            _said.add(reason)
            warnings.warn(f"the array is copied, once, on the GPU: {reason}", CopyWarning, stacklevel=3)
        return self._shown

    def _allocate(self, size: int) -> _cuda.DeviceMemory | HostMemory:
        """Ask for memory that the renderer can draw; `Refused` if it has none left."""
        self._check_open()
        return self._allocations.make(size)

    def _place(self, array: Any) -> tuple[Allocation, int] | str:
        """Return the allocation that an array can be drawn from and the offset in it, or why it cannot be."""
        layout, alignment = self._welcome.layout, self._welcome.offset_alignment
        if self._welcome.trust:
            return "the renderer was started with --trust, and then takes frames only; start it without"
        described = _source.describe(array) if self._context is not None else _source.describe_host(array)
        if described is None:
            return (
                'it is in the CPU\'s memory; memory="host", or arrays of CuPy or PyTorch, need no copy to the GPU first'
            )
        pointer, shape, strides, dtype = described
        if require_shape(layout, shape, strides, dtype) != layout.row_bytes:
            return "there are gaps between its rows; make it contiguous, or write into an array of field.empty()"
        found = self._allocations.find(pointer, layout.bytes, alignment)
        if found is not None:
            return found
        if self._imports is None:
            return "it is not in the renderer's memory; write into np.asarray(field.empty()) instead"
        return self._imports.find(array, pointer, layout.bytes, alignment)

    # Kernels, pictures, parameters.

    def run(self, kernel: Any, entry: str | None = None) -> str:
        """Send a kernel, which the renderer runs in its own loop instead of taking frames; return its name for it.

        `kernel` is a Numba function (`@cuda.jit`, a device function, or a plain Python function that Numba can
        compile), or PTX text with the `entry` to run. Its signature, one thread a vertex (kernels/README.md has more):

            (float4 *vertices, unsigned cols, unsigned rows, unsigned long long frame, double time)

        In Numba `vertices` is a pointer to float32, so x of vertex i is `vertices[4 * i]`. PTX with other parameters is
        a `KernelError` before anything is sent. PTX with lines of `//!PARAM` takes a structure of floats behind these,
        and `parameters` has them by name once it runs. Returns when the first frame of it was drawn. This connection
        writes no more frames after that; the kernel runs until the field is closed. How long that takes is the
        renderer's to say (its `--timeout`, a window that is hidden), so there is no end to the waiting; a renderer that
        ends is noticed. After Ctrl-C the kernel may yet run, and another `run` waits first for what becomes of it.

        The renderer launches it once in a process of its own before: `KernelError` has the driver's words if it does
        not load, faults or does not end there, which costs nothing: the renderer goes on with what it has. A fault in
        a later frame is raised by the field's next use, or by `watch`, and may cost the renderer CUDA: then the compute
        shader takes over, and no kernel is taken until the renderer is started anew. With `--handoff inline` or
        `binary` the renderer ends instead, with exit code 1: with `inline` Vulkan finishes no frame any more, and
        with `binary` it already waits for a semaphore that nobody else can signal.

        With `--handoff inline` such a fault stops drawing on that GPU for every process. So that renderer takes kernels
        only if it was started with `--risk-the-gpu` too.
        """
        self._leave_frame()
        capability = self._context.compute_capability() if self._context is not None else None
        ptx, entry = _kernel.ptx_of(kernel, entry, capability)
        message = self._kernels.send(ptx, entry)
        self._running(message)
        return _protocol.text(message, "producer", entry)

    def watch(self, seconds: float) -> None:
        """Do nothing for a while, but raise `KernelError` if the kernel that was sent faults, and any error at once."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._check_open()
            self._connection.pump(timeout=min(left, 1.0))
        self._check_open()

    def snapshot(self, after: int | None = None) -> NDArray[np.uint8]:
        """Return the picture of the field, shape (height, width, 4), sRGB with alpha, the first row at the top.

        Waits until frame `after` has been drawn; by default the last one that was handed over.
        """
        self._check_open()
        if after is None and self._next > 0 and self._kernels.running is None:
            after = self._next - 1
        if after is not None and not 0 <= after < self._next:
            raise ValueError(f"frame {after} was not handed over yet: {self._next} were, counted from 0")
        wish: Message = {"type": "snapshot"}
        if after is not None:
            wish["after"] = after
            if isinstance(self._ring, CudaRing):
                self._ring.synchronize()
        try:
            message, files = self._connection.request(wish, "picture", timeout=SNAPSHOT_SECONDS)
        except RendererGone:
            if after is None or self._connection.gone:
                raise
            raise WavefieldError(
                f"frame {after} was not drawn within {SNAPSHOT_SECONDS:g} s: is the window hidden?"
            ) from None
        return _picture.read(message, files, after)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture of the field, as `snapshot` has it, to a PNG file: all of it or nothing."""
        checked = _picture.check_name(path)
        _picture.write_whole(checked, _picture.png(self.snapshot()))

    def _repr_png_(self) -> bytes | None:
        """Return the picture for a notebook to show."""
        return None if self._closed else _picture.png(self.snapshot())

    def status(self) -> Status:
        """Return what the renderer says of itself now."""
        self._check_open()
        state, files = self._connection.request({"type": "status"}, "state")
        close_all(files)
        return _status.status(state)

    @property
    def camera(self) -> Camera:
        """Return where the camera is now. Set it to move it; the user moves it with the mouse."""
        return self.status().camera

    @camera.setter
    def camera(self, camera: Camera) -> None:
        self._check_open()
        message, files = self._connection.request(
            {"type": "set", "parameters": {}, "camera": camera._message()}, "parameters"
        )
        close_all(files)
        self._told(message)

    def _set_parameters(self, values: dict[str, Any], kernel: dict[str, float]) -> None:
        self._check_open()
        wish: Message = {"type": "set", "parameters": values}
        if kernel:
            wish["kernel"] = kernel
        message, files = self._connection.request(wish, "parameters")
        close_all(files)
        self._told(message)

    def _told(self, message: Message) -> None:
        self.parameters._set(_protocol.mapping(message, "parameters"), _protocol.numbers(message, "kernel"))

    def _running(self, message: Message) -> None:
        self.parameters._describe(_protocol.kernel_parameters(message))

    def _unasked(self, message: Message) -> None:
        kind = message["type"]
        if kind == "parameters":
            self._told(message)
        elif kind == "free":
            self._ring.freed(message)
        elif kind == "failed" and message.get("request") == "kernel":
            self._kernels.failed(message)
        elif kind == "failed":
            raise Refused("failed", _protocol.text(message, "reason", "the renderer gave no reason"))
        elif kind == "running":
            self._running(message)
        else:
            raise ProtocolError(f"the renderer sent {kind!r}, which is no answer to anything")

    def _late(self, message: Message) -> None:
        """Take the answer to a request whose wait was cut short."""
        if message["type"] in ("parameters", "running"):
            self._unasked(message)
        elif message["type"] in ("allocated", "imported"):
            self._connection.send_later({"type": "release", "id": _protocol.integer(message, "id")})
        elif message["type"] == "failed" and message.get("request") == "kernel":
            self._kernels.refused()

    def _check_open(self) -> None:
        """Check that the field is open, and raise what has gone wrong meanwhile."""
        if self._closed:
            raise FieldClosed("the field is closed: connect anew")
        self._check_whole()
        self._kernels.check()

    def _check_whole(self) -> None:
        """Check that no hand-over was cut short."""
        if self._handing_over is not None:
            self._connection.check()  # a renderer that is gone is the better reason
            raise WavefieldError(
                f"handing frame {self._handing_over} over was cut short, and nobody can tell whether the renderer has "
                "it: close the field, and connect anew"
            )

    def _leave_frame(self) -> None:
        """Check that the field is open, and give up the frame that a loop has left behind: it may be half written."""
        self._check_open()
        if self._pending is not None:
            self._give_up(self._pending)

    # The end.

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Wait until every frame that was handed over is written, and leave; the renderer goes on with its own wave.

        Arrays that were made of frames keep their memory mapped. Does nothing the second time.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._pending is not None:
                self._give_up(self._pending)
            self._ring.close(self._shown_before or self._handing_over is not None)
        finally:
            for array in self._arrays:
                array._field_closed()
            self._connection.close()
            if self._imports is not None:
                self._imports.close()
            # They lead back here: without them the memory goes with the last reference, and not with the garbage.
            self._connection.unasked = self._connection.late = lambda _message: None
            self.parameters._ask = _closed
            if self._on_close is not None:
                self._on_close()

    def __del__(self) -> None:
        if not self._closed:
            self.close()


def _closed(_values: dict[str, Any], _kernel: dict[str, float]) -> None:
    raise FieldClosed("the field is closed: connect anew")
