"""The renderer's own wave, as a Numba kernel that writes the renderer's memory."""

import math

import numpy as np
from numba import cuda, float32, uint32

from _cli import show

TAU = np.float32(2 * math.pi)


@cuda.jit(device=True, fastmath=True)
def sine(turns):
    # The hardware's fast sine is accurate near zero only, so subtract whole turns first.
    return math.sin(TAU * (turns - float32(math.floor(turns))))


# Every kernel of wavefield has this signature. `vertices` has x, y, z, w of each vertex.
@cuda.jit(fastmath=True)
def wave(vertices, cols, rows, frame, time):
    i = uint32(cuda.grid(1))
    if i >= uint32(cols * rows):
        return
    # float32(…) keeps single precision: in Numba, an integer and a float32 make a float64.
    x = float32(2) * float32(i % cols) / float32(cols - 1) - float32(1)
    z = float32(2) * float32(i // cols) / float32(rows - 1) - float32(1)
    turn = float32(time / 20.0 - math.floor(time / 20.0))  # the fraction of the 20 s loop
    y = float32(0.46) * sine(float32(0.55) * x + float32(0.30) * z - float32(3) * turn)
    y += float32(0.26) * sine(float32(-0.40) * x + float32(0.75) * z - float32(4) * turn)
    y += float32(0.14) * sine(float32(1.10) * x + float32(0.90) * z - float32(7) * turn)
    y += float32(0.14) * sine(float32(2.25) * math.sqrt(x * x + z * z) - float32(8) * turn)
    vertices[4 * i] = x
    vertices[4 * i + 1] = float32(0.3) * y
    vertices[4 * i + 2] = z
    vertices[4 * i + 3] = float32(0.5) + float32(0.5) * y


def main() -> None:
    with show(__doc__) as (field, options):
        cols, rows = map(np.uint32, field.grid)
        cuda.select_device(field.device)
        stream = cuda.external_stream(int(field.stream))
        blocks = -(-int(cols) * int(rows) // 256)
        for frame in field.frames(options.frames):
            # sync=False: the launch is on the frame's stream, so the CPU does not have to wait for the slot.
            vertices = cuda.as_cuda_array(frame, sync=False).reshape(-1)
            wave[blocks, 256, stream](vertices, cols, rows, np.uint64(frame.index), frame.time)


if __name__ == "__main__":
    main()
