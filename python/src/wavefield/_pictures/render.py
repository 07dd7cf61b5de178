"""Pictures of a frame for the user's own program: what is on screen, and other views.

The renderer writes them into memory of `allocate`. On the GPU the call does not wait for them: the streams that take a
picture wait for the timeline `drawn`, which reaches k when the k-th `render` is done.
"""

from __future__ import annotations

import contextlib
import math
import operator
import time
import weakref
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from .._handoff.rings import CudaRing
from .._memory import cuda as _cuda, source as _source, streams as _streams
from .._memory.array import Array
from .._memory.cuda import DeviceMemory
from .._memory.host import Strided
from .._memory.layout import Layout
from .._renderer import protocol as _protocol
from .._renderer.status import Camera
from ..errors import CudaError, FieldClosed, ProtocolError, Refused, WavefieldError, brief
from . import picture as _picture
from .pinned import Copies
from .places import Places

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from .._handoff.allocations import Allocations
    from .._handoff.rings import Ring
    from .._look.fit import Fit
    from .._memory.host import HostMemory
    from .._memory.streams import Stream
    from .._renderer.connection import Connection
    from .._renderer.protocol import Message
    from .pinned import Pinned
    from .places import Lease

KINDS = {"color": ("uint8", 4), "depth": ("float32", 1), "normal": ("float32", 4), "index": ("int32", 1)}
"""The type and the channels of a pixel."""

MOST_VIEWS = 1024
"""The most views of one call."""

MOST_WAITING = 64
"""The most calls that may wait for a frame. The renderer ends a connection with more."""

ALIGNMENT = 256
"""Each kind begins at a multiple of it, or of the renderer's own alignment if that is larger."""


@dataclass
class Answer:
    """The renderer's answer to one call, which comes later."""

    drawn: int
    """The value of `drawn` when the pictures are there; 0 in host memory."""
    after: int
    """The last frame that was handed over before the call."""
    unsaid: list[Answer]
    """Gets the answer if it is a failure."""
    memory: DeviceMemory | HostMemory
    """It must not be released before the answer."""
    frame: int | None = None
    error: Callable[[], WavefieldError] | None = None
    """Makes a new one each time: an exception holds the variables of the calls that it went through."""

    @property
    def known(self) -> bool:
        """Return whether the renderer has drawn, or refused."""
        return self.frame is not None or self.error is not None

    def came(self, message: Message) -> None:
        """Read the answer."""
        if message["type"] == "failed":
            reason = _protocol.text(message, "reason", "the renderer gave no reason")
            self.error = partial(Refused, "failed", f"the renderer could not draw a picture: {reason}")
            self.unsaid.append(self)
            return
        if self.drawn:
            _protocol.integer(message, "drawn", self.drawn, self.drawn)
        self.frame = _protocol.integer(message, "frame", self.after)

    def check(self) -> None:
        """Raise if the renderer has refused."""
        if self.error is not None:
            self.forget()
            raise self.error()

    def forget(self) -> None:
        """Say no failure later."""
        self.unsaid[:] = [answer for answer in self.unsaid if answer is not self]
        self.unsaid = []


