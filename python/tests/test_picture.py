"""Pictures as PNG files. They are written without Pillow, and read with it."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest

import wavefield
from fake_renderer import FakeRenderer
from wavefield._pictures import picture as _picture


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
    # An old file keeps its mode, its ACL and the link that leads to it.
    there.chmod(0o640)
    link = tmp_path / "link.png"
    link.symlink_to(there)
    host.save(link)
    assert link.is_symlink()
    assert (there.stat().st_mode & 0o777, there.read_bytes()) == (0o640, first)
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


def test_an_acl_stays_and_nobody_gets_more_rights(tmp_path: Path) -> None:
    there, name = tmp_path / "picture.png", "system.posix_acl_access"
    there.write_bytes(b"old")
    # The version, then tag, rights and id of each: the owner, user 1000, the group, the mask, the others.
    entries = ((1, 6, -1), (2, 6, 1000), (4, 0, -1), (0x10, 6, -1), (0x20, 0, -1))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(there, name, acl)
    except OSError as error:
        pytest.skip(f"this file system has no ACLs: {error}")
    _picture.write_whole(there, b"new")
    assert (os.getxattr(there, name), there.stat().st_mode & 0o777, there.read_bytes()) == (acl, 0o660, b"new")


def test_the_process_s_umask_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(mask: int) -> int:
        raise AssertionError("another thread would make files that anybody can write")

    monkeypatch.setattr(os, "umask", forbidden)
    _picture.write_whole(tmp_path / "picture.png", b"new")
    assert (tmp_path / "picture.png").read_bytes() == b"new"
