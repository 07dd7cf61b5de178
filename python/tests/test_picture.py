"""Pictures as PNG files. They are written without Pillow, and read with it."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import wavefield
from fake_renderer import FakeRenderer
from wavefield import _picture


def pixels(png: bytes) -> np.ndarray:
    from PIL import Image

    with Image.open(io.BytesIO(png)) as picture:
        assert picture.mode == "RGBA"
        return np.asarray(picture)


@pytest.mark.parametrize("shape", [(1, 1, 4), (2, 3, 4), (90, 160, 4)])
def test_a_png_has_the_pixels(shape: tuple[int, ...]) -> None:
    pytest.importorskip("PIL")
    picture = np.random.default_rng(3).integers(0, 256, shape, np.uint8)
    np.testing.assert_array_equal(pixels(_picture.png(picture)), picture)


def test_a_field_shows_itself_in_a_notebook(host: wavefield.Field) -> None:
    pytest.importorskip("PIL")
    png = host._repr_png_()
    assert png is not None
    np.testing.assert_array_equal(pixels(png), host.snapshot())
    host.close()
    assert host._repr_png_() is None, "its words are shown then"


def test_a_picture_is_saved_whole_or_not_at_all(host: wavefield.Field, renderer: FakeRenderer, tmp_path: Path) -> None:
    there = tmp_path / "here" / "picture.png"
    there.parent.mkdir()
    host.save(there)
    for _ in host.frames(1):
        pass
    host.save(str(there))
    first = there.read_bytes()
    assert first == _picture.png(host.snapshot())
    assert (there.stat().st_mode & 0o777) != 0o600, "others may read it as any file"
    renderer.answers["snapshot"] = lambda session, *_: session.send(
        {"type": "failed", "request": "snapshot", "reason": "there is no picture yet"}
    )
    with pytest.raises(wavefield.Refused, match="there is no picture yet"):
        host.save(there)
    with pytest.raises(ValueError, match=r"use the name .*picture\.png"):
        host.save(tmp_path / "picture.jpg")
    with pytest.raises(OSError, match="No such file"):
        del renderer.answers["snapshot"]
        host.save(tmp_path / "nowhere" / "picture.png")
    assert [path.name for path in there.parent.iterdir()] == ["picture.png"]
    assert there.read_bytes() == first
    host.close()
    with pytest.raises(wavefield.FieldClosed):
        host.save(there)
