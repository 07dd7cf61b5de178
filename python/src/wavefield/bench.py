"""Measures what a frame costs from Python on this machine: `python -m wavefield.bench`.

A kernel of PyTorch or CuPy, or else of NumPy, writes a new array each frame, and a renderer without a window draws it.
docs/race.md has the figures beside those of other libraries.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import wavefield

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZE, WARM = (1280, 720), 30
"""The picture's width and height, and the most frames before those that count."""

COLUMNS = {
    "array": "the array is computed, and nothing is drawn",
    "drawn": "show(x) of each frame, and no picture is asked for",
    "GPU": "show(x) and picture(), which stays on the GPU; the next array is computed after it",
    "CPU": "show(x) and snapshot(): the picture comes to the CPU, and then the next array is computed",
    "behind": "pictures(…): each picture comes to the CPU while the next two arrays are computed",
}


class Library(NamedTuple):
    """The library that computes the arrays."""

    name: str
    module: Any
    place: dict[str, Any]
    """The arguments that put an array on its device."""
    wait: Callable[[], object]
    """Waits until the GPU has done all."""
    memory: Callable[[], contextlib.AbstractContextManager[object]]
    """Arrays made inside are shown without a copy."""


def library_of(wish: str) -> Library:
    """Return the library of this name, or for "auto" the first that works here."""
    if wish in ("auto", "torch"):
        os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
        with contextlib.suppress(ImportError):
            torch = import_module("torch")
            if torch.cuda.is_available():
                return Library("torch", torch, {"device": "cuda"}, torch.cuda.synchronize, contextlib.nullcontext)
    if wish in ("auto", "cupy"):
        with contextlib.suppress(ImportError):
            cupy = import_module("cupy")
            if cupy.is_available():
                return Library("cupy", cupy, {}, cupy.cuda.Device().synchronize, wavefield.allocator)
    if wish in ("auto", "numpy"):
        return Library("numpy", import_module("numpy"), {}, lambda: None, contextlib.nullcontext)
    raise SystemExit(f"{wish} finds no GPU here; --library numpy needs none")


class Scene:
    """Points, or an image: `side` times `side` numbers. Two arrays take turns."""

    def __init__(self, kind: str, library: Library, side: int) -> None:
        self.kind = kind
        self.limits = (-0.3, 0.3) if kind == "points" else (0.0, 1.0)
        self._module, numbers = library.module, {"dtype": library.module.float32, **library.place}
        line = self._module.linspace(-1, 1, side, **numbers)
        z, x = (axis.reshape(-1) for axis in self._module.meshgrid(line, line, indexing="ij"))
        shape = (side * side, 3) if kind == "points" else (side, side)
        with library.memory():
            self.arrays = [self._module.zeros(shape, **numbers) for _ in range(2)]
        self._values = [array[:, 1] if kind == "points" else array for array in self.arrays]
        self._phase = (8 * x + 3 * z).reshape(tuple(self._values[0].shape))
        for array in self.arrays if kind == "points" else ():
            array[:, 0], array[:, 2] = x, z

    def make(self, frame: int) -> Any:
        """Compute the array of a frame."""
        values = self._values[frame % 2]
        self._module.add(self._phase, 0.1 * frame, out=values)
        self._module.sin(values, out=values)
        values *= (self.limits[1] - self.limits[0]) / 2
        values += (self.limits[0] + self.limits[1]) / 2
        return self.arrays[frame % 2]


def timed(frames: int, frame: Callable[[int], object], finish: Callable[[], object]) -> float:
    """Return the milliseconds of a frame."""
    warm = min(WARM, frames)
    for number in range(warm):
        frame(number)
    finish()
    start = time.perf_counter()
    for number in range(warm, warm + frames):
        frame(number)
    finish()
    return (time.perf_counter() - start) / frames * 1e3


