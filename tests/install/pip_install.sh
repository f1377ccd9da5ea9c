#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: pip_install.sh SOURCE PYTHON COMPILER [LAUNCHER…]
# Makes a source distribution, and from it a wheel and an editable install. Checks their contents, installs them into fresh
# environments, and runs tests with each installation, under each LAUNCHER (one argument each).
set -euo pipefail
source=$1 python=$2 compiler=$3
shift 3
here=$source/tests/install
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
unset PYTHONPATH
export PYTHONDONTWRITEBYTECODE=1
# A compiler cache finds what an earlier run has compiled, although each run has a directory of its own.
export CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1

fail() { echo "FAIL: $*"; cat "$work/log" 2>/dev/null; exit 1; }

# environment NAME: a fresh one, with numpy of the environment that tests run in
environment() {
  "$python" -m venv "$work/$1"
}
pip() {
  local environment=$1
  shift
  "$work/$environment/bin/python" -m pip --disable-pip-version-check -q "$@" >"$work/log" 2>&1
}

environment tools
if ! pip tools install 'scikit-build-core>=0.11'; then
  echo "skipped: pip cannot get scikit-build-core"
  exit 77
fi

# The source distribution is the checkout: it has the tests and the README's pictures, and CMake configures it.
mkdir "$work/sdist"
(cd "$source" && "$work/tools/bin/python" -c 'import sys; from scikit_build_core.build import build_sdist
print(build_sdist(sys.argv[1]))' "$work/sdist") >"$work/log" 2>&1 || fail "no source distribution"
tar -xzf "$work"/sdist/farandole-*.tar.gz -C "$work/sdist"
checkout=$(echo "$work"/sdist/farandole-*/)
for file in $(grep -oE '\]\([a-zA-Z0-9_./-]+\)' "$source/README.md" | tr -d '])(' | sort -u); do
  [ -e "$checkout/$file" ] || fail "the source distribution lacks $file, which the README shows or names"
done
# All of the checkout, so that it builds, tests and installs alike.
while IFS= read -r file; do
  cmp -s "$source/$file" "$checkout/$file" || fail "the source distribution lacks $file, or has another one"
done < <(git -C "$source" ls-files 2>/dev/null)
[ -x "$checkout/tests/run.sh" ] && [ -x "$checkout/scripts/setup.sh" ] || fail "the source distribution cannot be tested"
cmake -S "$checkout" -B "$work/configured" -G Ninja "-DCMAKE_CXX_COMPILER=$compiler" -DFARANDOLE_WITH_PYTHON=OFF \
  -DFARANDOLE_BUILD_TESTS=ON >"$work/log" 2>&1 || fail "CMake cannot configure the source distribution with its tests"

# pip takes a directory whose name looks like one of a release for a release, whose wheel it need not build twice.
mv "$checkout" "$work/source"
# What is looked at here depends neither on how well the compiler optimises, which takes two thirds of its time, nor on
# kernels for GPUs.
options=(-C "build-dir=$work/build" -C cmake.define.CMAKE_CXX_FLAGS_RELEASE=-DNDEBUG
         -C cmake.define.FARANDOLE_NVCC=
         -C "cmake.define.CMAKE_CXX_COMPILER=$compiler")
pip tools wheel --no-cache-dir --no-deps "${options[@]}" -w "$work/wheels" "$work/source" || fail "no wheel"
wheel=("$work"/wheels/farandole-*-py3-none-linux_*.whl)
[ -e "${wheel[0]}" ] || fail "unexpected name: $(ls "$work/wheels")"
"$python" -m zipfile -e "${wheel[0]}" "$work/content"
cd "$work/content"
version=$(sed -nE '/^## [0-9]/ { s/^## ([0-9.]+).*/\1/p; q }' "$source/CHANGELOG.md")
library=farandole/lib/libfarandole.so.${version%.*}
for file in "$library" farandole/include/farandole/engine.h farandole/numpy.py farandole/tensorflow/mpi_ops.py \
            farandole/tensorflow/source/ops.cpp; do
  [ -e "$file" ] || fail "the wheel has no $file"
done
for licence in LICENSE NOTICE THIRD_PARTY_LICENSES; do
  [ -e "farandole-$version.dist-info/licenses/$licence" ] || fail "the wheel's metadata has no $licence"
done
libraries=$(find . -name '*.so*' ! -name "$(basename "$library")" ! -path './farandole/lib/farandole/libfarandole_mpi_*.so' \
                   ! -path './farandole/lib/farandole/libfarandole_cuda.so' \
                   ! -name 'libfarandole_tensorflow_*.so')
[ -z "$libraries" ] || fail "the wheel holds more libraries: $libraries"
others=$(find . -path ./farandole -prune -o -type f ! -path './farandole-*.dist-info/*' -print)
[ -z "$others" ] || fail "the wheel holds more than the package: $others"
[ -z "$(ldd "$library" | grep -vE 'linux-vdso|libstdc\+\+|libgcc_s|libm\.|libc\.|ld-linux')" ] ||
  fail "$library needs more than the C++ library: $(ldd "$library")"
grep -q "^Version: $version$" farandole-*.dist-info/METADATA || fail "the wheel has another version than the changelog"
"$here/symbols.sh" --alone "$library" || fail "symbols"

# run_tests ENVIRONMENT [LAUNCHER…]: under no launcher and each of these; not beside the sources
run_tests() {
  local environment=$1 launcher program
  shift
  cd "$source/tests/python"
  for program in info run; do
    grep -qx "farandole-$program (Farandole) $version" <<<"$("$work/$environment/bin/farandole-$program" --version)" ||
      fail "farandole-$program does not come with $environment"
  done
  grep -q "^library  *$work/" <<<"$("$work/$environment/bin/farandole-info")" || fail "farandole-info prints no table"
  "$work/$environment/bin/python" -c 'import farandole; print(farandole.__file__, farandole.info()["library"], farandole.info()["plugins"])'
  for launcher in "$@"; do
    # shellcheck disable=SC2086  # a command with its options
    $launcher "$work/$environment/bin/python" lifecycle_test.py || fail "the test of $environment failed under $launcher"
  done
}
environment wheel
pip wheel install "${wheel[0]}" || fail "not installed"
run_tests wheel "$@"
# Whatever a process has loaded before, the library calls its own functions, also those of the libraries compiled into it.
"$here/hostile.sh" "$compiler" "$work/build" "$work/content/$library" '9farandole|3fmt2v|6spdlog|8nlohmann' "$work/hostile.so"
cat >"$work/hostile.py" <<'END'
import numpy
import farandole
import farandole.numpy as collectives

farandole.init()
assert farandole.info()["plugins"] is not None
assert collectives.allreduce(numpy.ones(1000), op=farandole.Sum).sum() == 1000
try:
    collectives.broadcast(numpy.ones(1), root_rank=7)
except farandole.errors.InvalidArgument as error:
    print("as expected:", error)
farandole.shutdown()
END
LD_PRELOAD=$work/hostile.so FARANDOLE_LOG=debug "$work/wheel/bin/python" "$work/hostile.py" >"$work/log" 2>&1 ||
  fail "symbols of another library get between those of the wheel's"

# Edited sources are what is imported; the libraries are those of the build. What the wheel has compiled is not again.
pip tools install numpy || fail "no numpy"
pip tools install --no-build-isolation --no-deps "${options[@]}" -e "$work/source" || fail "no editable install"
echo 'EDITED = True' >>"$work/source/bindings/python/farandole/numpy.py"
"$work/tools/bin/python" -c 'import farandole.numpy as f; assert f.EDITED' || fail "an edit of the sources is not seen"
run_tests tools "${@:1:1}"
