#!/usr/bin/env bash
# cuda-versions.sh [--few]: compiles the library with each version of CUDA that cudarc has, with each way to reach the driver,
# and beside candle and CubeCL. --few leaves out the versions between the oldest and the newest.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t versions < <(cargo metadata --quiet --locked --format-version 1 | python3 -c '
import json, sys
[features] = [package["features"] for package in json.load(sys.stdin)["packages"] if package["name"] == "cudarc"]
print(*sorted(name for name in features if name.startswith("cuda-1") and name >= "cuda-12000"), sep="\n")')
((${#versions[@]} > 1)) || { echo "cuda-versions.sh: cudarc's versions of CUDA were not found" >&2; exit 1; }
oldest=${versions[0]} newest=${versions[-1]}
[[ ${1:-} != --few ]] || versions=("$oldest" "$newest")

# check FEATURE...: features of cudarc, beside those of the library itself.
check() {
    echo "vulkan-cuda with $*"
    cargo check --locked --quiet -p vulkan-cuda "${@/#/--features=cudarc/}"
}
for version in "${versions[@]}"; do check "$version"; done
for way in dynamic-linking dynamic-loading; do check "$newest" "$way"; done

# The version that candle would ask nvcc for.
export CUDARC_CUDA_VERSION=${oldest#cuda-}
strangers=(--locked --quiet --manifest-path tests/strangers/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}/strangers")
echo "vulkan-cuda beside candle, CUDA $CUDARC_CUDA_VERSION"
cargo check "${strangers[@]}" -p stranger-candle
unset CUDARC_CUDA_VERSION
echo 'vulkan-cuda beside CubeCL'
cargo check "${strangers[@]}" -p stranger-cubecl
