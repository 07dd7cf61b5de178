"""A renderer for the tests: speaks the protocol in a thread, without a GPU.

It keeps the frames that it is shown, and draws nothing. A test replaces its answers with `answers`, for example to send
invalid messages.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fake_driver import FakeDriver, Timeline, Timelines

Answer = Callable[["Session", dict[str, Any], list[int]], None]
UUID = "00112233445566778899aabbccddeeff"


USUAL_CAMERA = {"azimuth": 0.5, "elevation": 0.5, "distance": 3.0, "target": [0.0, -0.2, 0.0]}
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def memfd(size: int, content: bytes = b"", seals: int = SEALS) -> int:
    """Return shared memory of `size` bytes, sealed against shrinking."""
    descriptor = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    if content:
        os.pwrite(descriptor, content, 0)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def device_memory(size: int) -> int:
    """Return a file that stands for GPU memory. Like its descriptors, it has no seals."""
    return memfd(size, seals=0)


def message_of(packet: bytes) -> dict[str, Any]:
    if packet.startswith(b"{"):
        message: dict[str, Any] = json.loads(packet)
        return message
    tag, frame, allocation, offset = struct.unpack("=8s3Q", packet)
    assert tag == b"show\0\0\0\0"
    return {"type": "show", "frame": frame, "allocation": allocation, "offset": offset}


class Session:
    """One connected client."""

    def __init__(self, renderer: FakeRenderer, connection: socket.socket) -> None:
        self.renderer = renderer
        self.socket = connection
        self.memory = ""
        self.ring = 0
        self.shows: dict[int, tuple[int, int]] = {}
        self.allocations: dict[int, int] = {}
        self.slot_files: list[int] = []
        self.drawn = 0
        self.request_id: int | None = None
        """The number of the request that is being answered."""
        self.imports: dict[int, list[int]] = {}
        self.renders: list[dict[str, Any]] = []
        """Those that wait for their frame, with their `request_id`."""
        self.rendered = 0
        self.pictures = Timeline()
        """The timeline `drawn`."""

    def send(self, message: dict[str, Any], files: list[int] | None = None) -> None:
        if "request_id" not in message and message["type"] not in ("welcome", "error", "refused", "free"):
            message = {**message, "request_id": self.request_id}
        packet = json.dumps(
            {key: value for key, value in message.items() if (key, value) != ("request_id", None)}
        ).encode()
        if files:
            socket.send_fds(self.socket, [packet], files)
        else:
            self.socket.send(packet)

    def serve(self) -> None:
        while True:
            try:
                packet, files, _, _ = socket.recv_fds(self.socket, 128 * 1024 + 1, 64)
            except OSError:
                return
            if not packet:
                return
            message = message_of(packet)
            self.renderer.received.append(message)
            kind = message["type"]
            self.request_id = message.pop("request_id", None)
            if kind == "bye":
                self.renderer.goodbye(self)
                return
            answer: Answer = self.renderer.answers.get(kind) or getattr(Session, f"on_{kind}")
            answer(self, message, files)
            self.request_id = None

    def welcome(self, message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        """Make the slots, and return the answer to a hello."""
        renderer = self.renderer
        self.memory = message["memory"]
        self.ring = message.get("ring", renderer.ring)
        default = {"kind": "mesh", "shape": [renderer.rows, renderer.cols, 4], "dtype": "<f4"}
        self.array = message.get("array", default)
        self.numpy = np.dtype(self.array["dtype"])
        self.parts, self.size = parts_of(self.array)
        size = self.size
        self.spaced = spaced = -(-size // 4) * 4 + renderer.gap
        text: dict[str, Any] = {
            "type": "welcome",
            "protocol": 2,
            "server": "fake 1.0",
            "device": {"name": "a fake", "uuid": UUID, "driver_uuid": "ab" * 16},
            "memory": self.memory,
            "array": self.array,
            "frame_bytes": size,
            "offset_alignment": renderer.alignment,
            "largest_allocation": 2**32,
            "ring": self.ring,
            "frame_seconds": 0.5,
            "parameters": dict(renderer.parameters),
            **({} if renderer.window is None else {"window": renderer.window}),
            "something new": [1, 2],
        }
        if self.memory == "host":
            files = [memfd(self.ring * spaced, renderer.unwritten * (self.ring * spaced))]
            text["slots"] = [
                {"fd": 0, "offset": n * spaced, "bytes": spaced, "allocation_bytes": self.ring * spaced}
                for n in range(self.ring)
            ]
        else:
            files = [device_memory(size + 4096) for _ in range(self.ring)]
            text["slots"] = [
                {"fd": n, "offset": 0, "bytes": size, "allocation_bytes": size + 4096} for n in range(self.ring)
            ]
            files += [Timelines.new(), Timelines.new()]
            text["ready"], text["free"] = self.ring, self.ring + 1
            self.ready, self.free = Timelines.of(files[-2]), Timelines.of(files[-1])
        self.slot_files = files
        return text, files

    def on_hello(self, message: dict[str, Any], _files: list[int]) -> None:
        self.renderer.camera = dict(USUAL_CAMERA)
        bytes_ = message.get("array", {}).get("dtype") == "|u1"
        fit = {"center": [0.0, 0.0, 0.0], "radius": 1.0}
        self.renderer.parameters.update(limits=[0.0, 255.0 if bytes_ else 1.0], size=3.0, fit=fit)
        self.renderer.parameters.pop("units", None)
        text, files = self.welcome(message)
        self.send(text, files)

    def on_ready(self, message: dict[str, Any], _files: list[int]) -> None:
        frame = message["frame"]
        assert frame == self.drawn
        self.renderer.frames.append(self.shown(frame))
        self.drawn += 1
        if self.renderer.frees:
            self.send({"type": "free", "frame": frame})
        self.render()

    def shown(self, frame: int) -> np.ndarray[Any, Any]:
        """Return a copy of a frame's array."""
        size = self.size
        if frame in self.shows:
            allocation, offset = self.shows[frame]
            if allocation in self.imports:
                chunks = [os.pread(file, os.fstat(file).st_size, 0) for file in self.imports[allocation]]
                raw = b"".join(chunks)[offset : offset + size]
            else:
                raw = os.pread(self.allocations[allocation], size, offset)
        elif self.memory == "host":
            raw = os.pread(self.slot_files[0], size, frame % self.ring * self.spaced)
        else:
            raw = os.pread(self.slot_files[frame % self.ring], size, 0)
        read = {
            name: np.frombuffer(raw, dtype, math.prod(shape), offset).reshape(shape).copy()
            for name, (shape, dtype, offset) in self.parts.items()
        }
        shown: np.ndarray[Any, Any] = read.pop("")
        self.renderer.parts.append(read)
        return shown

    def on_timeline(self, _message: dict[str, Any], _files: list[int]) -> None:
        file = Timelines.new()
        self.pictures = Timelines.of(file)
        self.send({"type": "timeline", "fd": 0}, [file])
        os.close(file)

    def on_render(self, message: dict[str, Any], _files: list[int]) -> None:
        self.renders.append({**message, "request_id": self.request_id})
        if self.memory == "host":
            self.render()

    def render(self) -> None:
        """Draw the pictures whose frames are drawn."""
        while self.renders and self.renders[0]["after"] < self.drawn:
            wish = self.renders.pop(0)
            self.rendered += 1
            if self.renderer.refuses:
                answer: dict[str, Any] = {"type": "failed", "request": "render", "reason": self.renderer.refuses}
            else:
                answer = {"type": "rendered", "frame": self.drawn - 1}
                for kind, offset in wish["offsets"].items():
                    pixels = np.concatenate([pixel(kind, self.drawn - 1, view, wish) for view in views(wish)])
                    os.pwrite(self.allocations[wish["allocation"]], pixels.tobytes(), offset)
            if self.memory == "cuda" and not self.renderer.refuses:
                answer["drawn"] = self.rendered
            self.send({**answer, "request_id": wish["request_id"]})
            self.pictures.value = self.rendered
            self.pictures.history.append(self.rendered)

    def on_import(self, message: dict[str, Any], files: list[int]) -> None:
        assert len(files) == len(message["chunks"])
        assert [os.fstat(file).st_size for file in files] == message["chunks"], "each with its exact size"
        number = 1000 + len(self.imports)
        self.imports[number] = files
        self.send({"type": "imported", "id": number, "bytes": sum(message["chunks"])})

    def on_allocate(self, message: dict[str, Any], _files: list[int]) -> None:
        number = len(self.allocations) + 1
        size = message["bytes"]
        file = memfd(size, self.renderer.unwritten * size) if self.memory == "host" else device_memory(size)
        self.allocations[number] = file
        self.send(
            {"type": "allocated", "id": number, "fd": 0, "offset": 0, "bytes": size, "allocation_bytes": size}, [file]
        )

    def on_release(self, message: dict[str, Any], _files: list[int]) -> None:
        self.renderer.released.append(message["id"])

    def on_show(self, message: dict[str, Any], _files: list[int]) -> None:
        self.shows[message["frame"]] = (message["allocation"], message["offset"])

    def on_set(self, message: dict[str, Any], _files: list[int]) -> None:
        parameters = self.renderer.parameters
        parameters.update(message["parameters"])
        self.renderer.more = parameters.pop("more", self.renderer.more)
        self.renderer.names = parameters.pop("names", self.renderer.names)
        if parameters.get("units") == [0.0, 1.0]:
            del parameters["units"]
        self.renderer.camera = message.get("camera", self.renderer.camera)
        self.send({"type": "parameters", "parameters": self.renderer.parameters})

    def on_panel(self, message: dict[str, Any], _files: list[int]) -> None:
        self.renderer.panel = message
        self.send({"type": "panel"})

    def on_status(self, _message: dict[str, Any], _files: list[int]) -> None:
        self.send(
            {
                "type": "state",
                "frames_drawn": 10,
                "frame_shown": self.drawn - 1 if self.drawn else None,
                "shown_at": 2_500_000_000 if self.drawn else None,
                "camera": self.renderer.camera,
                "ready": self.drawn,
                "free": self.drawn,
                "producer": "client, fake",
                "seconds": 1.5,
                "gaps_us": {"frames": 10, "p50": 1},
                "late_us": 3,
                "picture": self.renderer.screen,
            }
        )

    def on_snapshot(self, message: dict[str, Any], _files: list[int]) -> None:
        width, height = message.get("size", [3, 2])
        content = bytes(range(width * height * 4))
        file = memfd(len(content), content)
        size = {"width": width, "height": height, "format": "rgba8-srgb", "bytes": len(content)}
        shown = max(self.drawn - 1, message.get("after", -1))
        self.send({"type": "picture", **size, "frame": shown if shown >= 0 else None}, [file])
        os.close(file)


