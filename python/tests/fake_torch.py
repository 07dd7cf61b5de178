"""A stand-in for the little of PyTorch that `torch_distributed.py` uses: NumPy's arrays, and gloo as sockets.

As in gloo, a message from or to a rank that has ended fails at once. A wait that takes too long closes the connection.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np


def install() -> None:
    """Make `import torch` give the stand-in."""
    torch, dist = ModuleType("torch"), ModuleType("torch.distributed")
    vars(torch).update(
        distributed=dist,
        zeros=lambda *shape, device=None: np.zeros(shape, np.float32),
        linspace=lambda first, last, count, device=None: np.linspace(first, last, count, dtype=np.float32),
        from_dlpack=np.asarray,
        cuda=SimpleNamespace(),
    )
    for part in (init_process_group, new_group, get_rank, get_world_size, broadcast_object_list, isend, irecv, P2POp):
        setattr(dist, part.__name__, part)
    vars(dist).update(batch_isend_irecv=batch_isend_irecv, destroy_process_group=lambda: None)
    sys.modules.update({"torch": torch, "torch.distributed": dist})


def get_rank() -> int:
    return int(os.environ["RANK"])


def get_world_size() -> int:
    return int(os.environ["WORLD_SIZE"])


class Group:
    """A connection to each other rank."""

    all: list[Group] = []  # noqa: RUF012
    listener: socket.socket
    early: dict[tuple[int, int], socket.socket] = {}  # noqa: RUF012
    """Connections for groups that this rank has yet to make."""

    def __init__(self, timeout: timedelta) -> None:
        self.peers: dict[int, socket.socket] = {}
        number, rank, end = len(self.all), get_rank(), time.monotonic() + timeout.total_seconds()
        self.all.append(self)
        for other in range(rank):
            self.peers[other] = connect(other, end)
            self.peers[other].sendall(struct.pack("ii", number, rank))
        self.listener.settimeout(timeout.total_seconds())
        while not all((number, other) in self.early for other in range(rank + 1, get_world_size())):
            peer, _ = self.listener.accept()
            self.early[struct.unpack("ii", receive(peer, 8))] = peer
        for other in range(rank + 1, get_world_size()):
            self.peers[other] = self.early.pop((number, other))
        for peer in self.peers.values():
            peer.settimeout(timeout.total_seconds())


def name(rank: int) -> str:
    return f"\0fake torch {os.environ['MASTER_PORT']} {rank}"


def connect(rank: int, end: float) -> socket.socket:
    while True:
        peer = socket.socket(socket.AF_UNIX)
        try:
            peer.connect(name(rank))
            return peer
        except OSError:
            peer.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def receive(peer: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = peer.recv(size - len(content))
        if not part:
            raise ConnectionResetError("the other rank has ended")
        content += part
    return content


def init_process_group(backend: str, timeout: timedelta) -> None:
    Group.listener = socket.socket(socket.AF_UNIX)
    Group.listener.bind(name(get_rank()))
    Group.listener.listen(get_world_size())
    Group(timeout)


def new_group(backend: str, timeout: timedelta) -> Group:
    assert backend == "gloo"
    return Group(timeout)


class Work:
    def __init__(self, peer: socket.socket, run: Callable[[], object]) -> None:
        self.peer, self.run = peer, run

    def wait(self, timeout: timedelta | None = None) -> bool:
        try:
            if timeout is not None:
                self.peer.settimeout(timeout.total_seconds())
            self.run()
        except OSError as error:
            self.peer.close()
            raise RuntimeError(str(error)) from None
        return True


def isend(tensor: Any, dst: int, group: Group | None = None) -> Work:
    peer = (group or Group.all[0]).peers[dst]
    content = np.ascontiguousarray(tensor).tobytes()
    # A short message does not wait for the other rank.
    work = Work(peer, lambda: peer.sendall(content))
    work.wait()
    return Work(peer, lambda: None)


def irecv(tensor: Any, src: int, group: Group | None = None) -> Work:
    assert tensor.flags.c_contiguous
    peer = (group or Group.all[0]).peers[src]

    def run() -> None:
        tensor[...] = np.frombuffer(receive(peer, tensor.nbytes), tensor.dtype).reshape(tensor.shape)

    return Work(peer, run)


class P2POp(NamedTuple):
    op: Callable[[Any, int, Group | None], Work]
    tensor: Any
    peer: int
    group: Group | None


def batch_isend_irecv(jobs: list[P2POp]) -> list[Work]:
    return [job.op(job.tensor, job.peer, job.group) for job in jobs]


def broadcast_object_list(objects: list[Any]) -> None:
    peers = Group.all[0].peers
    if get_rank() == 0:
        content = pickle.dumps(objects)
        for peer in peers.values():
            peer.sendall(struct.pack("i", len(content)) + content)
    else:
        (size,) = struct.unpack("i", receive(peers[0], 4))
        objects[:] = pickle.loads(receive(peers[0], size))
