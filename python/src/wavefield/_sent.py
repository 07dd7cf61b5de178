"""The kernels that a connection has sent."""

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
        """The entry of the kernel that runs, or that may run because the wait for its answer was interrupted."""
        # The kernel before that. It keeps running if the renderer refuses the new one.
        self._before: str | None = None
        self._failure: str | None = None

    def send(self, ptx: str, entry: str) -> Message:
        """Send a kernel, and return the renderer's `running` once its first frame is drawn."""
        data = ptx.encode()
        # The answer to an interrupted request says which kernel runs now.
        self._connection.catch_up("kernel", math.inf)
        descriptor = os.memfd_create("wavefield kernel")
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(data)
            # Set before the answer: if the wait is interrupted, the kernel may still run.
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
        """Go back to the previous kernel: the renderer has refused the new one."""
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
        ". The compiler here is newer than the renderer's driver: install a compiler of the driver's CUDA version "
        "(`nvidia-smi` shows it) or older, for example pip install 'nvidia-nvvm==13.0.*', or update the driver"
    )
