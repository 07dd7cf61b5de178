#!/usr/bin/env bash
# opengl-check.sh [OUT]: examples/opengl on a real GPU, with a table at the end.
#
# Checks every word of a buffer and of a texture's levels on the GPU, ordered by timelines, by binary semaphores, by the
# CPU, and by CUDA's classic OpenGL functions. Also runs OpenGL alone, for comparison. Leaves a wait out and expects that
# to be found. Draws both pictures and compares them with Vulkan's pictures of the same frame. Writes logs and pictures to OUT
# (default target/opengl-check). Builds with cargo. Without cargo, set OPENGL_BIN to the program and WAVEFIELD_BIN to
# Vulkan's (wavefield). OPENGL_FRAMES is the number of frames (default 10000).
set -uo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
# shellcheck source=scripts/checks.sh
source "$(dirname "${BASH_SOURCE[0]}")/checks.sh"
cd "$root" || exit 1

lacking=()
has_program timeout || lacking+=('timeout (Debian: coreutils)')
has_library libEGL.so.1 || [ -n "${LD_LIBRARY_PATH:-}" ] || lacking+=('EGL (Debian: libegl1)')
for name in OPENGL_BIN WAVEFIELD_BIN; do
  if [ -n "${!name:-}" ] && [ ! -x "${!name}" ]; then
    lacking+=("the program that $name names, ${!name}")
  fi
done
if [ -z "${OPENGL_BIN:-}" ] || [ -z "${WAVEFIELD_BIN:-}" ]; then
  has_cargo || lacking+=('cargo (https://rustup.rs), or OPENGL_BIN and WAVEFIELD_BIN')
  can_link || lacking+=('a C compiler to link with (Debian: gcc libc6-dev)')
fi
need_nothing_of ${lacking[@]+"${lacking[@]}"}

out=${1:-target/opengl-check}
mkdir -p "$out"
# Fail if the GPU cannot be shared.
export WAVEFIELD_REQUIRE_GPU=1
# Choose fewer frames for a slower device.
frames=${OPENGL_FRAMES:-10000}
figures=' frames, |^compared: '

if [ -z "${OPENGL_BIN:-}" ]; then
  cargo build --release -p wavefield-opengl-example || exit 1
  OPENGL_BIN=$(built wavefield-opengl-example)
fi
if [ -z "${WAVEFIELD_BIN:-}" ]; then
  cargo build --release -p wavefield || exit 1
  WAVEFIELD_BIN=$(built wavefield)
fi

# same NAME ARGUMENTS…: OpenGL's picture of frame 120 is the same as Vulkan's. Both programs draw 1024x1024 vertices or
# texels by default.
same() {
  local name=$1 scene=field
  shift
  [[ $* != *--texture* ]] || scene=texture
  "${vulkan[@]}" --headless --scene "$scene" --frames 120 --output "$out/$name-vulkan.png" || return
  "${run[@]}" "$@" --frames 120 --output "$out/$name-opengl.png" --compare "$out/$name-vulkan.png"
}

run=(timeout -k 5 300 "$OPENGL_BIN")
vulkan=(timeout -k 5 300 "$WAVEFIELD_BIN")
# Each twice, in turn, because times differ from run to run.
for round in 1 2; do
  check "timeline-$round" "${run[@]}" --by timeline --frames "$frames"
  check "timeline-one-$round" "${run[@]}" --by timeline --ring 1 --frames "$frames"
  check "binary-$round" "${run[@]}" --by binary --frames "$frames"
  check "cpu-$round" "${run[@]}" --by cpu --frames "$frames"
  check "classic-$round" "${run[@]}" --classic --frames "$frames"
  check "classic-one-$round" "${run[@]}" --classic --ring 1 --frames "$frames"
  check "alone-$round" "${run[@]}" --alone --frames "$frames"
  check "texture-$round" "${run[@]}" --texture --by timeline --frames "$frames"
  check "texture-binary-$round" "${run[@]}" --texture --by binary --frames "$frames"
  check "texture-alone-$round" "${run[@]}" --texture --alone --frames "$frames"
done
check broken finds "${run[@]}" --by timeline --frames 1000 --break ready
check texture-broken finds "${run[@]}" --texture --by timeline --frames 1000 --break ready
check small-slots "${run[@]}" --frames 1000 --size 64
check large-slots "${run[@]}" --frames 200 --size 100000000
check picture same field
check texture-picture same texture --texture

end_with_table
