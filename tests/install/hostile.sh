#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: hostile.sh COMPILER OBJECT_DIRECTORY LIBRARY NAMES OUTPUT
# Makes a library of functions that only abort. Their names are those that the objects of LIBRARY define, LIBRARY does not export,
# and NAMES matches. In a process that loads the hostile library first, LIBRARY calls such a function, and so aborts, wherever it is
# not bound to its own function.
set -euo pipefail
compiler=$1 objects=$2 library=$3 names=$4 output=$5
nm -D --defined-only "$library" | awk '{print $NF}' | sort >"$output.exported"
find "$objects" -name '*.o' -print0 | xargs -0 nm --defined-only | awk '$2 ~ /[TWV]/ {print $3}' | grep -E "$names" |
  sort -u | comm -23 - "$output.exported" >"$output.names"
[ "$(wc -l <"$output.names")" -gt 100 ] || { echo "hostile.sh: too few names in $objects"; exit 1; }
{
  echo .text
  while read -r name; do printf '.globl %s\n%s:\n' "$name" "$name"; done <"$output.names"
  echo 'call abort@PLT'
} >"$output.s"
"$compiler" -shared -Wl,-z,noexecstack -o "$output" "$output.s"
