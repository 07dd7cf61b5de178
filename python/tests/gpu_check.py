"""Checks that need an NVIDIA GPU. They print a table at the end. Run them by hand:

    WAVEFIELD_BIN=target/release/wavefield python3 python/tests/gpu_check.py --out target/python-check [CHECK…]

Each check is a process of its own with a time limit, so one that fails, hangs or ruins its CUDA context does not affect
the others. --out gets logs, pictures and figures. `--list` lists the checks.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
REPOSITORY = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "src"))
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])

import gpu_arrays  # noqa: E402
import gpu_parts  # noqa: E402
import gpu_pictures  # noqa: E402
import notebooks  # noqa: E402
import wavefield  # noqa: E402

MEMORY: Any = os.environ.get("CHECK_MEMORY", "cuda")
"""With "host", the checks kill, stop, verify and cost also run without CUDA, and pictures-numpy runs only then."""

PICTURES = int(os.environ.get("CHECK_PICTURES", "200"))
"""How many frames' pictures each library compares: `--pictures`."""

checks: dict[str, tuple[Callable[[Path], str], int]] = {}


class Skipped(Exception):
    """The check cannot run on this machine."""


def check(name: str, seconds: int) -> Callable[[Callable[[Path], str]], Callable[[Path], str]]:
    """Register a check, which returns a line for the table. `seconds` is its time limit."""

    def register(function: Callable[[Path], str]) -> Callable[[Path], str]:
        checks[name] = (function, seconds)
        return function

    return register


def there_is(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing, too
        return False


def need(*modules: str) -> None:
    for module in modules:
        if not there_is(module):
            raise Skipped(f"{module} is not installed")


@contextmanager
def serve(out: Path, name: str, *arguments: str) -> Iterator[tuple[str, Path, subprocess.Popen[bytes]]]:
    """Run a renderer. Yields its socket, the file with its figures once it has ended, and the process."""
    with tempfile.TemporaryDirectory() as folder:
        path, figures = f"{folder}/socket", out / f"{name}.json"
        command = [os.environ.get("WAVEFIELD_BIN", "wavefield"), "serve", "--headless", "--socket", path]
        command += ["--json", str(figures), *([] if MEMORY == "cuda" else ["--size", "160x90"]), *arguments]
        if "--grid" not in command and MEMORY == "host":
            command += ["--grid", "64x64"]  # small enough for a software device
        with open(out / f"{name}.renderer.log", "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            end = time.monotonic() + 60
            while not os.path.exists(path):
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"no renderer: {(out / f'{name}.renderer.log').read_text()[-2000:]}")
                time.sleep(0.01)
            yield path, figures, process
            if process.poll() is not None:
                raise RuntimeError(f"the renderer has ended: {(out / f'{name}.renderer.log').read_text()[-2000:]}")
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise RuntimeError("the renderer did not end within 20 s of SIGTERM") from None


def patiently(path: str, **options: Any) -> wavefield.Field:
    """Connect as soon as the client before has left."""
    end = time.monotonic() + 10
    while True:
        try:
            return wavefield.connect(path, memory=MEMORY, **options)
        except (wavefield.Busy, wavefield.NoRenderer):
            if time.monotonic() > end:
                raise
            time.sleep(0.001)


def stamp(frame: wavefield.Frame) -> None:
    """Fill a frame with a value near 0.5, whose low 12 bits are the frame's number plus one, as `verify` expects."""
    bits = 0x3F000000 | ((frame.index + 1) % 4096)
    if MEMORY == "host":
        import numpy as np

        np.asarray(frame).view(np.uint32)[...] = bits
        return
    from cuda.bindings import driver

    (result,) = driver.cuMemsetD32Async(frame.pointer, bits, frame.nbytes // 4, int(frame.stream))
    assert int(result) == 0, result


def client_stretches(figures: Path) -> list[dict[str, Any]]:
    stretches: list[dict[str, Any]] = json.loads(figures.read_text())["stretches"]
    return [stretch for stretch in stretches if stretch["client"] is not None]


# The examples.


def example(out: Path, name: str, *arguments: str) -> str:
    picture = out / f"{name}{''.join(arguments)}.png"
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), "--headless", "--frames", "400", "--output", str(picture)]
    start = time.monotonic()
    subprocess.run([*command, *arguments], check=True)
    return f"{picture} after {time.monotonic() - start:.1f} s"


@check("numba", 180)
def numba(out: Path) -> str:
    need("numba.cuda")
    return example(out, "numba_wave")


@check("cupy", 180)
def cupy(out: Path) -> str:
    need("cupy")
    return example(out, "cupy_ocean")


@check("torch", 240)
def torch(out: Path) -> str:
    need("torch")
    return example(out, "torch_network")


@check("jax", 240)
def jax(out: Path) -> str:
    need("jax")
    return example(out, "jax_reaction")


@check("torch-sees", 240)
def torch_sees(out: Path) -> str:
    """The network that learns from pictures: how far off it is at the end, without having seen them before."""
    need("torch")
    command = [sys.executable, str(EXAMPLES / "torch_sees.py"), "--headless", "--frames", "600", "--grid", "256x256"]
    start = time.monotonic()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    print(done.stdout)
    degrees = [float(line.split()[2]) for line in done.stdout.splitlines() if line.startswith("frame ")]
    assert degrees[-1] < 10, degrees
    return f"{degrees} degrees off after each 100 frames, {time.monotonic() - start:.1f} s"


@check("notebook", 300)
def notebook(out: Path) -> str:
    """The notebook from top to bottom by nbconvert. --out gets the executed copy and its pictures."""
    need("cupy", "nbconvert", "ipykernel", "jupyter_rfb", "PIL")
    executed = notebooks.execute(EXAMPLES / "notebook.ipynb", out)
    pictures = notebooks.save_pictures(executed)
    said = notebooks.printed(executed)
    for words in ("Shown.WITHOUT_COPY", "Shown.COPIED"):
        assert words in said, f"the notebook did not print {words}, but: {said}"
    return f"{executed}, {len(pictures)} pictures"


@check("readme", 180)
def readme(out: Path) -> str:
    """The Python code of the READMEs, unchanged: the first example, the user's own arrays."""
    need("cupy")
    import cupy as cp

    import readmes

    pictures: list[Any] = []

    def ten(field: wavefield.Field) -> Iterator[wavefield.Frame]:
        yield from field.frames(10)
        pictures.append(field.snapshot())

    ran = list(readmes.first_examples())
    own = readmes.block("arrays of your own")
    with serve(out, "readme", "--grid", "256x256") as (path, _, _):
        connect = wavefield.connect
        wavefield.Field.__iter__ = ten  # type: ignore[method-assign]
        for code in readmes.first_examples().values():
            field = patiently(path)
            wavefield.connect = lambda field=field: field  # type: ignore[assignment, misc]
            exec(code, {})
            wavefield.connect = connect
        with patiently(path) as field:
            rows, cols, _ = field.shape
            mine = cp.zeros(field.shape, cp.float32)
            mine[..., 0], mine[..., 2] = cp.linspace(-1, 1, cols), cp.linspace(-1, 1, rows)[:, None]
            mine[..., 1] = mine[..., 3] = 0.3 * cp.sin(8 * mine[..., 0])
            exec(own, {"cp": cp, "field": field, "v": mine})
            pictures.append(field.snapshot())
            ran.append("your own arrays")
    assert all(map(readmes.shows_something, pictures)), [readmes.shows_something(picture) for picture in pictures]
    return f"pictures of {', '.join(ran)}"


