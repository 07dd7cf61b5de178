"""The Python code in the READMEs and in `help(wavefield)`, and a check that a picture shows something."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import numpy as np

import wavefield

ROOT = Path(__file__).resolve().parent.parent.parent


BLOCKS = (
    "one line",
    "called again",
    "arrays of your own",
    "frame after frame",
    "pictures",
    "kernel",
)
"""The subjects of the Python blocks of python/README.md, in order."""


def blocks(name: str) -> list[str]:
    """Return the Python blocks of a document."""
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)


def block(what: str) -> str:
    """Return a Python block of python/README.md by its subject."""
    return dict(zip(BLOCKS, blocks("python/README.md"), strict=True))[what]


def one_lines() -> dict[str, str]:
    """Return the code that shows an array with one line, by its place."""
    return {"README.md": blocks("README.md")[0], "python/README.md": block("one line")}


def first_examples() -> dict[str, str]:
    """Return the code that writes frame after frame, by its place."""
    lines = (wavefield.__doc__ or "").splitlines()
    return {
        "python/README.md": block("frame after frame"),
        "help(wavefield)": textwrap.dedent("\n".join(line for line in lines if not line or line.startswith("    "))),
    }


def shows_something(picture: np.ndarray) -> bool:
    """Return whether a picture shows more than the background, which has a hundred colours."""
    return len(np.unique(picture[..., :3].reshape(-1, 3), axis=0)) > 1000
