"""What the user can change while it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from numbers import Real
from typing import Any


class Parameters(Mapping[str, Any]):
    """The renderer's parameters, as it last said them: `speed`, `colormap`, `paused`, whatever it has.

    `field.parameters["speed"] = 0.5` and `field.parameters.update(speed=0.5, colormap="magma")` ask the renderer to
    change them, and return when it has.
    """

    def __init__(self, values: dict[str, Any], ask: Callable[[dict[str, Any]], None]) -> None:
        self._values = dict(values)
        self._ask = ask

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __setitem__(self, name: str, value: Any) -> None:
        self.update(**{name: value})

    def __repr__(self) -> str:
        return f"Parameters({self._values!r})"

    def update(self, **values: Any) -> None:
        """Change several at once. `TypeError` or `ValueError` for what no renderer would take."""
        unknown = [name for name in values if name not in self._values]
        if unknown:
            raise KeyError(f"no parameter {', '.join(unknown)}; the renderer has {', '.join(self._values)}")
        self._ask({name: _like(self._values[name], name, value) for name, value in values.items()})

    def _set(self, values: dict[str, Any]) -> None:
        self._values = dict(values)


def _like(now: Any, name: str, value: Any) -> Any:
    """Return a value as JSON has it, if it is of the same kind as the one that it replaces.

    The renderer takes one of another kind for a broken client, and ends the connection.
    """
    if isinstance(now, bool):
        # NumPy has one of its own.
        if type(value).__name__ not in ("bool", "bool_"):
            raise TypeError(f"{name} is True or False, not {value!r}")
        return bool(value)
    if isinstance(now, int | float):
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"{name} is a number, not {value!r}")
        if not math.isfinite(value):
            raise ValueError(f"{name} is a finite number, not {value!r}")
        return float(value)
    if isinstance(now, str) and not isinstance(value, str):
        raise TypeError(f"{name} is text, not {value!r}")
    return value


class Clock:
    """The field's time: `frame_seconds` for each frame, at the user's speed, without a step when that changes."""

    def __init__(self, frame_seconds: float, parameters: Mapping[str, Any]) -> None:
        self._frame_seconds = frame_seconds
        self._parameters = parameters
        self._rate = self._rate_now()
        self._since = 0
        self._then = 0.0

    def _rate_now(self) -> float:
        speed = self._parameters.get("speed", 1.0)
        running = isinstance(speed, int | float) and self._parameters.get("paused") is not True
        return float(speed) if running else 0.0

    def at(self, frame: int) -> float:
        """Return the time of a frame; frames are asked for in order."""
        # Counted from the last change and not summed up, so that frame n is at exactly n / 60 for days.
        if (rate := self._rate_now()) != self._rate:
            self._then, self._since, self._rate = self._time(frame), frame, rate
        return self._time(frame)

    def _time(self, frame: int) -> float:
        return self._then + (frame - self._since) * self._frame_seconds * self._rate
