#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: killed_rank.sh PROGRAM TEST VARIABLE=VALUE…
# TEST kills one of four processes in the middle of a collective on device memory. Checks that the other three report this in
# time, and that the job's status is that of the killed process. The variables select the double.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/cli/expect.sh
source "$here/../cli/expect.sh"
program=$1 test=$2; shift 2
killed=137 # 128 + SIGKILL
ends $killed '' env "$@" "$here/../support/local_job.sh" -n 4 "$program" \
  --gtest_filter="$test"
has_lines 3 '^\[  PASSED  \] 1 test'
has_no 'misuse|FAILED|SKIPPED'
finish
