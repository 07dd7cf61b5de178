#!/usr/bin/env bash
# book.sh [check | SOURCE]: checks the links of every Markdown file, the code in it, the README's chart and the guide's patches, and,
# without `check`, builds the guide into target/book. After a change of code that a page shows: scripts/book.py refresh.
#
# SOURCE is the address of the repository's files, for a book that will be published. By default the book links to the
# files of this checkout. mdBook is fetched and built once, into target/tools (three minutes on one core).
#
# exit status: 0 fine, 1 failed, 77 skipped because mdBook or Python is missing
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"

version=0.5.4
mdbook=$root/target/tools/bin/mdbook
# With CI=true, nothing may be skipped.
skip() {
    [[ ${CI:-} != true ]] || die "FAILED: $1"
    say "skipped: $1"
    exit 77
}

has_program python3 || skip 'there is no python3'
python3 scripts/book.py check
# The patches that break the hand-off in the guide still apply to this source.
for patch in docs/guide/breaks/*.patch; do
    git apply --check "$patch" || die "FAILED: $patch does not apply any more"
done
[[ ${1:-} != check ]] || exit 0

if [[ $("$mdbook" --version 2>/dev/null) != "mdbook v$version" ]]; then
    has_cargo || skip 'there is no cargo to build mdBook with'
    say "building mdBook $version"
    # Debian has no package for it. A build without optimisation takes a third of the time.
    cargo install --quiet --debug --locked "mdbook@$version" --no-default-features --features search \
        --root target/tools --force || skip 'mdBook could not be fetched or built'
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
rm -rf target/book
"$mdbook" build docs/guide 2>&1 | tee "$log"
! grep -qE 'WARN|ERROR' "$log" || die 'FAILED: mdBook warns'
python3 scripts/book.py finish target/book "$@"
say 'the guide is in target/book/index.html'