def views(wish: dict[str, Any]) -> list[list[float] | None]:
    """Return the cameras of a `render`; None stands for that on screen."""
    return wish.get("cameras") or [None]


def parts_of(array: dict[str, Any]) -> tuple[dict[str, tuple[list[int], str, int]], int]:
    """Return the shape, type and offset of an array, which has no name, and of its parts; and where the last ends.

    The arrays behind it are "1", "2" and so on, and their parts "1.colors".
    """
    found, end = {}, 0
    for number, one in enumerate([array, *array.get("more", [])]):
        for name in ("", "colors", "sizes", "vectors", "faces", "edges"):
            part = one if name == "" else one.get(name)
            if part is not None:
                offset = (end + 255) // 256 * 256
                whole = f"{number}.{name}".rstrip(".") if number else name
                found[whole] = (part["shape"], part["dtype"], offset)
                end = offset + math.prod(part["shape"]) * np.dtype(part["dtype"]).itemsize
    return found, end


def pixel(kind: str, frame: int, view: list[float] | None, wish: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return a picture of a kind, in which all numbers tell the frame, the camera and the kind."""
    dtype, channels = {"color": ("u1", 4), "depth": ("f4", 1), "normal": ("f4", 4), "index": ("i4", 1)}[kind]
    number = 10 * frame + (int(view[0]) if view else 0) + {"color": 1, "depth": 2, "normal": 3, "index": 4}[kind]
    number = number % 256 if kind == "color" else number
    return np.full((1, wish["height"], wish["width"], channels), number, dtype)


class FakeRenderer:
    """Serves one client after the other."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "wavefield.sock"
        self.rows, self.cols = 3, 5
        """The mesh of a client whose hello names no array."""
        self.gap = 0
        """The bytes after each frame in a slot of host memory."""
        self.alignment = 16
        self.camera: dict[str, Any] = dict(USUAL_CAMERA)
        self.ring = 3
        self.frees = True
        self.window: bool | None = None
        self.screen = [3, 2]
        """The width and height of the picture on screen."""
        self.refuses = ""
        """The reason for which it refuses every picture."""
        self.unwritten = b"\0"
        """The initial value of each byte of host memory."""
        self.parameters: dict[str, Any] = {
            "speed": 1.0,
            "colormap": "viridis",
            "paused": False,
            "limits": [0.0, 1.0],
            "size": 3.0,
            "fit": {"center": [0.0, 0.0, 0.0], "radius": 1.0},
        }
        self.more: list[dict[str, Any]] = []
        """The parameters of the arrays behind the first."""
        self.names: list[str] = []
        """Those of views side by side."""
        self.answers: dict[str, Answer] = {}
        self.goodbye: Callable[[Session], None] = lambda _session: None
        """Called between a client's `bye` and the end of its connection."""
        self.received: list[dict[str, Any]] = []
        self.frames: list[np.ndarray[Any, Any]] = []
        self.parts: list[dict[str, np.ndarray[Any, Any]]] = []
        """Of each frame, what lies behind the array, by name."""
        self.released: list[int] = []
        self.panel: dict[str, Any] = {}
        """The last request for a panel."""
        self.farewell = threading.Event()
        """Set when a client has disconnected."""
        self.session: Session | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.session = Session(self, connection)
            try:
                with connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self.session.serve()
            except BaseException as error:
                self.failure = error
                return
            finally:
                imported = [file for files in self.session.imports.values() for file in files]
                for file in {*self.session.slot_files, *self.session.allocations.values(), *imported}:
                    os.close(file)
                self.session.imports = {}
                self.session.slot_files, self.session.allocations = [], {}
                self.farewell.set()

    def draw(self, driver: FakeDriver) -> int:
        """Draw the frames that are ready, each of which frees the one before. Return their number."""
        session = self.session
        assert session is not None
        drawn = 0
        with driver.lock:
            driver.run()
            session.render()
            driver.run()
            while session.ready.value > session.drawn:
                if session.drawn > 0:
                    session.free.value = session.drawn
                    driver.run()
                self.frames.append(session.shown(session.drawn))
                session.drawn += 1
                drawn += 1
                session.render()
                driver.run()
        return drawn

    def hang_up(self) -> None:
        """End the connection without a message."""
        assert self.session is not None
        self.session.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End, and raise what a session raised. Does nothing the second time."""
        if not self._thread.is_alive():
            return
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self.session is not None:
            with contextlib.suppress(OSError):
                self.session.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure
