"""The arguments of `show`, checked before anything changes: of an array, and of several at once."""

from __future__ import annotations

import contextlib
import operator
from numbers import Real
from typing import TYPE_CHECKING, Any

from .._memory import numbers as _numbers
from .._memory.layout import MOST_THINGS, PARTS
from ..errors import ArrayMismatch, brief
from . import colors as _colors, limits as _limits, parts as _parts
from .looks import ABOUT, TASTE
from .parameters import _like

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST = 100
"""The most bytes of a name."""

ARGUMENTS = ("kind", "limits", *ABOUT, *TASTE)
"""The arguments of each array that may also be given for all."""

NONE = dict.fromkeys(("extent", *PARTS, *ARGUMENTS))
"""All arguments of an array, not given."""

Entries = dict[str, dict[str, Any]]
"""The arguments of each array, by its name."""


def naming(name: str) -> contextlib.AbstractContextManager[None]:
    """Let an error begin with the name of the array, if it has one."""
    return _parts.naming(f'"{name}"', TypeError, ValueError) if name else contextlib.nullcontext()


def entries(arrays: dict[Any, Any], own: Mapping[str, Any], usual: dict[str, Any]) -> Entries:
    """Return the arguments of each array, checked. `usual` has those for all without their own; `own` must be none."""
    if not 1 <= len(arrays) <= MOST_THINGS:
        raise ArrayMismatch(f"show() takes 1 to {MOST_THINGS} arrays at once, not {len(arrays)}")
    for name, value in own.items():
        if (name == "sizes" and isinstance(value, Real)) or (name == "colors" and _colors.one_of(value)):
            usual = {**usual, name: value}
        elif value is not None:
            raise TypeError(f'{name} must be with its array: show({{"name": {{"array": x, "{name}": …}}}})')
    found = {}
    known = ("array", *PARTS, "extent", *ARGUMENTS)
    for name, value in arrays.items():
        if not isinstance(name, str):
            raise TypeError(f"the names of arrays must be text, not {brief(name)}")
        if len(name.encode(errors="replace")) > LONGEST or not name.isprintable():
            raise ValueError(f"the name of an array has one line of at most {LONGEST} bytes, not {brief(name)}")
        its = value if isinstance(value, dict) else {"array": value}
        if unknown := [argument for argument in its if argument not in known]:
            raise TypeError(f'"{name}": there is no argument {unknown[0]!r} of one array; there are {", ".join(known)}')
        if its.get("array") is None:
            raise TypeError(f'"{name}": its array is missing: {{"array": x, …}}')
        with naming(name):
            found[name] = entry({**usual, **its})
    return found


def checked(array: Any, its: dict[str, Any], usual: dict[str, Any], columns: Any) -> Entries:
    """Return the arguments of a call, checked. `its`: those of one array; `usual`: those that may be for several."""
    is_several = isinstance(array, dict)
    found = entries(array, its, usual) if is_several else {"": entry({**its, **usual, "array": array})}
    check_columns(columns, is_several)
    return found


def entry(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of one array, checked. Reads the colour map, once."""
    its = {**NONE, **arguments}
    if isinstance(its["sizes"], Real) and its["size"] is None:
        its |= {"sizes": None, "size": its["sizes"]}
    its["colors"] = _colors.one_of(its["colors"]) or its["colors"]
    its["limits"] = _limits.wish(its["limits"])
    if its["label"] is not None and not isinstance(its["label"], str):
        raise TypeError(f"label must be text, not {brief(its['label'])}")
    if its["invert"] is not None:
        its["invert"] = _like(True, "invert", its["invert"])
    _colors.check_norm(its["norm"])
    if its["colormap"] is not None:
        its["colormap"] = _colors.text_of(its["colormap"])
    if its["linthresh"] is not None:
        its["linthresh"] = float(_numbers.number("linthresh", its["linthresh"]))
        if its["linthresh"] < 0:
            raise ValueError(f"linthresh must not be below 0, and is {brief(its['linthresh'])}")
    if not isinstance(its["size"], Real | None):
        raise TypeError(
            f"size must be one number, the width of points in pixels, not {brief(its['size'])}; sizes=s has one for "
            "each, and save(path, size=(w, h)) is the picture's"
        )
    if its["size"] is not None:
        its["size"] = float(_numbers.number("size", its["size"]))
    return its


def check_columns(columns: Any, is_several: bool) -> None:
    """Refuse a number of columns that makes no sense."""
    if columns is None:
        return
    if not is_several:
        raise TypeError('columns is for several arrays: show({"pressure": p, "velocity": v}, columns=2)')
    try:
        count = 0 if isinstance(columns, bool) else operator.index(columns)
    except TypeError:
        count = 0
    if count < 1:
        raise TypeError(f"columns must be a whole number of at least 1, not {brief(columns)}")
