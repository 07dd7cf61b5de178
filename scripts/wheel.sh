#!/usr/bin/env bash
# Builds the wheel, which contains the renderer, and installs it into an empty virtual environment. There a script of
# three lines draws a picture in host memory. It can find neither the repository nor another program `wavefield`.
#
#     scripts/wheel.sh [PROFILE]      # cargo's profile: dev by default, release as users get it
#
# Writes the wheel and the picture to target/wheel/. A release is linked with zig, for glibc 2.28 (Debian 10, RHEL 8); other
# profiles are linked as `cargo build` does, for this machine. Fetches maturin, zig, NumPy and cuda-bindings from PyPI.
#
# Exit codes: 0 clean, 1 errors, 77 skipped, with the reason.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"

skip() {
    say "skipped: $1"
    [[ ${WAVEFIELD_REQUIRE_TOOLS:-} != 1 ]] || exit 1
    exit 77
}

profile=${1:-dev}
python=${PYTHON:-python3}
target=${CARGO_TARGET_DIR:-$root/target}
out=$target/wheel
setup essentials python_tools
command -v "$python" >/dev/null || skip "there is no $python"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || skip "$("$python" --version) is older than 3.10"
"$python" -c 'import venv, ensurepip' 2>/dev/null || skip "$python has no venv with pip (Debian: python3-venv)"

pip=(-m pip --quiet --disable-pip-version-check)
tools=$target/wheel-tools
if ! cmp --quiet python/requirements/wheel.txt "$tools/wheel.txt"; then
    rm -rf "$tools"
    "$python" -m venv "$tools"
    "$tools/bin/python" "${pip[@]}" install --require-hashes -r python/requirements/wheel.txt ||
        skip 'pip could not fetch maturin and zig'
    cp python/requirements/wheel.txt "$tools"
fi
# maturin refuses to build a program that needs a newer glibc than it is told.
linked=()
[[ $profile != release ]] || linked=(--zig --compatibility manylinux_2_28)
rm -rf "$out"
# pyproject.toml takes every file of such a name.
"$python" scripts/licences.py >python/LICENSE-THIRD-PARTY
(
    cd python
    # maturin looks for zig on PATH, as `python -m ziglang`.
    PATH=$tools/bin:$PATH maturin build --quiet --profile "$profile" --target-dir "$target" --out "$out" ${linked[@]+"${linked[@]}"}
)
wheel=$(echo "$out"/*.whl)
[[ -f $wheel ]] || die "$out does not contain exactly one wheel"

"$python" -m venv "$out/venv"
# What it needs, with hashes. `check` says whether that is all.
needed=$(grep -E '^(numpy|cuda-bindings|cuda-pathfinder)==' python/requirements/checks.txt)
"$out/venv/bin/python" "${pip[@]}" install --require-hashes -r <(echo "$needed") ||
    skip 'pip could not fetch what the wheel needs'
"$out/venv/bin/python" "${pip[@]}" install --no-index --no-deps "$wheel"
"$out/venv/bin/python" -m pip check
cat >"$out/three_lines.py" <<'END'
import numpy as np, wavefield
y, x = np.mgrid[-3:3:240j, -4:4:320j].astype(np.float32)
wavefield.show(np.sin(x * x + y * y), colormap="magma", memory="host", window=False).save("picture.png")
END
# From there, neither the repository nor its Python package can be found.
(cd "$out" && env -u WAVEFIELD_BIN -u PYTHONPATH PATH="/usr/bin:/bin" venv/bin/python -W error -I three_lines.py)

cargo tree --locked -p wavefield -e normal,no-proc-macro --prefix none --format '{p}' >"$out/crates"
"$out/venv/bin/python" - "$out" <<'END'
import importlib.metadata, struct, sys, zlib
from pathlib import Path

import wavefield
from wavefield._renderer.program import find_renderer

out = Path(sys.argv[1])
assert Path(wavefield.__file__).is_relative_to(out / "venv"), wavefield.__file__
assert find_renderer() == str(out / "venv" / "bin" / "wavefield"), find_renderer()
licences = {file.name: file for file in importlib.metadata.files("wavefield") if file.parent.name == "licenses"}
assert set(licences) == {"LICENSE-MIT", "LICENSE-APACHE", "LICENSE-THIRD-PARTY"}, licences
theirs = licences["LICENSE-THIRD-PARTY"].read_text()
crates = [line.split()[:2] for line in (out / "crates").read_text().splitlines() if "(/" not in line]
unnamed = [name for name, version in crates if f"{name} {version[1:]}" not in theirs]
assert len(crates) > 100 and not unnamed, unnamed
png = (out / "picture.png").read_bytes()
assert png[:8] == b"\x89PNG\r\n\x1a\n", png[:8]
width, height = struct.unpack(">II", png[16:24])
data, at = b"", 8
while at < len(png):
    length, kind = struct.unpack(">I4s", png[at : at + 8])
    data += png[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
    at += 12 + length
rows = zlib.decompress(data)
colours = {rows[i : i + 3] for row in range(height) for i in range(row * (4 * width + 1) + 1, (row + 1) * (4 * width + 1), 4)}
assert len(colours) > 150, f"only {len(colours)} colours"
print(f"{width}x{height}, {len(colours)} colours")
END
say "$(basename "$wheel") ($(du -h "$wheel" | cut -f1)) draws $out/picture.png"
