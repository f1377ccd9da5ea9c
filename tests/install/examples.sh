#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: examples.sh BUILD_DIRECTORY EXAMPLES_DIRECTORY COMPILER [SANITIZERS]
# Copies the examples out of the repository, builds them against an installed Farandole, and runs them.
set -euo pipefail
build=$1 examples=$2 compiler=$3 sanitize=${4-}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAIL: $*"
  cat "$work/log"
  exit 1
}

cmake --install "$build" --prefix "$work/prefix" >"$work/log" || fail "not installed"
flags=()
[ -z "$sanitize" ] || flags=("-DCMAKE_CXX_FLAGS=-fsanitize=$sanitize" "-DCMAKE_C_FLAGS=-fsanitize=$sanitize")

# build_and_run LANGUAGE PROGRAM…: the first program is always built, the others if their packages are there
build_and_run() {
  local language=$1 built=$work/built_$1 program
  shift
  cp -r "$examples/$language" "$work/$language"
  cmake -S "$work/$language" -B "$built" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER="$compiler" "${flags[@]}" \
    >"$work/log" 2>&1 || fail "examples/$language: not configured"
  cmake --build "$built" -j 2 >"$work/log" 2>&1 || fail "examples/$language: not built"
  [ -x "$built/$1" ] || fail "there is no $1"
  for program in "$@"; do
    [ ! -x "$built/$program" ] || (cd "$work" && "$built/$program") || fail "$program ends with an error"
  done
}
build_and_run cpp allreduce own_loop custom_model
build_and_run c named_allreduce communicator_allreduce
