"""Messages to the user, by `logging`: the logger "wavefield"."""

from __future__ import annotations

import logging

_log = logging.getLogger("wavefield")


def say(words: str, level: int = logging.WARNING) -> None:
    """Log a message. If the program has set up no logging, Python prints warnings on standard error."""
    _log.log(level, "%s", words if _log.hasHandlers() else f"wavefield: {words}")
