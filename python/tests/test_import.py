"""Importing the package prints nothing, and imports no large library."""

from __future__ import annotations

import subprocess
import sys


def test_nothing_heavy_is_imported_and_nothing_is_printed() -> None:
    code = (
        "import sys, wavefield; "
        "heavy = {'numpy', 'cuda', 'cupy', 'torch', 'jax', 'numba'} & {name.split('.')[0] for name in sys.modules}; "
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_everything_public_has_a_description() -> None:
    code = (
        "import wavefield; "
        "names = [n for n in wavefield.__all__ if n != 'NumbaMemoryManager']; "
        "assert all(getattr(wavefield, n).__doc__ for n in names)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
