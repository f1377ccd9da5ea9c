#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: other_tensorflow.sh BUILD_DIRECTORY SOURCE PYTHON VERSION LAUNCHER
# Uses the package of a build tree with another version of TensorFlow than the build's: builds the ops ahead, by an interpreter
# without that TensorFlow, and runs tests of the ops and of Horovod's API with the result.
set -euo pipefail
build=$1 source=$2 python=$3 version=$4 launcher=$5
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir -m 700 "$work/cache"
export PYTHONPATH=$build/python PYTHONDONTWRITEBYTECODE=1 XDG_CACHE_HOME=$work/cache TF_CPP_MIN_LOG_LEVEL=2

fail() { echo "FAIL: $*"; tail -n 60 "$work/log"; exit 1; }
pip() {
  "$work/other/bin/python" -m pip --disable-pip-version-check -q install "$@" >"$work/log" 2>&1 ||
    { echo "skipped: pip cannot get $*"; exit 77; }
}

"$python" -m venv "$work/other"
pip "tensorflow-cpu==$version"
# tf-keras would install the package tensorflow over tensorflow-cpu.
pip --no-deps "tf-keras==${version%.*}.*"
library=$("$python" -m farandole.build_ops --tensorflow "$work/other/bin/python" 2>"$work/log") || fail 'no ops'
case $library in "$work/cache/farandole/"*"_${version}_"*.so) ;; *) fail "the ops are in $library" ;; esac
cd "$source/tests/python"
for test in tensorflow_ops_test.py '-m farandole.as_horovod horovod_conformance/run.py'; do
  # shellcheck disable=SC2086  # commands with their arguments
  $launcher "$work/other/bin/python" $test >"$work/log" 2>&1 </dev/null || fail "$test failed"
  ! grep -q 'farandole: building the ops' "$work/log" || fail "$test built the ops again"
done
echo "TensorFlow $version: $(basename "$library")"
