#!/bin/sh
# Compiles the library with the types of three versions of CUDA: the oldest, the default here, and the newest.
set -eu
cd "$(dirname "$0")/.."
for version in cuda-12000 cuda-12090 cuda-13000; do
    echo "vulkan-cuda with $version"
    cargo check --locked --quiet --package vulkan-cuda --features "$version"
done
