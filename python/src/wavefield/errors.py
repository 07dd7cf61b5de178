"""The exceptions. Each message says what to do."""

from __future__ import annotations


class WavefieldError(RuntimeError):
    """The base of this package's exceptions."""


class NoRenderer(WavefieldError):
    """No renderer listens on the socket, or the program cannot be found or started."""


class RendererGone(WavefieldError):
    """The renderer has closed the connection, or does not answer."""


class ProtocolError(WavefieldError):
    """The renderer sent something that the protocol does not allow."""


class Refused(WavefieldError):
    """The renderer refused. `code` is the protocol's word for the reason; the message is the renderer's."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Busy(Refused):
    """Another client is connected. Only one can draw at a time."""


class VersionMismatch(Refused):
    """The package and the renderer speak different versions of the protocol."""


class WrongUser(Refused):
    """The renderer belongs to another user, or other users can change the folder of its socket."""


class CudaError(WavefieldError):
    """A call of the CUDA driver failed. `name` is the result, such as `CUDA_ERROR_OUT_OF_MEMORY`, or empty."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class CudaMissing(CudaError):
    """There is no CUDA driver, no device, or no `cuda-bindings`."""


class DeviceMismatch(CudaError):
    """CUDA does not show this process a GPU, or the renderer already runs on another one."""


class FieldClosed(WavefieldError):
    """The field was used after it was closed."""


class FrameHandedOver(WavefieldError):
    """A frame was used after its hand-off, or after it was given up."""


class StillShown(WavefieldError):
    """An array was shown again while the renderer still draws it."""


class PicturesInUse(WavefieldError):
    """Too many pictures of one kind and size are held at once."""


class ArrayMismatch(WavefieldError, ValueError):
    """An array's shape, dtype or memory layout cannot be drawn, or is not the field's."""


class LibraryMissing(WavefieldError, ImportError):
    """A library that a call needs is not installed."""


class CopyWarning(UserWarning):
    """An array on the GPU was copied to show it. The message says why, and how to avoid it."""


def brief(value: object) -> str:
    """Return a value as one short line of an error's text."""
    words = " ".join(repr(value).split())
    return words if len(words) <= 60 else f"{words[:60]}…"


def refusal(code: str, reason: str) -> Refused:
    """Return the exception for a code of the renderer's `refused` or `error`."""
    kinds: dict[str, type[Refused]] = {"busy": Busy, "version": VersionMismatch, "user": WrongUser}
    return kinds.get(code, Refused)(code, reason)
