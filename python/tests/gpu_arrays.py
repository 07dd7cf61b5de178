"""Arrays of the installed libraries, of every kind that the standards allow, and graph capture. For gpu_check.py.

Each row shows an array, and compares the picture with that of NumPy's array of the same numbers. A row that must be
refused has the words of the refusal.
"""

from __future__ import annotations

import importlib
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

import wavefield

NUMBERS = np.random.default_rng(7).random((4, 9), np.float32)
IMAGE = np.ascontiguousarray(NUMBERS[:, :6])
Rows = dict[str, tuple[Callable[[], Any], Any]]
"""Makes an array, and the numbers that it shows, or the words of the refusal."""

STEPS = np.round(IMAGE * 64).astype(np.float32) / 64
CAPTURE = "a CUDA graph is being captured"


class Only:
    """A library's array with one protocol only: the old or the new DLPack, or the array interface."""

    def __init__(self, array: Any, how: str) -> None:
        if how == "interface":
            self.__cuda_array_interface__ = array.__cuda_array_interface__
            self.array = array
            return
        self.__dlpack_device__ = array.__dlpack_device__
        if how == "old":
            self.__dlpack__ = lambda stream=None: array.__dlpack__(stream=stream)
        else:
            self.__dlpack__ = array.__dlpack__


def only(array: Any) -> Rows:
    """Return the rows of the protocols alone."""
    return {
        "old DLPack alone": (lambda: Only(array, "old"), IMAGE),
        "new DLPack alone": (lambda: Only(array, "new"), IMAGE),
        "the interface alone": (lambda: Only(array, "interface"), IMAGE),
    }


def of_numpy() -> Rows:
    read_only = IMAGE.copy()
    read_only.flags.writeable = False
    rows: Rows = {
        "float32": (lambda: IMAGE, IMAGE),
        "read-only": (lambda: read_only, IMAGE),
        "big-endian": (lambda: IMAGE.astype(">f4"), IMAGE),
        "DLPack on the CPU alone": (lambda: SimpleNamespace(**protocol(IMAGE)), IMAGE),
        "empty": (lambda: IMAGE[:0], "too small"),
    }
    try:
        sparse = importlib.import_module("scipy.sparse")
    except ImportError:
        return rows
    return {**rows, "scipy, sparse": (lambda: sparse.csr_matrix(IMAGE), r"show x\.toarray\(\)")}


def protocol(array: Any) -> dict[str, Any]:
    return {"__dlpack__": array.__dlpack__, "__dlpack_device__": array.__dlpack_device__}


def of_torch() -> Rows:
    import torch

    warnings.filterwarnings("ignore", "Sparse .* support is in beta")
    wide = torch.tensor(NUMBERS, device="cuda")
    x = wide[:, :6].contiguous()
    rows: Rows = {
        "float32": (lambda: x, IMAGE),
        "float64": (lambda: x.double(), IMAGE),
        "float16": (lambda: x.half(), IMAGE.astype(np.float16)),
        "bfloat16": (lambda: x.bfloat16(), x.bfloat16().float().cpu().numpy()),
        "uint8": (lambda: (255 * x).byte(), (255 * IMAGE).astype(np.uint8)),
        "bool": (lambda: x > 0.5, (IMAGE > 0.5).astype(np.uint8)),
        "complex64": (lambda: x.cfloat(), r"abs\(x\)"),
        "a sign that is still to be applied": (lambda: torch.complex(x, -x).conj().imag, IMAGE),
        "gradients": (lambda: x.clone().requires_grad_(), IMAGE),
        "a parameter": (lambda: torch.nn.Parameter(x), IMAGE),
        "sparse": (lambda: x.to_sparse(), r"show x\.to_dense\(\)"),
        "sparse, by rows": (lambda: x.to_sparse_csr(), r"show x\.to_dense\(\)"),
        "gaps between rows": (lambda: wide[:, :6], IMAGE),
        "columns first": (lambda: x.t().contiguous().t(), IMAGE),
        "strides of 0": (lambda: x[:1].expand(4, 6), IMAGE[:1].repeat(4, 0)),
        "empty": (lambda: x[:0], "too small"),
        "no dimension": (lambda: x[0, 0], r"not \(\)"),
        "CPU": (lambda: x.cpu(), IMAGE),
        "CPU, gradients": (lambda: x.cpu().requires_grad_(), IMAGE),
        "CPU, pinned": (lambda: x.cpu().pin_memory(), IMAGE),
        "CPU, bfloat16": (lambda: x.cpu().bfloat16(), x.bfloat16().float().cpu().numpy()),
        "no device": (lambda: x.to("meta"), "does not say where it lies"),
        **only(x),
    }
    for name in ("float8_e4m3fn", "float8_e5m2"):
        dtype = getattr(torch, name)
        rows[name] = (lambda dtype=dtype: x.to(dtype), x.to(dtype).float().cpu().numpy())  # type: ignore[misc]
    return rows


