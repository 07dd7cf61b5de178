#!/usr/bin/env bash
# packages.sh [CHECK...]: checks what few changes touch and what takes long to build: the guide, the builds for Windows and aarch64,
# the library's interface and its versions of CUDA, the examples with wgpu, engines (Bevy, eframe, CubeCL, candle), OpenGL and
# ArrayFire, and the Python wheel. Sets up what is missing, like test.sh. Without arguments it runs all of them.
#
# Exit codes: 0 clean, 1 errors, 2 wrong usage.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"
export WAVEFIELD_REQUIRE_TOOLS=1

guide() { scripts/book.sh; }
windows() {
    (
        # shellcheck source=scripts/windows-rust.sh
        source scripts/windows-rust.sh x86_64-pc-windows-msvc
        # The linter finds its driver next to it, of the same version as the compiler. Nothing is linked.
        CARGO=$(command -v cargo) CARGO_TARGET_DIR=$home/build "$bin/cargo-clippy" clippy --locked "${crates[@]}" --all-targets \
            --exclude wavefield-stand-in "${build_std[@]}" --target "$target" -- -D warnings
    )
    scripts/windows.sh
}
# For DGX Spark, Jetson and Grace, where `c_char` is unsigned: nothing is linked.
aarch64() {
    source scripts/windows-rust.sh aarch64-unknown-linux-gnu
    CARGO_TARGET_DIR=$home/aarch64 cargo check --locked -p vulkan-cuda -p wavefield-demo -p wavefield --all-targets \
        "${build_std[@]}" --target "$target"
}
interface() {
    cargo doc --locked --quiet -p vulkan-cuda --no-deps --features cuda-12090
    scripts/api.py
    scripts/cuda-versions.sh
}
wgpu() {
    local packages=(-p wavefield-wgpu-example -p vulkan-cuda-wgpu -p wavefield-render-to-cuda-example)
    cargo clippy --locked "${packages[@]}" --all-targets -- -D warnings
    cargo test --locked --no-fail-fast "${packages[@]}"
    RUSTDOCFLAGS='-D warnings' cargo doc --locked -p vulkan-cuda-wgpu --no-deps --features cuda-12090
}
# Each is a workspace of its own. Bevy asks for a newer compiler, but this one compiles it. candle's build starts nvcc, for which
# tests/nvcc stands in, so it cannot be linked.
engines() {
    local name
    for name in eframe bevy burn candle; do
        cargo fmt --all --check --manifest-path "examples/$name/Cargo.toml"
        PATH=$PWD/tests/nvcc:$PATH CUDA_COMPUTE_CAP=90 cargo clippy --locked --ignore-rust-version --workspace \
            --manifest-path "examples/$name/Cargo.toml" --target-dir "${CARGO_TARGET_DIR:-target}/engines" -- -D warnings
    done
}
opengl() {
    cargo clippy --locked -p wavefield-opengl-example --all-targets -- -D warnings
    cargo test --locked --no-fail-fast -p wavefield-opengl-example
}
# It cannot be linked without ArrayFire's libraries, so only its types are checked.
arrayfire() {
    cargo clippy --locked --manifest-path examples/arrayfire/Cargo.toml \
        --target-dir "${CARGO_TARGET_DIR:-target}/arrayfire" -- -D warnings
}
wheel() { scripts/wheel.sh; }

checks=(guide windows aarch64 interface wgpu engines opengl arrayfire wheel)
for check; do
    [[ " ${checks[*]} " == *" $check "* ]] || { say "there is no check $check, but ${checks[*]}"; exit 2; }
done
(($#)) || set -- "${checks[@]}"
setup essentials x11_window test_tools python_tools windows_tools
failed=()
for check; do
    say "$check"
    # In the background, because a failure in the middle does not end what stands before `||`.
    "$check" &
    wait $! || failed+=("$check")
done
((${#failed[@]} == 0)) || die "FAILED: ${failed[*]}"
say "passed: $*"
