"""The parameters that the user can change while the renderer runs, and the field's clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from .._memory.numbers import PLAIN, Pair, items, number
from ..errors import brief
from . import colors as _colors
from .limits import Choice


class Parameters(Mapping[str, Any]):
    """The renderer's parameters as it last sent them: `speed`, `colormap`, `paused`, `limits`, `size` and others.

    `limits`: the two numbers that the colour map spans, as in the array that is shown. `size`: of points, in pixels.
    `norm`, `linthresh`, `invert`, `colorbar`, `label`, `axes`: as in `wavefield.show`.

    `field.parameters["speed"] = 0.5` and `field.parameters.update(speed=0.5, colormap="magma")` ask the renderer to
    change them, and return when it has.
    """

    def __init__(self, values: dict[str, Any], ask: Callable[[dict[str, Any]], None]) -> None:
        self._ask = ask
        self._choice = Choice()
        """The limits in effect, and who chose them."""
        # The limits as the renderer was asked to draw them. It keeps 32-bit floats.
        self._drawn: Pair | None = None
        self._values: dict[str, Any] = {}
        self._set(values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __setitem__(self, name: str, value: Any) -> None:
        self.update(**{name: value})

    def __repr__(self) -> str:
        return f"Parameters({dict(self)!r})"

    def update(self, **values: Any) -> None:
        """Change several parameters at once.

        Raises `KeyError` for an unknown name, `TypeError` or `ValueError` for a value of another kind, and `Refused`
        for a value out of its range.
        """
        _colors.check_norm(values.get("norm"))
        wanted = self._checked(_colors.spelled(values, self))
        choice = self._choice
        if "limits" in wanted:
            choice = replace(choice, limits=tuple(wanted["limits"]), given=True, follows=False)
        self._send(wanted, choice)

    def _checked(self, values: Mapping[str, Any]) -> dict[str, Any]:
        unknown = [name for name in values if name not in self]
        if unknown:
            raise KeyError(f"unknown parameter {', '.join(unknown)}; the renderer has {', '.join(self)}")
        return {name: _like(self[name], name, value) for name, value in values.items()}

    def _apply(self, choice: Choice, values: Mapping[str, Any] | None = None) -> None:
        """Set these limits, unless they are in effect, and with them other parameters: a norm must suit its limits."""
        wanted = self._checked(values or {})
        if "limits" in self and (choice.limits, choice.units) != (self._choice.limits, self._choice.units):
            wanted["limits"] = choice.limits
        if wanted:
            self._send(wanted, choice)
        self._choice = choice

    def _send(self, values: dict[str, Any], choice: Choice) -> None:
        before = self._choice, self._drawn
        if "limits" in values:
            low, high = choice.limits
            self._drawn = choice.to_drawn(low), choice.to_drawn(high)
            values = {**values, "limits": list(self._drawn)}
            if choice.units != self._choice.units:
                values["units"] = list(choice.units)
                if threshold := self.get("linthresh"):
                    values.setdefault("linthresh", threshold)
        if "linthresh" in values:  # in the numbers that are drawn
            values = {**values, "linthresh": values["linthresh"] / abs(choice.units[1])}
        self._choice = choice
        try:
            self._ask(values)
        except BaseException:
            self._choice, self._drawn = before
            raise

    def _set(self, values: dict[str, Any]) -> None:
        # Tuples, because a write to a list would not reach the renderer. The camera has the units of `fit`.
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        values = {name: value for name, value in values.items() if name not in ("units", "fit", "extent", "box")}
        if values.get("linthresh") and self._choice.units != PLAIN:
            values["linthresh"] *= abs(self._choice.units[1])
        if (drawn := values.get("limits")) is not None:
            last = self._drawn
            if last is None or not all(map(partial(math.isclose, rel_tol=1e-6), drawn, last)):
                low, high = map(self._choice.to_true, drawn)
                # After the first, only the user changes them.
                self._choice = replace(self._choice, limits=(low, high), given=last is not None, follows=False)
                self._drawn = drawn
            values["limits"] = self._choice.limits
        self._values = values


def _like(now: Any, name: str, value: Any) -> Any:
    """Return a value for JSON. It must be of the same kind as the present one.

    For a value of another kind the renderer would end the connection.
    """
    if isinstance(now, bool):
        # NumPy's bool_ is a type of its own.
        if type(value).__name__ not in ("bool", "bool_"):
            raise TypeError(f"{name} must be True or False, not {brief(value)}")
        return bool(value)
    if isinstance(now, int | float):
        return number(name, value)
    if isinstance(now, list | tuple):
        return [number(name, item) for item in items(name, value)]
    if isinstance(now, str) and not isinstance(value, str):
        raise TypeError(f"{name} must be text, not {brief(value)}")
    return value


class Clock:
    """The field's time. Each frame adds `frame_seconds` times the user's speed, so a new speed makes no jump."""

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
        """Return the time of a frame. Frame numbers must not decrease from call to call."""
        # Multiplied since the last change of speed, not summed: rounding errors do not add up.
        if (rate := self._rate_now()) != self._rate:
            self._then, self._since, self._rate = self._time(frame), frame, rate
        return self._time(frame)

    def _time(self, frame: int) -> float:
        return self._then + (frame - self._since) * self._frame_seconds * self._rate
