"""Starting a renderer that ends with the field."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import operator
import os
import shutil
import subprocess
import tempfile
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _libraries
from ._connect import layout_of, program
from ._memory import cuda as _cuda, source as _source
from ._renderer.connection import close_all
from ._renderer.program import find_renderer
from ._renderer.viewer import Viewer
from ._say import say_once
from .errors import Busy, CudaError, NoRenderer, RendererGone
from .field import Field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._connect import Parts
    from ._memory.layout import Kind, Layout
    from ._renderer.protocol import Memory

BROWSER = "`wavefield serve --web` shows in a browser what wavefield.connect() draws"
NO_WINDOW = f"no window opens, because the display of DISPLAY or WAYLAND_DISPLAY does not answer; {BROWSER}"

START_SECONDS = 60.0
"""How long a renderer may take to listen. The first start fills the driver's shader cache."""

END_SECONDS = 10.0
"""How long a renderer may take to end before it is killed."""


class Renderer:
    """A renderer in a process of its own, which ends with this process."""

    viewer: Viewer | None = None
    """The viewer of its window, if that is in a notebook."""

    def __init__(self, arguments: Sequence[str], notebook: bool = False) -> None:
        self.arguments = arguments
        program = self._program = find_renderer()
        self._owner = os.getpid()
        # The log has no name: if this program is killed, the renderer removes its folder only if nothing else is in it.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        # Not a TemporaryDirectory: a forked child would remove it at its end. A socket's path has at most 107 bytes.
        parent = tempfile.gettempdir()
        parent = parent if len(os.fsencode(parent)) <= 70 else "/tmp"
        self._folder = Path(tempfile.mkdtemp(prefix="wavefield-", dir=parent))
        self.socket = self._folder / "wavefield.sock"
        # The renderer has the other end of this pipe. It ends when this end closes, however this process ends.
        self._writer = -1
        try:
            ends = os.pipe()
            try:
                # Beyond the standard streams, which a daemon closes: the renderer has its own there.
                reader, self._writer = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends)
            finally:
                close_all(ends)
            _launched.add(self)
            passed = [reader]
            if notebook:
                self.viewer = Viewer()
                passed.append(self.viewer.theirs.fileno())
                arguments = [*arguments, "--viewer", str(passed[1])]
            try:
                self.process = subprocess.Popen(
                    [program, "serve", "--socket", str(self.socket), "--until-closed", str(reader), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=self._log,
                    pass_fds=passed,
                    # Keeps Ctrl-C away from the renderer: the Python program handles it, and ends the renderer.
                    start_new_session=True,
                )
            finally:
                os.close(reader)
                if self.viewer is not None:
                    self.viewer.started()
        except BaseException as error:
            self._give_back()
            if isinstance(error, OSError):
                raise NoRenderer(f"{program} cannot be started: {error.strerror or error}") from None
            raise
        # Ends the renderer if the program does not close the field.
        atexit.register(self.close)

    def words(self) -> str:
        """Return the end of what the renderer has printed."""
        # pread, because read would move the position at which the renderer writes.
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), 4000, max(0, size - 4000)).decode(errors="replace").strip()

    def still_starting(self, since: float) -> None:
        """Raise `NoRenderer`, with the renderer's words, if it has ended or takes too long to listen."""
        code = self.process.poll()
        if code is None and time.monotonic() - since < START_SECONDS:
            return
        how = f"did not listen within {START_SECONDS:g} s" if code is None else f"has ended with exit code {code}"
        words = self.words()
        said = f"It says:\n{words}" if words else f"It says nothing: is {self._program} the program wavefield?"
        raise NoRenderer(f"the renderer {how}. {said}")

    def connect(
        self, memory: Memory, ring: int | None, stream: Any, client: str | None, layout: Layout | None
    ) -> Field:
        """Connect as soon as it listens, and return the field. Closing the field ends the renderer."""
        since = time.monotonic()
        while True:
            self.still_starting(since)
            try:
                field = Field(
                    self.socket, memory, ring, stream, client or program(), START_SECONDS, layout, on_close=self.close
                )
                break
            except (NoRenderer, RendererGone, Busy):
                # NoRenderer: it does not listen yet. RendererGone: it has ended, and `still_starting` raises. Busy: it
                # still closes this program's last connection, because nobody else knows its socket.
                time.sleep(0.01)
        field._viewer = self.viewer
        if not field.window and "--headless" not in self.arguments:
            say_once(NO_WINDOW)
        return field

    def close(self) -> None:
        """End the process; kill it after `END_SECONDS`. A forked child leaves it to its parent."""
        atexit.unregister(self.close)
        if os.getpid() != self._owner:
            # The renderer is not a child of this process. After `poll`, Popen does not warn that it still runs.
            self.process.poll()
            return
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._give_back()

    def _give_back(self) -> None:
        if self.viewer is not None:
            self.viewer.close()
        self.forget()
        shutil.rmtree(self._folder, ignore_errors=True)

    def forget(self) -> None:
        """Close the files. A forked child does so at once, or the renderer would live as long as the child."""
        self._log.close()
        if self.viewer is not None and os.getpid() != self._owner:
            self.viewer.forget()
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1


