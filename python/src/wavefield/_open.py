"""The open fields. They are closed at the program's end; a forked child leaves them to its parent."""

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
"""Called at the program's end, before the fields are closed."""

# The newest is the last.
_fields: list[weakref.ref[Field]] = []


def opened(field: Field) -> None:
    """Remember a field."""
    _fields[:] = [*(ref for ref in _fields if ref() is not None), weakref.ref(field)]
    # The hook that is registered last is called first. Closing needs the renderer, which `launch` ends in a hook of its
    # own, registered before its field was made.
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def newest_in_cuda() -> Field | None:
    """Return the newest open field in CUDA memory, from which `NumbaMemoryManager` allocates."""
    _fields[:] = [ref for ref in _fields if (field := ref()) is not None and not field._closed]
    for ref in reversed(_fields):
        field = ref()
        if field is not None and field.memory == "cuda":
            return field
    return None


def _close_all() -> None:
    """Close the fields that the program left open, while everything that closing needs still exists."""
    for call in before_closing:
        call()
    with contextlib.ExitStack() as fields:
        for ref in _fields:
            if (field := ref()) is not None:
                fields.callback(field.close)


def _forget_all() -> None:
    """Leave the fields to the parent: closing in the child would send `bye` in the parent's name."""
    for ref in _fields:
        if (field := ref()) is not None:
            field._forget()


os.register_at_fork(after_in_child=_forget_all)
