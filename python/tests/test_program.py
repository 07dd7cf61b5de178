"""Which program `wavefield` is started: that of WAVEFIELD_BIN, else the wheel's, else the one on PATH."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import wavefield
from wavefield._renderer import program as _program
from wavefield._renderer.program import find_renderer


def program(folder: Path, mode: int = 0o755) -> Path:
    folder.mkdir(parents=True)
    path = folder / "wavefield"
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def distribution(site: Path, *files: str) -> None:
    """Make the files that pip installs for a distribution called wavefield."""
    about = site / "wavefield-0.1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Name: wavefield\nVersion: 0.1.0\n")
    (about / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that this package is installed there."""
    here = site / "wavefield" / "_renderer" / "program.py"
    here.parent.mkdir(parents=True)
    here.touch()
    monkeypatch.setattr(_program, "__file__", str(here))


def test_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "lib" / "site-packages"
    distribution(site, "wavefield/_renderer/program.py", "wavefield/py.typed", "../../bin/wavefield")
    installed(site, monkeypatch)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delenv("WAVEFIELD_BIN", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    with pytest.raises(wavefield.NoRenderer, match="install the wheel with pip"):
        find_renderer()
    on_path = program(tmp_path / "path")
    assert find_renderer() == str(on_path)
    of_the_wheel = program(tmp_path / "bin")
    assert find_renderer() == str(of_the_wheel)
    named = program(tmp_path / "named")
    monkeypatch.setenv("WAVEFIELD_BIN", str(named))
    assert find_renderer() == str(named)
    named.chmod(0o644)
    with pytest.raises(wavefield.NoRenderer, match=r"WAVEFIELD_BIN names .* not an executable program"):
        find_renderer()
    monkeypatch.delenv("WAVEFIELD_BIN")
    of_the_wheel.unlink()
    assert find_renderer() == str(on_path), "a list may name what is gone"


def test_a_program_that_pip_has_put_into_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install --target`: its list names the folder that the program was moved from."""
    monkeypatch.delenv("WAVEFIELD_BIN", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    target = tmp_path / "target"
    distribution(target, "wavefield/_renderer/program.py", "../../bin/wavefield")
    installed(target, monkeypatch)
    monkeypatch.syspath_prepend(str(target))
    with pytest.raises(wavefield.NoRenderer):
        find_renderer()
    assert program(target / "bin") and find_renderer() == str(target / "bin" / "wavefield")


def test_another_distributions_program_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other has the same name, and comes earlier on the search path."""
    monkeypatch.delenv("WAVEFIELD_BIN", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    ours, other = tmp_path / "ours" / "lib", tmp_path / "other" / "lib"
    distribution(other, "wavefield/__init__.py", "../bin/wavefield")
    program(tmp_path / "other" / "bin")
    installed(ours, monkeypatch)
    monkeypatch.syspath_prepend(str(other))
    with pytest.raises(wavefield.NoRenderer, match="install the wheel with pip"):
        find_renderer()
    distribution(ours, "wavefield/_renderer/program.py", "../bin/wavefield")
    monkeypatch.setattr(sys, "path", [*sys.path, str(ours)])
    of_the_wheel = program(tmp_path / "ours" / "bin")
    assert find_renderer() == str(of_the_wheel)


def test_an_editable_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It consists of a file with the path of the sources, and of the program."""
    monkeypatch.delenv("WAVEFIELD_BIN", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    site = tmp_path / "lib"
    distribution(site, "wavefield.pth", "../bin/wavefield")
    (site / "wavefield.pth").write_text(f"{tmp_path / 'src'}\n")
    installed(tmp_path / "src", monkeypatch)
    monkeypatch.syspath_prepend(str(site))
    built = program(tmp_path / "bin")
    assert find_renderer() == str(built)
