#!/usr/bin/env bash
# wgpu-check.sh [OUT]: examples/wgpu on a real GPU, with a table at the end.
#
# Checks every word of buffers, textures and attachments on the GPU, in both directions. Measures plain Vulkan instead of
# wgpu, and wgpu without CUDA, for comparison. Leaves each wait out and expects that to be found. Draws both pictures.
# Writes logs and pictures to OUT (default target/wgpu-check). Builds with cargo. Without cargo, set WGPU_BIN to the program.
set -uo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
# shellcheck source=scripts/checks.sh
source "$(dirname "${BASH_SOURCE[0]}")/checks.sh"
cd "$root" || exit 1

lacking=()
has_program timeout || lacking+=('timeout (Debian: coreutils)')
if [ -z "${WGPU_BIN:-}" ]; then
  has_cargo || lacking+=('cargo (https://rustup.rs), or WGPU_BIN')
  can_link || lacking+=('a C compiler to link with (Debian: gcc libc6-dev)')
elif [ ! -x "$WGPU_BIN" ]; then
  lacking+=("the program that WGPU_BIN names, $WGPU_BIN")
fi
need_nothing_of ${lacking[@]+"${lacking[@]}"}

out=${1:-target/wgpu-check}
mkdir -p "$out"
# Fail if the GPU cannot be shared.
export WAVEFIELD_REQUIRE_GPU=1
# Choose fewer frames for a slower device.
frames=${WGPU_FRAMES:-10000}
figures=' frames, '

if [ -z "${WGPU_BIN:-}" ]; then
  cargo build --release -p wavefield-wgpu-example || exit 1
  WGPU_BIN=$(built wavefield-wgpu-example)
fi

run=(timeout -k 5 300 "$WGPU_BIN")
declare -A option=([buffer]='' [texture]=--texture [attachment]=--attachment)
# Each twice, in turn, because times differ from run to run.
for round in 1 2; do
  check "buffer-$round" "${run[@]}" --check --frames "$frames"
  check "buffer-plain-$round" "${run[@]}" --plain --frames "$frames"
  check "buffer-alone-$round" "${run[@]}" --alone --frames "$frames"
  check "texture-$round" "${run[@]}" --check --texture --frames "$frames"
  check "texture-plain-$round" "${run[@]}" --plain --texture --frames "$frames"
  check "texture-alone-$round" "${run[@]}" --alone --texture --frames "$frames"
done
for kind in buffer texture attachment; do
  check "$kind-to-cuda" "${run[@]}" --check --to-cuda --frames "$frames" ${option[$kind]:+"${option[$kind]}"}
done
for wait in ready free; do
  check "buffer-without-$wait" finds "${run[@]}" --check --frames 1000 --break "$wait"
  check "texture-without-$wait" finds "${run[@]}" --check --texture --frames 1000 --break "$wait"
  for kind in buffer texture attachment; do
    check "$kind-to-cuda-without-$wait" finds "${run[@]}" --check --to-cuda --frames 1000 --break "$wait" ${option[$kind]:+"${option[$kind]}"}
  done
done
check plain-without-ready finds "${run[@]}" --plain --frames 1000 --break ready
check small-slots "${run[@]}" --check --frames 1000 --size 64
check large-slots "${run[@]}" --check --frames 200 --size 100000000
check picture "${run[@]}" --output "$out/field.png"
check texture-picture "${run[@]}" --texture --output "$out/texture.png"

end_with_table
