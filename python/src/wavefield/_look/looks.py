"""How an array is drawn, and what of that the next one takes over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import fit as _fit, limits as _limits

if TYPE_CHECKING:
    from .._memory.layout import Layout

ABOUT = ("norm", "linthresh", "label")
"""What says something about the numbers. As limits do, it ends with a new kind, shape or type."""
TASTE = ("size", "invert", "colormap")
"""What stays for all arrays, until a call or the window changes it."""
KEPT = (*ABOUT, "size", "invert", "colorbar", "axes")
"""What a new connection resets, and `show` sends again."""


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

    def alike(self) -> Look:
        """Return that of a new array, with the same taste."""
        return Look(**{name: getattr(self, name) for name in TASTE})

    def message(self, layout: Layout) -> dict[str, Any]:
        """Return the renderer's parameters of an array behind the first."""
        limits = [self.choice.to_drawn(limit) for limit in self.choice.limits]
        parameters = {**self.parameters(), "linthresh": self.linthresh / abs(self.choice.units[1])}
        places = {"fit": self.fit.message(), **self.fit.axes(layout)}
        return {**parameters, "limits": limits, "units": list(self.choice.units), **places}


USUAL = {**Look().parameters(), "colorbar": False, "axes": False}
"""What a renderer has at first."""
