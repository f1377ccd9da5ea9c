#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: share.sh PROCESSES MODE LAUNCHER… pmix_share     MODE: -, or one of pmix_share's
# Checks that each process knows its number, and that all processes get the same four texts of 32 bytes, all different.
set -euo pipefail
count=$1 mode=$2
shift 2
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
output=$("$@" "$directory" "$mode" 2>&1) || { echo "FAIL: status $?"; echo "$output"; exit 1; }
echo "$output"
fail() { echo "FAIL: $*"; exit 1; }
for ((process = 0; process < count; ++process)); do
  [ "$(grep -c "^process $process of $count in " <<<"$output")" = 2 ] || fail "process $process has not joined twice"
done
[ "$(grep -c '^shared ' <<<"$output")" = "$count" ] || fail "not $count processes have got what was shared"
[ "$(grep '^shared ' <<<"$output" | sort -u | wc -l)" = 1 ] || fail 'the processes have got different bytes'
texts=$(grep -m1 '^shared ' <<<"$output" | cut -d' ' -f2 | grep -oE '.{64}' | sort -u | wc -l)
[ "$texts" = 4 ] || fail "$texts different texts of 32 bytes have come, not 4"
