#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: hung_stream.sh FAULTS_PROGRAM VARIABLE=VALUE…
# Checks that the library ends a program after the deadline, with a report, if the program's device hangs in a call that its
# peer does not make, or in a replay of a graph, while the program waits only for its stream. The variables select the double.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/cli/expect.sh
source "$here/../cli/expect.sh"
program=$1; shift
run_job() {  # VARIABLE=VALUE… CASE
  ends 1 '' env "${@:1:$#-1}" FARANDOLE_TIMEOUT=2 "$here/../support/local_job.sh" -n 2 "$program" \
    --gtest_filter="DirectFaults.${!#}"
}
begin=$SECONDS
run_job "$@" AProgramThatOnlyWaitsForItsStreamIsEnded
has_lines 1 'rank 0 .*for its device to end call 2 .*communicator .steps.*; not in it yet: rank 1 .*the process ends in 3 s,'
has_no 'misuse|FAILED|SKIPPED'
run_job "$@" FARANDOLE_WARN_AFTER=1 AProgramThatOnlyWaitsForItsReplayIsEnded
has_lines 1 'warning.*rank 0 .*for its device to end a replay of captured call 2 .*allreduce of 1000 i32 .*communicator .steps.'
has_lines 2 'rank 0 .*for its device to end a replay of captured call 2 .*communicator .steps.*the process ends in 3 s,'  # both ranks
has_no 'misuse|FAILED|SKIPPED'
[ $((SECONDS - begin)) -lt 30 ] || fail "it took $((SECONDS - begin)) s"
finish
