#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: first_hour.sh DIRECTORY [PYTHON_ENVIRONMENT]
# Measures how long a newcomer waits, from `git clone` of this checkout's commit into DIRECTORY, which must not exist, to the
# first training step of farandole-train and to the first epoch of Keras. Prints the seconds of each command. Compilers use no
# cache. With PYTHON_ENVIRONMENT its packages, such as TensorFlow, are used, and nothing is installed there; without it
# scripts/setup.sh downloads the packages.
set -euo pipefail
[ $# -ge 1 ] || { sed -n 's/^# usage: /usage: /p' "${BASH_SOURCE[0]}" >&2; exit 2; }
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
directory=$1 environment=${2:+$(cd "$2" && pwd)}
[ ! -e "$directory" ] || { echo "first_hour.sh: $directory exists already" >&2; exit 2; }
export CCACHE_DISABLE=1
total=0

# timed NAME COMMAND…: prints NAME, the seconds of the command, and the seconds since the beginning
timed() {
  local name=$1 start=$SECONDS log=$directory.log
  shift
  "$@" >>"$log" 2>&1 || { echo "first_hour.sh: failed: $* (output: $log)" >&2; exit 1; }
  total=$((total + SECONDS - start))
  printf '| %s | %d s | %d s |\n' "$name" $((SECONDS - start)) "$total"
}

: >"$directory.log"
printf '| command | time | since the beginning |\n| --- | --- | --- |\n'
timed 'git clone' git clone -q "$source" "$directory"
cd "$directory"
directory=$PWD
timed 'examples/fashion_mnist.sh, until the first training step' examples/fashion_mnist.sh --max-steps 1 --quiet
total=0
if [ -n "$environment" ]; then
  "$environment/bin/python" -m venv env
  packages=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "$packages" >"$(env/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/packages.pth"
else
  timed 'scripts/setup.sh --python env' scripts/setup.sh --python env
fi
PATH=$directory/env/bin:$PATH
timed 'pip install .' python -m pip install .
timed 'the first epoch of keras_fit.py, 2 ranks' farandole-run -np 2 python examples/python/keras_fit.py --epochs 1
