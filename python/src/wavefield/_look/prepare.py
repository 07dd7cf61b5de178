"""What `show` draws: looks at an array, or at several at once, chooses limits and places, and converts."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .. import _say
from .._handoff.rings import CudaRing
from .._memory import numbers as _numbers
from .._memory.array import rows_are_contiguous
from .._memory.layout import PARTS, Layout, dtypes_of, kind_of, native_name, other_reading
from .._memory.source import Source
from .._say import is_new, say_once, warn
from ..errors import ArrayMismatch, RendererGone
from . import colors as _colors, fit as _fit, limits as _limits, nothing as _nothing, parts as _parts, range as _range
from .arguments import naming
from .looks import ABOUT, TASTE, Look

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .arguments import Entries
    from .drawn import Drawn


@dataclass
class Prepared:
    """An array that can be drawn, its layout, how it was converted, and what it is drawn with."""

    source: Source
    layout: Layout
    converted: str
    choice: _limits.Choice
    fit: _fit.Fit
    looks: tuple[Look, ...] = ()
    """How it and the arrays behind it are drawn."""
    names: tuple[str, ...] = ()
    """Those of several arrays."""
    changes: dict[str, Any] = field(default_factory=dict)
    """The parameters of the first that are not what they were."""


@dataclass
class Seen:
    """An array that was looked at: what it will be drawn as, and where its ends are found."""

    source: Source
    layout: Layout
    dtype: str
    """Its own type."""
    before_mask: str
    """The type that its numbers had before a mask was filled."""
    is_masked: bool
    as_given: dict[str, Source]
    """Its parts, and how they are drawn."""
    parts: dict[str, Source]
    search: _range.Search
    ends: Callable[[], _range.Ends]

    @property
    def native(self) -> str:
        return native_name(self.dtype)

    @property
    def sort(self) -> tuple[Any, ...]:
        """Return what limits hold for."""
        return self.layout.sort(self.before_mask)

    def fit(self, last: _fit.Fit, extent: Any, camera: Any) -> _fit.Fit:
        """Return the fit after `last`."""
        if extent is None:
            return _range.fit_of(last, self.layout, self.native, camera, self.ends)
        if self.layout.kind not in ("surface", "image"):
            raise TypeError(f"extent is for surfaces and images, and this is {self.layout.kind}")
        made = _fit.of_extent(extent, self.layout.sort(self.native))
        same = (replace(last, given=False), last.box) == (replace(made, fresh=False), made.box)
        return last if same and camera is None else made


def prepare(
    several: Entries,
    columns: int | None = None,
    camera: Any = None,
    last: Drawn | None = None,
    kept: Mapping[str, Any] = _parts.NONE,
    axes: bool | None = None,
) -> Prepared:
    """Convert these arrays to ones that can be drawn, after what `last` draws, or drew until it was closed."""
    where, meanwhile = _after(last)
    drawn_now = _looks_of(last, kept)
    known = dict(zip((last._sent[0] if last is not None else []) or several, drawn_now, strict=False))
    olds = {name: known.get(name) or drawn_now[0].alike() for name in several}
    old = None if last is None else last._welcome.layout
    layouts = () if old is None else (old.alone, *old.more)
    if axes is None:
        axes = bool(kept.get("axes", last is not None and last.parameters.get("axes")))
    seen: dict[str, Seen] = {}
    for number, (name, entry) in enumerate(several.items()):
        parts = {part: entry[part] for part in PARTS if entry[part] is not None}
        layout_then = layouts[number] if number < len(layouts) else None
        with naming(name):
            seen[name] = _see(name, entry, parts, layout_then, meanwhile)
            if entry["extent"] is not None:
                seen[name].fit(_fit.Fit(), entry["extent"], None)  # is it right?
    layout = _joined({name: one.layout for name, one in seen.items()}, columns)
    _check_devices(seen)
    is_one_view = not columns and len(seen) > 1
    looks = {}
    for name in seen:
        with naming(name):
            looks[name] = _restyled(olds[name], seen[name], several[name])
    choices = _choices(seen, several, looks, is_one_view)
    together = _together(seen, several, looks, camera, axes) if is_one_view else None
    finished: list[tuple[Prepared, Look]] = []
    for name, one in seen.items():
        entry, look = several[name], looks[name]
        with naming(name):
            fit = together or one.fit(look.fit, entry["extent"], camera)
            if axes and fit.box is None and one.layout.has_places:
                fit = replace(fit, box=one.ends()[1])
            if olds[name].choice.sort != one.sort or one.search.is_known:  # to look takes time
                _nothing.warn_of(one.search, one.ends, look.norm, fit, last, name)
            made = _finished(one, choices[name], fit, entry["limits"], where, look.norm)
        follows = bool(finished) and look.colormap == finished[0][1].colormap
        still = replace(fit, fresh=False) if fit.fresh else fit
        colormap = "" if follows else look.colormap
        finished.append((made, replace(look, choice=made.choice, fit=still, colormap=colormap)))
    first, *others = (made for made, _ in finished)
    first.looks = tuple(look for _, look in finished)
    # What neither this call nor another kind of array has changed is the user's, who may change it meanwhile.
    before, entry = drawn_now[0].parameters(), next(iter(several.values()))
    after = first.looks[0].parameters()
    first.changes = {name: now for name, now in after.items() if entry[name] is not None or now != before[name]}
    if others:
        first.source.more = [made.source for made in others]
        first.layout, first.names = layout, tuple(several)
        first.converted = next((made.converted for made, _ in finished if made.converted), "")
        # The first camera of different kinds is none of theirs.
        fresh = any(made.fit.fresh for made, _ in finished) or (len(layout.views) > 1 and old != layout)
        first.fit = replace(first.fit, fresh=fresh)
    return first


def _after(last: Drawn | None) -> tuple[tuple[Any, Any], Callable[[], None]]:
    """Return the context and the stream that arrays are read on, and what to do during a wait."""
    ring = None if last is None or last._closed else last._ring
    # Not the field's own stream: if `connect` closes the field, it destroys that.
    where = (ring.context, ring.stream()) if isinstance(ring, CudaRing) and ring.stream() != ring.own else (None, None)
    if last is not None and not (last._closed or last._connection.refused):
        with contextlib.suppress(RendererGone):  # which what follows says, too
            last._connection.pump()  # the user may have changed the limits in the window

    def meanwhile() -> None:
        if last is not None and not last._closed:
            with contextlib.suppress(RendererGone):  # as above
                last._connection.pump()

    return where, meanwhile


def _looks_of(last: Drawn | None, kept: Mapping[str, Any]) -> list[Look]:
    """Return how the arrays of `last` are drawn. `kept`: what the renderer has forgotten since."""
    if last is None:
        return [Look()]
    now = {**last.parameters._values, **kept}
    known = {name: now[name] for name in (*ABOUT, *TASTE) if name in now}
    first = Look(last.parameters._choice, last._fit, **known)
    return [first, *(look if look.colormap else replace(look, colormap=first.colormap) for look in last._others)]


def _see(
    name: str,
    entry: Mapping[str, Any],
    given: Mapping[str, Any],
    last: Layout | None,
    meanwhile: Callable[[], None],
) -> Seen:
    """Look at an array and its parts. `last`: the layout of the one before."""
    source, kind = Source(entry["array"]), entry["kind"]
    is_masked = bool(source.before_mask)
    shape, dtype = source.shape_and_dtype()
    native = native_name(dtype)
    drawn = kind_of(shape, native, given) if kind is None else kind
    target = _target(drawn, shape, native)
    as_given = _parts.sources(given, source)
    layout, parts = _parts.drawn(Layout.of(drawn, shape, target), as_given)
    if kind is None and not given and (words := other_reading(shape, layout.kind)):
        say_once(words, f"{layout.kind} of {shape[1]}")
    if target != dtype and not _numbers.is_wide(native):
        source = source.cast(target)
    # The type that colours had before a mask was filled.
    before_mask = source.before_mask or native
    search = _range.Search(source, layout)

    def ends() -> _range.Ends:
        return search.ends(meanwhile)

    if parts and last != layout:
        _parts.check_values(layout, as_given, parts, meanwhile, name)
    return Seen(source, layout, dtype, before_mask, is_masked, as_given, parts, search, ends)


def _restyled(old: Look, seen: Seen, entry: Mapping[str, Any]) -> Look:
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
    seen: dict[str, Seen], several: Entries, looks: dict[str, Look], is_one_view: bool
) -> dict[str, _limits.Choice]:
    """Return the limits of each array. Surfaces of one view are on one scale, and so are line plots."""
    shared = [name for name, one in seen.items() if is_one_view and one.layout.view in ("plot", "surface")]
    found = {}
    for group in ([shared] if shared else []) + [[name] for name in seen if name not in shared]:
        wishes = {name: several[name]["limits"] for name in group if several[name]["limits"] is not None}
        if len({*wishes.values()}) > 1:
            names = '" and "'.join(wishes)
            raise ValueError(
                f'"{names}" have different limits, and one view has one scale of height: give limits once, for all, or '
                "columns=2"
            )
        with naming(group[0]):
            members = [seen[name] for name in group]
            choice = _common(members, [looks[name] for name in group], next(iter(wishes.values()), None))
        found[group[0]] = choice
        found.update({name: replace(choice, sort=seen[name].sort) for name in group[1:]})
    return found


def _common(seen: list[Seen], looks: list[Look], wish: Any) -> _limits.Choice:
    """Return one choice of limits for all of these arrays, after that of the first."""
    last = looks[0].choice
    if any(look.choice.sort != one.sort for look, one in zip(looks[1:], seen[1:], strict=True)):
        last = replace(last, sort=None, given=False)  # they are chosen anew, for all

    def whole(spans: list[_numbers.Pair | None]) -> _numbers.Pair | None:
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


def _check_devices(seen: dict[str, Seen]) -> None:
    (first, source), *others = ((name, one.source) for name, one in seen.items())
    for name, other in others:
        if (other.on_device, other.ordinal) != (source.on_device, source.ordinal):
            raise ArrayMismatch(
                f'"{name}": it must be where "{first}" is: that is {_parts._where(source)}, and this '
                f"{_parts._where(other)}; in PyTorch x.to(y.device)"
            )


def _together(
    seen: dict[str, Seen], several: Entries, looks: dict[str, Look], camera: Any, axes: bool
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
    widest = next(filter(_numbers.is_wide, natives), natives[0])
    sort = (*(one.layout.sort(one.native) for one in found), widest)
    fit = _fit.choose(last, sort, camera, box)
    return replace(fit, box=box()) if axes and fit.box is None else fit


def _finished(
    seen: Seen, choice: _limits.Choice, fit: _fit.Fit, wish: Any, where: tuple[Any, Any], norm: str = "linear"
) -> Prepared:
    """Convert an array to one that can be drawn with these limits and this fit."""
    import numpy as np

    source, layout, dtype, native, before_mask = seen.source, seen.layout, seen.dtype, seen.native, seen.before_mask
    target = layout.dtype
    converted = f"it is {dtype} and was converted; create it as {target}" if target != dtype else ""
    choice = choice.drawn_in(_range.units_of(choice, fit, layout, native, before_mask, norm))
    if wish is None and not choice.given and norm != "log":
        _check_range(layout, seen.ends, before_mask, choice)
    elif layout.colours and layout.shape[2] == 4:
        most = int(np.iinfo(before_mask).max) if _numbers.is_whole(before_mask) else 1
        say_once(f"limits are for red, green and blue; alpha goes from 0 to {most}, as {before_mask}")
    if choice.units != _numbers.PLAIN or fit.moves:
        columns = [*fit.units, choice.units][: layout.shape[-1]] if layout.has_places else [choice.units]
        source = source.scaled(columns)
        converted = f"it is {dtype} and was scaled to {target}"
    elif target != dtype and _numbers.is_wide(native):
        source = source.cast(target)
    if seen.is_masked and before_mask != dtype:
        converted = f"it has a mask, and was converted from {before_mask}"
    source.read(*where)
    # A layout leaves out a last dimension of 1.
    shape, strides = source.shape[: len(layout.shape)], source.strides[: len(layout.shape)]
    if not rows_are_contiguous(layout, shape, strides):
        source = source.copied("contiguous").read(*where)
        converted = converted or "it was not contiguous and was copied; create it contiguous"
    if seen.parts:
        source.parts = _parts.finished(layout, seen.as_given, seen.parts, fit, where)
    return Prepared(source, layout, converted, choice, fit)


def _check_range(layout: Layout, ends: Callable[[], _range.Ends], dtype: str, choice: _limits.Choice) -> None:
    """Say how numbers become colours, if they do not fill the range that the kind and the type alone have."""
    mesh = layout.kind == "mesh" and not choice.follows
    if layout.colours and _numbers.is_whole(dtype) and dtype != "uint8":
        low, high = choice.limits
        say_once(f'colours as {dtype} go from {low:g} to {high:g}; if these go to 255, show x.astype("uint8")')
    elif (mesh or (layout.colours and "float" in dtype)) and layout.kind not in _say.said:
        least, most = ends()[0] or (0.0, 1.0)
        beyond = 0.1 if mesh else 1 / 510
        flat = mesh and 0 < most - least < 1 / 64
        if (least < -beyond or most > 1 + beyond or flat) and is_new(layout.kind):
            how = "have one colour" if flat else "are clipped"
            if mesh:
                what, cure = "a mesh's values", 'it with limits="auto" or limits=(low, high)'
            else:
                what, cure = (
                    "colours as floats",
                    'x / 255 or x.astype("uint8"), or choose limits=(low, high); if it is a mesh, say kind="mesh"',
                )
            warn(f"{what} go from 0 to 1, and these go from {least:.4g} to {most:.4g}, so they {how}: show {cure}")


def _target(kind: str, shape: tuple[int, ...], dtype: str) -> str:
    """Return the type that an array is drawn as: its own, or the one to convert it to."""
    known: Any = kind
    types = dtypes_of(known)
    if dtype in types:
        return dtype
    if dtype == "bool" and "uint8" in types and not (len(shape) == 3 and shape[2] > 1):
        return "uint8"
    real = ("float", "bfloat", "int", "uint", "bool")
    return "float32" if dtype.startswith(real) else dtype
