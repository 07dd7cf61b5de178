"""The renderer's window as a page: pictures come and input goes over a socket pair, in WebSocket frames (RFC 6455)."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

from .._say import say_once
from ..errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST = 512
"""The bytes of the longest message to the renderer."""

UNSEEN_SECONDS = 5.0
"""A page that does not say for so long that it has a picture is hidden, or gone."""

TEXT, PICTURE, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Viewer:
    """The viewer of a renderer that was started with `--viewer`. A thread listens to it."""

    def __init__(self) -> None:
        self._socket, self.theirs = socket.socketpair()
        self.listeners: list[Callable[[str | bytes], object]] = []
        """Called, in the thread, with each text for the page and each picture."""
        self.page = ""
        self._has_page = threading.Event()
        self._title, self._picture = "", b""
        self._sent: float | None = None
        """When the picture was sent that no page has seen yet."""
        self._hidden = False
        self._lock = threading.Lock()
        threading.Thread(target=self._run, daemon=True).start()

    def started(self) -> None:
        """Close the renderer's end, which it has now."""
        self.theirs.close()

    def wait(self) -> str:
        """Return the page, once it is there; "" without a renderer."""
        self._has_page.wait(30)
        return self.page

    def close(self) -> None:
        """End the thread. Does nothing the second time."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """Close the socket in a forked child, which has no thread."""
        self._socket.close()

    def say(self, text: str) -> None:
        """Send what a page says. A page that has just opened gets what was shown last."""
        kind = None
        with contextlib.suppress(ValueError, TypeError, KeyError):
            kind = json.loads(text)["type"]
        if kind is None or len(text.encode(errors="replace")) > LONGEST:
            return  # no page says that, and the renderer would leave
        if kind == "open":
            for told in (self._title, self._picture):
                if told:
                    self._tell(told)
            return
        if kind == "seen":
            self._sent = None
        if self._hidden:
            self._hidden = False
            self._send(TEXT, b'{"type":"visible","visible":true}')
        self._send(TEXT, text.encode())

    def _tell(self, told: str | bytes) -> None:
        for listener in [*self.listeners]:
            try:
                listener(told)
            except Exception as error:  # of a notebook that has gone: the other pages go on
                say_once(f"a notebook does not get the window's pictures any more: {brief(error)}")
                self.listeners.remove(listener)

    def _send(self, kind: int, payload: bytes) -> None:
        length = len(payload)
        size = bytes([0x80 | length]) if length < 126 else struct.pack(">BH", 0x80 | 126, length)
        # A mask of zeros leaves the payload as it is.
        with self._lock, contextlib.suppress(OSError):
            self._socket.sendall(bytes([0x80 | kind]) + size + bytes(4) + payload)

    def _run(self) -> None:
        news = select.poll()
        news.register(self._socket, select.POLLIN)
        try:
            while True:
                if news.poll(1000):
                    self._hear(*self._frame())
                elif self._sent is not None and time.monotonic() - self._sent > UNSEEN_SECONDS:
                    self._give_up_page()
        except (OSError, EOFError):
            pass
        self._title = json.dumps({"title": "wavefield", "ended": True})
        self._has_page.set()
        self._tell(self._title)
        with self._lock:
            self._socket.close()

    def _frame(self) -> tuple[int, bytes]:
        first, length = self._read(2)
        if length >= 126:
            form = ">H" if length == 126 else ">Q"
            (length,) = struct.unpack(form, self._read(struct.calcsize(form)))
        return first & 15, self._read(length)

    def _read(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(count - len(parts))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)

    def _hear(self, kind: int, payload: bytes) -> None:
        if kind == PING:
            self._send(PONG, payload)
        elif kind == CLOSE:
            raise EOFError
        elif kind == PICTURE:
            self._picture, self._sent = payload, time.monotonic()
            self._tell(payload)
        elif not self.page:
            self.page = payload.decode()
            self._has_page.set()
        else:
            text = payload.decode()
            if text.startswith('{"title"'):
                self._title = text
            self._tell(text)

    def _give_up_page(self) -> None:
        """Tell the renderer that nobody looks, which a page that is gone cannot say."""
        number = int.from_bytes(self._picture[:4], "little")
        self._sent, self._hidden = None, True
        self._send(TEXT, json.dumps({"type": "seen", "picture": number}).encode())
        self._send(TEXT, b'{"type":"visible","visible":false}')
