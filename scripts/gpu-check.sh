#!/usr/bin/env bash
# gpu-check.sh [OUT [ONLY]]: everything that only a real GPU can show, in one run, with a table at the end. ONLY is a
# pattern for the names of the checks to run; after a `!`, of those to leave out.
#
# Runs the program and the tests that need CUDA and Vulkan on one GPU, and writes logs and pictures to OUT (default
# target/gpu-check). Checks that may stop all drawing on the GPU, for every process, come last (docs/reliability.md).
# Builds with cargo. Without cargo, set WAVEFIELD_BIN to the program and TEST_DIR to a folder with the test binaries
# (test-run, test-rounds, …) that `cargo test --no-run` made on another machine, and with first_frame,
# first_frame_cpp and hand_offs.
set -uo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
# shellcheck source=scripts/checks.sh
source "$(dirname "${BASH_SOURCE[0]}")/checks.sh"
cd "$root" || exit 1

# Without any of these, every check would fail with a different error.
lacking=()
[[ -e /dev/nvidiactl ]] || lacking+=('an NVIDIA GPU, /dev/nvidiactl')
has_program timeout || lacking+=('timeout (Debian: coreutils)')
if [ -n "${WAVEFIELD_BIN:-}" ] && [ ! -x "$WAVEFIELD_BIN" ]; then
  lacking+=("the program that WAVEFIELD_BIN names, $WAVEFIELD_BIN")
fi
if [ -z "${WAVEFIELD_BIN:-}" ] || [ -z "${TEST_DIR:-}" ]; then
  has_cargo || lacking+=('cargo (https://rustup.rs), or WAVEFIELD_BIN and TEST_DIR')
  can_link || lacking+=('a C compiler to link with (Debian: gcc libc6-dev)')
fi
need_nothing_of ${lacking[@]+"${lacking[@]}"}

out=${1:-target/gpu-check}
only=${2:-}
mkdir -p "$out"
export WAVEFIELD_REQUIRE_GPU=1
width=28

if [ -z "${WAVEFIELD_BIN:-}" ]; then
  cargo build --release -p wavefield || exit 1
  WAVEFIELD_BIN=$(built wavefield)
fi
export WAVEFIELD_BIN
# The error names every hand-off.
read -ra handoffs <<<"$("$WAVEFIELD_BIN" --handoff none 2>&1 | sed -n 's/.*possible values: \(.*\)\]$/\1/p' | tr -d ,)"
on_a_stream=()
for handoff in "${handoffs[@]}"; do
  [ "$handoff" = inline ] || on_a_stream+=("$handoff")
done
"$WAVEFIELD_BIN" --headless --producer cuda --frames 1 --grid 2x2 --size 16x16 >/dev/null ||
  die 'this check needs a GPU that Vulkan and CUDA share'

