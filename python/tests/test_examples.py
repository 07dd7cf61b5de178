"""The examples without a GPU: what they compute, and that Numba compiles its kernel to PTX for `--kernel`."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import compilers
import wavefield
from fake_driver import FakeDriver
from fake_renderer import FakeRenderer, Session
from readmes import block

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("[!_]*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_and_says_what_it_is(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= (90 if path.stem == "torch_distributed" else 59)
    assert lines[0].startswith('"""')


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(EXAMPLES), **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_numbas_wave_is_the_renderers_wave() -> None:
    """Compares Numba's simulator with the formula of kernels/wave.cu in double precision."""
    compilers.numba_cuda()
    out = run(
        "import json, numpy as np; from numba_wave import wave\n"
        "v = np.zeros(9 * 7 * 4, np.float32)\n"
        "wave[1, 64](v, np.uint32(9), np.uint32(7), np.uint64(3), 87.3)\n"
        "print(json.dumps(v.tolist()))\n",
        NUMBA_ENABLE_CUDASIM="1",
    )
    v = np.array(json.loads(out)).reshape(7, 9, 4)
    z, x = np.meshgrid(np.linspace(-1, 1, 7), np.linspace(-1, 1, 9), indexing="ij")
    turn = math.fmod(87.3, 20) / 20

    def sine(turns: np.ndarray) -> np.ndarray:
        return np.asarray(np.sin(2 * math.pi * turns))

    y = (
        0.46 * sine(0.55 * x + 0.30 * z - 3 * turn)
        + 0.26 * sine(-0.40 * x + 0.75 * z - 4 * turn)
        + 0.14 * sine(1.10 * x + 0.90 * z - 7 * turn)
        + 0.14 * sine(2.25 * np.hypot(x, z) - 8 * turn)
    )
    np.testing.assert_allclose(v, np.stack((x, 0.3 * y, z, 0.5 + 0.5 * y), -1), atol=2e-6)


def test_numbas_wave_becomes_a_file_for_the_renderer(tmp_path: Path) -> None:
    compilers.numba_cuda()
    # If a kernel calls a function, Numba asks the GPU for its version.
    run(
        "from types import SimpleNamespace; from numba.cuda import dispatcher\n"
        "dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=(9, 0))\n"
        f"from numba_wave import wave; import os; os.chdir({str(tmp_path)!r})\n{block('kernel')}"
    )
    out = (tmp_path / "wave.ptx").read_text()
    assert out.count(".entry ") == 1
    assert ".extern .func" not in out, "the PTX contains the function that it calls"
    assert "sin.approx" in out
    assert not re.search(r"(mul|add|fma)(\.rn)?\.f64 .*\n.*st\.f32", out), "the arithmetic is in single precision"


def test_the_notebook_is_clean_and_compiles() -> None:
    book = json.loads((EXAMPLES / "notebook.ipynb").read_text())
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
            compile("".join(cell["source"]), "notebook", "exec")


NUMPY = ("linspace", "meshgrid", "stack", "sqrt", "exp", "sin", "cos", "float32")


class OnTheGpu(np.ndarray[Any, Any]):
    """An array of the stand-in's memory, with the CUDA array interface."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.__array_interface__, "version": 3, "stream": 1}


def on_the_gpu(array: Any) -> OnTheGpu:
    described = dict(array.__cuda_array_interface__)
    memory = type("Memory", (), {"__array_interface__": {**described, "version": 3}, "owner": array})()
    return np.asarray(memory).view(OnTheGpu)


@pytest.mark.usefixtures("started")
def test_the_notebook_in_cuda_memory(
    renderer: FakeRenderer, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs the cells with NumPy instead of CuPy, and the stand-in driver."""
    cupy: Any = ModuleType("cupy")
    vars(cupy).update({name: getattr(np, name) for name in NUMPY})
    cupy.from_dlpack = on_the_gpu
    cupy.cuda = SimpleNamespace(get_current_stream=lambda _device: SimpleNamespace(ptr=0))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(wavefield, "launch", lambda grid, memory: wavefield.connect(renderer.path, memory=memory))

    over = threading.Event()

    def draw() -> None:
        while not over.wait(0.002):
            if renderer.session is not None and renderer.session.slot_files:
                renderer.draw(driver)

    lent: list[np.ndarray] = []

    def status(session: Session, message: dict[str, Any], files: list[int]) -> None:
        # Every message before this one has been read, but the drawing thread may have drawn before that.
        if 32 in session.shows:
            lent.append(session.shown(32))
        session.on_status(message, files)

    renderer.answers["status"] = status

    def draw_the_rest(_session: Session) -> None:
        renderer.draw(driver)

    renderer.goodbye = draw_the_rest
    drawing = threading.Thread(target=draw, daemon=True)
    book = json.loads((EXAMPLES / "notebook.ipynb").read_text())
    names: dict[str, Any] = {}
    drawing.start()
    try:
        for cell in book["cells"]:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), "notebook", "exec"), names)
    finally:
        over.set()
        drawing.join()
        names.clear()
    said = capsys.readouterr().out
    assert "Shown.WITHOUT_COPY\nShown.COPIED\n" in said
    assert "(4, 120, 160, 1) [" in said
    shown, mesh = renderer.frames[:4], renderer.frames[4:]
    assert [frame.shape for frame in shown] == [(480, 640), (120, 160), (20_000, 4), (480, 640, 3)]
    assert all(np.isfinite(frame).all() and np.ptp(frame) > 0.5 for frame in shown)
    assert len(mesh) == 34
    ripple, of_the_widget, saddle = mesh[29], mesh[30], mesh[31]
    assert (ripple != of_the_widget).any(), "it moves"
    assert ripple[1, 2, 3] != 0.5
    np.testing.assert_allclose(saddle[1, 0], (-1, 0.3, 0, 1), atol=1e-6)
    np.testing.assert_array_equal(lent[-1], mesh[33])