_launched: weakref.WeakSet[Renderer] = weakref.WeakSet()


def _forget_all() -> None:
    for renderer in _launched:
        renderer.forget()


os.register_at_fork(after_in_child=_forget_all)


def gpu_arguments(device: int | None, array_gpu: int | None, given: Sequence[str] = ()) -> list[str]:
    """Return the arguments for a renderer on a device; without one, on the GPU of an array.

    The array only chooses among several GPUs, and only if the `given` arguments do not.
    """
    if device is not None:
        return ["--device", _cuda.uuid_of(device)]
    if array_gpu is not None and not any(argument.partition("=")[0] == "--device" for argument in given):
        # Without CUDA, the renderer chooses.
        with contextlib.suppress(CudaError):
            if _cuda.count() > 1:
                return ["--device", _cuda.uuid_of(array_gpu)]
    return []


def launch(
    headless: bool = True,
    grid: tuple[int, int] = (1024, 1024),
    *,
    memory: Memory = "cuda",
    ring: int | None = None,
    stream: Any = None,
    arguments: Sequence[str] = (),
    client: str | None = None,
    kind: Kind | None = None,
    shape: tuple[int, ...] | None = None,
    dtype: str | None = None,
    parts: Parts | None = None,
    device: int | None = None,
    like: Any = None,
    notebook: bool = False,
) -> Field:
    """Start a renderer, connect to it, and return its field.

    The renderer ends when the field is closed or this program ends, even if it is killed.

    `headless`: without a window; `field.snapshot()` returns the picture.
    `grid`: (cols, rows) of vertices, if there is no `shape`.
    `arguments`: further arguments for `wavefield serve`, such as `["--size", "1920x1080"]`.
    `memory`, `ring`, `stream`, `client`, `kind`, `shape`, `dtype`, `parts`: as for `connect`.
    `device`: the renderer's GPU, by its CUDA ordinal in this process.
    `notebook`: with the window in a notebook, where `field` as a cell's last line shows it. Needs anywidget.
    `like`: an array; without `device`, the renderer uses the GPU that the array is on.

    The program is the one in WAVEFIELD_BIN, else the wheel's, else `wavefield` on PATH. Raises `NoRenderer`, with the
    renderer's words, if it does not start. Raises the same errors as `connect`.
    """
    try:
        cols, rows = map(operator.index, grid)
    except (TypeError, ValueError):
        raise ValueError(f"grid must be (cols, rows), two whole numbers, not {grid!r}") from None
    layout = layout_of(kind, shape, dtype, parts)
    gpu = gpu_arguments(device, None if like is None else _source.gpu_of(like), arguments)
    if notebook:
        _libraries.need("anywidget", "launch(notebook=True)")
    screen = ["--headless"] if headless and not notebook else []
    renderer = Renderer(["--grid", f"{cols}x{rows}", *screen, *gpu, *arguments], notebook)
    with contextlib.ExitStack() as undo:
        undo.callback(renderer.close)
        field = renderer.connect(memory, ring, stream, client, layout)
        undo.pop_all()
    return field
