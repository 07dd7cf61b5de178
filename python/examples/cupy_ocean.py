"""An ocean with CuPy: wind makes a spectrum of waves, and for each frame an inverse FFT turns it into a surface.

After J. Tessendorf, "Simulating Ocean Water" (2001). x and z move too, which makes the crests sharp.
"""

import math

import cupy as cp

from _cli import show

SIZE = 120.0  # metres from edge to edge
WIND = (13.0, 7.0)  # metres per second along x and z
GRAVITY = 9.81
HEIGHT = 0.055  # of the vertices' y, root mean square


def spectrum(rows, cols):
    """Return wave vectors, their frequencies, and the amplitudes at time 0 of the waves in both directions."""
    kx = (cp.fft.fftfreq(cols) * cols * 2 * math.pi / SIZE)[None, :]
    kz = (cp.fft.fftfreq(rows) * rows * 2 * math.pi / SIZE)[:, None]
    k = cp.maximum(cp.sqrt(kx * kx + kz * kz), 1e-6)
    speed = math.hypot(*WIND)
    longest = speed * speed / GRAVITY
    # Phillips spectrum: long waves along the wind. Waves shorter than half a metre are smoothed away.
    along = (kx * WIND[0] + kz * WIND[1]) / (k * speed)
    power = cp.exp(-1 / (k * longest) ** 2 - (0.5 * k) ** 2) / k**4 * along**2 * cp.where(along < 0, 0.15, 1.0)
    power[0, 0] = 0
    noise = cp.random.RandomState(3)
    amplitude = cp.sqrt(power / 2) * (noise.standard_normal(k.shape) + 1j * noise.standard_normal(k.shape))
    amplitude *= HEIGHT / float(cp.sqrt(2 * cp.sum(cp.abs(amplitude) ** 2)))
    opposite = cp.conj(cp.roll(amplitude[::-1, ::-1], (1, 1), (0, 1)))
    return kx, kz, k, cp.sqrt(GRAVITY * k), amplitude, opposite


def main() -> None:
    with show(__doc__) as (field, options):
        rows, cols, _ = field.shape
        kx, kz, k, omega, amplitude, opposite = spectrum(rows, cols)
        x = cp.linspace(-1, 1, cols, dtype=cp.float32)[None, :]
        z = cp.linspace(-1, 1, rows, dtype=cp.float32)[:, None]
        # ANCHOR: frame
        for frame in field.frames(options.frames):
            v = cp.asarray(frame)  # no copy: this is the renderer's memory
            turn = cp.exp(1j * omega * frame.time)
            waves = amplitude * turn + opposite / turn
            # One transform makes two real fields: the real part is the height, the imaginary part a displacement.
            both = cp.fft.ifft2(waves + kx / k * waves, norm="forward")
            other = cp.fft.ifft2(1j * kz / k * waves, norm="forward")
            v[..., 0] = x - 0.8 * both.imag
            v[..., 1] = both.real
            v[..., 2] = z + 0.8 * other.real
            v[..., 3] = cp.clip(0.45 + 2.6 * both.real + 1.1 * cp.abs(both.real) * (both.real > 0), 0, 1)
        # ANCHOR_END: frame


if __name__ == "__main__":
    main()
