"""The socket: whole messages with their descriptors, one request at a time."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import NoRenderer, ProtocolError, RendererGone, WrongUser, refusal
from . import protocol as _protocol
from .protocol import Message

ANSWER_SECONDS = 30.0
"""How long a request waits. The renderer handles some requests once per drawn frame; a software device draws slowly."""


def default_socket() -> Path:
    """Return the default socket of `wavefield serve`."""
    folder = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    return (folder if _is_own(folder) else shared_folder()) / "wavefield.sock"


def _is_own(folder: Path) -> bool:
    """Return whether this is a folder of this user. After `su`, XDG_RUNTIME_DIR is another user's."""
    with contextlib.suppress(OSError):
        found = folder.stat()
        return folder.is_absolute() and stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return False


def shared_folder() -> Path:
    """Return the folder of the socket if XDG_RUNTIME_DIR is no folder of this user."""
    return Path(f"/tmp/wavefield-{os.getuid()}")


def _why(path: Path) -> str:
    """Return why the default socket is not in XDG_RUNTIME_DIR, although that is set."""
    folder = os.environ.get("XDG_RUNTIME_DIR")
    if not folder or path != shared_folder() / "wavefield.sock":
        return ""
    return f" (XDG_RUNTIME_DIR is {folder}, which is no folder of yours)"


def _check_shared_folder() -> None:
    """Check that only this user can change the folder: anybody could have made it in /tmp."""
    folder = shared_folder()
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise WrongUser(
            "user",
            f"{folder} must be a folder that only you can open, or others can listen there: remove it, or set "
            "XDG_RUNTIME_DIR",
        )


def close_all(descriptors: Iterable[int]) -> None:
    """Close file descriptors."""
    for descriptor in descriptors:
        os.close(descriptor)


@dataclass(frozen=True)
class _Request:
    """A request without an answer yet."""

    number: int
    """The answer repeats it."""
    request: str
    answer: str
    """The type of the answer."""
    then: Callable[[Message], None] | None = None
    """Called with the answer, if nobody waits for it."""

    def is_answered_by(self, message: Message) -> bool:
        """Return whether the message answers this request."""
        # A welcome has no number: nothing else can come before it.
        answers = message["type"] == "welcome" or message.get("request_id") == self.number
        return answers and message["type"] in (self.answer, "failed")


