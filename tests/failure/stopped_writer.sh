#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: stopped_writer.sh RANKS LAUNCHER... PROGRAM
# Checks the output of stopped_writer.cpp. Whether rank 1 stops early enough is a matter of luck, so the script tries a few
# times.
set -u
ranks=$1; shift
export FARANDOLE_TIMEOUT=1 FARANDOLE_SLICE_BYTES=4KiB FARANDOLE_LOG=off
export FARANDOLE_HOST_ID=farandole-stopped-$$
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
for attempt in 1 2 3 4 5 6; do
  mkdir "$work/$attempt"
  timeout --kill-after=5 30 "$@" "$work/$attempt" >"$work/output" 2>&1 </dev/null
  status=$?
  cat "$work/output"
  for process in /proc/[0-9]*; do
    # A rank that is still stopped cannot end by itself, and not every launcher kills it.
    grep -qz "^FARANDOLE_HOST_ID=$FARANDOLE_HOST_ID$" "$process/environ" 2>/dev/null || continue
    grep -qa stopped_writer "$process/cmdline" 2>/dev/null && kill -KILL "${process#/proc/}"
  done
  [ $status != 124 ] && [ $status != 137 ] || { echo "FAIL: it hung"; exit 1; }
  ! grep -q 'exception:' "$work/output" || { echo "FAIL: an exception"; exit 1; }
  [ "$(grep -c 'has raised Timeout' "$work/output")" = "$ranks" ] || { echo "FAIL: not all have raised Timeout"; exit 1; }
  [ "$(grep -c 'nothing has changed' "$work/output")" = $((ranks - 1)) ] || { echo "FAIL: not all have looked"; exit 1; }
  if grep -q 'not in the middle' "$work/output"; then continue; fi
  grep -q 'the former output was written' "$work/output" || { echo "FAIL: the rank did not go on"; exit 1; }
  echo "as expected"
  exit 0
done
echo "FAIL: the rank never stopped in the middle"
exit 1
