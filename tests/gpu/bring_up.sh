#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage, as each rank of a job: bring_up.sh FARANDOLE_GPU_FIGURES ROUNDS
# Measures the seconds from the start of a process to the end of its first allreduce, alternately of Farandole and of NCCL alone.
# Each measurement takes a fresh process, because a process makes its second group faster. Rank 0 prints the medians as JSON.
set -euo pipefail
program=$1 rounds=$2
job=$FARANDOLE_JOB
declare -A values=([farandole]='' [nccl]='')
for ((round = 0; round < rounds; ++round)); do
  for subject in farandole nccl; do
    FARANDOLE_JOB=$job-$subject-$round
    export FARANDOLE_JOB
    # NCCL, too, prints lines to standard output, with NCCL_DEBUG.
    values[$subject]+="$("$program" bring_up "$subject" | tail -n 1) "
  done
done
[ "$FARANDOLE_RANK" = 0 ] || exit 0
median() {
  local sorted
  # shellcheck disable=SC2086  # a list of numbers
  mapfile -t sorted < <(printf '%s\n' $1 | sort -g)
  echo "${sorted[(rounds - 1) / 2]}"
}
printf '{"ranks": %s, "farandole_s": %s, "nccl_s": %s}\n' "$FARANDOLE_SIZE" "$(median "${values[farandole]}")" "$(median "${values[nccl]}")"
