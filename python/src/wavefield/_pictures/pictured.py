"""The pictures of a field: of what is on screen, and of other views. A base of `Field`."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any, overload

from .._handoff.rings import CudaRing
from .._look.drawn import Drawn
from .._look.parts import NONE
from .._memory import cuda as _cuda
from .._renderer import status as _status
from ..errors import PicturesInUse, Refused, WavefieldError
from . import picture as _picture, render as _render

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from .._handoff.shown import Shown
    from .._memory.layout import PictureKind
    from .._renderer.protocol import Message
    from .._renderer.status import Camera
    from .render import Picture

Size = tuple[int, int] | None

MOST_BEHIND = 7
"""`pictures` may be fewer arrays behind: one picture is being taken, and there are 8 places for them."""


class Pictured(Drawn):
    """The part of a field that takes pictures."""

    _next: int
    _pictured: bool
    _pictures: _render.Pictures

    if TYPE_CHECKING:

        def _before_a_picture(self) -> None: ...
        def _show_unless_over(self, array: Any, copy: bool | None, wait: bool, parts: Mapping[str, Any]) -> Shown: ...

    def snapshot(self, after: int | None = None, size: Size = None) -> NDArray[np.uint8]:
        """Return the picture of the field, (height, width, 4) uint8, sRGB with alpha, with the top row first.

        Waits until frame `after` is drawn; by default the last one that was handed over. `size` is (width, height), by
        default that of the picture on screen.
        """
        self._before_a_picture()
        self._check_open()
        if after is None and self._next > 0:
            after = self._next - 1
        if after is not None and not 0 <= after < self._next:
            raise ValueError(f"frame {after} was not handed over yet: {self._next} frames were, numbered from 0")
        size = None if size is None else _render._sides(size)
        if after is not None and not (self.window and size is None) and not self._has_marks:
            with contextlib.suppress(PicturesInUse, Refused):  # without room for it, it is drawn again
                return self._take(("color",), None, None, size, after)[0].to_numpy()
        self._look(wait=True)
        # A window has a size of its own, which the user changes.
        return self._screenshot(after, size)

    @property
    def _has_marks(self) -> bool:
        """Return whether something is written over its pictures, other than those for programs."""
        return bool(self.parameters.get("colorbar") or self.parameters.get("axes") or self._welcome.layout.columns)

    def _screenshot(self, after: int | None, size: Size = None) -> NDArray[np.uint8]:
        """Ask for a picture with what is written over it: of frame `after` or later, or whatever is on screen."""
        if after is not None and isinstance(self._ring, CudaRing):
            self._ring.wait_written(self._next - 1)
        wish: Message = {"type": "snapshot"} if size is None else {"type": "snapshot", "size": [*size]}
        message, files = _picture.ask(self._connection, wish, "picture", after)
        self._pictured = True
        picture = _picture.read(message, files, after)
        if size is None:
            self._screen = (picture.shape[1], picture.shape[0])
        return picture

    @overload
    def picture(self, kind: PictureKind = ..., /) -> Picture: ...

    @overload
    def picture(self, *kinds: PictureKind) -> tuple[Picture, ...]: ...

    def picture(self, *kinds: PictureKind) -> Picture | tuple[Picture, ...]:
        """Return what is on screen as a `Picture`, without a copy to the CPU; see `render`."""
        return self.render(*kinds)

    @overload
    def render(
        self, kind: PictureKind = ..., /, *, camera: Camera | None = ..., cameras: Any = ..., size: Size = ...
    ) -> Picture: ...

    @overload
    def render(
        self, *kinds: PictureKind, camera: Camera | None = ..., cameras: Any = ..., size: Size = ...
    ) -> tuple[Picture, ...]: ...

    def render(
        self, *kinds: PictureKind, camera: Camera | None = None, cameras: Any = None, size: Size = None
    ) -> Picture | tuple[Picture, ...]:
        """Return the field as `camera` sees it: one `Picture`, or with several `kinds` a tuple, all of one frame.

        The kinds are "color" (the default), "depth", "normal" and "index". `cameras`, a list of cameras or an array
        (n, 6) of azimuth, elevation, distance, x, y, z, gives n views in one picture. `size` is (width, height), by
        default that of the picture on screen when `status` or `snapshot` last asked.

        A picture shows the last frame that was handed over, or a later one: its `frame` says which. If the stream that
        takes it also hands over the next frame, it shows exactly the last. In CUDA memory this call does not wait for
        the picture. It waits until the last array is computed if limits or view may follow that, and for memory: at the
        first calls of a kind and size, and while all 8 places of them are in use on the GPU. If you hold 8 of a kind
        and size, it raises `PicturesInUse`.
        """
        self._before_a_picture()
        self._check_open()
        if self._next == 0:
            raise WavefieldError("there is nothing to see yet: hand a frame over first")
        pictures = self._take(kinds or ("color",), camera, cameras, size, self._next - 1)
        return pictures if len(kinds) > 1 else pictures[0]

    def _take(
        self, kinds: tuple[PictureKind, ...], camera: Camera | None, cameras: Any, size: Size, after: int
    ) -> tuple[Picture, ...]:
        """Take pictures while the last array is looked at, and once more if that changes its limits or its view."""
        if camera is not None or cameras is not None:  # which its view may not reach yet
            self._look(wait=True)
        taken = self._render(kinds, camera, cameras, size, after)
        if self._look(wait=True):
            taken[0]._answer.forget()
            del taken  # others may need its place
            taken = self._render(kinds, camera, cameras, size, after)
        return taken

    @_cuda.at_once
    def _render(
        self, kinds: tuple[PictureKind, ...], camera: Camera | None, cameras: Any, size: Size, after: int
    ) -> tuple[Picture, ...]:
        self._ring.refuse_capture()
        if camera is not None and cameras is not None:
            raise ValueError("give camera or cameras, not both")
        views = None if cameras is None else _render.rows(cameras, self._fit)
        if camera is not None:
            views = [self._fit.to_drawn(_status.camera_of(camera))._row()]
        if size is None and self._screen is None and 0 in self.status().picture:
            self._screenshot(None)  # nothing is drawn yet, and this waits for that
        size = self._screen or (0, 0) if size is None else size
        self._pictured = True
        return self._pictures.render(kinds, views, cameras is None, size, after)

    def pictures(
        self,
        arrays: Iterable[Any],
        kind: PictureKind = "color",
        *,
        camera: Camera | None = None,
        size: Size = None,
        behind: int = 2,
    ) -> Iterator[NDArray[Any]]:
        """Show each array, and yield its picture as NumPy's, `behind` arrays later: for films and training.

        So the next arrays are computed while a picture is drawn and copied to the CPU. `arrays` may be a generator,
        which makes one after another; see `show` for when it may write an array again. `behind` is 0 to 6.
        """
        if not 0 <= behind < MOST_BEHIND:
            raise ValueError(f"behind must be from 0 to {MOST_BEHIND - 1}, not {behind!r}")
        waiting: deque[Picture] = deque()
        for array in arrays:
            self._panel.call()
            waiting.append(self._show_and_render(array, kind, camera, size))
            if len(waiting) > behind:
                yield waiting.popleft().to_numpy()
        while waiting:
            yield waiting.popleft().to_numpy()

    @_cuda.at_once
    def _show_and_render(self, array: Any, kind: PictureKind, camera: Camera | None, size: Size) -> Picture:
        self._show_unless_over(array, None, True, NONE)
        picture = self.render(kind, camera=camera, size=size)
        picture.prefetch()
        return picture

    def save(self, path: str | os.PathLike[str], size: Size = None) -> None:
        """Write the picture of `snapshot` to a PNG file: the whole file or nothing."""
        checked = _picture.check_name(path)
        _picture.write_whole(checked, _picture.png(self.snapshot(size=size)))

    def _repr_png_(self) -> bytes | None:
        """Return the picture for a notebook to show."""
        return None if self._closed else _picture.png(self.snapshot())
