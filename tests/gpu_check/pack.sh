#!/usr/bin/env bash
# pack.sh BUILD DIR: what `./dev gpu-check --prebuilt DIR` needs on a machine with a GPU, a Python with the same torch, Open MPI and no network: the
# programs of a build for CUDA, the libraries that such a machine may not have, and the checks. Source DIR/here.sh there to use the program by hand.
set -euo pipefail
build=$1 out=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly most_mebibytes=64
if ldd "$build/onebatch" | grep /stand_ins/lib/ > /dev/null; then
  echo "pack.sh: $build has stand-ins for CUDA's libraries and is for the null GPU alone: build it with ./dev build --cuda" >&2
  exit 1
fi
mkdir -p "$out/bin" "$out/lib" "$out/tests" "$out/data"
for program in onebatch onebatch-stacks; do
  strip -o "$out/bin/$program" "$build/$program"
  # Everything but glibc, the compiler's own and what comes with torch.
  ldd "$build/$program" | awk '$3 ~ /^\// {print $3}' |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libutil|libstdc\+\+|libgcc_s|ld-linux[^/]*)\.so|site-packages|/libtorch|/libc10|/libcud|/libnccl' |
    while read -r file; do cp -L "$file" "$out/lib/"; done || true
done
cp -r "$root/configs" "$out/"
cp -r "$root/tests/gpu_check" "$root/tests/oracle" "$out/tests/"
cp -r "$root/data/digits" "$out/data/"
cat > "$out/here.sh" <<'HERE'
# source here.sh: puts the packed programs on PATH, with this machine's torch, CUDA and MPI; a packed library only where the machine has none.
pack=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
site=$(python3 -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))') || return 1
missing=$(mktemp -d)
LD_LIBRARY_PATH=$site/torch/lib$(printf ':%s' "$site"/nvidia/*/lib):$missing
export LD_LIBRARY_PATH PATH="$pack/bin:$PATH" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for _ in 1 2 3; do # what is taken along may need more of it
  for program in "$pack"/bin/*; do
    for file in $(ldd "$program" | awk '/not found/ {print $1}'); do
      cp -n "$pack/lib/$file" "$missing/" 2>/dev/null || echo "here.sh: nothing has $file" >&2
    done
  done
done
HERE
size=$(du -sm "$out" | cut -f1)
[ "$size" -le "$most_mebibytes" ] || { echo "pack.sh: $out has $size MiB, more than $most_mebibytes" >&2; exit 1; }
echo "$out: $size MiB. On a machine with a GPU: ./dev gpu-check --prebuilt $out"
