"""Numbers: those that a user gave, checked; which of them a type has; and the units in which they are drawn."""

from __future__ import annotations

import sys
from numbers import Integral, Real
from typing import Any

from ..errors import brief

Pair = tuple[float, float]
PLAIN: Pair = (0.0, 1.0)
"""The units, (offset, factor), of numbers that are drawn as they are."""


def number(name: str, value: Any) -> float:
    """Return a finite number for JSON, whole if it is whole."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, not {brief(value)}")
    known = int(value) if isinstance(value, Integral) else float(value)
    if not abs(known) <= sys.float_info.max:
        raise ValueError(f"{name} must be a finite number, not {brief(value)}")
    return known


def items(name: str, value: Any, other: str = "", count: int = 2) -> list[Any]:
    """Return so many numbers, not checked yet. `other`: what else would be right."""
    ends = [] if isinstance(value, str) or not hasattr(value, "__iter__") else list(value)
    if len(ends) != count:
        raise TypeError(f"{name} must be {count} numbers{other}, not {brief(value)}")
    return ends


def is_wide(dtype: str) -> bool:
    """Return whether a type has numbers between those of 32-bit floats, or beyond them."""
    return dtype.startswith(("float", "int", "uint")) and dtype[-2:] in ("32", "64", "28") and dtype != "float32"


def is_whole(dtype: str) -> bool:
    """Return whether a type has whole numbers only."""
    return dtype.startswith(("int", "uint"))
