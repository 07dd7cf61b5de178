"""What an array is drawn as, and how it lies in memory. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from .errors import ArrayMismatch

Kind = Literal["mesh", "surface", "points", "image"]
KINDS: tuple[Kind, ...] = get_args(Kind)

TYPESTRS = {"float32": "<f4", "float16": "<f2", "uint8": "|u1"}
"""How messages and the array interface name the types, by NumPy's name."""
DTYPES = {typestr: dtype for dtype, typestr in TYPESTRS.items()}
ITEM_BYTES = {"float32": 4, "float16": 2, "uint8": 1}

SHAPES = {
    "mesh": "(rows, cols, 4)",
    "surface": "(rows, cols)",
    "points": "(n, 3) or (n, 4)",
    "image": "(rows, cols), or (rows, cols, 1, 3 or 4)",
}
_ARTICLES = {"mesh": "a mesh", "surface": "a surface", "points": "a set of points", "image": "an image"}

MOST = 2**31
"""The renderer's numbers of elements are below this."""


@dataclass(frozen=True)
class Layout:
    """An array in C order, without gaps, that the renderer can draw."""

    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    """As NumPy names it."""

    @classmethod
    def of(cls, kind: str, shape: tuple[int, ...], dtype: str) -> Layout:
        """Return the layout, or raise `ArrayMismatch` with the shapes and types that the kind has."""
        for known in KINDS:
            if known == kind:
                break
        else:
            raise ArrayMismatch(f"kind is {_one_of(KINDS)}, not {kind!r}")
        if kind == "image" and len(shape) == 3 and shape[2] == 1:
            shape = shape[:2]
        fits = {
            "mesh": len(shape) == 3 and shape[2] == 4,
            "surface": len(shape) == 2,
            "points": len(shape) == 2 and shape[1] in (3, 4),
            "image": len(shape) == 2 or (len(shape) == 3 and shape[2] in (3, 4)),
        }
        if not fits[kind]:
            raise ArrayMismatch(f"{_ARTICLES[kind]} has the shape {SHAPES[kind]}, not {shape}{_cure(kind, shape)}")
        least = 2 if kind in ("mesh", "surface") else 1
        if min(shape[:1] if kind == "points" else shape[:2]) < least:
            raise ArrayMismatch(f"{shape} is too small: {_ARTICLES[kind]} needs at least {least} each way")
        if math.prod(shape) >= MOST:
            raise ArrayMismatch(f"{shape} has too many elements; fewer than 2^31 can be drawn: show every second one")
        types = dtypes_of(known)
        if dtype not in types:
            raise ArrayMismatch(f"{_ARTICLES[kind]} is {_one_of(types)}, not {dtype}{_cast(dtype)}")
        return cls(known, shape, dtype)

    @property
    def typestr(self) -> str:
        """Return the type as messages have it: `<f4`, `<f2` or `|u1`."""
        return TYPESTRS[self.dtype]

    @property
    def item_bytes(self) -> int:
        """Return the bytes of one number."""
        return ITEM_BYTES[self.dtype]

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the bytes from one element to the next, along each axis."""
        return compact(self.shape, self.item_bytes)

    @property
    def row_bytes(self) -> int:
        """Return the bytes of one row: one element of the first axis."""
        return self.strides[0]

    @property
    def bytes(self) -> int:
        """Return the bytes of all of it."""
        return self.shape[0] * self.row_bytes

    @property
    def grid(self) -> tuple[int, int]:
        """Return (cols, rows); points are one column."""
        return (1 if self.kind == "points" else self.shape[1], self.shape[0])

    def __str__(self) -> str:
        return f"{_ARTICLES[self.kind]} of shape {self.shape}, {self.dtype}"


def dtypes_of(kind: Kind) -> tuple[str, ...]:
    """Return the types that a kind can have."""
    return ("float32",) if kind in ("mesh", "points") else tuple(TYPESTRS)


def kind_of(shape: tuple[int, ...], dtype: str) -> Kind:
    """Return what an array is drawn as if nobody says: the table in python/README.md."""
    if len(shape) == 2:
        return "points" if shape[1] in (3, 4) and "float" in dtype else "image"
    if len(shape) == 3 and shape[2] in (1, 3, 4):
        return "image"
    known = "; ".join(f"{kind}: {SHAPES[kind]}" for kind in KINDS)
    raise ArrayMismatch(f"an array of shape {shape} cannot be drawn{_cure('image', shape)}. What can: {known}")


def dtype_name(dtype: Any) -> str:
    """Return NumPy's name of a type: of NumPy's own, of PyTorch's, of a scalar's class, of text."""
    if getattr(dtype, "isnative", True) is False:
        return str(dtype)  # its name says nothing of the order of the bytes
    named = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return str(named).removeprefix("torch.")


def native_name(name: str) -> str:
    """Return the name of a type without its order of bytes: "float32" for ">f4"."""
    if not name.startswith(("<", ">")):
        return name
    import numpy as np

    return str(np.dtype(name).newbyteorder("=").name)


def compact(shape: tuple[int, ...], item: int = 1) -> tuple[int, ...]:
    """Return the strides of an array without gaps whose items take `item` each."""
    strides = [item] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def _cure(kind: str, shape: tuple[int, ...]) -> str:
    if kind != "image":
        return ""
    if len(shape) == 3 and shape[0] in (1, 3, 4):
        return ": its channels come first; show x.permute(1, 2, 0) in PyTorch, x.transpose(1, 2, 0) elsewhere"
    if len(shape) == 4:
        return ": show one of its images, x[0]"
    if len(shape) == 1:
        return ": give it rows and columns, x.reshape(rows, cols)"
    return ""


def _cast(dtype: str) -> str:
    if "complex" in dtype:
        return ": show abs(x), or its real part"
    return ': convert it by x.astype("float32"), in PyTorch by x.float()'


def _one_of(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
