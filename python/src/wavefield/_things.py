"""What `show` shows: an array, or several at once, each with its arguments, after what was shown before."""

from __future__ import annotations

import contextlib
import operator
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

from . import _colors, _fit, _limits, _nothing, _parts, _range, _show
from ._layout import MOST_THINGS, PARTS
from .errors import ArrayMismatch, brief

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._layout import Layout
    from .field import Field

LONGEST = 100
"""The most bytes of a name."""

ABOUT = ("norm", "linthresh", "label")
"""What says something about the numbers. As limits do, it ends with a new kind, shape or type."""
TASTE = ("size", "invert", "colormap")
"""What stays for all arrays, until a call or the window changes it."""
KEPT = (*ABOUT, "size", "invert", "colorbar", "axes")
"""What a connection begins without. Of these, what stays is sent again."""
ARGUMENTS = ("kind", "limits", *ABOUT, *TASTE)
"""The arguments of each array that may also be given for all."""


@dataclass(frozen=True)
class Look:
    """How an array is drawn: its parameters, but those that all arrays have in common."""

    choice: _limits.Choice = field(default_factory=_limits.Choice)
    fit: _fit.Fit = field(default_factory=_fit.Fit)
    norm: str = "linear"
    linthresh: float = 0.0
    label: str = ""
    size: float = 3.0
    invert: bool = False
    colormap: str = "viridis"
    """Of an array behind the first, "" stands for that of the first, also if the user changes it."""

    def parameters(self) -> dict[str, Any]:
        """Return those that have the user's names and units."""
        return {name: getattr(self, name) for name in (*ABOUT, *TASTE)}

    def message(self, layout: Layout) -> dict[str, Any]:
        """Return the renderer's parameters of an array behind the first."""
        limits = [self.choice.to_drawn(limit) for limit in self.choice.limits]
        parameters = {**self.parameters(), "linthresh": self.linthresh / abs(self.choice.units[1])}
        places = {"fit": self.fit.message(), **self.fit.axes(layout)}
        return {**parameters, "size": float(self.size), "limits": limits, "units": list(self.choice.units), **places}


USUAL = {**Look().parameters(), "colorbar": False, "axes": False}
"""What a renderer has at first."""


def _before(last: Field | None, kept: Mapping[str, Any], count: int) -> list[Look]:
    """Return how so many arrays were drawn before. Those that are new have the taste of the first."""
    if last is None:
        return [Look()] * count
    now = {**last.parameters._values, **kept}
    known = {name: now[name] for name in (*ABOUT, *TASTE) if name in now}
    first = Look(last.parameters._choice, last._fit, **known)
    others = [look if look.colormap else replace(look, colormap=first.colormap) for look in last._others]
    found = [first, *others][:count]
    new = count - len(found)
    return found + [Look(**{name: getattr(first, name) for name in TASTE})] * new if new else found


def _naming(name: str) -> contextlib.AbstractContextManager[None]:
    """Let an error begin with the name of the array, if it has one."""
    return _parts.naming(f'"{name}"', TypeError, ValueError) if name else contextlib.nullcontext()


