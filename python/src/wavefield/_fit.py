"""The fit: the sphere around points or a mesh that the camera sees. Pure functions.

A place of the user's is offset + factor · the place that is drawn. The renderer draws the sphere as the unit sphere
around the origin, and its cameras are in these units.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from . import _limits
from ._status import _MOST_DISTANT, _NEAREST, _TARGET_FARTHEST, Camera
from .errors import Refused

Triple = tuple[float, float, float]
Box = tuple[Triple, Triple]

CAMERA = Camera(0.58, 0.52, 3.3)
"""Has a sphere of `REACH` radii in its picture."""
REACH = 1.1


@dataclass(frozen=True)
class Fit:
    """A sphere in the user's units, and for which arrays it is."""

    sort: tuple[Any, ...] | None = None
    """Kind, shape and type of the arrays; None before the first."""
    middle: Triple = (0.0, 0.0, 0.0)
    """Its center as it is drawn."""
    radius: float = 1.0
    offset: Triple = (0.0, 0.0, 0.0)
    factor: float = 1.0
    given: bool = False
    """Whether the program chose the camera."""
    fresh: bool = False
    """Whether the camera must move to it."""
    words: str = ""
    """What the user should know about a change."""

    @property
    def center(self) -> Triple:
        """Return its center."""
        x, y, z = (offset + self.factor * drawn for drawn, offset in zip(self.middle, self.offset, strict=True))
        return x, y, z

    @property
    def units(self) -> list[_limits.Pair]:
        """Return the units in which x, y and z are drawn."""
        return [(offset, self.factor) for offset in self.offset]

    @property
    def moves(self) -> bool:
        """Return whether other numbers are drawn than the array's."""
        return self.units != [_limits.PLAIN] * 3

    def message(self) -> dict[str, Any]:
        """Return the renderer's parameter."""
        return {"center": list(self.middle), "radius": self.radius / self.factor}

    def to_drawn(self, camera: Camera) -> Camera:
        """Return a camera of the user's in the renderer's units."""
        if (self.center, self.radius) == (Fit.middle, Fit.radius):
            return camera
        camera._message()  # is every part a number?
        x, y, z = ((there - c) / self.radius for there, c in zip(camera.target, self.center, strict=True))
        distance, away = camera.distance / self.radius, math.hypot(x, y, z)
        if not _NEAREST * (1 - 1e-6) <= distance <= _MOST_DISTANT * (1 + 1e-6):
            raise Refused(
                "failed",
                f"a distance of {camera.distance:g} is not from {_NEAREST * self.radius:.4g} to "
                f'{_MOST_DISTANT * self.radius:.4g}, which the present view allows; wavefield.show(x, camera="fit") '
                "fits it to another array",
            )
        if not away <= _TARGET_FARTHEST * (1 + 1e-6):
            raise Refused(
                "failed",
                f"the target {camera.target} is farther than {_TARGET_FARTHEST * self.radius:.4g} from the middle of "
                f'the view, {self.center}; wavefield.show(x, camera="fit") fits the view to another array',
            )
        return replace(camera, distance=min(max(distance, _NEAREST), _MOST_DISTANT), target=(x, y, z))

    def to_true(self, camera: Camera) -> Camera:
        """Return a camera of the renderer's in the user's units."""
        x, y, z = (c + self.radius * drawn for drawn, c in zip(camera.target, self.center, strict=True))
        return replace(camera, distance=self.radius * camera.distance, target=(x, y, z))


def choose(last: Fit, sort: tuple[Any, ...], wish: Camera | str | None, box: Callable[[bool], Box | None]) -> Fit:
    """Return the fit for an array. `wish`: a camera, "fit", or None.

    `box` returns two corners around its finite points; None if there are none, or if it takes too long. Its argument
    says whether it is needed.
    """
    new, fits = last.sort != sort, wish == "fit"
    if wish is None and last.given and (last.sort is None or not new):
        return replace(last, sort=sort, fresh=False, words="")
    found, given = box(new or fits), isinstance(wish, Camera)
    if found is None and (last.moves or last.sort is None):
        return Fit(sort, given=given, fresh=last.moves)
    if found is None or not (new or fits or _left(last, found)):
        return replace(last, sort=sort, given=given, fresh=False, words="")
    fit = _around(found, str(sort[-1]))
    if not fits and last.sort is not None and fit == replace(last, sort=None, given=False, fresh=False, words=""):
        return replace(fit, sort=sort, given=given or last.given)
    words = ""
    if wish is None and last.sort is not None:
        why = "has another kind, shape or type than the one before" if new else "left the view, or is 10 times smaller"
        words = f"the view now fits this array, because it {why}; a call with camera=wavefield.Camera(…) chooses it"
    return replace(fit, sort=sort, given=given, fresh=True, words=words)


def _size(box: Box) -> tuple[Triple, float]:
    """Return the middle of a box, and half its diagonal."""
    x, y, z = (float(low / 2 + high / 2) for low, high in zip(*box, strict=True))
    half = math.hypot(*(_half(low, high) for low, high in zip(*box, strict=True)))
    return (x, y, z), min(half, sys.float_info.max / 2)


def _half(low: float, high: float) -> float:
    # Whole numbers may need more than float64, and the difference of two floats may be infinite.
    return (high - low) / 2 if isinstance(high, int) else high / 2 - low / 2


def _left(last: Fit, box: Box) -> bool:
    """Return whether a box is a tenth outside what the picture shows, or 10 times smaller."""
    _, half = _size(box)
    far = math.hypot(*(max(abs(low - c), abs(high - c)) for low, high, c in zip(*box, last.center, strict=True)))
    return far > REACH**2 * last.radius or (half / REACH or 1.0) < last.radius / 10


def _around(box: Box, dtype: str) -> Fit:
    """Return the sphere around a box of numbers of this type, in 32-bit floats as they are drawn."""
    import numpy as np

    middle, half = _size(box)
    radius, most = half / REACH or 1.0, max(map(abs, (*box[0], *box[1])))
    offset = Fit.offset
    if _limits.is_wide(dtype) and max(map(abs, middle)) > radius:
        # Unsigned numbers have no negative differences.
        offset = box[0] if _limits.is_whole(dtype) else middle
        x, y, z = (_half(low, high) if offset is box[0] else 0.0 for low, high in zip(*box, strict=True))
        middle = (x, y, z)
        most = max(2 * half, radius)
    small = radius > _limits.SMALLEST and most < _limits.LARGEST / 8
    factor = 1.0 if small else 2.0 ** (math.frexp(max(most, radius))[1] - 1)
    x, y, z = (float(np.float32(number / factor)) for number in middle)
    return Fit(None, (x, y, z), factor * float(np.float32(radius / factor)), offset, factor)
