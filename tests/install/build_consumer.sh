#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: build_consumer.sh BUILD_DIRECTORY CONSUMER_SOURCE COMPILER [SANITIZERS]
# Installs into an empty folder, moves the folder, builds programs against it by CMAKE_PREFIX_PATH alone, and runs them.
set -euo pipefail
build=$1 source=$2 compiler=$3 sanitize=${4-}
here=$(dirname "${BASH_SOURCE[0]}")
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAIL: $*"
  cat "$work/log" 2>/dev/null
  exit 1
}

cmake --install "$build" --prefix "$work/first" >"$work/log" || fail "not installed"
mv "$work/first" "$work/moved"
prefix=$work/moved
for file in LICENSE NOTICE THIRD_PARTY_LICENSES; do
  [ -n "$(find "$prefix" -path "*/doc/*/$file")" ] || fail "$file is not installed"
done
library=$(find "$prefix" -name 'libfarandole.so.*.*.*')
libraries=("$library")
trainer=$(find "$prefix" -name 'libfarandole_trainer.so.*.*.*')
[ -z "$trainer" ] || libraries+=("$trainer")
cuda=$(find "$prefix" -path '*/farandole/libfarandole_cuda.so')
[ -z "$cuda" ] || libraries+=("$cuda")
[ -n "$sanitize" ] || "$here/symbols.sh" "${libraries[@]}" || fail "symbols"
[ ! -e "$prefix/include/farandole/internal" ] || fail "headers of our own parts are installed"
version=$(basename "$library"); version=${version#libfarandole.so.}
grep -q "SONAME.*\[libfarandole.so.${version%.*}\]" <<<"$(readelf -d "$library")" || fail "the SONAME is not that of ${version%.*}"

if [ -e "$build/bin/farandole-run" ]; then
  # Isolated and without site-packages: the launcher needs Python alone, and finds the library of its own installation.
  python3 -IS "$prefix/bin/farandole-run" --check-build >"$work/log" 2>&1 || fail "farandole-run does not start"
  grep -q "^library  *$prefix/" "$work/log" || fail "farandole-run uses another library"
  for file in man1/farandole-run.1 completions/farandole-run; do
    [ -n "$(find "$prefix/share" -path "*/$file")" ] || fail "$file is not installed"
  done
  if python3 -IS "$prefix/bin/farandole-run" --as-horovod >"$work/log" 2>&1; then fail "horovodrun without the Python package"; fi
fi

flags=()
[ -n "$sanitize" ] && flags=("-DCMAKE_CXX_FLAGS=-fsanitize=$sanitize")
# consumer NAME COMPILER OPTIONS…: configures a consumer in $work/NAME
consumer() {
  local name=$1 with=$2
  shift 2
  cmake -S "$source" -B "$work/$name" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$with" \
        -DCMAKE_BUILD_TYPE=Release "${flags[@]}" "$@" >"$work/log" 2>&1
}
run() {
  cmake --build "$work/$1" -j 2 >"$work/log" 2>&1 || fail "$1 was not built"
  "$work/$1/consumer" || fail "consumer of $1"
  [ ! -x "$work/$1/trainer_consumer" ] || "$work/$1/trainer_consumer" || fail "trainer_consumer of $1"
}

components=()
[ -z "$trainer" ] || components=(-DFARANDOLE_CONSUMER_COMPONENTS=trainer)
consumer built "$compiler" "${components[@]}" || fail "not configured"
run built
# A compiler of another maker reads the headers, too, and a later standard.
if [ -z "$sanitize" ]; then
  case $compiler in *clang*) other=g++ ;; *) other=clang++ ;; esac
  if command -v "$other" >/dev/null; then
    consumer other "$other" -DCMAKE_CXX_STANDARD=23 || fail "not configured with $other"
    run other
  else
    echo "there is no $other to build a consumer with"
  fi
  "$here/hostile.sh" "$compiler" "$build/CMakeFiles/farandole_objects.dir" "$library" '^_ZNK?(9farandole|6spdlog)' \
    "$work/hostile.so"
  LD_PRELOAD=$work/hostile.so "$work/built/consumer" || fail "symbols of a program get between those of the library"
fi

if consumer missing "$compiler" -DFARANDOLE_CONSUMER_COMPONENTS=engine; then fail "a component that does not exist is found"; fi
grep -q "no component 'engine'" "$work/log" || fail "nothing says what components there are"
find "$prefix" -name 'farandole-trainer-targets*.cmake' -delete
if consumer bare "$compiler" -DFARANDOLE_CONSUMER_COMPONENTS=trainer; then fail "a trainer that is not installed is found"; fi
grep -q "without the trainer" "$work/log" || fail "nothing says that the trainer is missing"
! "$compiler" -std=c++17 -fsyntax-only -I "$prefix/include" "$source/main.cpp" 2>"$work/log" || fail "C++17 reads the headers"
grep -q 'headers need C++20' "$work/log" || fail "nothing says that the headers need C++20"
[ "$(grep -c 'error:' "$work/log")" = 2 ] || fail "other errors follow the one that says what the headers need"
cat >"$work/structure.cpp" <<'TEXT'
#include <farandole/collectives/communicator.h>
#include <complex>
#include <vector>
void send(farandole::Communicator& ranks, std::vector<std::complex<float>>& values) { ranks.broadcast(values, 0); }
TEXT
! "$compiler" -std=c++20 -fsyntax-only -I "$prefix/include" "$work/structure.cpp" 2>"$work/log" || fail "complex numbers are taken for elements"
grep -q 'no DType for this C++ type.*bool, integers.*byte_view' "$work/log" || fail "nothing says what elements may be"
sed -i 's/broadcast(values, 0)/broadcast(farandole::byte_view(values), 0)/' "$work/structure.cpp"
"$compiler" -std=c++20 -fsyntax-only -I "$prefix/include" "$work/structure.cpp" 2>"$work/log" || fail "byte_view does not take complex numbers"
[ ! -e "$prefix/bin/farandole-info" ] || "$prefix/bin/farandole-info"
