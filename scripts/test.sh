#!/usr/bin/env bash
# Sets up what is missing and runs every check. The arguments go to cargo test.
# With CI=true nothing may be left out for want of a tool. WAVEFIELD_CHECK_WINDOWS=1 checks the Windows build too.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"

passed=
skipped=()

# skip WHAT WHY
skip() {
    [[ ${CI:-} != true ]] || die "FAILED: $1: $2"
    skipped+=("$1: $2")
}

# step NAME COMMAND...
step() {
    local name=$1
    shift
    say "$name"
    "$@" || die "FAILED: $name"
    passed+="${passed:+, }$name"
}

# component_step NAME SUBCOMMAND ARGUMENTS...: of a cargo that may lack it.
component_step() {
    local name=$1
    shift
    if cargo "$1" --version >/dev/null 2>&1; then
        step "$name" cargo "$@"
    else
        skip "$name" "there is no cargo $1; rustup component add rustfmt clippy"
    fi
}

# With everything there, a test that skips itself for want of a tool has failed.
tools() {
    if ! has_all essentials x11_window test_tools; then
        skip 'what needs a missing tool' "${debian[*]}"
    elif [[ -z ${PTXAS:-} ]] && ! scripts/kernels.sh tools; then
        skip 'what needs a missing tool' 'ptxas, which could not be fetched'
    else
        export WAVEFIELD_REQUIRE_TOOLS=${WAVEFIELD_REQUIRE_TOOLS:-1}
    fi
}

# What a machine cannot have for want of packages is left to the workflow's Windows runner.
windows() {
    local status=0
    say 'Windows'
    scripts/check-windows.sh || status=$?
    case $status in
        0) passed+=', Windows' ;;
        77) skipped+=('Windows: see above') ;;
        *) die 'FAILED: Windows' ;;
    esac
}

documentation() { RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps; }

setup essentials x11_window test_tools
fetch_swiftshader
tools
component_step formatting fmt --all --check
# With every feature: nothing else looks at the half of an example that needs ArrayFire's libraries to be linked.
component_step clippy clippy --locked --workspace --all-targets --all-features -- -D warnings
step documentation documentation
[[ ${WAVEFIELD_CHECK_WINDOWS:-} != 1 ]] || windows
step tests cargo test --locked "$@"
# Also against the program that these tests have built.
step 'Python package' env WAVEFIELD_BIN="${CARGO_TARGET_DIR:-$PWD/target}/debug/wavefield" scripts/python.sh

say "passed: $passed"
for reason in ${skipped[@]+"${skipped[@]}"}; do say "skipped: $reason"; done
