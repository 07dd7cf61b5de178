"""The limits of the colours: who chose them, and the units of numbers that 32-bit floats cannot tell apart.

A number of the user's is offset + factor · the number that is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from .._memory.numbers import PLAIN, Pair, is_whole, is_wide, items, number
from .._say import say_once
from ..errors import brief

# Shaders divide 32-bit floats by the span of the limits, and take denormal numbers for zero.
SMALLEST, LARGEST = 1e-30, 8e37
# From here on, a span has too few 32-bit floats for the steps of a colour map.
COARSE = 2.0**-10


@dataclass(frozen=True)
class Choice:
    """Who chose a field's limits, and for which arrays."""

    sort: tuple[Any, ...] | None = None
    """Kind, shape and type of the arrays; None before the first."""
    limits: Pair = (0.0, 1.0)
    given: bool = False
    """Whether a call, `field.parameters` or the window chose them. Otherwise they are the range of an array."""
    follows: bool = False
    """Whether they follow each array: `limits="auto"`."""
    units: Pair = PLAIN
    """In which the numbers are drawn."""

    def drawn_in(self, units: Pair) -> Choice:
        """Return it with other units. Without any, limits that nobody gave become those that the renderer takes."""
        limits = plain(self.limits) if units == PLAIN and not self.given else self.limits
        return self if (limits, units) == (self.limits, self.units) else replace(self, limits=limits, units=units)

    def to_drawn(self, limit: float) -> float:
        """Return a number of the user's as it is drawn."""
        offset, factor = self.units
        # Whole numbers stay whole: a float has no nanoseconds of today's time.
        return float((limit - (int(offset) if isinstance(limit, int) else offset)) / factor)

    def to_true(self, drawn: float) -> float:
        """Return a number that is drawn as the user's."""
        return self.units[0] + self.units[1] * drawn if self.units != PLAIN else drawn


def wish(value: Any) -> Any:
    """Return the `limits` of a call, checked: None, "auto", or two numbers of which each may be None."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    ends = items("limits", value, ', (low, high), or "auto"')
    low, high = (None if end is None else number("limits", end) for end in ends)
    if low is not None and low == high:
        raise ValueError(f"limits must be two different numbers, not {brief(value)}")
    return low, high


def choose(last: Choice, sort: tuple[Any, ...], wish: Any, span: Callable[[], Pair | None]) -> Choice:
    """Return the limits for an array. `last.limits` are those in effect.

    `span` returns the array's smallest and largest number, or None if there is none.
    """
    if isinstance(wish, tuple):
        low, high = wish
        if None in wish:
            least, most = padded(span())
            low, high = least if low is None else low, most if high is None else high
            if low >= high:  # the array is beyond the limit that is given
                low, high = (low, padded((low, low))[1]) if wish[1] is None else (padded((high, high))[0], high)
        chosen = Choice(sort, (low, high), given=True)
        return last if chosen == last else chosen
    follows, new = last.follows if wish is None else True, last.sort not in (None, sort)
    if follows or new or (last.sort is None and not last.given):
        why = "it has another kind, shape or type than" if new else ""
        limits = padded(span())
    else:
        found = None if last.given else span()
        if found is None or not _left(last.limits, found):
            return last if last.sort == sort and last.units == PLAIN else Choice(sort, last.limits, last.given)
        why, limits = "its range is outside, or 10 times away from, that of", padded(found)
    # 32-bit floats round those of 64 bits.
    changed = not all(map(partial(math.isclose, rel_tol=1e-6), limits, last.limits))
    if why and not follows and changed:
        say_once(
            f"the colours' limits are now ({limits[0]}, {limits[1]}), those of this array, because {why} the "
            f"one before ({last.limits[0]}, {last.limits[1]}); a call with limits=(low, high) chooses them",
            "limits",
        )
    return Choice(sort, limits, follows=follows)


def _left(old: Pair, new: Pair) -> bool:
    """Return whether a range left an old one: it is wholly outside, or 10 times wider, narrower or farther away."""
    (low, high), (least, most) = sorted(old), new
    if least < most and (least > high or most < low):
        return True
    narrower = min(high - low, most - least) if least < most else high - low
    return max(high, most) - min(low, least) > 10 * narrower


def padded(span: Pair | None) -> Pair:
    """Return limits for a range: around one number, and 0 to 1 for none."""
    low, high = (0.0, 1.0) if span is None else span
    if low == high:
        around = max(0.5, abs(low) * 2**-20)
        return low - around, high + around
    return low, high


def plain(limits: Pair) -> Pair:
    """Return these limits, or the nearest that the renderer takes for numbers that are drawn as they are."""
    import numpy as np

    low, high = (max(-LARGEST / 2, min(limit, LARGEST / 2)) for limit in limits)
    return padded((low, low)) if abs(np.float32(high) - np.float32(low)) < 2.0**-126 else (low, high)


def units(limits: Pair, dtype: str, norm: str = "linear") -> Pair:
    """Return the units in which numbers of this type keep what can be seen between the limits."""
    low, high = sorted(limits)
    span, most = high - low, max(abs(low), abs(high))
    # A logarithm needs the numbers from 0 on.
    if norm == "linear" and is_wide(dtype) and span < COARSE * most:
        offset = float(math.floor(low) if is_whole(dtype) else low)
        return offset if offset <= low else math.nextafter(offset, -math.inf), float(span)
    if not SMALLEST < span < LARGEST or most > LARGEST:
        return 0.0, 2.0 ** (math.frexp(most)[1] - 1)
    return PLAIN
