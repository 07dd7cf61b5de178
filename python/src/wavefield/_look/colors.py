"""Colour maps and norms: what people write for them, as the renderer's parameters."""

from __future__ import annotations

import contextlib
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, get_args

from .._memory import source as _source
from .._memory.layout import Colormap
from ..errors import ArrayMismatch, brief

if TYPE_CHECKING:
    from collections.abc import Mapping

NORMS = ("linear", "log", "symlog")
COLORS = 256
"""The colours of a table."""


def spelled(values: dict[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with a colour map as the renderer reads it. `now`: those in effect.

    A colour map without `_r` and without `invert` is not turned around.
    """
    if values.get("colormap") is None:
        return values
    colormap = text_of(values["colormap"])
    if turned := colormap.removesuffix("_r") in get_args(Colormap) and colormap.endswith("_r"):
        colormap = colormap.removesuffix("_r")
    inverts = values.get("invert")
    if turned or inverts is not None or now.get("invert"):
        values = {**values, "invert": bool(inverts) != turned}
    return {**values, "colormap": colormap}


class Color(tuple[int, int, int, int]):
    """One colour for all points: red, green, blue and alpha, from 0 to 255."""

    __slots__ = ()


NAMED = {
    "black": "000000", "white": "ffffff", "gray": "808080", "grey": "808080", "silver": "c0c0c0", "red": "ff0000",
    "green": "008000", "lime": "00ff00", "blue": "0000ff", "navy": "000080", "yellow": "ffff00", "cyan": "00ffff",
    "magenta": "ff00ff", "orange": "ffa500", "purple": "800080", "brown": "a52a2a", "pink": "ffc0cb", "olive": "808000",
    "teal": "008080", "maroon": "800000",
}  # fmt: skip
"""The usual names of CSS. matplotlib knows all, if it is there."""


def one_of(value: Any) -> Color | None:
    """Return one colour, if that is what was given: a name, "#rrggbb", or three or four numbers."""
    if isinstance(value, str):
        digits = NAMED.get(value.lower(), value).removeprefix("#")
        if digits != value and len(digits) in (6, 8):
            with contextlib.suppress(ValueError):
                return Color(bytes.fromhex(digits.ljust(8, "f")))
        try:
            import matplotlib.colors  # type: ignore[import-not-found, unused-ignore]

            value = matplotlib.colors.to_rgba(value)
        except (ImportError, ValueError):
            raise ArrayMismatch(
                f'colors as text must be "#rrggbb" or a name such as {", ".join([*NAMED][:6])}, not {brief(value)}; '
                "with matplotlib, also its names"
            ) from None
    if not isinstance(value, tuple | list) or len(value) not in (3, 4) or not all(isinstance(x, Real) for x in value):
        return None
    # Whole numbers above 1 are bytes.
    most = 255 if max(value) > 1 and all(isinstance(x, Integral) for x in value) else 1
    if not all(0 <= x <= most for x in value):
        raise ArrayMismatch(f"a colour is three or four numbers from 0 to 1, or whole ones to 255, not {brief(value)}")
    return Color([*(round(255 / most * x) for x in value), 255][:4])


def check_norm(norm: object) -> None:
    """Raise unless it is None or the name of a norm."""
    if norm is not None and not (isinstance(norm, str) and norm in NORMS):
        kind = ValueError if isinstance(norm, str) else TypeError
        raise kind(f'norm must be "linear", "log" or "symlog", not {brief(norm)}')


def text_of(value: Any) -> str:
    """Return a colour map's name, which may end in `_r`, or its colours as a message has them."""
    if isinstance(value, str):
        if value.removesuffix("_r") in get_args(Colormap) or value.startswith("#"):
            return value
        # The renderer says which names it knows.
        value = _of_matplotlib(value)
        if isinstance(value, str):
            return value
    if callable(value) and hasattr(value, "N"):  # a colour map of matplotlib
        import numpy as np

        value = np.asarray(value(np.linspace(0, 1, COLORS)))[:, :3]
    return _table(value)


def _of_matplotlib(name: str) -> Any:
    """Return matplotlib's colour map of this name, or the name if there is none."""
    try:
        import matplotlib  # type: ignore[import-not-found, unused-ignore]

        return matplotlib.colormaps.get(name, name)
    except (ImportError, AttributeError):
        return name


def _table(value: Any) -> str:
    """Return a table of colours as a message has it."""
    import numpy as np

    try:
        table = np.asarray(_source.on_the_host(value))
    except (TypeError, ValueError):
        table = np.empty(0, object)
    fits = table.ndim == 2 and table.shape[1] == 3 and 2 <= len(table) <= COLORS and table.dtype.kind in "fu"
    if not fits or (table.dtype.kind == "u" and table.dtype != np.uint8):
        raise TypeError(
            f"colormap must be a name, a colour map of matplotlib, or an array ({COLORS}, 3) of floats from 0 to 1 or "
            f"of uint8, not {brief(value)}"
        )
    colors = table / 255 if table.dtype == np.uint8 else table.astype(np.float64)
    if not ((colors >= 0) & (colors <= 1)).all():
        raise ValueError("the numbers of a colormap must be from 0 to 1; for 0 to 255, show them as uint8")
    places, known = np.linspace(0, 1, COLORS), np.linspace(0, 1, len(colors))
    colors = np.stack([np.interp(places, known, channel) for channel in colors.T], 1)
    return "#" + np.rint(255 * colors).astype(np.uint8).tobytes().hex()
