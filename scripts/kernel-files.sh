#!/usr/bin/env bash
# kernel-files.sh [OUT]: kernel files as people have them, on one GPU, with a table at the end. A part of gpu-check.sh.
#
# WAVEFIELD_BIN is the program. NVRTC is the system's, or that of the Python packages beside CuPy or PyTorch.
set -uo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
# shellcheck source=scripts/checks.sh
source "$(dirname "${BASH_SOURCE[0]}")/checks.sh"
cd "$root" || exit 1
out=$(realpath -m "${1:-target/kernel-files}")
mkdir -p "$out/wrong"
bin=${WAVEFIELD_BIN:-$(built wavefield)}
width=28 figures='^error: |^It is PTX'
libraries=$(python3 -c 'import glob, sys
print(*[file for folder in sys.path for file in glob.glob(folder + "/nvidia/*/lib/libnvrtc.so.*")][:1])' 2>/dev/null)
[ -z "$libraries" ] || export LD_LIBRARY_PATH="${libraries%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

# runs FILE: succeeds if the kernel draws.
runs() { timeout -k 5 60 "$bin" --headless --producer cuda --frames 2 --grid 64x64 --size 64x64 --kernel "$1"; }
# refused FILE TEXT: succeeds if the program exits with 1 and says TEXT.
refused() {
  local text status
  text=$(runs "$1" 2>&1)
  status=$?
  echo "$text"
  [ "$status" = 1 ] && grep -qF "$2" <<<"$text"
}

ptx=tool/handoff/kernels/test/flat.ptx
cu='extern "C" __global__ void k(float4 *v, unsigned cols, unsigned rows, unsigned long long frame, double time) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < cols * rows) v[i] = float4{i % cols / float(cols) - 0.5f, sinf(time), i / cols / float(rows) - 0.5f, 0.5f};
}'
for kind in ptx cu; do
  text=$cu
  [ "$kind" = cu ] || text=$(<"$ptx")
  { printf '\xef\xbb\xbf' && echo "$text"; } >"$out/mark.$kind"
  { printf '// \xe9t\xe9\n' && echo "$text"; } >"$out/latin-1.$kind"
  python3 -c 'import sys; sys.stdout.buffer.write(sys.argv[1].encode("utf-16"))' "$text" >"$out/utf-16.$kind"
  { printf '\xef\xbb\xbf' && sed 's/$/\r/' <<<"$text"; } >"$out/crlf.$kind"
  for name in mark latin-1 utf-16 crlf; do check "$name.$kind" runs "$out/$name.$kind"; done
done
for header in cuda_runtime.h math.h cstdint cuda_fp16.h; do
  printf '#include <%s>\n%s\n' "$header" "$cu" >"$out/$header.cu"
  check "$header" runs "$out/$header.cu"
done
sed 's/^\.version.*/.version 8.7/; s/^\.target.*/.target sm_120a/' "$ptx" >"$out/sm_120a.ptx"
check sm_120a refused "$out/sm_120a.ptx" 'It is PTX 8.7 for sm_120a'
sed 's/^\.version.*/.version 99.0/' "$ptx" >"$out/version.ptx"
check version-99 refused "$out/version.ptx" 'It is PTX 99.0 for sm_50'
printf '\x7fELF\x02\x01' >"$out/kernel.cubin"
check cubin refused "$out/kernel.cubin" 'it is machine code'
# A libcuda that is none comes first, and then a toolkit's, if there is one.
for name in libcuda.so libcuda.so.1; do echo none >"$out/wrong/$name"; done
check wrong-libcuda env LD_LIBRARY_PATH="$out/wrong:${LD_LIBRARY_PATH:-}" bash -c "$(declare -f runs); bin=$bin runs $ptx"
for stubs in "${CUDA_HOME:-/usr/local/cuda}"/lib64/stubs; do
  [ -e "$stubs/libcuda.so" ] || continue
  check stub-libcuda env LD_LIBRARY_PATH="$stubs:${LD_LIBRARY_PATH:-}" bash -c "$(declare -f runs); bin=$bin runs $ptx"
done
end_with_table