def entries(arrays: dict[Any, Any], own: Mapping[str, Any], usual: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the arguments of each array, checked. `usual` has those for all without their own; `own` must be none."""
    if not 1 <= len(arrays) <= MOST_THINGS:
        raise ArrayMismatch(f"show() takes 1 to {MOST_THINGS} arrays at once, not {len(arrays)}")
    for name, value in own.items():
        if name in ("colors", "sizes") and (isinstance(value, Real) or _colors.one_of(value)):
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
        with _naming(name):
            found[name] = entry({**usual, **its})
    return found


def entry(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of one array, checked. Reads the colour map, once."""
    its = {**dict.fromkeys(("extent", *PARTS, *ARGUMENTS)), **arguments}
    if isinstance(its["sizes"], Real) and its["size"] is None:
        its |= {"sizes": None, "size": its["sizes"]}
    its["colors"] = _colors.one_of(its["colors"]) or its["colors"]
    its["limits"] = _limits.wish(its["limits"])
    if its["label"] is not None and not isinstance(its["label"], str):
        raise TypeError(f"label must be text, not {brief(its['label'])}")
    if its["invert"] not in (None, True, False):
        raise TypeError(f"invert must be True or False, not {brief(its['invert'])}")
    _colors.check_norm(its["norm"])
    if its["colormap"] is not None:
        its["colormap"] = _colors.text_of(its["colormap"])
    if its["linthresh"] is not None and _limits.number("linthresh", its["linthresh"]) < 0:
        raise ValueError(f"linthresh must not be below 0, and is {brief(its['linthresh'])}")
    if not isinstance(its["size"], Real | None):
        raise TypeError(
            f"size must be one number, the width of all points in pixels, not {brief(its['size'])}; sizes=s has one "
            "for each"
        )
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


Entries = dict[str, dict[str, Any]]
"""The arguments of each array, by its name."""


def prepare(
    several: Entries,
    columns: int | None = None,
    camera: Any = None,
    last: Field | None = None,
    kept: Mapping[str, Any] = _parts.NONE,
    axes: bool | None = None,
) -> _show._Prepared:
    """Convert these arrays to ones that can be drawn, after what `last` draws, or drew until it was closed."""
    where, meanwhile = _show._after(last)
    olds = dict(zip(several, _before(last, kept, len(several)), strict=True))
    before = None if last is None else last._welcome.layout
    layouts = () if before is None else (before.alone, *before.more)
    if axes is None:
        axes = bool(kept.get("axes", last is not None and last.parameters.get("axes")))
    seen: dict[str, _show._Seen] = {}
    for number, (name, entry) in enumerate(several.items()):
        parts = {part: entry[part] for part in PARTS if entry[part] is not None}
        known = layouts[number] if number < len(layouts) else None
        with _naming(name):
            seen[name] = _show._see(entry["array"], entry["kind"], parts, known, meanwhile)
            if entry["extent"] is not None:
                seen[name].fit(_fit.Fit(), entry["extent"], None)  # is it right?
    layout = _joined({name: one.layout for name, one in seen.items()}, columns)
    _check_devices(seen)
    is_one_view = not columns and len(seen) > 1
    looks = {name: _restyled(olds[name], seen[name], several[name]) for name in seen}
    choices = _choices(seen, several, looks, is_one_view)
    together = _together(seen, several, looks, camera, axes) if is_one_view else None
    finished: list[tuple[_show._Prepared, Look]] = []
    for name, one in seen.items():
        entry, look = several[name], looks[name]
        with _naming(name):
            fit = together or one.fit(look.fit, entry["extent"], camera)
            if axes and fit.box is None and one.layout.has_places:
                fit = replace(fit, box=one.ends()[1])
            _nothing.warn_of(one, look, fit, last, name, olds[name].choice.sort != one.sort)
            made = _show._finished(one, choices[name], fit, entry["limits"], where, look.norm)
        follows = bool(finished) and look.colormap == finished[0][1].colormap
        still = replace(fit, fresh=False) if fit.fresh else fit
        colormap = "" if follows else look.colormap
        finished.append((made, replace(look, choice=made.choice, fit=still, colormap=colormap)))
    first, *others = (made for made, _ in finished)
    first.looks = tuple(look for _, look in finished)
    if others:
        first.source.more = [made.source for made in others]
        first.layout, first.names = layout, tuple(several)
        first.converted = next((made.converted for made, _ in finished if made.converted), "")
        # The first camera of different kinds is none of theirs.
        fresh = any(made.fit.fresh for made, _ in finished) or (len(layout.views) > 1 and before != layout)
        first.fit = replace(first.fit, fresh=fresh)
    return first


def _restyled(old: Look, seen: _show._Seen, entry: Mapping[str, Any]) -> Look:
    """Return how an array is drawn after `old`, but for its limits and its place."""
    if old.choice.sort not in (None, seen.sort):
        old = replace(old, **{name: getattr(Look, name) for name in ABOUT})
    said = {name: entry[name] for name in (*ABOUT, *TASTE) if entry[name] is not None}
    if seen.layout.colours and ("norm" in said or old.norm != "linear"):
        if said.get("norm", "linear") != "linear":
            raise ValueError(
                f'norm="{said["norm"]}" is for values, and each pixel of this image is a colour: give it norm="linear"'
            )
        said["norm"] = "linear"
    look = replace(old, **_colors.spelled(said, {"invert": old.invert})) if said else old
    if look.norm != old.norm and not old.choice.given:
        look = replace(look, choice=replace(old.choice, sort=None))  # the limits are chosen anew
    return look


def _choices(
    seen: dict[str, _show._Seen], several: Entries, looks: dict[str, Look], is_one_view: bool
) -> dict[str, _limits.Choice]:
    """Return the limits of each array. Surfaces of one view are on one scale, and so are line plots."""
    shared = [name for name, one in seen.items() if is_one_view and one.layout.view in ("plot", "surface")]
    found = {}
    for group in [shared] * bool(shared) + [[name] for name in seen if name not in shared]:
        wishes = {name: several[name]["limits"] for name in group if several[name]["limits"] is not None}
        if len({*wishes.values()}) > 1:
            names = '" and "'.join(wishes)
            raise ValueError(
                f'"{names}" have different limits, and one view has one scale of height: give limits once, for all, or '
                "columns=2"
            )
        with _naming(group[0]):
            members = [seen[name] for name in group]
            choice = _common(members, [looks[name] for name in group], next(iter(wishes.values()), None))
        found[group[0]] = choice
        found.update({name: replace(choice, sort=seen[name].sort) for name in group[1:]})
    return found


def _common(seen: list[_show._Seen], looks: list[Look], wish: Any) -> _limits.Choice:
    """Return the limits that arrays have in common, as for the first."""
    last = looks[0].choice
    if any(look.choice.sort != one.sort for look, one in zip(looks[1:], seen[1:], strict=True)):
        last = replace(last, sort=None, given=False)  # they are chosen anew, for all

    def whole(spans: list[_limits.Pair | None]) -> _limits.Pair | None:
        found = [span for span in spans if span is not None]
        return (min(low for low, _ in found), max(high for _, high in found)) if found else None

    def ends() -> _range.Ends:
        return whole([one.ends()[0] for one in seen]), None

    is_log = any(look.norm == "log" for look in looks)
    above_zero = (lambda: whole([one.search.above_zero() for one in seen])) if is_log else None
    choice = _range.limits_of(last, seen[0].layout, seen[0].before_mask, wish, ends, above_zero)
    if is_log and min(choice.limits) <= 0:
        raise ValueError(
            f'norm="log" needs limits above 0, not {choice.limits}: give limits=(low, high) or "auto", or norm="linear"'
        )
    return choice


def _joined(layouts: dict[str, Layout], columns: int | None) -> Layout:
    """Return the layout of all of them in one frame."""
    (first, *names), flat = layouts, {name: layout.is_flat for name, layout in layouts.items()}
    for name in names if columns is None else ():
        if flat[name] != flat[first]:
            raise ArrayMismatch(
                f'"{first}", {layouts[first]}, and "{name}", {layouts[name]}, cannot be in one view: give columns=2'
            )
        lengths = [layouts[one].shape[0] for one in (first, name)]
        if layouts[first].view == layouts[name].view == "plot" and lengths[0] != lengths[1]:
            raise ArrayMismatch(
                f'"{first}" has {lengths[0]} numbers and "{name}" {lengths[1]}, and line plots in one view are over '
                "the same indices: fill the shorter up with NaN, or give columns=2"
            )
        if flat[first] and "image" in (layouts[first].kind, layouts[name].kind):
            raise ArrayMismatch(f'"{first}" and "{name}" would hide each other in one view: give columns=2')
    if not names:
        return layouts[first]
    most = min(columns or 0, len(layouts))
    return replace(layouts[first], more=tuple(layouts[name] for name in names), columns=most)


def _check_devices(seen: dict[str, _show._Seen]) -> None:
    (first, source), *others = ((name, one.source) for name, one in seen.items())
    for name, other in others:
        if (other.on_device, other.ordinal) != (source.on_device, source.ordinal):
            raise ArrayMismatch(
                f'"{name}": it must be where "{first}" is: that is {_parts._where(source)}, and this '
                f"{_parts._where(other)}; in PyTorch x.to(y.device)"
            )


def _together(
    seen: dict[str, _show._Seen], several: Entries, looks: dict[str, Look], camera: Any, axes: bool
) -> _fit.Fit | None:
    """Return the fit of one view of these arrays; line plots have none."""
    found = list(seen.values())
    if found[0].layout.is_flat:
        return None
    last = next(iter(looks.values())).fit
    # A surface is where it is, whatever the fit.
    surfaces = [name for name, one in seen.items() if one.layout.kind == "surface"]
    if surfaces:
        extents = {name: fit for name in surfaces if (fit := several[name]["extent"]) is not None}
        if len({tuple(extent) for extent in extents.values()}) > 1:
            names = '" and "'.join(extents)
            raise ArrayMismatch(
                f'"{names}" have different extents, and surfaces in one view lie over each other: give all of them the '
                "same, or columns=2"
            )
        name = next(iter(extents), surfaces[0])
        return seen[name].fit(last, extents.get(name), camera)

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
    fit = _fit.choose(last, sort, camera, box)
    return replace(fit, box=box()) if axes and fit.box is None else fit
