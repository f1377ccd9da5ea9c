#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: examples.sh BUILD_DIRECTORY EXAMPLES COMPILER [SANITIZERS]
# The examples, copied out of the repository, build against an installed Farandole, and run.
set -euo pipefail
build=$1 examples=$2 compiler=$3 sanitize=${4-}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAIL: $*"
  cat "$work/log"
  exit 1
}

cmake --install "$build" --prefix "$work/prefix" >"$work/log" || fail "not installed"
cp -r "$examples" "$work/examples"
flags=()
[ -z "$sanitize" ] || flags=("-DCMAKE_CXX_FLAGS=-fsanitize=$sanitize")
cmake -S "$work/examples" -B "$work/built" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER="$compiler" "${flags[@]}" \
  >"$work/log" 2>&1 || fail "not configured"
cmake --build "$work/built" -j 2 >"$work/log" 2>&1 || fail "not built"
[ -x "$work/built/allreduce" ] || fail "there is no allreduce"
for program in allreduce own_loop custom_model; do
  [ ! -x "$work/built/$program" ] || (cd "$work" && "built/$program") || fail "$program ends with an error"
done
