#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs tests.
#
#   tests/run.sh                                       all unit tests, and one or two of each other kind
#   tests/run.sh --full                                all tests, as CI does
#   tests/run.sh ARGUMENTS OF CTEST                    e.g. -L mpi, -R schedule
#   PRESET=asan tests/run.sh --full                    dev, release, asan, tsan, or ci, which is the default
#
# SKIP_SETUP=1 installs nothing. TENSORFLOW=2.16.2 tests with that version, in an environment of its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${PRESET:-ci}

case ${1-} in
  '') chosen=(-L '^(unit|quick)$') ;;
  --full) shift; chosen=("$@") ;;
  --help | -h) sed -n 's/^#   //p; s/^# \(SKIP_SETUP.*\)/\n\1/p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) chosen=("$@") ;;
esac

readonly python_dir=build/python-venv${TENSORFLOW:+-$TENSORFLOW}
configure=()
case $preset in
  dev | release | ci)
    [ -n "${SKIP_SETUP-}" ] || scripts/setup.sh --python "$python_dir" ${TENSORFLOW:+--tensorflow "$TENSORFLOW"}
    # The tests of Python run with the environment that setup.sh has made, if there is one.
    [ ! -x "$python_dir/bin/python" ] || configure=(-DPython_EXECUTABLE="$PWD/$python_dir/bin/python") ;;
  asan | tsan)
    [ -n "${SKIP_SETUP-}" ] || scripts/setup.sh
    # The sanitizers can not see into the libraries of an MPI, so the ranks are threads here.
    configure=(-DFARANDOLE_WITH_MPI=OFF)
    # The barriers of OpenMP's library are as invisible: one kernel thread per replica.
    export OMP_NUM_THREADS=1
    export ASAN_OPTIONS="detect_stack_use_after_return=1:strict_string_checks=1:${ASAN_OPTIONS-}"
    export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS-}"
    export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:${TSAN_OPTIONS-}" ;;
  *) echo "run.sh: there is no preset $preset; use dev, release, asan, tsan or ci" >&2; exit 2 ;;
esac

# shellcheck source=scripts/tools.sh
source scripts/tools.sh
use_tools "$python_dir"
cmake --preset "$preset" "${configure[@]}"
cmake --build --preset "$preset"
# Tests of jobs take two cores; those of one thread run side by side.
ctest --preset "$preset" -j 2 "${chosen[@]}"
