"""Sliders, buttons and check boxes in the window, and functions that its keys and clicks call."""

from __future__ import annotations

import contextlib
from collections import deque
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from .._memory.numbers import number
from ..errors import Refused, RendererGone, brief
from . import protocol as _protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from .._memory.layout import Layout
    from .connection import Connection
    from .protocol import Message

MOST_ENTRIES, LONGEST_LABEL = 64, 100

MOST_EVENTS = 256
"""So many keys and clicks wait for the program's next call; the newest replace the oldest."""

NAMES: tuple[str, ...] = (
    "escape",
    "tab",
    "backspace",
    "enter",
    "insert",
    "delete",
    "home",
    "end",
    "pageup",
    "pagedown",
)
NAMES += ("space", "left", "right", "up", "down")
NAMED_KEYS = {*NAMES, *(f"f{count}" for count in range(1, 36))}


class Entry:
    """An entry of the window's panel."""

    _reads = "value"

    def __init__(self, panel: Panel, label: object, **settings: Any) -> None:
        if not isinstance(label, str):
            raise TypeError(f"a label must be text, not {brief(label)}")
        if not 1 <= len(label) <= LONGEST_LABEL or any("\ud800" <= one <= "\udfff" for one in label):
            raise ValueError(f"a label has 1 to {LONGEST_LABEL} characters of text, not {brief(label)}")
        self.label = label
        self._panel = panel
        self._settings = settings
        self._value: Any = None

    @property
    def value(self) -> Any:
        """What the user has chosen. Set it to change it.

        It stays as it is once the window is closed, and in a renderer without a window.
        """
        self._panel.pump()
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        checked = self._checked(value)
        self._panel.pump()
        if checked != self._value:
            self._value = checked
            self._panel.send([self])

    def _checked(self, value: Any) -> Any:
        raise AttributeError(f"{self!r} has no value to set to {brief(value)}: read its pressed")

    def _heard(self, value: object) -> None:
        """Take what the user has chosen."""
        with contextlib.suppress(TypeError, ValueError):
            self._value = self._checked(value)

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} is neither true nor false: read its {self._reads}")

    def __repr__(self) -> str:
        return f"<wavefield.{type(self).__name__} {self.label!r}{'' if self._value is None else f' {self._value}'}>"


class Slider(Entry):
    """A slider of the window's panel: `field.slider`."""

    def _checked(self, value: Any) -> float:
        low, high = self._settings["low"], self._settings["high"]
        known = number("value", value)
        if not low <= known <= high:
            raise ValueError(f"the value of {self.label!r} must be from {low} to {high}, not {brief(value)}")
        return round(known) if self._settings["integer"] else float(known)


class Checkbox(Entry):
    """A check box of the window's panel: `field.checkbox`."""

    def _checked(self, value: Any) -> bool:
        if type(value).__name__ not in ("bool", "bool_"):
            raise TypeError(f"value must be True or False, not {brief(value)}")
        return bool(value)


class Button(Entry):
    """A button of the window's panel: `field.button`."""

    _presses, _reads = 0, "pressed"

    @property
    def pressed(self) -> bool:
        """Whether the user has pressed it: true once for each press."""
        self._panel.pump()
        pressed = self._presses > 0
        self._presses -= pressed
        return pressed

    def _heard(self, value: object) -> None:
        self._presses += value is True


class Film(Protocol):
    """A film that is being recorded."""

    path: Path
    fps: float

    def add(self, field: Any) -> None:
        """Add the picture of the frame that was handed over last."""

    def settle(self) -> None:
        """Wait for the pictures so far."""


Kind = TypeVar("Kind", bound=Entry)


