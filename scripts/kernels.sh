#!/usr/bin/env bash
# Makes and checks the PTX of the kernels. Run it without arguments to see its usage.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
    cat >&2 <<'END'
usage: scripts/kernels.sh COMMAND

  build            remake every .ptx from the .cu beside it
  check            both of the checks below
  check source     every .ptx is what the .cu beside it gives
  check assemble   ptxas accepts the PTX for every GPU architecture
  tools            fetch ptxas with pip into target/tools
  clang            print which clang is taken: $CLANG, or clang-14, or the newest from 14 on

`check source` needs clang 14, because another release names labels differently. ptxas is $PTXAS, or the one that `tools`
fetched, or the one on PATH.

exit status: 0 fine, 1 failed, 2 wrong usage, 3 a tool is missing
END
    exit 2
}

# The GPU architectures that ptxas 12.9 supports.
archs=(50 52 53 60 61 62 70 72 75 80 86 87 89 90 100 101 103 120 121)
# The kernels that are compiled from CUDA C++.
sources=(wave ripples ocean pond swarm frame_stamp texture surfaces range swell squares)
# The wave is the demo's, the surfaces, the swell and the squares are examples', the range is the Python package's, and all others are the tool's.
folder=tool/handoff/kernels
source_of() {
    case $1 in
        wave) echo kernels/wave.cu ;;
        surfaces) echo crates/vulkan-cuda/examples/formats/surfaces.cu ;;
        swell) echo examples/bevy/src/swell.cu ;;
        squares) echo examples/eframe/src/squares.cu ;;
        range) echo python/src/wavefield/_look/range.cu ;;
        *) echo "$folder/$1.cu" ;;
    esac
}
ptx_of() { local source; source=$(source_of "$1") && echo "${source%.cu}.ptx"; }
# The test kernels are a few lines each, so one old and one new architecture are enough.
test_archs=(50 90)

# With the hashes of its wheels.
ptxas_package='nvidia-cuda-nvcc-cu12==12.9.86 --hash=sha256:44e1eca4d08926193a558d2434b1bf83d57b4d5743e0c431c0c83d51da1df62b \
    --hash=sha256:5d6a0d32fdc7ea39917c20065614ae93add6f577d840233237ff08e9a38f58f0 \
    --hash=sha256:8ed7f0b17dea662755395be029376db3b94fed5cbb17c2d35cc866c5b1b84099'
fetched=target/tools/ptxas

failed() { echo "kernels.sh: $1" >&2; exit 1; }
missing() { echo "kernels.sh: $1" >&2; exit 3; }

scratch() {
    tmp=$(mktemp -d)
    trap 'rm -rf "$tmp"' EXIT
}

# Sets clang to a compiler, and release to its release.
find_clang() {
    local newest
    newest=$(compgen -c clang- | grep -E '^clang-[0-9]+$' | sort --version-sort --reverse || true)
    for clang in ${CLANG:-clang-14 $newest clang}; do
        release=$("$clang" -dumpversion 2>/dev/null | cut -d. -f1) && ((release >= 14)) && return
    done
    missing "no ${CLANG:-clang} of release 14 or newer. Install one (Debian and Ubuntu: the package clang), or set CLANG."
}

# compile NAME OUT: compiles NAME.cu to PTX.
compile() {
    {
        echo "// Made by scripts/kernels.sh from $1.cu. Do not edit."
        # Clang drops comments, but these lines declare the kernel's parameters.
        sed -n 's|^[[:space:]]*//!PARAM[[:space:]]|//!PARAM |p' "$(source_of "$1")"
        # The oldest target that this project supports; a driver compiles it for
        # any newer GPU. Without NVIDIA's headers (-nocudainc) and device library
        # (-nocudalib), the result does not depend on what is installed.
        "$clang" -x cuda --cuda-device-only -nocudainc -nocudalib \
            --cuda-gpu-arch=sm_50 -Xclang -target-feature -Xclang +ptx60 \
            -include $folder/clang_cuda.h -Wall -Werror -O3 -S "$(source_of "$1")" -o -
    } >"$2"
}

build() {
    scratch
    find_clang
    local name
    for name in "${sources[@]}"; do
        # Through a file, so that the old PTX survives a compiler error.
        compile "$name" "$tmp/$name.ptx"
        cat "$tmp/$name.ptx" >"$(ptx_of "$name")"
        echo "made $(ptx_of "$name") with clang $release"
    done
}

