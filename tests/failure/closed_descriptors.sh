#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: closed_descriptors.sh RANKS PROGRAM LAUNCHER...
# Checks that ranks have right results, although they and the library print, if their standard descriptors are closed from the
# start, as under cron and daemons, or are closed later. PROGRAM is closed_rank; LAUNCHER starts the command after it RANKS times.
set -u
ranks=$1 program=$2; shift 2
directory=$(mktemp -d); trap 'rm -rf "$directory"' EXIT
export FARANDOLE_LOG=debug FARANDOLE_TIMEOUT=20
failures=0
# job CLOSED ARGUMENT...: CLOSED is what the shell closes for each rank
job() {
  local closed=$1 results=$directory/results; shift
  rm -f "$results"
  timeout --kill-after=5 50 "${launcher[@]}" bash -c "exec \"\$@\" $closed" _ "$program" "$results" "$@" >"$directory/output" 2>&1 </dev/null
  local status=$? right
  right=$(grep -c '^all right on rank' "$results" 2>/dev/null)
  [ "$status" = 0 ] && [ "${right:-0}" = "$ranks" ] && return
  echo "FAIL, closed '$closed' $*: exit status $status, ${right:-0} ranks of $ranks have right results"
  cat "$results" 2>/dev/null; tail -5 "$directory/output"
  failures=$((failures + 1))
}
launcher=("$@")
job '<&- >&- 2>&-'
job '2>&-'
job '>&- 2>&-'
job '<&-'
job '' late
[ "$failures" = 0 ] && echo "right results with every set of closed descriptors"
exit "$failures"
