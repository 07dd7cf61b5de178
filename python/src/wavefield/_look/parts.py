"""The parts of an array: its colours, sizes, faces and the like, each from any library, as the array is."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .._memory import numbers as _numbers
from .._memory.array import Array, rows_are_contiguous
from .._memory.layout import PARTS, native_name
from .._memory.source import Source
from .._say import is_new, warn
from ..errors import ArrayMismatch
from . import colors as _colors, fit as _fit, nothing as _nothing, range as _range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .._memory.layout import Layout


NONE: Mapping[str, Any] = MappingProxyType({})


@contextlib.contextmanager
def naming(name: str, *kinds: type[Exception]) -> Iterator[None]:
    """Let an error begin with a name: an `ArrayMismatch`, or one of these kinds."""
    kinds = ArrayMismatch, *kinds
    try:
        yield
    except kinds as error:
        kind = next(kind for kind in kinds if isinstance(error, kind))
        raise kind(f"{name}: {error}") from error


def sources(given: Mapping[str, Any], array: Source) -> dict[str, Source]:
    """Return where the parts lie. They must be on the array's device."""
    found = {}
    for name in PARTS:
        if (value := given.get(name)) is None:
            continue
        is_one = isinstance(value, _colors.Color)
        with naming(name):
            part = found[name] = Source(_repeated(value, array) if is_one else value)
        if not is_one and (part.on_device, part.ordinal) != (array.on_device, array.ordinal):
            raise ArrayMismatch(
                f"{name} must be where the array is: the array is {_where(array)}, and {name} {_where(part)}; in "
                f"PyTorch {name}.to(x.device)"
            )
    return found


def _repeated(color: tuple[int, ...], array: Source) -> Any:
    """Return a row of this colour for each point."""
    import numpy as np

    return np.full((*array.shape_and_dtype()[0][:1], 4), color, np.uint8)


def _where(source: Source) -> str:
    if not source.on_device:
        return "in the CPU's memory"
    return "on a GPU" if source.ordinal is None else f"on GPU {source.ordinal}"


def with_parts(array: Any, given: Mapping[str, Any]) -> Any:
    """Return where an array and its parts lie, for `Field.show`; without parts, the array."""
    if not given and isinstance(array, Array):  # of `Field.empty`, which has them behind it
        given = {name: array.part(name) for name, _ in array._layout.parts}
    if not given:
        return array
    if unknown := [name for name in given if name not in PARTS]:
        raise TypeError(f"show() got an unexpected keyword argument {unknown[0]!r}")
    source = Source(array)
    source.parts = sources(given, source)
    return source


def check_parts(layout: Layout, source: Source) -> None:
    """Check the parts against those of the field."""
    wanted = dict(layout.parts)
    if source.parts.keys() != wanted.keys():
        has = f"{', '.join(wanted)}: show(x, {', '.join(f'{name}=…' for name in wanted)})" if wanted else "no parts"
        raise ArrayMismatch(f"the field's arrays have {has}")
    for name, part in source.parts.items():
        with naming(name):
            part.pitch(wanted[name])
    if len(source.more) != len(layout.more):
        raise ArrayMismatch("the field shows several arrays at once: wavefield.show({…}) shows the next ones")
    for other, other_layout in zip(source.more, layout.more, strict=True):
        other.pitch(other_layout)
        check_parts(other_layout, other)


def drawn(layout: Layout, parts: Mapping[str, Source]) -> tuple[Layout, dict[str, Source]]:
    """Return the layout with these parts, and them as they are drawn: 64-bit numbers become 32-bit ones."""
    described, converted = {}, {}
    for name, part in parts.items():
        with naming(name):
            shape, dtype = part.shape_and_dtype()
            native = native_name(dtype)
            target = _target(name, native)
            converted[name] = part if target == dtype else _cast(part, native, target)
        described[name] = shape, target
    return layout.having(described), converted


def _target(name: str, dtype: str) -> str:
    types = PARTS[name][1]
    whole = _numbers.is_whole(dtype)
    if dtype in types:
        return dtype
    if types == ("int32",) and not whole:
        raise ArrayMismatch(f'they must be whole numbers, not {dtype}: {name}.astype("int32")')
    if not (whole or dtype.startswith(("float", "bfloat", "longdouble"))):
        raise ArrayMismatch(f"they must be numbers, not {dtype}")
    return "uint8" if name == "colors" and whole else types[0]


def _cast(part: Source, native: str, target: str) -> Source:
    if _numbers.is_whole(native) and target != "float32":
        # A number that does not fit would become any other. An index stays out of range.
        part = part.clipped(*((0, 255) if target == "uint8" else (-1, 2**31 - 1)))
    return part.cast(target)


def check_values(
    layout: Layout,
    given: Mapping[str, Source],
    parts: Mapping[str, Source],
    meanwhile: Callable[[], object],
    of: str,
) -> None:
    """Check the numbers of parts. Called for the first array of a layout only, because it takes time.

    `given`: the parts before conversion. `of`: the array's name, if it has one.
    """
    for name, wanted in layout.parts:
        dtype = native_name(given[name].shape_and_dtype()[1])
        # On a GPU, not all types can be searched.
        part = given[name] if dtype in _range._SIZES or not given[name].on_device else parts[name]
        with naming(name):
            low, high = _range.Search(part, wanted).ends(meanwhile)[0] or (0.0, 0.0)
        if name in ("faces", "edges") and not 0 <= low <= high < layout.shape[0]:
            wrong = low if low < 0 else high
            raise ArrayMismatch(f"{name} has the index {wrong}; the {layout.shape[0]} points are numbered from 0")
        if name == "sizes" and low < 0:
            raise ArrayMismatch(f"sizes must not be negative, and the smallest is {low:g}")
        if name in ("sizes", "vectors") and low == high == 0:
            _nothing.warn_not_seen(of, f"all its {name} are 0")
        if name == "colors" and wanted.shape[-1] == 4 and hasattr(part.array, "__getitem__"):
            alpha = Source(part.array[:, 3])
            if _range.Search(alpha, replace(wanted, shape=wanted.shape[:1])).ends(meanwhile)[0] == (0, 0):
                _nothing.warn_not_seen(of, "the alpha of all its colors is 0")
        if name == "colors" and _numbers.is_whole(dtype) and not 0 <= low <= high <= 255:
            raise ArrayMismatch(
                f"colors as {dtype} go from 0 to 255, and these from {low} to {high}: show them as floats from 0 to 1"
            )
        beyond = 1 / 510
        if name == "colors" and "float" in dtype and (low < -beyond or high > 1 + beyond) and is_new("colors"):
            warn(
                f"colors as floats go from 0 to 1, and these go from {low:.4g} to {high:.4g}, so they are clipped: "
                'show colors / 255 or colors.astype("uint8")'
            )


def finished(
    layout: Layout, given: Mapping[str, Source], parts: Mapping[str, Source], fit: _fit.Fit, where: tuple[Any, Any]
) -> dict[str, Source]:
    """Return them as they are copied: vectors in the units of the places, all without gaps in their rows."""
    made = {}
    for name, wanted in layout.parts:
        part = parts[name]
        if name == "vectors" and fit.factor != 1:  # 32-bit floats may not hold them in the user's units
            part = given[name].scaled([(0.0, fit.factor)])
        part.read(*where)
        if not rows_are_contiguous(wanted, part.shape, part.strides):
            part = part.copied("contiguous").read(*where)
        made[name] = part
    return made
