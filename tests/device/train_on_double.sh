#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# farandole-train on devices: the losses of a CPU, and what it refuses.
# usage: train_on_double.sh FARANDOLE_TRAIN (the double's environment is set)
set -euo pipefail
train=$1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail() { echo "FAILED: $*"; cat "$out"/*.txt; exit 1; }

# Batches of --synthetic are drawn on the device, or on the CPU, with the same bits.
options=(--synthetic --epochs 1 --global-batch 32 --evaluate-every 1 --threads 1)
# losses FILE: the mean losses and test losses of a run
losses() {
  python3 -c '
import json, sys
for line in open(sys.argv[1]):
    report = json.loads(line)
    print(report["loss"], report["test_loss"])' "$1"
}
# compare FILE FILE [ERROR]
compare() {
  python3 -c '
import sys
one, other = ([float(word) for word in open(name).read().split()] for name in sys.argv[1:3])
error = float(sys.argv[3])
assert len(one) == len(other) > 0, (one, other)
assert all(abs(a - b) <= error * abs(a) for a, b in zip(one, other)), (one, other)' "$1" "$2" "${3:-1e-4}"
}

for model in mlp cnn_bn gpt resnet18; do
  case $model in
    mlp) more=(--samples 192) ;;
    cnn_bn) more=(--data images --image-size 8 --samples 64) ;;
    # On images above 64x64 the first pooling is padded. The double takes seconds for each sample.
    resnet18) more=(--data images --image-size 72 --samples 4) ;;
    gpt) more=(--data text --samples 64 --text-length 8 --units 16 --heads 2 --blocks 1) ;;
  esac
  "$train" --model $model "${options[@]}" "${more[@]}" --replicas 2 --json "$out/cpu.json" >"$out/cpu.txt" || fail "$model, CPU"
  "$train" --model $model "${options[@]}" "${more[@]}" --replicas 2 --device cuda --json "$out/cuda.json" >"$out/cuda.txt" ||
    fail "$model, CUDA"
  attention='$'
  [ $model != gpt ] || attention=', attention by cuBLAS (cuDNN computes'
  grep -q "computing on 2 CUDA devices (fake device 0, fake device 1), convolutions by cuDNN 9.19.0$attention" "$out/cuda.txt" ||
    fail 'devices or cuDNN are not named'
  grep -q 'on the device, per training step (median of [0-9]*): .* waiting for communication .* measured peak' "$out/cuda.txt" ||
    fail 'the times of the device are missing'
  grep -q 'on the device' "$out/cpu.txt" && fail 'a CPU has times of a device'
  grep -q '"device_times":{"steps":' "$out/cuda.json" || fail 'the times of the device are missing in JSON'
  losses "$out/cpu.json" >"$out/cpu.txt"
  losses "$out/cuda.json" >"$out/cuda.txt"
  compare "$out/cpu.txt" "$out/cuda.txt" || fail "$model: other losses"
  # The double takes half a minute for resnet18; trainer_device_test trains a smaller residual net in halves.
  halves=(bf16 f16)
  [ $model != resnet18 ] || halves=()
  for half in "${halves[@]}"; do
    "$train" --model $model "${options[@]}" "${more[@]}" --replicas 2 --device cuda --precision $half --json "$out/$half.json" \
      >"$out/$half.txt" || fail "$model, $half"
    grep -q "parameters in f32, .*, products and convolutions in $half" "$out/$half.txt" || fail "$half is not named"
    if [ $model = gpt ]; then
      grep -q 'attention by cuDNN 9.19.0' "$out/$half.txt" || fail "attention in $half is not named"
      grep -q 'attention by cuBLAS' "$out/$half.txt" && fail "attention in $half was refused"
    else
      grep -q 'attention' "$out/$half.txt" && fail "$model has no attention, but the output names it"
    fi
    losses "$out/$half.json" >"$out/$half.losses.txt"
    compare "$out/cpu.txt" "$out/$half.losses.txt" 0.02 || fail "$model: other losses in $half"
  done
  if [ $model != resnet18 ]; then
    grep -q 'loss scale 65536, 0 training steps skipped' "$out/f16.txt" || fail 'no loss scale'
  fi
  rm -f "$out"/*
done

# The batches above are drawn on the device. Augmented batches are drawn on the host, and copied.
augmented=(--model cnn_bn --replicas 2 --data images --image-size 8 --samples 64 --augment-flip 0.5 "${options[@]}")
"$train" "${augmented[@]}" --json "$out/cpu.json" >"$out/cpu.txt" || fail 'augmented, CPU'
"$train" "${augmented[@]}" --device cuda --json "$out/cuda.json" >"$out/cuda.txt" || fail 'augmented, CUDA'
losses "$out/cpu.json" >"$out/cpu.txt"
losses "$out/cuda.json" >"$out/cuda.txt"
compare "$out/cpu.txt" "$out/cuda.txt" || fail 'augmented: other losses'
rm -f "$out"/*

# Convolutions without cuDNN, and with one that the loader finds. The first libcudnn.so.9 is no library.
cnn=(--model cnn --data images --image-size 8 --samples 64 --device cuda)
mkdir "$out/none" "$out/one"
: >"$out/none/libcudnn.so.9"
ln -s "$FARANDOLE_CUDNN_LIBRARY" "$out/one/libcudnn.so.9"
double=$(dirname "$FARANDOLE_CUDNN_LIBRARY")
# convolutions_by PATTERN ASSIGNMENT…: a training computes convolutions by this library. -u: without the setting
convolutions_by() {
  local pattern=$1
  shift
  env "$@" "$train" "${cnn[@]}" "${options[@]}" --json "$out/cnn.json" >"$out/cnn.txt" || fail "convolutions by $pattern"
  grep -q -- "convolutions by $pattern" "$out/cnn.txt" || fail "no convolutions by $pattern"
  losses "$out/cnn.json" >"$out/losses.txt"
  rm "$out/cnn.json"
  [ -e "$out/first.txt" ] || cp "$out/losses.txt" "$out/first.txt"
  compare "$out/losses.txt" "$out/first.txt" || fail "other losses with convolutions by $pattern"
}
unset_setting=(-u FARANDOLE_CUDNN_LIBRARY)
convolutions_by 'cuDNN 9.19.0' "${unset_setting[@]}" LD_LIBRARY_PATH="$out/one:$double"
convolutions_by 'cuBLAS (FARANDOLE_CUDNN_LIBRARY=off)' FARANDOLE_CUDNN_LIBRARY=off
convolutions_by 'cuBLAS (no cuDNN: .*libcudnn.so.9: .*install cuDNN 9' "${unset_setting[@]}" LD_LIBRARY_PATH="$out/none"
convolutions_by 'cuBLAS (no cuDNN: cuDNN 8.9.7 (libcudnn.so.9) is too old: 9.0.0' "${unset_setting[@]}" \
  LD_LIBRARY_PATH="$out/one:$double" FAKE_CUDNN_VERSION=8907
"$train" "${cnn[@]}" "${options[@]}" --precision f64 >"$out/cnn.txt" || fail 'f64'
grep -q 'convolutions by cuBLAS (cuDNN is not used in f64)' "$out/cnn.txt" || fail 'the library for f64 is not named'
rm -r "${out:?}"/*

# Attention without cuDNN, and where cuDNN has no fused form. Each has nearly the losses of a CPU.
gpt=(--model gpt --data text --samples 64 --text-length 8 --blocks 1 "${options[@]}")
# attention_by PATTERN SIZES DEVICE_OPTIONS ASSIGNMENT…: a training in bf16 computes attention by this library.
attention_by() {
  local pattern=$1 sizes=$2 more=$3
  shift 3
  # shellcheck disable=SC2086
  "$train" "${gpt[@]}" $sizes --json "$out/cpu.json" >"$out/cpu.txt" || fail "$pattern, CPU"
  # shellcheck disable=SC2086
  env "$@" "$train" "${gpt[@]}" $sizes $more --device cuda --precision bf16 --json "$out/gpt.json" >"$out/gpt.txt" || fail "attention by $pattern"
  grep -q -- "attention by $pattern" "$out/gpt.txt" || fail "no attention by $pattern"
  losses "$out/cpu.json" >"$out/cpu.losses"
  losses "$out/gpt.json" >"$out/gpt.losses"
  compare "$out/cpu.losses" "$out/gpt.losses" 0.02 || fail "other losses with attention by $pattern"
  rm "$out"/*
}
attention_by 'cuDNN 9.19.0' '--units 16 --heads 2' --graph FAKE_CUDNN_WORKSPACE=0
attention_by 'cuDNN 9.19.0' '--units 16 --heads 2' '--deterministic --graph'
attention_by 'cuBLAS (not for 4 samples of 8 positions with 2 heads of 12 units, causal: heads need a multiple of 8 units)' '--units 24 --heads 2' ''
attention_by 'cuBLAS (not for 4 samples of 8 positions with 1 heads of 256 units, causal: with gradients, heads have up to 128 units on' \
  '--units 256 --heads 1' '' FAKE_DEVICE_CAPABILITY=80
attention_by 'cuDNN 9.19.0' '--units 256 --heads 1' '' FAKE_DEVICE_CAPABILITY=90
attention_by 'cuBLAS (cuDNN 9.15.1 is too old for attention: 9.16.0 or newer is needed)' '--units 16 --heads 2' '' FAKE_CUDNN_VERSION=91501
attention_by 'cuBLAS (FARANDOLE_CUDNN_LIBRARY=off)' '--units 16 --heads 2' '' FARANDOLE_CUDNN_LIBRARY=off
attention_by 'cuBLAS (in deterministic mode cuDNN computes attention up to' '--units 16 --heads 2' --deterministic FAKE_DEVICE_CAPABILITY=100

options+=(--samples 192)

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
cnn=(--model cnn --data images --image-size 8 --device cuda "${options[@]}")
refuses 'FARANDOLE_CUDNN_LIBRARY: /no/file' env FARANDOLE_CUDNN_LIBRARY=/no/file "$train" "${cnn[@]}"
refuses 'is no cuDNN: it has no cudnnGetVersion' env FARANDOLE_CUDNN_LIBRARY="$FARANDOLE_CUDA_LIBRARY" "$train" "${cnn[@]}"
refuses 'cuDNN 8.9.7 (.*) is too old: 9.0.0 or newer is needed; install' env FAKE_CUDNN_VERSION=8907 "$train" "${cnn[@]}"
refuses 'is for CUDA 14, but the driver supports CUDA 13 at most; install' env FAKE_CUDNN_CUDA_VERSION=14000 "$train" "${cnn[@]}"
refuses 'cudnnCreate failed on CUDA device [0-9] .* cuDNN cannot use this device' env FAKE_DEVICE_INJECT=cudnnCreate:1:1001 "$train" "${cnn[@]}"
refuses 'has no memory for' env FAKE_DEVICE_MEMORY=8M "$train" --model mlp "${options[@]}" --device cuda
refuses 'bf16 is computed on devices only; train on a device (--device cuda' "$train" --model mlp "${options[@]}" --precision bf16
refuses 'loss-scale.*--precision bf16 or f16' "$train" --model mlp "${options[@]}" --device cuda --loss-scale 8
refuses "choose\|'gpu'" "$train" --model mlp "${options[@]}" --device gpu
echo 'all is well'
