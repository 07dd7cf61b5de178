"""Arrays with parts on a GPU, for gpu_check.py: what each library's arrays look like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import wavefield

HOST: Any = "host"
SIZE = (640, 480)


def grid_of_triangles(rows: int, cols: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners of a wavy grid, (rows * cols, 3), and its triangles, two for each cell."""
    z, x = np.meshgrid(np.linspace(-1, 1, rows), np.linspace(-1, 1, cols), indexing="ij")
    corners = np.stack([x, 0.2 * np.sin(9 * x) * np.cos(7 * z), z], -1).reshape(-1, 3)
    at = np.arange(rows * cols).reshape(rows, cols)
    a, b, c, d = at[:-1, :-1], at[:-1, 1:], at[1:, :-1], at[1:, 1:]
    faces = np.stack([np.stack([a, c, b], -1), np.stack([b, c, d], -1)], 2).reshape(-1, 3)
    return corners.astype(np.float32), faces.astype(np.int32)


def compare(memory: Any, of: Callable[[np.ndarray], Any]) -> str:
    """Show arrays of a library, which `of` makes, and NumPy's through host memory: the pictures must be the same."""
    random = np.random.default_rng(56)
    cloud = (random.normal(size=(5000, 3)) * 300 + [4e5, 0, 5e6]).astype(np.float64)
    corners, faces = grid_of_triangles(60, 80)
    colors, edges = random.random((5000, 4)).astype(np.float32), random.integers(0, 5000, (700, 2))
    cases: dict[str, dict[str, Any]] = {
        "points": {"array": cloud, "colors": (255 * colors[:, :3]).astype(np.uint8), "sizes": 20 * colors[:, 0]},
        "RGBA": {"array": cloud, "colors": colors},
        "triangles": {"array": corners, "faces": faces, "colors": colors[: len(corners)]},
        "int64 faces": {"array": corners, "faces": faces.astype(np.int64)},
        "edges": {"array": cloud, "edges": edges, "colors": colors},
        "arrows": {"array": cloud[:400], "vectors": 100 * random.normal(size=(400, 3))},
        "plot": {"array": np.cumsum(random.normal(size=9000))},
    }
    for name, case in cases.items():
        pictures = []
        for there, make in ((HOST, np.asarray), (memory, of)):
            made: Any = {part: make(array) for part, array in case.items()}
            field = wavefield.show(made.pop("array"), memory=there, window=False, camera="fit", **made)
            index, depth = (picture.to_numpy() for picture in field.render("index", "depth", size=SIZE))
            pictures.append((index, depth, field.snapshot()))
            assert field.shown is not None and (field.shown.copied or not made)
        (index, depth, color), (index2, depth2, color2) = pictures
        assert (index >= 0).mean() > 0.02, f"{name}: nothing is seen"
        assert (index != index2).mean() < 1e-3, f"{name}: {(index != index2).mean()} of the indices differ"
        both = (index == index2) & (index >= 0)
        np.testing.assert_allclose(depth[both], depth2[both], rtol=1e-3)
        assert (abs(color.astype(int) - color2).max(2) > 4).mean() < 5e-3, f"{name}: the colours differ"
    return ", ".join(cases)
