"""DLPack capsules, read with ctypes and with NumPy."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import numpy as np
import pytest

from wavefield._memory import dlpack as _dlpack


class Owner:
    """An owner to which a weak reference can be made."""


def capsule_of(array: np.ndarray, owner: object, versioned: bool) -> Any:
    strides = tuple(step // 4 for step in array.strides)
    return _dlpack.make(array.ctypes.data, (1, 0), array.shape, strides, str(array.dtype), owner, versioned)


class Wrapped:
    """Gives NumPy a capsule."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("versioned", [False, True])
def test_numpy_reads_a_capsule_and_gives_it_back(versioned: bool) -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    owner = Owner()
    alive = weakref.ref(owner)
    seen = np.from_dlpack(Wrapped(capsule_of(array, owner, versioned)))
    del owner
    assert seen.shape == (2, 3, 4)
    assert seen.dtype == np.float32
    assert seen.ctypes.data == array.ctypes.data
    np.testing.assert_array_equal(seen, array)
    gc.collect()
    assert alive() is not None
    view = seen[1:]
    del seen
    gc.collect()
    assert alive() is not None, "a view keeps the memory"
    del view
    gc.collect()
    assert alive() is None
    assert not _dlpack._held


def test_gaps_between_the_rows_are_in_the_strides() -> None:
    array = np.zeros((3, 8, 4), np.float32)[:, :5, :]
    array[2, 4, 3] = 7
    seen = np.from_dlpack(Wrapped(capsule_of(array, None, True)))
    assert seen.strides == (128, 16, 4)
    assert seen[2, 4, 3] == 7


@pytest.mark.parametrize("versioned", [False, True])
def test_a_capsule_that_nobody_takes_lets_go(versioned: bool) -> None:
    owner = Owner()
    alive = weakref.ref(owner)
    capsule = capsule_of(np.zeros((1, 1, 4), np.float32), owner, versioned)
    del owner
    assert alive() is not None
    del capsule
    gc.collect()
    assert alive() is None


def test_every_field_is_where_the_header_has_it() -> None:
    """The bytes of the structures, at their offsets in dlpack.h on a 64-bit machine."""
    array = np.zeros((2, 3, 4), np.float32)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = {
        0: (ctypes.c_uint64, 0x1000),
        8: (ctypes.c_int32, 2),  # kDLCUDA
        12: (ctypes.c_int32, 1),
        16: (ctypes.c_int32, 3),
        20: (ctypes.c_uint8, 2),  # kDLFloat
        21: (ctypes.c_uint8, 32),
        22: (ctypes.c_uint16, 1),
        40: (ctypes.c_uint64, 0),
    }
    plain = _dlpack.make(0x1000, (2, 1), array.shape, (12, 4, 1), "float32", None, False)
    address = get(plain, b"dltensor")
    for offset, (kind, value) in tensor.items():
        assert kind.from_address(address + offset).value == value, offset
    shape = ctypes.c_uint64.from_address(address + 24).value
    strides = ctypes.c_uint64.from_address(address + 32).value
    assert list((ctypes.c_int64 * 3).from_address(shape)) == [2, 3, 4]
    assert list((ctypes.c_int64 * 3).from_address(strides)) == [12, 4, 1]
    assert ctypes.c_uint64.from_address(address + 56).value != 0  # the deleter, after the context

    versioned = _dlpack.make(0x1000, (2, 1), array.shape, (12, 4, 1), "float32", None, True)
    address = get(versioned, b"dltensor_versioned")
    assert list((ctypes.c_uint32 * 2).from_address(address)) == [1, 0]
    assert ctypes.c_uint64.from_address(address + 16).value != 0  # the deleter
    assert ctypes.c_uint64.from_address(address + 24).value == 0  # flags: not read-only, not a copy
    for offset, (kind, value) in tensor.items():
        assert kind.from_address(address + 32 + offset).value == value, offset


def test_another_librarys_capsule_is_read_and_given_back() -> None:
    array = np.zeros((2, 3, 4), np.float32)
    alive = weakref.ref(array)
    taken = _dlpack.take(array.__dlpack__())
    assert (taken.pointer, taken.device, taken.dtype) == (array.ctypes.data, (1, 0), "float32")
    assert (taken.shape, taken.strides) == ((2, 3, 4), (48, 16, 4))
    del array
    gc.collect()
    assert alive() is not None
    taken.release()
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8", "complex64", "bool"])
def test_a_capsules_dtype_has_numpys_name(dtype: str) -> None:
    taken = _dlpack.take(np.zeros(4, dtype).__dlpack__(max_version=(1, 0)))
    assert taken.dtype == dtype
    taken.release()


def test_a_dtype_without_a_name_has_its_numbers() -> None:
    tensor = _dlpack._Tensor(code=99, bits=8, lanes=1)
    assert _dlpack._dtype(tensor) == "DLPack type 99"
    tensor.lanes = 4
    assert _dlpack._dtype(tensor) == "DLPack type 99 in vectors of 4"


def test_a_capsule_is_taken_once() -> None:
    capsule = np.zeros(4, np.float64).__dlpack__(max_version=(1, 0))
    taken = _dlpack.take(capsule)
    assert taken.dtype == "float64"
    taken.release()
    for other in (capsule, object()):
        with pytest.raises(ValueError, match="not a DLPack capsule"):
            _dlpack.take(other)
