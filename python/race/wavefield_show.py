"""wavefield: `show` of the points, with colours, or of the mesh. `python -m wavefield.bench` measures points and images."""

from __future__ import annotations

import os

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import torch
from common import COLORS, FACES, MODE, SCENE, array, png, race, sync, wave

import wavefield

parts = {"C": {"colors": COLORS}, "M": {"faces": FACES}}.get(SCENE, {})
outs = [array(), array()]


def frame(number: int) -> None:
    out = outs[number % 2]
    wave(number, out)
    field = wavefield.show(out, window=False, limits=(-0.3, 0.3), size=2, **parts)
    if MODE == "h":
        field.picture().to_numpy()
    else:
        torch.from_dlpack(field.picture())


def finish() -> None:
    wavefield.show(outs[0], **parts).snapshot()
    sync()


race("wavefield", frame, finish)
png("wavefield", wavefield.show(outs[0], **parts).snapshot())
