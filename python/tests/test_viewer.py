"""The window in a notebook, without a browser: what comes over the socket pair, and what a page says."""

from __future__ import annotations

import io
import json
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import wavefield
from started import Started
from test_end_to_end import WHY_NOT
from test_panel import until
from wavefield._renderer import viewer as _viewer
from wavefield._renderer.viewer import Viewer


class Renderer:
    """The renderer's end."""

    def __init__(self, viewer: Viewer) -> None:
        self.socket = viewer.theirs
        self.socket.settimeout(30)

    def send(self, kind: int, payload: bytes) -> None:
        length = len(payload)
        if length < 126:
            size = bytes([length])
        else:
            size = struct.pack(">BH", 126, length) if length < 2**16 else struct.pack(">BQ", 127, length)
        self.socket.sendall(bytes([0x80 | kind]) + size + payload)

    def hear(self) -> tuple[int, bytes]:
        first, second = self.socket.recv(2, socket.MSG_WAITALL)
        assert first & 0x80 and second & 0x80, "a whole message, and masked"
        length = second & 127
        if length == 126:
            (length,) = struct.unpack(">H", self.socket.recv(2, socket.MSG_WAITALL))
        mask = self.socket.recv(4, socket.MSG_WAITALL)
        payload = self.socket.recv(length, socket.MSG_WAITALL) if length else b""
        return first & 15, bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


@pytest.fixture
def viewer() -> Iterator[Viewer]:
    viewer = Viewer()
    yield viewer
    viewer.close()
    viewer.theirs.close()


@pytest.fixture
def there(viewer: Viewer) -> Renderer:
    return Renderer(viewer)


def test_the_page_comes_first_and_then_news_and_pictures(viewer: Viewer, there: Renderer) -> None:
    told: list[Any] = []
    viewer.listeners.append(told.append)
    there.send(_viewer.PING, b"17")
    assert there.hear() == (_viewer.PONG, b"17")
    page, picture = "<html>" + "é" * 40_000, os.urandom(300_000)
    there.send(_viewer.TEXT, page.encode())
    assert viewer.wait() == page
    for text in ('{"title":"one"}', '{"copy":"x"}', '{"title":"two"}'):
        there.send(_viewer.TEXT, text.encode())
    there.send(_viewer.PICTURE, picture[:200])
    there.send(_viewer.PICTURE, picture)
    until(lambda: len(told) == 5)
    assert told == ['{"title":"one"}', '{"copy":"x"}', '{"title":"two"}', picture[:200], picture]
    told.clear()
    viewer.say('{"type":"open"}')  # a page that is opened later
    assert told == ['{"title":"two"}', picture]
    there.send(_viewer.CLOSE, b"")
    until(lambda: len(told) == 3)
    assert json.loads(told[2])["ended"]
    viewer.say('{"type":"open"}')
    assert json.loads(told[3])["ended"], "a page that opens after the end is told of it"


def test_what_a_page_says_is_sent_whole(viewer: Viewer, there: Renderer) -> None:
    def key(length: int) -> str:
        text = '{"type":"key","key":"%s"}'
        return text % ("x" * (length - len(text) + 2))

    for length in (40, 125, 126, 512):
        viewer.say(key(length))
        assert there.hear() == (_viewer.TEXT, key(length).encode())
    for text in (key(513), "x", "[]", "{}", "7", "null", "[" * 500):
        viewer.say(text)  # no page says that
    viewer.say('{"type":"leave"}')
    assert there.hear() == (_viewer.TEXT, b'{"type":"leave"}')


def test_a_page_that_is_gone_gets_no_pictures(viewer: Viewer, there: Renderer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_viewer, "UNSEEN_SECONDS", 0.1)
    there.send(_viewer.TEXT, b"<html>")
    there.send(_viewer.PICTURE, struct.pack("<I", 258) + b"...")
    assert json.loads(there.hear()[1]) == {"type": "seen", "picture": 258}
    assert json.loads(there.hear()[1]) == {"type": "visible", "visible": False}
    viewer.say('{"type":"move","x":1,"y":2}')  # another page
    assert json.loads(there.hear()[1]) == {"type": "visible", "visible": True}
    assert json.loads(there.hear()[1])["type"] == "move"


def test_a_renderer_that_ends_keeps_nobody_waiting(viewer: Viewer, there: Renderer) -> None:
    there.socket.close()
    assert viewer.wait() == ""
    viewer.say("x")
    viewer.close()
    viewer.close()


def test_a_field_without_a_window_in_the_notebook_says_so(started: list[Started]) -> None:
    pytest.importorskip("anywidget")
    from wavefield._pictures.window import Window

    field = wavefield.show(np.zeros((2, 2), np.float32), memory="host")
    assert field._repr_mimebundle_() == {}
    with pytest.raises(wavefield.WavefieldError, match="has no window in the notebook"):
        Window(field)
    with pytest.raises(ValueError, match='must be True, False or "notebook"'):
        wavefield.show(np.zeros((2, 2), np.float32), memory="host", window="browser")  # type: ignore[arg-type]


@pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
def test_the_real_window_is_in_the_widget() -> None:
    pytest.importorskip("anywidget")
    images = pytest.importorskip("PIL.Image")
    image = np.random.default_rng(4).integers(0, 255, (6, 8, 3), np.uint8)
    sent: list[Any] = []
    field = wavefield.launch(kind="image", shape=image.shape, dtype="uint8", memory="host", notebook=True)
    with field:
        assert field.window
        field.show(image)
        bundle = field._repr_mimebundle_()
        assert "application/vnd.jupyter.widget-view+json" in (bundle[0] if isinstance(bundle, tuple) else bundle)
        widget: Any = wavefield.Widget(field, height="300px")
        assert "<!doctype html>" in widget.page and "FrameSocket" in widget.page
        widget.send = lambda content, buffers=(): sent.append((content, buffers))

        def say(**message: Any) -> None:
            widget._said(widget, {"said": json.dumps(message)}, [])

        widget._said(widget, {"said": 3}, [])  # no page says that
        widget._said(widget, None, [])
        say(type="open")
        say(type="size", width=400, height=300, scale=1)
        last = b""

        def is_there() -> bool:
            nonlocal last
            while sent:
                for last in sent.pop(0)[1]:
                    say(type="seen", picture=int.from_bytes(last[:4], "little"))
            return (
                bool(last) and images.open(io.BytesIO(last[4:])).size == (400, 300) and field.status().frame_shown == 0
            )

        until(is_there)
        pixels = np.asarray(images.open(io.BytesIO(last[4:])))
        for row, col in ((3, 2), (4, 5), (5, 7)):
            shown = pixels[row * 50 + 25, col * 50 + 25].astype(int)
            assert np.abs(shown - image[row, col]).max() < 40, (row, col, shown)  # JPEG
        with pytest.raises(TypeError, match="draws by itself"):
            wavefield.Widget(field, print)
        widget.close()
    assert field.closed
