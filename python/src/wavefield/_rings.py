"""The two kinds of ring: what happens between the client and the renderer before and after a frame is written."""

from __future__ import annotations

import contextlib
import time
import warnings
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from . import _cuda, _ring, _streams
from ._connection import close_all
from ._host import HostMemory
from .errors import CudaError, ProtocolError, WavefieldError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._connection import Connection
    from ._protocol import Message, Welcome
    from ._streams import Stream
    from .frame import Frame

CLOSE_SECONDS = 5.0
"""How long closing waits for the GPU."""

END_SECONDS = 5.0
"""How long closing then waits for the renderer to close its end: it shows the last frames for a second before."""

REACHED_SECONDS = 0.1
"""After which time a stream that does nothing but wait for a value says that it is not there."""

SEEN_SECONDS = 1.0
"""How long closing waits for the last frame to be drawn, in host memory."""


# What a GPU that is stuck may still read, until the process ends.
_abandoned: list[object] = []


class Ring(ABC):
    """The slots that the frames are written into."""

    connection: Connection
    size: int

    @abstractmethod
    def begin(self, index: int, stream: Stream | None) -> None:
        """Wait until frame `index` may be written: the CPU until it may be enqueued, the stream for its slot."""

    @abstractmethod
    def memory(self, index: int) -> tuple[_cuda.DeviceMemory | HostMemory, int]:
        """Return the slot of frame `index`: its memory, and the offset in it."""

    @abstractmethod
    def finish(self, frame: Frame) -> None:
        """Hand a frame over."""

    @abstractmethod
    def give_up(self, frame: Frame) -> None:
        """Take note that a frame is not going to be handed over. The next one has its number and its slot."""

    @abstractmethod
    def wait_until_free(self, index: int, stream: Stream | None) -> None:
        """Wait until the renderer has let go of frame `index`."""

    @abstractmethod
    def catch_up(self, stream: Stream) -> None:
        """Wait, on the CPU, until the stream has done everything that is enqueued on it."""

    @abstractmethod
    def stream(self) -> Stream | None:
        """Return the stream for the next frame."""

    @abstractmethod
    def close(self, shown: bool) -> None:
        """Give everything back, and close the connection. `shown`: the renderer draws the last frame from an array."""

    def freed(self, message: Message) -> None:
        """Take note of a `free` message."""
        raise ProtocolError(f"the renderer sent {message['type']!r}, which only clients in host memory are sent")


class HostRing(Ring):
    """Slots in shared memory; messages say whose turn it is."""

    def __init__(self, connection: Connection, welcome: Welcome, files: Sequence[int]) -> None:
        self.connection = connection
        self.size = welcome.ring
        self._slots = welcome.slots
        # How many frames the renderer has let go of.
        self._free = 0
        self._ready = 0
        used = welcome.slots[0].fd
        close_all(file for index, file in enumerate(files) if index != used)
        if any(slot.fd != used for slot in welcome.slots):
            close_all([files[used]])
            raise ProtocolError("the renderer's slots are not in one file")
        end = max(slot.offset + slot.bytes for slot in welcome.slots)
        self._memory = HostMemory(files[used], end)  # from the file's start

    def begin(self, index: int, stream: Stream | None) -> None:  # noqa: ARG002
        """Wait for the slot."""
        self._wait(_ring.free_before(index, self.size))

    def memory(self, index: int) -> tuple[HostMemory, int]:
        """Return the file and the slot's place in it."""
        return self._memory, self._slots[_ring.slot(index, self.size)].offset

    def finish(self, frame: Frame) -> None:
        """Say that the frame is written."""
        self.connection.send({"type": "ready", "frame": frame.index})
        self._ready += 1

    def give_up(self, frame: Frame) -> None:
        """Do nothing: the next one is written over it."""

    def wait_until_free(self, index: int, stream: Stream | None) -> None:  # noqa: ARG002
        """Wait for the message."""
        self._wait(index + 1)

    def catch_up(self, stream: Stream) -> None:
        """Do nothing: there are no streams."""

    def stream(self) -> None:
        """Return None: there are no streams."""

    def freed(self, message: Message) -> None:
        """Count."""
        frame = message.get("frame")
        if frame != self._free:
            raise ProtocolError(f"the renderer let go of frame {frame!r}; it was frame {self._free}'s turn")
        self._free += 1

    def close(self, shown: bool) -> None:  # noqa: ARG002
        """Close the connection, once the last frame has been seen; arrays keep the memory mapped."""
        end = time.monotonic() + SEEN_SECONDS
        with contextlib.suppress(WavefieldError):
            while self._free < self._ready and (left := end - time.monotonic()) > 0:
                self.connection.pump(timeout=left)
        self.connection.close()

    def _wait(self, value: int) -> None:
        while self._free < value:
            # A pause in the window can be long, so there is no end to this; a renderer that ends is noticed at once.
            self.connection.pump(timeout=1.0)


