"""What an array is drawn as, and its layout in memory. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, get_args

from ..errors import ArrayMismatch

Kind = Literal["mesh", "surface", "points", "image", "triangles", "lines"]
Colormap = Literal["viridis", "plasma", "magma", "inferno", "cividis", "gray", "turbo", "coolwarm", "RdBu", "twilight"]
PictureKind = Literal["color", "depth", "normal", "index"]
KINDS: tuple[Kind, ...] = get_args(Kind)

TYPESTRS = {"float32": "<f4", "float16": "<f2", "uint8": "|u1", "int32": "<i4"}
"""The names of types in messages and in the array interface, by NumPy's name. `int32` is for indices only."""
DTYPES = {typestr: dtype for dtype, typestr in TYPESTRS.items()}
ITEM_BYTES = {"float32": 4, "float16": 2, "uint8": 1, "int32": 4}

SHAPES = {
    "mesh": "(rows, cols, 4)",
    "surface": "(rows, cols)",
    "points": "(n, 3) or (n, 4)",
    "image": "(rows, cols), or (rows, cols, 1, 3 or 4)",
    "triangles": "(n, 3) or (n, 4)",
    "lines": "(n,), (n, 3) or (n, 4)",
}
_ARTICLES = {
    "mesh": "a mesh",
    "surface": "a surface",
    "points": "a set of points",
    "image": "an image",
    "triangles": "the corners of triangles",
    "lines": "the points of lines",
}

PARTS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "colors": ("(n, 3) or (n, 4)", ("float32", "float16", "uint8"), ("points", "triangles", "lines")),
    "sizes": ("(n,)", ("float32",), ("points",)),
    "vectors": ("(n, 3)", ("float32",), ("lines",)),
    "faces": ("(m, 3)", ("int32",), ("triangles",)),
    "edges": ("(m, 2)", ("int32",), ("lines",)),
}
"""The parts that may lie behind an array, in their order: their shapes, their types, and the kinds that have them."""
PART_ALIGNMENT = 256
"""Each part begins at a multiple of it, in bytes."""

MOST_THINGS = 16
"""So many arrays may lie in a frame."""

MOST = 2**31
"""An array must have fewer elements than this."""


