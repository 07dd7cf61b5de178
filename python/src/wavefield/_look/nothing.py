"""Why nothing of an array is seen, in words: as far as that is known, or is the first of its kind to be drawn."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Protocol

from .. import _say
from .._memory import numbers as _numbers
from .._say import warn
from ..errors import ArrayMismatch, WavefieldError
from . import fit as _fit

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._renderer.status import Camera, Status
    from . import range as _range

UNSEEN = 'the camera that was given sees none of it; camera="fit" shows all of it'

WIDEST = 1.0
"""The tangent of an angle from the camera's axis, beyond which nothing is in a picture of a usual shape."""


class HasCamera(Protocol):
    """What has the camera: a field."""

    _closed: bool
    _camera_then: Camera | None

    def _status(self) -> Status: ...


def warn_of(
    search: _range.Search,
    ends: Callable[[], _range.Ends],
    norm: str,
    fit: _fit.Fit,
    last: HasCamera | None,
    name: str = "",
) -> None:
    """Warn if nothing of an array is seen. `ends` returns those of `search`; `last` has the camera."""
    why = ""
    with contextlib.suppress(ArrayMismatch):  # of a type that cannot be searched
        why = _why(search, *ends(), norm, fit, last)
    if why:
        warn_not_seen(name, why)


def warn_not_seen(name: str, why: str) -> None:
    """Warn that an array of this name, if it has one, is not seen."""
    what = f'"{name}"' if name else "The array"
    warn(f"{what} is not seen: {why}")


def _why(
    search: _range.Search,
    values: _numbers.Pair | None,
    box: _fit.Box | None,
    norm: str,
    fit: _fit.Fit,
    last: HasCamera | None,
) -> str:
    layout = search.layout
    has_colors = any(name == "colors" for name, _ in layout.parts)
    if layout.has_places and box is None:
        return "none of its points has three finite numbers"
    if values is None and not has_colors:
        return "none of its numbers is finite"
    has_alpha = layout.colours and layout.shape[2] == 4 and not search.on_device
    if has_alpha and not search.source.as_numpy()[..., 3].any():
        return "its alpha is 0 everywhere"
    if values is not None and norm == "log" and values[1] <= 0:
        return f'norm="log" shows numbers above 0, and the largest is {values[1]:g}; norm="symlog" shows all'
    # A camera that is given now is refused if it is far away. An earlier one stays, wherever the array goes.
    if box is not None and fit.given and _fit._left(fit, box) and last is not None and not last._closed:
        with contextlib.suppress(WavefieldError):
            # A request takes until the next draw. So ask, once, only if the last camera that is known sees none of it.
            known = last._camera_then or last._status().camera
            if _is_outside(box, known) and UNSEEN not in _say.said and _is_outside(box, last._status().camera):
                _say.said.add(UNSEEN)
                return UNSEEN
    return ""


def _is_outside(box: _fit.Box, camera: Camera) -> bool:
    """Return whether the sphere around a box is outside the cone that the camera sees."""
    azimuth, elevation, away, *target = camera._row()
    back = (math.sin(azimuth) * math.cos(elevation), math.sin(elevation), math.cos(azimuth) * math.cos(elevation))
    middle = [a / 2 + b / 2 for a, b in zip(*box, strict=True)]
    to = [m - t - away * b for m, t, b in zip(middle, target, back, strict=True)]
    far, radius = math.hypot(*to), math.dist(*box) / 2
    if not radius < far < math.inf:
        return False
    along = -sum(a * b for a, b in zip(to, back, strict=True)) / far
    return math.acos(max(-1.0, min(along, 1.0))) - math.asin(radius / far) > math.atan(WIDEST)
