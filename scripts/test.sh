#!/usr/bin/env bash
# test.sh [--yes] [--quick] [ARGUMENT...]: sets up what is missing, and runs every check but those of packages.sh. The arguments
# go to cargo test. At a terminal it asks before it installs; --yes is the answer. --quick checks the demo and the library only,
# without windows, browser and Python. With CI=true, a missing tool is a failure.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"

passed=
skipped=()
log=$(mktemp)
python_log=$(mktemp)
window_log=$(mktemp)
beside=() # processes
# Only here: a subshell that is killed at its very start still has this trap.
trap '[[ $BASHPID != $$ ]] || { rm -f "$log" "$python_log" "$window_log"; kill ${beside[@]+"${beside[@]}"} 2>/dev/null || true; }' EXIT

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
    aloud "$name" "$@" || die "FAILED: $name"
    passed+="${passed:+, }$name"
}

# component_step NAME SUBCOMMAND ARGUMENTS...: runs a subcommand of cargo, which may be missing.
component_step() {
    local name=$1
    shift
    if cargo "$1" --version >/dev/null 2>&1; then
        step "$name" cargo "$@"
    else
        skip "$name" "there is no cargo $1; rustup component add rustfmt clippy"
    fi
}

# If all tools are there, a test that skips itself because of a missing tool has failed.
tools() {
    if ! has_all "${tables[@]}"; then
        skip 'what needs a missing tool' "${debian[*]}"
    elif [[ -z ${PTXAS:-} ]] && ! scripts/kernels.sh tools; then
        skip 'what needs a missing tool' 'ptxas, which could not be fetched'
    elif ! scripts/first-frame-cpp.sh >/dev/null; then
        skip 'what needs a missing tool' 'cuda.h, which could not be fetched'
    # This includes the crates of optional features, because the licences of all are checked.
    elif ! cargo fetch --quiet --locked --target "$(rustc -vV | sed -n 's/^host: //p')"; then
        skip 'what needs a missing tool' 'the crates, which could not be fetched'
    else
        export WAVEFIELD_REQUIRE_TOOLS=${WAVEFIELD_REQUIRE_TOOLS:-1}
    fi
}

# known_programs FOLDER: links the programs that a fresh machine has after `setup`: those of Debian's required packages, git,
# Rust, and what the tables name.
known_programs() {
    local name table path
    rm -rf "$1" && mkdir -p "$1"
    {
        { dpkg-query -W -f '${Priority} ${Package}\n' | sed -n 's/^required //p'; echo apt; } |
            xargs dpkg -L | grep -E '^(/usr)?/s?bin/.'
        # `has_pip` looks for python3, `has_clang` for two names, and `can_link` for cc, which starts as and ld. awk belongs to
        # no package.
        for name in git cargo cargo-{clippy,fmt} clippy-driver rust{c,doc,fmt} python3 cc as ld awk clang-14 clang \
            $(for table in "${tables[@]}"; do "$table"; done | sed -n 's/^has_program \([^ ]*\).*/\1/p'); do
            command -v "$name" || true
        done
    } | while read -r path; do ln -sf "$path" "$1"; done
}

# skippable_step NAME COMMAND...: runs a script that exits with 77 if it is skipped, after printing the reason.
skippable_step() {
    local name=$1 status=0
    shift
    say "$name"
    aloud "$name" "$@" || status=$?
    case $status in
        0) passed+=", $name" ;;
        77) skipped+=("$name: see above") ;;
        *) die "FAILED: $name" ;;
    esac
}

# kept COMMAND...: keeps the output of the tests, to count results in it.
kept() { "$@" 2>&1 | tee -a "$log"; }

# sum WORD: adds up the numbers before WORD in the results of cargo and pytest.
sum() {
    # With -q, pytest's line is not framed by `=`.
    awk -v word="^$1[;,]?\$" '/^test result: |^(=+ )?[0-9]+ [a-z]+.* in [0-9.]+s/ {
        for (at = 2; at <= NF; at++) if ($at ~ word) sum += $(at - 1)
    } END { print sum + 0 }' "$log"
}

