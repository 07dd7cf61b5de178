"""DLPack capsules, through ctypes: makes them of frames, and reads those of other libraries.

The structures are those of dlpack.h 1.0. For `__dlpack__` and its arguments see
https://data-apis.org/array-api/latest/API_specification/generated/array_api.array.__dlpack__.html. A capsule is named
"dltensor" until a consumer takes it. The consumer renames it, and calls the deleter when done. If nobody takes a
capsule, its destructor frees what it holds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .host import Strided
from .layout import compact

if TYPE_CHECKING:
    from numpy.typing import NDArray

CPU = 1
CUDA = 2
CUDA_HOST = 3
CUDA_MANAGED = 13
_FLOAT = 2
_KINDS = {0: "int", 1: "uint", _FLOAT: "float", 4: "bfloat", 5: "complex"}
_FLOAT8 = ["e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu"]
_NAMES = {6: "bool", 15: "float6_e2m3fn", 16: "float6_e3m2fn", 17: "float4_e2m1fn"}
_NAMES |= {code: f"float8_{name}" for code, name in enumerate(_FLOAT8, 7)}
_TYPES = {"float32": (_FLOAT, 32), "float16": (_FLOAT, 16), "uint8": (1, 8), "int32": (0, 32)}
_VERSION = (1, 0)


class _Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]


class _Tensor(ctypes.Structure):
    """`DLTensor`. Shape and strides count items, not bytes."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    """`DLManagedTensor`, from before version 1."""

    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    """`DLManagedTensorVersioned`."""

    _fields_ = [
        ("version", _Version),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_PLAIN_NAME, _VERSIONED_NAME = b"dltensor", b"dltensor_versioned"
_USED_NAMES = {_PLAIN_NAME: b"used_dltensor", _VERSIONED_NAME: b"used_dltensor_versioned"}

_api = ctypes.pythonapi
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_capsule_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)(
    ("PyCapsule_New", _api)
)
# These take the object as an address: a destructor gets an object without references, and a new Python reference to it
# would destroy it a second time.
_capsule_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_capsule_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_SetName", _api))

# What each capsule needs while somebody holds it: its structure, the arrays that this points to, the memory's owner.
_held: dict[int, tuple[Any, ...]] = {}


def _forget(address: int) -> None:
    _held.pop(address, None)


def _destroy(capsule: int) -> None:
    for name in (_PLAIN_NAME, _VERSIONED_NAME):
        if _capsule_is_valid(capsule, name):
            _forget(_capsule_pointer(capsule, name))


_forget_c = _Deleter(_forget)
_destroy_c = _Destructor(_destroy)
# Libraries call these functions even at the interpreter's end, after this module is gone. So they are never freed.
_api.Py_IncRef(ctypes.py_object(_forget_c))
_api.Py_IncRef(ctypes.py_object(_destroy_c))


def make(
    pointer: int,
    device: tuple[int, int],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: str,
    owner: object,
    versioned: bool,
) -> Any:
    """Return a capsule of memory. `strides` counts items. The capsule holds `owner` until the consumer is done."""
    dimensions = len(shape)
    sizes = (ctypes.c_int64 * dimensions)(*shape)
    steps = (ctypes.c_int64 * dimensions)(*strides)
    code, bits = _TYPES[dtype]
    tensor = _Tensor(
        data=pointer,
        device_type=device[0],
        device_id=device[1],
        ndim=dimensions,
        code=code,
        bits=bits,
        lanes=1,
        shape=sizes,
        strides=steps,
        byte_offset=0,
    )
    deleter = ctypes.cast(_forget_c, ctypes.c_void_p)
    managed: _Managed | _Versioned
    if versioned:
        managed = _Versioned(version=_Version(*_VERSION), context=None, deleter=deleter, flags=0, tensor=tensor)
    else:
        managed = _Managed(tensor=tensor, context=None, deleter=deleter)
    address = ctypes.addressof(managed)
    _held[address] = (managed, sizes, steps, owner)
    try:
        return _capsule_new(address, _VERSIONED_NAME if versioned else _PLAIN_NAME, _destroy_c)
    except BaseException:
        del _held[address]
        raise


def wants_version_1(max_version: tuple[int, int] | None) -> bool:
    """Return whether a consumer with this `max_version` takes the versioned structure."""
    return max_version is not None and max_version[0] >= _VERSION[0]


@dataclass
class Borrowed:
    """Another library's array, as its capsule describes it. Gives the memory back when dropped."""

    pointer: int
    device: tuple[int, int]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In bytes."""
    dtype: str
    """As NumPy names it."""
    item_bytes: int
    release: Callable[[], None]
    """Does nothing the second time."""

    def __del__(self) -> None:
        self.release()


def export(array: Any, **stream: int) -> tuple[Borrowed, bool]:
    """Take an array's memory, and return whether the producer knew the argument `stream`.

    Producers from before version 1 know no `max_version`, and those on the CPU no `stream`.
    """
    for options in ({**stream, "max_version": _VERSION}, stream):
        with suppress(TypeError):
            return take(array.__dlpack__(**options)), True
    return take(array.__dlpack__()), False


def numpy(array: Any) -> NDArray[Any]:
    """Return NumPy's view of an array in the CPU's memory."""
    import numpy as np

    taken, _ = export(array)
    if taken.device[0] not in (CPU, CUDA_HOST):
        raise BufferError("it is not in the CPU's memory, and has no method that copies it there")
    memory = Strided(taken, taken.pointer, taken.shape, f"|V{taken.item_bytes}", taken.strides)
    return np.asarray(memory).view(np.dtype(taken.dtype))


def take(capsule: Any) -> Borrowed:
    """Take a capsule of either kind. Raises `ValueError` for any other object."""
    address = id(capsule)
    managed: _Managed | _Versioned
    if _capsule_is_valid(address, _VERSIONED_NAME):
        name = _VERSIONED_NAME
        managed = _Versioned.from_address(_capsule_pointer(address, name))
        if managed.version.major != _VERSION[0]:
            raise ValueError(f"the DLPack capsule has version {managed.version.major}, not {_VERSION[0]}")
    elif _capsule_is_valid(address, _PLAIN_NAME):
        name = _PLAIN_NAME
        managed = _Managed.from_address(_capsule_pointer(address, name))
    else:
        raise ValueError("this is not a DLPack capsule, or it was already used")
    tensor = managed.tensor
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    if tensor.strides:  # noqa: SIM108
        strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim))
    else:
        strides = compact(shape)
    item_bytes = tensor.bits * tensor.lanes // 8
    _capsule_rename(address, _USED_NAMES[name])

    deleters = [managed.deleter] if managed.deleter else []

    def release() -> None:
        while deleters:
            _Deleter(deleters.pop())(ctypes.addressof(managed))

    return Borrowed(
        pointer=(tensor.data or 0) + tensor.byte_offset,
        device=(tensor.device_type, tensor.device_id),
        shape=shape,
        strides=tuple(step * item_bytes for step in strides),
        dtype=_dtype(tensor),
        item_bytes=item_bytes,
        release=release,
    )


def _dtype(tensor: _Tensor) -> str:
    code, bits = tensor.code, tensor.bits
    name = f"{_KINDS[code]}{bits}" if code in _KINDS else _NAMES.get(code, f"DLPack type {code}")
    if code not in _KINDS and bits != 8:
        name += f" of {bits} bits"
    return name if tensor.lanes == 1 else f"{name} in vectors of {tensor.lanes}"
