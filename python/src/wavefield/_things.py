"""Several arrays at once: `show({"pressure": p, "velocity": v}, columns=2)`."""

from __future__ import annotations

import contextlib
import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from . import _fit, _limits, _parts, _range, _show
from ._layout import MOST_THINGS, PARTS
from .errors import ArrayMismatch, brief

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._layout import Layout
    from .field import Field

LONGEST = 100
"""The most bytes of a name."""

USUAL_SIZE = 3.0
"""The renderer's first `size`."""


@dataclass(frozen=True)
class Look:
    """How an array behind the first is drawn: its parameters, but those that all have in common."""

    choice: _limits.Choice
    fit: _fit.Fit
    size: float = USUAL_SIZE

    def message(self) -> dict[str, Any]:
        """Return the renderer's parameters."""
        limits = [self.choice.to_drawn(limit) for limit in self.choice.limits]
        return {"limits": limits, "size": float(self.size), "fit": self.fit.message()}


def _naming(name: str) -> contextlib.AbstractContextManager[None]:
    """Let an error begin with the name of the array."""
    return _parts.naming(f'"{name}"', TypeError, ValueError)


def entries(arrays: dict[Any, Any], own: Mapping[str, Any], usual: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the arguments of each array. `usual` has those for all without their own; `own` must be none."""
    if not 1 <= len(arrays) <= MOST_THINGS:
        raise ArrayMismatch(f"show() takes 1 to {MOST_THINGS} arrays at once, not {len(arrays)}")
    for name in own:
        raise TypeError(f'{name} must be with its array: show({{"name": {{"array": x, "{name}": …}}}})')
    found = {}
    known = ("array", *PARTS, "extent", *usual)
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
        found[name] = entry = {"extent": None, **usual, **its}
        if entry["size"] is not None:
            with _naming(name):
                _limits.number("size", entry["size"])
    return found


def check_columns(columns: Any, several: dict[str, Any] | None) -> None:
    """Refuse a number of columns that makes no sense."""
    if columns is None:
        return
    if several is None:
        raise TypeError('columns is for several arrays: show({"pressure": p, "velocity": v}, columns=2)')
    try:
        count = 0 if isinstance(columns, bool) else operator.index(columns)
    except TypeError:
        count = 0
    if count < 1:
        raise TypeError(f"columns must be a whole number of at least 1, not {brief(columns)}")


Entries = dict[str, dict[str, Any]]
"""The arguments of each array, by its name."""


def prepare(several: Entries, columns: int | None, camera: Any, last: Field | None) -> _show._Prepared:
    """Convert these arrays to ones that can be drawn, after what `last` draws, or drew until it was closed."""
    where, meanwhile = _show._after(last)
    before = () if last is None else (Look(last.parameters._choice, last._fit), *last._others)
    layouts = () if last is None else (last._welcome.layout, *last._welcome.layout.more)
    seen: dict[str, _show._Seen] = {}
    for number, (name, entry) in enumerate(several.items()):
        parts = {part: entry[part] for part in PARTS if entry.get(part) is not None}
        known = replace(layouts[number], more=(), columns=0) if number < len(layouts) else None
        with _naming(name):
            seen[name] = _show._see(entry["array"], entry["kind"], parts, known, meanwhile)
            if entry["extent"] is not None:
                seen[name].fit(_fit.Fit(), entry["extent"], None)  # is it right?
    layout = _joined({name: one.layout for name, one in seen.items()}, columns)
    _check_devices(seen)
    together = None if columns or len(seen) == 1 else _together(seen, several, before, camera)
    finished = []
    for number, (name, one) in enumerate(seen.items()):
        entry, old = several[name], before[number] if number < len(before) else Look(_limits.Choice(), _fit.Fit())
        with _naming(name):
            wish = _limits.wish(entry["limits"])
            choice = _range.limits_of(old.choice, one.layout, one.before_mask, wish, one.ends)
            fit = together or one.fit(old.fit, entry["extent"], camera)
            made = _show._finished(one, choice, fit, wish, where)
        size = old.size if entry["size"] is None else entry["size"]
        finished.append((made, Look(made.choice, fit, size)))
    first, *others = (made for made, _ in finished)
    first.source.more = [made.source for made in others]
    # The first camera of different kinds is none of theirs.
    fresh = any(made.fit.fresh for made, _ in finished) or (len(layout.views) > 1 and layouts[:1] != (layout,))
    return replace(
        first,
        layout=layout,
        names=tuple(several) if layout.columns else (),
        fit=replace(first.fit, fresh=fresh),
        converted=next((made.converted for made, _ in finished if made.converted), ""),
        others=tuple(replace(look, fit=replace(look.fit, fresh=False)) for _, look in finished[1:]),
    )


def _joined(layouts: dict[str, Layout], columns: int | None) -> Layout:
    """Return the layout of all of them in one frame."""
    (first, *names), flat = layouts, {name: layout.is_flat for name, layout in layouts.items()}
    for name in names if columns is None else ():
        if flat[name] != flat[first]:
            raise ArrayMismatch(
                f'"{first}", {layouts[first]}, and "{name}", {layouts[name]}, cannot be in one view: give columns=2'
            )
        if flat[first] and "image" in (layouts[first].kind, layouts[name].kind):
            raise ArrayMismatch(f'"{first}" and "{name}" would hide each other in one view: give columns=2')
    most = min(columns or 0, len(layouts)) if names else 0
    return replace(layouts[first], more=tuple(layouts[name] for name in names), columns=most)


def _check_devices(seen: dict[str, _show._Seen]) -> None:
    (first, source), *others = ((name, one.source) for name, one in seen.items())
    for name, other in others:
        if (other.on_device, other.ordinal) != (source.on_device, source.ordinal):
            raise ArrayMismatch(
                f'"{name}": it must be where "{first}" is: that is {_parts._where(source)}, and this '
                f"{_parts._where(other)}; in PyTorch x.to(y.device)"
            )


def _together(seen: dict[str, _show._Seen], several: Entries, before: tuple[Look, ...], camera: Any) -> _fit.Fit | None:
    """Return the fit of one view of these arrays; line plots have common limits instead."""
    found = list(seen.values())
    if found[0].layout.is_flat:
        each = [one.ends for one in found]

        def all_ends() -> _range.Ends:
            spans = [span for ends in each if (span := ends()[0]) is not None]
            return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None, None

        for one in found:
            one.ends = all_ends
        return None
    last = before[0].fit if before else _fit.Fit()
    # A surface is where it is, whatever the fit.
    for name, one in seen.items():
        if one.layout.kind == "surface":
            with _naming(name):
                return one.fit(last, several[name]["extent"], camera)

    def box() -> _fit.Box | None:
        boxes = [box for one in found if (box := one.ends()[1]) is not None]
        if not boxes:
            return None
        lows, highs = zip(*boxes, strict=True)
        (x0, y0, z0), (x1, y1, z1) = map(min, *lows, lows[0]), map(max, *highs, highs[0])
        return (x0, y0, z0), (x1, y1, z1)

    natives = [one.native for one in found]
    widest = next(filter(_limits.is_wide, natives), natives[0])
    sort = (*(one.layout.sort(one.native) for one in found), widest)
    return _fit.choose(last, sort, camera, box)
