"""The fields that are open: closed when the program ends, and left to the parent by a forked child."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .field import Field

before_closing: list[Callable[[], None]] = []
"""Called at the end of the program, before the fields are closed."""

# The newest last.
_fields: list[weakref.ref[Field]] = []


def opened(field: Field) -> None:
    """Remember a field."""
    _fields[:] = [*(ref for ref in _fields if ref() is not None), weakref.ref(field)]
    # The last one registered is the first one called. Closing needs the renderer, which `launch` ends by a hook of its
    # own that was registered before its field was made.
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def newest_in_cuda() -> Field | None:
    """Return the newest open field in CUDA memory: what NumbaMemoryManager allocates from."""
    _fields[:] = [ref for ref in _fields if (field := ref()) is not None and not field.closed]
    for ref in reversed(_fields):
        field = ref()
        if field is not None and field.memory == "cuda":
            return field
    return None


def _close_all() -> None:
    """Close what a program has forgotten to close, while everything that this needs is still there."""
    for call in before_closing:
        call()
    with contextlib.ExitStack() as fields:
        for ref in _fields:
            if (field := ref()) is not None:
                fields.callback(field.close)


def _forget_all() -> None:
    """Leave the fields to the parent process: the child would say goodbye in its name, and hide its end."""
    for ref in _fields:
        if (field := ref()) is not None:
            field._closed = True
            field._connection.forget()


os.register_at_fork(after_in_child=_forget_all)
