"""Corals with JAX: two substances react and spread (Gray and Scott), and corals grow where they meet.

JAX's arrays cannot be written, so this is the only example with a copy: `frame.copy_from`, once, on the device.
"""

import os
from functools import partial

# By default JAX takes most of the GPU's memory, which the renderer needs too.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp

from _cli import show

FEED, KILL, STEPS = 0.0545, 0.062, 24  # steps of the reaction a frame


def laplacian(a):
    near = sum(jnp.roll(a, step, axis) for step in (1, -1) for axis in (0, 1))
    far = sum(jnp.roll(jnp.roll(a, i, 0), j, 1) for i in (1, -1) for j in (1, -1))
    return 0.2 * near + 0.05 * far - a


@jax.jit
def react(state):
    def step(_, state):
        u, v = state
        meet = u * v * v
        return u + laplacian(u) - meet + FEED * (1 - u), v + 0.5 * laplacian(v) + meet - (FEED + KILL) * v

    return jax.lax.fori_loop(0, STEPS, step, state)


@partial(jax.jit, static_argnums=(1, 2))
def vertices(state, rows, cols):
    z, x = jnp.meshgrid(jnp.linspace(-1, 1, rows), jnp.linspace(-1, 1, cols), indexing="ij")
    second = jnp.clip(jax.image.resize(state[1], (rows, cols), "cubic"), 0, 0.45)
    return jnp.stack((x, 0.28 * second - 0.04, z, 2.2 * second), -1).astype(jnp.float32)


def main() -> None:
    with show(__doc__) as (field, options):
        rows, cols, _ = field.shape
        # A coral is a dozen cells wide in any field, so a large field has several vertices a cell.
        scale = max(1, min(rows, cols) // 256)
        high, wide = rows // scale, cols // scale
        lots = jax.random.uniform(jax.random.key(5), (-(-high // 24), -(-wide // 24))) < 0.12
        seeds = jnp.kron(lots, jnp.pad(jnp.ones((8, 8)), 8))[:high, :wide]
        state = (1 - 0.5 * seeds, 0.5 * seeds)
        if field.device is not None:
            state = jax.device_put(state, jax.devices("gpu")[field.device])
        for frame in field.frames(options.frames):
            frame.copy_from(vertices(state := react(state), rows, cols))


if __name__ == "__main__":
    main()
