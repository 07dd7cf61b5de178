#!/usr/bin/env bash
# Sets up what is missing and runs the program with the arguments given here:
# without any it opens a window, and where there is no display it writes
# wavefield.png into the current directory.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

tables=(essentials)
[[ -z ${DISPLAY:-} ]] || tables+=(x11_window)
[[ -z ${WAYLAND_DISPLAY:-} ]] || tables+=(wayland_window)
setup "${tables[@]}"

exec cargo run --release --locked --manifest-path "$root/Cargo.toml" -- "$@"
