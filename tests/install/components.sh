#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: components.sh BUILD_DIRECTORY PYTHON
# Installs each component alone, as packages of a distribution do. Checks that each contains what docs/packaging.md says, and that
# the Python package works with its own libraries and with those of the system.
set -euo pipefail
build=$1 python=$2
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
unset PYTHONPATH
export PYTHONDONTWRITEBYTECODE=1

fail() { echo "FAIL: $*"; cat "$work/log"; exit 1; }

install_component() {
  cmake --install "$build" --component "$1" --prefix "$work/$2" >"$work/log" 2>&1 || fail "component $1"
}
# holds DIRECTORY PATTERN: nothing but files that match, and at least one
holds() {
  local files others
  files=$(cd "$work/$1" && find . -type f -o -type l)
  [ -n "$files" ] || fail "$1 is empty"
  others=$(grep -vE "$2" <<<"$files" || true)
  [ -z "$others" ] || fail "$1 holds more than it should: $others"
}
install_component runtime runtime
holds runtime '/libfarandole\.so\.[0-9.]+$|/doc/[^/]*/(LICENSE|NOTICE|THIRD_PARTY_LICENSES)$'
install_component development development
holds development '/include/farandole/|/libfarandole\.so$|/cmake/farandole/|/farandole\.pc$'
! find "$work/development" -path '*trainer*' | grep . || fail 'development holds the trainer'
install_component programs programs
holds programs '/bin/farandole-(bench|info|run|schedule)$|/man1/|/completions/|/farandole/launch/farandole/'
for flavour in openmpi mpich; do
  [ -e "$build/lib/farandole/libfarandole_mpi_$flavour.so" ] || continue
  install_component "mpi_$flavour" "mpi_$flavour"
  holds "mpi_$flavour" "/farandole/libfarandole_mpi_$flavour\.so$"
  cp -r "$work/mpi_$flavour/." "$work/runtime"
done
if [ -e "$build/lib/farandole/libfarandole_cuda.so" ]; then
  install_component cuda cuda
  holds cuda '/farandole/libfarandole_cuda\.so$'
  ! readelf -d "$(find "$work/cuda" -name libfarandole_cuda.so)" | grep -E 'NEEDED.*lib(cuda|nccl)' || fail 'the plug-in for CUDA is linked with CUDA'
fi
if [ -e "$build/lib/farandole/libfarandole_trainer_cuda.so" ]; then
  install_component trainer_cuda trainer_cuda
  holds trainer_cuda '/farandole/libfarandole_trainer_cuda\.so$'
  ! readelf -d "$(find "$work/trainer_cuda" -name libfarandole_trainer_cuda.so)" | grep -E 'NEEDED.*lib(cuda|cublas|cudnn)' ||
    fail "the trainer's plug-in is linked with CUDA"
fi

# asks NAME: the library that Python loads, and the plug-ins that it finds
asks() {
  (cd "$work" && "$python" -c 'import farandole; print(farandole.info()["library"], *farandole.info()["plugins"])') \
    2>"$work/log" || fail "$1: farandole is not imported"
}
install_component python python
export PYTHONPATH=$work/python
own=$(asks 'libraries of its own')
[[ $own == "$work/python/farandole/lib/"* ]] || fail "not the package's own library: $own"
rm -r "$work/python/farandole/lib"
library=$(dirname "$(find "$work/runtime" -name 'libfarandole.so.*' -print -quit)")
system=$(LD_LIBRARY_PATH=$library asks 'libraries of the system')
[[ $system == "$library/"* ]] || fail "not the system's library: $system"
[ "${own#* }" = "${system#* }" ] || fail "plug-ins '${own#* }' or '${system#* }'"
if (cd "$work" && "$python" -c 'import farandole') 2>"$work/log"; then fail 'imported without any library'; fi
grep -q "there is no libfarandole.so" "$work/log" || fail 'nothing says what is missing'
echo "components; Python with its own and the system's libraries"
