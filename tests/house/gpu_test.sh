#!/usr/bin/env bash
# On a machine with a GPU: training and verification on it, and two ranks over NCCL where there are two. Else a skip (77), or a failure under ONEBATCH_REQUIRE_GPU=1.
set -euo pipefail
program=$1
gpus=$("$program" info | sed -n 's/^cuda devices: \([0-9]*\).*/\1/p')
if [ "${gpus:-0}" = 0 ]; then
  echo "no GPU here: skipped"
  [ "${ONEBATCH_REQUIRE_GPU:-0}" = 1 ] && exit 1
  exit 77
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$program" verify configs/mlp.toml --set run.device=cuda --set model.dropout=0.1
# Strict: masks that the card cannot draw would be a fallback.
"$program" train configs/mlp.toml --strict --set run.device=cuda --set model.dropout=0.1 --set run.output_dir="$out"
# A replay has the bits of the kernels that it stands for.
for graphs in true false; do
  "$program" train configs/mlp.toml --strict --set run.device=cuda --set run.deterministic=true --set model.dropout=0.1 --set run.epochs=3 --set batch.micro_batch_size=20 --set run.cuda_graphs=$graphs --set run.output_dir="$out" --set run.name=graphs-$graphs
done
cmp "$out"/graphs-true/checkpoints/step-*/model.safetensors "$out"/graphs-false/checkpoints/step-*/model.safetensors
[ "$gpus" -lt 2 ] || mpirun -np 2 --bind-to none "$program" verify configs/mlp.toml --set run.device=cuda --set comm.backend=nccl --set model.dropout=0.1