@dataclass(frozen=True)
class Layout:
    """An array in C order, without gaps, that the renderer can draw."""

    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    """NumPy's name."""
    parts: tuple[tuple[str, Layout], ...] = ()
    """What lies behind it in a frame, in the order of `PARTS`."""
    more: tuple[Layout, ...] = ()
    """Other arrays that lie behind it in a frame."""
    columns: int = 0
    """How many views of one array each are side by side; 0: all arrays are in one view."""

    @classmethod
    def of(cls, kind: str, shape: tuple[int, ...], dtype: str) -> Layout:
        """Return the layout, or raise `ArrayMismatch` with the shapes and types that the kind allows."""
        for known in KINDS:
            if known == kind:
                return cls._of(known, shape, dtype)
        raise ArrayMismatch(f"kind must be {_one_of(KINDS)}, not {kind!r}")

    @classmethod
    @lru_cache  # most arrays are like the one before
    def _of(cls, kind: Kind, shape: tuple[int, ...], dtype: str) -> Layout:
        if kind == "image" and len(shape) == 3 and shape[2] == 1:
            shape = shape[:2]
        fits = {
            "mesh": len(shape) == 3 and shape[2] == 4,
            "surface": len(shape) == 2,
            "points": len(shape) == 2 and shape[1] in (3, 4),
            "image": len(shape) == 2 or (len(shape) == 3 and shape[2] in (3, 4)),
            "triangles": len(shape) == 2 and shape[1] in (3, 4),
            "lines": len(shape) == 1 or (len(shape) == 2 and shape[1] in (3, 4)),
        }
        if not fits[kind]:
            raise ArrayMismatch(
                f"{_ARTICLES[kind]} must have the shape {SHAPES[kind]}, not {shape}{_cure(kind, shape)}"
            )
        least = 2 if kind in ("mesh", "surface") else 1
        if min(shape[:2] if kind in _GRIDS else shape[:1]) < least:
            raise ArrayMismatch(f"{shape} is too small: {_ARTICLES[kind]} needs at least {least} along each axis")
        if math.prod(shape) >= MOST:
            raise ArrayMismatch(f"{shape} has too many elements: show fewer than 2^31, for example every second one")
        types = dtypes_of(kind)
        if dtype not in types:
            raise ArrayMismatch(f"{_ARTICLES[kind]} must be {_one_of(types)}, not {dtype}{_cast(dtype)}")
        return cls(kind, shape, dtype)

    def having(self, parts: dict[str, tuple[tuple[int, ...], str]]) -> Layout:
        """Return it with parts of these shapes and types, or raise `ArrayMismatch`, which names one that is wrong."""
        layouts = {name: self._part(name, *parts[name]) for name in PARTS if name in parts}
        if unknown := [name for name in parts if name not in PARTS]:
            raise ArrayMismatch(f"there is no {unknown[0]}; there are {_one_of((*PARTS,))}")
        if self.kind == "triangles" and "faces" not in layouts:
            raise ArrayMismatch("triangles need faces=f: (m, 3) whole numbers, the three points of each")
        if "vectors" in layouts and "edges" in layouts:
            raise ArrayMismatch("lines have vectors or edges, not both")
        if self.kind == "lines" and self.shape[0] < 2 and not layouts.keys() & {"vectors", "edges"}:
            raise ArrayMismatch("a line needs at least 2 points")
        return replace(self, parts=tuple(layouts.items())) if layouts else self

    def _part(self, name: str, shape: tuple[int, ...], dtype: str) -> Layout:
        shapes, types, kinds = PARTS[name]
        if self.kind not in kinds or (self.view == "plot" and name != "colors"):
            both = '; show({"a": {…}, "b": {…}}) shows two sets in one view' if self.has_places else ""
            raise ArrayMismatch(f"{name} is for {_one_of(kinds)}, not for {self}{both}")
        ends: dict[str, set[tuple[int, ...]]] = {"sizes": {()}, "colors": {(3,), (4,)}, "edges": {(2,)}}
        if not shape or shape[1:] not in ends.get(name, {(3,)}) or 0 in shape:
            if name == "colors" and shape[1:] in ((), (1,)):
                cure = "; one number for each point is its fourth: show numpy.column_stack([xyz, c])"
                raise ArrayMismatch(f"{name} must have the shape {shapes}, not {shape}{cure}")
            cure = "; for squares, give both halves: numpy.vstack([f[:, :3], f[:, [0, 2, 3]]])" * (shape[1:] == (4,))
            raise ArrayMismatch(f"{name} must have the shape {shapes}, not {shape}{cure if name == 'faces' else ''}")
        if shapes.startswith("(n") and shape[0] != self.shape[0]:
            raise ArrayMismatch(f"{name} must have a row for each of the {self.shape[0]} points, not {shape[0]}")
        if math.prod(shape) >= MOST:
            raise ArrayMismatch(f"{name} of shape {shape} has too many elements: fewer than 2^31 are allowed")
        if dtype not in types:
            raise ArrayMismatch(f"{name} must be {_one_of(types)}, not {dtype}")
        # As an image: only its shape and type matter.
        return Layout("image", shape, dtype)

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Return where each part begins in a frame, in bytes, and "" for the end."""
        offsets, end = {}, self.bytes
        for name, part in self.parts:
            offsets[name] = -(-end // PART_ALIGNMENT) * PART_ALIGNMENT
            end = offsets[name] + part.bytes
        return {**offsets, "": end}

    @property
    def frame_bytes(self) -> int:
        """Return the size of a frame in bytes: the array with its parts, and other arrays."""
        return self.beginnings[-1]

    @cached_property
    def beginnings(self) -> tuple[int, ...]:
        """Return where the array and each other begin in a frame, in bytes, and where the last one ends."""
        found, end = [0], self.offsets[""]
        for other in self.more:
            found.append(-(-end // PART_ALIGNMENT) * PART_ALIGNMENT)
            end = found[-1] + other.offsets[""]
        return (*found, end)

    @property
    def has_places(self) -> bool:
        """Return whether each element is a place, x, y, z, perhaps with a value."""
        return self.kind not in ("surface", "image") and self.view != "plot"

    @property
    def view(self) -> str:
        """Return the kind, or "plot" for values over their indices: the kinds of a view have one first camera."""
        return "plot" if self.kind == "lines" and len(self.shape) == 1 else self.kind

    @property
    def is_flat(self) -> bool:
        """Return whether it is seen from the front: an image or a line plot."""
        return self.view in ("image", "plot")

    @property
    def alone(self) -> Layout:
        """Return that of the first array."""
        return replace(self, more=(), columns=0) if self.more else self

    @property
    def views(self) -> set[str]:
        """Return the views of all arrays of a frame."""
        return {layout.view for layout in (self, *self.more)}

    def sort(self, dtype: str) -> tuple[str, tuple[int, ...], str]:
        """Return what limits and cameras hold for: kind, shape and type. Another number of points is no new shape."""
        return self.kind, self.shape if self.kind in _GRIDS else self.shape[1:], dtype

    @property
    def colours(self) -> bool:
        """Return whether each element is a colour, RGB or RGBA."""
        return self.kind == "image" and len(self.shape) == 3

    @property
    def typestr(self) -> str:
        """Return the type's name in messages: `<f4`, `<f2`, `|u1` or `<i4`."""
        return TYPESTRS[self.dtype]

    @property
    def item_bytes(self) -> int:
        """Return the size of one number in bytes."""
        return ITEM_BYTES[self.dtype]

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Return the bytes from one element to the next, along each axis."""
        return compact(self.shape, self.item_bytes)

    @cached_property
    def row_bytes(self) -> int:
        """Return the size of one row, one element of the first axis, in bytes."""
        return self.strides[0]

    @cached_property
    def bytes(self) -> int:
        """Return the size of the array in bytes."""
        return self.shape[0] * self.row_bytes

    @property
    def grid(self) -> tuple[int, int]:
        """Return (cols, rows), as the renderer counts them: points are one row."""
        return (self.shape[1], self.shape[0]) if self.kind in _GRIDS else (self.shape[0], 1)

    def __str__(self) -> str:
        parts = f", with {', '.join(name for name, _ in self.parts)}" if self.parts else ""
        more = f", and {len(self.more)} more" if self.more else ""
        return f"{_ARTICLES[self.kind]} of shape {self.shape}, {self.dtype}{parts}{more}"


_GRIDS = ("mesh", "surface", "image")
"""The kinds that have rows and columns."""


def dtypes_of(kind: Kind) -> tuple[str, ...]:
    """Return the types that a kind allows."""
    return ("float32", "float16", "uint8") if kind in ("surface", "image") else ("float32",)


def kind_of(shape: tuple[int, ...], dtype: str, parts: Collection[str] = ()) -> Kind:
    """Return the default kind of an array with these parts, as in the table of python/README.md."""
    if "faces" in parts:
        return "triangles"
    if len(shape) == 1 or "edges" in parts or "vectors" in parts:
        return "lines"
    if len(parts):
        return "points"
    if len(shape) == 2:
        return "points" if shape[1] in (3, 4) and "float" in dtype else "image"
    if len(shape) == 3 and shape[2] in (1, 3, 4):
        return "image"
    known = "; ".join(f"{kind}: {SHAPES[kind]}" for kind in KINDS)
    raise ArrayMismatch(
        f"an array of shape {shape} cannot be drawn{_cure('image', shape)}. The possible shapes are: {known}"
    )


SMALL_IMAGE = 64
"""Of so many rows at most, an array with three or four columns may be meant as an image."""


def other_reading(shape: tuple[int, ...], kind: Kind) -> str:
    """Return a sentence if an array that was given no kind, and is drawn as this one, may be meant as another."""
    if kind == "points":
        words = f'an array of shape {shape} is drawn as points, a row each; kind="image" draws an image'
        return words if shape[0] <= SMALL_IMAGE else ""
    if len(shape) == 2 and shape[0] > shape[1] and 2 <= shape[1] < 10:
        flat, other = "numpy.column_stack([x, 0 * x[:, 0]])", "three of its columns as floats, such as x[:, :3]"
        return (
            f"an array of shape {shape} is drawn as an image; for points, a row each, show "
            f"{flat if shape[1] == 2 else other}; "
            'kind="image" says that an image is meant'
        )
    return ""


def dtype_name(dtype: Any) -> str:
    """Return NumPy's name of a type, which may be NumPy's, PyTorch's, a scalar's class, or text."""
    if getattr(dtype, "isnative", True) is False:
        return str(dtype)  # the name does not contain the byte order
    named = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return str(named).rpartition(".")[2]  # "torch.float32"


def native_name(name: str) -> str:
    """Return the name of a type without its byte order: "float32" for ">f4"."""
    if not name.startswith(("<", ">")):
        return name
    import numpy as np

    return str(np.dtype(name).newbyteorder("=").name)


def compact(shape: tuple[int, ...], item: int = 1) -> tuple[int, ...]:
    """Return the strides of an array without gaps. `item` is the size of one element, in any unit."""
    strides = [item] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def _cure(kind: str, shape: tuple[int, ...]) -> str:
    if kind == "lines" and shape[1:] == (2,):
        return ": a plot is of y over its index, show(x[:, 1]); in space, show numpy.column_stack([x, 0 * x[:, 0]])"
    if kind != "image":
        return ""
    if len(shape) == 3 and shape[0] in (1, 3, 4):
        return ": its channels come first; show x.transpose(1, 2, 0), in PyTorch x.permute(1, 2, 0)"
    if len(shape) == 4:
        return ": show one of its images, x[0]"
    if len(shape) == 1:
        return ": give it rows and columns with x.reshape(rows, cols)"
    return ""


def _cast(dtype: str) -> str:
    if "complex" in dtype:
        return ": show abs(x), or its real part"
    if dtype.startswith(("datetime", "timedelta")):
        return ': show x.astype("int64")'
    if dtype.startswith(("void", "|V", "[", "{")):
        return ': show one of its fields, x["name"]'
    return ': convert it with x.astype("float32"), in PyTorch x.float()'


def _one_of(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
