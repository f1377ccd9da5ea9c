#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: report_on_double.sh PYTHON BUILD_DIRECTORY
# The report of tests/run.sh --gpu on the double, which the environment chooses: it must be whole, and say what it is. And
# without a driver run.sh must say why, and build nothing.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
fail() { echo "FAIL: $*"; exit 1; }

"$1" "$source/tests/gpu_report.py" run "$2" "$work/out" --quick || fail "it ended with $?"
page=$work/out/gpu-report.md
grep -q '^\*\*Not a GPU result: the driver is the double' "$page" || fail 'the page does not say that it is the double'
grep -qE '^[1-9][0-9]* passed, 0 failed' "$page" || fail 'no tests passed'
for text in 'fake device 1' '| pack |' 'per NCCL group' 'bring-up of NCCL alone, 2 ranks' '^| 1024 |'; do
  grep -q -- "$text" "$page" || fail "the page has no '$text'"
done
if grep -qE '\| (met|\*\*missed\*\*) \|' "$page"; then fail 'a target was judged on the double'; fi
grep -q '"is_double": true' "$work/out/gpu-report.json" || fail 'the JSON does not say that it is the double'

said=$(FARANDOLE_CUDA_LIBRARY=/nowhere/libcuda.so.1 "$source/tests/run.sh" --gpu "$work/none")
[[ $said == 'run.sh: no GPU, so nothing was built and run: FARANDOLE_CUDA_LIBRARY: /nowhere/libcuda.so.1: '* ]] || fail "$said"
[ ! -e "$work/none" ] || fail 'there is a report of nothing'
