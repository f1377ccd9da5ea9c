#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: many_ranks.sh RANKS PROGRAM
# Checks that RANKS processes of one host can share memory if their windows may take a pretended tebibyte, although each process
# maps the arenas of all. PROGRAM is limited_rank. Prints how long they took, and how much address space each has mapped.
set -u
ranks=$1 program=$2
[ "$(free -g | awk '/^Mem/ { print $7 }')" -ge 12 ] || { echo "skipped: less than 12 GiB of memory are free"; exit 77; }
output=$(mktemp -d); trap 'rm -rf "$output"' EXIT
export FARANDOLE_SIZE=$ranks FARANDOLE_JOB=many-$$ FARANDOLE_WINDOW_BYTES=1T FARANDOLE_WARN_AFTER=100
start=$(date +%s%N)
for ((rank = 0; rank < ranks; ++rank)); do
  FARANDOLE_RANK=$rank timeout --kill-after=5 200 "$program" --joins-only >"$output/$rank" 2>&1 </dev/null &
done
failed=0
while [ -n "$(jobs -pr)" ]; do wait -n || failed=$((failed + 1)); done
end=$(date +%s%N)
shared=$(cat "$output"/* | grep -c "of $ranks, local rank .*, shares memory")
cat "$output/0"
[ "$failed" = 0 ] || { cat "$output"/* | sort | uniq -c | sort -rn | sed -n 1,20p; echo "FAIL: $failed processes failed"; exit 1; }
[ "$shared" = "$ranks" ] || { cat "$output"/* | sed -n 1,50p; echo "FAIL: $shared of $ranks ranks share memory"; exit 1; }
echo "all $ranks ranks share memory, after $(((end - start) / 1000000)) ms"
