"""Numba's compiler. Fetching it takes long, so only its own tests may need it."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def numba_cuda() -> Any:
    """Return `numba.cuda`. Without it, skips the test, or fails with WAVEFIELD_PYTHON_NUMBA=1."""
    if os.environ.get("WAVEFIELD_PYTHON_NUMBA") == "1":
        return importlib.import_module("numba.cuda")
    why = "skipped: no Numba; WAVEFIELD_PYTHON_NUMBA=1 scripts/python.sh fetches it"
    return pytest.importorskip("numba.cuda", reason=why)
