#!/usr/bin/env bash
# release.sh [VERSION]: packages and compiles both libraries in a clean clone of the last commit, as `cargo publish` does, and
# compares their interfaces with the last release's. With a VERSION it first sets it everywhere and commits, and afterwards
# makes the tag. It publishes nothing: it prints the commands that do, which need the password.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"

version=${1:-}
libraries=(-p vulkan-cuda -p vulkan-cuda-wgpu --features cuda-12090)
[[ -z $(git status --porcelain) ]] || die 'commit first: this is about the last commit'

# set_version VERSION: in the manifests, the locks, the Python package and the changelog.
set_version() {
    local manifest
    [[ $1 =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || die "not a version like 1.2.3: $1"
    grep -q '^repository = "http' Cargo.toml || die 'set `repository` in Cargo.toml first'
    sed -i "/^\[workspace\.package\]/,/^\[/ s/^version = .*/version = \"$1\"/" Cargo.toml
    sed -i -E "s/^(vulkan-cuda = \{ version = )\"[^\"]+\"/\1\"$1\"/" Cargo.toml crates/vulkan-cuda-wgpu/Cargo.toml
    sed -i -E "s/^(version|__version__) = .*/\1 = \"$1\"/" python/pyproject.toml python/src/wavefield/__init__.py
    sed -i "s/^## Unreleased$/## $1, $(date +%F)/" CHANGELOG.md
    git ls-files '*Cargo.lock' | while read -r manifest; do
        cargo update --quiet --workspace --manifest-path "${manifest%lock}toml"
    done
    git commit --quiet --all --message "Release $1"
}
[[ -z $version ]] || set_version "$version"

clone=$(mktemp -d)
trap 'rm -rf "$clone"' EXIT
git clone --quiet . "$clone"
(cd "$clone" && cargo publish --dry-run --locked "${libraries[@]}" --target-dir "$root/target/release-check")

before=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)
if [[ -z $before ]]; then
    say 'there is no release to compare the interfaces with'
elif cargo semver-checks --version >/dev/null 2>&1; then
    cargo semver-checks "${libraries[@]}" --only-explicit-features --baseline-rev "$before"
else
    say "the interfaces were not compared with $before: cargo install --locked cargo-semver-checks"
fi

[[ -n $version ]] || { say 'both libraries can be published'; exit; }
git tag "v$version"
cat <<END
Version $version is committed and tagged. This publishes it:

  git push origin HEAD v$version

The workflow of the tag publishes the libraries, the program and the wheel. The first release is made by hand:

  cargo login
  cargo publish --locked ${libraries[*]}
END
