"""One frame: the slot of the ring that the renderer draws next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _source
from ._array import Array
from ._cuda import DeviceMemory
from .errors import FrameHandedOver

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._host import HostMemory
    from ._layout import Layout
    from ._streams import Stream


class Frame(Array):
    """The array of one frame, to be written by the one who has it: all of it, on `stream`.

    The frame is handed over when the loop asks for the next one, or by `hand_over()`. From then on the renderer may be
    drawing it, and using the frame raises `FrameHandedOver`. An array that was made of it before stays readable and
    writable in CUDA memory, and nothing can catch a kernel that writes through it then: the picture tears. In host
    memory the array of `numpy.asarray(frame)` becomes read-only, though not the views that were taken of it.
    """

    index: int
    """Counts up by one a frame, from 0."""
    time: float
    """Seconds on the field's clock, which runs at the user's `speed`."""

    def __init__(
        self,
        index: int,
        time: float,
        layout: Layout,
        memory: DeviceMemory | HostMemory,
        offset: int,
        stream: Stream | None,
        finish: Callable[[Frame], None],
        catch_up: Callable[[Stream], None],
    ) -> None:
        super().__init__(layout, memory, offset, stream)
        self.index = index
        self.time = time
        self._finish = finish
        self._catch_up = catch_up
        self._held: list[object] = []
        self._over: str | None = None

    def __repr__(self) -> str:
        state = self._over or "open"
        return f"<wavefield.Frame {self.index}, {self.shape}, {state}>"

    @property
    def handed_over(self) -> bool:
        """Return whether it is the renderer's now, or was given up."""
        return self._over is not None

    def _check(self) -> None:
        if self._over is not None:
            raise FrameHandedOver(
                f"frame {self.index} was {self._over}: write a frame before the loop goes on to the next one, and take "
                "the next one for what comes after"
            )

    def hand_over(self) -> None:
        """Give the frame to the renderer, after everything that is enqueued on `stream` so far.

        A `for` loop over the field does it by itself.
        """
        self._check()
        self._finish(self)

    def copy_from(self, array: Any) -> None:
        """Copy an array in, by one copy on the device, enqueued on `stream`.

        For libraries whose arrays cannot be written, such as JAX's, and for any other of the field's shape and dtype:
        by DLPack, `__cuda_array_interface__`, or from NumPy's memory. It is ordered after what produces the
        array.
        """
        self._check()
        if isinstance(self._memory, DeviceMemory) and self._stream is not None:
            context = self._memory.context
            source = _source.of(array, self._layout, context, self._stream)
            self._held.append(source.held)
            if not source.on_device:
                # The driver copies pageable memory in a call that waits for the stream, deaf to Ctrl-C and to a
                # renderer that ends. So wait here first.
                self._catch_up(self._stream)
            _source.copy(source, self._layout, self.pointer, context, self._stream)
        else:
            import numpy as np

            source = _source.of(array, self._layout, None, None)
            np.copyto(np.asarray(self), np.asarray(source.held).reshape(self.shape))

    def _end(self, how: str) -> None:
        self._over = how
        self._held = []
        self._finish = _finished
        self._catch_up = lambda _stream: None
        if self._array is not None:
            self._array.flags.writeable = False


def _finished(frame: Frame) -> None:
    frame._check()
