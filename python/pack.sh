#!/usr/bin/env bash
# pack.sh PYTHON BUILD FOLDER: packs the program of a build and the package into one wheel, and prints its path. PYTHON has scikit-build-core.
set -euo pipefail
python=$1 build=$(cd "$2" && pwd) folder=$3
cuda=$(sed -n 's/^ONEBATCH_CUDA:BOOL=//p' "$build/CMakeCache.txt")
# The name says for what it was built: 0 for the CPU alone, 1 for CUDA too.
tag=0cpu
[ "$cuda" = ON ] && tag=1cuda
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$work" -C "cmake.define.ONEBATCH_BUILD=$build" \
  -C "wheel.build-tag=$tag" "$(dirname "${BASH_SOURCE[0]}")/.." >&2
name=$(basename "$work"/onebatch-*.whl)
mv "$work/$name" "$folder/"
echo "$folder/$name"
