#!/usr/bin/env bash
# Sets up what is missing, and runs the program with the given arguments. Without
# arguments it opens a window. If there is no display, it writes wavefield.png into
# the current directory.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

tables=(essentials)
[[ -z ${DISPLAY:-} ]] || tables+=(x11_window)
[[ -z ${WAYLAND_DISPLAY:-} ]] || tables+=(wayland_window)
setup "${tables[@]}"

is_built release/wavefield || announce 'the first build' 8 '0.7 GB'
aloud 'the build' cargo build --release --locked --manifest-path "$root/Cargo.toml"
run=(cargo run --quiet --release --locked --manifest-path "$root/Cargo.toml" --)
# A software device needs about a second for a frame of the default field.
if (($# == 0)) && "${run[@]}" devices | grep -q '^>.*(software)'; then
    say 'the device draws in software, so the field is small: --grid 256x256'
    set -- --grid 256x256
fi
exec "${run[@]}" "$@"