# Arrays without a copy, with the right bytes.


@check("no-copy", 180)
def no_copy(out: Path) -> str:
    """Each installed library gets the frame's own address, and the renderer draws what it writes."""
    taken = []
    with serve(out, "no-copy", "--grid", "64x64") as (path, _, _), patiently(path) as field:
        import numpy as np
        from cuda.bindings import driver

        def through(name: str, write: Callable[[wavefield.Frame], int]) -> None:
            if not there_is(name):
                return
            for value in range(8):
                with field.frame() as frame:
                    assert write(frame) == frame.pointer, f"{name} made a copy"
                    seen = np.empty(field.shape, np.float32)
                    stream = int(frame.stream)
                    (result,) = driver.cuMemcpyDtoHAsync(seen.ctypes.data, frame.pointer, seen.nbytes, stream)
                    assert int(result) == 0, result
                    (result,) = driver.cuStreamSynchronize(stream)
                    assert int(result) == 0, result
                    assert (seen == 7).all(), f"{name}, frame {value}: {seen}"
            taken.append(name)

        def by_numba(frame: wavefield.Frame) -> int:
            from numba import cuda

            cuda.select_device(field.device)
            array = cuda.as_cuda_array(frame, sync=False)
            array.copy_to_device(np.full(field.shape, 7, np.float32), stream=cuda.external_stream(int(frame.stream)))
            return int(array.__cuda_array_interface__["data"][0])

        def by_core(frame: wavefield.Frame) -> int:
            from cuda.core.utils import StridedMemoryView

            view = StridedMemoryView.from_any_interface(frame, stream_ptr=int(frame.stream))
            assert tuple(view.shape) == field.shape
            (result,) = driver.cuMemsetD32Async(view.ptr, 0x40E00000, frame.nbytes // 4, int(frame.stream))
            assert int(result) == 0, result
            return int(view.ptr)

        def by_cupy(frame: wavefield.Frame) -> int:
            import cupy as cp

            first, second = cp.asarray(frame), cp.from_dlpack(frame)
            first[...] = 3
            second[...] = 7
            assert first.data.ptr == second.data.ptr
            return int(first.data.ptr)

        def by_torch(frame: wavefield.Frame) -> int:
            import torch

            tensor = torch.from_dlpack(frame)
            tensor.fill_(7)
            assert torch.as_tensor(frame, device=f"cuda:{field.device}").data_ptr() == tensor.data_ptr()
            return int(tensor.data_ptr())

        def by_jax(frame: wavefield.Frame) -> int:
            import jax.numpy as jnp

            frame.copy_from(jnp.full(field.shape, 7, jnp.float32))
            return frame.pointer

        # The field's own stream comes first, because an imported library replaces it.
        through("cuda.core", by_core)
        through("numba.cuda", by_numba)
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        through("jax", by_jax)
        through("cupy", by_cupy)
        through("torch", by_torch)
    return f"taken by {', '.join(taken)}"


@check("memory-manager", 120)
def memory_manager(out: Path) -> str:
    need("numba.cuda")
    from numba import cuda

    cuda.set_memory_manager(wavefield.NumbaMemoryManager)
    said = []
    with serve(out, "memory-manager", "--grid", "256x256") as (path, _, _), patiently(path) as field:
        import numpy as np

        cuda.select_device(field.device)
        vertices = np.zeros(field.shape, np.float32)
        vertices[..., 0] = np.linspace(-1, 1, 256)[None, :]
        vertices[..., 2] = np.linspace(-1, 1, 256)[:, None]
        arrays = [cuda.device_array(field.shape, np.float32) for _ in range(2)]
        for index in range(60):
            vertices[..., 1] = 0.2 * np.sin(vertices[..., 0] * 6 + index / 10)
            vertices[..., 3] = 0.5 + 2 * vertices[..., 1]
            arrays[index % 2].copy_to_device(vertices)
            said.append(field.show(arrays[index % 2]))
        field.save(out / "memory-manager.png")
        said.append(field.show(arrays[0][::1].copy_to_host()))
        small = cuda.device_array(4)
        small.copy_to_host()
        del arrays, small
    assert said == [wavefield.Shown.WITHOUT_COPY] * 60 + [wavefield.Shown.COPIED], said
    return f"60 arrays shown without a copy, {out / 'memory-manager.png'}"


# What a client must not be able to do to a renderer.


def client(path: str, wait: bool) -> None:
    """A client for the checks below: writes frames until it is killed."""
    if MEMORY == "cuda":
        from cuda.bindings import driver

        driver.cuInit(0)  # takes a while, and is not part of the check
    if wait:
        sys.stdin.readline()
    with patiently(path) as field:
        print("connected", flush=True)
        for frame in field:
            stamp(frame)
            if frame.index == 0:
                print("drawing", flush=True)


def start_client(path: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--client", path]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def resources(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """Return the number of open descriptors, and the resident KiB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return len(os.listdir(f"/proc/{process.pid}/fd")), int(resident.split()[1])


@check("kill", 500)
def kill(out: Path) -> str:
    """SIGKILL at 200 random moments after connecting. The next client draws each time."""
    moments = random.Random(6)
    rounds = int(os.environ.get("KILL_ROUNDS", "200"))
    with serve(out, "kill") as (path, figures, renderer):
        # Python and CUDA take a while to start, so start some clients before their turn.
        waiting = [start_client(path) for _ in range(8)]
        before = None
        for index in range(rounds):
            victim = waiting.pop(0)
            if index + 8 < rounds:
                waiting.append(start_client(path))
            assert victim.stdin is not None
            assert victim.stdout is not None
            victim.stdin.write("go\n")
            victim.stdin.flush()
            assert victim.stdout.readline() == "connected\n", f"round {index}: the client did not connect"
            # Kill one in four before its first frame, and the others within a quarter of a second after it.
            if index % 4:
                assert victim.stdout.readline() == "drawing\n"
            time.sleep(moments.random() * (0.25 if index % 4 else 0.02))
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            victim.stdin.close()
            victim.stdout.close()
            if index == rounds // 10:
                before = resources(renderer)
        with patiently(path) as field:
            for _ in field.frames(10):
                pass
            assert field.snapshot().any()
        assert before is not None
        end = time.monotonic() + 60
        while (after := resources(renderer))[0] > before[0] and time.monotonic() < end:
            time.sleep(0.01)
    late = max(stretch["late_us"] for stretch in json.loads(figures.read_text())["stretches"])
    assert late < 100_000, f"a frame was {late} us late"
    assert after[0] <= before[0], f"descriptors: {before[0]} after 20 clients, {after[0]} after {rounds}"
    return (
        f"{rounds} clients killed; worst frame {late / 1000:.1f} ms late; descriptors {before[0]} -> {after[0]}, "
        f"resident {before[1] // 1024} -> {after[1] // 1024} MiB (after 20 and after all)"
    )


@check("stop", 120)
def stop(out: Path) -> str:
    """A client stops for 10 s mid-frame. The renderer continues to draw, and so does the client afterwards."""
    with serve(out, "stop") as (path, figures, _):
        victim = start_client(path)
        assert victim.stdin is not None
        assert victim.stdout is not None
        victim.stdin.write("go\n")
        victim.stdin.flush()
        assert victim.stdout.readline() == "connected\n"
        assert victim.stdout.readline() == "drawing\n"
        time.sleep(1)
        victim.send_signal(signal.SIGSTOP)
        time.sleep(10)
        victim.send_signal(signal.SIGCONT)
        time.sleep(1)
        assert victim.poll() is None, "the client was dropped"
        victim.kill()
        victim.communicate()
        with patiently(path) as field:
            for _ in field.frames(10):
                pass
    first = client_stretches(figures)[0]
    late = max(stretch["late_us"] for stretch in client_stretches(figures))
    assert late < 100_000, f"a frame was {late} us late"
    assert first["draws"] > 60 * 10, first
    return (
        f"{first['draws']} draws in {first['seconds']:.1f} s, {first['frames']} frames; worst {late / 1000:.1f} ms late"
    )


@check("verify", 240)
def verify(out: Path) -> str:
    """10,000 frames. The renderer checks each vertex for the frame's number."""
    binary = os.environ.get("WAVEFIELD_BIN", "wavefield")
    if "--verify" not in subprocess.run([binary, "serve", "--help"], capture_output=True, text=True).stdout:
        raise Skipped("this renderer has no serve --verify")
    with serve(out, "verify", "--verify", "--pace", "0") as (path, figures, renderer), patiently(path) as field:
        start = time.monotonic()
        for frame in field.frames(10_000):
            stamp(frame)
        field.snapshot()
        status = field.status()
        assert status.frame_shown == 9_999, status
        seconds = time.monotonic() - start
    found = json.loads(figures.read_text())["verify"]
    assert renderer.returncode == 0, (out / "verify.renderer.log").read_text()[-2000:]
    assert found["frames"] >= 10_000, found
    assert found["wrong_frames"] == found["unchecked_frames"] == 0, found
    return f"10000 frames in {seconds:.1f} s; {found['before_draw']['checked']} vertices looked at, none wrong"


@check("streams", 240)
def streams(out: Path) -> str:
    """2,000 frames that CuPy writes on another stream, by the array interface. Each vertex is checked."""
    need("cupy")
    import cupy as cp

    with serve(out, "streams", "--verify", "--pace", "0") as (path, figures, renderer), patiently(path) as field:
        cp.cuda.Device(field.device).use()
        mine = cp.cuda.Stream(non_blocking=True)
        for frame in field.frames(2_000):
            with mine:
                cp.asarray(frame).view(cp.uint32)[...] = 0x3F000000 | ((frame.index + 1) % 4096)
        field.snapshot()
    found = json.loads(figures.read_text())["verify"]
    assert renderer.returncode == 0, (out / "streams.renderer.log").read_text()[-2000:]
    assert found["frames"] >= 2_000, found
    assert found["wrong_frames"] == found["unchecked_frames"] == 0, found
    return "2000 frames, none wrong"


# The libraries' own arrays, of each kind.

KINDS = {
    "image": ("image", (1080, 1920), "float32"),
    "image, RGBA bytes": ("image", (1080, 1920, 4), "uint8"),
    "points": ("points", (1_000_000, 4), "float32"),
    "surface": ("surface", (1024, 1024), "float32"),
    # PyTorch's array spans several chunks of its memory.
    "image, large": ("image", (4096, 4096), "float32"),
}

Make = Callable[[wavefield.Field], tuple[Any, Callable[[int], None]]]
"""Returns an array for a field, and a function that fills its 32-bit words with a number."""


def bits_of(frame: int) -> int:
    """Return the word that `verify` expects throughout a frame: a float near 0.5, or four bytes."""
    return 0x3F000000 | ((frame + 1) % 4096)


def pointer_of(array: Any) -> int:
    described = array.__array_interface__ if MEMORY == "host" else array.__cuda_array_interface__
    return int(described["data"][0])


def each_kind(out: Path, library: str, make: Make) -> str:
    """Show two arrays in turn 10,000 times, and check every word. Then measure the time without the checks."""
    lines, words = [], []
    for name, (kind, shape, dtype) in KINDS.items():
        layout: dict[str, Any] = {"kind": kind, "shape": shape, "dtype": dtype}
        count = 500 if name == "image, large" else 10_000
        if MEMORY == "host":  # a software device
            layout["shape"], count = (*(min(side, 64) for side in shape[:2]), *shape[2:]), 100
        title = f"kinds-{library}-{name.replace(', ', '-').replace(' ', '-')}"
        with (
            serve(out, title, "--verify", "--pace", "0") as (path, figures, renderer),
            patiently(path, **layout) as field,
        ):
            arrays = [make(field) for _ in range(2)]
            for index in range(count):
                array, fill = arrays[index % 2]
                fill(bits_of(index))
                shown = field.show(array)
                if index < 2:
                    place = field._place(wavefield._memory.source.Source(array).read(), False)
                    assert not isinstance(place, str), f"{library}, {name}: copied: {place}"
                    allocation, offset = place
                    assert allocation.address + offset == pointer_of(array), "it is drawn from where it is"
                assert shown == wavefield.Shown.WITHOUT_COPY, f"{library}, {name}, frame {index}: {shown.reason}"
            field.save(out / f"{title}.png")
            del arrays, array, fill
        found = json.loads(figures.read_text())["verify"]
        assert renderer.returncode == 0, (out / f"{title}.renderer.log").read_text()[-2000:]
        assert found["frames"] >= count, found
        assert found["wrong_frames"] == found["unchecked_frames"] == 0, found
        with serve(out, title, "--pace", "0") as (path, figures, _), patiently(path, **layout) as field:
            arrays = [make(field) for _ in range(2)]
            start, cpu = time.monotonic(), time.process_time()
            for index in range(min(count, 3000)):
                array, fill = arrays[index % 2]
                fill(bits_of(index))
                field.show(array)
            took = (time.process_time() - cpu) / min(count, 3000)
            field.snapshot()
            del arrays, array, fill
        frame = client_stretches(figures)[-1]["frame_us"]
        lines.append(f"{library:8} {name:20} {count:7d} {frame['p50']:8d} {frame['p99']:8d} {took * 1e6:10.0f}")
        words.append(f"{name}: {count} frames, {time.monotonic() - start:.1f} s")
    (out / f"kinds-{library}.txt").write_text("\n".join(lines) + "\n")
    return f"none wrong, none copied; {'; '.join(words)}"


KINDS_HEAD = f"{'microseconds':8} {'':16} {'checked':>7} {'p50':>8} {'p99':>8} {'client CPU':>10}"


def kinds_table(out: Path) -> str:
    """Return the measured cost of a frame, by library and kind."""
    found = [path.read_text().rstrip() for path in sorted(out.glob("kinds-*.txt"))]
    return "\n".join([KINDS_HEAD, *found]) if found else ""


@check("kinds-numpy", 300)
def kinds_numpy(out: Path) -> str:
    if MEMORY != "host":
        raise Skipped("NumPy's arrays are in host memory; CHECK_MEMORY=host tries them")
    import numpy as np

    def make(field: wavefield.Field) -> tuple[Any, Callable[[int], None]]:
        array = field.empty().as_numpy()
        words = array.reshape(-1).view(np.uint32)
        return array, words.fill

    return each_kind(out, "NumPy", make)


@check("kinds-cupy", 300)
def kinds_cupy(out: Path) -> str:
    need("cupy")
    import cupy as cp

    def make(field: wavefield.Field) -> tuple[Any, Callable[[int], None]]:
        cp.cuda.Device(field.device).use()
        with wavefield.allocator():
            array = cp.empty(field.shape, field.dtype)
        words = array.reshape(-1).view(cp.uint32)
        return array, words.fill

    return each_kind(out, "CuPy", make)


@check("kinds-torch", 300)
def kinds_torch(out: Path) -> str:
    need("torch")
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    import torch

    def make(field: wavefield.Field) -> tuple[Any, Callable[[int], None]]:
        torch.cuda.set_device(field.device)
        tensor = torch.empty(field.shape, dtype=getattr(torch, str(field.dtype)), device="cuda")
        words = tensor.reshape(-1).view(torch.int32)

        def fill(bits: int) -> None:
            words.fill_(bits)

        return tensor, fill

    return each_kind(out, "PyTorch", make)


@check("kinds-numba", 300)
def kinds_numba(out: Path) -> str:
    need("numba.cuda")
    from numba import cuda

    cuda.set_memory_manager(wavefield.NumbaMemoryManager)

    @cuda.jit  # type: ignore[untyped-decorator]
    def fill_words(words: Any, bits: Any) -> None:
        at = cuda.grid(1)
        if at < words.size:
            words[at] = bits

    def make(field: wavefield.Field) -> tuple[Any, Callable[[int], None]]:
        import numpy as np

        cuda.select_device(field.device)
        size = int(np.prod(field.shape)) * field.dtype.itemsize // 4
        words = cuda.device_array(size, np.uint32)
        stream = cuda.external_stream(int(field.stream))

        def fill(bits: int) -> None:
            fill_words[-(-size // 256), 256, stream](words, np.uint32(bits))

        return words.view(field.dtype).reshape(field.shape), fill

    return each_kind(out, "Numba", make)


@check("kinds-jax", 180)
def kinds_jax(out: Path) -> str:
    """JAX's arrays are copied once, on the GPU. Checks every word of 1,000 frames of each kind."""
    need("jax")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    reasons = set()
    for name, (kind, shape, dtype) in KINDS.items():
        if name == "image, large":
            continue
        with (
            serve(out, "kinds-jax", "--verify", "--pace", "0") as (path, figures, renderer),
            patiently(path, kind=kind, shape=shape, dtype=dtype) as field,
        ):
            size = field.dtype.itemsize
            words = (*shape[:-1], shape[-1] * size // 4)
            for index in range(1000):
                array = jax.lax.bitcast_convert_type(jnp.full(words, bits_of(index), jnp.uint32), dtype).reshape(shape)
                shown = field.show(array)
                assert shown == wavefield.Shown.COPIED
                reasons.add(shown.reason)
            field.snapshot()
        found = json.loads(figures.read_text())["verify"]
        assert renderer.returncode == 0, (out / "kinds-jax.renderer.log").read_text()[-2000:]
        assert found["wrong_frames"] == found["unchecked_frames"] == 0, found
    return f"1000 frames of each kind, none wrong; {', '.join(reasons)}"


# Pictures for the user's own program.


@contextmanager
def seen_by(out: Path, name: str, layout: dict[str, Any]) -> Iterator[tuple[wavefield.Field, subprocess.Popen[bytes]]]:
    """Give a field with a small picture on screen, and its renderer."""
    size = ["--size", "x".join(map(str, gpu_pictures.SCREEN))] if MEMORY == "cuda" else []
    with serve(out, name, "--pace", "0", *size) as (path, _, renderer), patiently(path, **layout) as field:
        yield field, renderer


def pictures_of(out: Path, library: type[gpu_pictures.Library]) -> str:
    """Compare pictures of each kind by one library."""
    start, name = time.monotonic(), f"pictures-{library.__name__}"
    with seen_by(out, name, gpu_pictures.Plane.layout) as (field, renderer):
        words = gpu_pictures.planes(field, library, PICTURES, renderer)
    with seen_by(out, name, gpu_pictures.Noise.layout) as (field, _):
        words += f"; {gpu_pictures.colours(field, library, PICTURES)}"
    return f"{words}; {time.monotonic() - start:.0f} s"


@check("pictures-torch", 300)
def pictures_torch(out: Path) -> str:
    need("torch")
    return pictures_of(out, gpu_pictures.Torch)


@check("pictures-cupy", 300)
def pictures_cupy(out: Path) -> str:
    need("cupy")
    return pictures_of(out, gpu_pictures.Cupy)


@check("pictures-jax", 300)
def pictures_jax(out: Path) -> str:
    need("jax")
    return pictures_of(out, gpu_pictures.Jax)


@check("pictures-numpy", 300)
def pictures_numpy(out: Path) -> str:
    if MEMORY != "host":
        raise Skipped("NumPy's arrays are in host memory; CHECK_MEMORY=host tries them")
    return pictures_of(out, gpu_pictures.Library)


def picture_library() -> type[gpu_pictures.Library]:
    if MEMORY == "host":
        return gpu_pictures.Library
    if there_is("torch"):
        return gpu_pictures.Torch
    need("cupy")
    return gpu_pictures.Cupy


@check("films", 120)
def films(out: Path) -> str:
    """Each picture of `pictures` is that of its own array, though two arrays are written again and again."""
    need("torch")
    import torch

    layout, levels, count = {"kind": "image", "shape": (512, 512), "dtype": "float32"}, 7, 1000
    two = [torch.empty((512, 512), device="cuda") for _ in range(2)]

    def arrays() -> Iterator[Any]:
        for number in range(count):
            yield two[number % 2].fill_(number % levels / levels)

    with seen_by(out, "films", layout) as (field, _):
        field.parameters["limits"] = (0, 1)
        wanted = []
        for level in range(levels):
            field.show(torch.full((512, 512), level / levels, device="cuda"), copy=True)
            wanted.append(field.snapshot())
        assert len({picture.tobytes() for picture in wanted}) == levels
        for behind in (0, 2, 6):
            pictures = field.pictures(arrays(), behind=behind)
            # The graphics pipeline and compute shaders, which `--raster auto` tries in turn, round differently.
            unlike = (abs(picture.astype(int) - wanted[n % levels]) > 2 for n, picture in enumerate(pictures))
            wrong = sum(pixels.any() for pixels in unlike)
            assert wrong == 0, f"{wrong} of {count} pictures are wrong, {behind} behind"
    return f"3 times {count} pictures, none wrong"


@check("picture-waits", 300)
def picture_waits(out: Path) -> str:
    """Each wait that is left out shows as wrong pixels; with all of them there are none."""
    if MEMORY == "host":
        raise Skipped("host memory has no streams")
    from wavefield._pictures import places as _places

    library, layout = picture_library(), gpu_pictures.Noise.layout
    with seen_by(out, "picture-waits", layout) as (field, _):
        assert gpu_pictures.wrong_aside(field, library, 40) == 0, "with all waits"
    with seen_by(out, "picture-waits", layout) as (field, _):
        assert gpu_pictures.wrong_at_once(field, library, 40) == 0, "with all waits"
    with seen_by(out, "picture-waits", layout) as (field, _):
        ring: Any = field._ring
        ring.wait_drawn = lambda _value, _stream: None
        undrawn = gpu_pictures.wrong_at_once(field, library, 40)
    done, _places.Place.done = _places.Place.done, property(lambda _: True)  # type: ignore[assignment, method-assign]
    try:
        with seen_by(out, "picture-waits", layout) as (field, _):
            early = gpu_pictures.wrong_aside(field, library, 40)
    finally:
        _places.Place.done = done  # type: ignore[method-assign]
    assert undrawn > 0, "a consumer that does not wait for `drawn` was not noticed"
    assert early > 0, "memory that is used again too early was not noticed"
    return (
        f"none wrong; {undrawn} wrong without the wait for `drawn`, {early} without the one before memory is used again"
    )


@check("picture-rates", 500)
def picture_rates(out: Path) -> str:
    """How long pictures take, beside as many snapshots and copies to the GPU."""
    import numpy as np

    make = picture_library()
    sizes, counts = [((84, 84), 128), ((84, 84), 512), ((1280, 720), 512)], [1, 16, 256]
    if MEMORY == "host":  # a software device
        sizes, counts = [(gpu_pictures.SCREEN, 64)], [1, 4]
    lines = []
    for size, sides in sizes:
        side = np.linspace(-9, 9, sides, dtype=np.float32)
        heights = 0.5 + 0.2 * np.sin(side) * np.sin(side)[:, None]
        arguments = ["--size", f"{size[0]}x{size[1]}"] if MEMORY == "cuda" else []
        took, shots, words = {}, {}, {}
        # Snapshots are of what is on screen, so they need a renderer that draws all the time.
        for pace in ("0", "10000"):
            with serve(out, "picture-rates", "--pace", pace, *arguments) as (path, _, _):
                for views in counts:
                    with patiently(path, kind="surface", shape=(sides, sides), dtype="float32") as field:
                        library = make(field)
                        field.show(library.put(heights))
                        if pace == "0":
                            words[views], took[views] = gpu_pictures.rate(field, library, size, views)
                        else:
                            shots[views] = gpu_pictures.snapshots(field, library, views)
        for views in counts:
            lines.append(
                f"{size[0]}x{size[1]}, a surface of {sides}x{sides}, {views} views: {words[views]}; "
                f"snapshot and copy: {shots[views] * 1e6:.0f} us a view, {shots[views] * views / took[views]:.1f} times"
            )
            print(lines[-1], flush=True)
    (out / "picture-rates.txt").write_text("\n".join(lines) + "\n")
    return f"{out / 'picture-rates.txt'}\n" + "\n".join(lines)


@check("show", 120)
def show_in_a_loop(out: Path) -> str:
    """`wavefield.show` with a new tensor for each of 600 pictures: none is copied, and memory is reused."""
    need("torch")
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    import warnings

    import torch

    warnings.simplefilter("error")
    x = torch.linspace(-8, 8, 1024, device="cuda")
    addresses, start = set(), time.monotonic()
    for step in range(600):
        tensor = torch.sin(x * x[:, None] - 0.1 * step)
        field = wavefield.show(tensor, limits=(-1, 1), window=False)
        assert field.shown == wavefield.Shown.WITHOUT_COPY, getattr(field.shown, "reason", None)
        addresses.add(tensor.data_ptr())
    field.save(out / "show.png")
    seconds = time.monotonic() - start
    field.close()
    assert len(addresses) < 50, f"{len(addresses)} places: memory that was shown is never reused"
    return f"600 pictures in {seconds:.1f} s, in {len(addresses)} places, none copied; {out / 'show.png'}"


@check("arrays", 180)
def arrays(out: Path) -> str:
    """Each kind of array that the installed libraries make, and calls while a graph is captured: right, or refused."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    lines, failed = gpu_arrays.table([library for library in gpu_arrays.LIBRARIES if there_is(library)])
    (out / "arrays.txt").write_text("\n".join(lines) + "\n")
    assert not failed, f"{failed} rows failed: see {out / 'arrays.txt'}"
    return "\n".join([lines[-1], *lines[:-1]])


@check("fits", 240)
def fits(out: Path) -> str:
    """Points in metres far from the origin, of each library: each pixel of `index` is where NumPy projects the point.

    Also measures how long the limits and the fit of a million points take.
    """
    need("cupy")
    import cupy
    import numpy as np

    from projection import project
    from wavefield._look import fit as _fit, limits as _limits, range as _range
    from wavefield._memory.layout import Layout

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    numbers = np.random.default_rng(51)
    for dtype in ("uint8", "uint32", "uint64", "int32", "int64", "float16", "float32", "float64"):
        for shape, kind in (((700, 523), "image"), ((1, 1), "image"), ((300, 70, 4), "mesh"), ((9001, 3), "points")):
            if dtype.startswith("float"):
                host = (numbers.normal(size=shape) * 100 - 7).astype(dtype)
                host[numbers.random(shape) < 0.1], host[numbers.random(shape) < 0.1] = np.nan, -np.inf
            else:
                host = numbers.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
            there = cupy.asarray(host)
            for array in (there, there[::-2, ::3] if kind != "points" else there[::3]):
                values, box = _range.Search(array, Layout.of(kind, array.shape, "float32")).ends(bool)
                flat = array.get().reshape(-1, array.shape[-1])
                placed = flat[np.isfinite(flat[:, :3]).all(1)]
                column = {"mesh": placed[:, 3:4], "points": placed[:, 1:2]}.get(kind, flat)
                finite = column[np.isfinite(column)]
                assert values == ((finite.min(), finite.max()) if finite.size else None), f"{dtype}, {kind}, {values}"
                places = placed[:, :3]
                assert kind == "image" or box == (tuple(places.min(0)), tuple(places.max(0))), f"{dtype}, {kind}, {box}"
    cloud = numbers.normal(size=(1_000_000, 3)) * 800 + [500_000, 5_400_000, 300]
    drew = []
    for name in filter(there_is, ("cupy", "torch", "jax")):
        library = importlib.import_module({"jax": "jax.numpy"}.get(name, name))
        for dtype in ("float32", "float64"):
            if name == "jax" and dtype == "float64":
                continue  # off by default
            host = cloud.astype(dtype)
            points, few = (
                library.as_tensor(places, device="cuda") if name == "torch" else library.asarray(places)
                for places in (host, host[:2000])
            )
            assert float(points[0, 0]) == host[0, 0], "it is there"
            layout, times = Layout.of("points", host.shape, "float32"), []
            for _ in range(250):
                start = time.perf_counter()
                search = _range.Search(points, layout)
                choice = _range.limits_of(_limits.Choice(), layout, dtype, None, partial(search.ends, bool))
                fit = _range.fit_of(_fit.Fit(), layout, dtype, None, partial(search.ends, bool))
                times.append(1e6 * (time.perf_counter() - start))
            assert choice.limits == (host[:, 1].min(), host[:, 1].max())
            calls = []
            if dtype == "float32":
                with wavefield.launch(like=points, kind="points", shape=points.shape) as field:
                    for _ in range(60):
                        start = time.perf_counter()
                        field.show(points)
                        calls.append(1e6 * (time.perf_counter() - start))
                        time.sleep(0.01)
            field = wavefield.show(few, kind="points", size=1, window=False)
            assert field.memory == MEMORY
            index, depth = (cupy.asarray(p).get()[..., 0] for p in field.render("index", "depth", size=(640, 480)))
            at, deep = project(host[:2000].astype(np.float64), field.camera, 640, 480)
            rows, cols = np.nonzero(index >= 0)
            seen = index[rows, cols]
            assert len(rows) > 1500, f"{name}, {dtype}: {len(rows)} of 2000 points are in the picture"
            assert abs(at[seen] - np.stack([cols + 0.5, rows + 0.5], 1)).max() < 1.05
            np.testing.assert_allclose(depth[rows, cols], deep[seen], rtol=1e-4)
            field.save(out / f"fit-{name}-{dtype}.png")
            field.close()
            warm, first = sorted(times[50:])[100], sorted(times[:50])[25]
            drew.append(f"{name} {dtype}: {warm:.0f} µs, at first {first:.0f}, radius {fit.radius:.0f}")
            if calls:
                drew.append(f"field.show {sorted(calls)[30]:.0f} µs")
    return "; ".join(drew)


@check("parts", 240)
def parts(out: Path) -> str:
    """Colours, sizes, faces, edges and vectors as arrays of each library: the pictures of NumPy's."""
    if MEMORY == "host":
        return gpu_parts.compare("host", lambda array: array)
    makers: dict[str, Callable[[Any], Any]] = {}
    if there_is("cupy"):
        import cupy

        makers["cupy"] = cupy.asarray
    if there_is("torch"):
        import torch

        makers["torch"] = partial(torch.as_tensor, device="cuda")
    if not makers:
        raise Skipped("neither cupy nor torch is installed")
    return "; ".join(f"{name}: {gpu_parts.compare(MEMORY, make)}" for name, make in makers.items())


THREE_LINES = {
    "cupy": """import cupy as cp, wavefield
y, x = cp.mgrid[-3:3:480j, -4:4:640j]
wavefield.show(cp.sin(x * x + y * y), colormap="magma").save("cupy.png")
""",
    "torch": """import torch, wavefield
x = torch.linspace(-4, 4, 640, device="cuda")
wavefield.show(torch.sin(x * x + x[:480, None] ** 2), colormap="plasma").save("torch.png")
""",
    "numpy": """import numpy as np, wavefield
y, x = np.mgrid[-3:3:480j, -4:4:640j]
wavefield.show(np.sin(x * x + y * y)).save("numpy.png")
""",
}


@check("wheel", 300)
def wheel(out: Path) -> str:
    """The wheel in a virtual environment of its own, with this machine's libraries and without the repository.

    WAVEFIELD_WHEEL names it. By default it is the one that `scripts/wheel.sh release` leaves in target/wheel/.
    """
    named = os.environ.get("WAVEFIELD_WHEEL")
    found = [Path(named).resolve()] if named else sorted((REPOSITORY / "target" / "wheel").glob("*.whl"))
    if not found:
        raise Skipped("no wheel was found: scripts/wheel.sh release makes one, or WAVEFIELD_WHEEL names one")
    venv = out / "wheel-venv"
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
    (own,) = venv.glob("lib/python3.*/site-packages")
    # After its own path, so the wheel's wavefield comes first.
    (own / "libraries.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")) + "\n")
    install = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*install, "--force-reinstall", str(found[-1])], check=True)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("WAVEFIELD_BIN", "PYTHONPATH", "DISPLAY", "WAYLAND_DISPLAY")
    }
    drew = []
    for library, script in THREE_LINES.items():
        if not there_is(library):
            continue
        end = "import sys\nfield = wavefield._show._shower.field\nprint(field.memory, field.shown, field.shown.reason)"
        done = subprocess.run(
            [str(venv / "bin" / "python"), "-c", script + end],
            cwd=out,
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, f"{library}: {done.stderr[-2000:]}"
        assert done.stdout.startswith(MEMORY), f"{library}: {done.stdout}{done.stderr}"
        assert (out / f"{library}.png").stat().st_size > 10_000
        drew.append(f"{library} ({done.stdout.strip()})")
    return f"{found[-1].name} draws by {'; '.join(drew)}"


@check("peer", 180)
def peer(out: Path) -> str:
    """Arrays on GPU 1, shown by a renderer on GPU 0, make the same pictures as NumPy's. `launch(like=)` finds GPU 1."""
    need("torch", "cuda.bindings")
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # memory that only device 1 may access
    from wavefield._memory import cuda as _cuda

    if MEMORY != "cuda" or _cuda.count() < 2:
        raise Skipped("one GPU")
    import numpy as np
    import torch

    options: dict[str, Any] = {"shape": (512, 640), "arguments": ["--size", "640x512"]}
    wave = np.sin(np.linspace(0, 30, 640, dtype=np.float32) * np.linspace(1, 2, 512, dtype=np.float32)[:, None])
    torch.cuda.set_device(1)
    there, side = torch.from_numpy(wave).cuda(1), torch.cuda.Stream(1)
    arrays = [torch.zeros((512, 640), device="cuda:1"), torch.zeros((512, 700), device="cuda:1")[:, :640]]
    torch.cuda.synchronize()
    late = 100_000_000  # cycles: some 50 ms
    orders, wrong = _cuda.order_across, {True: 0, False: 0}
    with wavefield.launch(device=0, **options) as field:
        assert field.device == 0, field.device
        field.parameters.update(limits=(-1, 1))
        for waits in (True, False):  # without the waits, the check must find wrong pictures
            for index in range(16):
                scale, array = (index + 1) / 16, arrays[index // 4 % 2]
                field.show(wave * np.float32(scale))
                expected = field.snapshot()
                if index % 2:  # the copy is late, and must come before the next write
                    with torch.cuda.device(0):
                        torch.cuda._sleep(late)
                with torch.cuda.stream(side if index // 2 % 2 else torch.cuda.default_stream(1)):
                    if not index % 2:  # the write is late, and must come before the copy
                        torch.cuda._sleep(late)
                    torch.mul(there, scale, out=array)
                    _cuda.order_across = orders if waits else lambda *_: None
                    shown = field.show(array)
                    _cuda.order_across = orders
                    array.fill_(7)
                assert "from GPU 1 to GPU 0" in shown.reason, shown.reason
                wrong[waits] += not np.array_equal(field.snapshot(), expected)
                torch.cuda.synchronize()
        assert wrong[True] == 0, f"{wrong[True]} of 16 pictures are wrong"
        assert wrong[False] > 0, "the check finds nothing without the waits"
        torch.cuda.set_device(0)  # the library's current device need not be the array's
        others: list[Any] = [there, SimpleNamespace(__cuda_array_interface__=there.__cuda_array_interface__)]
        if there_is("cupy"):
            import cupy as cp

            with cp.cuda.Device(1):
                others.append(cp.asarray(wave))
        field.show(wave)
        expected = field.snapshot()
        for other in others:
            field.show(np.zeros_like(wave))
            shown = field.show(other)
            assert "from GPU 1 to GPU 0" in shown.reason, shown.reason
            assert np.array_equal(field.snapshot(), expected), f"{type(other)} on GPU 1 makes another picture"
    with wavefield.launch(like=there, **options) as field:
        assert field.device == 1, field.device
        field.parameters.update(limits=(-1, 1))
        shown = field.show(there)
        picture = field.snapshot()
        field.show(wave)
        assert np.array_equal(picture, field.snapshot())
    large = {"expandable segments": torch.ones((4096, 4096), device="cuda:1")}
    if there_is("cupy"):
        with cp.cuda.Device(1):
            large["cudaMalloc"] = torch.from_dlpack(cp.ones((4096, 4096), dtype=np.float32))
    driver: Any = _cuda.Context
    call = driver.call
    copies: list[Any] = []

    def timed(context: Any, name: str, *arguments: Any) -> Any:
        """Surround the peer copy by events."""
        if name != "cuMemcpyPeerAsync":
            return call(context, name, *arguments)
        begin, end = (call(context, "cuEventCreate", 0) for _ in range(2))
        call(context, "cuEventRecord", begin, arguments[-1])
        call(context, name, *arguments)
        call(context, "cuEventRecord", end, arguments[-1])
        return copies.append((context, begin, end))

    said = []
    with wavefield.launch(device=0, shape=(4096, 4096), arguments=["--pace", "0"]) as field:
        into = torch.empty((4096, 4096), device="cuda:0")
        driver.call = timed
        for kind, array in large.items():
            copies.clear()
            rates = []
            for copy in (field.show, into.copy_):
                for count in (20, 200):
                    torch.cuda.synchronize(0), torch.cuda.synchronize(1)
                    start = time.perf_counter()
                    for _ in range(count):
                        copy(array)
                    torch.cuda.synchronize(0), torch.cuda.synchronize(1)
                rates.append(count * array.nbytes / (time.perf_counter() - start) / 1e9)
            taken = sorted(call(context, "cuEventElapsedTime", *events) / 1e3 for context, *events in copies)
            said.append(
                f"64 MiB of {kind} shown: {rates[0]:.1f} GB/s, of it the copy alone "
                f"{array.nbytes / taken[len(taken) // 2] / 1e9:.1f} GB/s, copied by PyTorch: {rates[1]:.1f} GB/s"
            )
        driver.call = call
    return (
        f"32 pictures: none wrong, {wrong[False]} of 16 without the waits; on its own GPU: {shown} {shown.reason}; "
        + "; ".join(said)
    )


class Rank(subprocess.Popen[bytes]):
    """A rank of `gpu_ranks.py`. It prints to a file: what it starts itself may keep a pipe open."""

    def __init__(self, file: Path, environment: dict[str, str], *options: str) -> None:
        self.file = file
        command = [sys.executable, str(HERE / "gpu_ranks.py"), *options]
        with open(file, "wb") as said:
            super().__init__(command, env={**os.environ, **environment}, stdout=said, stderr=said)

    def said(self, seconds: float) -> str:
        """Return what it has printed, once it has ended."""
        self.wait(seconds)
        return self.file.read_text()


@contextmanager
def ranks(count: int, *options: str) -> Iterator[list[Rank]]:
    """Start the ranks."""
    shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
    with tempfile.TemporaryDirectory() as folder:
        started = [
            Rank(Path(folder, str(rank)), {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}, *options)
            for rank in range(count)
        ]
        try:
            yield started
        finally:
            for process in started:
                process.kill()
                process.wait()


@check("ranks", 400)
def one_wave_on_several(out: Path) -> str:
    """One rank and two make the same picture; how long a frame takes; every vertex is that of its frame."""
    need("torch", "cuda.bindings")
    from wavefield._memory import cuda as _cuda

    if MEMORY != "cuda" or _cuda.count() < 2:
        raise Skipped("one GPU")
    said = []
    for side, frames in (("1024", 600), ("4096", 200)):
        pictures = []
        for count, mode in ((1, "recv"), (2, "recv"), (2, "gather"), (2, "recv"), (1, "recv"), (2, "gather")):
            with serve(out, f"ranks-{side}-{count}-{mode}", "--pace", "0", "--grid", f"{side}x{side}") as (path, _, _):
                picture = out / f"ranks-{side}-{count}-{mode}.png"
                options = ("--socket", path, "--frames", str(frames), "--output", str(picture))
                with ranks(count, mode, "100", *options) as started:
                    printed = [rank.said(120) for rank in started]
                assert all(process.returncode == 0 for process in started), printed
            pictures.append(picture.read_bytes())
            found = json.loads(next(line for line in printed[0].splitlines() if line.startswith("{")))
            said.append(f"{side} {count} {mode} {found['us']:.0f} µs")
        assert all(picture == pictures[0] for picture in pictures), f"{side}: another picture"
    with serve(out, "ranks-verify", "--verify", "--pace", "0", "--grid", "1024x1024") as (path, figures, renderer):
        with ranks(2, "stamp", "0", "--socket", path, "--frames", "1000") as started:
            printed = [rank.said(120) for rank in started]
        assert all(process.returncode == 0 for process in started), printed
    tally = json.loads(figures.read_text())["verify"]
    assert renderer.returncode == 0 and tally["frames"] >= 900, tally
    assert tally["wrong_frames"] == tally["unchecked_frames"] == 0, tally
    return (
        f"{'; '.join(said)}; verify: {tally['frames']} frames, {tally['before_draw']['checked']} vertices, none wrong"
    )


def rank_fails(out: Path, how: signal.Signals, resume_after: float | None = None) -> str:
    """Make a rank fail. It is named, rank 0 exits with 1, and the renderer keeps the last whole frame."""
    need("torch", "cuda.bindings")
    from wavefield._memory import cuda as _cuda

    if MEMORY != "cuda" or _cuda.count() < 2:
        raise Skipped("one GPU")
    with (
        serve(out, f"rank-{how.name}", "--pace", "0") as (path, figures, _),
        ranks(2, "recv", "0", "--socket", path, "--frames", "1000000") as started,
    ):
        time.sleep(15)
        started[1].send_signal(how)
        before = time.monotonic()
        if resume_after:
            time.sleep(resume_after)
            started[1].send_signal(signal.SIGCONT)
        words = started[0].said(150).strip().splitlines()[-2:]
        assert started[0].returncode == 1, (started[0].returncode, words)
        assert any("no answer from rank 1" in line for line in words), words
        after = time.monotonic() - before
        if resume_after:
            said = started[1].said(150)
            assert started[1].returncode == 1 and "error: rank 1 was late" in said, (started[1].returncode, said)
    drawn = client_stretches(figures)[-1]["frames"]
    assert drawn > 100, drawn
    return f"{words[-1]!r} after {after:.0f} s, {drawn} frames drawn"


@check("rank-dies", 240)
def a_rank_dies(out: Path) -> str:
    return rank_fails(out, signal.SIGKILL)


@check("rank-hangs", 240)
def a_rank_hangs(out: Path) -> str:
    return rank_fails(out, signal.SIGSTOP)


@check("rank-late", 240)
def a_rank_is_late(out: Path) -> str:
    """The rank goes on after the others have given up, and prints that it was late."""
    return rank_fails(out, signal.SIGSTOP, resume_after=45)


# Releasing memory and connections.


@check("finalizers", 120)
def finalizers(out: Path) -> str:
    """While the renderer is stopped, dropping the last array of some memory neither waits nor unmaps."""
    if MEMORY != "cuda":
        raise Skipped("host memory is not mapped by CUDA")
    with serve(out, "finalizers") as (path, _, renderer), patiently(path) as field:
        context = field._context
        assert context is not None
        array = field.empty()
        del array
        assert context.retired == 0, "the GPU had nothing to do"
        array = field.empty()
        renderer.send_signal(signal.SIGSTOP)
        try:
            for frame in field.frames(field.ring + 1):  # the last waits on the GPU
                stamp(frame)
            start = time.monotonic()
            del array
            took = time.monotonic() - start
            assert context.retired == 1
        finally:
            renderer.send_signal(signal.SIGCONT)
        field.snapshot()
        for frame in field.frames(1):
            stamp(frame)
        assert context.retired == 0, "unmapped once the GPU was idle"
        for _ in range(200):
            for frame in field.frames(1):
                stamp(frame)
            field.empty()
        most = context.retired
        assert most <= 17, most
    del frame
    assert context.retired == 0
    return f"took {took * 1e6:.0f} us; {most} of 200 arrays without a pause are still mapped"


@check("exit", 240)
def exit_without_close(out: Path) -> str:
    """Programs that do not close their field end at once and print nothing, even if the renderer has ended."""
    took = []
    begin = f"""
import os, signal, sys, wavefield
sys.path.insert(0, {str(HERE)!r})
from gpu_check import MEMORY, stamp
"""
    write = "for frame in field.frames(20): stamp(frame)\narray = field.empty() if MEMORY == 'cuda' else frame\n"
    programs = {
        "launched": "field = wavefield.launch(grid=(64, 64), memory=MEMORY, arguments=['--size', '160x90'])\n" + write,
        "in use": "field = wavefield.connect(sys.argv[1], memory=MEMORY)\n" + write + "frame = next(iter(field))\n",
        "killed": "field = wavefield.connect(sys.argv[1], memory=MEMORY)\n"
        + write
        + "field.snapshot()\nos.kill(int(sys.argv[2]), signal.SIGSTOP)\n"
        # In CUDA memory the stream then waits for the renderer. In host memory the program would wait.
        + "if MEMORY == 'cuda': [stamp(frame) for frame in field.frames(field.ring)]\n"
        + "os.kill(int(sys.argv[2]), signal.SIGKILL)\n",
    }
    for name, program in programs.items():
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/socket"
            command = [os.environ.get("WAVEFIELD_BIN", "wavefield"), "serve", "--headless", "--socket", path]
            with open(out / f"exit.{name}.renderer.log", "wb") as log:
                renderer = subprocess.Popen([*command, "--grid", "64x64", "--size", "160x90"], stdout=log, stderr=log)
            try:
                while not os.path.exists(path):
                    assert renderer.poll() is None, "no renderer"
                    time.sleep(0.01)
                start = time.monotonic()
                ended = subprocess.run(
                    [sys.executable, "-W", "error", "-c", begin + program, path, str(renderer.pid)],
                    capture_output=True,
                    text=True,
                    timeout=60,
                )
                took.append(f"{name} {time.monotonic() - start:.1f} s")
                assert (ended.returncode, ended.stderr) == (0, ""), f"{name}: {ended}"
            finally:
                renderer.kill()
                renderer.wait()
    return ", ".join(took)


# The cost of a frame.


def cost_of(out: Path, name: str, grid: str, arguments: list[str], draw: Callable[[wavefield.Field], float]) -> str:
    """Run a renderer and the client `draw`, which returns its CPU seconds a frame. Return a line of figures."""
    with (
        serve(out, name, "--grid", grid, "--pace", "0", *arguments) as (path, figures, _),
        patiently(path, ring=None) as field,
    ):
        cpu = draw(field)
    stretch = client_stretches(figures)[-1]
    frame = stretch["frame_us"]
    return (
        f"{name:34} {frame['frames']:7d} {frame['p50']:8d} {frame['p99']:8d} {cpu * 1e6:10.0f} "
        f"{stretch['cpu_us_per_frame']:12.0f}"
    )


def measured(field: wavefield.Field, seconds: float, write: Callable[[wavefield.Frame], Any]) -> float:
    """Write frames for so many seconds, and return the CPU seconds a frame."""
    for frame in field.frames(30):  # to compile and allocate
        write(frame)
    start, cpu, count = time.monotonic(), time.process_time(), 0
    while time.monotonic() - start < seconds:
        for frame in field.frames(50):
            write(frame)
        count += 50
    return (time.process_time() - cpu) / count


@check("cost", 500)
def cost(out: Path) -> str:
    """The cost of a frame from another process."""
    seconds = float(os.environ.get("COST_SECONDS", "5"))
    lines = [
        f"{'microseconds':34} {'frames':>7} {'p50':>8} {'p99':>8} {'client CPU':>10} {'renderer CPU':>12}",
    ]

    def memset(field: wavefield.Field) -> float:
        return measured(field, seconds, stamp)

    runs: list[tuple[str, str, list[str], Callable[[wavefield.Field], float]]] = []
    for grid in ("256x256", "1024x1024"):
        for ring in ("3", "8"):
            base = f"{grid} ring {ring}"
            runs.append((f"{base} client", grid, ["--ring", ring], memset))
    if there_is("numba.cuda"):
        sys.path.insert(0, str(EXAMPLES))
        try:
            import numpy as np
            from numba import cuda

            from numba_wave import wave

            def numba_client(field: wavefield.Field) -> float:
                cuda.select_device(field.device)
                stream = cuda.external_stream(int(field.stream))
                cols, rows = map(np.uint32, field.grid)
                blocks = -(-int(cols) * int(rows) // 256)

                def write(frame: wavefield.Frame) -> None:
                    flat = cuda.as_cuda_array(frame, sync=False).reshape(-1)
                    wave[blocks, 256, stream](flat, cols, rows, np.uint64(frame.index), frame.time)

                return measured(field, seconds, write)

            grid = "1024x1024"
            runs.append((f"{grid} Numba's wave, client", grid, [], numba_client))
        except ImportError as error:
            lines.append(f"without Numba: {error}")
    for name, grid, arguments, draw in runs:
        try:
            lines.append(cost_of(out, name, grid, arguments, draw))
        except Exception as error:
            lines.append(f"{name:34} FAILED: {str(error).splitlines()[0][:110]}")
        print(lines[-1], flush=True)
    table = "\n".join(lines)
    (out / "cost.txt").write_text(table + "\n")
    if "FAILED" in table:
        raise AssertionError(f"see {out / 'cost.txt'}")
    return f"{out / 'cost.txt'}\n{table}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("target/python-check"))
    parser.add_argument("--list", action="store_true", help="name the checks")
    parser.add_argument("--pictures", type=int, default=PICTURES, metavar="N", help="frames for pictures-* [200]")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help="these only")
    options = parser.parse_args()
    os.environ["CHECK_PICTURES"] = str(options.pictures)  # for the checks' processes
    if options.list:
        print("\n".join(checks))
    elif options.client:
        client(options.client, wait=True)
    elif options.one:
        try:
            print("verdict:", checks[options.one][0](options.out), flush=True)
        except Skipped as why:
            print("skipped:", why, flush=True)
    else:
        unknown = set(options.checks) - set(checks)
        if unknown:
            parser.error(f"no check {', '.join(unknown)}; there are {', '.join(checks)}")
        options.out.mkdir(parents=True, exist_ok=True)
        sys.exit(run_all(options.out.resolve(), options.checks or list(checks)))


def run_all(out: Path, names: list[str]) -> int:
    table, failed = [], 0
    for old in out.glob("kinds-*.txt"):
        old.unlink()
    for name in names:
        start = time.monotonic()
        log = out / f"{name}.log"
        limit = checks[name][1] + (int(os.environ["CHECK_PICTURES"]) // 10 if name.startswith("pictures-") else 0)
        with open(log, "wb") as file:
            process = subprocess.Popen(
                [sys.executable, __file__, "--out", str(out), "--one", name],
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
            try:
                process.wait(limit)
                why = ""
            except subprocess.TimeoutExpired:
                why = f"not done within {limit} s"
            # End also the processes that it started and left.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        text = log.read_text(errors="replace")
        _, found, verdict = text.rpartition("verdict: ")
        if process.returncode == 0 and found:
            result = "ok"
        elif process.returncode == 0 and "skipped: " in text:
            result, verdict = "skipped", text.rpartition("skipped: ")[2]
        else:
            failed += 1
            said = text.strip().splitlines() or ["nothing said"]
            words = [line for line in said if line.startswith("error: ")] or said
            result, verdict = "FAILED", why or words[-1]
            print(text[-3000:])
        table.append(f"{name:16} {result:8} {time.monotonic() - start:5.0f} s  {verdict.strip()}")
        print(table[-1], flush=True)
    print("", *table, sep="\n")
    if costs := kinds_table(out):
        table += ["", costs]
        print("", costs, sep="\n")
    (out / "table.txt").write_text("\n".join(table) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    main()
