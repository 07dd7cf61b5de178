"""Films of the frames that a program hands over. An encoder in a process of its own gets raw pictures."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import subprocess
import tempfile
from collections import deque
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .._memory.numbers import number
from .._renderer.program import find_renderer
from .._say import say
from ..errors import RendererGone, WavefieldError, brief
from . import picture as _picture, render as _render

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .pictured import Pictured
    from .render import Picture

BEHIND = 2
"""So many pictures are drawn and copied while the next frame is made."""

MOST_OF_A_GIF = 50.0
"""Browsers show a picture of a GIF for 0.02 s or longer."""


class Film:
    """A film that is being recorded. A failure is said at once and raised at the end: what is shown goes on."""

    def __init__(self, path: str | os.PathLike[str], fps: float, size: Any) -> None:
        self.path = Path(path)
        self.fps = float(number("fps", fps))
        self.is_gif = self.path.suffix.lower() == ".gif"
        if self.path.suffix.lower() not in (".gif", ".mp4"):
            raise ValueError(f"a film is a file .mp4 or .gif, not {self.path}")
        if not 0 < self.fps <= (MOST_OF_A_GIF if self.is_gif else 1000):
            most = MOST_OF_A_GIF if self.is_gif else 1000
            raise ValueError(f"fps must be above 0, and at most {most:g} for {self.path.suffix}, not {brief(fps)}")
        self.size = None if size is None else _render._sides(size)
        if not self.path.parent.is_dir():
            folder = str(self.path.parent)
            raise FileNotFoundError(errno.ENOENT, "No such file or directory, make the folder first", folder)
        if self.path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "Is a directory", str(self.path))
        program = find_renderer() if self.is_gif else shutil.which("ffmpeg")
        if program is None:
            raise WavefieldError(
                f"{self.path} needs the program ffmpeg, which is not on PATH: install it, or record a .gif"
            )
        self.program: str = program
        place = self.path.resolve()
        self._temporary = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
        self._waiting: deque[Picture] = deque()
        self._process: subprocess.Popen[bytes] | None = None
        self._words: IO[bytes] | None = None
        self._over = False
        self.pictures = 0
        self.failure: Exception | None = None

    def add(self, field: Pictured) -> None:
        """Add the picture of the frame that was handed over last."""
        if self._over:
            return
        try:
            size, last = self._size_of(field), field._next - 1
            if field._has_marks:
                self._write(0)
                field._look(wait=True)
                self._give(field._screenshot(last, size))
                return
            (picture,) = field._take(("color",), None, None, size, last)
            if self._over:  # its limits changed, and the pictures before it failed
                return
            picture.prefetch()
            self._waiting.append(picture)
            self._write(BEHIND)
        except RendererGone:
            self._over = True  # the next `show` raises this
        except (WavefieldError, OSError, ValueError, MemoryError) as error:
            self._fail(error)

    def settle(self) -> None:
        """Wait for the pictures so far: what they show may change now."""
        try:
            self._write(0)
        except (WavefieldError, OSError) as error:
            self._waiting.clear()
            if not isinstance(error, RendererGone):
                self._fail(error)

    def end(self) -> None:
        """Write the file. Without a picture there is none."""
        self.settle()
        self._over = True
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
            if process.wait() != 0:
                self._fail(WavefieldError(self._last_words()))
        if self.failure is None and process is not None:
            try:
                _picture.take_place(self._temporary, self.path.resolve())
            except OSError as error:
                self._fail(error)
        self._remove()
        if self.failure is None and process is None:
            say(f"{self.path} was not written: no frame was shown while it was recorded")

    def give_up(self) -> None:
        """Kill the encoder, and leave no file."""
        self._over = True
        self._waiting.clear()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._process = None
        self._remove()

    def _size_of(self, field: Pictured) -> tuple[int, int]:
        """Return the size of the film: that of the first picture, which MP4 makes even."""
        if self.size is None:
            if 0 in field.status().picture:
                field._screenshot(None)
            assert field._screen is not None
            self.size = field._screen
        if not self.is_gif:
            width, height = self.size
            self.size = max(2, width // 2 * 2), max(2, height // 2 * 2)
        return self.size

    def _write(self, most: int) -> None:
        """Give pictures to the encoder until so many wait."""
        while len(self._waiting) > most:
            self._give(self._waiting.popleft().to_numpy())

    def _give(self, pixels: NDArray[Any]) -> None:
        """Give a picture to the encoder."""
        if self._process is None:
            self._start(pixels.shape[1], pixels.shape[0])
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(pixels.data)
        except OSError as error:
            self._process.wait()
            raise WavefieldError(self._last_words() or str(error)) from None
        self.pictures += 1

    def _start(self, width: int, height: int) -> None:
        size, rate = f"{width}x{height}", f"{self.fps:.9g}"
        if self.is_gif:
            arguments = ["encode-gif", f"--size={size}", f"--rate={rate}", str(self._temporary)]
        else:
            # The pictures are sRGB. Without these words, players guess the colours by the size.
            options = (
                f"-v error -f rawvideo -pix_fmt rgba -s {size} -r {rate} -i - -an -vf scale=out_color_matrix=bt709 "
                "-pix_fmt yuv420p -colorspace bt709 -color_primaries bt709 -color_trc iec61966-2-1 -color_range tv "
                "-movflags +faststart -f mp4 -y"
            )
            arguments = [*options.split(), f"file:{self._temporary}"]
        self._words = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [self.program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._words,
            # Keeps Ctrl-C away: it ends the program, and the film has what was shown until then.
            start_new_session=True,
        )

    def _last_words(self) -> str:
        """Return the last line of what the encoder has said."""
        assert self._words is not None
        self._words.seek(0)
        lines = self._words.read().decode(errors="replace").strip().splitlines()
        return f"{Path(self.program).name} says: {lines[-1] if lines else 'nothing'}"

    def _fail(self, error: Exception) -> None:
        self.failure = error
        say(f"{self.path} is not recorded any more, and the program goes on: {error}")
        self.give_up()

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._temporary.unlink()
        if self._words is not None:
            self._words.close()
            self._words = None
