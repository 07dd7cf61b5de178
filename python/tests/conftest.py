from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import wavefield
from fake_driver import FakeDriver
from fake_renderer import UUID, FakeRenderer
from wavefield import _cuda

# A job in the background of a shell ignores SIGINT, and so does all that it starts. The tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def renderer(tmp_path: Path) -> Iterator[FakeRenderer]:
    renderer = FakeRenderer(tmp_path)
    yield renderer
    gc.collect()
    renderer.close()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """Put the stand-in in the place of `cuda.bindings.driver`."""
    driver = FakeDriver(UUID)
    bindings = ModuleType("cuda.bindings")
    bindings.driver = driver  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    monkeypatch.setattr(_cuda, "_contexts", {})
    # Whatever else this process has imported must not choose the stream.
    for name in ("cupy", "torch", "jax", "numba.cuda", "cuda.core"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield driver
    gc.collect()
    assert not driver.contexts, "a context was pushed and not popped"


@pytest.fixture
def host(renderer: FakeRenderer) -> Iterator[wavefield.Field]:
    with wavefield.connect(renderer.path, memory="host") as field:
        yield field


@pytest.fixture
def field(renderer: FakeRenderer, driver: FakeDriver) -> Iterator[wavefield.Field]:
    with wavefield.connect(renderer.path) as field:
        yield field
