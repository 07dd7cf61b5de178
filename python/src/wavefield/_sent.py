"""The kernels that a connection has sent, and what becomes of them."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from . import _protocol
from ._connection import close_all
from .errors import KernelError

if TYPE_CHECKING:
    from ._connection import Connection
    from ._protocol import Message


class Kernels:
    """The kernel that the renderer runs for this connection, and the one before it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.running: str | None = None
        """The entry of the kernel that runs, or that may run: its answer was not awaited."""
        # Runs again if the last one turns out to be refused.
        self._before: str | None = None
        self._failure: str | None = None

    def send(self, ptx: str, entry: str) -> Message:
        """Send a kernel, and return the renderer's `running` once its first frame is drawn."""
        data = ptx.encode()
        # Only the answer to the kernel before says which one runs now; see `refused`.
        self._connection.catch_up("kernel", math.inf)
        descriptor = os.memfd_create("wavefield kernel")
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(data)
            # Before the answer: if the wait is cut short, the kernel may run all the same.
            self._before, self.running = self.running, entry
            message, files = self._connection.request(
                {"type": "kernel", "entry": entry, "bytes": len(data)},
                "running",
                [descriptor],
                math.inf,
                lambda reason: KernelError(f"the renderer cannot run {entry}: {reason}{_newer(reason)}"),
            )
        except KernelError:
            self.refused()
            raise
        finally:
            os.close(descriptor)
        close_all(files)
        return message

    def refused(self) -> None:
        """Go back to the kernel before: the renderer has refused the last one."""
        self.running = self._before

    def failed(self, message: Message) -> None:
        """Keep the reason of a kernel that faulted while it ran, for `check`."""
        self._failure = _protocol.text(message, "reason", "the renderer gave no reason")

    def check(self) -> None:
        """Raise `KernelError`, once, if the kernel has faulted."""
        if self._failure is not None:
            reason, self._failure = self._failure, None
            raise KernelError(f"{self.running} has failed: {reason}")


def _newer(reason: str) -> str:
    if "UNSUPPORTED_PTX_VERSION" not in reason:
        return ""
    return (
        ". The compiler here is newer than the renderer's driver: install one of the driver's CUDA version "
        "(`nvidia-smi` names it) or older, such as pip install 'nvidia-nvvm==13.0.*', or update the driver"
    )
