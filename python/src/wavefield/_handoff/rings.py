"""The two kinds of ring: the steps before and after a frame is written, in host memory and in CUDA memory."""

from __future__ import annotations

import contextlib
import time
import warnings
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from .._memory import cuda as _cuda, streams as _streams
from .._memory.host import HostMemory
from .._renderer.connection import close_all
from ..errors import CudaError, ProtocolError, WavefieldError
from . import ring as _ring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._memory.streams import Stream
    from .._renderer.connection import Connection
    from .._renderer.protocol import Message, Welcome
    from ..frame import Frame

CLOSE_SECONDS = 5.0
"""How long closing waits for the GPU."""

END_SECONDS = 5.0
"""How long closing then waits for the renderer to close its end. It first shows the last frames, for up to a second."""

REACHED_SECONDS = 0.5
"""How long an empty stream waits for a value before the value counts as missing."""

SEEN_SECONDS = 1.0
"""How long closing waits in host memory for the last frame to be drawn."""


# What a stuck GPU may still read. Never freed.
_abandoned: list[object] = []


class Ring(ABC):
    """The slots of the frames."""

    connection: Connection
    size: int

    def refuse_capture(self, frame: Frame | None = None) -> None:  # noqa: B027
        """Raise if a graph is being captured on a stream of the field, of a frame or of a library."""

    @abstractmethod
    def begin(self, index: int, stream: Stream | None) -> None:
        """Make the CPU wait until it may enqueue frame `index`, and the stream until the frame's slot is free."""

    @abstractmethod
    def is_free(self, index: int, shown: bool) -> bool:
        """Return whether frame `index` can be handed over without a wait. `shown`: as for `close`."""

    @abstractmethod
    def memory(self, index: int) -> tuple[_cuda.DeviceMemory | HostMemory, int]:
        """Return the memory of frame `index`'s slot, and the offset of the slot in it."""

    @abstractmethod
    def finish(self, frame: Frame) -> None:
        """Hand a frame over."""

    @abstractmethod
    def give_up(self, frame: Frame) -> None:
        """Give up a frame. The next one has its number and its slot."""

    @abstractmethod
    def wait_until_free(self, index: int, stream: Stream | None) -> None:
        """Wait until the renderer has finished with frame `index`."""

    @abstractmethod
    def catch_up(self, stream: Stream) -> None:
        """Wait, on the CPU, until the stream has finished what is enqueued on it."""

    @abstractmethod
    def stream(self) -> Stream | None:
        """Return the stream for the next frame."""

    @abstractmethod
    def close(self, shown: bool) -> None:
        """Release everything, and close the connection. `shown`: the last frame lies in an array outside the ring."""

    def freed(self, message: Message) -> None:
        """Handle a `free` message."""
        raise ProtocolError(f"the renderer sent {message['type']!r}, which is for clients in host memory only")


class HostRing(Ring):
    """Slots in shared memory. Messages say which slots are free and which are ready."""

    def __init__(self, connection: Connection, welcome: Welcome, files: Sequence[int]) -> None:
        self.connection = connection
        self.size = welcome.ring
        self._slots = welcome.slots
        # How many frames the renderer has finished with, and how many were handed over.
        self._free = 0
        self._ready = 0
        used = welcome.slots[0].fd
        close_all(file for index, file in enumerate(files) if index != used)
        if any(slot.fd != used for slot in welcome.slots):
            close_all([files[used]])
            raise ProtocolError("the renderer's slots are not in one file")
        end = max(slot.offset + slot.bytes for slot in welcome.slots)
        self._memory = HostMemory(files[used], end)

    def begin(self, index: int, stream: Stream | None) -> None:  # noqa: ARG002
        """Wait for the slot."""
        self._wait(_ring.free_before(index, self.size))

    def is_free(self, index: int, shown: bool) -> bool:
        """Look at the messages."""
        self.connection.pump()
        return self._free >= (index if shown else _ring.free_before(index, self.size))

    def memory(self, index: int) -> tuple[HostMemory, int]:
        """Return the file and the slot's place in it."""
        return self._memory, self._slots[_ring.slot(index, self.size)].offset

    def finish(self, frame: Frame) -> None:
        """Tell the renderer that the frame is written."""
        self.connection.send({"type": "ready", "frame": frame.index})
        self._ready += 1

    def give_up(self, frame: Frame) -> None:
        """Do nothing: the next frame overwrites it."""

    def wait_until_free(self, index: int, stream: Stream | None) -> None:  # noqa: ARG002
        """Wait for the message."""
        self._wait(index + 1)

    def catch_up(self, stream: Stream) -> None:
        """Do nothing: there are no streams."""

    def stream(self) -> None:
        """Return None: there are no streams."""

    def freed(self, message: Message) -> None:
        """Count the frame."""
        frame = message.get("frame")
        if frame != self._free:
            raise ProtocolError(f"the renderer freed frame {frame!r}; frame {self._free} was expected")
        self._free += 1

    def close(self, shown: bool) -> None:  # noqa: ARG002
        """Close the connection once the last frame is drawn. Arrays keep the memory mapped."""
        end = time.monotonic() + SEEN_SECONDS
        with contextlib.suppress(WavefieldError):
            while self._free < self._ready and (left := end - time.monotonic()) > 0:
                self.connection.pump(timeout=left)
        self.connection.close()

    def _wait(self, value: int) -> None:
        while self._free < value:
            # The user may pause the renderer, so there is no time limit. pump notices a renderer that ends.
            self.connection.pump(timeout=1.0)


