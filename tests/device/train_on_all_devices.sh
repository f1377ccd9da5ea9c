#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# farandole-train without --replicas on machines with 1 to 4 devices: how many replicas start, on which devices, and what is
# refused.
# usage: train_on_all_devices.sh FARANDOLE_TRAIN LAUNCH…: the command LAUNCH starts two processes (the double's environment is set)
set -euo pipefail
train=$1
shift
launch=("$@")
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail() { echo "FAILED: $*"; cat "$out"/*.txt; exit 1; }

options=(--model mlp --synthetic --samples 64 --epochs 1 --global-batch 32 --threads 1 --deterministic)
# gives WHAT PATTERN… -- COMMAND…: the first line of the run matches each pattern, and the parameters are those of the first run.
gives() {
  local what=$1 pattern
  local -a patterns=()
  shift
  while [ "$1" != -- ]; do patterns+=("$1"); shift; done
  shift
  "$@" "${options[@]}" --json "$out/report.json" >"$out/run.txt" 2>&1 || fail "$what"
  for pattern in "${patterns[@]}"; do grep -qE "$pattern" "$out/run.txt" || fail "$what: no '$pattern'"; done
  grep -o '"parameters_checksum":"[0-9a-f]*"' "$out/report.json" | tail -1 >"$out/checksum.txt"
  [ -s "$out/checksum.txt" ] || fail "$what: no checksum"
  [ -e "$out/checksum" ] || cp "$out/checksum.txt" "$out/checksum"
  cmp -s "$out/checksum" "$out/checksum.txt" || fail "$what: other parameters"
}
# refuses PATTERN COMMAND…
refuses() {
  local pattern=$1
  shift
  if "$@" "${options[@]}" >"$out/refused.txt" 2>&1; then fail "not refused: $*"; fi
  grep -qE -- "$pattern" "$out/refused.txt" || fail "no '$pattern' from $*"
}

export FAKE_DEVICE_COUNT
for FAKE_DEVICE_COUNT in 1 2 4; do
  for device in cuda auto; do
    devices="$FAKE_DEVICE_COUNT CUDA devices \("
    [ "$FAKE_DEVICE_COUNT" != 1 ] || devices='CUDA device 0 \('
    gives "one process, $FAKE_DEVICE_COUNT devices" " $FAKE_DEVICE_COUNT replicas? on 1 host" "computing on $devices" -- \
      "$train" --device $device
    [ "$FAKE_DEVICE_COUNT" != 1 ] || continue
    gives "two processes, $FAKE_DEVICE_COUNT devices" " $FAKE_DEVICE_COUNT replicas on 1 host" "computing on $devices" -- \
      "${launch[@]}" "$train" --device $device
  done
done
gives 'fewer replicas than devices' ' 2 replicas on 1 host' 'computing on 2 CUDA devices \(fake device 0, fake device 1\)' -- \
  "$train" --device cuda --replicas 2
gives 'devices of FARANDOLE_DEVICE' ' 2 replicas on 1 host' 'computing on 2 CUDA devices \(fake device 1, fake device 3\)' -- \
  env FARANDOLE_DEVICE=3,1 "$train" --device cuda
gives 'one device of FARANDOLE_DEVICE' ' 1 replica on 1 host' 'computing on CUDA device 2 \(fake device 2\)' -- \
  env FARANDOLE_DEVICE=2 "$train" --device auto
# Processes that see different devices keep them.
# shellcheck disable=SC2016  # expanded by that shell
gives 'devices of each process' ' 4 replicas on 1 host' 'computing on 4 CUDA devices \(fake device 0, fake device 1, fake device 2, fake device 3\)' -- \
  "${launch[@]}" sh -c '
    case ${FARANDOLE_RANK-${OMPI_COMM_WORLD_RANK-$PMI_RANK}} in 0) visible=3,1 ;; *) visible=0,2 ;; esac
    CUDA_VISIBLE_DEVICES=$visible exec "$@"' _ "$train" --device cuda
refuses '4 ranks and 2 devices.*FARANDOLE_DEVICE' env FAKE_DEVICE_COUNT=2 "$train" --device cuda --replicas 4

FAKE_DEVICE_COUNT=1
refuses 'use the same device.*CUDA_VISIBLE_DEVICES' "$train" --device cuda --replicas 2
refuses 'use the same device.*CUDA_VISIBLE_DEVICES' "${launch[@]}" "$train" --device cuda
gives 'a shared device' ' 2 replicas on 1 host' 'computing on CUDA device 0 \(' -- \
  env FAKE_NCCL_SHARED_DEVICE=1 NCCL_MULTI_RANK_GPU_ENABLE=1 FAKE_NCCL_VERSION=23102 "${launch[@]}" "$train" --device cuda
rm "$out/checksum"  # the processor's bits differ from the device's
gives 'more processes than devices' ' 2 replicas on 1 host' 'computing on the CPU' -- "${launch[@]}" "$train" --device auto
gives 'no device' ' 1 replica on 1 host' 'computing on the CPU' -- env FAKE_DEVICE_COUNT=0 "$train" --device auto
gives 'devices switched off' ' 1 replica on 1 host' 'computing on the CPU' -- env FARANDOLE_CUDA=off "$train" --device auto
echo 'all is well'
