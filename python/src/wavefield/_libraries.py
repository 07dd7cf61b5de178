"""The libraries that are not always there: imports them, or says why not and what to do."""

from __future__ import annotations

import contextlib
import importlib.util
from typing import Any

from .errors import LibraryMissing

INSTALL = {
    "cupy": "cupy-cuda13x",
    "torch": "torch",
    "numba.cuda": "'numba-cuda[cu13]'",
    "jupyter_rfb": "jupyter_rfb",
    "anywidget": "anywidget",
}


def need(module: str, call: str) -> Any:
    """Return a library's module. Raises `LibraryMissing`, which says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise LibraryMissing(f"{call} needs {module}, which {why_missing(module, error, INSTALL[module])}") from None


def why_missing(module: str, error: ImportError, package: str) -> str:
    """Return why a module cannot be imported, and what to do: install it, or rename a file that hides it."""
    top = module.partition(".")[0]
    with contextlib.suppress(ImportError, ValueError):
        found = importlib.util.find_spec(top)
        # These are packages: a folder with __init__.py, or several folders.
        if found is not None and found.submodule_search_locations is None:
            return f"cannot be imported, because {found.origin} has the same name: rename that file"
    return f"cannot be imported ({error}): pip install {package}"
