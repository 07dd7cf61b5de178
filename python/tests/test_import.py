"""Importing the package prints nothing, and imports no large library."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_nothing_heavy_is_imported_and_nothing_is_printed() -> None:
    code = (
        "import sys, wavefield; "
        "heavy = {'numpy', 'cuda', 'cupy', 'torch', 'jax', 'numba', 'jupyter_rfb', 'IPython'}; "
        "heavy &= {name.split('.')[0] for name in sys.modules}; "
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_everything_public_has_a_description() -> None:
    code = "import wavefield; assert all(getattr(wavefield, n).__doc__ for n in [*wavefield.__all__, 'Widget'])"
    subprocess.run([sys.executable, "-c", code], check=True)


WITHOUT = "import sys; sys.modules['jupyter_rfb'] = sys.modules['anywidget'] = sys.modules['numba'] = None\n"


def test_everything_can_be_imported_without_optional_libraries() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT + "from wavefield import *; show, connect"], check=True)


@pytest.mark.parametrize("code", ["import wavefield; wavefield.Widget", "from wavefield import Widget"])
def test_the_widget_says_what_to_install(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT + code], capture_output=True, text=True)
    *_, last = done.stderr.splitlines()
    assert last.startswith("wavefield.errors.LibraryMissing: wavefield.Widget needs jupyter_rfb, "), done.stderr
    assert last.endswith("pip install jupyter_rfb")
    caught = WITHOUT + f"try: exec({code!r})\nexcept ImportError: sys.exit(0)\nsys.exit(1)"
    subprocess.run([sys.executable, "-c", caught], check=True)


def test_other_systems_are_named() -> None:
    code = "import sys; sys.platform = 'win32'; sys.modules['fcntl'] = None; import wavefield"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("ImportError: wavefield runs on Linux only"), done.stderr
