"""SlangPy: a buffer that CUDA and Vulkan share, one frame in flight. `plain`: without its checks."""

from __future__ import annotations

import os
import sys
import tempfile

import numpy as np
import slangpy as spy
import torch
from common import DEVICE, MODE, POINTS, SIDE, H, N, W, png, race, sync, wave

SLANG = """
StructuredBuffer<float> data;
float3 colour(float v) { v = saturate(v); return lerp(lerp(float3(.27, 0, .33), float3(.13, .57, .55), saturate(2 * v)), float3(.99, .91, .14), saturate(2 * v - 1)); }
struct V { float4 position : SV_Position; float3 colour : COLOUR; float size : SV_PointSize; };
[shader("vertex")] V points(uint i : SV_VertexID) {
    float3 p = float3(data[3 * i], data[3 * i + 1], data[3 * i + 2]);
    float ca = cos(.58), sa = sin(.58), ce = cos(.52), se = sin(.52), f = 1 / tan(.36);
    float x = dot(p, float3(ca, 0, -sa)), y = dot(p, float3(-sa * se, ce, -ca * se)), z = 3.3 - dot(p, float3(sa * ce, se, ca * ce));
    V v; v.position = float4(f * x * 720 / 1280, f * y, (z - 1) / 5 * z, z); v.colour = colour(p.y / .6 + .5); v.size = 2; return v;
}
[shader("fragment")] float4 dot_colour(float3 c : COLOUR) : SV_Target { return float4(c, 1); }
[shader("vertex")] float4 whole(uint i : SV_VertexID) : SV_Position { return float4(i == 1 ? 3 : -1, i == 2 ? 3 : -1, 0, 1); }
[shader("fragment")] float4 pixel(float4 at : SV_Position) : SV_Target {
    float2 t = (at.xy - float2(280, 0)) / 720;
    if (any(t < 0) || any(t >= 1)) return float4(.05, .05, .05, 1);
    return float4(colour(data[uint(t.y * 1024) * 1024 + uint(t.x * 1024)]), 1);
}
"""
folder = tempfile.mkdtemp()
with open(f"{folder}/race_field.slang", "w") as f:
    f.write(SLANG)
PLAIN = "plain" in sys.argv[3:]
if DEVICE == "cuda" and not PLAIN:
    device = spy.create_torch_device(type=spy.DeviceType.vulkan, include_paths=[folder])
else:  # as create_torch_device does it, but without validation and hot reload, which that switches on
    sync()
    handles = spy.get_cuda_current_context_native_handles() if DEVICE == "cuda" else None
    paths = [os.path.join(os.path.dirname(spy.__file__), "slang"), folder]
    device = spy.Device(
        type=spy.DeviceType.vulkan,
        compiler_options={"include_paths": paths},
        enable_rhi_validation=not PLAIN,
        enable_hot_reload=not PLAIN,
        enable_cuda_interop=DEVICE == "cuda",
        existing_device_handles=handles,
    )
program = device.load_program("race_field.slang", ["points", "dot_colour"] if POINTS else ["whole", "pixel"])
usage = spy.BufferUsage.shader_resource | (
    spy.BufferUsage.shared if DEVICE == "cuda" else spy.BufferUsage.copy_destination
)
buffer = device.create_buffer(size=(3 if POINTS else 1) * N * 4, struct_size=4, usage=usage)
image = device.create_texture(
    format=spy.Format.rgba8_unorm,
    width=W,
    height=H,
    usage=spy.TextureUsage.render_target | spy.TextureUsage.copy_source,
)
view, kw, attachments = image.create_view({}), {}, {}
if POINTS:
    depth = device.create_texture(format=spy.Format.d32_float, width=W, height=H, usage=spy.TextureUsage.depth_stencil)
    attachments["depth_stencil_attachment"] = {
        "view": depth.create_view({}),
        "depth_load_op": spy.LoadOp.clear,
        "depth_store_op": spy.StoreOp.dont_care,
        "depth_clear_value": 1.0,
    }
    kw["depth_stencil"] = {
        "depth_test_enable": True,
        "depth_write_enable": True,
        "depth_func": spy.ComparisonFunc.less,
        "format": spy.Format.d32_float,
    }
pipeline = device.create_render_pipeline(
    program=program,
    input_layout=None,
    targets=[{"format": spy.Format.rgba8_unorm}],
    rasterizer={"cull_mode": spy.CullMode.none},
    primitive_topology=spy.PrimitiveTopology.point_list if POINTS else spy.PrimitiveTopology.triangle_list,
    **kw,
)
state = {"viewports": [spy.Viewport.from_size(W, H)], "scissor_rects": [spy.ScissorRect.from_size(W, H)]}
attachments["color_attachments"] = [
    {"view": view, "clear_value": [0.05, 0.05, 0.05, 1.0], "load_op": spy.LoadOp.clear, "store_op": spy.StoreOp.store}
]
shape, got = ([N, 3] if POINTS else [SIDE, SIDE]), {}
out = buffer.to_torch(spy.DataType.float32, shape=shape) if DEVICE == "cuda" else torch.empty(shape)


def frame(k):
    if DEVICE == "cuda":
        stream = torch.cuda.current_stream().cuda_stream
        device.sync_to_device(stream)  # CUDA waits until the device has drawn
        wave(k, out)
        device.sync_to_cuda(stream)  # the device waits for CUDA
    else:
        wave(k, out)
        buffer.copy_from_numpy(np.asarray(out))
    encoder = device.create_command_encoder()
    with encoder.begin_render_pass(attachments) as draw:
        cursor = spy.ShaderCursor(draw.bind_pipeline(pipeline))
        cursor.data = buffer
        draw.set_render_state(state)
        draw.draw({"vertex_count": N if POINTS else 3})
    device.submit_command_buffer(encoder.finish())
    if MODE == "h":
        got["a"] = image.to_numpy()


def finish():
    device.wait()
    got["a"] = image.to_numpy()
    sync()


name = "slangpy-plain" if PLAIN else "slangpy"
race(name, frame, finish)
png(name, got["a"])
