"""Pictures for the user's own program, compared on the GPU by the library that took them. For gpu_check.py.

What is compared is computed there, too, in 64 bits, from what the frame shows. The wrong pixels are counted there, and
only their sum comes to the CPU.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import wavefield
from wavefield import Camera
from wavefield._memory import cuda as _cuda

ROWS, COLS = 40, 60
SCREEN = (160, 90)
EYES = [Camera(0.4 + 0.3 * view, 0.5, 3.0, (0.1, -0.1, 0.0)) for view in range(4)]
SIDE = 84


class Library:
    """The few functions that differ between the libraries. This one is NumPy, in host memory."""

    exact = True
    """Whether the stream that takes a picture also hands the next frame over."""

    def __init__(self, field: wavefield.Field) -> None:
        self.field = field

    def put(self, array: np.ndarray) -> Any:
        return array

    def take(self, picture: wavefield.Picture, number: int) -> Any:
        return np.from_dlpack(picture) if number % 2 else np.asarray(picture)

    def cast(self, array: Any, dtype: str) -> Any:
        return array.astype(dtype)

    def synchronize(self) -> None:
        pass

    def pointer(self, array: Any) -> int:
        return int(array.ctypes.data)

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def aside(self) -> contextlib.AbstractContextManager[Any]:
        """Work on another stream."""
        raise NotImplementedError

    def delay(self) -> None:
        """Keep the stream busy for some milliseconds."""
        for _ in range(8):
            self.heavy = self.big @ self.big

    big: Any
    heavy: Any


class Torch(Library):
    def __init__(self, field: wavefield.Field) -> None:
        import torch

        super().__init__(field)
        self.torch = torch
        torch.cuda.set_device(field.device)
        self.big = torch.ones(4096, 4096, device="cuda")
        self.other = torch.cuda.Stream()

    def put(self, array: np.ndarray) -> Any:
        return self.torch.as_tensor(array, device="cuda")

    def take(self, picture: wavefield.Picture, number: int) -> Any:
        if number % 2:
            return picture.as_torch()
        return self.torch.as_tensor(picture, device=f"cuda:{self.field.device}")

    def cast(self, array: Any, dtype: str) -> Any:
        return array.to(getattr(self.torch, dtype))

    def synchronize(self) -> None:
        self.torch.cuda.current_stream().synchronize()

    def pointer(self, array: Any) -> int:
        return int(array.data_ptr())

    def aside(self) -> contextlib.AbstractContextManager[Any]:
        return self.torch.cuda.stream(self.other)  # type: ignore[no-any-return]


class Cupy(Library):
    def __init__(self, field: wavefield.Field) -> None:
        import cupy

        super().__init__(field)
        self.cupy = cupy
        cupy.cuda.Device(field.device).use()
        self.big = cupy.ones((4096, 4096), "float32")
        self.other = cupy.cuda.Stream(non_blocking=True)

    def put(self, array: np.ndarray) -> Any:
        return self.cupy.asarray(array)

    def take(self, picture: wavefield.Picture, number: int) -> Any:
        return picture.as_cupy() if number % 2 else self.cupy.asarray(picture)

    def synchronize(self) -> None:
        self.cupy.cuda.get_current_stream().synchronize()

    def pointer(self, array: Any) -> int:
        return int(array.data.ptr)

    def aside(self) -> contextlib.AbstractContextManager[Any]:
        return self.other  # type: ignore[no-any-return]


class Jax(Library):
    exact = False

    def __init__(self, field: wavefield.Field) -> None:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        import jax

        super().__init__(field)
        jax.config.update("jax_enable_x64", True)
        self.jax = jax
        self.device = jax.devices()[field.device or 0]

    def put(self, array: np.ndarray) -> Any:
        return self.jax.device_put(array, self.device)

    def take(self, picture: wavefield.Picture, number: int) -> Any:
        return self.jax.dlpack.from_dlpack(picture)

    def pointer(self, array: Any) -> int:
        return int(array.unsafe_buffer_pointer())

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.jax.jit(function)  # type: ignore[no-any-return]


def slope_of(frame: int) -> float:
    return 0.1 + 0.8 * (0.618034 * frame % 1)


class Plane:
    """A surface that rises along x, in each frame differently, and what each pixel's ray meets."""

    layout: dict[str, Any] = {"kind": "surface", "shape": (ROWS, COLS), "dtype": "float32"}  # noqa: RUF012

    def __init__(self, library: Library) -> None:
        ramp = np.tile((np.arange(COLS) / (COLS - 1) - 0.5).astype(np.float32), (ROWS, 1))
        self.ramp = library.put(ramp)
        parts = [rays(eye, SIDE, SIDE) for eye in EYES]
        self.eyes = [library.put(np.array([eye[axis] for eye, _ in parts])[:, None, None]) for axis in range(3)]
        self.rays = [library.put(np.stack([ray[..., axis] for _, ray in parts])) for axis in range(3)]

    def heights(self, slope: Any) -> Any:
        return self.ramp * slope + 0.3

    def wrong(self, slope: Any, depth: Any, normal: Any, index: Any) -> tuple[Any, Any]:
        """Return how many pixels are wrong, and how many were compared."""
        cell = 2 / (COLS - 1)
        b = 0.6 * slope / 2
        a = 0.6 * (0.3 - 0.5)  # y = a + b x
        (x, y, z), (to_x, to_y, to_z) = self.eyes, self.rays
        slant = to_y - b * to_x
        far = (a - y + b * x) / slant
        # Vulkan rounds a corner to 1/256 of a pixel (subPixelPrecisionBits), which moves the place that a pixel sees.
        pixel = 2 * math.tan(0.36) * 1.35 / SIDE
        near = 1e-5 + 2 / 256 * pixel * (1 + b * b) ** 0.5 * abs(far / slant)
        col, row = (x + far * to_x + 1) / cell, (z + far * to_z) / cell + (ROWS - 1) / 2
        edge = 0.1
        before = far > 0
        inside = before & (col > edge) & (col < COLS - 1 - edge) & (row > edge) & (row < ROWS - 1 - edge)
        beyond = (col < -edge) | (col > COLS - 1 + edge) | (row < -edge) | (row > ROWS - 1 + edge)
        outside = beyond | (far <= 0)
        length = (1 + b * b) ** 0.5
        normals = (-b / length, 1 / length, 0.0, 1.0)
        off = abs(depth[..., 0] - far) > near
        for axis in range(4):
            off = off | (abs(normal[..., axis] - normals[axis]) > 1e-3)
        off = off | (abs(index[..., 0] % COLS - col) > 0.55) | (abs(index[..., 0] // COLS - row) > 0.55)
        empty = (depth[..., 0] == math.inf) & (index[..., 0] == -1) & (abs(normal).sum(-1) == 0)
        return ((inside & off) | (outside & ~empty)).sum(), (inside | outside).sum()


def rays(camera: Camera, width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the eye, and the ray through each pixel, (height, width, 3), as long as one unit of depth."""
    target = np.array(camera.target)
    sine, cosine = math.sin(camera.elevation), math.cos(camera.elevation)
    away = np.array([math.sin(camera.azimuth) * cosine, sine, math.cos(camera.azimuth) * cosine])
    eye, axis = target + camera.distance * away, -away
    right = np.cross(axis, [0, 1, 0])
    right /= np.linalg.norm(right)
    above = np.cross(right, axis)
    # At depth d the picture shows a height of 2 tan(0.36) d, or if it is narrow 1.35 times that as its width.
    scale = 2 * math.tan(0.36) * max(1.0, 1.35 * height / width)
    up = scale * (0.5 - (np.arange(height) + 0.5) / height)[:, None, None]
    across = scale * width / height * ((np.arange(width) + 0.5) / width - 0.5)[None, :, None]
    return eye, axis + up * above + across * right


class Noise:
    """An image of random bytes, in each frame others, as large as the picture on screen."""

    layout: dict[str, Any] = {"kind": "image", "shape": (SCREEN[1], SCREEN[0], 3), "dtype": "uint8"}  # noqa: RUF012

    def __init__(self, library: Library) -> None:
        self.library = library
        self.seed = library.put(np.random.default_rng(34).integers(0, 2**40, self.layout["shape"]))

    def image(self, frame: int) -> Any:
        return self.library.cast(self.seed * (frame + 1) // 256 % 256, "uint8")

    def wrong(self, image: Any, color: Any) -> Any:
        """Return how many numbers are wrong. Colours are exact to 1 of 255, but for the border."""
        cast = self.library.cast
        off = cast(color[1:-1, 1:-1, :3], "int32") - cast(image[1:-1, 1:-1], "int32")
        return (abs(off) > 1).sum() + (color[..., 3] != 255).sum()


@contextmanager
def copies_counted() -> Iterator[Counter[str]]:
    """Count the copies that the package asks the driver for."""
    counted: Counter[str] = Counter()
    call = _cuda._call

    def counting(module: Any, function: str, *arguments: Any) -> Any:
        if "Memcpy" in function or "Memset" in function:
            counted[function] += 1
        return call(module, function, *arguments)

    _cuda._call = counting
    try:
        yield counted
    finally:
        _cuda._call = call


def written_by(process: Any) -> int:
    """Return how many bytes a process has written, to memfds too."""
    lines = Path(f"/proc/{process.pid}/io").read_text().split()
    return int(lines[lines.index("wchar:") + 1])


def check_place(field: wavefield.Field, picture: wavefield.Picture, pointer: int) -> None:
    """Check that an array is the picture itself, in the renderer's memory on the GPU."""
    if field.memory == "host":
        return
    from cuda.bindings import driver

    assert pointer == picture.pointer, "the library made a copy"
    result, kind = driver.cuPointerGetAttribute(
        driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, picture.pointer
    )
    assert int(result) == 0, result
    assert int(kind) == int(driver.CUmemorytype.CU_MEMORYTYPE_DEVICE), kind
    place = field._allocations.find(picture.pointer, picture.nbytes, 1)
    assert place is not None, "it is not in the renderer's memory"


def planes(field: wavefield.Field, make: Callable[[wavefield.Field], Library], count: int, process: Any) -> str:
    """Compare depth, normal and index of `count` frames. Return the words for the table."""
    library = make(field)
    plane = Plane(library)
    wrong_in = library.compiled(plane.wrong)
    wrong, compared, taken = 0, 0, 0
    field.parameters["limits"] = (0, 1)  # otherwise those of the first frame
    with copies_counted() as copies:
        for frame in range(count):
            slope = slope_of(frame)
            field.show(plane.heights(slope), copy=True)
            written, before = written_by(process), copies.copy()
            pictures = field.render("depth", "normal", "index", cameras=EYES, size=(SIDE, SIDE))
            arrays = [library.take(picture, frame) for picture in pictures]
            assert copies == before, f"the package copies: {copies - before}"
            if not library.exact or frame % max(1, count // 20) == 0:
                assert pictures[0].frame == frame, f"{pictures[0].frame}, not {frame}"
                for picture, array in zip(pictures, arrays, strict=True):
                    check_place(field, picture, library.pointer(array))
                taken = written_by(process) - written
                # The driver may write its cache of shaders.
                if field.memory == "cuda":
                    few = sum(picture.nbytes for picture in pictures) // 10
                    assert taken < few, f"the renderer wrote {taken} bytes for a picture"
            found = wrong_in(slope, *arrays)
            wrong, compared = wrong + found[0], compared + found[1]
            del arrays, pictures, found
    assert int(compared) > count * len(EYES) * SIDE * SIDE // 2, "most pixels are compared"
    assert int(wrong) == 0, f"{int(wrong)} of {int(compared)} pixels of depth, normal or index are wrong"
    return f"{count} frames of depth, normal and index: {int(compared)} pixels compared, {int(wrong)} wrong"


def colours(field: wavefield.Field, make: Callable[[wavefield.Field], Library], count: int) -> str:
    """Compare the colours of `count` frames, and some with a snapshot. Return the words for the table."""
    library = make(field)
    noise = Noise(library)
    wrong, same = 0, 0
    field.show(noise.image(0), copy=True)
    field.snapshot()
    for frame in range(1, count + 1):
        image = noise.image(frame)
        field.show(image, copy=True)
        picture = field.picture()
        color = library.take(picture, frame)
        if not library.exact or frame % max(1, count // 20) == 0:
            assert picture.frame == frame, f"{picture.frame}, not {frame}"
            check_place(field, picture, library.pointer(color))
        wrong = wrong + noise.wrong(image, color)
        if frame % max(1, count // 20) == 0:
            assert int((color != library.put(field.snapshot())).sum()) == 0, f"frame {frame} is not its snapshot"
            same += 1
        del picture, color, image
    assert int(wrong) == 0, f"{int(wrong)} bytes of colour are wrong"
    return f"{count} of colour, {int(wrong)} wrong, {same} equal to a snapshot in every byte"


def wrong_aside(field: wavefield.Field, make: Callable[[wavefield.Field], Library], count: int) -> int:
    """Compare on a stream that is busy while the next frames are drawn. Return how many numbers are wrong."""
    library = make(field)
    noise = Noise(library)
    wrong = 0
    images = [noise.image(frame) for frame in range(count)]
    field.show(images[0], copy=True)
    field.snapshot()
    for frame in range(1, count):
        field.show(images[frame], copy=True)
        picture = field.picture()
        assert picture.frame == frame
        with library.aside():
            library.delay()
            wrong = wrong + noise.wrong(images[frame], library.take(picture, frame))
        del picture
    with library.aside():
        return int(wrong)


def wrong_at_once(field: wavefield.Field, make: Callable[[wavefield.Field], Library], count: int) -> int:
    """Compare each frame as soon as its picture was asked for. Return how many numbers are wrong.

    It is the last of many views, so that it takes a while: what is on screen is only copied.
    """
    library, views = make(field), [field.camera] * 64
    noise = Noise(library)
    field.show(noise.image(0), copy=True)
    field.snapshot()
    wrong = 0
    for frame in range(1, count):
        image = noise.image(frame)
        field.show(image, copy=True)
        wrong = wrong + noise.wrong(image, library.take(field.render("color", cameras=views), frame)[-1])
    return int(wrong)


def rate(field: wavefield.Field, library: Library, size: tuple[int, int], views: int) -> tuple[str, float]:
    """Return the figures of one size, and the seconds of a call."""
    cameras = cameras_for(views)
    # A software device is slow.
    few = field.memory == "host" or size[0] * size[1] * views > 10_000_000
    calls, waits = (8, 4) if few else (40 if views > 1 else 400, 20)

    def take(number: int) -> None:
        library.take(field.render("color", cameras=cameras, size=size), 2 * number + 1)

    for number in range(2 if field.memory == "host" else 10):  # allocates the places
        take(number)
    library.synchronize()
    start = time.perf_counter()
    for _ in range(calls - 1):
        field.render("color", cameras=cameras, size=size)
    take(0)
    library.synchronize()
    alone = (time.perf_counter() - start) / calls
    start = time.perf_counter()
    for number in range(calls):
        take(number)
    library.synchronize()
    took = (time.perf_counter() - start) / calls
    start = time.perf_counter()
    for number in range(waits):
        take(number)
        library.synchronize()
    waited = (time.perf_counter() - start) / waits
    words = (
        f"{took * 1e6:.0f} us a call, {waited * 1e6:.0f} with a wait for each, {alone * 1e6:.0f} if only the last is "
        f"taken; {views / took:.0f} views/s"
    )
    return words, took


def snapshots(field: wavefield.Field, library: Library, views: int) -> float:
    """Return the seconds of a snapshot from each camera, copied to the GPU. The picture on screen has the same size."""
    cameras = cameras_for(min(views, 16))
    start = time.perf_counter()
    for camera in [*cameras] * (64 // len(cameras)):
        field.camera = Camera(*camera[:3].tolist())
        library.put(field.snapshot())
        library.synchronize()
    return (time.perf_counter() - start) / (64 // len(cameras) * len(cameras))


def cameras_for(views: int) -> np.ndarray:
    return np.array([[0.3 + 0.01 * view, 0.5, 3.0, 0.0, 0.0, 0.0] for view in range(views)])
