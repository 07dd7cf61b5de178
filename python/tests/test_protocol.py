"""The renderer's messages are checked before they are used."""

from __future__ import annotations

import random
from typing import Any

import pytest

from wavefield import ProtocolError, VersionMismatch
from wavefield._handoff.ring import free_before, ready_after, slot
from wavefield._memory.layout import Layout
from wavefield._renderer import protocol as _protocol


def good() -> dict[str, Any]:
    return {
        "type": "welcome",
        "protocol": 2,
        "server": "wavefield 0.1.0",
        "device": {"name": "NVIDIA H200", "uuid": "00112233445566778899aabbccddeeff"},
        "memory": "cuda",
        "array": {"kind": "mesh", "shape": [512, 1024, 4], "dtype": "<f4"},
        "frame_bytes": 8388608,
        "offset_alignment": 16,
        "largest_allocation": 4000000000,
        "ring": 2,
        "slots": [
            {"fd": 0, "offset": 0, "bytes": 8388608, "allocation_bytes": 8388608},
            {"fd": 1, "offset": 0, "bytes": 8388608, "allocation_bytes": 9000000},
        ],
        "ready": 2,
        "free": 3,
        "frame_seconds": 0.016,
        "parameters": {"speed": 1.0},
    }


def test_a_good_welcome_is_understood() -> None:
    welcome = _protocol.welcome(good(), "cuda", 4)
    assert welcome.layout.shape == (512, 1024, 4)
    assert welcome.layout.strides == (16384, 16, 4)
    assert welcome.layout.bytes == 512 * 1024 * 16
    assert welcome.ring == 2
    assert (welcome.ready, welcome.free) == (2, 3)
    assert welcome.slots[1].allocation_bytes == 9000000


BAD: list[tuple[str, Any]] = [
    ("protocol", "1"),
    ("protocol", True),
    ("memory", "host"),
    ("array", None),
    ("array", {}),
    ("array", {"kind": "mesh", "shape": [512, 1024, 4], "dtype": "<f8"}),
    ("array", {"kind": "mesh", "shape": [512, 1024, 3], "dtype": "<f4"}),
    ("array", {"kind": "mesh", "shape": [512, 1024, 4, 1], "dtype": "<f4"}),
    ("array", {"kind": "mesh", "shape": "512x1024", "dtype": "<f4"}),
    ("array", {"kind": "mesh", "shape": [512, 1024.0, 4], "dtype": "<f4"}),
    ("array", {"kind": "cloud", "shape": [512, 1024, 4], "dtype": "<f4"}),
    ("array", {"kind": "image", "shape": [2**16, 2**16], "dtype": "<f4"}),
    ("frame_bytes", 8388607),
    ("frame_bytes", None),
    ("offset_alignment", 0),
    ("offset_alignment", None),
    ("ring", 1),
    ("ring", 3),
    ("ring", 2**40),
    ("slots", []),
    ("slots", None),
    ("slots", [1, 2]),
    ("slots", [{"fd": 0, "offset": 0, "bytes": 8388608, "allocation_bytes": 8388608}] * 3),
    ("ready", 4),
    ("ready", -1),
    ("ready", None),
    ("free", 99),
    ("frame_seconds", 0),
    ("frame_seconds", "1"),
    ("frame_seconds", True),
    ("device", {"name": "x"}),
    ("device", {"name": "x", "uuid": "0011"}),
    ("device", {"name": 7, "uuid": "00112233445566778899aabbccddeeff"}),
    ("device", "x"),
    ("parameters", []),
    ("server", None),
]


@pytest.mark.parametrize(("key", "value"), BAD)
def test_a_bad_welcome_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ProtocolError):
        _protocol.welcome({**good(), key: value}, "cuda", 4)


def test_what_was_asked_for_is_what_is_given() -> None:
    wanted = Layout.of("mesh", (512, 1024, 4), "float32")
    assert _protocol.hello("cuda", 3, "x", wanted)["array"] == good()["array"]
    assert _protocol.welcome(good(), "cuda", 4, wanted).layout == wanted
    with pytest.raises(ProtocolError, match="asked for an image"):
        _protocol.welcome(good(), "cuda", 4, Layout.of("image", (512, 1024, 4), "float32"))


BAD_SLOTS: list[tuple[str, Any]] = [
    ("fd", 4),
    ("fd", -1),
    ("fd", None),
    ("offset", 2),
    ("offset", 8388608),
    ("offset", -16),
    ("bytes", 8388607),
    ("bytes", 9000016),
    ("allocation_bytes", 8388592),
    ("allocation_bytes", 2**63),
]


@pytest.mark.parametrize(("key", "value"), BAD_SLOTS)
def test_a_slot_that_cannot_be_is_refused(key: str, value: Any) -> None:
    message = good()
    message["slots"][1] = {**message["slots"][1], key: value}
    with pytest.raises(ProtocolError):
        _protocol.welcome(message, "cuda", 4)


def test_another_version_says_what_to_do() -> None:
    with pytest.raises(VersionMismatch, match="version 1 of the protocol, and this package version 2: install"):
        _protocol.welcome({**good(), "protocol": 1}, "cuda", 4)


@pytest.mark.parametrize(
    "packet",
    [b"", b"\xff", b"[]", b"{}", b'{"type":1}', b'{"type":"a"', b"null", b"[" * 60000, b" " * 65537, b'{"type":NaN}'],
)
def test_packets_that_are_no_message(packet: bytes) -> None:
    with pytest.raises(ProtocolError):
        _protocol.decode(packet)


def test_random_damage_is_an_error_or_a_valid_welcome() -> None:
    """Any bytes raise `ProtocolError`, and no other exception."""
    packet = _protocol.encode(good())
    damage = random.Random(7)
    survived = 0
    for _ in range(5000):
        bytes_ = bytearray(packet)
        for _ in range(damage.randrange(1, 4)):
            bytes_[damage.randrange(len(bytes_))] = damage.randrange(256)
        try:
            _protocol.welcome(_protocol.decode(bytes(bytes_)), "cuda", 4)
            survived += 1
        except (ProtocolError, VersionMismatch):
            pass
    assert 0 < survived < 5000


def test_messages_that_are_too_long_are_not_sent() -> None:
    with pytest.raises(ProtocolError):
        _protocol.encode({"type": "x", "text": "a" * 131072})


def test_ring_values() -> None:
    # Frame 3 of a ring of 3 uses slot 0 again, so the renderer must have finished with frame 0: `free` is 1.
    assert [slot(n, 3) for n in range(5)] == [0, 1, 2, 0, 1]
    assert [free_before(n, 3) for n in range(5)] == [0, 0, 0, 1, 2]
    assert [ready_after(n) for n in range(3)] == [1, 2, 3]
