"""The fit: the sphere around points, or all else that has places, that the camera sees.

A place of the user's is offset + factor · the place that is drawn. The renderer's cameras see the sphere as the unit
sphere around the origin.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .._memory import numbers as _numbers
from .._renderer.status import _MOST_DISTANT, _NEAREST, _TARGET_FARTHEST, Camera
from .._say import say_once
from ..errors import Refused, brief
from . import limits as _limits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .._memory.layout import Layout

Triple = tuple[float, float, float]
Box = tuple[Triple, Triple]

REACH = 1.1
"""The radius of the largest sphere that is in the picture of the first camera."""
USUAL = 0.6
"""Half the side of the axes' box around points or a mesh of which nothing is known, in radii."""
CAMERAS = {"image": Camera(0, 0, 3.3), "plot": Camera(0, 0, 3.3), "surface": Camera(0.58, 0.52, 3.3, (0, -0.2, 0))}
CAMERA = Camera(0.58, 0.52, 3.3)
"""The first camera of other kinds."""


@dataclass(frozen=True)
class Fit:
    """A sphere, and for which arrays it is."""

    sort: tuple[Any, ...] | None = None
    """Kind, shape and type of the arrays; None before the first."""
    middle: Triple = (0.0, 0.0, 0.0)
    """Its center as it is drawn."""
    radius: float = 1.0
    """In the user's units."""
    offset: Triple = (0.0, 0.0, 0.0)
    factor: float = 1.0
    aspect: float = 0.0
    """Of a surface with an extent: its width over its depth."""
    given: bool = False
    """Whether the program chose the camera."""
    fresh: bool = False
    """Whether the camera must move to it."""
    box: Box | None = field(default=None, compare=False)
    """The ends of the axes: around points or a mesh, or the extent of a surface or an image."""

    @property
    def center(self) -> Triple:
        """Return its center in the user's units."""
        x, y, z = (offset + self.factor * drawn for drawn, offset in zip(self.middle, self.offset, strict=True))
        return x, y, z

    @property
    def units(self) -> list[_numbers.Pair]:
        """Return the units in which x, y and z are drawn."""
        return [(offset, self.factor) for offset in self.offset]

    @property
    def moves(self) -> bool:
        """Return whether other numbers are drawn than the array's."""
        return (self.offset, self.factor) != (Fit.offset, Fit.factor)

    def message(self) -> dict[str, Any]:
        """Return the renderer's parameter."""
        message = {"center": list(self.middle), "radius": self.radius / self.factor}
        return {**message, "aspect": self.aspect} if self.aspect else message

    def axes(self, layout: Layout) -> dict[str, Any]:
        """Return the renderer's parameters for axes: the numbers at their ends and, in space, where those are."""
        cols, rows = layout.grid
        box = self.box
        if layout.view == "plot":
            return {}  # its limits say where it lies
        if box is None and layout.kind == "image":
            box = (-0.5, rows - 0.5, 0), (cols - 0.5, -0.5, 1)
        elif box is None and layout.kind == "surface":
            box = (0, 0, 0), (cols - 1, 1, rows - 1)
        elif box is None:
            x, y, z, half = *self.center, USUAL * self.radius
            box = (x - half, y - half, z - half), (x + half, y + half, z + half)
        ends = [_limits.padded((a, b)) if a == b else (a, b) for a, b in zip(*box, strict=True)]
        # Between others, a tick has too few digits.
        if not all(math.isfinite(b - a) and abs(b - a) > 1e-9 * max(abs(a), abs(b)) for a, b in ends):
            return {}
        numbers = {"extent": [[float(a), float(b)] for a, b in ends]}
        if not layout.has_places:
            return numbers
        units = zip(ends, self.offset, strict=True)
        return {**numbers, "box": [[(end - offset) / self.factor for end in pair] for pair, offset in units]}

    def to_drawn(self, camera: Camera) -> Camera:
        """Return a camera of the user's in the renderer's units."""
        camera._message()  # is every part a number?
        if self._is_unit:
            return camera
        x, y, z = ((there - c) / self.radius for there, c in zip(camera.target, self.center, strict=True))
        distance = min(max(camera.distance / self.radius, _NEAREST), _MOST_DISTANT)
        reached = math.isclose(distance, camera.distance / self.radius, rel_tol=1e-6)
        if not (reached and math.hypot(x, y, z) <= _TARGET_FARTHEST + 1e-3):
            near, far, away = (f"{self.radius * limit:.4g}" for limit in (_NEAREST, _MOST_DISTANT, _TARGET_FARTHEST))
            raise Refused(
                "failed",
                f"{camera}: the distance must be from {near} to {far}, and the target at most {away} from the middle "
                f'of the view, {self.center}; wavefield.show(x, camera="fit") fits the view to another array',
            )
        return replace(camera, distance=distance, target=(x, y, z))

    def rows_to_drawn(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Do the same for many cameras, each as a row of azimuth, elevation, distance, x, y, z."""
        import numpy as np

        if self._is_unit:
            return rows
        distances, targets = rows[:, 2:3] / self.radius, (rows[:, 3:] - self.center) / self.radius
        drawn = np.hstack([rows[:, :2], distances, targets])
        beyond = (distances < _NEAREST) | (distances > _MOST_DISTANT)
        # Almost none is near a limit. Then this says what is beyond it.
        for number in np.flatnonzero(beyond[:, 0] | (np.linalg.norm(targets, axis=1) > _TARGET_FARTHEST)):
            azimuth, elevation, distance, x, y, z = rows[number].tolist()
            drawn[number] = self.to_drawn(Camera(azimuth, elevation, distance, (x, y, z)))._row()
        return drawn

    @property
    def _is_unit(self) -> bool:
        return (self.center, self.radius) == (Fit.middle, Fit.radius)

    def to_true(self, camera: Camera) -> Camera:
        """Return a camera of the renderer's in the user's units."""
        x, y, z = (c + self.radius * drawn for drawn, c in zip(camera.target, self.center, strict=True))
        return replace(camera, distance=self.radius * camera.distance, target=(x, y, z))


def of_extent(extent: Any, sort: tuple[Any, ...]) -> Fit:
    """Return the fit of a surface with these ends of x (columns) and z (rows), or of an image with these edges."""
    x0, x1, z0, z1 = (_numbers.number("extent", end) for end in _numbers.items("extent", extent, count=4))
    if sort[0] == "image":
        if x0 == x1 or z0 == z1:
            raise ValueError(
                f"extent must be (left, right, bottom, top) with two different numbers each, not {brief(extent)}"
            )
        return Fit(sort, box=((x0, z0, 0.0), (x1, z1, 1.0)))
    wide, deep = x1 - x0, z1 - z0
    if not (wide > 0 and deep > 0 and 1e-3 <= wide / deep <= 1e3):
        raise ValueError(
            f"extent must be (x0, x1, y0, y1) with x0 < x1, y0 < y1, and sides that differ at most 1000 times, "
            f"not {brief(extent)}; rows that go from north to south are x[::-1]"
        )
    middle, box = ((x0 + x1) / 2, 0.0, (z0 + z1) / 2), ((x0, 0.0, z0), (x1, 1.0, z1))
    return Fit(sort, middle, max(wide, deep) / 2, aspect=wide / deep, fresh=True, box=box)


def choose(last: Fit, sort: tuple[Any, ...], wish: Camera | str | None, box: Callable[[], Box | None]) -> Fit:
    """Return the fit for an array. `wish`: a camera, "fit", or None.

    `box` returns two corners around its finite points, or None if there are none.
    """
    first, new, given = last.sort is None, last.sort != sort, isinstance(wish, Camera)
    kept = last if not new and wish is None else replace(last, sort=sort, given=given or (last.given and wish is None))
    needed = new or wish == "fit"
    if wish is None and last.given and (first or not new):
        return kept
    found = box()
    if found is None:
        return Fit(sort, given=given) if new else kept
    if not (needed or _left(last, found)):
        return kept
    fit = _around(found, sort)
    if fit == replace(kept, given=False) and not first and wish != "fit":
        return kept
    if wish is None and not first:
        why = "has another kind, shape or type than the one before" if new else "left the view, or is 10 times smaller"
        words = f"the view now fits this array, because it {why}; a call with camera=wavefield.Camera(…) chooses it"
        say_once(words, "fit")
    return replace(fit, given=given, fresh=True)


def _halves(box: Box) -> list[float]:
    # Whole numbers may need more than float64, and the difference of two floats may be infinite.
    return [(b - a) / 2 if isinstance(b, int) else b / 2 - a / 2 for a, b in zip(*box, strict=True)]


def _radius(box: Box) -> float:
    return min(math.hypot(*_halves(box)), sys.float_info.max / 2) / REACH or 1.0


def _left(last: Fit, box: Box) -> bool:
    """Return whether a box is a tenth outside what the first camera shows, or 10 times smaller."""
    far = math.hypot(*[max(abs(a - c), abs(b - c)) for a, b, c in zip(*box, last.center, strict=True)])
    return far > REACH**2 * last.radius or _radius(box) < last.radius / 10


def _around(box: Box, sort: tuple[Any, ...]) -> Fit:
    """Return the sphere around a box, in 32-bit floats as they are drawn."""
    import numpy as np

    radius, offset, most = _radius(box), Fit.offset, max(map(abs, (*box[0], *box[1])))
    middle = [a / 2 + b / 2 for a, b in zip(*box, strict=True)]
    if _numbers.is_wide(sort[-1]) and max(map(abs, middle)) > radius:
        # From the lowest corner, because unsigned numbers have no negative differences.
        offset, middle = box[0], _halves(box)
        most = 2 * REACH * radius
    small = radius > _limits.SMALLEST and most < _limits.LARGEST / 8
    factor = 1.0 if small else 2.0 ** (math.frexp(max(most, radius))[1] - 1)
    x, y, z = (float(np.float32(number / factor)) for number in middle)
    return Fit(sort, (x, y, z), factor * float(np.float32(radius / factor)), offset, factor, box=box)
