#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: killed_starts.sh LAUNCHER... PROGRAM      where % in the launcher's arguments stands for the number of processes
# Starts jobs of 2 to 4 ranks that run collectives in shared memory, and kills a random rank of each job at a random time.
# Checks that the job leaves nothing behind, and that the next start works. FARANDOLE_KILLED_STARTS is the number of jobs;
# FARANDOLE_SEED repeats a run.
set -u
starts=${FARANDOLE_KILLED_STARTS:-20}
seed=${FARANDOLE_SEED:-$$}
# Not for the library, which refuses what it does not know.
unset FARANDOLE_KILLED_STARTS FARANDOLE_SEED
# As root with a /dev/shm of its own: then all that is in it was left behind.
if [ -z "${OWN_SHM-}" ] && [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
  OWN_SHM=yes FARANDOLE_KILLED_STARTS=$starts FARANDOLE_SEED=$seed exec unshare -m "$0" "$@"
fi
[ -z "${OWN_SHM-}" ] || mount -t tmpfs tmpfs /dev/shm || exit 1
echo "seed $seed, $starts starts"
RANDOM=$((seed % 32768))
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export TMPDIR=$work/tmp
mkdir "$TMPDIR"
limit=10

fail() { echo "FAIL: start $start (seed $seed): $*"; cat "$work/output"; exit 1; }
launch() { # CALLS RANKS
  rm -rf "$work/ranks" "$work/joined"; mkdir "$work/ranks" "$work/joined"
  : >"$work/output"
  begun=$SECONDS
  timeout --kill-after=5 $limit "${command[@]//%/$2}" "$1" "$work" >"$work/output" 2>&1 </dev/null &
  job=$!
}
ranks_of_job() { ls "$work/ranks"; }
is_alive() { [ "$(readlink "/proc/$1/exe")" = "$program" ]; } 2>/dev/null
command=("$@")
program=$(readlink -f "${command[-1]}")

for ((start = 1; start <= starts; ++start)); do
  launch 1000000000 $((2 + RANDOM % 3))
  # From before the first rank joins to the middle of its work. The time is the test's input; nothing relies on it.
  sleep "0.$(printf %03d $((RANDOM % 500)))"
  until [ -n "$(ranks_of_job)" ]; do kill -0 $job 2>/dev/null || fail "it ended by itself"; sleep 0.01; done
  mapfile -t ranks < <(ranks_of_job)
  victim=${ranks[RANDOM % ${#ranks[@]}]}
  kill -KILL "$victim" 2>/dev/null || fail "rank $victim ended by itself"
  wait $job 2>/dev/null; status=$?
  [ $status != 0 ] || fail "exit status 0 although a rank was killed"
  if [ $((SECONDS - begun)) -ge $limit ]; then
    # An MPI that hangs while its ranks start is not ours to mend.
    for rank in $(ranks_of_job); do
      is_alive "$rank" || continue
      [ ! -e "$work/joined/$rank" ] || fail "the others hung"
      kill -KILL "$rank"
    done
    echo "start $start: the MPI hung before the ranks had joined"
  fi
  # Launchers end the other ranks without waiting for them.
  until=$((SECONDS + 10))
  for rank in $(ranks_of_job); do
    while is_alive "$rank"; do
      [ $SECONDS -lt $until ] || fail "process $rank is left"
      sleep 0.01
    done
  done
  # What an MPI leaves behind is its own business; open_mpi.* is what Open MPI makes, and removes, to try POSIX shared memory.
  left=$(find "$TMPDIR" /dev/shm -mindepth 1 \
    ${OWN_SHM:+-not -name 'vader_segment*' -not -name 'open_mpi.*' -not -name '*mpich*' -not -name 'ucx_*'} \
    -not -path "$TMPDIR/ompi*" -not -path "$TMPDIR/openmpi*" -not -path "$TMPDIR/pmix*" 2>/dev/null)
  [ -n "${OWN_SHM-}" ] || left=$(grep -i farandole <<<"$left")
  [ -z "$left" ] || fail "files are left: $left"
  if [ $((start % 10)) = 0 ] || [ $start = "$starts" ]; then
    launch 50 $((2 + RANDOM % 3))
    wait $job || fail "the next start does not work"
  fi
done
echo "as expected"
