"""A rank of `torch_distributed.py` that is measured, or checked: `gpu_check.py ranks` starts them.

    MODE FIRST OPTIONS-OF-THE-EXAMPLE

`recv` is the example itself. With `gather`, rank 0 receives the strips in a tensor of its own and copies them. With
`stamp`, the strips hold stamps instead of a wave, which `serve --verify` checks. Rank 0 prints the mean time of a
frame, from frame FIRST on.
"""

from __future__ import annotations

import importlib
import json
import struct
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

import torch

example: Any = importlib.import_module("torch_distributed")
mode, first = sys.argv[1], int(sys.argv[2])
sys.argv[1:3] = []
exchange, from_dlpack = example.exchange, torch.from_dlpack
frames: list[Any] = []  # rank 0: the frame's own rows come first
calls, began, ended = 0, 0.0, 0.0
places: dict[int, torch.Tensor] = {}


def number() -> int:
    """Return the number of the frame."""
    return (calls - 1) // int(example.STEPS + 1)


def seen(frame: Any) -> torch.Tensor:
    frames[:] = [from_dlpack(frame)]
    return frames[0]


def measured(group: Any, since: float, jobs: list[Any], *limit: Any) -> float:
    global calls, began, ended
    calls += 1
    if not limit:
        return float(exchange(group, since, jobs))
    if number() == first:
        torch.cuda.synchronize()
        began = time.perf_counter()
    strips = [frames[0]] if frames else [job[1] for job in jobs]
    if mode == "stamp":
        bits = 0x3F000000 | ((number() + 1) % 4096)
        for strip in strips:  # rank 0's own rows, and what the others overwrite
            strip[..., 3] = struct.unpack("<f", struct.pack("<I", bits))[0]
    if mode == "gather" and frames:
        received = [(job[0], places.setdefault(job[2], torch.empty_like(job[1])), job[2]) for job in jobs]
        since = exchange(group, since, received, *limit)
        for job in jobs:
            job[1].copy_(places[job[2]])
    else:
        since = exchange(group, since, jobs, *limit)
    if number() % 100 == 99:
        torch.cuda.synchronize()
    ended = time.perf_counter()
    return float(since)


if __name__ == "__main__":
    example.exchange, torch.from_dlpack = measured, seen
    code: Any = 0
    try:
        example.main()
    except SystemExit as end:
        code = end.code
    if frames:
        count = number() - first
        print(json.dumps({"mode": mode, "us": round(1e6 * (ended - began) / count, 1), "frames": count}), flush=True)
    raise SystemExit(code)
