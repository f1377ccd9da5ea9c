#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# farandole-train on devices: the losses of a CPU, what it says of the choice, and what it refuses.
# usage: train_on_double.sh FARANDOLE_TRAIN LOCAL_JOB (the double's environment is set)
set -euo pipefail
train=$1 local_job=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail() { echo "FAILED: $*"; cat "$out"/*.txt; exit 1; }

options=(--synthetic --epochs 1 --global-batch 32 --evaluate-every 1 --threads 1)
# losses FILE: the mean losses and test losses of a run
losses() {
  python3 -c '
import json, sys
for line in open(sys.argv[1]):
    report = json.loads(line)
    print(report["loss"], report["test_loss"])' "$1"
}
compare() {
  python3 -c '
import sys
one, other = ([float(word) for word in open(name).read().split()] for name in sys.argv[1:])
assert len(one) == len(other) > 0, (one, other)
assert all(abs(a - b) <= 1e-4 * abs(a) for a, b in zip(one, other)), (one, other)' "$1" "$2"
}

for model in mlp cnn_bn gpt resnet18; do
  case $model in
    mlp) more=(--samples 192) ;;
    cnn_bn) more=(--data images --image-size 8 --samples 64) ;;
    # On images above 64x64 the first pooling is padded. The double takes seconds for each sample.
    resnet18) more=(--data images --image-size 72 --samples 4) ;;
    gpt) more=(--data text --samples 64 --text-length 8 --units 8 --heads 2 --blocks 1) ;;
  esac
  "$train" --model $model "${options[@]}" "${more[@]}" --replicas 2 --json "$out/cpu.json" >"$out/cpu.txt" || fail "$model, CPU"
  "$train" --model $model "${options[@]}" "${more[@]}" --replicas 2 --device cuda --json "$out/cuda.json" >"$out/cuda.txt" ||
    fail "$model, CUDA"
  grep -q 'computing on CUDA device 0 (' "$out/cuda.txt" || fail 'the device is not named'
  losses "$out/cpu.json" >"$out/cpu.txt"
  losses "$out/cuda.json" >"$out/cuda.txt"
  compare "$out/cpu.txt" "$out/cuda.txt" || fail "$model: other losses"
  rm -f "$out"/*
done

options+=(--samples 192)
# A process for each device, and a device that is chosen.
"$local_job" -n 2 "$train" --model mlp "${options[@]}" --device auto >"$out/job.txt" || fail 'two processes'
grep -q 'computing on CUDA device' "$out/job.txt" || fail 'auto has not chosen the devices'
FARANDOLE_CUDA=off "$train" --model mlp "${options[@]}" --device auto >"$out/off.txt" || fail 'auto without devices'
grep -q 'computing on the CPU' "$out/off.txt" || fail 'auto has not chosen the CPU'

# refuses PATTERN COMMAND…: the command fails, and says why.
refuses() {
  local pattern=$1
  shift
  if "$@" >"$out/refused.txt" 2>&1; then fail "not refused: $*"; fi
  grep -q -- "$pattern" "$out/refused.txt" || fail "no '$pattern' from $*"
}
refuses 'FARANDOLE_CUDA=off' env FARANDOLE_CUDA=off "$train" --model mlp "${options[@]}" --device cuda
refuses 'FARANDOLE_CUBLAS_LIBRARY' env FARANDOLE_CUBLAS_LIBRARY=/no/file "$train" --model mlp "${options[@]}" --device cuda
refuses 'is no cuBLAS of CUDA 12' env FARANDOLE_CUBLAS_LIBRARY="$FARANDOLE_CUDA_LIBRARY" "$train" --model mlp "${options[@]}" --device cuda
refuses 'has no memory for' env FAKE_DEVICE_MEMORY=8M "$train" --model mlp "${options[@]}" --device cuda
refuses "choose\|'gpu'" "$train" --model mlp "${options[@]}" --device gpu
echo 'all is well'
