"""Pictures from the renderer, and PNG files of them."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from .._memory.host import HostMemory
from .._renderer import protocol as _protocol
from .._renderer.connection import close_all
from ..errors import ProtocolError, RendererGone, WavefieldError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from .._renderer.connection import Connection
    from .._renderer.protocol import Message

DRAWN_SECONDS = 30.0
"""How long a picture waits for its frame to be drawn."""


def ask(connection: Connection, wish: Message, answer: str, after: int | None) -> tuple[Message, list[int]]:
    """Ask for a picture of frame `after` or a later one, or of the frame on screen, and return the answer."""
    try:
        if after is not None:
            wish = {**wish, "after": after}
        return connection.request(wish, answer, timeout=DRAWN_SECONDS)
    except RendererGone:
        if after is None or connection.gone:
            raise
        raise not_drawn(after) from None


def not_drawn(after: int) -> WavefieldError:
    """Return the error for a frame that the renderer does not draw."""
    return WavefieldError(f"frame {after} was not drawn within {DRAWN_SECONDS:g} s: is the window hidden?")


def read(message: Message, files: Sequence[int], after: int | None) -> NDArray[np.uint8]:
    """Return the pixels of a `picture`, (height, width, 4). Closes the descriptors."""
    import numpy as np

    try:
        width = _protocol.integer(message, "width", 1, 2**16)
        height = _protocol.integer(message, "height", 1, 2**16)
        if message.get("format") != "rgba8-srgb" or len(files) != 1:
            raise ProtocolError(f"the renderer sent a picture as {message.get('format')!r} in {len(files)} files")
        if after is not None:
            _protocol.integer(message, "frame", after)
    except BaseException:
        close_all(files)
        raise
    mapped = HostMemory(files[0], height * width * 4, writable=False)
    picture: NDArray[np.uint8] = np.frombuffer(mapped, np.uint8).reshape(height, width, 4).copy()
    return picture


def png(picture: NDArray[np.uint8]) -> bytes:
    """Return a picture, (height, width, 4), as a PNG file."""
    import numpy as np

    height, width, _ = picture.shape
    # Each row begins with the number of its filter. Filter 1 stores differences to the left pixel, which compress well.
    rows = np.empty((height, 1 + 4 * width), np.uint8)
    rows[:, 0] = 1
    rows[:, 1:5] = picture[:, 0]
    rows[:, 5:] = (picture[:, 1:] - picture[:, :-1]).reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"sRGB", b"\0"), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def check_name(path: str | os.PathLike[str]) -> Path:
    """Return the path of the PNG file to write. Raises `ValueError` if its name does not end in .png."""
    checked = Path(path)
    if checked.suffix.lower() != ".png":
        name = checked.with_suffix(".png") if checked.name else "picture.png"
        raise ValueError(f"pictures are saved as PNG: use the name {name}, not {checked}")
    if not checked.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "No such file or directory, make the folder first", str(checked.parent))
    return checked


def write_whole(path: Path, content: bytes) -> None:
    """Write a whole file or nothing. An existing file stays until the new one is complete, and gives it its mode.

    Links are followed.
    """
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    # A new file gets the usual mode, by the process's umask.
    try:
        descriptor = os.open(temporary, flags, 0o600 if path.exists() else 0o666)
        with open(descriptor, "wb") as file:
            file.write(content)
            if path.exists():
                _take_after(file.fileno(), path)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise type(error)(error.errno, error.strerror, str(path)) from None
        raise


def take_place(temporary: Path, path: Path) -> None:
    """Give a whole file its name, and the mode of the file that it replaces."""
    if path.exists():
        with open(temporary, "rb") as file:
            _take_after(file.fileno(), path)
    os.replace(temporary, path)


def _take_after(descriptor: int, path: Path) -> None:
    """Give a new file the mode, group and ACL of the old one, and nobody more rights than before."""
    old = path.stat()
    mode = old.st_mode & 0o777
    try:
        os.fchown(descriptor, -1, old.st_gid)
        with contextlib.suppress(AttributeError):  # only Linux has them
            if _ACL in os.listxattr(path):
                os.setxattr(descriptor, _ACL, os.getxattr(path, _ACL))
    except OSError:
        # The group's rights do not apply to another group, and its members are among the others now.
        mode = mode & 0o700 | mode >> 3 & mode & 0o7
    os.fchmod(descriptor, mode)


_ACL = "system.posix_acl_access"
