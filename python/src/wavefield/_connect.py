"""Connecting to a running renderer."""

from __future__ import annotations

import operator
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._memory.layout import PARTS, SHAPES, Layout, dtype_name, kind_of
from ._renderer.connection import default_socket
from .errors import ArrayMismatch
from .field import Field

if TYPE_CHECKING:
    from ._memory.layout import Kind
    from ._renderer.protocol import Memory

    Parts = dict[str, tuple[int, ...] | tuple[tuple[int, ...], str]]


def connect(
    socket: str | os.PathLike[str] | None = None,
    *,
    memory: Memory = "cuda",
    ring: int | None = None,
    stream: Any = None,
    client: str | None = None,
    timeout: float = 30.0,
    kind: Kind | None = None,
    shape: tuple[int, ...] | None = None,
    dtype: str | None = None,
    parts: Parts | None = None,
) -> Field:
    """Connect to a renderer that `wavefield serve` started, and return its field.

    `socket`: the path of the renderer's socket; by default that of `wavefield serve`.
    `memory`: "cuda", or "host" for NumPy and for machines without CUDA; then the renderer copies each frame.
    `ring`: the number of slots, 2 to 32; by default the renderer's. `Field.ring` is the number that you got.
    `stream`: the CUDA stream to write frames on; see `Field.stream`.
    `client`: a name for the renderer to show; by default the program's.
    `timeout`: the seconds that the renderer may take to answer.
    `kind`, `shape`, `dtype`: of the arrays to draw; by default a mesh of the renderer's grid. `kind` is "image",
    "points", "surface", "mesh", "triangles" or "lines"; the default depends on the shape, as in `show`. `dtype` is
    "float32" (the default), "float16" or "uint8".
    `parts`: the shapes of the parts that each array has, such as `{"faces": (m, 3), "colors": ((n, 3), "uint8")}`;
    colours have the type float32 unless another is named. `frame.faces` and `frame.colors` are the arrays to write.

    Raises `ArrayMismatch`, `NoRenderer`, `Busy`, `WrongUser`, `VersionMismatch`, `CudaMissing`, `DeviceMismatch`, or
    another `Refused`.
    """
    path = Path(socket) if socket is not None else default_socket()
    return Field(path, memory, ring, stream, client or program(), timeout, layout_of(kind, shape, dtype, parts))


def layout_of(kind: str | None, shape: tuple[int, ...] | None, dtype: Any, parts: Parts | None = None) -> Layout | None:
    """Return the layout of these arguments; None for the renderer's own grid."""
    if shape is None:
        if kind is None and dtype is None and parts is None:
            return None
        raise ArrayMismatch(
            f"shape=… is missing: give the shape of the arrays, such as {SHAPES.get(kind or '', '(rows, cols)')}"
        )
    sides, name = _sides("shape", shape), dtype_name("float32" if dtype is None else dtype)
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for part, wanted in (parts or {}).items():
        usual = PARTS[part][1][0] if part in PARTS else ""
        has_dtype = isinstance(wanted, tuple) and len(wanted) == 2 and isinstance(wanted[0], tuple | list)
        shape_of, type_of = wanted if has_dtype else (wanted, usual)
        found[part] = _sides(part, shape_of), dtype_name(type_of)
    return Layout.of(kind or kind_of(sides, name, found), sides, name).having(found)


def _sides(name: str, shape: Any) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, shape))
    except TypeError:
        raise ArrayMismatch(f"{name} must be a tuple of whole numbers, not {shape!r}") from None


def program() -> str:
    """Return a name for the renderer to show."""
    return f"{Path(sys.argv[0]).name or 'python'} (Python)"[:100]
