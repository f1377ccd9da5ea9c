#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# farandole-train on the devices of two hosts that are network namespaces (tests/support/network_hosts.sh), without MPI:
# 1. the parameters have the bits that as many replicas of one host give, also by graphs;
# 2. if all ranks of a host are killed, the ranks of the other host end within 5 s with an error that names the host, the newest
#    checkpoint is whole, and the resumed training has the bits of one without a break.
#
# usage, as root: train_on_two_hosts.sh FARANDOLE_TRAIN (the double's environment is set)
# Needs iproute2. Prints the reason and exits with 77 where hosts cannot be made. Leaves nothing behind.
set -euo pipefail
train=$1
# shellcheck source=tests/support/network_hosts.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/network_hosts.sh"
need_tools awk
make_hosts 2
for host in "${hosts[@]}"; do start_on_host "$host" sleep infinity; done
# Until the namespaces of each host are there.
for host in "${hosts[@]}"; do until [ "$(on_host "$host" hostname 2>/dev/null)" = "$name-$host" ]; do sleep 0.02; done; done
umask 077
od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$directory/key"
cat >"$directory/rank" <<END_OF_RANK
#!/bin/sh
echo \$\$ >"$directory/pid.\$RANK"
FARANDOLE_HOST_ID=\$(hostname) NCCL_HOSTID=\$(hostname) exec "\$@"
END_OF_RANK
chmod +x "$directory/rank"

fail() {
  echo "FAILED: $*"
  for output in "$directory"/output*; do tail -5 "$output" | sed "s/^/$(basename "$output"): /"; done
  exit 1
}

options=(--model mlp --synthetic --samples 256 --global-batch 32 --threads 1 --device cuda --deterministic)
export FAKE_DEVICE_COUNT=2
# start PROCESSES_PER_HOST OPTION…: starts the job; the process with rank R gets pids[R] and output.R.
start() {
  local rank per_host=$1 size=$((2 * $1))
  shift
  pids=()
  for ((rank = 0; rank < size; ++rank)); do
    on_host $((rank / per_host + 1)) timeout --kill-after=5 100 env RANK="$rank" WORLD_SIZE="$size" MASTER_ADDR="$net.1" \
      MASTER_PORT=29500 FARANDOLE_JOB_KEY_FILE="$directory/key" "$directory/rank" "$train" "${options[@]}" "$@" \
      </dev/null >"$directory/output.$rank" 2>&1 &
    pids[rank]=$!
  done
}
# on_one_host OPTION…: a job of this host with 4 replicas; its output is in `output`.
on_one_host() {
  FAKE_DEVICE_COUNT=4 "$train" "${options[@]}" "$@" </dev/null >"$directory/output" 2>&1 || fail "on one host: $*"
}
# expect_checksum FILE: the checksum of a finished job is that in `expected`.
expect_checksum() {
  local found
  found=$(grep -o 'checksum [0-9a-f]*' "$1") || fail "no checksum in $1"
  [ "$found" = "$expected" ] || fail "$found, but one host gives $expected"
}

on_one_host --epochs 2
expected=$(grep -o 'checksum [0-9a-f]*' "$directory/output") || fail 'no checksum'
start 1 --epochs 2
for pid in "${pids[@]}"; do wait "$pid" || fail 'a process of two hosts'; done
grep -q ' 4 replicas on 2 hosts.* computing on 4 CUDA devices' "$directory/output.0" || fail 'other replicas'
expect_checksum "$directory/output.0"
start 1 --epochs 2 --graph
for pid in "${pids[@]}"; do wait "$pid" || fail 'a process of two hosts by graphs'; done
expect_checksum "$directory/output.0"

# newest: prints the training step of the newest checkpoint
newest() { find "$directory/run" -name manifest.json -path '*/step-*' 2>/dev/null | sed 's|.*/step-0*\([0-9]*\)/.*|\1|' | sort -n | tail -1; }
# lose_a_host OPTION…: a job of both hosts with these options, one of which is lost, and what resumes it on one host
lose_a_host() {
  local begun rank status step end resumed
  rm -rf "$directory/run"
  checkpoints=(--checkpoint-dir "$directory/run" --checkpoint-every-steps 2 --evaluate-every 0)
  start 2 --epochs 1000000 "${checkpoints[@]}" "$@"
  until [ -n "$(newest)" ]; do
    kill -0 "${pids[0]}" 2>/dev/null || fail 'the training ended before a checkpoint'
    sleep 0.02
  done
  kill -KILL "$(<"$directory/pid.2")" "$(<"$directory/pid.3")"
  begun=$EPOCHREALTIME
  for rank in 0 1; do
    status=0
    wait "${pids[rank]}" || status=$?
    [ "$status" = 1 ] || fail "rank $rank ended with status $status"
    grep -qE "PeerLost: .*rank [23] \(host $name-2, " "$directory/output.$rank" || fail "rank $rank does not name the lost host"
  done
  took=$(awk -v from="$begun" -v to="$EPOCHREALTIME" 'BEGIN { print to - from }')
  awk -v took="$took" 'BEGIN { exit !(took <= 5) }' || fail "the other host ended $took s after the loss; the bound is 5 s"
  for rank in 2 3; do wait "${pids[rank]}" || true; done

  step=$(newest)
  end=$((step + 3))
  on_one_host --epochs 1000000 --max-steps $end "${checkpoints[@]}" --resume
  grep -q "^resumed from .* after $step training steps" "$directory/output" || fail "training does not go on from step $step"
  ! grep -q damaged "$directory/output" || fail 'a checkpoint was damaged'
  resumed=$(grep -o 'checksum [0-9a-f]*' "$directory/output") || fail 'no checksum'
  on_one_host --epochs 1000000 --max-steps $end --evaluate-every 0
  expected=$resumed
  expect_checksum "$directory/output"
  echo "all is well${1:+ with $1}: the other host ended after $took s; resumed from step $step"
}
lose_a_host
lose_a_host --graph
