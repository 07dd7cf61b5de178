"""One frame: the slot that the renderer draws next."""

from __future__ import annotations

from types import EllipsisType
from typing import TYPE_CHECKING, Any

from ._memory import source as _source
from ._memory.array import Array, Part
from ._memory.cuda import DeviceMemory
from .errors import FrameHandedOver

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ._memory.host import HostMemory
    from ._memory.layout import Layout
    from ._memory.streams import Stream


class Frame(Array):
    """The array of one frame. Write all of it, on `stream`.

    The loop hands the frame over when it asks for the next one, and `hand_over()` does so at once. Then the renderer
    may draw it, and using the frame raises `FrameHandedOver`. In CUDA memory, an array that was made of it before stays
    writable, and nothing stops a kernel that writes through it: the picture tears. In host memory the array of
    `numpy.asarray(frame)` becomes read-only, but views of it do not.
    """

    index: int
    """The number of the frame, from 0."""
    time: float
    """The time in seconds on the field's clock, which runs at the user's `speed`."""

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
        # NumPy's arrays of its parts.
        self._given: list[NDArray[Any]] = []
        self._over: str | None = None

    def __repr__(self) -> str:
        state = self._over or "open"
        return f"<wavefield.Frame {self.index}, {self.shape}, {state}>"

    @property
    def handed_over(self) -> bool:
        """Return whether it was handed over or given up."""
        return self._over is not None

    def _check(self) -> None:
        if self._over is not None:
            raise FrameHandedOver(
                f"frame {self.index} was {self._over}: write a frame before the loop asks for the next one, then use "
                "that one"
            )

    def hand_over(self) -> None:
        """Give the frame to the renderer, after everything that is enqueued on `stream` so far.

        A `for` loop over the field does this itself.
        """
        self._check()
        self._finish(self)

    def copy_from(self, array: Any) -> None:
        """Copy an array of the field's shape and dtype into the frame.

        Takes arrays with DLPack or `__cuda_array_interface__`, and NumPy's; for example those of JAX, which cannot be
        written in place. The copy runs on the device, on `stream`, after what produces the array. For an array in the
        CPU's memory, the CPU first waits until the slot is free.
        """
        self._check()
        self._copy(array, self)

    def _copy_parts(self, source: _source.Source) -> None:
        """Copy what lies behind the array: its parts, and other arrays with theirs."""
        for name, part in source.parts.items():
            self._copy(part, self.part(name))
        for other, layout, begin in zip(source.more, self._layout.more, self._layout.beginnings[1:], strict=False):
            to = Part(self, layout, begin)
            self._copy(other, to)
            for name, part in other.parts.items():
                self._copy(part, to.part(name))

    def _copy(self, array: Any, to: Array) -> None:
        """Copy into the frame, or into one of its parts."""
        if isinstance(self._memory, DeviceMemory) and self._stream is not None:
            context = self._memory.context
            context.refuse_capture(*self._writers)
            source = _source.of(array, context, self._stream)
            source.pitch(to._layout)
            source.order(context, self._stream)
            self._held.append(source.held)
            if not source.on_device:
                # To copy pageable memory, the driver's call waits for the stream, and notices neither Ctrl-C nor a
                # renderer that ends. So wait here first.
                self._catch_up(self._stream)
            _source.copy(source, to._layout, to.pointer, context, self._stream)
        else:
            import numpy as np

            source = _source.of(array, None, None)
            source.pitch(to._layout)
            np.copyto(np.asarray(to), np.asarray(source.held).reshape(to.shape))

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write the frame: all of it from an array of the field's shape; in host memory also parts."""
        _write(self, key, value)

    def part(self, name: str) -> FramePart:
        """Return the frame's "colors", "sizes", "vectors", "faces" or "edges", if the field has such: to write, too."""
        return FramePart(self, name)

    def _end(self, how: str) -> None:
        self._over = how
        self._held = []
        self._finish = _finished
        self._catch_up = lambda _stream: None
        for array in (*self._given, *([] if self._array is None else [self._array])):
            array.flags.writeable = False


class FramePart(Part):
    """The colours of a frame, its faces or the like: to write, as the frame."""

    def __init__(self, frame: Frame, name: str) -> None:
        super().__init__(frame, *frame._place(name))
        self._frame = frame

    def copy_from(self, array: Any) -> None:
        """Copy an array of this shape and dtype into it; see `Frame.copy_from`."""
        self._check()
        self._frame._copy(array, self)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write it as a frame is written."""
        _write(self, key, value)

    def _numpy(self, memory: HostMemory) -> NDArray[Any]:
        self._frame._given.append(array := super()._numpy(memory))
        return array


def _write(to: Frame | FramePart, key: Any, value: Any) -> None:
    if not isinstance(to._memory, DeviceMemory):
        to.as_numpy()[key] = value
    elif isinstance(key, slice | EllipsisType) and key in (slice(None), ...):
        to.copy_from(value)
    else:
        raise TypeError("this memory is on the GPU: write it with as_cupy(), as_torch() or as_numba()")


def _finished(frame: Frame) -> None:
    frame._check()
