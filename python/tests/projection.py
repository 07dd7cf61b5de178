"""Where places are in a picture, in double precision."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import wavefield


def project(place: np.ndarray, camera: wavefield.Camera, width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the pixels and the depths of places, by the formulas of docs/protocol.md."""
    (sin_a, cos_a), (sin_e, cos_e) = ((math.sin(t), math.cos(t)) for t in (camera.azimuth, camera.elevation))
    back = np.array([sin_a * cos_e, sin_e, cos_a * cos_e])
    right = np.array([cos_a, 0.0, -sin_a])
    up = np.cross(back, right)
    there = place - (np.array(camera.target) + camera.distance * back)
    depth = -(there @ back)
    tall = 2 * math.tan(0.36) * depth
    tall = tall if width >= 1.35 * height else 1.35 * tall * height / width
    return np.stack([width / 2 + there @ right / tall * height, height / 2 - there @ up / tall * height], 1), depth
