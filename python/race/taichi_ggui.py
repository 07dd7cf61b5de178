"""taichi: GGUI draws, and every picture comes to the CPU: there is no other way without a window."""

from __future__ import annotations

import sys

import numpy as np
from common import DEVICE, MODE, POINTS, SCENE, SIDE, H, N, W, array, png, race, sync, wave

if MODE != "h":
    print(
        f"taichi {SCENE} {MODE}: not possible: GGUI has no way to draw without a window that leaves the picture on the GPU"
    )
    sys.exit()
import taichi as ti

ti.init(arch=ti.cuda if DEVICE == "cuda" else ti.cpu, offline_cache=False, log_level=ti.WARN)
window = ti.ui.Window("race", (W, H), show_window=False, vsync=False, fps_limit=100000)
canvas = window.get_canvas()
got = {}
out = array()
give = (lambda f: f.from_torch(out)) if DEVICE == "cuda" else (lambda f: f.from_numpy(np.asarray(out)))
if POINTS:
    field, scene, camera = ti.Vector.field(3, ti.f32, shape=N), window.get_scene(), ti.ui.Camera()
    camera.position(1.57, 1.64, 2.4)
    camera.lookat(0, 0, 0)
    camera.fov(41.25)
else:
    field = ti.field(ti.f32, shape=(SIDE, SIDE))


def frame(k):
    wave(k, out)
    give(field)
    if POINTS:
        scene.set_camera(camera)
        scene.ambient_light((1, 1, 1))
        scene.particles(field, radius=0.003, color=(0.3, 0.8, 0.5))
        canvas.scene(scene)
    else:
        canvas.set_image(field)
    got["a"] = window.get_image_buffer_as_numpy()


def finish():
    ti.sync()
    sync()
    got["a"].max()


race("taichi", frame, finish)
png("taichi", got["a"].swapaxes(0, 1)[::-1])