class Picture(Array):
    """A picture of a frame, (rows, cols, channels), or several views of it, (views, rows, cols, channels).

    | kind | dtype | channels | where nothing is drawn |
    |---|---|---|---|
    | `"color"` | uint8 | sRGB red, green, blue, and 255 | the background |
    | `"depth"` | float32 | the distance from the eye along the camera's axis | infinity |
    | `"normal"` | float32 | x, y, z of the direction in which the surface faces, and 1 | zeros |
    | `"index"` | int32 | the element of the array, counted in C order; of a mesh or surface the nearest vertex | -1 |

    Of triangles, "index" counts these. Of several arrays it counts on from one to the next.

    Libraries take it as they take an `Array`, without a copy: `as_torch()`, `cupy.asarray(picture)`,
    `jax.dlpack.from_dlpack(picture)`. In CUDA memory the renderer may still be drawing it; then the
    library's stream waits. It is yours until you drop it and all that was made of it.
    """

    def __init__(
        self,
        kind: str,
        layout: Layout,
        lease: Lease,
        offset: int,
        answer: Answer,
        ring: Ring,
        wait: Callable[[Answer], None],
        copies: Copies | None,
    ) -> None:
        super().__init__(layout, lease.place.memory, offset, ring.own if isinstance(ring, CudaRing) else None)
        self._owner = lease
        self._kind = kind
        self._answer = answer
        self._ring = ring
        self._wait = wait
        # None in host memory.
        self._copies = copies
        self._copy: Pinned | None = None

    def __repr__(self) -> str:
        return f"<wavefield.Picture {self._kind} {self.shape} {self._layout.dtype}>"

    @property
    def kind(self) -> str:
        """Return "color", "depth", "normal" or "index"."""
        return self._kind

    @property
    def frame(self) -> int:
        """Return the number of the frame that it shows. Waits for the renderer's answer, which comes when it draws."""
        self._wait(self._answer)
        self._check()
        assert self._answer.frame is not None
        return self._answer.frame

    @property
    def stream(self) -> Stream:
        """Return a CUDA stream to read it on, which waits for it. Raises `ValueError` in host memory."""
        stream = super().stream
        self._order_consumer(self._device().context, stream)
        return stream

    def prefetch(self) -> None:
        """Start to copy it to the CPU's memory, for `to_numpy`. Waits for nothing; does nothing in host memory."""
        if self._copies is not None and self._stream is not None and self._copy is None:
            with contextlib.suppress(CudaError):  # no page-locked memory is left: `to_numpy` needs none
                self._copy = self._copies.start(self.pointer, self.nbytes, self._answer.drawn)

    def to_numpy(self) -> NDArray[Any]:
        """Return a copy in the CPU's memory. Waits until it is drawn and copied."""
        import numpy as np

        if self._copies is None:
            self._wait(self._answer)
            self._check()
            return np.array(self.as_numpy())
        with self._device().context.current():
            return self._to_numpy(self._copies)

    def _to_numpy(self, copies: Copies) -> NDArray[Any]:
        """Do so in CUDA memory. The context must be current."""
        import numpy as np

        self.prefetch()
        if isinstance(self._ring, CudaRing) and self._stream is not None and not self._answer.known:
            self._ring.wait_written(self._answer.after)
        self._wait(self._answer)
        self._check()
        if self._copy is None:
            array = np.empty(self.shape, self.dtype)
            if self._stream is not None and isinstance(self._ring, CudaRing):  # the field is open
                self._ring.catch_up(self.stream)
            self._device().context.call("cuMemcpyDtoH", array.ctypes.data, self.pointer, self.nbytes)
            return array
        memory, self._copy = self._copy, None
        return copies.finish(memory, self.shape, self._layout.typestr, self.nbytes)

    def _check(self) -> None:
        self._answer.check()

    def _order_consumer(self, context: _cuda.Context, consumer: Stream) -> None:
        """Make a stream wait until the picture is there."""
        if self._stream is not None and isinstance(self._ring, CudaRing):
            context.refuse_capture(consumer)
            self._ring.wait_drawn(self._answer.drawn, consumer)

    def _order_after(self, context: _cuda.Context, stream: Stream) -> None:
        """Make a stream wait for the picture, which it copies."""
        self._order_consumer(context, stream)

    def _stream_to_wait_for(self, context: _cuda.Context) -> int | None:
        if self._stream is None:
            return None
        consumers = _streams.current_streams(context.ordinal).values()
        for consumer in consumers:
            self._order_consumer(context, consumer)
        if consumers and not _streams.others_loaded():
            return None  # they wait already
        return self.stream.handle

    def _numpy(self, memory: HostMemory) -> NDArray[Any]:
        import numpy as np

        return np.asarray(Strided(self._owner, memory.address + self._offset, self.shape, self._layout.typestr))


