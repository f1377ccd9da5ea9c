#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: local_job.sh -n PROCESSES PROGRAM [ARGUMENT...]
# Starts a job without MPI. Ends with the first status that is not 0, and ends the job's other processes if they do not
# end by themselves within 3 seconds after that.
set -u
[ "${1-}" = -n ] || { echo "usage: local_job.sh -n PROCESSES PROGRAM [ARGUMENT...]" >&2; exit 2; }
count=$2; shift 2
export FARANDOLE_SIZE=$count FARANDOLE_JOB=${FARANDOLE_JOB-test-$$}
declare -A running
for ((rank = 0; rank < count; ++rank)); do
  FARANDOLE_RANK=$rank "$@" &
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
  # The shell has nothing that waits for the others for a limited time.
  { sleep 3; kill -KILL "${!running[@]}"; } >/dev/null 2>&1 &
  reaper=$!
done
[ -z "${reaper-}" ] || kill "$reaper" 2>/dev/null
exit "$status"
