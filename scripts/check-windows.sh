#!/usr/bin/env bash
# Type-checks and lints the Windows build, tests included, on Debian or Ubuntu: nothing is linked and nothing runs (for that,
# windows.sh). It needs cargo, and apt-get with its lists; windows-rust.sh fetches the compiler.
#
# Exit codes: 0 clean, 1 errors or warnings, 77 skipped, with the reason.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"
# shellcheck source=scripts/windows-rust.sh
source scripts/windows-rust.sh

export CARGO_TARGET_DIR=$home/build
# The linter finds its driver next to it, of the same version as the compiler.
CARGO=$(command -v cargo) "$bin/cargo-clippy" clippy --locked "${crates[@]}" --exclude wavefield-stand-in --all-targets "$build_std" \
    --target x86_64-pc-windows-msvc -- -D warnings || { say 'FAILED'; exit 1; }
say 'the Windows build is clean (type-checked and linted; windows.sh runs it)'
