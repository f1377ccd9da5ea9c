#!/usr/bin/env bash
# usage: pip_install.sh SOURCE PYTHON [LAUNCHER…]
# Makes a wheel with no switch and no variable, looks into it, installs it into a fresh environment, and runs a test with
# what was installed, under each LAUNCHER (one argument each).
set -euo pipefail
source=$1 python=$2
shift 2
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
unset PYTHONPATH

fail() { echo "pip_install.sh: $*"; exit 1; }

"$python" -m venv "$work/venv"
pip=("$work/venv/bin/python" -m pip --disable-pip-version-check -q)
if ! "${pip[@]}" download --no-deps -d "$work/index" 'scikit-build-core>=0.11' >"$work/download.log" 2>&1; then
  echo "skipped: pip cannot get scikit-build-core"
  exit 77
fi
# pip takes a directory whose name looks like one of a release for a release, whose wheel it need not build twice.
"${pip[@]}" wheel --no-cache-dir --no-deps -w "$work/wheels" "$source" || fail "no wheel"
wheel=("$work"/wheels/farandole-*-py3-none-linux_*.whl)
[ -e "${wheel[0]}" ] || fail "unexpected name: $(ls "$work/wheels")"
"$work/venv/bin/python" -m zipfile -e "${wheel[0]}" "$work/content"
cd "$work/content"
for file in lib/libfarandole.so include/farandole/engine.h numpy.py tensorflow/mpi_ops.py tensorflow/source/ops.cpp; do
  [ -e "farandole/$file" ] || fail "the wheel has no farandole/$file"
done
libraries=$(find . -name '*.so*' ! -name 'libfarandole.so' ! -name 'libfarandole_mpi_*.so' ! -name 'libfarandole_tensorflow_*.so')
[ -z "$libraries" ] || fail "the wheel holds libraries of others: $libraries"
others=$(find . -path ./farandole -prune -o -type f ! -path './farandole-*.dist-info/*' -print)
[ -z "$others" ] || fail "the wheel holds more than the package: $others"
[ -z "$(ldd farandole/lib/libfarandole.so | grep -vE 'linux-vdso|libstdc\+\+|libgcc_s|libm\.|libc\.|ld-linux')" ] ||
  fail "libfarandole.so needs more than the C++ library: $(ldd farandole/lib/libfarandole.so)"
grep -q "^Version: $(sed -n 's/^## \([0-9.]*\).*/\1/p' "$source/CHANGELOG.md" | head -n 1)$" farandole-*.dist-info/METADATA ||
  fail "the wheel has another version than the changelog"

"${pip[@]}" install "${wheel[0]}" || fail "not installed"
cd "$source/tests/python"
export PYTHONDONTWRITEBYTECODE=1
"$work/venv/bin/python" -c 'import farandole; print(farandole.__file__, farandole.info()["plugins"])'
for launcher in "$@"; do
  # shellcheck disable=SC2086  # a command with its options
  $launcher "$work/venv/bin/python" lifecycle_test.py || fail "the test failed under $launcher"
done
