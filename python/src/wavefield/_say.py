"""Messages to the user, by `logging`: the logger "wavefield"."""

from __future__ import annotations

import logging
import sys
import warnings

_log = logging.getLogger("wavefield")
said: set[str] = set()


def say(words: str, level: int = logging.WARNING) -> None:
    """Log a message. If the program has set up no logging, Python prints warnings on standard error."""
    _log.log(level, "%s", words if _log.hasHandlers() else f"wavefield: {words}")


def warn(words: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's program that has called this package."""
    level, caller = 1, sys._getframe()
    while caller.f_back is not None and str(caller.f_globals.get("__package__")).partition(".")[0] == __package__:
        level, caller = level + 1, caller.f_back
    warnings.warn(words, category, stacklevel=level)


def is_new(about: str) -> bool:
    """Return whether this is the first call about something."""
    new = about not in said
    said.add(about)
    return new


def say_once(words: str, about: str = "", level: int = logging.WARNING) -> None:
    """Log a message, once; of several messages `about` the same, the first."""
    if words and is_new(about or words):
        say(words, level)
