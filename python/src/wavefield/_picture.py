"""Pictures from the renderer, and PNG files of them."""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from . import _protocol
from ._connection import close_all
from ._host import HostMemory
from .errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ._protocol import Message


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
        raise ValueError(f"pictures are saved as PNG: use the name {checked.with_suffix('.png')}, not {checked}")
    return checked


def write_whole(path: Path, content: bytes) -> None:
    """Write a whole file or nothing. An existing file stays until the new one is complete."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            # mkstemp gives access to the owner only.
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(file.fileno(), 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