class Pictures:
    """Asks for the pictures of one field."""

    def __init__(self, connection: Connection, ring: Ring, allocations: Allocations, alignment: int) -> None:
        self._connection = connection
        self._ring = ring
        self._places = Places(allocations, ring.wait_for if isinstance(ring, CudaRing) else None)
        self._alignment = math.lcm(alignment, ALIGNMENT)
        self._copies = Copies(ring) if isinstance(ring, CudaRing) else None
        # As long as somebody holds them.
        self._out: weakref.WeakSet[Picture] = weakref.WeakSet()
        # Failures that nobody has heard of.
        self._unsaid: list[Answer] = []
        # If Ctrl-C interrupts a request, it is unknown what `drawn` counts from then on.
        self._asking = False

    def check(self) -> None:
        """Raise what has gone wrong since the last check."""
        if self._asking:
            self._connection.check()  # if the renderer is gone, say that instead
            raise WavefieldError(
                "a call for a picture was interrupted, so it is unknown which pictures the renderer draws: close the "
                "field and connect again"
            )
        if self._unsaid:
            self._unsaid[0].check()

    def render(
        self, kinds: Sequence[str], views: list[list[float]] | None, one: bool, size: tuple[int, int], after: int
    ) -> tuple[Picture, ...]:
        """Ask for pictures of frame `after` or a later one, of each kind. `one`: without an axis for the views."""
        for kind in kinds:
            if kind not in KINDS or kinds.count(kind) > 1:
                raise ValueError(f"the kinds of pictures are {', '.join(KINDS)}, each at most once; not {tuple(kinds)}")
        width, height = _sides(size)
        shape = (height, width) if one else (len(views or ()), height, width)
        layouts, offsets, end = _plan(tuple(sorted(kinds)), shape, self._alignment)
        if isinstance(self._ring, CudaRing):
            self._ring.prepare_drawn()
        self._connection.pump()
        lease = self._places.lease((*layouts, *shape), end)
        place = lease.place
        wish: Message = {"type": "render", "allocation": place.number, "offsets": offsets}
        wish |= {"width": width, "height": height, **({} if views is None else {"cameras": views})}
        answer = Answer(0, after, self._unsaid, place.memory)
        if isinstance(self._ring, CudaRing):
            answer.drawn = self._ring.rendered + 1
            self._post({**wish, "after": after}, answer, self._ring)
        else:
            answer.came(_picture.ask(self._connection, wish, "rendered", after)[0])
        pictures = tuple(
            Picture(kind, layouts[kind], lease, offsets[kind], answer, self._ring, self._wait, self._copies)
            for kind in kinds
        )
        self._out.update(pictures)
        return pictures

    def _post(self, wish: Message, answer: Answer, ring: CudaRing) -> None:
        self._pump_until(lambda: self._connection.owed("render") < MOST_WAITING, answer.after)
        self._asking = True
        try:
            self._connection.post(wish, "rendered", answer.came)
        except ProtocolError:  # it is too long, and was not sent
            self._asking = False
            raise
        ring.rendered += 1
        self._asking = False

    def _wait(self, answer: Answer) -> None:
        """Wait for an answer."""
        self._pump_until(lambda: answer.known, answer.after)

    def _pump_until(self, done: Callable[[], bool], after: int) -> None:
        """Wait until frame `after` is drawn, and so something is done."""
        end = time.monotonic() + _picture.DRAWN_SECONDS
        while not done():
            if self._connection.closed:
                raise _closed_before()
            if time.monotonic() >= end:
                raise _picture.not_drawn(after)
            self._connection.pump(timeout=1.0)

    def close(self) -> None:
        """Forget the places. Pictures keep theirs."""
        self._places.close()
        if self._copies is not None:
            self._copies.close()
        for picture in self._out:
            if not picture._answer.known:
                picture._answer.error = _closed_before
            picture._field_closed()


@lru_cache
def _plan(
    kinds: tuple[str, ...], shape: tuple[int, ...], alignment: int
) -> tuple[dict[str, Layout], dict[str, int], int]:
    """Return the layouts of pictures, where each begins in their memory, and how much that is."""
    layouts, offsets, end = {}, {}, 0
    for kind in kinds:
        dtype, channels = KINDS[kind]
        layouts[kind], offsets[kind] = Layout("image", (*shape, channels), dtype), end
        end += -(-layouts[kind].bytes // alignment) * alignment
    return layouts, offsets, end


def rows(cameras: Any, fit: Fit) -> list[list[float]]:
    """Return the cameras of a message, from cameras or an array of (n, 6) numbers, in the user's units."""
    import numpy as np

    if isinstance(cameras, list | tuple):
        cameras = [camera._row() if isinstance(camera, Camera) else camera for camera in cameras]
    try:
        numbers = np.asarray(_source.on_the_host(cameras), np.float64)
    except (TypeError, ValueError):
        numbers = np.empty(0)
    if numbers.ndim != 2 or numbers.shape[1] != 6 or not 1 <= len(numbers) <= MOST_VIEWS:
        raise ValueError(
            f"cameras must be 1 to {MOST_VIEWS} cameras, or an array (n, 6) of azimuth, elevation, distance, x, y, z; "
            f"not {brief(cameras)}"
        )
    if not np.isfinite(numbers).all():
        raise ValueError("a camera has a number that is not finite")
    # The renderer uses 32-bit floats. With all digits, 1024 views would not fit into a message.
    found: list[list[float]] = fit.rows_to_drawn(numbers).round(9).tolist()
    return found


def _closed_before() -> FieldClosed:
    return FieldClosed("the field was closed before the renderer had drawn this picture")


def _sides(size: Any) -> tuple[int, int]:
    with contextlib.suppress(TypeError, ValueError):
        width, height = map(operator.index, size)
        if 1 <= min(width, height) <= max(width, height) < 2**16:
            return width, height
    raise ValueError(f"the size of a picture is (width, height), whole numbers from 1 to 65535, not {brief(size)}")