class Connection:
    """A connected socket. Only one thread at a time makes a request."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unasked: Callable[[Message], None] = lambda _message: None
        """Called with each message that answers no request."""
        self.late: Callable[[Message], None] = lambda _message: None
        """Called with each answer to a request whose wait was interrupted. Its descriptors are already closed."""
        self._lock = threading.RLock()
        # Finalizers append to it. They can run inside any line here, so they do nothing else.
        self._farewells: list[Message] = []
        self._gone: str | None = None
        self.ended = False
        """Whether the renderer has said that it ends, such as when its window is closed."""
        self.refused = False
        """Whether the renderer has ended this connection, and goes on."""
        # The requests without an answer yet, oldest first. The wait for all but the last was interrupted.
        self._owed: list[_Request] = []
        self._asked = 0
        if path.parent == shared_folder():
            _check_shared_folder()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        # Whether a message has arrived is asked several times a frame.
        self._news = select.poll()
        self._news.register(self._socket, select.POLLIN)
        try:
            self._socket.settimeout(ANSWER_SECONDS)
            self._socket.connect(str(path))
        except FileNotFoundError:
            self._socket.close()
            raise NoRenderer(
                f"no renderer: there is no socket {path}{_why(path)}. Start a renderer with `wavefield serve` or "
                "wavefield.launch()"
            ) from None
        except ConnectionRefusedError:
            self._socket.close()
            if not path.is_socket():
                raise NoRenderer(f"no renderer: {path} is not a socket") from None
            raise NoRenderer(
                f"no renderer: the one that made {path} has ended. Start another with `wavefield serve` or "
                f"wavefield.launch()"
            ) from None
        except PermissionError:
            self._socket.close()
            raise WrongUser(
                "user", f"{path} belongs to another user. Run the renderer and this program as the same user"
            ) from None
        except OSError as error:
            self._socket.close()
            raise NoRenderer(f"cannot connect to {path}: {error.strerror or error}") from None
        # The renderer checks the client in the same way.
        _, listener, _ = struct.unpack("iII", self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if listener != os.getuid():
            self._socket.close()
            raise WrongUser(
                "user",
                f"another user's program listens on {path}: it runs as user {listener}, and you are user "
                f"{os.getuid()}. Run the renderer and this program as the same user",
            )

    @property
    def closed(self) -> bool:
        """Return whether this side has closed it."""
        return self._socket.fileno() < 0

    @property
    def gone(self) -> bool:
        """Return whether the renderer has ended it, and an error has said so."""
        return self._gone is not None

    def close(self, patience: float = 0.0) -> None:
        """Send `bye`, and close.

        Waits up to `patience` seconds for the renderer to close its end first. Does nothing the second time.
        """
        with self._lock:
            if self.closed:
                return
            if self._gone is None:
                try:
                    self._send_farewells()
                    self._socket.send(_protocol.encode({"type": "bye"}))
                except OSError:
                    pass  # the renderer has already gone
            try:
                if patience > 0:
                    self._wait_for_the_end(patience)
            finally:
                self._socket.close()
                self._owed.clear()

    def forget(self) -> None:
        """Close without `bye`: in a forked child, because the connection belongs to the parent."""
        self._socket.close()

    def send(self, message: Message | bytes, descriptors: Sequence[int] = ()) -> None:
        """Send a message, or its packet. The caller still owns the descriptors."""
        packet = message if isinstance(message, bytes) else _protocol.encode(message)
        with self._lock:
            self.check()
            try:
                self._send_farewells()
                # With no descriptors, send_fds would send an empty list.
                if descriptors:
                    socket.send_fds(self._socket, [packet], descriptors)
                else:
                    self._socket.send(packet)
            except TimeoutError:
                self._lost(f"it has not read from {self.path} for {ANSWER_SECONDS:g} s: it hangs or is stopped")
            except OSError as error:
                # The renderer's last message says more than a broken pipe.
                self._read_all()
                self._lost(f"the connection broke: {error.strerror or error}")

    def send_later(self, message: Message) -> None:
        """Send a message before the next one. For finalizers: it never blocks and never fails."""
        self._farewells.append(message)

    def request(
        self,
        message: Message,
        answer: str,
        descriptors: Sequence[int] = (),
        timeout: float = ANSWER_SECONDS,
    ) -> tuple[Message, list[int]]:
        """Send a message, and return the answer of type `answer` with its descriptors, which the caller then owns.

        If the answer is `failed`, raises `Refused` with the reason.
        """
        with self._lock:
            # If Ctrl-C interrupts the wait, the request stays in the list, so its answer is not taken for the next
            # one's.
            return self._wait_for(self._ask(message, answer, descriptors), timeout)

    def post(self, message: Message, answer: str, then: Callable[[Message], None]) -> None:
        """Send a request, and wait for nothing. `then` is called with the answer, or with `failed`."""
        with self._lock:
            self._ask(message, answer, (), then)

    def _ask(
        self,
        message: Message,
        answer: str,
        descriptors: Sequence[int],
        then: Callable[[Message], None] | None = None,
    ) -> _Request:
        self._asked += 1
        request = _Request(self._asked, str(message["type"]), answer, then)
        # The type alone identifies the answer to hello.
        self.send(message if answer == "welcome" else {**message, "request_id": request.number}, descriptors)
        self._owed.append(request)
        return request

    def owed(self, request: str) -> int:
        """Return how many requests of this type have no answer yet."""
        return sum(owed.request == request for owed in self._owed)

    def catch_up(self, request: str) -> None:
        """Wait for the answer to a request of this type whose wait was interrupted, if there is one.

        The renderer tries one import at a time; meanwhile it refuses another.
        """
        with self._lock:
            end = time.monotonic() + ANSWER_SECONDS
            while self.owed(request):
                message, files = self._receive_until(end, request, ANSWER_SECONDS)
                close_all(files)
                self._handle(message)

    def _wait_for(self, request: _Request, timeout: float) -> tuple[Message, list[int]]:
        """Return the answer, and handle the messages before it."""
        end = time.monotonic() + timeout
        while True:
            got, files = self._receive_until(end, request.request, timeout)
            if self._first_owed(got) is not request:
                close_all(files)
                self._handle(got)
                continue
            self._owed.remove(request)
            if got["type"] == request.answer:
                return got, files
            close_all(files)
            reason = _protocol.text(got, "reason", "the renderer gave no reason")
            raise refusal("failed", f"the renderer could not {request.request}: {reason}")

    def _receive_until(self, end: float, request: str, timeout: float) -> tuple[Message, list[int]]:
        # Wait at most a second at a time: then a Ctrl-C just before the call is heard.
        while (received := self._receive(max(0.0, min(end - time.monotonic(), 1.0)))) is None:
            if time.monotonic() >= end:
                raise RendererGone(
                    f"the renderer has not answered {request!r} for {timeout:g} s: it hangs or is stopped"
                )
        return received

    def _first_owed(self, message: Message) -> _Request | None:
        return next((request for request in self._owed if request.is_answered_by(message)), None)

    def _handle(self, message: Message) -> None:
        """Handle a message that answers no request, a posted one, or one whose wait was interrupted."""
        if (request := self._first_owed(message)) is None:
            self.unasked(message)
        else:
            self._owed.remove(request)
            (request.then or self.late)(message)

    def pump(self, timeout: float = 0.0) -> None:
        """Handle the messages that have arrived; if there are none, wait up to `timeout` seconds for one."""
        with self._lock:
            while (received := self._receive(timeout)) is not None:
                message, files = received
                close_all(files)
                self._handle(message)
                timeout = 0.0

    def check(self) -> None:
        """Raise `RendererGone`, with the reason, if the connection has ended."""
        if self._gone is not None:
            raise RendererGone(self._gone)
        if self.closed:
            raise RendererGone("the connection is closed")

    def _send_farewells(self) -> None:
        while self._farewells:
            self._socket.send(_protocol.encode(self._farewells.pop(0)))

    def _wait_for_the_end(self, patience: float) -> None:
        """Read and drop messages until the renderer has closed its end."""
        end = time.monotonic() + patience
        with contextlib.suppress(OSError):  # also TimeoutError
            # The renderer may wait for this side's end of the connection.
            self._socket.shutdown(socket.SHUT_WR)
            while (left := end - time.monotonic()) > 0:
                self._socket.settimeout(left)
                try:
                    packet, files, _ = self._read()
                except ConnectionResetError:
                    continue  # comes once; the end follows
                close_all(files)
                if not packet:
                    return

    def _lost(self, why: str) -> None:
        self._gone = f"the renderer is gone: {why}. Close the field, restart the renderer, and connect again"
        raise RendererGone(self._gone)

    def _read_all(self) -> None:
        try:
            self.pump()
        except (OSError, ProtocolError):
            return

    def _read(self) -> tuple[bytes, list[int], int]:
        # One byte more than allowed, to notice a message that is too long.
        packet, files, flags, _ = socket.recv_fds(
            self._socket, _protocol.MAX_BYTES + 1, _protocol.MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
        return packet, files, flags

    def _receive(self, timeout: float) -> tuple[Message, list[int]] | None:
        """Return the next message, or None if none arrives in time. Raises `error` and `refused` as exceptions."""
        self.check()
        if timeout == 0.0 and not self._news.poll(0):
            return None
        try:
            if timeout > 0.0:
                self._socket.settimeout(timeout)
            try:
                packet, files, flags = self._read()
            except ConnectionResetError:
                # The renderer left a message of this side unread. Its own last message comes after the error.
                packet, files, flags = self._read()
        except TimeoutError:
            return None
        except OSError as error:
            self._lost(f"the connection broke: {error.strerror or error}")
            raise
        finally:
            if timeout > 0.0 and not self.closed:
                self._socket.settimeout(ANSWER_SECONDS)
        try:
            if not packet:
                self._lost("it closed the connection")
            if flags & socket.MSG_CTRUNC:
                raise ProtocolError(f"the renderer sent more than {_protocol.MAX_DESCRIPTORS} descriptors")
            message = _protocol.decode(packet)
            if message["type"] in ("error", "refused"):
                reason = _protocol.text(message, "reason", "the renderer gave no reason")
                code = _protocol.text(message, "code", "")
                if code == "ended":
                    self.ended = True
                    self._lost(reason)
                self.refused = True
                self._gone = f"the renderer has ended this connection: {reason}"
                raise refusal(code, reason)
        except BaseException:
            close_all(files)
            raise
        return message, files
