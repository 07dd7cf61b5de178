"""pygfx on wgpu: the data go through page-locked memory of the CPU."""

from __future__ import annotations

import numpy as np
import pygfx as gfx
import torch
from common import DEVICE, MODE, POINTS, SIDE, H, N, W, array, png, race, sync, wave
from pygfx.renderers.wgpu.engine.update import ensure_wgpu_object

out = array()
pinned = torch.empty(out.shape, pin_memory=DEVICE == "cuda")
host = pinned.numpy()
target = gfx.Texture(dim=2, size=(W, H, 1), format="rgba8unorm", usage=0x10 | 0x4 | 0x1)
renderer = gfx.renderers.WgpuRenderer(target, pixel_ratio=1, ppaa="none")
scene, got = gfx.Scene(), {}
if POINTS:
    data, camera = gfx.Buffer(np.zeros((N, 3), np.float32)), gfx.PerspectiveCamera(54, W / H, depth_range=(0.1, 20))
    wave(0, out)
    host[...] = np.asarray(out.cpu())
    data.set_data(host)
    scene.add(gfx.Points(gfx.Geometry(positions=data), gfx.PointsMaterial(size=2, color="#4c8", aa=False)))
    camera.local.position = (1.57, 1.64, 2.4)
    camera.look_at((0, 0, 0))
else:
    data, camera = gfx.Texture(np.zeros((SIDE, SIDE), np.float32), dim=2), gfx.OrthographicCamera(SIDE * W / H, SIDE)
    scene.add(gfx.Image(gfx.Geometry(grid=data), gfx.ImageBasicMaterial(clim=(0, 1), map=gfx.cm.viridis)))
    camera.local.position = (SIDE / 2, SIDE / 2, 1)


def frame(k):
    wave(k, out)
    pinned.copy_(out)
    data.set_data(host)
    renderer.render(scene, camera)
    if MODE == "h":
        got["a"] = renderer.snapshot()


def finish():
    where = {"texture": ensure_wgpu_object(target), "mip_level": 0, "origin": (W // 2, H // 2, 0)}
    got["pixel"] = bytes(
        renderer.device.queue.read_texture(where, {"offset": 0, "bytes_per_row": 4, "rows_per_image": 1}, (1, 1, 1))
    )
    sync()


race("pygfx", frame, finish, f", on {renderer.device.adapter.info['device']}")
png("pygfx", renderer.snapshot())
