#!/usr/bin/env bash
# Runs an oracle with the Python that has PyTorch; 77 (a skip, counted) where there is none.
set -euo pipefail
python=$1
shift
"$python" -c 'import torch, safetensors.torch' 2>/dev/null || { echo "no PyTorch in $python: skipped"; exit 77; }
exec "$python" "$@"
