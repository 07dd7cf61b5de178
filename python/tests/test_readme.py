"""Runs the Python code of the READMEs unchanged, with NumPy instead of CuPy, and the fake renderer."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import wavefield
from fake_renderer import FakeRenderer, Session
from readmes import ROOT, block, blocks, first_examples, one_lines
from wavefield import _show


def test_there_is_no_other_block() -> None:
    """A new block needs a test below."""
    assert (len(blocks("README.md")), len(blocks("python/README.md"))) == (1, 6)


def test_no_link_leads_into_the_repository() -> None:
    """The README is also the package's page on an index, where such a link is broken."""
    links = re.findall(r"\]\(([^)]*)\)", (ROOT / "python/README.md").read_text())
    assert [link for link in links if not link.startswith(("#", "https://"))] == []


@pytest.fixture
def renderer(renderer: FakeRenderer, monkeypatch: pytest.MonkeyPatch) -> FakeRenderer:
    """The renderer of `connect()`. Its memory is full of NaN, and it ends after four frames."""

    def ready(session: Session, message: dict[str, Any], files: list[int]) -> None:
        # A quick client may send another frame before it notices the end.
        if message["frame"] > 3:
            return
        session.on_ready(message, files)
        if message["frame"] == 3:
            renderer.hang_up()

    renderer.answers["ready"] = ready
    renderer.unwritten = b"\xff"
    connect = wavefield.connect
    monkeypatch.setattr(wavefield, "connect", lambda: connect(renderer.path, memory="host"))
    monkeypatch.setitem(sys.modules, "cupy", np)
    return renderer


@pytest.mark.usefixtures("started", "without_cuda")
@pytest.mark.parametrize("where", one_lines())
def test_the_one_line(renderer: FakeRenderer, capsys: pytest.CaptureFixture[str], where: str) -> None:
    del renderer.answers["ready"]
    names: dict[str, Any] = {}
    exec(one_lines()[where], names)
    _show._shower.field.status()  # type: ignore[union-attr]
    y, x = np.mgrid[-3:3:480j, -4:4:640j]
    np.testing.assert_array_equal(renderer.frames[0], np.sin(x * x + y * y).astype(np.float32))
    (told,) = [message["parameters"] for message in renderer.received if message["type"] == "set"]
    np.testing.assert_allclose(told["limits"], (-1, 1), atol=1e-3)
    assert "there is no display" in capsys.readouterr().err


@pytest.mark.usefixtures("started", "without_cuda")
def test_called_again(renderer: FakeRenderer) -> None:
    del renderer.answers["ready"]
    exec(block("called again"), {})
    _show._shower.field.status()  # type: ignore[union-attr]
    assert len(renderer.frames) == 300
    assert renderer.frames[0].shape == (512, 512)
    assert (renderer.frames[0] != renderer.frames[299]).any(), "it moves"
    asked = [message["type"] for message in renderer.received]
    assert (asked.count("hello"), asked.count("set")) == (1, 1)


def is_a_field(shown: np.ndarray) -> None:
    """Check that every vertex was written, within the ranges that `Array` documents, and that the heights vary."""
    rows, cols, _ = shown.shape
    np.testing.assert_allclose(shown[..., 0], np.broadcast_to(np.linspace(-1, 1, cols), (rows, cols)), atol=1e-6)
    np.testing.assert_allclose(shown[..., 2].T, np.broadcast_to(np.linspace(-1, 1, rows), (cols, rows)), atol=1e-6)
    height, colour = shown[..., 1], shown[..., 3]
    assert np.abs(height).max() <= 0.3 + 1e-6
    assert np.ptp(height) > 0.1
    assert (colour.min() >= 0, colour.max() <= 1) == (True, True)
    assert np.ptp(colour) > 0.1


@pytest.mark.parametrize("where", first_examples())
def test_the_first_example_fills_the_field(renderer: FakeRenderer, where: str) -> None:
    with pytest.raises(wavefield.RendererGone):
        exec(first_examples()[where], {})
    assert len(renderer.frames) == 4
    for shown in renderer.frames:
        is_a_field(shown)
    assert (renderer.frames[0] != renderer.frames[3]).any(), "it moves"


def test_arrays_of_your_own(renderer: FakeRenderer, capsys: pytest.CaptureFixture[str]) -> None:
    with wavefield.connect() as field:
        mine = np.random.default_rng(7).random(field.shape, np.float32)
        exec(block("arrays of your own"), {"cp": np, "field": field, "v": mine})
        field.status()
    assert capsys.readouterr().out == "Shown.WITHOUT_COPY\nShown.WITHOUT_COPY\nShown.COPIED\n"
    first, second, third = renderer.frames
    np.testing.assert_array_equal(first, mine)
    np.testing.assert_array_equal(second, -mine)
    np.testing.assert_array_equal(third, mine)


def test_pictures(renderer: FakeRenderer) -> None:
    with wavefield.connect() as field:
        names: dict[str, Any] = {"field": field, "wavefield": wavefield, "torch": np}
        names["v"] = np.random.default_rng(7).random(field.shape, np.float32)
        exec(block("pictures"), names)
    assert (names["color"].shape, names["depth"].shape) == ((2, 3, 4), (2, 3, 1))
    assert names["views"].shape == (64, 84, 84, 4)
    assert names["views"].dtype == np.uint8


def test_a_kernel_becomes_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """test_examples.py runs it with Numba."""
    numba: Any = ModuleType("numba")
    numba.cuda = SimpleNamespace(compile_ptx=lambda function, _signature, cc: (f"{function} for {cc}", None))
    numba.types = SimpleNamespace(
        void=lambda *_: None, CPointer=lambda _: None, float32=0, uint32=0, uint64=0, float64=0
    )
    monkeypatch.setitem(sys.modules, "numba", numba)
    monkeypatch.chdir(tmp_path)
    exec(block("kernel"), {"wave": SimpleNamespace(py_func="wave")})
    assert (tmp_path / "wave.ptx").read_text() == "wave for (9, 0)"
