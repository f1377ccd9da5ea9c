#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: absolute.sh BUILD_DIRECTORY SOURCE COMPILER
# Installs with absolute directories in separate trees, as Nix does, and checks that programs start there and find the plug-ins.
# Builds with the options of BUILD_DIRECTORY, so that the compiler's cache has all objects.
set -euo pipefail
build=$1 source=$2 compiler=$3
work=$(mktemp -d)
# Beside the build, as deep in the tree: a compiler's cache compares relative paths.
tree=$build-absolute
trap 'rm -rf "$work" "$tree"' EXIT

fail() { echo "FAIL: $*"; cat "$work/log"; exit 1; }

same=()
for option in CMAKE_BUILD_TYPE CMAKE_UNITY_BUILD FARANDOLE_ASSERTIONS FARANDOLE_WARNINGS_AS_ERRORS FARANDOLE_WITH_MPI FARANDOLE_WITH_CUDA; do
  same+=("-D$option=$(sed -n "s/^$option:[A-Z]*=//p" "$build/CMakeCache.txt")")
done
cmake -S "$source" -B "$tree" -G Ninja "-DCMAKE_CXX_COMPILER=$compiler" "${same[@]}" -DFARANDOLE_BUILD_TESTS=OFF \
  -DFARANDOLE_BUILD_EXAMPLES=OFF -DFARANDOLE_BUILD_TRAINER=OFF -DFARANDOLE_WITH_PYTHON=OFF \
  "-DCMAKE_INSTALL_PREFIX=$work/out" "-DCMAKE_INSTALL_LIBDIR=$work/lib/lib" "-DCMAKE_INSTALL_INCLUDEDIR=$work/dev/include" \
  >"$work/log" 2>&1 || fail 'not configured'
cmake --build "$tree" -j 2 >"$work/log" 2>&1 || fail 'not built'
cmake --install "$tree" >"$work/log" 2>&1 || fail 'not installed'
rm -rf "$tree"
[ -e "$work/dev/include/farandole/engine.h" ] || fail 'the headers are elsewhere'
"$work/out/bin/farandole-info" >"$work/log" 2>&1 || fail 'the program does not start'
for plugin in "$work"/lib/lib/farandole/libfarandole_*.so; do
  [ -e "$plugin" ] || continue
  name=${plugin##*/libfarandole_}
  if [ "$name" = cuda.so ]; then
    grep -q 'devices.*no plug-in cuda' "$work/log" && fail "$plugin is not found"
  else
    grep -q "plug-ins.*${name%.so}" "$work/log" || fail "$plugin is not found"
  fi
  needed=$(ldd "$plugin")
  grep -q "libfarandole.so.* => $work/lib/lib/" <<<"$needed" || fail "$plugin does not find its library: $needed"
done
echo 'absolute directories'
