"""The messages of `docs/protocol.md`: makes them, and checks received ones. Pure functions.

One packet of a `SOCK_SEQPACKET` socket is one message: a JSON object with a "type".
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .._memory.layout import DTYPES, PARTS, Layout
from ..errors import ArrayMismatch, ProtocolError, VersionMismatch, brief

VERSION = 2
MAX_BYTES = 128 * 1024
MAX_RING = 32
MAX_NAME = 200  # bytes
# In one message: one for each slot, and two for the timelines.
MAX_DESCRIPTORS = MAX_RING + 2

_SHOW = struct.Struct("=8s3Q")
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

Memory = Literal["cuda", "host"]
Message = dict[str, Any]


def encode(message: Mapping[str, Any]) -> bytes:
    """Return the packet of a message."""
    data = _encode(message).encode()
    if len(data) > MAX_BYTES:
        raise ProtocolError(f"the message has {len(data)} bytes; at most {MAX_BYTES} are allowed")
    return data


def show(frame: int, allocation: int, offset: int) -> bytes:
    """Return the packet of a `show`, in its short form."""
    return _SHOW.pack(b"show", frame, allocation, offset)


def decode(packet: bytes) -> Message:
    """Return the message of a packet."""
    if len(packet) > MAX_BYTES:
        raise ProtocolError(f"the renderer sent a message of more than {MAX_BYTES} bytes")
    try:
        message = json.loads(packet)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the renderer sent a message that is not JSON: {error}") from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise ProtocolError('the renderer sent JSON that is not a message: an object with a "type" was expected')
    return message


def integer(message: Mapping[str, Any], key: str, least: int = 0, most: int = 2**63 - 1) -> int:
    """Return an integer of a message, between `least` and `most`."""
    value = message.get(key)
    # In Python, True is an int.
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ProtocolError(f"the renderer sent {key!r} as {value!r}; an integer from {least} to {most} was expected")
    return value


def text(message: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """Return a string of a message."""
    value = message.get(key, default)
    if not isinstance(value, str):
        raise ProtocolError(f"the renderer sent {key!r} as {value!r}; text was expected")
    return value


def mapping(message: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return an object of a message."""
    value = message.get(key)
    if not isinstance(value, dict):
        raise ProtocolError(f"the renderer sent {key!r} as {value!r}; an object was expected")
    return value


def number(message: Mapping[str, Any], key: str) -> float:
    """Return a number of a message."""
    value = message.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ProtocolError(f"the renderer sent {key!r} as {value!r}; a number was expected")
    return float(value)


@dataclass(frozen=True)
class Slot:
    """Where the frame of one slot lies."""

    fd: int
    """The index of its descriptor among those of the message."""
    offset: int
    bytes: int
    allocation_bytes: int


@dataclass(frozen=True)
class Welcome:
    """The renderer's answer to `hello`, checked."""

    server: str
    device_name: str
    device_uuid: str
    """32 hexadecimal digits."""
    memory: Memory
    layout: Layout
    offset_alignment: int
    slots: tuple[Slot, ...]
    ready: int | None
    """The index of the descriptor of the `ready` timeline; None in host memory. The same for `free`."""
    free: int | None
    frame_seconds: float
    window: bool
    """Whether the renderer has a window. One that does not say may have."""
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def ring(self) -> int:
        """Return the number of slots."""
        return len(self.slots)


def hello(memory: Memory, ring: int | None, client: str, layout: Layout | None = None) -> Message:
    """Return the first message of a client. Without a layout it asks for the renderer's own grid."""
    if not isinstance(client, str):
        raise TypeError(f"the client's name must be text, not {brief(client)}")
    name = client.encode()[:MAX_NAME].decode(errors="ignore")
    message: Message = {"type": "hello", "protocol": VERSION, "client": name, "memory": memory}
    if ring is not None:
        message["ring"] = ring
    if layout is not None:
        message["array"] = {"kind": layout.kind, **_described(layout)}
    return message


def _described(layout: Layout) -> dict[str, Any]:
    described: dict[str, Any] = {"shape": list(layout.shape), "dtype": layout.typestr}
    described |= {name: _described(part) for name, part in layout.parts}
    if layout.more:
        described |= {"more": [{"kind": other.kind, **_described(other)} for other in layout.more]}
        described |= {"columns": layout.columns} if layout.columns else {}
    return described


