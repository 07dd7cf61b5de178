"""How an array was shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Shown:
    """How `Field.show` showed an array. Equal to `Shown.WITHOUT_COPY` or to `Shown.COPIED`."""

    copied: bool
    reason: str = field(default="", compare=False)
    """Why the array was copied, and how to avoid that."""

    WITHOUT_COPY: ClassVar[Shown]
    COPIED: ClassVar[Shown]

    def __str__(self) -> str:
        return "Shown.COPIED" if self.copied else "Shown.WITHOUT_COPY"

    __repr__ = __str__


Shown.WITHOUT_COPY = Shown(False)
Shown.COPIED = Shown(True)
