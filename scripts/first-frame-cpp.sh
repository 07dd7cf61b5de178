#!/usr/bin/env bash
# first-frame-cpp.sh [OUT]: compiles examples/first_frame_cpp into the folder OUT, and prints the path of the program.
#
# OUT is target/first_frame_cpp by default. If no CUDA toolkit is found (CUDA_PATH, or /usr/local/cuda), cuda.h is fetched once
# with pip from NVIDIA's wheel, into target/tools.
#
# exit status: 0 fine, 1 failed, 77 skipped because the compiler, Vulkan's headers or cuda.h are missing
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

# With the hashes of its wheels, for x86-64 and Arm.
package='nvidia-cuda-runtime-cu12==12.9.79 --hash=sha256:25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3 \
    --hash=sha256:83469a846206f2a733db0c42e223589ab62fd2fabac4432d2f8802de4bded0a4'
fetched=$root/target/tools/cuda-12.9.79

# With CI=true, nothing may be skipped.
skip() {
    [[ ${CI:-} != true ]] || die "FAILED: $1"
    say "skipped: $1"
    exit 77
}

fetch() {
    has_pip || skip 'there is no cuda.h, and no pip to fetch it: set CUDA_PATH, or get Python 3 with pip'
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    say 'fetching cuda.h into target/tools'
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$scratch" --require-hashes -r <(echo "$package") ||
        skip 'pip could not fetch cuda.h: set CUDA_PATH, or try again'
    python3 -m zipfile -e "$scratch"/*.whl "$scratch/wheel"
    mkdir -p "$fetched"
    # The rename comes last, so that nobody reads half a file.
    cp "$scratch/wheel/nvidia/cuda_runtime/include/cuda.h" "$fetched/cuda.h.$$"
    mv "$fetched/cuda.h.$$" "$fetched/cuda.h"
}

out=${1:-$root/target/first_frame_cpp}
has_program c++ || skip 'there is no c++ (Debian: g++)'
has_vulkan_headers || skip 'there are no headers of Vulkan 1.3 (Debian: libvulkan-dev)'
include=
for folder in "${CUDA_PATH:-/usr/local/cuda}/include" "$fetched"; do
    [[ -n $include || ! -e $folder/cuda.h ]] || include=$folder
done
[[ -n $include ]] || { fetch && include=$fetched; }
mkdir -p "$out"
source=$root/examples/first_frame_cpp/first_frame.cpp
c++ -std=c++17 -O1 -Wall -Wextra -Werror -isystem "$include" "$source" -o "$out/first_frame" -lvulkan -ldl ||
    die 'FAILED: the compiler refuses the program'
echo "$out/first_frame"