def welcome(message: Message, memory: Memory, descriptors: int, wanted: Layout | None = None) -> Welcome:
    """Check a `welcome` that came with `descriptors` file descriptors. `wanted` is the layout of the hello."""
    version = integer(message, "protocol", 0)
    if version != VERSION:
        raise VersionMismatch(
            "version",
            f"the renderer ({text(message, 'server', 'unknown')}) speaks version {version} of the protocol, and this "
            f"package version {VERSION}: install the package from the renderer's own python/ folder",
        )
    if message.get("memory") != memory:
        raise ProtocolError(f"the renderer was asked for {memory!r} memory, and gave {message.get('memory')!r}")
    layout = _array(mapping(message, "array"))
    if wanted is not None and layout != wanted:
        raise ProtocolError(f"the renderer was asked for {wanted}, and gave {layout}")
    if integer(message, "frame_bytes", 1) != (size := layout.frame_bytes):
        raise ProtocolError(f"the renderer sent 'frame_bytes' as {message['frame_bytes']}; {layout} has {size}")

    slots = message.get("slots")
    ring = integer(message, "ring", 2, MAX_RING)
    if not isinstance(slots, list) or len(slots) != ring:
        raise ProtocolError(f"the renderer has a ring of {ring}, but did not send {ring} slots")
    seconds = message.get("frame_seconds", 1 / 60)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 3600:
        raise ProtocolError(
            f"the renderer sent 'frame_seconds' as {seconds!r}; a number between 0 and 3600 was expected"
        )
    device = mapping(message, "device")
    uuid = text(device, "uuid").replace("-", "").lower()
    if len(uuid) != 32 or set(uuid) - set("0123456789abcdef"):
        raise ProtocolError(f"the renderer sent {uuid!r} as its device's UUID; 32 hexadecimal digits were expected")
    most = descriptors - 1
    return Welcome(
        server=text(message, "server", "unknown"),
        device_name=text(device, "name", "unknown"),
        device_uuid=uuid,
        memory=memory,
        layout=layout,
        offset_alignment=integer(message, "offset_alignment", 1),
        slots=tuple(_slot(slot, layout, most) for slot in slots),
        ready=integer(message, "ready", 0, most) if memory == "cuda" else None,
        free=integer(message, "free", 0, most) if memory == "cuda" else None,
        frame_seconds=float(seconds),
        window=message.get("window") is not False,
        parameters=mapping(message, "parameters") if "parameters" in message else {},
    )


def _array(message: Message) -> Layout:
    parts = {name: _shape_and_dtype(mapping(message, name)) for name in PARTS if name in message}
    others = message.get("more", [])
    if not isinstance(others, list) or not all(isinstance(other, dict) and "more" not in other for other in others):
        raise ProtocolError(f"the renderer sent 'more' as {others!r}; a list of arrays was expected")
    more, columns = tuple(map(_array, others)), integer({"columns": 0, **message}, "columns")
    try:
        layout = Layout.of(text(message, "kind"), *_shape_and_dtype(message)).having(parts)
        return replace(layout, more=more, columns=columns)
    except ArrayMismatch as error:
        raise ProtocolError(f"the renderer sent an impossible array: {error}") from None


def _shape_and_dtype(message: Message) -> tuple[tuple[int, ...], str]:
    shape = message.get("shape")
    if not isinstance(shape, list) or not 1 <= len(shape) <= 3:
        raise ProtocolError(f"the renderer sent 'shape' as {shape!r}; one to three numbers were expected")
    dtype = text(message, "dtype")
    return tuple(integer({"shape": side}, "shape", 1) for side in shape), DTYPES.get(dtype, dtype)


def _slot(message: Any, layout: Layout, most: int) -> Slot:
    if not isinstance(message, dict):
        raise ProtocolError(f"the renderer sent a slot as {message!r}; an object was expected")
    allocation = integer(message, "allocation_bytes", 1)
    slot = Slot(
        fd=integer(message, "fd", 0, most),
        offset=integer(message, "offset"),
        bytes=integer(message, "bytes", layout.frame_bytes),
        allocation_bytes=allocation,
    )
    if slot.offset % layout.item_bytes or slot.offset + slot.bytes > allocation:
        raise ProtocolError(
            f"the renderer sent a slot of {slot.bytes} bytes at {slot.offset} in an allocation of {allocation}"
        )
    return slot
