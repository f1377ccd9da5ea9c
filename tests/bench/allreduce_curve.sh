#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: allreduce_curve.sh [OPTION...] BUILD_DIRECTORY RESULT.json
# Measures allreduce (f32 sum, out of place) over a range of sizes: farandole-bench with ordinary memory and with windows,
# beside the allreduce of each MPI in the same processes; then other peers, each alone, and therefore farandole-bench alone
# too, started by the first MPI. One after the other, round after round.
# Writes the medians over the rounds as JSON, for scripts/plot_curves.py, and prints them as a table.
#   --mpi LAUNCHER     a launcher with its flags, without -n; again for another MPI. The first one's figures of Farandole
#                      are drawn. Default: mpirun.openmpi and mpiexec.mpich, as far as they are installed
#   --peer NAME=CMD    another peer: a command that prints lines of 'bytes p50_us p99_us', lines with # aside; again for
#                      another one. It is told nothing, and must use as many ranks
#   --ranks N          2        --rounds N      3         --factor X        from one size to the next, 2
#   --min-bytes N      4        --max-bytes N   64MiB     --iterations N    samples per size and round; 0: from the size
#   --cold N           also measure Farandole and the MPIs with N pairs of buffers in turn
set -eu
usage() { sed -n '3,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; }
mpis=() peers=() ranks=2 rounds=3 factor=2 min=4 max=64MiB iterations=0 cold=0
while [[ ${1-} == --* ]]; do
  [ "$1" != --help ] || { usage; exit 0; }
  [ $# -ge 2 ] || { echo "allreduce_curve.sh: $1 needs a value; see --help" >&2; exit 2; }
  case $1 in
    --mpi) mpis+=("$2") ;;
    --peer) [[ $2 == ?*=?* ]] || { echo "allreduce_curve.sh: --peer is '$2'; it must be NAME=COMMAND" >&2; exit 2; }
            peers+=("$2") ;;
    --ranks) ranks=$2 ;; --rounds) rounds=$2 ;; --factor) factor=$2 ;; --min-bytes) min=$2 ;; --max-bytes) max=$2 ;;
    --iterations) iterations=$2 ;; --cold) cold=$2 ;;
    *) echo "allreduce_curve.sh: unknown option '$1'; see --help" >&2; exit 2 ;;
  esac
  shift 2
done
[ $# = 2 ] || { usage >&2; exit 2; }
bench=$1/bin/farandole-bench result=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [ ${#mpis[@]} = 0 ]; then
  flags="--bind-to core"
  [ "$ranks" -le "$(nproc)" ] || flags="--bind-to none --oversubscribe"
  [ "$(id -u)" != 0 ] || flags+=" --allow-run-as-root"
  if command -v mpirun.openmpi >/dev/null; then mpis+=("mpirun.openmpi $flags"); fi
  if command -v mpiexec.mpich >/dev/null; then mpis+=("mpiexec.mpich"); fi
fi
[ ${#mpis[@]} -gt 0 ] || { echo "allreduce_curve.sh: found neither mpirun.openmpi nor mpiexec.mpich; use --mpi" >&2; exit 2; }

work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
# measure NAME COMMAND...: runs the command, and shows what it said only if it fails
measure() {
  local name=$1; shift
  echo "round $round: $name" >&2
  if ! "$@" >"$work/output" 2>"$work/errors"; then
    echo "allreduce_curve.sh: failed: $*" >&2; cat "$work/output" "$work/errors" >&2; exit 1
  fi
}
pairs=(1)
[ "$cold" = 0 ] || pairs+=("$cold")
for round in $(seq "$rounds"); do
  for mpi in "${!mpis[@]}"; do
    read -ra launch <<<"${mpis[$mpi]}"
    for count in "${pairs[@]}"; do
      for memory in user window; do
        measure "${mpis[$mpi]}, memory $memory, $count pair(s) of buffers" "${launch[@]}" -n "$ranks" "$bench" \
          --collective allreduce --place out --peer mpi --memory $memory --rotate-buffers "$count" --factor "$factor" \
          --min-bytes "$min" --max-bytes "$max" --iterations "$iterations" --json "$work/bench.$mpi.$count.$memory.$round.json"
      done
    done
  done
  if [ ${#peers[@]} -gt 0 ]; then
    read -ra launch <<<"${mpis[0]}"
    for memory in user window; do
      measure "${mpis[0]}, memory $memory, without a peer" "${launch[@]}" -n "$ranks" "$bench" --collective allreduce \
        --place out --memory $memory --factor "$factor" --min-bytes "$min" --max-bytes "$max" --iterations "$iterations" \
        --json "$work/alone.$memory.$round.json"
    done
  fi
  for peer in "${!peers[@]}"; do
    measure "${peers[$peer]%%=*}" bash -c "${peers[$peer]#*=}"
    { echo "# ${peers[$peer]%%=*}"; cat "$work/output"; } >"$work/peer.$peer.$round.txt"
  done
done
python3 "$here/collect_curves.py" "$work" "$result"
