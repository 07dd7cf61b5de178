"""polyscope on EGL: the data go through page-locked memory of the CPU."""

from __future__ import annotations

import numpy as np
import polyscope as ps
import torch
from common import DEVICE, MODE, POINTS, H, W, array, png, race, sync, wave

out = array()
pinned = torch.empty(out.shape, pin_memory=DEVICE == "cuda")
host, got = pinned.numpy(), {}
ps.set_verbosity(0)
ps.set_allow_headless_backends(True)
ps.init("openGL3_egl")
ps.set_window_size(W, H)
ps.set_build_gui(False)
ps.set_ground_plane_mode("none")
ps.set_max_fps(-1)
if MODE == "d":
    import polyscope.device_interop

    polyscope.device_interop.check_device_module_availibility = lambda: None
wave(0, out)
host[...] = np.asarray(out.cpu())
if POINTS:
    cloud = ps.register_point_cloud("p", host, radius=0.0008)
    cloud.set_point_render_mode("quad")
    ps.look_at((1.57, 1.64, 2.4), (0, 0, 0))
    target = cloud.get_buffer("points") if MODE == "d" else None


def frame(k):
    wave(k, out)
    if MODE == "d":
        target.update_data_from_device(out)
    else:
        pinned.copy_(out)
        if POINTS:
            cloud.update_point_positions(host)
        else:
            ps.add_scalar_image_quantity(
                "i",
                host,
                enabled=True,
                show_fullscreen=True,
                cmap="viridis",
                vminmax=(0, 1),
                show_in_imgui_window=False,
            )
    if MODE == "h":
        got["a"] = ps.screenshot_to_buffer(False)
    else:
        ps.frame_tick()


def finish():
    got["a"] = ps.screenshot_to_buffer(False)
    sync()


race("polyscope", frame, finish)
png("polyscope", got["a"])
