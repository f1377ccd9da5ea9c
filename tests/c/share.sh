#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: share.sh RANKS PROGRAM
# Runs PROGRAM DIRECTORY RANK RANKS for every rank, without a launcher: the ranks share texts through files in DIRECTORY.
set -u
ranks=$1 program=$2
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir "$work/again"
pids=()
for ((rank = 0; rank < ranks; ++rank)); do
  "$program" "$work" "$rank" "$ranks" & pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=1; done
exit $status