def of_cupy() -> Rows:
    import cupy as cp

    wide = cp.asarray(NUMBERS)
    x = cp.ascontiguousarray(wide[:, :6])
    managed = cp.ndarray((4, 6), cp.float32, cp.cuda.malloc_managed(x.nbytes))
    managed[...] = x
    rows: Rows = {
        "float32": (lambda: x, IMAGE),
        "float64": (lambda: x.astype("f8"), IMAGE),
        "float16": (lambda: x.astype("f2"), IMAGE.astype(np.float16)),
        "bool": (lambda: x > 0.5, (IMAGE > 0.5).astype(np.uint8)),
        "complex64": (lambda: x.astype("c8"), r"abs\(x\)"),
        "gaps between rows": (lambda: wide[:, :6], IMAGE),
        "negative strides": (lambda: x[::-1], IMAGE[::-1]),
        "columns first": (lambda: cp.asfortranarray(x), IMAGE),
        "strides of 0": (lambda: cp.broadcast_to(x[:1], (4, 6)), IMAGE[:1].repeat(4, 0)),
        "empty": (lambda: x[:0], "too small"),
        "managed memory": (lambda: managed, IMAGE),
        "on a stream that is not the current one": (lambda: on_a_stream(cp, x), IMAGE),
        **only(x),
    }
    try:
        sparse = importlib.import_module("cupyx.scipy.sparse")
    except ImportError:
        return rows
    return {**rows, "sparse": (lambda: sparse.csr_matrix(x), r"show x\.(todense|toarray)\(\)")}


def on_a_stream(cp: Any, x: Any) -> Any:
    with cp.cuda.Stream(non_blocking=True) as stream:
        array = Only(x + 0, "interface")
    array.array = (array.array, stream)
    return array


def of_jax() -> Rows:
    import jax
    import jax.numpy as jnp

    x = jnp.asarray(IMAGE)
    rows: Rows = {
        "float32": (lambda: x + 0, IMAGE),
        "bfloat16": (lambda: x.astype("bfloat16"), np.asarray(x.astype("bfloat16").astype("float32"))),
        "float8_e4m3fn": (lambda: x.astype("float8_e4m3fn"), np.asarray(x.astype("float8_e4m3fn").astype("float32"))),
        "bool": (lambda: x > 0.5, (IMAGE > 0.5).astype(np.uint8)),
        "complex64": (lambda: x.astype("complex64"), r"abs\(x\)"),
        "CPU": (lambda: jax.device_put(x, jax.devices("cpu")[0]), IMAGE),
        "empty": (lambda: x[:0], "too small"),
        "old DLPack alone": (lambda: Only(x, "old"), IMAGE),
        "new DLPack alone": (lambda: Only(x, "new"), IMAGE),
    }
    try:
        from jax.experimental import sparse
    except ImportError:
        return rows
    return {**rows, "sparse": (lambda: sparse.BCOO.fromdense(x), r"show x\.todense\(\)")}


