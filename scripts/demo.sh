#!/usr/bin/env bash
# demo.sh [--yes] [ARGUMENT...]: sets up what is missing, and runs the demo with the
# given arguments. At a terminal it asks before it installs; --yes is the answer.
# Without arguments the demo opens a window. If there is no display, it writes
# wavefield.png into the current directory.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

# shellcheck disable=SC2034 # For `setup`.
builds=demo
tables=(essentials)
[[ -z ${DISPLAY:-} ]] || tables+=(x11_window)
[[ -z ${WAYLAND_DISPLAY:-} ]] || tables+=(wayland_window)
setup "${tables[@]}"

is_built release/wavefield-demo || announce 'the first build' 5 '0.6 GB'
cargo=(--release --locked --manifest-path "$root/Cargo.toml" --package wavefield-demo)
aloud 'the build' cargo build "${cargo[@]}"
exec cargo run --quiet "${cargo[@]}" -- "$@"
