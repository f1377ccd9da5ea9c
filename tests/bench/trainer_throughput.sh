#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: trainer_throughput.sh BUILD_DIRECTORY ROUNDS [PYTHON TORCH_DDP_CNN.PY] -- LAUNCHER...
# Measures images per second of the model cnn, in turn: farandole-train on 2 ranks; two independent trainers at the same time;
# and, if a Python with torch and the script torch_ddp_cnn.py are given, PyTorch's DistributedDataParallel. Global batch 128
# (64 per rank), one thread per rank. Prints a line per round, and medians. "Only waiting" is the rate that the two independent
# trainers would reach if each waited after every training step until the other had ended the step, too. No method of averaging
# can be faster, because the slower of two is slower than their mean.
set -eu
build=$1 rounds=$2; shift 2
torch=()
while [ "$1" != -- ]; do torch+=("$1"); shift; done; shift
train=$build/bin/farandole-train
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
steps=235
# rate JSON_FILE: images per second of the training steps
rate() { sed -n 's/.*"images_per_second":\([0-9.]*\).*/\1/p' "$1" | tail -1; }
# seconds JSON_FILE: of each training step, a line each
seconds() { sed -n 's/.*"training_step":.*"seconds":\([0-9.]*\).*/\1/p' "$1"; }
for round in $(seq "$rounds"); do
  rm -f "$work"/*.json
  "$@" -n 2 "$train" --model cnn --global-batch 128 --threads 1 --max-steps $steps --evaluate-every 0 --quiet --json "$work/ours.json"
  for i in 1 2; do
    "$train" --model cnn --global-batch 64 --threads 1 --max-steps $steps --evaluate-every 0 --quiet --log-steps --json "$work/alone$i.json" &
  done
  wait
  ours=$(rate "$work/ours.json")
  alone=$(awk "BEGIN { print $(rate "$work/alone1.json") + $(rate "$work/alone2.json") }")
  waiting=$(paste <(seconds "$work/alone1.json") <(seconds "$work/alone2.json") |
    awk '{ slower += $1 > $2 ? $1 : $2 } END { print 128 * NR / slower }')
  ddp=0
  [ ${#torch[@]} = 0 ] || ddp=$("${torch[@]}" 2 64 2>/dev/null | sed -n 's/.* \([0-9]*\) images\/s;.*/\1/p')
  echo "round $round: farandole $ours, two independent trainers $alone, only waiting $waiting, torch DDP $ddp images/s"
  echo "$ours $alone $ddp $waiting" >>"$work/rounds"
done
awk '{ o[NR] = $1; a[NR] = $2; d[NR] = $3; ra[NR] = $1 / $2; rw[NR] = $4 / $2; if ($3 > 0) rd[NR] = $1 / $3 }
     function median(v, n,   i, j, t) { for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++) if (v[j] < v[i]) { t = v[i]; v[i] = v[j]; v[j] = t } return v[int((n + 1) / 2)] }
     END { printf "medians: farandole %.0f, two independent trainers %.0f, torch DDP %.0f images/s; ratios %.3f (only waiting: %.3f) and %.3f\n",
                  median(o, NR), median(a, NR), median(d, NR), median(ra, NR), median(rw, NR), median(rd, NR) }' "$work/rounds"
