#!/usr/bin/env bash
# usage: mixed_builds.sh PROGRAM OTHER LAUNCHER...
# Starts PROGRAM as ranks 0 and 2 and OTHER, which is linked with another build, as rank 1, by a launcher that leaves the
# others alone when one ends. Each of them must refuse within the bound, and name both builds.
set -u
program=$1 other=$2; shift 2
refuse_bound=20 # seconds of the whole job, most of which is the launcher's start on a busy machine
export FARANDOLE_HOST_ID=farandole-mixed-$$
output=$(timeout --kill-after=5 $refuse_bound "$@" bash -c '
  [ "${OMPI_COMM_WORLD_RANK-${PMI_RANK-$FARANDOLE_RANK}}" = 1 ] && exec "$2" killed
  exec "$1" killed' bash "$program" "$other" 2>&1 </dev/null)
came=$?
echo "$output"
[ $came != 124 ] && [ $came != 137 ] || { echo "FAIL: it hung"; exit 1; }
expected="InvalidArgument: joining the job: process 0 \(host .*, pid .*\) runs Farandole [0-9.]*-[0-9a-f]{12}-le64-[0-9a-f]{8}, but process 1 \(host .*, pid .*\) runs Farandole 0.0.0-000000000000-le64-00000000: all processes must run the same build"
[ "$(grep -cE "$expected" <<<"$output")" = 3 ] || { echo "FAIL: not all three say: $expected"; exit 1; }
echo "as expected"