check_source() {
    scratch
    find_clang
    ((release == 14)) || missing "skipped: $clang is of release $release, and the PTX is compared with what clang 14 makes"
    local name
    for name in "${sources[@]}"; do
        compile "$name" "$tmp/$name.ptx"
        diff -u "$(ptx_of "$name")" "$tmp/$name.ptx" ||
            failed "$(ptx_of "$name") is not what $name.cu gives. Run scripts/kernels.sh build."
        echo "$(ptx_of "$name") is what $name.cu gives"
    done
}

find_ptxas() {
    if [[ -n ${PTXAS:-} ]]; then
        ptxas=$PTXAS
    elif [[ -x $fetched ]]; then
        ptxas=$fetched
    else
        ptxas=ptxas
    fi
    command -v "$ptxas" >/dev/null ||
        missing "no $ptxas. Run scripts/kernels.sh tools, or set PTXAS to the one of a CUDA toolkit."
}

knows() { grep -q "'sm_$1'" <<<"$help"; }

# assemble FILE ARCH...: ptxas must accept the file for each architecture that it supports.
assemble() {
    local file=$1 arch done=()
    shift
    for arch; do
        knows "$arch" || continue
        "$ptxas" -arch="sm_$arch" "$file" -o "$tmp/out.cubin" ||
            failed "ptxas refuses $file for sm_$arch"
        done+=("$arch")
    done
    echo "$file: sm ${done[*]-}"
}

check_assemble() {
    find_ptxas
    scratch
    help=$("$ptxas" --help)

    local file
    for file in "${sources[@]}"; do
        assemble "$(ptx_of "$file")" "${archs[@]}"
    done
    for file in $folder/clock.ptx $folder/test/{flat,colour,level,bounded,trap,illegal,spin,answer,late}.ptx \
        crates/vulkan-cuda/examples/fill/fill.ptx examples/{first_frame,hand_offs}.ptx; do
        assemble "$file" "${test_archs[@]}"
    done

    # If the broken kernel loaded, it would test nothing.
    if "$ptxas" -arch=sm_90 $folder/test/broken.ptx -o "$tmp/out.cubin" 2>"$tmp/log"; then
        failed "ptxas accepts $folder/test/broken.ptx"
    fi
    grep -q 'syntax error' "$tmp/log" ||
        failed "$folder/test/broken.ptx is refused for another reason: $(cat "$tmp/log")"
    echo "$folder/test/broken.ptx: refused, as it should be"

    # An older or newer ptxas than 12.9 lacks some architectures. The check then does not pass.
    local arch unknown=()
    for arch in "${archs[@]}"; do
        knows "$arch" || unknown+=("$arch")
    done
    ((${#unknown[@]} == 0)) ||
        missing "this ptxas does not know sm ${unknown[*]}. Run scripts/kernels.sh tools for one that does."
}

# Runs both checks, even if the first one fails. A failure counts more than a missing tool.
check_all() {
    local check status worst=0
    for check in source assemble; do
        status=0
        bash scripts/kernels.sh check "$check" || status=$?
        if ((status == 1 || worst == 0)); then worst=$status; fi
    done
    exit "$worst"
}

tools() {
    if [[ -x $fetched ]] && "$fetched" --version >/dev/null; then
        echo "$fetched is there"
        return
    fi
    python3 -m pip --version >/dev/null 2>&1 ||
        missing 'no pip. Install Python 3 with pip (Debian and Ubuntu: the package python3-pip).'
    scratch
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$tmp" --require-hashes -r <(echo "$ptxas_package")
    python3 -m zipfile -e "$tmp"/*.whl "$tmp/wheel"
    mkdir -p "$(dirname "$fetched")"
    # The wheel's zip does not keep the permission to execute. The rename comes last, so
    # that a half-copied ptxas is never run.
    install -m 755 "$tmp/wheel/nvidia/cuda_nvcc/bin/ptxas" "$fetched.new"
    mv "$fetched.new" "$fetched"
    "$fetched" --version | tail -n 2
}

case "$*" in
    build) build ;;
    check) check_all ;;
    'check source') check_source ;;
    'check assemble') check_assemble ;;
    tools) tools ;;
    clang) find_clang && echo "$clang" ;;
    *) usage ;;
esac