class Panel:
    """What a program wants its window to show and to report. It stays when `show` connects for another layout."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.entries: dict[str, Entry] = {}
        self.keys: dict[str | None, Callable[[str], object]] = {}
        """The functions by the key that calls them; that of None is for the others."""
        self.click: Callable[..., object] | None = None
        self.film: Film | None = None
        """The film that is being recorded."""
        self.handed = 0
        """How many frames were handed over."""
        self._events: deque[tuple[str, tuple[Any, ...]]] = deque(maxlen=MOST_EVENTS)
        self._calling = False

    def attach(self, connection: Connection) -> None:
        """Show the panel on this connection."""
        self.connection = connection
        if self.entries or self.keys or self.click:
            self.send(self.entries.values())

    def slider(self, label: str, low: float, high: float, value: float | None) -> Slider:
        """Add a slider."""
        ends = number("low", low), number("high", high)
        if not 0 < ends[1] - ends[0] < float("inf"):
            raise ValueError(f"low must be less than high, and these are {brief(low)} and {brief(high)}")
        value = low if value is None else value
        whole = all(isinstance(one, Integral) for one in (low, high, value))
        return self.add(Slider(self, label, kind="slider", low=ends[0], high=ends[1], integer=whole), value)

    def add(self, new: Kind, value: Any = None) -> Kind:
        """Add an entry. One with the same label and settings stays instead, with what the user chose."""
        new._value = None if isinstance(new, Button) else new._checked(value)
        old = self.entries.get(new.label)
        if isinstance(old, type(new)) and old._settings == new._settings:
            return old
        if old is None and len(self.entries) == MOST_ENTRIES:
            raise ValueError(f"a window's panel has at most {MOST_ENTRIES} entries")
        self.entries[new.label] = new
        self.send([new])
        return new

    def send(self, new: Iterable[Entry] = ()) -> None:
        """Tell the renderer, with the values of the `new` entries."""
        values = {entry.label: {"value": entry._value} for entry in new if entry._value is not None}
        entries = [{"label": label, **one._settings, **values.get(label, {})} for label, one in self.entries.items()]
        wish: Message = {"type": "panel", "entries": entries, "clicks": self.click is not None}
        if self.keys:
            wish["keys"] = [*filter(None, self.keys)]
        # After the window is closed, the next `show` raises this.
        with contextlib.suppress(RendererGone):
            if self.connection is not None and not self.connection.closed:
                self.connection.post(wish, "panel", _answered)

    def pump(self, timeout: float = 0.0) -> None:
        """Hear what the user has done. Waits up to `timeout` seconds for something."""
        with contextlib.suppress(RendererGone):
            if self.connection is not None and not self.connection.closed:
                self.connection.pump(timeout)

    def heard(self, message: Message, layout: Layout, names: Sequence[str]) -> bool:
        """Note what the user has done. Returns whether the message says that. `names`: of several arrays."""
        match message["type"]:
            case "changed":
                if (entry := self.entries.get(_protocol.text(message, "label"))) is not None:
                    entry._heard(message.get("value"))
            case "key":
                self._events.append(("key", (_protocol.text(message, "key"),)))
            case "click":
                index, values = _protocol.integer(message, "index"), message.get("values")
                which = _protocol.integer(message, "array", 0, len(layout.more)) if "array" in message else 0
                layout = (layout, *layout.more)[which]
                numbers = [float("nan") if one is None else one for one in values] if isinstance(values, list) else []
                grid = layout.kind in ("image", "surface", "mesh")
                place = divmod(index, layout.shape[1]) if grid else (index,)
                value = numbers[0] if len(numbers) == 1 else tuple(numbers)
                self._events.append(("click", (*names[which : which + 1], *place, value)))
            case _:
                return False
        return True

    def call(self) -> None:
        """Call the functions of what has happened, in this thread. One that shows something calls none."""
        if not (self.keys or self.click) or self._calling:
            return
        self.pump()
        self._calling = True
        try:
            while self._events:
                kind, arguments = self._events.popleft()
                function = self.keys.get(arguments[0], self.keys.get(None)) if kind == "key" else self.click
                if function is not None:
                    function(*arguments)
        finally:
            self._calling = False


def _answered(message: Message) -> None:
    if message["type"] == "failed":
        raise Refused("failed", _protocol.text(message, "reason", "the renderer gave no reason"))


def key_of(key: object) -> str:
    """Return the name of a key as the window says it."""
    if not isinstance(key, str):
        raise TypeError(f"a key is text, such as 'r' or 'left', not {brief(key)}")
    name = "space" if key == " " else key.lower()
    if not (name in NAMED_KEYS or (len(name) == 1 and name.isascii() and name.isprintable())):
        raise ValueError(f"there is no key {brief(key)}: name one character, or {', '.join(NAMES)}, or f1 to f35")
    return name


def callable_of(function: Any) -> Any:
    """Return a checked function."""
    if not callable(function):
        raise TypeError(f"this calls a function, not {brief(function)}")
    return function
