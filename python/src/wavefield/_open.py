"""The open fields. They are closed at the program's end; a forked child leaves them to its parent."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from collections.abc import Callable
from typing import Protocol


class Open(Protocol):
    """A field, as far as this needs it."""

    def close(self) -> None: ...
    def _forget(self) -> None: ...


before_closing: list[Callable[[], None]] = []
"""Called at the program's end, before the fields are closed."""

# The newest is the last.
_fields: list[weakref.ref[Open]] = []


def opened(field: Open) -> None:
    """Remember a field."""
    _fields[:] = [weakref.ref(one) for one in (*those(), field)]
    # The hook that is registered last is called first. Closing needs the renderer, which `launch` ends in a hook of its
    # own, registered before its field was made.
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def those() -> list[Open]:
    """Return the fields that nobody has dropped, the newest last; a closed one may be among them."""
    return [field for ref in _fields if (field := ref()) is not None]


def _close_all() -> None:
    """Close the fields that the program left open, while everything that closing needs still exists."""
    for call in before_closing:
        call()
    with contextlib.ExitStack() as fields:
        for field in those():
            fields.callback(field.close)


def _forget_all() -> None:
    """Leave the fields to the parent: closing in the child would send `bye` in the parent's name."""
    for field in those():
        field._forget()


os.register_at_fork(after_in_child=_forget_all)
