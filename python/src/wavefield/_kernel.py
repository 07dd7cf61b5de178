"""Makes and checks PTX with the signature that the renderer launches."""

from __future__ import annotations

import re
from typing import Any

from .errors import KernelError

SIGNATURE = "(float4 *vertices, unsigned cols, unsigned rows, unsigned long long frame, double time)"
OLDEST = (7, 5)
"""The compute capability to compile for if the GPU is not known. Every later GPU runs the PTX."""


_POINTER = {".u64", ".s64", ".b64", ".b8[8]", ".u64 .ptr", ".b64 .ptr", ".u64 .ptr .global", ".b64 .ptr .global"}
_U32 = {".u32", ".s32", ".b32", ".b8[4]"}
_U64 = {".u64", ".s64", ".b64", ".b8[8]"}
_F64 = {".f64", ".b64", ".b8[8]"}
_TYPES = (_POINTER, _U32, _U32, _U64, _F64)
"""The ways in which compilers write the parameters of `SIGNATURE`."""

_PARAMETER = re.compile(r"^[^\S\n]*//!PARAM(?=\s|\Z)", re.MULTILINE)
_NO_CODE = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|"[^"\n]*"?', re.DOTALL)
_HEAD = re.compile(r"\s+([\w$%]+)\s*(?:\(([^)]*)\))?([^{]*)", re.ASCII)


def entries(ptx: str) -> dict[str, str]:
    """Return the parameters of each entry of PTX text, by its name.

    The renderer does the same in `crates/wavefield/src/cuda/ptx.rs`.
    """
    found = {}
    for text in _NO_CODE.sub(" ", ptx).split(".entry")[1:]:
        head = _HEAD.match(text)
        # Only a `.pragma` directive may end in `;` before the body. Any other `;` ends a declaration without a body.
        if head and all(".pragma" in directive for directive in head[3].split(";")[:-1]):
            found[head[1]] = (head[2] or "").strip()
    return found


def _type(declaration: str) -> str:
    """Return the type in `.param .u64 .ptr .align 16 name` or `.param .align 4 .b8 x[12]`: `.u64 .ptr`, `.b8[12]`."""
    declaration, array, count = declaration.partition("[")
    words = [word for word in declaration.replace(".", " .").split() if word.startswith(".")]
    kind = " ".join(word for word in words if word not in (".param", ".reg", ".align"))
    return f"{kind}[{count.partition(']')[0].strip()}]" if array else kind


def _check_signature(entry: str, parameters: str, floats: int) -> None:
    found = [_type(declaration) for declaration in parameters.split(",")] if parameters else []
    types = (*_TYPES, {f".b8[{4 * floats}]"}) if floats else _TYPES
    if len(found) == len(types) and all(kind in kinds for kind, kinds in zip(found, types, strict=True)):
        return
    structure = f", .b8[{4 * floats}]" if floats else ""
    words = f", and a structure of floats for its lines of //!PARAM ({floats})" if floats else ""
    raise KernelError(
        f"the parameters of entry `{_short(entry)}` are wrong: expected (.u64, .u32, .u32, .u64, .f64{structure}), "
        f"which is {SIGNATURE}{words}; found ({_listed(found)}); see crates/wavefield/kernels/README.md"
    )


def _listed(items: list[str]) -> str:
    few = ", ".join(map(_short, items[:8]))
    return few if len(items) <= 8 else f"{few}, … ({len(items)} in all)"


def _short(name: str) -> str:
    return name if len(name) <= 100 else f"{name[:100]}…"


def ptx_of(kernel: Any, entry: str | None, capability: tuple[int, int] | None) -> tuple[str, str]:
    """Return PTX text and the entry to run, from PTX text or a Numba function."""
    if isinstance(kernel, bytes):
        kernel = kernel.decode("utf-8", "replace")
    if isinstance(kernel, str):
        found = entries(kernel)
        if not found:
            raise KernelError("the text has no .entry: is it PTX? For a file, give its text: Path(…).read_text()")
        if entry is None and len(found) > 1:
            raise KernelError(f"the PTX has several entries; choose one with entry=…: {_listed(list(found))}")
        if entry is None:
            (entry,) = found
        if entry not in found:
            raise KernelError(f"the PTX has no entry {_short(entry)!r}; it has: {_listed(list(found))}")
        # The renderer checks the //!PARAM lines themselves.
        _check_signature(entry, found[entry], len(_PARAMETER.findall(kernel)))
        return kernel, entry
    function = getattr(kernel, "py_func", kernel)
    if not callable(function):
        raise TypeError("a kernel must be a Numba function, a Python function that Numba can compile, or PTX text")
    return _compile(function, entry, capability)


def _compile(function: Any, entry: str | None, capability: tuple[int, int] | None) -> tuple[str, str]:
    name = getattr(function, "__name__", "kernel")
    try:
        from numba import cuda, types
    except ImportError as error:
        raise KernelError(
            f"compiling {name} needs Numba, which cannot be imported ({error}): pip install 'numba-cuda[cu13]'"
        ) from None
    # Numba has no float4; the pointer leads to 4 * cols * rows floats.
    signature = types.void(types.CPointer(types.float32), types.uint32, types.uint32, types.uint64, types.float64)
    try:
        ptx, _ = cuda.compile_ptx(function, signature, cc=capability or OLDEST, fastmath=True)
    except Exception as error:
        raise KernelError(f"Numba cannot compile {name} with the signature {SIGNATURE}:\n{error}") from error
    (mangled,) = entries(ptx)
    # Numba's own name contains types and hashes. The prefix avoids names that are words of PTX, such as `add`.
    entry = entry or "field_" + re.sub(r"\W", "_", name)
    return re.sub(rf"(?<![\w$%]){re.escape(mangled)}", entry, ptx), entry
