#!/usr/bin/env bash
# Checks the Python package with ruff, mypy and its tests, in a virtual environment under target/. Fetches about 80 MB
# from PyPI. Needs no GPU. With WAVEFIELD_BIN the tests also run against that renderer. The arguments go to pytest.
#
# Tests that need Numba's compiler print `skipped: …`. WAVEFIELD_PYTHON_NUMBA=1 runs them; the first time that fetches
# about 800 MB into a separate environment.
#
# Without python3 3.10 or newer, venv or pip it prints `skipped: …`. With WAVEFIELD_REQUIRE_TOOLS=1 that is a failure.
#
# Exit codes: 0 clean, 1 errors, 77 skipped, with the reason.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=$PWD/target/python
packages=(-r python/requirements/checks.txt)
if [[ ${WAVEFIELD_PYTHON_NUMBA:-} == 1 ]]; then
    # Makes PTX without a GPU.
    venv+=-numba packages+=(-r python/requirements/numba.txt)
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
# A system can have venv without the package that provides its pip.
"$python" -c 'import venv, ensurepip' 2>/dev/null || skip "$python has no venv with pip (Debian: python3-venv)"

# The environment is made again when its contents must change.
wanted=$(echo "$PWD"; cat scripts/python.sh python/requirements/{checks,numba}.txt; "$python" --version)
if [[ ! -x $venv/bin/pytest || $(cat "$venv/wanted" 2>/dev/null) != "$wanted" ]]; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes "${packages[@]}" ||
        skip 'pip could not fetch what the checks need'
    # The package itself, from its sources: an installation would build the renderer, which scripts/wheel.sh does.
    echo "$PWD/python/src" >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/wavefield.pth"
    echo "$wanted" >"$venv/wanted"
fi

cd python
"$venv/bin/ruff" format --check .
"$venv/bin/ruff" check .
"$venv/bin/mypy"
exec "$venv/bin/pytest" -ra "$@"
