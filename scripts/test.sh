#!/usr/bin/env bash
# Sets up what is missing and runs every check. The arguments go to cargo test.
# With CI=true nothing may be left out for want of a tool. WAVEFIELD_CHECK_WINDOWS=1 checks the Windows build too.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"

passed=
skipped=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT

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
    # Those of optional features too, for a look at their licences.
    elif ! cargo fetch --quiet --locked --target "$(rustc -vV | sed -n 's/^host: //p')"; then
        skip 'what needs a missing tool' 'the crates, which could not be fetched'
    else
        export WAVEFIELD_REQUIRE_TOOLS=${WAVEFIELD_REQUIRE_TOOLS:-1}
    fi
}

# skippable_step NAME COMMAND...: of a script that says why it is skipped, and then exits with 77.
skippable_step() {
    local name=$1 status=0
    shift
    say "$name"
    "$@" || status=$?
    case $status in
        0) passed+=", $name" ;;
        77) skipped+=("$name: see above") ;;
        *) die "FAILED: $name" ;;
    esac
}

# kept COMMAND...: keeps what the tests say, to be counted.
kept() { "$@" 2>&1 | tee -a "$log"; }

# sum WORD: of the numbers before WORD in the results of cargo and pytest.
sum() {
    awk -v word="^$1[;,]?\$" '/^test result: |^=+ .* in [0-9.]+s/ {
        for (at = 2; at <= NF; at++) if ($at ~ word) sum += $(at - 1)
    } END { print sum + 0 }' "$log"
}

# The last line. To cargo a test that says `skipped: …` has passed, and one may say it of several parts.
count() {
    local said tests
    # pytest counts its own, and lists them as SKIPPED; the whole Python package is one of the checks.
    said=$(awk '!/^SKIPPED|^python.sh/ { said += gsub(/skipped: /, "") } END { print said + 0 }' "$log")
    tests=$((said + $(sum ignored) + $(sum skipped)))
    if ((${#skipped[@]} + tests == 0)); then
        say "$(sum passed) tests passed, nothing was skipped"
    else
        say "$(sum passed) tests passed; skipped: ${#skipped[@]} of the checks, $tests tests or parts of tests (each says \"skipped: \")"
    fi
}

documentation() { RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps; }

setup essentials x11_window test_tools
fetch_swiftshader
first_build debug/wavefield 15 '5 GB'
tools
component_step formatting fmt --all --check
component_step clippy clippy --locked --all-targets -- -D warnings
component_step 'clippy of the stand-in' clippy --locked -p wavefield-stand-in -- -D warnings
step documentation documentation
skippable_step guide scripts/book.sh
[[ ${WAVEFIELD_CHECK_WINDOWS:-} != 1 ]] || skippable_step Windows scripts/check-windows.sh
step tests kept cargo test --locked "$@"
# wgpu takes minutes to build, and OpenGL is for those who have it, so a plain `cargo test` leaves these out.
if [[ ${CI:-} == true ]]; then
    for example in wgpu opengl; do
        component_step "clippy of the $example example" clippy --locked -p "wavefield-$example-example" --all-targets -- -D warnings
        step "$example example" kept cargo test --locked -p "wavefield-$example-example"
    done
    # It cannot be linked without ArrayFire's libraries, so its types are checked and no more.
    component_step 'types of the ArrayFire example' clippy --locked --manifest-path examples/arrayfire/Cargo.toml \
        --target-dir "${CARGO_TARGET_DIR:-target}/arrayfire" -- -D warnings
fi
# Also against the program that these tests have built.
skippable_step 'Python package' kept env WAVEFIELD_BIN="${CARGO_TARGET_DIR:-$PWD/target}/debug/wavefield" scripts/python.sh
[[ ${CI:-} != true ]] || skippable_step 'Python wheel' scripts/wheel.sh

say "passed: $passed"
for reason in ${skipped[@]+"${skipped[@]}"}; do say "skipped: $reason"; done
count
