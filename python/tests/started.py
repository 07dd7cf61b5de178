"""The renderer that `wavefield.show` starts in the tests: the fake one instead of a process."""

from __future__ import annotations

from typing import Any

from wavefield import _launch


class Started(_launch.Renderer):
    """Has the fake renderer's socket instead of a process."""

    all: list[Started] = []  # noqa: RUF012
    fake: Any = None

    def __init__(self, arguments: Any, notebook: bool = False) -> None:
        self.arguments = list(arguments)
        self.socket = self.fake.path
        self.ended = 0
        self.all.append(self)

    def still_starting(self, since: float) -> None:
        pass

    def close(self) -> None:
        self.ended += 1
