"""What the contenders share: the scene, the measurement, and the picture at its end. docs/race.md has the results.

`python NAME.py P|C|M|I g|h`: P is 1,048,576 points, C the same with colours that change, M a mesh of 2,093,058 triangles between
them, I an image of 1024x1024; the picture of each frame stays on the GPU (g) or comes to the CPU (h). Look at the PNG files: a contender that draws nothing is fast.
"""

from __future__ import annotations

import os
import struct
import sys
import time
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

W, H, SIDE = 1280, 720, 1024
N = SIDE * SIDE
FRAMES, WARM = int(os.environ.get("RACE_FRAMES", "300")), int(os.environ.get("RACE_WARM", "30"))
# "cpu" tests a contender without CUDA.
DEVICE = os.environ.get("RACE_DEVICE", "cuda")
SCENE, MODE = sys.argv[1], sys.argv[2]
POINTS = SCENE != "I"

_line = torch.linspace(-1, 1, SIDE, device=DEVICE)
_base = torch.zeros((N, 3), device=DEVICE)
_base[:, 0], _base[:, 2] = _line.repeat(SIDE), _line.repeat_interleave(SIDE)
_phase, _heights = 8 * _base[:, 0] + 3 * _base[:, 2], torch.empty(N, device=DEVICE)

_number = torch.arange(N, dtype=torch.int32, device=DEVICE)
# Four bytes each.
COLORS = (_number * 2654435).view(torch.uint8).view(N, 4)
_at = _number.view(SIDE, SIDE)
_corners = _at[:-1, :-1], _at[1:, :-1], _at[:-1, 1:], _at[1:, 1:]
FACES = torch.cat([torch.stack([_corners[i].reshape(-1) for i in face], 1) for face in ((0, 1, 2), (2, 1, 3))])


def array() -> torch.Tensor:
    """Return memory for a frame."""
    return torch.empty((N, 3) if POINTS else (SIDE, SIDE), device=DEVICE)


def wave(frame: int, out: torch.Tensor) -> None:
    """Write a frame on the GPU: points with y from -0.3 to 0.3, or an image with values from 0 to 1."""
    if POINTS:
        out.copy_(_base)
        torch.sin(torch.add(_phase, 0.1 * frame, out=_heights), out=_heights)
        torch.mul(_heights, 0.3, out=out[:, 1])
        if SCENE == "C":
            COLORS.add_(1)
    else:
        torch.add(_phase, 0.1 * frame, out=out.view(-1)).sin_().mul_(0.5).add_(0.5)


def sync() -> None:
    """Wait for the GPU."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def race(name: str, frame: Callable[[int], object], finish: Callable[[], object], more: str = "") -> None:
    """Time FRAMES frames after WARM. `finish` waits for the GPU, and reads a pixel or a picture."""
    for number in range(WARM):
        frame(number)
    finish()
    wall, cpu = time.perf_counter(), time.process_time()
    for number in range(WARM, WARM + FRAMES):
        frame(number)
    finish()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(
        f"{name} {SCENE} {MODE}: {1e3 * wall / FRAMES:.3f} ms a frame, {1e3 * cpu / FRAMES:.3f} of CPU{more}",
        flush=True,
    )


def png(name: str, picture: Any) -> None:
    """Write the last picture."""
    picture = np.ascontiguousarray(picture[..., :3])
    if picture.dtype.kind == "f":
        picture = np.clip(picture * 255, 0, 255).astype(np.uint8)
    rows = b"".join(b"\0" + row.tobytes() for row in picture)
    header = struct.pack(">IIBBBBB", picture.shape[1], picture.shape[0], 8, 2, 0, 0, 0)
    with open(f"{name}-{SCENE}-{MODE}.png", "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 3)), (b"IEND", b"")):
            file.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))