class CudaRing(Ring):
    """Slots in the GPU's memory; two timelines say whose turn it is, on the GPU."""

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
        """The user's choice of stream."""
        left = list(files)

        def give(index: int | None) -> int:
            # Each descriptor is given away once; one named twice is closed already, which the import would find.
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
        # What the GPU may still be reading, for each slot.
        self._held: list[list[object]] = [[] for _ in range(self.size)]
        # The same until the event: of frames that were given up, and what was shown without a copy.
        self._until: list[tuple[_cuda.Event, list[object]]] = []
        # The last frame that was handed over.
        self._last: int | None = None
        # The stream that was last used, and its end.
        self._used: Stream | None = None
        self._end = _cuda.Event(context)
        # The largest value of `free` that a stream was told to wait for.
        self._waited = 0
        self.own = _streams.Stream(context.make_stream(ordered=True))
        # For letting streams go that wait in vain; the default stream may be among them.
        self._side = (context.make_stream(ordered=False), context.make_stream(ordered=False))
        context.keep_current()

    def stream(self) -> Stream:
        """Return the user's choice, else what CuPy or PyTorch work on now, else the field's own."""
        return self.chosen or _streams.current_stream(self.context.ordinal) or self.own

    def begin(self, index: int, stream: Stream | None) -> None:
        """Keep at most K frames ahead of the stream, and make the stream wait for the slot."""
        assert stream is not None
        self.connection.pump()
        self.context.reap()
        slot = _ring.slot(index, self.size)
        if index >= self.size:
            self._wait_for(self._events[slot])
            self._held[slot].clear()
        self._until = [(event, held) for event, held in self._until if not event.done]
        value = _ring.free_before(index, self.size)
        with self.context.current():
            if self._used is not None and self._used != stream:
                # `ready` must not be signalled by this stream before the last one has, nothing be written that the last
                # one still waits for, and the slot of a frame that was given up not before that was written.
                self._end.hold(stream.handle)
            if value > 0:
                self._wait_until(value, stream)

    def memory(self, index: int) -> tuple[_cuda.DeviceMemory, int]:
        """Return the slot."""
        return self._slots[_ring.slot(index, self.size)], 0

    def finish(self, frame: Frame) -> None:
        """Signal `ready` after everything on the frame's stream, and on the streams that took it."""
        stream = frame._stream
        assert stream is not None
        slot = _ring.slot(frame.index, self.size)
        with self.context.current():
            frame._order_after(self.context, stream)
            self._ready.signal(stream.handle, _ring.ready_after(frame.index))
            self._events[slot].record(stream.handle)
            self._use(stream)
        self._held[slot] += frame._held
        self._last = frame.index

    def give_up(self, frame: Frame) -> None:
        """Remember what is enqueued for it. If that fails the context has, and the frame runs no more."""
        assert frame._stream is not None
        with contextlib.suppress(CudaError), self.context.current():
            # The next frame has the same slot, and who took this one may still write it.
            frame._order_after(self.context, frame._stream)
            self._use(frame._stream)
            if frame._held:
                event = _cuda.Event(self.context)
                self._until.append((event, frame._held))
                event.record(frame._stream.handle)

    def wait_until_free(self, index: int, stream: Stream | None) -> None:
        """Make the stream wait."""
        assert stream is not None
        with self.context.current():
            self._wait_until(index + 1, stream)
            if held := self._held[_ring.slot(index, self.size)]:
                # The renderer may draw from these until then.
                event = _cuda.Event(self.context)
                self._until.append((event, list(held)))
                event.record(stream.handle)

    def catch_up(self, stream: Stream) -> None:
        """Wait for the stream; notices a renderer that goes away."""
        event = _cuda.Event(self.context)
        with self.context.current():
            event.record(stream.handle)
        self._wait_for(event)

    def _wait_until(self, value: int, stream: Stream) -> None:
        """Make the stream wait for a value of `free`. The context is current."""
        self._waited = max(self._waited, value)
        self._free.wait(stream.handle, value)
        self._use(stream)

    def _use(self, stream: Stream) -> None:
        """Remember that something was enqueued. The context is current."""
        self._end.record(stream.handle)
        self._used = stream

    def synchronize(self) -> None:
        """Wait until the last frame handed over is written; notices a renderer that goes away."""
        if self._last is not None:
            self._wait_for(self._events[_ring.slot(self._last, self.size)])

    def close(self, shown: bool) -> None:
        """Let the GPU finish, say goodbye, give the handles back.

        A renderer that went away, stopped, or has its window hidden leaves streams that wait for it. Once it has closed
        its end, nobody but this process uses the semaphore, so they are let go from here.
        """
        done = False
        try:
            done = self._finished_within(CLOSE_SECONDS if not self.connection.closed else 0.0)
            # It goes on to signal `free` for as long as it shows frames, and two who signal would set the value back.
            # One that does not end in time is stopped; then a stream that is stuck for ever would be worse.
            # It also draws the array that was shown last until then, so that must be held.
            self.connection.close(patience=0.0 if done and not shown else END_SECONDS)
            if not done:
                self._let_go()
                done = self._finished_within(CLOSE_SECONDS)
        except CudaError as error:
            # A context that has failed takes everything in it along; there is nothing to give back.
            warnings.warn(f"while closing the field: {error}", ResourceWarning, stacklevel=3)
        finally:
            self.connection.close()
            self._give_back(done)

    def _give_back(self, done: bool) -> None:
        """Let go of everything; unless the GPU is done with it, leave it to the process's end."""
        if done:
            self._ready.close()
            self._free.close()
            for stream in (self.own.handle, *self._side):
                _cuda._destroy(self.context, "cuStreamDestroy", stream)
        else:
            self._ready.abandon()
            self._free.abandon()
            _abandoned.append((self._held, self._until))
        self._held, self._until = [], []
        self._slots.clear()

    def _let_go(self) -> None:
        """Signal `free` in the renderer's place, if anything waits for it."""
        if self._waited == 0:
            return
        asking, signalling = self._side
        with self.context.current():
            # The value must grow, and CUDA cannot read it.
            self._free.wait(asking, self._waited)
            reached = _cuda.Event(self.context)
            reached.record(asking)
            end = time.monotonic() + REACHED_SECONDS
            while not reached.done:
                if time.monotonic() >= end:
                    self._free.signal(signalling, self._waited)
                    return
                time.sleep(0.001)

    def _finished_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not all(event.done for event in (*self._events, self._end)):
            if time.monotonic() >= end:
                return False
            # A dead renderer will not free what is waited for.
            try:
                self.connection.pump()
            except WavefieldError:
                if not self.connection.closed:
                    return False
            time.sleep(0.001)
        return True

    def _wait_for(self, event: _cuda.Event) -> None:
        """Wait until the GPU has passed it. Unlike cuEventSynchronize it hears Ctrl-C, and a renderer that ends."""
        pause = 20e-6
        while not event.done:
            time.sleep(pause)
            pause = min(2 * pause, 1e-3)
            self.connection.pump()