def of_numba() -> Rows:
    from numba import cuda

    wide = cuda.to_device(NUMBERS)
    pinned = cuda.pinned_array((4, 6), np.float32)
    pinned[...] = IMAGE
    return {
        "float32": (lambda: cuda.to_device(IMAGE), IMAGE),
        "float64": (lambda: cuda.to_device(IMAGE.astype("f8")), "cannot convert the array from float64"),
        "gaps between rows": (lambda: wide[:, :6], IMAGE),
        "pinned": (lambda: pinned, IMAGE),
    }


LIBRARIES = {"numpy": of_numpy, "torch": of_torch, "cupy": of_cupy, "jax": of_jax, "numba.cuda": of_numba}


def show(array: Any, limits: tuple[float, float] = (0, 1)) -> wavefield.Field:
    return wavefield.show(array, kind="image", limits=limits, window=False)


def differs(one: Any, other: Any) -> bool:
    """Return whether pictures differ by more than what `--raster auto` may change, once it has chosen."""
    return bool((abs(one.astype(int) - other) > 3).any())


def try_row(make: Callable[[], Any], wanted: Any) -> str:
    """Return what is wrong with a row, in `wavefield.show` and in `field.show`; nothing if it is right."""
    if isinstance(wanted, str):
        for call in (show, show(IMAGE).show):
            try:
                call(make())
            except wavefield.WavefieldError as error:
                if "\n" in str(error) or not re.search(f"{wanted}|the field is", str(error)):
                    return f"it says: {error}"
            else:
                return "it was not refused"
        return ""
    limits = (0, 255 if wanted.max() > 1 else 1)
    right = show(wanted, limits).snapshot()
    array = make()
    for again in range(2):
        field = show(array, limits)
        if differs(field.snapshot(), right):
            return f"show number {again} drew something else"
    reason = "" if field.shown is None else field.shown.reason
    field.show(np.zeros(field.shape, field.dtype))
    if "was converted" in reason or "not contiguous" in reason:
        try:  # it converts nothing
            field.show(array)
        except wavefield.ArrayMismatch as error:
            return "several lines" if "\n" in str(error) else ""
        return "field.show did not refuse"
    field.show(array)
    return "field.show drew something else" if differs(field.snapshot(), right) else ""


class Torch:
    """Captures as PyTorch does."""

    def __init__(self, mode: str) -> None:
        import torch

        self.torch, self.mode, self.graph = torch, mode, torch.cuda.CUDAGraph()
        self.x = torch.tensor(STEPS, device="cuda")
        self.double = self.x.double()
        self.x.add_(0.0)  # loads the kernel

    def capture(self, call: Callable[[], object]) -> None:
        self.graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(self.graph, capture_error_mode=self.mode):
            self.x.add_(0.125)
            call()

    def now(self) -> int:
        return int(self.torch.cuda.current_stream().cuda_stream)

    def replay(self) -> None:
        self.graph.replay()

    def numbers(self) -> np.ndarray:
        found: np.ndarray = self.x.cpu().numpy()
        return found


class Cupy:
    """Captures as CuPy does, on a stream that is the current one, or beside it."""

    def __init__(self, mode: str, non_blocking: bool = True, current: bool = True) -> None:
        import cupy as cp

        modes = {"global": 0, "thread_local": 1, "relaxed": 2}
        self.cp, self.mode, self.current = cp, modes[mode], current
        self.stream = cp.cuda.Stream(non_blocking=non_blocking)
        self.x = cp.asarray(STEPS)
        self.double = self.x.astype("f8")
        self.x += 0.0  # loads the kernel
        cp.cuda.Device().synchronize()

    def capture(self, call: Callable[[], object]) -> None:
        with self.stream:
            self.stream.begin_capture(self.mode)
            self.x += 0.125
            if self.current:
                call()
        if not self.current:
            call()
        self.graph = self.stream.end_capture()

    def now(self) -> int:
        return int(self.stream.ptr)

    def replay(self) -> None:
        self.graph.launch(self.stream)
        self.stream.synchronize()

    def numbers(self) -> np.ndarray:
        found: np.ndarray = self.x.get()
        return found


