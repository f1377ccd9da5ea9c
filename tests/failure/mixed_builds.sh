#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: mixed_builds.sh LIBRARY PROGRAM LAUNCHER...
# Starts PROGRAM as ranks 0 to 2, by a launcher that does not end the other ranks when one ends. Rank 1 loads another build: a
# copy of LIBRARY and its plug-ins with another revision of the sources. Each rank must refuse to join within the time limit, and
# name both builds.
set -u
library=$1 program=$2; shift 2
refuse_bound=20 # seconds of the whole job, most of which is the launcher's start on a busy machine
other=$(mktemp -d); trap 'rm -rf "$other"' EXIT
revision=$(grep -aoE -- '-[0-9a-f]{12}-\{\}' "$library" | sed -n 1p | cut -c 2-13)
[ -n "$revision" ] || { echo "FAIL: $library does not tell its revision"; exit 1; }
cp -L "$(dirname "$library")"/libfarandole.so* "$other"
cp -rL "$(dirname "$library")/farandole" "$other" 2>/dev/null # there are no plug-ins in a build without MPI
find "$other" -type f -exec env LC_ALL=C sed -i "s/$revision/000000000000/g" {} +

export FARANDOLE_HOST_ID=farandole-mixed-$$
output=$(timeout --kill-after=5 $refuse_bound "$@" bash -c '
  [ "${OMPI_COMM_WORLD_RANK-${PMI_RANK-${FARANDOLE_RANK-$RANK}}}" != 1 ] || export LD_LIBRARY_PATH=$1
  exec "$2" killed' bash "$other" "$program" 2>&1 </dev/null)
came=$?
echo "$output"
[ $came != 124 ] && [ $came != 137 ] || { echo "FAIL: it hung"; exit 1; }
expected="InvalidArgument: joining the job: process 0 \(host .*, pid .*\) runs Farandole [0-9.]*-$revision-le64-[0-9a-f]{8}, but process 1 \(host .*, pid .*\) runs Farandole [0-9.]*-000000000000-le64-[0-9a-f]{8}: all processes must run the same build"
[ "$(grep -cE "$expected" <<<"$output")" = 3 ] || { echo "FAIL: not all three say: $expected"; exit 1; }
echo "as expected"
