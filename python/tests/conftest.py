from __future__ import annotations

import gc
import logging
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import wavefield
from fake_driver import FakeDriver
from fake_renderer import UUID, FakeRenderer
from started import Started
from wavefield import _show
from wavefield._memory import cuda as _cuda
from wavefield.errors import CudaMissing

# The tests send SIGINT, which a shell's background jobs and their children ignore by default.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def renderer(tmp_path: Path) -> Iterator[FakeRenderer]:
    renderer = FakeRenderer(tmp_path)
    yield renderer
    gc.collect()
    renderer.close()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """Replace `cuda.bindings.driver` with the stand-in."""
    driver = FakeDriver(UUID)
    bindings = ModuleType("cuda.bindings")
    bindings.driver = driver  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    monkeypatch.setattr(_cuda, "_contexts", {})
    # No library that this process has imported may choose the stream.
    for name in ("cupy", "torch", "jax", "numba.cuda", "cuda.core"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield driver
    gc.collect()
    # A thread that gives memory back may be between its push and its pop.
    end = time.monotonic() + 60
    while driver.contexts and time.monotonic() < end:
        time.sleep(0.001)
    assert not driver.contexts, "a context was pushed and not popped"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a field wait less, at its end, for a GPU that never answers."""
    for name in ("CLOSE_SECONDS", "REACHED_SECONDS"):
        monkeypatch.setattr(f"wavefield._handoff.rings.{name}", 0.05)


@pytest.fixture
def host(renderer: FakeRenderer) -> Iterator[wavefield.Field]:
    with wavefield.connect(renderer.path, memory="host") as field:
        yield field


@pytest.fixture
def field(renderer: FakeRenderer, driver: FakeDriver) -> Iterator[wavefield.Field]:
    with wavefield.connect(renderer.path) as field:
        yield field


@pytest.fixture
def started(renderer: FakeRenderer, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Started]]:
    monkeypatch.setattr(Started, "fake", renderer)
    monkeypatch.setattr(Started, "all", [])
    monkeypatch.setattr(_show, "Renderer", Started)
    monkeypatch.setattr("wavefield._say.said", set())
    # Without pytest's handlers, so that messages go to standard error, as in a program without logging.
    monkeypatch.setattr("wavefield._say._log", logging.Logger("wavefield"))
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    yield Started.all
    if _show._shower is not None:
        _show._shower.close()
        _show._shower = None


@pytest.fixture
def without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    def driver() -> Any:
        raise CudaMissing("no CUDA driver here")

    monkeypatch.setattr("wavefield._memory.cuda.driver", driver)
