#!/usr/bin/env bash
# Remakes python/requirements: what python.sh and wheel.sh fetch with pip, with versions and hashes. Needs uv (pip install uv).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../python/requirements"

# lock PACKAGE...: prints one line for each package and each package that it needs, for Python 3.10 and newer.
lock() {
    printf '%s\n' "$@" | uv pip compile - --quiet --universal --python-version 3.10 --generate-hashes \
        --constraint constraints.txt --no-annotate --no-header | sed -z 's/ \\\n */ /g'
}

# Numba needs a NumPy before 2.5.
echo 'numpy<2.5' >constraints.txt
lock ruff mypy pytest pillow numpy cuda-bindings nbconvert ipykernel jupyter_rfb >checks.txt
lock 'maturin>=1.9.4,<2' ziglang >wheel.txt
cp checks.txt constraints.txt
lock 'numba-cuda[cu13]==0.30.4' | grep -vxFf checks.txt >numba.txt
rm constraints.txt
