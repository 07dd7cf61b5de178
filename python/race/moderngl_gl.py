"""moderngl on EGL, with CUDA's graphics interop: map, copy on the GPU, unmap, draw. `pbo`: an image through a pixel buffer."""

from __future__ import annotations

import sys

import moderngl
import numpy as np
import torch
from common import COLORS, DEVICE, FACES, MODE, POINTS, SCENE, SIDE, H, N, W, array, png, race, sync, wave

for key in ({"libgl": "libGL.so.1", "libegl": "libEGL.so.1"}, {}):
    try:
        ctx = moderngl.create_context(standalone=True, backend="egl", require=330, **key)
        break
    except Exception as e:
        print("moderngl: EGL:", e, file=sys.stderr)
        error = e
else:
    raise error
COLOUR = "vec3 colour(float v) { v = clamp(v, 0., 1.); return mix(mix(vec3(.27, 0, .33), vec3(.13, .57, .55), clamp(2 * v, 0., 1.)), vec3(.99, .91, .14), clamp(2 * v - 1, 0., 1.)); }\n"
colour = ctx.renderbuffer((W, H), 4)
fbo = ctx.framebuffer([colour], ctx.depth_renderbuffer((W, H)) if POINTS else None)
fbo.use()
out, got, pbo = array(), {}, None
buffer = ctx.buffer(reserve=out.numel() * 4, dynamic=True)
colors = ctx.buffer(reserve=4 * N, dynamic=True)
if POINTS:
    ctx.enable(moderngl.DEPTH_TEST | moderngl.PROGRAM_POINT_SIZE)
    program = ctx.program(
        vertex_shader="#version 330\n"
        + COLOUR
        + f"#define COLORS {int(SCENE == 'C')}\n"
        + """in vec3 p;
        #if COLORS
        in vec3 rgb;
        #endif
        out vec3 c; out vec3 at; void main() {
        float ca = cos(.58), sa = sin(.58), ce = cos(.52), se = sin(.52), f = 1 / tan(.36);
        float x = dot(p, vec3(ca, 0, -sa)), y = dot(p, vec3(-sa * se, ce, -ca * se)), z = 3.3 - dot(p, vec3(sa * ce, se, ca * ce));
        gl_Position = vec4(f * x * 720 / 1280, f * y, (z - 1) / 5 * z, z); gl_PointSize = 2; c = colour(p.y / .6 + .5); at = p;
        #if COLORS
            c = rgb;
        #endif
        }""",
        fragment_shader=f"#version 330\n#define MESH {int(SCENE == 'M')}\n"
        + """in vec3 c; in vec3 at; out vec4 o; void main() { o = vec4(c, 1);
        #if MESH
            o.rgb *= .2 + .8 * abs(normalize(cross(dFdx(at), dFdy(at))).y);
        #endif
        }""",
    )
    parts = [(buffer, "3f", "p"), *([(colors, "3f1 x1", "rgb")] if SCENE == "C" else [])]
    if SCENE == "M":
        vao = ctx.vertex_array(program, parts, ctx.buffer(FACES.cpu().numpy()))
        count, topology = FACES.numel(), moderngl.TRIANGLES
    else:
        vao, count, topology = ctx.vertex_array(program, parts), N, moderngl.POINTS
else:
    texture = ctx.texture((SIDE, SIDE), 1, dtype="f4")
    texture.filter = moderngl.NEAREST, moderngl.NEAREST
    program = ctx.program(
        vertex_shader="#version 330\nvoid main() { gl_Position = vec4(gl_VertexID == 1 ? 3 : -1, gl_VertexID == 2 ? 3 : -1, 0, 1); }",
        fragment_shader="#version 330\n"
        + COLOUR
        + """uniform sampler2D t; out vec4 o; void main() { vec2 a = (gl_FragCoord.xy - vec2(280, 0)) / 720; a.y = 1 - a.y;
        o = any(lessThan(a, vec2(0))) || any(greaterThanEqual(a, vec2(1))) ? vec4(.05, .05, .05, 1) : vec4(colour(texture(t, a).r), 1); }""",
    )
    vao, count, topology = ctx.vertex_array(program, []), 3, moderngl.TRIANGLES
how = "upload"
if DEVICE == "cuda":
    sync()
    from cuda.bindings import driver

    def ok(result):
        assert int(result[0]) == 0, result[0]
        return result[1] if len(result) == 2 else result[1:]

    DISCARD = 2  # CU_GRAPHICS_REGISTER_FLAGS_WRITE_DISCARD
    resource, how = None, "buffer"
    if not POINTS and "pbo" not in sys.argv[3:]:
        result = driver.cuGraphicsGLRegisterImage(texture.glo, 0x0DE1, DISCARD)
        if int(result[0]) == 0:
            resource, how = result[1], "image"
        else:
            print("moderngl: cuGraphicsGLRegisterImage:", result[0], "so a pixel buffer", file=sys.stderr)
    if resource is None:
        resource = ok(driver.cuGraphicsGLRegisterBuffer(buffer.glo, DISCARD))
        how = "buffer" if POINTS else "pixel buffer"
    both = [(resource, out)]
    if SCENE == "C":
        both.append((ok(driver.cuGraphicsGLRegisterBuffer(colors.glo, DISCARD)), COLORS))


def give():
    if DEVICE != "cuda":
        buffer.write(np.ascontiguousarray(out))
        if SCENE == "C":
            colors.write(np.ascontiguousarray(COLORS))
        return None if POINTS else texture.write(buffer)
    stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
    for shared, _ in both:
        ok(driver.cuGraphicsMapResources(1, shared, stream))
    if how == "image":
        c = driver.CUDA_MEMCPY2D()
        c.srcMemoryType, c.dstMemoryType = (
            driver.CUmemorytype.CU_MEMORYTYPE_DEVICE,
            driver.CUmemorytype.CU_MEMORYTYPE_ARRAY,
        )
        c.srcDevice, c.srcPitch = driver.CUdeviceptr(out.data_ptr()), SIDE * 4
        c.dstArray = ok(driver.cuGraphicsSubResourceGetMappedArray(resource, 0, 0))
        c.WidthInBytes, c.Height = SIDE * 4, SIDE
        ok(driver.cuMemcpy2DAsync(c, stream))
    else:
        for shared, tensor in both:
            pointer, _size = ok(driver.cuGraphicsResourceGetMappedPointer(shared))
            ok(driver.cuMemcpyDtoDAsync(pointer, driver.CUdeviceptr(tensor.data_ptr()), tensor.nbytes, stream))
    for shared, _ in both:
        ok(driver.cuGraphicsUnmapResources(1, shared, stream))
    if how == "pixel buffer":
        texture.write(buffer)
    return None


def frame(k):
    wave(k, out)
    give()
    fbo.clear(0.05, 0.05, 0.05, 1.0)
    if not POINTS:
        texture.use()
    vao.render(topology, vertices=count)
    if MODE == "h":
        got["a"] = np.empty((H, W, 4), np.uint8)
        fbo.read_into(got["a"], components=4)


def finish():
    ctx.finish()
    got["pixel"] = fbo.read(viewport=(W // 2, H // 2, 1, 1), components=4)
    sync()


name = "moderngl-pbo" if "pbo" in sys.argv[3:] else "moderngl"
race(name, frame, finish, f", by {how}, on {ctx.info['GL_RENDERER']}")
png(name, np.frombuffer(fbo.read(components=4), np.uint8).reshape(H, W, 4)[::-1])
