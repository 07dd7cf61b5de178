"""The renderer's state, and its camera."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

from .._memory.numbers import items, number
from ..errors import ProtocolError, brief
from . import protocol as _protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .protocol import Message

# Of the window's mouse: tool/draw/src/camera.rs.
_PER_PIXEL, _STEEPEST, _NEAREST, _MOST_DISTANT, _TARGET_FARTHEST, _FIELD_OF_VIEW = 0.006, 1.5, 0.4, 20.0, 3.0, 0.72


@dataclass(frozen=True)
class Camera:
    """Where the camera is, in the units of the points or the mesh. x is right, y up, z towards the viewer.

    `azimuth`: the angle around the field, in radians. 0 looks along -z, pi / 2 along -x.
    `elevation`: the angle above the horizon, in radians, from -1.5 to 1.5.
    `distance`: from the target, 0.4 to 20 times the radius of what the first camera shows.
    `target`: the place in the middle of the picture. At most 3 such radii from the centre of the first view.

    A surface, or a frame of a mesh, is 2 wide and lies around (0, 0, 0), so its radius is 1.

    An image has no angles: its zoom is the initial distance divided by `distance`, and x and y of the target are in
    units of half the image's longer side.
    """

    azimuth: float
    elevation: float
    distance: float
    target: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @classmethod
    def at(cls, place: Sequence[float], target: Sequence[float] = (0.0, 0.0, 0.0)) -> Camera:
        """Return the camera at `place`, x, y, z, that looks at `target`.

        Its elevation ends at 1.5, so straight above or below `target` it is a little beside `place`.
        """
        there, middle = (
            [number(name, one) for one in items(name, ends, count=3)]
            for name, ends in (("place", place), ("target", target))
        )
        x, y, z = (a - b for a, b in zip(there, middle, strict=True))
        elevation = max(-_STEEPEST, min(math.atan2(y, math.hypot(x, z)), _STEEPEST))
        return cls(math.atan2(x, z), elevation, math.hypot(x, y, z), (middle[0], middle[1], middle[2]))

    def _message(self) -> dict[str, Any]:
        try:
            target = [_finite(number) for number in self.target]
            if len(target) != 3:
                raise TypeError
            numbers = {name: _finite(getattr(self, name)) for name in ("azimuth", "elevation", "distance")}
        except TypeError:
            raise TypeError(f"a camera must have three finite numbers and a target of three, not {self!r}") from None
        return {**numbers, "target": target}

    def _row(self) -> list[float]:
        message = self._message()
        return [message["azimuth"], message["elevation"], message["distance"], *message["target"]]

    def _orbit(self, right: float, down: float) -> Camera:
        """Return the camera after a drag, in pixels."""
        elevation = max(-_STEEPEST, min(self.elevation + down * _PER_PIXEL, _STEEPEST))
        return replace(self, azimuth=(self.azimuth - right * _PER_PIXEL) % math.tau, elevation=elevation)

    def _pan(self, right: float, down: float) -> Camera:
        """Return the camera after a drag of what is at the target, in heights of the picture."""
        (sin_a, cos_a), (sin_e, cos_e) = ((math.sin(t), math.cos(t)) for t in (self.azimuth, self.elevation))
        height = 2 * self.distance * math.tan(_FIELD_OF_VIEW / 2)
        right, down = height * right, height * down
        return self._shift(-right * cos_a - down * sin_e * sin_a, down * cos_e, right * sin_a - down * sin_e * cos_a)

    def _shift(self, *by: float) -> Camera:
        """Return the camera with its target moved, at most to the limit."""
        target = [old + change for old, change in zip(self.target, by, strict=True)]
        x, y, z = (number * _TARGET_FARTHEST / max(math.hypot(*target), _TARGET_FARTHEST) for number in target)
        return replace(self, target=(x, y, z))

    def _zoom(self, notches: float) -> Camera:
        """Return the camera nearer to the target (positive) or farther away."""
        notches = max(-99.0, min(notches, 99.0))  # more would overflow
        return replace(self, distance=max(_NEAREST, min(self.distance * 0.9**notches, _MOST_DISTANT)))


def camera_of(value: object) -> Camera:
    """Return a camera that was given as an argument."""
    if not isinstance(value, Camera):
        raise TypeError(f"a camera is wavefield.Camera(azimuth, elevation, distance, (x, y, z)), not {brief(value)}")
    return value


def _finite(number: object) -> float:
    if isinstance(number, bool) or not isinstance(number, Real) or not math.isfinite(number):
        raise TypeError
    return float(number)


@dataclass(frozen=True)
class Status:
    """The renderer's state."""

    frames_drawn: int
    frame_shown: int | None
    """The client's frame in view; None before the first."""
    shown_at: float | None
    """When it was first drawn, in seconds of `time.clock_gettime(time.CLOCK_MONOTONIC)`; None before the first."""
    ready: int
    """The last value that the renderer has read; in host memory, the number of frames that were ready."""
    free: int
    """The last value that the renderer has signalled; in host memory, the number of frames that it has freed."""
    producer: str
    """The name of what writes the frames now."""
    seconds: float
    """The time since this client connected."""
    late_us: float
    """The microseconds by which the longest time between two frames exceeded the planned time."""
    camera: Camera
    picture: tuple[int, int]
    """The width and height of the picture on screen, in pixels; (0, 0) before the first."""
    gaps_us: Mapping[str, float] = field(default_factory=dict)
    """The times between frames since this client connected: their number, `frames`, and `p50`, `p99`, `max` in µs."""


def status(state: Message) -> Status:
    """Return a checked `state`."""
    numbers = {
        key: float(value)
        for key, value in state.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    gaps = state.get("gaps_us")
    shown_at = _protocol.integer(state, "shown_at") if state.get("shown_at") is not None else None
    return Status(
        frames_drawn=int(numbers.get("frames_drawn", 0)),
        frame_shown=int(numbers["frame_shown"]) if "frame_shown" in numbers else None,
        shown_at=None if shown_at is None else shown_at / 1e9,
        ready=int(numbers.get("ready", 0)),
        free=int(numbers.get("free", 0)),
        producer=_protocol.text(state, "producer", ""),
        seconds=numbers.get("seconds", 0.0),
        late_us=numbers.get("late_us", 0.0),
        camera=_camera(_protocol.mapping(state, "camera")),
        picture=_size(state.get("picture")),
        gaps_us=gaps if isinstance(gaps, dict) else {},
    )


def _size(sides: Any) -> tuple[int, int]:
    if not isinstance(sides, list) or len(sides) != 2:
        raise ProtocolError(f"the renderer sent 'picture' as {sides!r}; a width and a height were expected")
    width, height = (_protocol.integer({"picture": side}, "picture") for side in sides)
    return width, height


def _camera(message: Message) -> Camera:
    target = message.get("target")
    if not isinstance(target, list) or len(target) != 3:
        raise ProtocolError(f"the renderer sent a camera's 'target' as {target!r}; three numbers were expected")
    x, y, z = (_protocol.number({"target": number}, "target") for number in target)
    azimuth, elevation, distance = (_protocol.number(message, name) for name in ("azimuth", "elevation", "distance"))
    return Camera(azimuth, elevation, distance, (x, y, z))