def columns(scene: Scene, library: Library, field: wavefield.Field, frames: int) -> list[float]:
    """Return the milliseconds of COLUMNS."""

    def finish() -> None:
        field.snapshot()
        library.wait()

    def show(number: int) -> None:
        field.show(scene.make(number))

    def picture(number: int) -> None:
        show(number)
        library.module.from_dlpack(field.picture())

    def snapshot(number: int) -> None:
        show(number)
        field.snapshot()

    found = [timed(frames, scene.make, library.wait)]
    found += [timed(frames, frame, finish) for frame in (show, picture, snapshot)]
    numbers = itertools.count()
    pictures = field.pictures(scene.make(number) for number in numbers)
    return [*found, timed(frames, lambda _number: next(pictures), finish)]


def hand_over(scene: Scene, library: Library, field: wavefield.Field, frames: int) -> tuple[float, float]:
    """Return the microseconds of CPU that `show` takes, and a frame of a loop, when nothing makes it wait."""
    shows, loops = [], []
    for number in range(frames):
        array = scene.make(number)
        field.snapshot()
        library.wait()
        start = time.thread_time()
        field.show(array)
        shows.append(time.thread_time() - start)
    for _ in range(frames):
        field.snapshot()
        start = time.thread_time()
        with field.frame() as frame:
            library.module.from_dlpack(frame)
        loops.append(time.thread_time() - start)
    return 1e6 * statistics.median(shows), 1e6 * statistics.median(loops)


def views(library: Library, field: wavefield.Field, frames: int) -> float:
    """Return the milliseconds of 16 views at once."""
    cameras = [wavefield.Camera(0.1 * number, 0.5, 3.0) for number in range(16)]

    def render(_number: int) -> None:
        library.module.from_dlpack(field.render(cameras=cameras, size=(256, 256)))

    return timed(max(frames // 10, 1), render, library.wait)


def lines(library: Library, side: int, frames: int) -> Iterator[str]:
    """Measure, and yield the table."""
    for kind in ("points", "image"):
        scene = Scene(kind, library, side)
        array, width, height = scene.arrays[0], *SIZE
        with wavefield.launch(
            like=array,
            kind=kind,
            shape=tuple(array.shape),
            memory="host" if library.name == "numpy" else "cuda",
            headless=True,
            arguments=["--size", f"{width}x{height}", "--samples", "1"],
        ) as field:
            field.parameters["limits"] = scene.limits
            if kind == "points":
                field.parameters["size"] = 2
                yield f"{field.server} on {field.device_name}, {library.name} {library.module.__version__}"
                yield f"{width}x{height}, {frames} frames, milliseconds a frame"
                yield " " * 18 + "".join(f"{name:>9}" for name in COLUMNS)
            found = columns(scene, library, field, frames)
            how = "" if field.shown is None or not field.shown.copied else f"  {field.shown.reason}"
            yield f"{kind} {side}x{side}".ljust(18) + "".join(f"{number:9.2f}" for number in found) + how
            still = timed(frames, lambda _number: field.snapshot(), library.wait)
            show, loop = hand_over(scene, library, field, frames)
            yield f"  snapshot() with nothing new {still:.2f} ms; CPU of show {show:.0f} µs, of a frame {loop:.0f} µs"
            if kind == "points":
                yield f"  16 views of 256x256: {views(library, field, frames):.2f} ms"
    yield ""
    yield from (f"{name}: {words}" for name, words in COLUMNS.items())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m wavefield.bench", description="What a frame costs from Python.")
    parser.add_argument("--library", choices=("auto", "torch", "cupy", "numpy"), default="auto")
    parser.add_argument("--frames", type=int, default=300, help="for each figure")
    parser.add_argument("--side", type=int, default=1024, help="the image's rows and columns; so many points squared")
    wish = parser.parse_args()
    if wish.frames < 1 or wish.side < 2:
        parser.error("--frames is at least 1, and --side at least 2")
    try:
        for line in lines(library_of(wish.library), wish.side, wish.frames):
            print(line, flush=True)
    except wavefield.WavefieldError as error:
        raise SystemExit(f"bench: {error}") from None


if __name__ == "__main__":
    main()
