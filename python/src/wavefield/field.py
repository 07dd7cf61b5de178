"""The field: a connection to a renderer, and the frames that it draws."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from . import _open, _say
from ._handoff.allocations import Allocation, Allocations
from ._handoff.imports import Imports
from ._handoff.rings import CudaRing, HostRing, Ring
from ._handoff.shown import Shown
from ._look import fit as _fit, range as _range
from ._look.parameters import Clock, Parameters
from ._look.parts import NONE, check_parts, with_parts
from ._memory import cuda as _cuda, numbers as _numbers, source as _source, streams as _streams
from ._memory.array import Array
from ._pictures import render as _render
from ._pictures.interactive import Interactive
from ._renderer import protocol as _protocol
from ._renderer.connection import Connection, close_all
from ._renderer.panel import Panel
from ._say import is_new, say
from .errors import (
    ArrayMismatch,
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
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from ._look.looks import Look
    from ._memory.host import HostMemory
    from ._memory.layout import Layout
    from ._memory.streams import Stream
    from ._renderer.protocol import Memory, Message


class Field(Interactive):
    """A field that a renderer draws. `show`, `connect` and `launch` return one; close it, or use `with`.

    Iterating over it yields frame after frame: the renderer's own memory, of the field's shape and dtype. Use a field
    from one thread.
    """

    # True until __init__ has finished: before that there is nothing to close.
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
        # The frame of the hand-off in progress. If Ctrl-C interrupts it, the number stays here: the renderer may have
        # been told or not, so the state of all later frames is unknown.
        self._handing_over: int | None = None
        self._arrays: weakref.WeakSet[Array] = weakref.WeakSet()
        # Whether the last frame lies in an array outside the ring.
        self._shown_before = False
        self._shown: Shown | None = None
        # The sphere that the camera sees. Its fields are in the units of the user.
        self._fit = _fit.Fit()
        self._panel = Panel()
        # What was sent of its axes.
        self._axes: dict[str, Any] = {}
        # How the other arrays of a frame are drawn, the parameters that were sent for them, and the names of all.
        self._others: tuple[Look, ...] = ()
        self._sent: tuple[list[str], list[Message]] = [], []
        # Whether a picture was taken.
        self._pictured = False
        # Whether the program asks if the field is closed: then a closed window is no error.
        self._watched = False
        # The array of `show(…, wait=False)` that waits for the renderer. A thread shows it; the lock is for both.
        self._later: _source.Source | None = None
        # What is found out about the last arrays.
        self._searches: deque[_range.Search] = deque()
        self._waiting = False
        self._turn = threading.RLock()
        if memory == "cuda":
            _cuda.driver()  # fails early, before the renderer is asked
        elif memory != "host":
            raise ValueError(f'memory must be "cuda" or "host", not {memory!r}')
        elif stream is not None:
            raise ValueError('memory="host" has no streams')
        chosen = None if stream is None else _streams.stream_of(stream)
        self._connection = Connection(path)
        try:
            message, files = self._connection.request(
                _protocol.hello(memory, ring, client, layout), "welcome", timeout=timeout
            )
            try:
                self._welcome = _protocol.welcome(message, memory, len(files), layout)
                self.parameters = Parameters(self._welcome.parameters, self._set_parameters)
                """The parameters that the user can change in the window. They can also be read and set here."""
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
        self._allocations = Allocations(self._connection, self._context)
        self._pictures = _render.Pictures(
            self._connection, self._ring, self._allocations, self._welcome.offset_alignment
        )
        # The size of the picture on screen, once it is known.
        self._screen: tuple[int, int] | None = None
        self._imports = None if self._context is None else Imports(self._connection, self._context)
        self._connection.unasked = self._unasked
        self._connection.late = self._late
        self._panel.connection = self._connection
        self._closed = False
        _open.opened(self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else self._welcome.server
        return f"<wavefield.Field of {self._welcome.layout} on {self.device_name}, {state}>"

    # Properties.

    @property
    def open(self) -> bool:
        """Return whether it is not `closed`, as in `while field.open: field.show(…)`."""
        return not self.closed

    @property
    def closed(self) -> bool:
        """Return whether the field is closed: by `close`, with its window, or because its renderer has ended.

        Once a program has asked, `show` is no error when the user closes the window: it shows nothing.
        """
        self._watched = True
        if not self._closed:
            try:
                self._connection.pump()
            except RendererGone as gone:
                self._is_over(gone)
        return self._closed

    def _is_over(self, gone: RendererGone) -> bool:
        """Close the field, and return whether the program learns from `closed` that the renderer is gone."""
        if self._watched:
            if not (self._closed or self._connection.ended):
                say(str(gone))
            self.close()
        return self._watched

    @property
    def stream(self) -> Stream:
        """Return the CUDA stream to write the next frame on. Raises `ValueError` in host memory.

        This is the stream that was set. Otherwise it is the current stream of CuPy or PyTorch, if one of them is
        imported. Otherwise it is the field's own, which is ordered with the default stream, on which Numba launches.
        Set it to a handle, to a stream object of these libraries or of cuda.core, or to None for the default.
        """
        stream = self._ring.stream()
        if stream is None:
            raise ValueError('memory="host" has no streams')
        return stream

    @stream.setter
    def stream(self, stream: Any) -> None:
        if not isinstance(self._ring, CudaRing):
            raise ValueError('memory="host" has no streams')
        self._ring.chosen = None if stream is None else _streams.stream_of(stream)

    # Frames.

    def __iter__(self) -> Iterator[Frame]:
        """Yield frames without end; see `frames`."""
        return self.frames()

    def frames(self, count: int | None = None) -> Iterator[Frame]:
        """Yield `count` frames, or frames without end.

        The loop hands a frame over when it asks for the next one. A frame that the loop leaves behind, by a `break`, an
        exception, or `zip` with something shorter, may be half written. It is not shown unless you call
        `frame.hand_over()`. The field's next frame, `show` or `close` gives it up.
        """
        self._check_one()
        made = 0
        while count is None or made < count:
            self._panel.call()
            frame = self._begin()
            yield frame
            if not frame.handed_over:
                frame.hand_over()
            made += 1

    @contextlib.contextmanager
    def frame(self) -> Iterator[Frame]:
        """Give one frame to `with`. The end of the block hands it over; an exception gives it up."""
        self._check_one()
        self._panel.call()
        with self._frame() as frame:
            yield frame

    def _check_one(self) -> None:
        """Refuse frames of several arrays, of which a loop would write only the first."""
        if self._welcome.layout.more:
            raise ArrayMismatch("the field shows several arrays at once: wavefield.show({…}) shows the next ones")

    @contextlib.contextmanager
    def _frame(self) -> Iterator[Frame]:
        frame = self._begin()
        try:
            yield frame
        except BaseException:
            self._give_up(frame)
            raise
        if not frame.handed_over:
            frame.hand_over()

    @_cuda.at_once
    def _begin(self) -> Frame:
        self._leave_frame()
        return self._next_frame()

    def _next_frame(self) -> Frame:
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

    @_cuda.at_once
    def _finish(self, frame: Frame, fitted: bool = False, shown: Allocation | None = None, offset: int = 0) -> None:
        """Hand a frame over. Its array lies in its slot, or at `offset` in `shown`. `fitted`: it has its limits."""
        if self._closed:
            raise FieldClosed("the field is closed, so its frame is gone")
        self._check_whole()
        self._ring.refuse_capture(frame)
        # Later frames have the limits of the first: to look at each would wait for the GPU.
        last = self.parameters._choice
        unknown = last.sort is None or last.units != _numbers.PLAIN or self._fit.moves
        if unknown and not fitted:
            self._fit_to(frame)
        self._handing_over = frame.index
        if shown is not None:
            self._connection.send(_protocol.show(frame.index, shown.number, offset))
            shown.shown = (frame.index, offset)
        self._ring.finish(frame)
        frame._end("handed over")
        self._pending = None
        self._next += 1
        waits = self._shown_before
        self._shown_before = waits or shown is not None
        self._handing_over = None
        # The frame before this one may lie in the user's array. The renderer is finished with that once it draws this
        # one. Until then, what the user enqueues must wait, because it may write that array.
        if waits:
            self._ring.wait_until_free(frame.index - 1, frame._stream)
            if self._arrays:
                for array in self._arrays:
                    array._move_to(frame._stream)
            self._shown_before = shown is not None
        self._panel.handed += 1
        if self._panel.film is not None:
            self._panel.film.add(self)

    def _give_up(self, frame: Frame) -> None:
        """Give up a frame that was not handed over. The next one has its number and its slot."""
        if not frame.handed_over:
            try:
                self._ring.give_up(frame)
            finally:
                frame._end("given up")
        if self._pending is frame:
            self._pending = None

    # Arrays.

    def empty(self) -> Array:
        """Return memory outside the ring, of the field's shape and dtype, that the renderer can draw.

        It is not initialised. `show` shows arrays made of it without a copy. The renderer gives at most 64 at a time;
        then this raises `Refused`.
        """
        memory = self._allocate(self._welcome.layout.frame_bytes)
        array = Array(self._welcome.layout, memory, 0, self._ring.stream())
        self._arrays.add(array)
        return array

    @property
    def shown(self) -> Shown | None:
        """Return the result of the last `show`, or None before the first."""
        return self._shown

    def show(self, array: Any, *, copy: bool | None = None, wait: bool = True, **parts: Any) -> Shown:
        """Show an array of the field's shape and dtype as the next frame. Returns whether it was copied, and why.

        An array in memory of `empty` or `NumbaMemoryManager`, or in CUDA memory that can be shared (PyTorch's
        expandable segments, `allocator`), is drawn in place. Do not write it until you have shown something else: use
        two arrays in turn. After you show the second, what you enqueue on `stream` waits until the renderer has
        finished with the first. Showing the same array twice in a row raises `StillShown`.

        `parts`: the array's `colors`, `sizes`, `vectors`, `faces` or `edges`, of the field's shapes and types. They are
        always copied, and the array with them.

        Any other array is copied once. `copy=True` always copies; `copy=False` raises `ValueError` if a copy is needed.
        `wait=False` always copies, and never waits for the renderer: if that is busy, the array is shown as soon as
        possible, unless you show another before.
        """
        if not isinstance(array, _source.Source):  # `wavefield.show` has called the functions
            self._panel.call()
        return self._show_unless_over(array, copy, wait, parts)

    def _show_unless_over(self, array: Any, copy: bool | None, wait: bool, parts: Mapping[str, Any]) -> Shown:
        try:
            return self._show(array, copy, wait or self._panel.film is not None, parts)
        except RendererGone as gone:
            if not self._is_over(gone):
                raise
            return Shown(False, f"it was not shown: {gone}")

    @_cuda.at_once
    def _show(self, array: Any, copy: bool | None, wait: bool, parts: Mapping[str, Any] = NONE) -> Shown:
        self._leave_frame()
        source = self._read(with_parts(array, parts))
        gaps = source.pitch(self._welcome.layout) != self._welcome.layout.row_bytes
        check_parts(self._welcome.layout, source)
        if array is not source:  # those of `wavefield.show` have their limits
            self._fit_to(source if source.library_knows else source.array)
        if not wait:
            if copy is False:
                raise ValueError("wait=False copies the array: leave out copy=False")
            copy = True
            if not self._ring.is_free(self._next, self._shown_before):
                return self._show_later(source)
        place = "copy=True asks for it" if copy else self._place(source, gaps)
        if isinstance(place, str):
            if copy is False:
                raise ValueError(f"the array would be copied: {place}")
            with self._frame() as frame:
                frame.copy_from(source)
                frame._copy_parts(source)
                self._finish(frame, True)
            return self._say_copied(place, not copy and source.on_device and not (source.parts or source.more))
        allocation, offset = place
        if allocation.shown is not None:
            last, there = allocation.shown
            if last == self._next - 1 and abs(offset - there) < self._welcome.layout.frame_bytes:
                raise StillShown(
                    "the renderer still draws this array, so writing it may have torn the picture: show two arrays in "
                    "turn, or use show(array, copy=True)"
                )
        frame = self._next_frame()
        try:
            frame._held.append(source.held)
            if self._context is not None and frame._stream is not None:
                source.order(self._context, frame._stream)
            self._finish(frame, True, allocation, offset)
        except BaseException:
            self._give_up(frame)
            raise
        self._shown = Shown.WITHOUT_COPY
        return self._shown

    def _show_later(self, source: _source.Source) -> Shown:
        """Keep a copy of an array until the renderer is free, or until another is shown."""
        later = source
        with contextlib.suppress(ArrayMismatch):  # Numba has no copy
            later = self._read(source.copied())
        later.parts = {name: self._copied(part) for name, part in source.parts.items()}
        later.more = [self._copied(other) for other in source.more]
        with self._turn:
            self._later = later
            if not self._waiting:
                self._waiting = True
                threading.Thread(target=self._show_when_free, daemon=True).start()
        return self._say_copied("wait=False, and the renderer is busy: it is shown later", False)

    def _copied(self, source: _source.Source) -> _source.Source:
        copy = self._read(source.copied())
        copy.parts = {name: self._copied(part) for name, part in source.parts.items()}
        return copy

    def _show_when_free(self) -> None:
        while True:
            with self._turn:
                # An error comes with the next call. While a graph is captured, nothing can be shown.
                with contextlib.suppress(WavefieldError):
                    if self._later is not None and self._ring.is_free(self._next, self._shown_before):
                        self._show(self._later, True, True)
                self._waiting = self._later is not None and not self._connection.gone
                if not self._waiting:
                    return
            time.sleep(0.01)

    def _before_a_picture(self) -> None:
        """Show the array that waits, if there is one."""
        with self._turn:
            if self._later is not None:
                self._show(self._later, True, True)
        # Limits that follow each array nearly always change.
        self._look(wait=self.parameters._choice.follows)

    def _read(self, array: Any) -> _source.Source:
        """Return where an array lies."""
        return _source.of(array, self._context, None if self._context is None else self._ring.stream())

    def _say_copied(self, reason: str, warn: bool) -> Shown:
        """Note a copy. With `warn`, also warn in CUDA memory that a copy can be avoided, once for each reason."""
        self._shown = Shown(True, reason)
        if warn and self._context is not None and is_new(reason):
            _say.warn(f"the array is copied, once, on the GPU: {reason}", CopyWarning)
        return self._shown

    def _allocate(self, size: int) -> _cuda.DeviceMemory | HostMemory:
        """Ask for memory that the renderer can draw. Raises `Refused` if it has none left."""
        self._check_open()
        return self._allocations.make(size)

    def _place(self, source: _source.Source, gaps: bool) -> tuple[Allocation, int] | str:
        """Return the allocation that an array lies in and its offset there, or the reason why it must be copied."""
        layout, alignment = self._welcome.layout, self._welcome.offset_alignment
        if layout.more:
            return "arrays that are shown at once are copied, to lie one behind the other"
        if any(part.pointer != source.pointer + layout.offsets[name] for name, part in source.parts.items()):
            return f"{', '.join(source.parts)} and the array are copied, to lie one behind the other"
        if self._context is not None and not source.on_device:
            return 'it is in the CPU\'s memory; memory="host", or arrays of CuPy or PyTorch, avoid the copy to the GPU'
        pointer = source.pointer
        if self._context is not None and source.ordinal not in (None, self._context.ordinal):
            return _source.why_peer(source.ordinal, self._context, gaps)
        if gaps:
            return "it has gaps between its rows; make it contiguous, or write into an array of field.empty()"
        if self._imports is not None and (again := self._imports.again(pointer, layout.frame_bytes)) is not None:
            return again
        found = self._allocations.find(pointer, layout.frame_bytes, alignment)
        if found is not None:
            return found
        if self._imports is None:
            return "it is not in the renderer's memory; write into np.asarray(field.empty()) instead"
        return self._imports.find(source.array, pointer, layout.frame_bytes, alignment)

    def _unasked(self, message: Message) -> None:
        kind = message["type"]
        if kind == "parameters":
            self._told(message)
        elif kind == "free":
            self._ring.freed(message)
        elif self._panel.heard(message, self._welcome.layout, self._sent[0]):
            pass
        elif kind == "failed":
            raise Refused("failed", _protocol.text(message, "reason", "the renderer gave no reason"))
        else:
            raise ProtocolError(f"the renderer sent {kind!r}, which answers no request")

    def _late(self, message: Message) -> None:
        """Handle the answer to a request whose wait was interrupted."""
        if message["type"] == "parameters":
            self._unasked(message)
        elif message["type"] in ("allocated", "imported"):
            self._connection.send_later({"type": "release", "id": _protocol.integer(message, "id")})

    def _check_open(self) -> None:
        """Check that the field is open, and raise what has gone wrong since the last check."""
        if self._closed:
            raise FieldClosed("the field is closed: connect again")
        self._check_whole()
        self._pictures.check()

    def _check_whole(self) -> None:
        """Check that no hand-off was interrupted."""
        if self._handing_over is not None:
            self._connection.check()  # if the renderer is gone, say that instead
            raise WavefieldError(
                f"the hand-off of frame {self._handing_over} was interrupted, so the renderer may or may not have "
                "the frame: close the field and connect again"
            )

    def _leave_frame(self) -> None:
        """Check that the field is open, and give up a frame that a loop has left behind."""
        self._check_open()
        self._ring.refuse_capture(self._pending)
        with self._turn:
            self._later = None
        if self._pending is not None:
            self._give_up(self._pending)

    # The end.

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _forget(self) -> None:
        """In a forked child: the connection is the parent's."""
        self._closed = True
        self._connection.forget()

    def close(self) -> None:
        """Wait until every frame that was handed over is written, and disconnect. Does nothing the second time.

        The renderer continues with its own wave. Arrays that were made of frames keep their memory mapped. If the last
        frame was shown without a copy, this also waits until the renderer no longer draws it, for about a second.
        """
        if self._closed:
            return
        with self._turn:
            self._closed, self._later = True, None
        self._searches.clear()
        try:
            if self._pending is not None:
                self._give_up(self._pending)
            self._ring.close(self._shown_before or self._handing_over is not None)
        finally:
            for array in self._arrays:
                array._field_closed()
            self._pictures.close()
            self._connection.close()
            if self._imports is not None:
                self._imports.close()
            # Breaks the reference cycles, so the last reference frees the memory, not the garbage collector.
            self._connection.unasked = self._connection.late = lambda _message: None
            self.parameters._ask = _closed
            if self._on_close is not None:
                self._on_close()

    def __del__(self) -> None:
        if not self._closed:
            self.close()


def _closed(_values: dict[str, Any]) -> None:
    raise FieldClosed("the field is closed: connect again")
