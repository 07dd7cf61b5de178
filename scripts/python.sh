#!/usr/bin/env bash
# The checks of the Python package: ruff, mypy and the tests, in a virtual environment under target/, with what they need
# from PyPI (about 80 MB). Needs no GPU. With WAVEFIELD_BIN the tests also run against that renderer. The arguments go to pytest.
#
# What needs Numba's compiler says `skipped: …`, unless WAVEFIELD_PYTHON_NUMBA=1 asks for it: that fetches about 800 MB at
# first, into an environment of its own.
#
# Without python3 3.10 or newer, venv or pip it says `skipped: …`; with WAVEFIELD_REQUIRE_TOOLS=1 that is a failure.
#
# Exit codes: 0 clean, 1 errors, 77 skipped for the reason that was said.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=$PWD/target/python
packages=(ruff mypy pytest pillow numpy cuda-bindings nbconvert ipykernel)
if [[ ${WAVEFIELD_PYTHON_NUMBA:-} == 1 ]]; then
    # It makes PTX without a GPU. This one needs a NumPy before 2.5.
    venv+=-numba packages+=('numpy<2.5' 'numba-cuda[cu13]==0.30.4')
fi

skip() {
    echo "python.sh: skipped: $1" >&2
    [[ ${WAVEFIELD_REQUIRE_TOOLS:-} != 1 ]] || exit 1
    exit 77
}

if [[ -n ${WAVEFIELD_BIN:-} && ! -x $WAVEFIELD_BIN ]]; then
    echo "python.sh: WAVEFIELD_BIN=$WAVEFIELD_BIN is no program; cargo build makes target/debug/wavefield" >&2
    exit 1
fi
python=${PYTHON:-python3}
command -v "$python" >/dev/null || skip "there is no $python"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || skip "$("$python" --version) is older than 3.10"
# venv alone is there without the package that gives it a pip.
"$python" -c 'import venv, ensurepip' 2>/dev/null || skip "$python has no venv with pip (Debian: python3-venv)"

# Made again when what it is to hold has changed.
wanted=$(echo "$PWD"; cat scripts/python.sh; "$python" --version)
if [[ ! -x $venv/bin/pytest || $(cat "$venv/wanted" 2>/dev/null) != "$wanted" ]]; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" ||
        skip 'pip could not fetch what the checks need'
    # The package itself, from its sources: installing it would build the renderer, which scripts/wheel.sh does.
    echo "$PWD/python/src" >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/wavefield.pth"
    echo "$wanted" >"$venv/wanted"
fi

cd python
"$venv/bin/ruff" format --check .
"$venv/bin/ruff" check .
"$venv/bin/mypy"
exec "$venv/bin/pytest" -ra "$@"
