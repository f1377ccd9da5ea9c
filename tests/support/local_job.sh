#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: local_job.sh [--torch] -n PROCESSES PROGRAM [ARGUMENT...]
# Starts a job on this host without MPI; with --torch a job over TCP, by the variables that torchrun sets. The exit status
# is the first status of a process that is not 0; 3 seconds after that, kills the processes that are left. Leaves no
# process behind.
set -u
torch=no
[ "${1-}" != --torch ] || { torch=yes; shift; }
[ "${1-}" = -n ] || { echo "usage: local_job.sh [--torch] -n PROCESSES PROGRAM [ARGUMENT...]" >&2; exit 2; }
count=$2; shift 2
if [ $torch = yes ]; then
  # The port is below those that the system chooses, and mostly differs between jobs, as their process ids do.
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
  # The shell cannot wait for processes with a time limit. A read from a pipe to which nobody writes waits without starting
  # a child.
  { read -rt 3 <> <(:); kill -KILL "${!running[@]}"; } >/dev/null 2>&1 &
  reaper=$!
done
# End the reaper: it has this script's command line and environment, by which a test may search for processes left behind.
[ -z "${reaper-}" ] || { kill "$reaper" 2>/dev/null; wait "$reaper"; }
exit "$status"
