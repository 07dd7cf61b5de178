#!/usr/bin/env bash
# stand-in.sh PROGRAM [ARGUMENT...]: runs a program without a GPU. The stand-in (tests/stand_in) plays CUDA's driver, and lavapipe,
# a software device, draws. At the end it prints which rules the program broke, and what it did not give back. For example:
#
#     scripts/stand-in.sh cargo run -- --output wave.png
#     scripts/stand-in.sh cargo run --example hand_offs
#
# The stand-in cannot run PTX. It knows kernels by their names: tests/stand_in/src/lib.rs lists them, says how to add one, and has
# the variables that make a call fail. STAND_IN_LIBRARY takes a stand-in that is built already.
#
# exit status: the program's; 1 if that is 0 and a rule is broken or something is left; 2 wrong usage
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

(($# > 0)) || { sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
library=${STAND_IN_LIBRARY:-}
if [[ -z $library ]]; then
    need_rust
    is_built debug/libwavefield_stand_in.so || say 'building the stand-in'
    cargo build --quiet --locked --manifest-path "$root/Cargo.toml" --package wavefield-stand-in
    library=${CARGO_TARGET_DIR:-$root/target}/debug/libwavefield_stand_in.so
fi
library=$(realpath "$library")

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for name in libcuda.so libcuda.so.1 libnvrtc.so.12; do ln -s "$library" "$folder/$name"; done
# What CUDA needs and lavapipe lacks.
export STAND_IN_PRETEND=${STAND_IN_PRETEND:-VK_KHR_external_semaphore_fd}
extensions=
for name in ${STAND_IN_PRETEND//,/ }; do
    extensions+="${extensions:+, }{\"name\": \"$name\", \"spec_version\": \"1\", \"entrypoints\": []}"
done
cat >"$folder/stand_in.json" <<END
{"file_format_version": "1.2.0", "layer": {
    "name": "VK_LAYER_WAVEFIELD_stand_in", "type": "GLOBAL", "library_path": "$library", "api_version": "1.3.0",
    "implementation_version": "1", "description": "A GPU that fails on request", "device_extensions": [$extensions]}}
END
# The stand-in's kernels write only to the memory of a software device.
if [[ -z ${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-} ]]; then
    driver=$(vulkan_files 'icd.d/lvp_icd*.json' | head -n 1)
    [[ -n $driver ]] || die 'there is no lavapipe (Debian, Ubuntu: mesa-vulkan-drivers)'
    export VK_DRIVER_FILES=$driver
fi
export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export VK_ADD_LAYER_PATH=$folder${VK_ADD_LAYER_PATH:+:$VK_ADD_LAYER_PATH}
export VK_INSTANCE_LAYERS=${VK_INSTANCE_LAYERS:+$VK_INSTANCE_LAYERS:}VK_LAYER_WAVEFIELD_stand_in
# Mesa's own layer does not survive all failures.
export NODEVICE_SELECT=1 STAND_IN_REPORT=$folder/report

status=0
"$@" || status=$?

if ! grep -qx end "$folder/report" 2>/dev/null; then
    say 'no report: the program called neither CUDA nor Vulkan, or it was killed'
    exit "$((status == 0 ? 1 : status))"
fi
count() { sed -n "s/^call $1 //p" "$folder/report" | grep . || echo 0; }
say "$(count cuLaunchKernel) kernels and $(count vkQueueSubmit2) calls of vkQueueSubmit2"
found=$(sed -n 's/^offence /broken rule: /p; s/^left \(.*\) \(.*\)$/not given back: \2 of \1/p
    s/^descriptor /not closed: descriptor /p' "$folder/report")
if [[ -z $found ]]; then
    say 'no rule was broken, and everything was given back'
else
    while read -r line; do say "$line"; done <<<"$found"
    ((status > 0)) || status=1
fi
exit "$status"