class CudaRing(Ring):
    """Slots in the GPU's memory. Two timelines order client and renderer on the GPU."""

    def __init__(
        self,
        connection: Connection,
        welcome: Welcome,
        files: Sequence[int],
        context: _cuda.Context,
        chosen: Stream | None,
    ) -> None:
        self.connection = connection
        self.size = welcome.ring
        self.context = context
        self.chosen = chosen
        """The stream that the user has set."""
        left = list(files)

        def give(index: int | None) -> int:
            # An import closes its descriptor, so none can be used twice.
            if index is None or left[index] < 0:
                raise ProtocolError("the renderer's message names a descriptor twice")
            descriptor, left[index] = left[index], -1
            return descriptor

        try:
            self._slots = [
                _cuda.DeviceMemory(context, give(slot.fd), slot.allocation_bytes, slot.offset, slot.bytes)
                for slot in welcome.slots
            ]
            self._ready = _cuda.Timeline(context, give(welcome.ready))
            self._free = _cuda.Timeline(context, give(welcome.free))
        finally:
            close_all(file for file in left if file >= 0)
        self._events = [_cuda.Event(context) for _ in range(self.size)]
        # The objects that the GPU may still read, by slot.
        self._held: list[list[object]] = [[] for _ in range(self.size)]
        # What the GPU may still read until the event: for frames that were given up, and arrays shown without a copy.
        self._until: list[tuple[_cuda.Event, list[object]]] = []
        # Events for `_until` that were used before.
        self._spare: list[_cuda.Event] = []
        # The number of the last frame that was handed over.
        self._last: int | None = None
        # The stream that was used last, and the end of what was enqueued on it.
        self._used: Stream | None = None
        self._begun = self._end = _cuda.Event(context)
        # The largest value of `free` that a stream was told to wait for.
        self._waited = 0
        # The largest value that `is_free` has asked for, and the point at which it is reached.
        self._asked, self._reached = 0, _cuda.Event(context)
        # The timeline of pictures, once there are any, and how many `render`s were sent: the value that it reaches.
        self._drawn: _cuda.Timeline | None = None
        self.rendered = 0
        # The point after the last wait for it, of each stream that has waited.
        self._watching: dict[Stream, _cuda.Event] = {}
        self.own = _streams.Stream(context.make_stream(ordered=True))
        # For `_let_go`. They are independent of the default stream, which may itself be waiting.
        self._side = (context.make_stream(ordered=False), context.make_stream(ordered=False))
        context.keep_current()

    def stream(self) -> Stream:
        """Return the user's stream, else the current one of CuPy or PyTorch, else the field's own."""
        try:
            return self.chosen or _streams.current_stream(self.context.ordinal) or self.own
        except WavefieldError:  # the libraries' streams differ, perhaps only while one captures
            self.refuse_capture()
            raise

    def refuse_capture(self, frame: Frame | None = None) -> None:
        """Raise if a graph is being captured."""
        self.context.refuse_capture(self.chosen or self.own, *(frame._writers if frame else ()))

    def begin(self, index: int, stream: Stream | None) -> None:
        """Let the CPU be at most K frames ahead of the stream (K slots), and make the stream wait for the slot."""
        assert stream is not None
        self.connection.pump()
        self.context.reap()
        slot = _ring.slot(index, self.size)
        if index >= self.size:
            # Other frames are enqueued, so the GPU does not wait for the CPU.
            self.wait_for(self._events[slot], awake=0.0)
            self._held[slot].clear()
        while self._until and self._until[0][0].done:
            self._spare.append(self._until.pop(0)[0])
        value = _ring.free_before(index, self.size)
        with self.context.current():
            if self._used is not None and self._used != stream:
                # The work on the last stream must come first: its signal of `ready`, its wait for `free`, and its
                # writes to the slot of a frame that was given up, which the new frame uses again.
                self._end.hold(stream.handle)
            if value > 0:
                self._wait_until(value, stream)
                self._use(stream, self._begun)

    def is_free(self, index: int, shown: bool) -> bool:  # noqa: ARG002
        """Ask a stream that does nothing else. What follows an array that was `shown` waits on the GPU."""
        self.connection.pump()
        value = _ring.free_before(index, self.size)
        if value > self._asked:
            self._asked, self._waited = value, max(self._waited, value)
            with self.context.current():
                self._free.wait(self._side[0], value)
                self._reached.record(self._side[0])
        return value == 0 or (self._reached.done and self._events[_ring.slot(index, self.size)].done)

    def memory(self, index: int) -> tuple[_cuda.DeviceMemory, int]:
        """Return the slot."""
        return self._slots[_ring.slot(index, self.size)], 0

    def finish(self, frame: Frame) -> None:
        """Signal `ready` after everything on the frame's stream and on the streams that took the frame."""
        stream = frame._stream
        assert stream is not None
        slot = _ring.slot(frame.index, self.size)
        with self.context.current():
            frame._order_after(self.context, stream)
            self._ready.signal(stream.handle, _ring.ready_after(frame.index))
            self._use(stream, self._events[slot])
        self._held[slot] += frame._held
        self._last = frame.index

    def give_up(self, frame: Frame) -> None:
        """Order the next frame after what is enqueued for this one. If that fails, the context has failed."""
        assert frame._stream is not None
        try:
            self.refuse_capture(frame)
        except CudaError:
            _abandoned.append(frame._held)  # nothing can be enqueued that tells when the GPU has read it
            return
        with contextlib.suppress(CudaError), self.context.current():
            # The next frame has the same slot, and the streams that took this frame may still write it.
            frame._order_after(self.context, frame._stream)
            self._use_until(frame._stream, frame._held)

    def wait_until_free(self, index: int, stream: Stream | None) -> None:
        """Make the stream wait."""
        assert stream is not None
        with self.context.current():
            self._wait_until(index + 1, stream)
            # Until the stream has passed this wait, the renderer may draw from these arrays.
            self._use_until(stream, list(self._held[_ring.slot(index, self.size)]))

    def prepare_drawn(self) -> None:
        """Ask for the timeline of pictures, the first time."""
        if self._drawn is None:
            message, files = self.connection.request({"type": "timeline"}, "timeline")
            if len(files) != 1:
                close_all(files)
                raise ProtocolError(f"the renderer sent {message} with {len(files)} descriptors; 1 was expected")
            self._drawn = _cuda.Timeline(self.context, files[0])

    def wait_drawn(self, value: int, stream: Stream) -> None:
        """Make the stream wait until the pictures of `render` number `value`, from 1, are there."""
        assert self._drawn is not None
        with self.context.current():
            self._drawn.wait(stream.handle, value)
            if stream not in self._watching:
                self._watching = {other: event for other, event in self._watching.items() if not event.done}
                self._watching[stream] = _cuda.Event(self.context)
            self._watching[stream].record(stream.handle)

    def catch_up(self, stream: Stream) -> None:
        """Wait for the stream. Notices a renderer that ends."""
        event = _cuda.Event(self.context)
        with self.context.current():
            event.record(stream.handle)
        self.wait_for(event)

    def _wait_until(self, value: int, stream: Stream) -> None:
        """Make the stream wait for a value of `free`. The context must be current."""
        self._waited = max(self._waited, value)
        self._free.wait(stream.handle, value)

    def _use_until(self, stream: Stream, held: list[object]) -> None:
        """Note that something was enqueued on the stream, and hold these until that is done."""
        event = self._spare.pop() if self._spare else _cuda.Event(self.context)
        self._until.append((event, held))
        self._use(stream, event)

    def _use(self, stream: Stream, end: _cuda.Event) -> None:
        """Note that something was enqueued on the stream, and record its end. The context must be current."""
        end.record(stream.handle)
        self._used, self._end = stream, end

    def wait_written(self, index: int) -> None:
        """Wait until a frame that was handed over is written. Notices a renderer that ends, and a failed kernel."""
        # The events of older frames are used again, and these frames are written.
        if self._last is not None and index > self._last - self.size:
            self.wait_for(self._events[_ring.slot(index, self.size)])

    def close(self, shown: bool) -> None:
        """Let the GPU finish, send `bye`, and release the handles.

        If the renderer has ended, is stopped or has its window hidden, streams may still wait for it. Once it has
        closed its end of the connection, only this process uses the semaphores. Then this process signals them, which
        releases the streams.
        """
        done = False
        try:
            if self._drawn is not None:
                self.wait_drawn(self.rendered, self.own)  # also for pictures that no stream waits for
            done = self._finished_within(CLOSE_SECONDS if not self.connection.closed else 0.0)
            with contextlib.suppress(WavefieldError):
                self.connection.pump()  # an answer comes before its pictures
            # Until the renderer closes its end, it signals `free`, and a second signaller could set the value back. It
            # also draws the array that was shown last, which is held until then. If it does not close in time, it is
            # probably stopped. Then signal anyway: a stream that waits forever would be worse.
            self.connection.close(patience=0.0 if done and not shown else END_SECONDS)
            if not done:
                self._let_go()
                done = self._finished_within(CLOSE_SECONDS)
        except CudaError as error:
            # The context has failed, and with it everything in it: there is nothing to release.
            warnings.warn(f"while closing the field: {error}", ResourceWarning, stacklevel=3)
        finally:
            self.connection.close()
            self._give_back(done)

    def _give_back(self, done: bool) -> None:
        """Release everything if the GPU is `done` with it; otherwise leak it."""
        timelines = [timeline for timeline in (self._ready, self._free, self._drawn) if timeline is not None]
        if done:
            for timeline in timelines:
                timeline.close()
            for stream in (self.own.handle, *self._side):
                _cuda._destroy(self.context, "cuStreamDestroy", stream)
        else:
            for timeline in timelines:
                timeline.abandon()
            _abandoned.append((self._held, self._until))
        self._held, self._until = [], []
        self._watching = {}
        self._slots.clear()

    def _let_go(self) -> None:
        """Signal `free` and `drawn` in the renderer's place, if a stream waits for them."""
        asking, signalling = self._side
        for timeline, value in ((self._free, self._waited), (self._drawn, self.rendered)):
            if timeline is None or value == 0:
                continue
            with self.context.current():
                # A signal must raise the value, and CUDA cannot read it. So test it with a stream that waits for it.
                timeline.wait(asking, value)
                reached = _cuda.Event(self.context)
                reached.record(asking)
                end = time.monotonic() + REACHED_SECONDS
                while not reached.done:
                    if time.monotonic() >= end:
                        timeline.signal(signalling, value)
                        break
                    time.sleep(0.001)

    def _finished_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not all(event.done for event in (*self._events, self._end, self._reached, *self._watching.values())):
            if time.monotonic() >= end:
                return False
            # `pump` notices a renderer that has ended and will not signal.
            try:
                self.connection.pump()
            except WavefieldError:
                if not self.connection.closed:
                    return False
            time.sleep(0.001)
        return True

    def wait_for(self, event: _cuda.Event, awake: float = _cuda.AWAKE_SECONDS) -> None:
        """Wait until the GPU has passed the event. Notices a renderer that ends, unless the field is closed."""
        _cuda.wait(lambda: event.done, lambda: None if self.connection.closed else self.connection.pump(), awake)
