"""How the vertices lie in memory."""

from __future__ import annotations

from dataclasses import dataclass

COMPONENTS = 4
ITEM_BYTES = 4
VERTEX_BYTES = COMPONENTS * ITEM_BYTES
TYPESTR = "<f4"


@dataclass(frozen=True)
class Layout:
    """A grid of vertices, row after row: each is x, y, z, w as little-endian float32, 16 bytes."""

    rows: int
    cols: int
    row_bytes: int
    """From the start of one row to the start of the next; at least `cols * 16`."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return (rows, cols, 4)."""
        return (self.rows, self.cols, COMPONENTS)

    @property
    def strides(self) -> tuple[int, int, int]:
        """Return the bytes from one row, vertex and component to the next."""
        return (self.row_bytes, VERTEX_BYTES, ITEM_BYTES)

    @property
    def contiguous(self) -> bool:
        """Return whether there is no gap between the rows."""
        return self.row_bytes == self.cols * VERTEX_BYTES

    @property
    def bytes(self) -> int:
        """Return the bytes from the first vertex to the end of the last."""
        return (self.rows - 1) * self.row_bytes + self.cols * VERTEX_BYTES