def refused(call: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        try:
            call()
        except wavefield.CudaError as error:
            if CAPTURE not in str(error):
                raise
        else:
            raise AssertionError("it was not refused")

    return run


def in_a_thread(call: Callable[[], object]) -> None:
    errors: list[Exception] = []

    def run() -> None:
        try:
            call()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def captures(by: Torch | Cupy) -> Iterator[tuple[str, str]]:
    """Yield each row's name, and what is wrong."""
    limits, empty = (0, 8), np.zeros((4, 6), np.float32)
    field = show(by.x, limits)
    field.show(empty)
    picture = field.picture()

    def frame() -> wavefield.Frame:
        frame = next(iter(field.frames(1)))
        frame.copy_from(empty)
        return frame

    def dropped() -> Callable[[], object]:
        lent = [field.empty()]
        return lent.clear

    # Each makes, before the capture, the call in it.
    rows: dict[str, Callable[[], Callable[[], object]]] = {
        "hand_over": lambda: refused(frame().hand_over),
        "copy_from": lambda: refused(partial(frame().copy_from, by.x)),
        "wavefield.show": lambda: refused(lambda: show(by.x, limits)),
        "wavefield.show, to convert": lambda: refused(lambda: show(by.double, limits)),
        "field.show": lambda: refused(lambda: field.show(by.x)),
        "field.show, NumPy": lambda: refused(lambda: field.show(empty)),
        "the next frame": lambda: refused(lambda: next(iter(field))),
        "picture": lambda: refused(field.picture),
        "a picture that was taken": lambda: refused(lambda: picture.__dlpack__(stream=by.now())),
        "snapshot": lambda: refused(field.snapshot),
        "status goes on": lambda: field.status,
        "what is dropped goes on": dropped,
    }
    if isinstance(by, Torch):
        rows["another thread goes on"] = lambda: lambda: in_a_thread(lambda: field.show(empty))
    for name, call in rows.items():
        wrong = ""
        try:
            before = by.numbers()
            by.capture(call())
            for _ in range(2):
                by.replay()
            if (by.numbers() != before + 0.25).any():
                wrong = "the replay computed something else"
            field = show(by.numbers(), limits)
            right = field.snapshot()
            field = show(by.x, limits)
            if differs(field.snapshot(), right):
                wrong = "what is shown after the replay is something else"
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        yield name, wrong


def table(libraries: list[str]) -> tuple[list[str], int]:
    """Return a line for each row, and how many failed."""
    lines: list[str] = []
    start = time.monotonic()

    def line(library: str, name: str, wrong: str) -> None:
        lines.append(f"{library:18} {name:40} {'FAILED: ' + ' '.join(wrong.split()) if wrong else 'ok'}")
        print(lines[-1], flush=True)

    warnings.simplefilter("ignore", wavefield.CopyWarning)
    for library in libraries:
        try:
            rows = LIBRARIES[library]()
        except Exception as error:
            line(library, "makes its arrays", f"{type(error).__name__}: {error}")
            continue
        for name, (make, wanted) in rows.items():
            try:
                wrong = try_row(make, wanted)
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            line(library, name, wrong)
    makers: dict[str, Callable[[], Torch | Cupy]] = {}
    if "torch" in libraries:
        makers |= {f"torch {mode}": lambda mode=mode: Torch(mode) for mode in ("global", "thread_local", "relaxed")}  # type: ignore[misc]
    if "cupy" in libraries:
        makers |= {f"cupy {mode}": lambda mode=mode: Cupy(mode) for mode in ("global", "relaxed")}  # type: ignore[misc]
        makers["cupy, blocking"] = lambda: Cupy("global", non_blocking=False)
        makers["cupy, aside"] = lambda: Cupy("global", non_blocking=False, current=False)
    for library, make_by in makers.items():
        try:
            for name, wrong in captures(make_by()):
                line(library, f"captured: {name}", wrong)
        except Exception as error:
            line(library, "begins to capture", f"{type(error).__name__}: {error}")
    lines.append(f"{len(lines)} rows in {time.monotonic() - start:.1f} s")
    return lines, sum("FAILED" in text for text in lines)
