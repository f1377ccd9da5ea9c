#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs tests.
#
#   tests/run.sh                                       all unit tests, and one or two of each other kind
#   tests/run.sh --full                                all tests, as CI does
#   tests/run.sh ARGUMENTS OF CTEST                    e.g. -L mpi, -R schedule
#   tests/run.sh --gpu [OUT_DIRECTORY]                 where a GPU is: its tests, figures and a report (build/gpu-report)
#   tests/run.sh --gpu-bundle DIRECTORY [TORCH_LIBRARY…]
#                                                      makes a folder to carry to a machine that has a GPU and little else;
#                                                      there, DIRECTORY/run OUT [SECONDS] does as --gpu
#   PRESET=asan tests/run.sh --full                    dev, release, asan, tsan, or ci, which is the default
#
# SKIP_SETUP=1 installs nothing. TENSORFLOW=2.16.2 tests with that version, in an environment of its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${PRESET:-ci}

# The build of --gpu and --gpu-bundle is apart from the others, and needs neither TensorFlow nor packages of Python.
build_for_gpu() {
  [ -n "${SKIP_SETUP-}" ] || scripts/setup.sh
  # shellcheck source=scripts/tools.sh
  source scripts/tools.sh
  use_tools build/none
  cmake --preset "${PRESET:-release}" -B build/gpu -DFARANDOLE_WITH_TENSORFLOW=OFF -DFARANDOLE_WITH_PYTHON=AUTO -DFARANDOLE_WITH_MPI=OFF
  cmake --build build/gpu --target farandole_gpu_tests
}

# absolute FOLDER, as the caller of this script sees it
absolute() {
  if [[ $1 = /* ]]; then echo "$1"; else echo "$OLDPWD/$1"; fi
}

run_on_gpu() {
  local out reason status=0
  out=$(if [ $# -gt 0 ]; then absolute "$1"; else echo "$PWD/build/gpu-report"; fi)
  reason=$(python3 tests/gpu/run.py look) || status=$?
  if [ $status = 77 ]; then echo "run.sh: no GPU, so nothing was built and run: $reason" >&2; exit 77; fi
  [ $status = 0 ] || { echo 'run.sh: --gpu needs a python3 that runs tests/gpu/run.py' >&2; exit 2; }
  build_for_gpu
  exec python3 tests/gpu/run.py build/gpu "$out"
}

# Refuses a long option that is neither this script's nor CTest's, which would run all tests without a word.
check_option() {
  local known='--full --gpu --gpu-bundle --help --build-and-test --debug --exclude-regex --fixture-exclude-any --label-exclude
    --label-regex --list-presets --no-tests --output-junit --output-log --output-on-failure --parallel --preset --print-labels
    --progress --quiet --repeat --rerun-failed --resource-spec-file --schedule-random --show-only --stop-on-failure --stop-time
    --test-dir --test-load --test-output-size-failed --test-output-size-passed --test-output-truncation --tests-information
    --tests-regex --tests-from-file --exclude-from-file --timeout --union --verbose --extra-verbose'
  [[ $1 = --* ]] || return 0
  [[ " ${known//$'\n'/ } " = *" ${1%%=*} "* ]] || {
    echo "run.sh: neither this script nor CTest has an option $1; tests/run.sh --help lists this script's" >&2
    exit 2
  }
}
for word in "$@"; do check_option "$word"; done

case ${1-} in
  '') chosen=(-L '^(unit|quick)$') ;;
  --full) shift; chosen=("$@") ;;
  --gpu) shift; run_on_gpu "$@" ;;
  --gpu-bundle)
    [ $# -ge 2 ] || { echo 'run.sh: --gpu-bundle needs the folder that it makes, for example .gpu' >&2; exit 2; }
    shift
    build_for_gpu
    paths=()
    for path in "$@"; do paths+=("$(absolute "$path")"); done
    exec tests/gpu/make_bundle.sh build/gpu "${paths[@]}" ;;
  --help | -h) sed -n 's/^#   //p; s/^# \(SKIP_SETUP.*\)/\n\1/p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) chosen=("$@") ;;
esac

readonly python_dir=build/python-venv${TENSORFLOW:+-$TENSORFLOW}
configure=()
runner=()
case $preset in
  dev | release | ci)
    [ -n "${SKIP_SETUP-}" ] || scripts/setup.sh --python "$python_dir" ${TENSORFLOW:+--tensorflow "$TENSORFLOW"}
    # The tests of Python run with the environment that setup.sh has made, if there is one.
    [ ! -x "$python_dir/bin/python" ] || configure=(-DPython_EXECUTABLE="$PWD/$python_dir/bin/python") ;;
  asan | tsan)
    [ -n "${SKIP_SETUP-}" ] || scripts/setup.sh
    # The sanitizers cannot see into the libraries of an MPI, so the ranks are threads here.
    configure=(-DFARANDOLE_WITH_MPI=OFF)
    # The barriers of OpenMP's library are as invisible: one kernel thread per replica.
    export OMP_NUM_THREADS=1
    export ASAN_OPTIONS="detect_stack_use_after_return=1:strict_string_checks=1:${ASAN_OPTIONS-}"
    export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS-}"
    export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:${TSAN_OPTIONS-}"
    # Where addresses are random the thread sanitizer of g++ 12 does not always find room for its own memory.
    [ "$preset" != tsan ] || runner=(setarch -R) ;;
  *) echo "run.sh: there is no preset $preset; use dev, release, asan, tsan or ci" >&2; exit 2 ;;
esac

# shellcheck source=scripts/tools.sh
source scripts/tools.sh
use_tools "$python_dir"
# A tree of the README is configured without tests.
cmake --preset "$preset" -DFARANDOLE_BUILD_TESTS=ON "${configure[@]}"
cmake --build --preset "$preset"
# Tests of jobs count as two, others as one. One more than cores, because many wait most of the time, for a deadline or a peer.
"${runner[@]}" ctest --preset "$preset" -j 3 "${chosen[@]}"
