# shellcheck shell=bash
# `source windows-rust.sh TARGET`: a compiler that builds for this target, rustup's if it has added the target. windows.sh and
# packages.sh source this after setup.sh.
#
# Otherwise it takes a compiler, its sources and its linter, all of one version, from the distribution's packages (Debian):
# with -Zbuild-std, cargo builds the standard library from those sources. The packages are not installed: they are unpacked
# under target/windows-check/ (150 MB to fetch, 1 GB unpacked) and reused by the next run. Without them it exits with 77.
#
# It sets `bin` (the folder of the linter), `build_std` (options of cargo), RUSTC, RUSTC_BOOTSTRAP and LD_LIBRARY_PATH.

home=$root/target/windows-check

skip() { say "skipped: $*"; exit 77; }

# Sets of packages: compiler, sources and linter. Debian has a recent one for its browsers.
sets() { printf '%s\n' 'rustc-web rust-web-src rust-web-clippy' 'rustc rust-src rust-clippy'; }

candidate() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: \([^(]*\)$/\1/p'; }

# newer VERSION THAN: compares versions like 1.96.0, with or without a distribution's suffix.
newer() { [[ $(printf '%s\n' "$1" "$2" | sort -V | head -n 1) == "$2" ]]; }

# Sets `packages` (the set) and `version`.
choose() {
    local oldest
    oldest=$(oldest_rust)
    while read -ra packages; do
        version=$(candidate "${packages[0]}")
        if [[ -z $version ]] || ! newer "$version" "$oldest"; then continue; fi
        [[ $(candidate "${packages[1]}") == "$version" && $(candidate "${packages[2]}") == "$version" ]] && return
    done < <(sets)
    skip "no package here has a compiler of Rust $oldest or later with its sources (rustc-web, rust-web-src," \
        "rust-web-clippy on Debian). apt-get update first, if the lists are old or empty; or rustup target add $target"
}

# The set, and the compiler's own libraries, which the system may lack.
wanted() {
    printf '%s\n' "${packages[@]}"
    # The packages depend on the standard library for this machine, and that on the compiler's libraries.
    LC_ALL=C apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
        --no-enhances "${packages[@]}" | sed -n 's/^\([a-z].*\)$/\1/p' | grep -E '^(libstd-rust|libllvm)' || true
}

fetch() {
    local package debs=$home/debs
    rm -rf "$home/sysroot" "$debs"
    mkdir -p "$debs" "$home/sysroot"
    mapfile -t list < <(wanted | sort -u)
    say "fetching ${list[*]} ($version)"
    (cd "$debs" && apt-get -qq download "${list[@]}" 2>&1 | sed '/unsandboxed/d' >&2) ||
        skip 'the packages could not be fetched. Is this machine online?'
    for package in "$debs"/*.deb; do
        dpkg-deb -x "$package" "$home/sysroot"
        rm "$package"
    done
    echo "$version" >"$home/version"
}

target=$1
has_program cargo || PATH=$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin
bin=$(rustc --print sysroot 2>/dev/null || true)/bin build_std=()
if [[ -d $bin/../lib/rustlib/$target/lib ]]; then
    say "$(rustc --version), with $target"
    return
fi
[[ $(uname -sm) == 'Linux x86_64' ]] || skip 'the packages are for Linux on x86_64'
for tool in cargo apt-cache apt-get dpkg-deb; do
    has_program "$tool" || skip "there is no $tool"
done
# A fresh image has no lists, so apt knows no packages.
has_lists || ((EUID != 0)) || apt_get update || true
choose
[[ $(cat "$home/version" 2>/dev/null) == "$version" ]] || fetch

bin=$(dirname "$(find "$home/sysroot/usr" -path '*/bin/cargo-clippy' -print -quit)")
libraries=$(find "$home/sysroot/usr/lib" -name 'librustc_driver-*.so' -printf '%h:')$home/sysroot/usr/lib/x86_64-linux-gnu
# The compiler's own libraries are next to it; all others are the system's.
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# Only a nightly compiler may build the standard library, unless RUSTC_BOOTSTRAP is set.
export RUSTC=$bin/rustc RUSTC_BOOTSTRAP=1
"$RUSTC" --version >/dev/null 2>&1 || skip "$version does not start here: $("$RUSTC" --version 2>&1 | head -n 1)"
[[ -d $("$RUSTC" --print sysroot)/lib/rustlib/src/rust/library/std ]] || skip "${packages[1]} is not where it is looked for"
build_std=(-Zbuild-std=std,panic_unwind)
say "$("$RUSTC" --version)"