# Prints the last line. For cargo, a test that prints `skipped: …` has passed, and one test may print it several times.
count() {
    local said tests
    # pytest counts its own and lists them as SKIPPED. A skip of the whole Python package counts as a check.
    said=$(awk '!/^SKIPPED|^python.sh/ { said += gsub(/skipped: /, "") } END { print said + 0 }' "$log")
    tests=$((said + $(sum ignored) + $(sum skipped)))
    if ((${#skipped[@]} + tests == 0)); then
        say "$(sum passed) tests passed, nothing was skipped"
    else
        say "$(sum passed) tests passed; skipped: ${#skipped[@]} of the checks, $tests tests or parts of tests (each says \"skipped: \")"
    fi
}

# ended PROCESS LOG: waits for it, and prints what it printed.
ended() {
    local status=0
    wait "$1" || status=$?
    kept cat "$2"
    return "$status"
}

# The tests of windows and of the browser wait much, so they run beside the others, and others after them, so that both take
# equally long.
all_tests() {
    local name status=0 others=() aside=(window window_rounds faults demo rounds)
    cargo test --locked --no-fail-fast "${crates[@]}" "${aside[@]/#/--test=}" >"$window_log" 2>&1 &
    beside+=($!)
    local windows=$!
    for name in {tests,crates/*/tests,tool/*/tests}/{*.rs,*/main.rs}; do
        [[ -e $name ]] || continue
        name=${name%/main.rs} name=${name##*/} name=${name%.rs}
        # `turns` is of a crate that is not among these.
        [[ " ${aside[*]} turns " == *" $name "* ]] || others+=("--test=$name")
    done
    kept cargo test --locked --no-fail-fast "${crates[@]}" --lib --bins "${others[@]}" || status=$?
    kept cargo test --locked --no-fail-fast "${crates[@]}" --doc || status=$?
    ended "$windows" "$window_log" || status=$?
    return "$status"
}

documentation() { RUSTDOCFLAGS='-D warnings' cargo doc --locked "${crates[@]}" --no-deps; }

if [[ ${1:-} == --quick ]]; then
    shift
    # shellcheck disable=SC2034 # For `setup`.
    builds=demo
    setup essentials
    component_step formatting fmt --all --check
    component_step clippy clippy --locked --all-targets -- -D warnings
    step tests kept cargo test --locked --no-fail-fast "$@"
    say "passed: $passed"
    count
    exit
fi

tables=(essentials x11_window test_tools python_tools)
setup "${tables[@]}"
fetch_swiftshader
# A program that a test or a script starts and that no table names is then missing here, as it is on a fresh machine.
if [[ ${CI:-} == true ]] && has_program dpkg-query; then
    known_programs "$root/target/programs"
    export PATH=$root/target/programs
    # CI has no GPU, and a program starts sooner without the drivers for one.
    export VK_LOADER_DRIVERS_DISABLE='intel_*,radeon_*'
fi
if is_built debug/wavefield; then announce 'this' 14; else announce 'the first run' 50 '6 GB'; fi
tools
component_step formatting fmt --all --check
component_step clippy clippy --locked "${crates[@]}" --all-targets -- -D warnings
step documentation documentation
[[ ${CI:-} != true ]] || step "the library's interface" scripts/api.py
[[ ${CI:-} != true ]] || step "the library's versions of CUDA" scripts/cuda-versions.sh --few
skippable_step 'links and code in the documents' scripts/book.sh check
step 'build of the tests' cargo test --locked "${crates[@]}" --no-run "$@"
# The Python tests start the program, even if "$@" names tests of another crate.
(($# == 0)) || cargo build --locked --quiet "${crates[@]}" --bins
# Beside the tests, because it waits much, and with the program that was just built.
WAVEFIELD_BIN=${CARGO_TARGET_DIR:-$PWD/target}/debug/wavefield scripts/python.sh >"$python_log" 2>&1 &
python=$!
beside+=("$python")
if (($#)); then step tests kept cargo test --locked --no-fail-fast "${crates[@]}" "$@"; else step tests all_tests; fi
[[ ${CI:-} != true ]] || scripts/lines.sh
skippable_step 'Python package' ended "$python" "$python_log"
WAVEFIELD_BIN=${CARGO_TARGET_DIR:-$PWD/target}/debug/wavefield skippable_step 'tunnel to a page' scripts/ssh-check.sh

say "passed: $passed"
for reason in ${skipped[@]+"${skipped[@]}"}; do say "skipped: $reason"; done
count
