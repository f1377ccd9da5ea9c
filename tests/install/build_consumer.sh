#!/usr/bin/env bash
# usage: build_consumer.sh BUILD_DIRECTORY CONSUMER_SOURCE COMPILER [SANITIZERS]
# Installs into an empty folder, builds a program against it with nothing but CMAKE_PREFIX_PATH, and runs it.
set -euo pipefail
build=$1 source=$2 compiler=$3 sanitize=${4-}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
flags=()
[ -n "$sanitize" ] && flags=("-DCMAKE_CXX_FLAGS=-fsanitize=$sanitize")
cmake -S "$source" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER="$compiler" \
      -DCMAKE_BUILD_TYPE=Release "${flags[@]}" >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build" -j 2
"$work/build/consumer"
[ ! -x "$work/build/trainer_consumer" ] || "$work/build/trainer_consumer"
[ ! -e "$work/prefix/bin/farandole-info" ] || "$work/prefix/bin/farandole-info"
