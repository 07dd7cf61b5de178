"""From a Numba function to PTX with the signature that the renderer launches."""

from __future__ import annotations

import re
from typing import Any

from .errors import KernelError

SIGNATURE = "(float4 *vertices, unsigned cols, unsigned rows, unsigned long long frame, double time)"
OLDEST = (7, 5)
"""What is compiled for where the GPU is not known; every later one runs it."""


def entries(ptx: str) -> list[str]:
    """Return the names of the kernels in PTX text."""
    return re.findall(r"^[^/\n]*\.entry\s+([\w$%]+)", ptx, re.MULTILINE)


def ptx_of(kernel: Any, entry: str | None, capability: tuple[int, int] | None) -> tuple[str, str]:
    """Return PTX text and the entry to run, of PTX text or of a Numba function."""
    if isinstance(kernel, bytes):
        kernel = kernel.decode("utf-8", "replace")
    if isinstance(kernel, str):
        found = entries(kernel)
        if not found:
            raise KernelError("no .entry in it: is this PTX text? A file is given by its text: Path(…).read_text()")
        if entry is None and len(found) > 1:
            raise KernelError(f"the PTX has several entries, name one by entry=…: {', '.join(found)}")
        if entry is not None and entry not in found:
            raise KernelError(f"the PTX has no entry {entry!r}; it has: {', '.join(found)}")
        return kernel, entry or found[0]
    function = getattr(kernel, "py_func", kernel)
    if not callable(function):
        raise TypeError("a kernel is a Numba function, a Python function that Numba can compile, or PTX text")
    return _compile(function, entry, capability)


def _compile(function: Any, entry: str | None, capability: tuple[int, int] | None) -> tuple[str, str]:
    name = getattr(function, "__name__", "kernel")
    try:
        from numba import cuda, types
    except ImportError as error:
        raise KernelError(
            f"Numba compiles {name}, and cannot be imported ({error}): pip install 'numba-cuda[cu13]'"
        ) from None
    # A float4 * is a pointer to 4 * cols * rows floats.
    signature = types.void(types.CPointer(types.float32), types.uint32, types.uint32, types.uint64, types.float64)
    try:
        ptx, _ = cuda.compile_ptx(function, signature, cc=capability or OLDEST, fastmath=True)
    except Exception as error:
        raise KernelError(f"Numba does not compile {name} with the signature {SIGNATURE}:\n{error}") from error
    (mangled,) = entries(ptx)
    # Numba's own name holds types and hashes. The prefix keeps it apart from PTX's words, such as `add`.
    entry = entry or "field_" + re.sub(r"\W", "_", name)
    return re.sub(rf"(?<![\w$%]){re.escape(mangled)}", entry, ptx), entry
