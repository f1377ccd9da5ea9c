#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: replica_equivalence.sh BUILD_DIRECTORY STEPS_IN_F64 [FLAVOUR=LAUNCHER...]...
# Trains with one global batch and one seed on 1, 2 and 4 replicas, as threads, processes and both. Checks that the losses are the
# same, and in deterministic mode the bits of the parameters. Each further argument is a launcher with its options as one argument,
# such as "mpiexec.mpich".
set -u
build=$1 steps=$2; shift 2
train=$build/bin/farandole-train
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
failures=0
# Few images, because every run evaluates the whole test set.
data=$work/data
. "$(dirname "$0")/small_data.sh"
small_data "$data" 6400 64
# losses NAME COMMAND...: the loss of each training step, one per line, in $work/NAME; the last line is the checksum
losses() {
  local name=$1; shift
  if ! timeout 300 "$@" --data-dir "$data" --json "$work/$name.json" --log-steps --quiet >"$work/out" 2>&1 </dev/null; then
    echo "FAIL: $*"; cat "$work/out"; failures=$((failures + 1))
  fi
  grep '"training_step":' "$work/$name.json" | sed 's/.*"loss":\([^,}]*\).*/\1/' >"$work/$name"
  grep -o '"parameters_checksum":"[0-9a-f]*"' "$work/$name.json" | tail -1 >"$work/$name.checksum"
}
# same A B STEPS TOLERANCE
same() {
  paste "$work/$1" "$work/$2" | awk -v steps="$3" -v tolerance="$4" -v what="$1 and $2" '
    { d = ($1 > $2 ? $1 - $2 : $2 - $1) / ($1 > 0 ? $1 : -$1); if (d > worst) worst = d; n++ }
    END { printf "%-34s %3d training steps, losses differ by at most %.1e (allowed %s)\n", what, n, worst, tolerance
          exit !(n == steps && worst <= tolerance) }' || { echo "FAIL"; failures=$((failures + 1)); }
}
# every_way PREFIX OPTIONS...: runs 1, 2, 4 replicas; names are PREFIX.1, PREFIX.threads2, …
every_way() {
  local prefix=$1; shift
  losses "$prefix.1" "$train" "$@"
  losses "$prefix.threads2" "$train" --replicas 2 "$@"
  losses "$prefix.threads4" "$train" --replicas 4 "$@"
  ways=(threads2 threads4)
  for launcher in "${launchers[@]}"; do
    local flavour=${launcher%%=*}
    read -ra command <<<"${launcher#*=}"
    losses "$prefix.$flavour.2" "${command[@]}" -n 2 "$train" "$@"
    losses "$prefix.$flavour.2x2" "${command[@]}" -n 2 "$train" --replicas 2 "$@"
    ways+=("$flavour.2" "$flavour.2x2")
  done
}
launchers=("$@")

every_way f32 --model cnn --precision f32 --global-batch 64 --max-steps 10
for way in "${ways[@]}"; do same f32.1 "f32.$way" 10 1e-5; done
every_way f64 --model cnn --precision f64 --global-batch 32 --max-steps "$steps"
for way in "${ways[@]}"; do same f64.1 "f64.$way" "$steps" 1e-12; done
every_way deterministic --model cnn_bn --deterministic --global-batch 64 --max-steps 10
losses deterministic.threads8 "$train" --model cnn_bn --deterministic --global-batch 64 --max-steps 10 --replicas 8
for way in "${ways[@]}" threads8; do
  same deterministic.1 "deterministic.$way" 10 0
  cmp -s "$work/deterministic.1.checksum" "$work/deterministic.$way.checksum" || { echo "FAIL: other bits with $way"; failures=$((failures + 1)); }
done
# Stopped on 2 replicas, resumed on 4.
losses stopped "$train" --model cnn_bn --deterministic --global-batch 64 --max-steps 4 --replicas 2 --checkpoint-dir "$work/c"
losses resumed "$train" --model cnn_bn --deterministic --global-batch 64 --max-steps 10 --replicas 4 --checkpoint-dir "$work/c" --resume
cmp -s "$work/deterministic.1.checksum" "$work/resumed.checksum" || { echo "FAIL: other bits after resuming"; failures=$((failures + 1)); }
echo "deterministic parameters: $(cat "$work/deterministic.1.checksum")"
[ -s "$work/deterministic.1.checksum" ] || failures=$((failures + 1))
exit $((failures > 0))
