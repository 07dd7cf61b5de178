#!/usr/bin/env bash
# pictures.sh [OUT]: the pictures and messages of the chapter "When it goes wrong", into OUT (default target/pictures).
# Choose from them for docs/guide/src/pictures.
#
# Needs a GPU that CUDA and Vulkan share. Run it from anywhere in a checkout; it builds with cargo. The last two parts change a
# line of the source each (docs/guide/breaks), build, run, and change it back. Nothing here makes a kernel fault.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

out=$(realpath -m "${1:-target/pictures}")
mkdir -p "$out"
program=$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/wavefield
field=(--producer cuda --ring 1 --kernel tool/handoff/kernels/test/colour.ptx --grid 2048x2048 --size 640x360)

# keep NAME COMMAND…: runs it, and keeps what it says. It may fail: that is what is to be shown.
keep() {
    local name=$1
    shift
    echo "== $name"
    timeout 120 "$@" >"$out/$name.txt" 2>&1 || echo "exit $?" >>"$out/$name.txt"
    tail -n 4 "$out/$name.txt"
}

# broken NAME COMMAND…: the same by a build with the patch of that name.
broken() {
    local name=$1
    shift
    patch -p1 <"docs/guide/breaks/$name.patch"
    cargo build --release --locked -p wavefield
    keep "$name" "$@"
    patch -R -p1 <"docs/guide/breaks/$name.patch"
}

cargo build --release --locked -p wavefield
keep devices "$program" devices
keep right "$program" verify "${field[@]}" --frames 41 --output "$out/right.png"
# On an H200 each picture is whole and of the frame before; elsewhere one may have two colours. Nothing overwrites the last frame, so
# for `free` only the film can show it.
for frames in 38 39 40 41 42; do
    keep "ready-$frames" "$program" verify "${field[@]}" --break ready --frames "$frames" --output "$out/ready-$frames.png"
done
for part in ready free; do
    keep "$part" "$program" verify "${field[@]}" --break "$part" --frames 120 --record "$out/$part.gif" --record-side 640
done
keep barrier "$program" verify "${field[@]}" --break barrier --frames 500

texture=("$program" verify --scene texture --producer cuda --grid 1024x1024 --size 640x360 --frames 100 --validation)
keep texture "${texture[@]}" --output "$out/texture.png"
broken levels "${texture[@]}" --output "$out/levels.png"
broken undefined "${texture[@]}" --output "$out/undefined.png"
cargo build --release --locked -p wavefield