# suites PACKAGE NAME[:FILE]...: runs the test NAME, or of its tests those of a file. Built here, or taken from TEST_DIR.
suites() {
  local package=$1 name file
  shift
  for name in "$@"; do
    file=${name#"${name%%:*}"}
    file=${file#:}
    name=${name%%:*}
    if [ -n "${TEST_DIR:-}" ]; then
      check "test-${file:-$name}" timeout -k 5 300 "$TEST_DIR/test-$name" ${file:+"$file::"} --nocapture
    else
      check "test-${file:-$name}" cargo test -p "$package" --test "$name" -- ${file:+"$file::"} --nocapture
    fi
  done
}

# quiet COMMAND…: succeeds if the command does and the validation layer prints nothing.
quiet() {
  local text
  text=$("$@" 2>&1) || { echo "$text"; return 1; }
  echo "$text"
  ! grep -qE 'validation (error|warning):' <<<"$text"
}

# fails CODE TEXT COMMAND…: succeeds if the command exits with CODE, prints TEXT, and does not panic.
fails() {
  local code=$1 part=$2 text status
  shift 2
  text=$("$@" 2>&1)
  status=$?
  echo "exit $status: $text"
  [ "$status" = "$code" ] && grep -q "$part" <<<"$text" && ! grep -q panicked <<<"$text"
}

# None of these takes long; a command that hangs has failed.
run=(timeout -k 5 60 "$WAVEFIELD_BIN" --headless --producer cuda)
check devices "$WAVEFIELD_BIN" devices
check wave-validated quiet "${run[@]}" --frames 1000 --validation --output "$out/wave.png"
check wave "${run[@]}" --frames 2000
for ring in 1 2 8; do check "ring-$ring" "${run[@]}" --frames 2000 --ring "$ring"; done
for handoff in "${handoffs[@]:1}"; do
  check "handoff-$handoff" quiet "${run[@]}" --frames 1000 --handoff "$handoff"
  check "handoff-$handoff-validated" quiet "${run[@]}" --frames 200 --validation --handoff "$handoff"
done
check batch quiet "${run[@]}" --frames 1000 --ring 8 --batch 4
check compute "$WAVEFIELD_BIN" --headless --producer compute --frames 2000
check texture-validated quiet "${run[@]}" --scene texture --frames 500 --validation --output "$out/texture.png"
for ring in 1 8; do check "texture-ring-$ring" "${run[@]}" --scene texture --frames 1000 --ring "$ring"; done
for handoff in "${on_a_stream[@]:1}"; do
  check "texture-$handoff-validated" quiet "${run[@]}" --scene texture --frames 200 --validation --handoff "$handoff"
done
check texture-inline fails 2 'fields only' "${run[@]}" --scene texture --frames 1 --handoff inline
check largest "${run[@]}" --frames 3 --ring 1 --grid 16379x16379
check too-large fails 1 'largest square --grid' "${run[@]}" --frames 1 --grid 16384x16384
check odd-grid-validated quiet "${run[@]}" --frames 50 --validation --grid 1001x77 --ring 5
check user-kernel quiet "${run[@]}" --frames 20 --validation --kernel tool/handoff/kernels/test/flat.ptx
check user-parameters quiet "${run[@]}" --frames 20 --validation --kernel tool/handoff/kernels/test/level.ptx --param height=0.5
# Kernels that are refused before the launch, and kernels that take smaller blocks.
check other-parameters fails 1 'found (.u64)' "${run[@]}" --frames 1 --kernel tool/handoff/kernels/clock.ptx
check without-consent fails 2 'risk-the-gpu' \
  "${run[@]}" --frames 1 --handoff inline --kernel tool/handoff/kernels/test/flat.ptx
sed 's/^\.maxntid 64/.reqntid 96/' tool/handoff/kernels/test/bounded.ptx >"$out/required.ptx"
# blocks HANDOFF
blocks() {
  local kernel
  for kernel in tool/handoff/kernels/test/bounded.ptx "$out/required.ptx"; do
    check "$(basename "$kernel" .ptx)-$1" quiet timeout -k 5 120 "$WAVEFIELD_BIN" verify --producer cuda \
      --frames 200 --grid 512x512 --handoff "$1" --risk-the-gpu --kernel "$kernel"
  done
}
for handoff in "${on_a_stream[@]}"; do blocks "$handoff"; done
# Checks every vertex of every frame. Later, a part of the hand-off is left out, which must be found.
verify=(timeout -k 5 120 "$WAVEFIELD_BIN" verify)
for handoff in "${handoffs[@]}"; do
  check "verify-$handoff" quiet "${verify[@]}" --producer cuda --frames 1000 --grid 512x512 --handoff "$handoff"
  check "verify-parameters-$handoff" quiet "${verify[@]}" --producer cuda --frames 300 --grid 512x512 \
    --handoff "$handoff" --param amplitude=2 --param frequency=4
done
check verify-batch quiet "${verify[@]}" --producer cuda --frames 1000 --grid 512x512 --ring 8 --batch 8
check kernel-files scripts/kernel-files.sh "$out/kernel-files"
check verify-validated quiet "${verify[@]}" --producer cuda --frames 300 --validation --json "$out/verify.json"
check verify-user-kernel quiet "${verify[@]}" --producer cuda --frames 300 --kernel tool/handoff/kernels/test/flat.ptx
check verify-compute quiet "${verify[@]}" --producer compute --frames 1000 --grid 512x512
check verify-host quiet "${verify[@]}" --producer host --frames 300 --grid 512x512
for handoff in "${on_a_stream[@]}"; do
  check "verify-texture-$handoff" quiet \
    "${verify[@]}" --scene texture --producer cuda --frames 1000 --grid 512x512 --handoff "$handoff"
done
check verify-texture-batch quiet \
  "${verify[@]}" --scene texture --producer cuda --frames 1000 --grid 512x512 --ring 8 --batch 8
check verify-texture-validated quiet \
  "${verify[@]}" --scene texture --producer cuda --frames 300 --validation --json "$out/verify-texture.json"
for part in ready free barrier; do
  check "verify-texture-break-$part" "${verify[@]}" --scene texture --producer cuda --frames 500 --ring 1 \
    --break "$part" --json "$out/verify-texture-break-$part.json"
  check "verify-break-$part" "${verify[@]}" --producer cuda --frames 500 --ring 1 --break "$part" \
    --json "$out/verify-break-$part.json"
done
# Another process has nearly all of the memory. (On a smaller GPU the first process gets the same error.)
no_room() {
  "${run[@]}" --frames 1000 --ring 32 --grid 16379x16379 &
  local hog=$! status
  sleep 15 # until it has its memory, of which nothing tells
  fails 1 'bytes are free' "${run[@]}" --frames 1 --ring 32 --grid 16379x16379
  status=$?
  kill "$hog" 2>/dev/null
  wait "$hog"
  return "$status"
}
check no-room no_room
check hidden-device fails 1 CUDA_VISIBLE_DEVICES env CUDA_VISIBLE_DEVICES= "${run[@]}" --frames 1
check bench-latency "$WAVEFIELD_BIN" bench latency --json "$out/latency.json"
# A frame by hand, in Rust and in C++.
if [ -n "${TEST_DIR:-}" ]; then
  rust=("$TEST_DIR/first_frame") cpp=("$TEST_DIR/first_frame_cpp")
else
  rust=(cargo run --quiet --example first_frame --) cpp=("$(scripts/first-frame-cpp.sh "$out")")
fi
for stage in 1 2 3 4 5; do
  check "first-frame-$stage" "${rust[@]}" --stage "$stage" --output "$out/first_frame.png"
  check "first-frame-cpp-$stage" "${cpp[@]}" --stage "$stage" --output "$out/first_frame_cpp.png"
done
# Six ways to hand over. Without a wait, the program fails unless it finds wrong frames.
if [ -n "${TEST_DIR:-}" ]; then hand_offs=("$TEST_DIR/hand_offs"); else hand_offs=(cargo run --quiet --release --example hand_offs --); fi
check hand-offs "${hand_offs[@]}"
for way in 1 2 3 4 5 6; do
  for wait in ready free; do check "hand-offs-$way-$wait" "${hand_offs[@]}" "$way" --without "$wait"; done
done
suites vulkan-cuda library:{examples,cuda_memory,shared_ring,ring_to_cuda}
suites wavefield-gpu gpu:{sound,handles}
suites wavefield-run run:{gallery,producers,checker,semaphores} rounds allocations
suites wavefield program:{errors,pictures,parameters,switching,recording,verify,formats} serving:imports

# Faulty kernels on a stream: each makes CUDA unusable in its own process only.
for handoff in "${on_a_stream[@]}"; do
  check "trap-$handoff" fails 1 'trap.ptx.*CUDA_ERROR' \
    "${run[@]}" --timeout 2 --frames 20 --handoff "$handoff" --kernel tool/handoff/kernels/test/trap.ptx
  check "endless-$handoff" fails 1 'no frame was finished for 2 s' \
    "${run[@]}" --timeout 2 --frames 20 --handoff "$handoff" --kernel tool/handoff/kernels/test/spin.ptx
done
# Some kernels of these tests trap, too. (reload needs an X server that shows what the GPU draws.)
suites wavefield serving:{serve,serve_arrays,serve_renders} window:reload
# The user's kernels inside Vulkan's command buffer.
blocks inline

# These are last, because after either of them nothing draws on an H200 (driver 580) any more: first a fault in Vulkan's
# command buffer, which needs a GPU that still draws; then illegal addresses, for which CUDA returns the error.
check late-inline fails 1 'error: ' \
  "${run[@]}" --timeout 10 --frames 1000 --handoff inline --risk-the-gpu --kernel tool/handoff/kernels/test/late.ptx
for handoff in "${on_a_stream[@]}"; do
  check "illegal-$handoff" fails 1 'illegal.ptx.*CUDA_ERROR_ILLEGAL_ADDRESS' \
    "${run[@]}" --timeout 2 --frames 20 --handoff "$handoff" --kernel tool/handoff/kernels/test/illegal.ptx
done

head -n 3 "$out"/{wave,ring-1,ring-2,ring-8,batch,handoff-*[a-z],compute,largest}.log
grep -h 'worst error\|descriptors' "$out"/test-*.log
grep -H '^checked\|^stale\|^overwritten\|^missing\|^torn\|^slots\|^verdict' "$out"/verify-*.log
grep -h '^--break' "$out/test-verify.log"
end_with_table
