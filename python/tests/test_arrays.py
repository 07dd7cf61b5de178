"""Every producer of DLPack and of the array interfaces that the standards allow: drawn, or refused in one line.

The rows follow dlpack.h 1.3 and DLPack's Python specification, NumPy's page on the array interface, and Numba's on the
CUDA array interface, versions 0 to 3.
"""

from __future__ import annotations

import array as buffers
import collections
import contextlib
import ctypes
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import wavefield
from fake_driver import FakeDriver
from fake_renderer import UUID, FakeRenderer
from started import Started
from wavefield import _launch
from wavefield._memory import dlpack as _dlpack, source as _source
from wavefield._memory.streams import Stream

IMAGE = np.random.default_rng(7).random((4, 6), np.float32)
WIDE = np.random.default_rng(8).random((4, 9), np.float32)
CPU, GPU, PINNED, MANAGED = (1, 0), (2, 1), (3, 0), (13, 1)
KEYWORDS = ("stream", "max_version", "dl_device", "copy")


class Dlpack:
    """An array with DLPack only, that knows some of the keywords. `change` sets fields of its structures."""

    def __init__(
        self, array: np.ndarray, device: Any = CPU, keywords: tuple[str, ...] = KEYWORDS, **change: Any
    ) -> None:
        self.memory, self.device, self.keywords, self.change = array, device, keywords, change
        self.asked: collections.Counter[str] = collections.Counter()

    def __dlpack_device__(self) -> Any:
        self.asked["device"] += 1
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        if not {*options} <= {*self.keywords}:
            raise TypeError(f"an unexpected keyword among {list(options)}")
        self.asked["capsule"] += 1
        assert options.get("stream") is None or self.device[0] in (2, 13)
        versioned = "max_version" in options and self.change.get("versioned", True)
        array = self.memory
        strides = tuple(step // array.itemsize for step in array.strides)
        address = array.ctypes.data - self.change.get("byte_offset", 0)
        capsule = _dlpack.make(address, self.device, array.shape, strides, "float32", array, versioned)
        name = b"dltensor_versioned" if versioned else b"dltensor"
        structure = _dlpack._Versioned if versioned else _dlpack._Managed
        managed: Any = structure.from_address(_dlpack._capsule_pointer(id(capsule), name))
        kinds = {"f": 2, "i": 0, "u": 1, "b": 6, "c": 5}
        managed.tensor.code, managed.tensor.bits = kinds[array.dtype.kind], 8 * array.itemsize
        if "deleter" in self.change:
            self.kept = _dlpack._held.pop(ctypes.addressof(managed))
        for field, value in self.change.items():
            if field != "versioned":
                setattr(managed if hasattr(managed, field) else managed.tensor, field, value)
        return capsule


class Raises(Dlpack):
    """An array that does not export, or something that is no capsule."""

    def __dlpack__(self, **options: Any) -> Any:
        if isinstance(self.change["gives"], Exception):
            raise self.change["gives"]
        return self.change["gives"]


def used() -> Any:
    capsule = IMAGE.__dlpack__()
    _dlpack.take(capsule).release()
    return capsule


class Cuda:
    """An array with the CUDA array interface only."""

    def __init__(self, array: np.ndarray, version: int = 3, without: tuple[str, ...] = (), **change: Any) -> None:
        self.memory, self.asked = array, collections.Counter[str]()
        interface = {"shape": array.shape, "typestr": array.dtype.str, "data": (array.ctypes.data, False)}
        interface |= {"version": version, "strides": None if array.flags.c_contiguous else array.strides, **change}
        self.interface = {key: value for key, value in interface.items() if key not in without}

    @property
    def __cuda_array_interface__(self) -> Any:
        self.asked["interface"] += 1
        return self.interface


class Both(Cuda):
    """An array that has both, and refuses DLPack, as it may."""

    __dlpack_device__ = Dlpack.__dlpack_device__
    device = GPU

    def __dlpack__(self, **_: Any) -> Any:
        self.asked["capsule"] += 1
        raise BufferError("it is read-only")


class Numpy:
    """An array with NumPy's interface only."""

    def __init__(self, array: np.ndarray, **change: Any) -> None:
        self.memory = array
        self.__array_interface__ = {**array.__array_interface__, **change}


def struct(array: np.ndarray) -> Any:
    """Return an array with `__array_struct__` only."""
    return SimpleNamespace(__array_struct__=array.__array_struct__, memory=array)


class Callback:
    def __init__(self, array: np.ndarray) -> None:
        self.memory = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.memory


class Torch(Dlpack):
    """Like a tensor of PyTorch: it has methods, and does not export with gradients, or if it is sparse."""

    grad, sign, error, layout = False, False, "", "torch.strided"

    def __init__(self, array: np.ndarray, device: Any = GPU, **how: Any) -> None:
        self.shape, self.dtype = array.shape, how.pop("dtype", array.dtype)
        vars(self).update(how)
        super().__init__(array, device)

    def detach(self) -> Torch:
        return Torch(self.memory, self.device, dtype=self.dtype, sign=self.sign, layout=self.layout, error=self.error)

    def is_neg(self) -> bool:
        return self.sign

    def resolve_neg(self) -> Torch:
        return Torch(-self.memory, self.device)

    def to_dense(self) -> None:
        raise NotImplementedError

    def to(self) -> None:
        raise NotImplementedError

    def float(self) -> Torch:
        return Torch(self.memory.astype(np.float32), self.device)

    def min(self) -> Any:
        return self.memory.min()

    def max(self) -> Any:
        return self.memory.max()

    @property
    def __cuda_array_interface__(self) -> Any:
        if self.device == CPU or "sparse" in self.layout:
            raise AttributeError("no interface")
        if self.grad:
            raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad")
        raise KeyError(self.dtype)

    def __dlpack__(self, **options: Any) -> Any:
        if self.grad or self.layout != "torch.strided" or "float8" in str(self.dtype):
            raise BufferError("Can't export these tensors")
        return super().__dlpack__(**options)


class Scipy:
    """Like a sparse matrix of SciPy: it has methods, and no memory of its elements."""

    shape, dtype = (4, 6), np.dtype(np.float32)
    __module__ = "scipy.sparse._csr"

    def astype(self, dtype: Any) -> Scipy:
        return self

    def toarray(self) -> None:
        raise NotImplementedError


class Row(NamedTuple):
    make: Callable[[], Any]
    show: str = ""
    """What `wavefield.show` says; without words it draws."""
    field: str | None = None
    """What `field.show` of a field of (4, 6) float32 says, if not the same."""
    values: Any = IMAGE


GAPS, PACK = "rows are not contiguous", "cannot copy the array without gaps: create it contiguous"
CAST, OTHER = "cannot convert the array", "the field is"


def both(name: str, **options: Any) -> dict[str, Row]:
    """Return the rows of one producer of DLPack that is drawn from the CPU and from a GPU."""
    array = options.pop("array", IMAGE)
    return {
        f"{name}, {where}": Row(lambda device=device: Dlpack(array, device, **options), values=array)  # type: ignore[misc]
        for where, device in {"CPU": CPU, "GPU": GPU}.items()
    }


def on_gpu(words: str, field: str | None = None, array: np.ndarray = IMAGE, device: Any = GPU, **change: Any) -> Row:
    return Row(lambda: Dlpack(array, device, **change), words, field)


STRIDED = {
    "negative strides": IMAGE[::-1],
    "zero strides": np.broadcast_to(IMAGE[:1], (4, 6)),
    "columns first": np.asfortranarray(IMAGE),
}
TYPES = {"float16": OTHER, "float64": OTHER, "int32": OTHER, "uint8": OTHER, "bool": OTHER}
OF_GPU = {
    "complex": (5, 64, r"abs\(x\)"),
    "bfloat16": (4, 16, "bfloat16"),
    "an opaque handle": (3, 64, "DLPack type 3"),
}
OF_GPU |= {f"type {code}": (code, 8, "float[468]") for code in range(7, 18)}
OF_GPU |= {"int4": (0, 4, "int4"), "a bool of a bit": (6, 1, "bool of 1 bits"), "type 99": (99, 8, "DLPack type 99")}

DLPACK = {
    **both("versioned"),
    **both("from before versions", keywords=("stream",)),
    **both("without keywords", keywords=()),
    **both("old structure, new keywords", versioned=False),
    **both("no deleter", deleter=None),
    **both("read-only", flags=1),
    **both("a copy", flags=2),
    **both("a newer minor version", version=_dlpack._Version(1, 9)),
    **both("an offset", byte_offset=64),
    **both("no strides", strides=None),
    **both("gaps between rows", array=WIDE[:, :6]),
    "pinned": Row(lambda: Dlpack(IMAGE, PINNED)),
    "managed": Row(lambda: Dlpack(IMAGE, MANAGED)),
    **{f"{name}, CPU": Row(lambda a=a: Dlpack(a), field=GAPS, values=a) for name, a in STRIDED.items()},  # type: ignore[misc]
    **{f"{name}, GPU": on_gpu(PACK, GAPS, array=a) for name, a in STRIDED.items()},
    **{
        f"{name}, CPU": Row(lambda name=name: Dlpack(IMAGE.astype(name)), "", OTHER, IMAGE.astype(name))  # type: ignore[misc]
        for name in TYPES
    },
    "float16, GPU": Row(lambda: Dlpack(IMAGE.astype("f2"), GPU), "", OTHER, IMAGE.astype("f2")),
    "float64, GPU": on_gpu(CAST, OTHER, array=IMAGE.astype("f8")),
    **{f"{name}, GPU": on_gpu(words, OTHER, code=code, bits=bits) for name, (code, bits, words) in OF_GPU.items()},
    "bfloat16, CPU": Row(lambda: Dlpack(IMAGE, code=4, bits=16, lanes=2), "bfloat16"),
    "float8, CPU": Row(lambda: Dlpack(IMAGE, code=10, bits=8), "float8_e4m3fn"),
    "vectors, CPU": Row(lambda: Dlpack(IMAGE, lanes=2), "in vectors of 2"),
    "vectors, GPU": on_gpu(CAST, "in vectors of 2", lanes=2),
    "another major version": on_gpu("has version 2, not 1", version=_dlpack._Version(2, 0)),
    "no dimension, CPU": Row(lambda: Dlpack(np.array(1, np.float32)), r"not \(\)", OTHER),
    "no dimension, GPU": on_gpu(r"not \(\)", OTHER, array=np.array(1, np.float32)),
    "one dimension, GPU": on_gpu("reshape", OTHER, array=IMAGE[0]),
    "empty, CPU": Row(lambda: Dlpack(IMAGE[:0], data=None), "too small", OTHER),
    "empty, GPU": on_gpu("too small", OTHER, array=IMAGE[:0], data=None),
    "no address, GPU": on_gpu("address 0x0", data=None),
    **{
        f"device type {t}": on_gpu(f"type {t}: copy it to the CPU", device=(t, 0))
        for t in (4, 7, 8, 10, 11, 12, 14, 18)
    },
    "a device that is none": on_gpu("does not say where it lies", device=None),
    "another device than it says": on_gpu("capsule is on DLPack device type 1", device_type=1),
    **{
        f"{name}, {'GPU' if device == GPU else 'CPU'}": Row(lambda d=device, g=gives: Raises(IMAGE, d, gives=g), words)  # type: ignore[misc]
        for device in (CPU, GPU)
        for name, gives, words in [
            ("BufferError", BufferError("not now"), "BufferError: not now"),
            ("KeyError", KeyError("f8"), "KeyError: 'f8'"),
            ("TypeError", TypeError("no"), "TypeError: no"),
            ("None", None, "not a DLPack capsule"),
            ("a capsule that was used", used(), "already used"),
        ]
    },
}

CUDA = {
    **{f"version {version}": Row(lambda version=version: Cuda(IMAGE, version)) for version in range(4)},  # type: ignore[misc]
    "no strides key": Row(lambda: Cuda(IMAGE, without=("strides",))),
    "strides": Row(lambda: Cuda(IMAGE, strides=IMAGE.strides)),
    "gaps between rows": Row(lambda: Cuda(WIDE[:, :6]), values=WIDE[:, :6]),
    "negative strides": Row(lambda: Cuda(IMAGE[::-1]), PACK, GAPS),
    **{
        f"stream {stream}": Row(lambda stream=stream: Cuda(IMAGE, stream=stream))  # type: ignore[misc]
        for stream in (None, 0, 1, 2, 50, np.int64(50))
    },
    "read-only": Row(lambda: Cuda(IMAGE, data=(IMAGE.ctypes.data, True))),
    "descr": Row(lambda: Cuda(IMAGE, descr=[("", "<f4")])),
    "dictionary-like": Row(
        lambda: SimpleNamespace(__cuda_array_interface__=collections.UserDict(Cuda(IMAGE).interface))
    ),
    "no mask": Row(lambda: Cuda(IMAGE, mask=None)),
    "a mask": Row(lambda: Cuda(IMAGE, mask=Cuda(IMAGE > 0)), "fill what is masked"),
    "big-endian": Row(lambda: Cuda(IMAGE.astype(">f4")), CAST, OTHER),
    "structured": Row(lambda: Cuda(np.zeros((4, 6), "f4,f4")), 'one of its fields, x."name"', OTHER),
    "bits": Row(lambda: Cuda(IMAGE, typestr="|t1"), "TypeError"),
    "complex": Row(lambda: Cuda(IMAGE.astype("c8")), r"abs\(x\)", OTHER),
    "empty": Row(lambda: Cuda(IMAGE[:0], data=(0, False)), "too small", OTHER),
    "no address": Row(lambda: Cuda(IMAGE, data=(0, False)), "address 0x0"),
    "no type": Row(lambda: Cuda(IMAGE, without=("typestr",)), "KeyError: 'typestr'"),
    "no data": Row(lambda: Cuda(IMAGE, without=("data",)), "KeyError: 'data'"),
    "too few strides": Row(lambda: Cuda(IMAGE, strides=(24,)), r"strides \(24,\)"),
    "DLPack refused": Row(lambda: Both(IMAGE)),
}

ON_CPU = {
    "the interface": Row(lambda: Numpy(IMAGE)),
    "a buffer": Row(lambda: Numpy(IMAGE, data=IMAGE.data.cast("B"))),
    "a buffer and an offset": Row(lambda: Numpy(IMAGE, data=IMAGE.tobytes() + b"1234" * 6, offset=24), values=None),
    "strides": Row(lambda: Numpy(IMAGE[::-1]), field=GAPS, values=IMAGE[::-1]),
    "read-only": Row(lambda: Numpy(IMAGE, data=(IMAGE.ctypes.data, True))),
    "big-endian": Row(lambda: Numpy(IMAGE.astype(">f4")), field=OTHER),
    "structured": Row(lambda: Numpy(np.zeros((4, 6), "f4,f4")), 'one of its fields, x."name"', OTHER),
    "no type": Row(lambda: Numpy(IMAGE, typestr=None), "cannot be read on the CPU"),
    "the C structure": Row(lambda: struct(IMAGE)),
    "columns first by the C structure": Row(lambda: struct(np.asfortranarray(IMAGE)), field=GAPS),
    "__array__": Row(lambda: Callback(IMAGE)),
    "a memoryview": Row(lambda: IMAGE.data),
    "a list": Row(IMAGE.tolist, field=OTHER),
    "a buffer of one dimension": Row(lambda: buffers.array("f", IMAGE.ravel()), "reshape", OTHER),
    "nothing": Row(lambda: None, "it is no array"),
    "a ragged list": Row(lambda: [[1.0], [2.0, 3.0]], "cannot be read on the CPU"),
}

LIBRARIES = {
    **{f"gradients, {where}": Row(lambda d=d: Torch(IMAGE, d, grad=True)) for where, d in (("CPU", CPU), ("GPU", GPU))},  # type: ignore[misc]
    "a sign that is still to be applied": Row(lambda: Torch(-IMAGE, sign=True)),
    "float8": Row(lambda: Torch(IMAGE, dtype="torch.float8_e4m3fn"), field=r"float8_e4m3fn.*x\.float\(\)"),
    "float8, CPU": Row(lambda: Torch(IMAGE, CPU, dtype="torch.float8_e5m2"), field=r"Can't export.*x\.float\(\)"),
    "a sparse tensor": Row(lambda: Torch(IMAGE, layout="torch.sparse_csr"), r"sparse: show x\.to_dense\(\)"),
    "a sparse tensor, CPU": Row(lambda: Torch(IMAGE, CPU, layout="torch.sparse_coo"), r"show x\.to_dense\(\)"),
    "a sparse matrix": Row(Scipy, r"csr.Scipy .*sparse: show x\.toarray\(\)"),
}

ALL = {
    f"{table}: {name}": row
    for table, rows in {"DLPack": DLPACK, "CUDA": CUDA, "NumPy": ON_CPU, "libraries": LIBRARIES}.items()
    for name, row in rows.items()
}


@contextlib.contextmanager
def in_words(words: str) -> Iterator[None]:
    """Check that the block draws; with `words`, that it refuses in one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", wavefield.CopyWarning)
        if not words:
            yield
            return
        with pytest.raises(wavefield.WavefieldError, match=words) as caught:
            yield
        assert "\n" not in str(caught.value)


def is_on_gpu(array: Any) -> bool:
    found = isinstance(array, Cuda) or "__cuda_array_interface__" in getattr(array, "__dict__", {})
    return found or getattr(array, "device", None) in (GPU, MANAGED)


@pytest.fixture
def streams(driver: FakeDriver) -> None:
    driver.streams[50] = []


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize("row", ALL.values(), ids=ALL)
def test_show(started: list[Started], driver: FakeDriver, renderer: FakeRenderer, row: Row) -> None:
    array = row.make()
    with in_words(row.show):
        wavefield.show(array, kind="image", limits=(0, 1)).status()
    assert len(started) == (not row.show), "what cannot be drawn starts nothing"
    if not row.show:
        renderer.draw(driver)
    if not row.show and row.values is not None:
        np.testing.assert_array_equal(renderer.frames[-1], np.asarray(row.values, renderer.frames[-1].dtype))


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize("row", ALL.values(), ids=ALL)
def test_field_show(driver: FakeDriver, renderer: FakeRenderer, row: Row) -> None:
    words = row.show if row.field is None else row.field
    with wavefield.connect(renderer.path, kind="image", shape=(4, 6)) as field:
        with in_words(words):
            field.show(row.make())
        field.show(np.zeros((4, 6), np.float32))
        field.status()
        renderer.draw(driver)
    assert len(renderer.frames) == 1 + (not words), "the field goes on"
    if not words and row.values is not None:
        np.testing.assert_array_equal(renderer.frames[0], row.values)


class Tensor:
    """What PyTorch says of a tensor, without DLPack."""

    dtype, requires_grad, asked = "torch.float32", False, 0

    def __init__(self, shape: tuple[int, ...], address: int) -> None:
        self.shape, self.steps, self.address = shape, (shape[1], 1), address

    def __dlpack_device__(self) -> tuple[int, int]:
        self.asked += 1
        return GPU

    def detach(self) -> Tensor:
        return self

    def data_ptr(self) -> int:
        return self.address

    def stride(self) -> tuple[int, ...]:
        return self.steps

    def element_size(self) -> int:
        return 4


Tensor.__module__ = "torch"


def test_a_tensor_is_asked_again_only_if_it_has_changed(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.streams |= {50: [], 51: []}
    stream = SimpleNamespace(cuda_stream=50)
    cuda = SimpleNamespace(is_initialized=lambda: True, current_stream=lambda _device: stream)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    tensor = Tensor((4, 4), 4096)

    def read(tensor: Tensor) -> tuple[Any, ...]:
        source = _source.Source(tensor).read()
        assert source.held is source.array is tensor
        return source.pointer, source.shape, source.strides, source.dtype, source._ready

    first = read(tensor)
    assert first == (4096, (4, 4), (16, 4), "float32", Stream(50))
    assert (read(tensor), tensor.asked) == (first, 1)
    stream.cuda_stream = 51
    assert (read(tensor), tensor.asked) == ((*first[:4], Stream(51)), 1), "it is written on another stream now"
    for name, value, at, said in (
        ("steps", (1, 4), 2, (4, 16)),  # x.t_()
        ("address", 8192, 0, 8192),  # x.data = y
        ("dtype", "torch.int32", 3, "int32"),
        ("shape", (2, 4), 1, (2, 4)),
    ):
        asked = tensor.asked
        setattr(tensor, name, value)
        assert (read(tensor)[at], tensor.asked) == (said, asked + 1), name
    gone = weakref.ref(tensor)
    del tensor
    assert gone() is None, "it is not held"


@pytest.mark.parametrize("row", [row for row in ALL.values() if not row.show])
def test_launch_like(started: list[Started], driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, row: Row) -> None:
    monkeypatch.setattr(_launch, "Renderer", Started)
    array = row.make()
    wavefield.launch(like=array).close()
    assert (UUID in started[0].arguments) == is_on_gpu(array)


@pytest.mark.usefixtures("without_cuda")
@pytest.mark.parametrize("row", ALL.values(), ids=ALL)
def test_without_cuda(started: list[Started], renderer: FakeRenderer, row: Row) -> None:
    """An array on a GPU without a method that copies it to the host is refused in words."""
    array = row.make()
    with in_words(row.show or ("CPU" if is_on_gpu(array) and not hasattr(array, "cpu") else "")):
        wavefield.show(array, kind="image", limits=(0, 1)).status()
        if not row.show and row.values is not None:
            shown = renderer.frames[-1]
            np.testing.assert_array_equal(shown, np.asarray(row.values, shown.dtype))


def test_a_capsule_is_given_back(driver: FakeDriver, renderer: FakeRenderer) -> None:
    before = len(_dlpack._held)
    with wavefield.connect(renderer.path, kind="image", shape=(4, 6)) as field:
        for array in (Dlpack(IMAGE), Dlpack(IMAGE, GPU)):
            field.show(array)
    assert len(_dlpack._held) == before


@pytest.mark.parametrize(
    "producer", [lambda: Dlpack(IMAGE, GPU), lambda: Dlpack(IMAGE), lambda: Cuda(IMAGE), lambda: Torch(IMAGE)]
)
def test_an_array_is_asked_once(
    started: list[Started],
    driver: FakeDriver,
    renderer: FakeRenderer,
    monkeypatch: pytest.MonkeyPatch,
    producer: Callable[[], Any],
) -> None:
    monkeypatch.setattr(_launch, "Renderer", Started)
    array, most = producer(), {"interface": 1, "capsule": 1, "device": 2}

    def once(call: Callable[[], object]) -> None:
        array.asked.clear()
        call()
        if hasattr(renderer.session, "ready"):  # in CUDA memory
            renderer.draw(driver)
        assert all(array.asked[name] <= limit for name, limit in most.items()), array.asked

    once(lambda: wavefield.launch(like=array).close())
    for memory in ("cuda", "host") if getattr(array, "device", GPU) == CPU else ("cuda",):
        for _ in range(3):
            once(partial(wavefield.show, array, limits=(0, 1), memory=memory))
    field = wavefield.show(array, limits=(0, 1))
    for copy in (None, True):
        once(partial(field.show, array, copy=copy))
    with field.frame() as frame:
        once(lambda: frame.copy_from(array))
