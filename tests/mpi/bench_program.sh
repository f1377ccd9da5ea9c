#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: bench_program.sh FARANDOLE_BENCH LAUNCHER -n PROCESSES [FLAGS...]
# Tests farandole-bench together with the blocking collectives of the launcher's MPI: every collective of both gives the expected
# result, and the figures of both are written. What cannot be compared is refused with the reason.
set -u
bench=$1; shift
launch=("$@")
while [ "$1" != -n ]; do shift; done
processes=$2
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
failures=0
fail() { echo "FAIL: $*"; sed 's/^/  /' "$work/out"; failures=$((failures + 1)); }
works() { timeout 100 "${launch[@]}" "$bench" "$@" >"$work/out" 2>&1 </dev/null || fail "exit status $? of: $*"; }
# refused STATUS PATTERN COMMAND...
refused() {
  local status=$1 pattern=$2; shift 2
  timeout 60 "$@" >"$work/out" 2>&1 </dev/null; local came=$?
  { [ $came = "$status" ] && grep -qE -- "$pattern" "$work/out"; } || fail "exit status $came (expected $status), expected text: $pattern, of: $*"
}

sizes=(--min-bytes 24 --max-bytes 20K --factor 800 --iterations 2)
# The program itself refuses to compare with a peer whose results are wrong, and fails if its own are.
for dtype in f32 f64 i32 i64 u32 u64 bf16 bool; do works --peer mpi --collective all --dtype $dtype "${sizes[@]}"; done
for op in product min max average; do works --peer mpi --collective allreduce,reduce,reduce_scatter --op $op "${sizes[@]}"; done
for op in bit_and bit_or bit_xor; do
  for dtype in bool u8 i16 u32 u64; do works --peer mpi --collective allreduce,reduce,reduce_scatter --dtype $dtype --op $op "${sizes[@]}"; done
done
# Not in place: MPICH 4.0 crashes in MPI_Reduce with MPI_IN_PLACE on another root than 0.
works --peer mpi --collective all --root $((processes - 1)) --place out "${sizes[@]}"
works --peer mpi --collective all --memory window --rotate-buffers 3 --mpi-threads any "${sizes[@]}" --json "$work/json"
results=$(grep -c '"collective"' "$work/json")
[ "$results" -ge 30 ] || fail "$results results in the JSON; expected at least 30"
for entry in '"memory": "window"' '"buffer_pairs": 3' '"peer": "(Open MPI|MPICH) [0-9.]+"' '"wrong": 0' \
  '"p50_us": [0-9.e-]+' '"p99_us": [0-9.e-]+' '"peer_p50_us": [0-9.e-]+' '"peer_p99_us": [0-9.e-]+' '"ratio": [0-9.e-]+'; do
  [ "$(grep -cE "^ +$entry" "$work/json")" = "$results" ] || fail "not every result in the JSON has $entry"
done
grep -qE '^ +"(peer_)?p50_us": 0\.0,' "$work/json" && fail "a time in the JSON is 0"

refused 1 'no launcher.*start the program with mpirun' "$bench" --peer mpi
refused 1 'one rank per process.*more processes instead of --replicas' "$bench" --peer mpi --replicas 2
refused 2 'no bit_or of bf16' "${launch[@]}" "$bench" --peer mpi --dtype bf16 --op bit_or "${sizes[@]}"
for dtype in f32 bf16; do works --peer mpi --collective broadcast,allgather --dtype $dtype --op bit_or "${sizes[@]}"; done
refused 2 "--peer is 'gloo'; it must be mpi or nccl" "$bench" --peer gloo
refused 2 '--peer nccl goes with --memory device' "$bench" --peer nccl
refused 2 '--peer nccl goes with --memory device' "$bench" --peer mpi --memory device
refused 2 "--memory is 'gpu'; it must be user, window or device" "$bench" --memory gpu
refused 2 '--rotate-buffers is 0; it must be 1' "$bench" --rotate-buffers 0
refused 2 "--mpi-threads is 'all'; it must be one or any" "$bench" --mpi-threads all
refused 2 'mpi-threads one does not go with --replicas' "$bench" --mpi-threads one --replicas 2
exit "$failures"
