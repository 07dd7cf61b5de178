"""Which program `wavefield` is started: WAVEFIELD_BIN's, else the wheel's, else the one on PATH."""

from __future__ import annotations

from pathlib import Path

import pytest

import wavefield
from wavefield._launch import find_renderer


def program(folder: Path, mode: int = 0o755) -> Path:
    folder.mkdir(parents=True)
    path = folder / "wavefield"
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "lib" / "site-packages"
    about = site / "wavefield-0.1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Name: wavefield\nVersion: 0.1.0\n")
    (about / "RECORD").write_text("wavefield/__init__.py,,\nwavefield/py.typed,,\n../../bin/wavefield,,\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delenv("WAVEFIELD_BIN", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    with pytest.raises(wavefield.NoRenderer, match="pip install"):
        find_renderer()
    on_path = program(tmp_path / "path")
    assert find_renderer() == str(on_path)
    of_the_wheel = program(tmp_path / "bin")
    assert find_renderer() == str(of_the_wheel)
    named = program(tmp_path / "named")
    monkeypatch.setenv("WAVEFIELD_BIN", str(named))
    assert find_renderer() == str(named)
    named.chmod(0o644)
    with pytest.raises(wavefield.NoRenderer, match=r"WAVEFIELD_BIN names .* no program that can be run"):
        find_renderer()
    monkeypatch.delenv("WAVEFIELD_BIN")
    of_the_wheel.unlink()
    assert find_renderer() == str(on_path), "a list may name what is gone"
