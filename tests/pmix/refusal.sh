#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: refusal.sh SECONDS PATTERN COMMAND…
# Checks that the command fails within SECONDS, and that a line of its output matches the pattern.
set -uo pipefail
seconds=$1 pattern=$2
shift 2
output=$(timeout --kill-after=5 "$seconds" "$@" 2>&1)
status=$?
echo "$output"
fail() { echo "FAIL: $*"; exit 1; }
[ $status != 124 ] || fail "it has not ended within $seconds s"
[ $status != 0 ] || fail 'it has not failed'
grep -qE -- "$pattern" <<<"$output" || fail "no line matches: $pattern"
