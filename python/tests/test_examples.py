"""The examples, as far as they go without a GPU: what they compute, and that Numba's kernel compiles as it is sent."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import compilers

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("[!_]*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_and_says_what_it_is(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) < 60
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
    """In Numba's simulator, against the formula of kernels/wave.cu in double precision."""
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


def test_numbas_wave_compiles_as_it_is_sent() -> None:
    compilers.numba_cuda()
    # Numba asks the GPU for its version when a kernel calls a function.
    out = run(
        "from types import SimpleNamespace; from numba.cuda import dispatcher\n"
        "dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=(9, 0))\n"
        "from wavefield import _kernel; from numba_wave import wave; print(_kernel.ptx_of(wave, None, (9, 0))[0])\n"
    )
    assert ".entry field_wave(" in out
    assert ".extern .func" not in out, "the function that it calls is in it"
    assert "sin.approx" in out
    assert not re.search(r"(mul|add|fma)(\.rn)?\.f64 .*\n.*st\.f32", out), "the arithmetic is in single precision"


def test_the_notebook_is_clean_and_compiles() -> None:
    book = json.loads((EXAMPLES / "notebook.ipynb").read_text())
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
            compile("".join(cell["source"]), "notebook", "exec")
