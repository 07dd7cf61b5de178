"""Which program is started as the renderer."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shutil
from pathlib import Path

from ..errors import NoRenderer


def find_renderer() -> str:
    """Return the path of `wavefield`: the one in WAVEFIELD_BIN, else in this package's wheel, else on PATH."""
    named = os.environ.get("WAVEFIELD_BIN")
    if named:
        if not os.access(named, os.X_OK):
            raise NoRenderer(f"WAVEFIELD_BIN names {named}, which is not an executable program")
        return named
    found = _installed() or shutil.which("wavefield")
    if found is None:
        raise NoRenderer(
            "the program wavefield was not found: install the wheel with pip, run `cargo install --path "
            "tool/wavefield` in the repository, or set WAVEFIELD_BIN to the program"
        )
    return found


def _installed() -> str | None:
    """Return the program that was installed with this package, from the list of files that pip keeps."""
    for distribution in importlib.metadata.distributions(name="wavefield"):
        files = {os.path.normpath(file.locate()): file.name for file in distribution.files or []}
        if not any(_leads_here(path) for path in files):
            continue  # another distribution of the same name
        for path, name in files.items():
            if name == "wavefield" and os.path.isfile(path) and os.access(path, os.X_OK):
                return path
    # pip's --target moves the program, but not its entry in the list.
    return shutil.which("wavefield", path=str(Path(__file__).absolute().parents[2] / "bin"))


def _leads_here(path: str) -> bool:
    """Return whether an installed file is this one, or adds a folder of this one to the search path."""
    here = Path(__file__).resolve()
    if path.endswith(".pth"):  # of an editable installation
        with contextlib.suppress(OSError, ValueError):
            return any(here.is_relative_to(Path(line).resolve()) for line in Path(path).read_text().split("\n") if line)
        return False
    return path.endswith(here.name) and Path(path).resolve() == here
