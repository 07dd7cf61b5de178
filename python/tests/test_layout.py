"""What an array is drawn as, and the errors of arrays that cannot be drawn."""

from __future__ import annotations

import pytest

import wavefield
from wavefield._memory.layout import Layout, kind_of


@pytest.mark.parametrize(
    ("shape", "dtype", "kind"),
    [
        ((40, 60), "float32", "image"),
        ((40, 60, 1), "uint8", "image"),
        ((40, 60, 3), "uint8", "image"),
        ((40, 60, 4), "float32", "image"),
        ((40, 3), "float32", "points"),
        ((40, 4), "float64", "points"),
        ((1, 3), "bfloat16", "points"),
        ((40, 3), "uint8", "image"),
        ((40, 5), "float32", "image"),
        ((40,), "int64", "lines"),
    ],
)
def test_what_a_shape_is_taken_for(shape: tuple[int, ...], dtype: str, kind: str) -> None:
    assert kind_of(shape, dtype) == kind


@pytest.mark.parametrize(
    ("shape", "cure"),
    [
        ((3, 40, 60), r"in PyTorch x\.permute\(1, 2, 0\)"),
        ((8, 3, 40, 60), r"show one of its images, x\[0\]"),
        ((), "The possible shapes are: mesh"),
        ((40, 60, 2), "The possible shapes are: mesh"),
    ],
)
def test_a_shape_that_cannot_be_drawn_has_its_cure(shape: tuple[int, ...], cure: str) -> None:
    with pytest.raises(wavefield.ArrayMismatch, match=cure):
        kind_of(shape, "float32")


@pytest.mark.parametrize(
    ("kind", "shape", "dtype", "words"),
    [
        ("mesh", (4, 6), "float32", r"\(rows, cols, 4\), not \(4, 6\)"),
        ("mesh", (1, 6, 4), "float32", "at least 2 along each axis"),
        ("mesh", (4, 6, 4), "float16", "must be float32, not float16: convert it"),
        ("points", (0, 3), "float32", "too small"),
        ("points", (7, 2), "float32", r"\(n, 3\) or \(n, 4\)"),
        ("surface", (4, 6, 1), "float32", r"\(rows, cols\)"),
        ("surface", (4, 6), "complex64", r"abs\(x\)"),
        ("image", (4, 6), "float64", r'astype\("float32"\)'),
        ("image", (3, 4, 6), "float32", "channels come first"),
        ("image", (2**16, 2**16), "uint8", "too many elements"),
        ("cloud", (4, 6), "float32", "mesh, surface, points, image, triangles or lines"),
    ],
)
def test_what_does_not_fit_is_named(kind: str, shape: tuple[int, ...], dtype: str, words: str) -> None:
    with pytest.raises(wavefield.ArrayMismatch, match=words):
        Layout.of(kind, shape, dtype)


def test_connect_names_what_is_missing() -> None:
    for named in ({"kind": "image"}, {"dtype": "uint8"}):
        with pytest.raises(wavefield.ArrayMismatch, match="shape=… is missing"):
            wavefield.connect(memory="host", **named)  # type: ignore[arg-type]
    with pytest.raises(wavefield.ArrayMismatch, match="whole numbers"):
        wavefield.connect(memory="host", shape=(2.5, 3))  # type: ignore[arg-type]
