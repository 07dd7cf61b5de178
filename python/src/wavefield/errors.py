"""What can go wrong, as exceptions that say what to do about it."""

from __future__ import annotations


class WavefieldError(RuntimeError):
    """The base of every error of this package."""


class NoRenderer(WavefieldError):
    """Nothing listens on the socket, or the program cannot be found or started."""


class RendererGone(WavefieldError):
    """The renderer closed the connection, or does not answer."""


class ProtocolError(WavefieldError):
    """The renderer said something that the protocol does not allow."""


class Refused(WavefieldError):
    """The renderer said no. `code` is its word for why; the text is what it says to do."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Busy(Refused):
    """Another client draws; one draws at a time."""


class VersionMismatch(Refused):
    """Package and renderer speak different versions of the protocol."""


class WrongUser(Refused):
    """The renderer belongs to another user, or others can change the folder of its socket."""


class CudaError(WavefieldError):
    """A CUDA driver call failed. `name` is its answer, such as `CUDA_ERROR_OUT_OF_MEMORY`, or empty."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class CudaMissing(CudaError):
    """There is no CUDA driver, no device, or no `cuda-bindings`."""


class DeviceMismatch(CudaError):
    """The renderer draws on a GPU that CUDA does not show to this process, or an array lies on another one."""


class FieldClosed(WavefieldError):
    """The field was used after it was closed."""


class FrameHandedOver(WavefieldError):
    """A frame was used after it was handed over: the renderer may be drawing it."""


class StillShown(WavefieldError):
    """An array is shown again while the renderer still draws from it."""


class ArrayMismatch(WavefieldError, ValueError):
    """An array has a shape, dtype or memory layout that cannot be drawn, or another one than the field's."""


class LibraryMissing(WavefieldError, ImportError):
    """A library that a call needs is not installed."""


class CopyWarning(UserWarning):
    """An array on the GPU was copied to be shown; says why, and what avoids it."""


class KernelError(WavefieldError):
    """A kernel does not compile, load or end, or it faulted. The text has the compiler's or the driver's words."""


def refusal(code: str, reason: str) -> Refused:
    """Return the exception for the renderer's `refused` or `error`."""
    kinds: dict[str, type[Refused]] = {"busy": Busy, "version": VersionMismatch, "user": WrongUser}
    return kinds.get(code, Refused)(code, reason)
