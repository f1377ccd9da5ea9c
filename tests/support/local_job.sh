#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: local_job.sh [--torch] -n PROCESSES PROGRAM [ARGUMENT...]
# Starts a job without MPI, of this host, or with --torch over TCP by the variables that torchrun sets. Ends with the
# first status that is not 0, and ends the job's other processes if they do not end by themselves within 3 seconds after
# that. Leaves no process behind.
set -u
torch=no
[ "${1-}" != --torch ] || { torch=yes; shift; }
[ "${1-}" = -n ] || { echo "usage: local_job.sh [--torch] -n PROCESSES PROGRAM [ARGUMENT...]" >&2; exit 2; }
count=$2; shift 2
if [ $torch = yes ]; then
  # Below the ports that the system chooses, and of this job as far as process ids differ.
  export WORLD_SIZE=$count MASTER_ADDR=${MASTER_ADDR-127.0.0.1} MASTER_PORT=${MASTER_PORT-$((10000 + $$ % 2200 * 10))}
  FARANDOLE_JOB_KEY=${FARANDOLE_JOB_KEY-$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')}
  export FARANDOLE_JOB_KEY
  rank_variable=RANK
else
  export FARANDOLE_SIZE=$count FARANDOLE_JOB=${FARANDOLE_JOB-test-$$}
  rank_variable=FARANDOLE_RANK
fi
declare -A running
for ((rank = 0; rank < count; ++rank)); do
  # `env` becomes the program, so that $! is the program's.
  env "$rank_variable=$rank" "$@" &
  running[$!]=$rank
done
trap 'kill "${!running[@]}" 2>/dev/null' TERM INT
status=0
while [ ${#running[@]} -gt 0 ]; do
  wait -n -p ended "${!running[@]}"; came=$?
  [ -n "${ended-}" ] || break
  unset "running[$ended]"
  [ "$came" != 0 ] && [ "$status" = 0 ] || continue
  status=$came
  # The shell has nothing that waits for the others for a limited time. A read from a pipe that nobody writes waits
  # without a child.
  { read -rt 3 <> <(:); kill -KILL "${!running[@]}"; } >/dev/null 2>&1 &
  reaper=$!
done
# It has this script's command line and environment, by which a test may look for processes that are left.
[ -z "${reaper-}" ] || { kill "$reaper" 2>/dev/null; wait "$reaper"; }
exit "$status"
