#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: slow_report.sh BUILD_DIRECTORY LAUNCHER...
# Two processes of a program fail, and the process that knows the reason cannot print it for a while, because nobody reads its
# standard error. Checks that the reason is printed before any rank ends with a status other than 0, because launchers then end
# the other ranks. LAUNCHER starts two processes; local_job.sh does not end the survivors.
bin=$(cd "$1" && pwd)/bin; shift
launcher=("$@")
# shellcheck source=tests/cli/expect.sh
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
cat >rank <<'RANK'
#!/bin/sh
# usage: rank SLOW_RANK ODD_RANK ODD_OPTION PROGRAM [ARGUMENT...]: ODD_RANK alone has the option, too
rank=${OMPI_COMM_WORLD_RANK-${PMI_RANK-$FARANDOLE_RANK}}
slow=$1 odd=$2 option=$3; shift 3
[ "$rank" != "$odd" ] || set -- "$@" "$option"
# The library says that it waits, but not where that could not be printed.
export FARANDOLE_WARN_AFTER=0.4
if [ "$rank" = "$slow" ]; then
  echo $$ >slow_pid
  export FARANDOLE_LOG=off
  exec 2>held
fi
exec "$@"
RANK
chmod +x rank
# MPICH's launcher ends with the statuses of all ranks in one, by a bitwise or; that of a rank that it ends is 9.
merged=
[[ $("${launcher[0]}" --version 2>&1 </dev/null) != *HYDRA* ]] || merged='3 9 11'

# start SLOW_RANK ODD_RANK ODD_OPTION PROGRAM [ARGUMENT...]: in the background; all that it prints is in `out`, but for
# what its slow rank has for standard error, which comes to a full pipe.
start() {
  rm -f held; mkfifo held
  exec 3<>held
  dd if=/dev/zero of=held bs=4096 oflag=nonblock 2>/dev/null
  : >out
  timeout 60 "${launcher[@]}" ./rank "$@" >out 2>&1 </dev/null 3>&- &
  job=$!
  running="$*"
}
# The other rank has printed such a line while the slow one could not.
until_other_says() {
  local is_over=
  until grep -qE "$1" out; do
    [ -z "$is_over" ] || { fail "ended without a line like: $1; of: $running"; return; }
    # What it has printed before its end is looked at once more.
    kill -0 $job 2>/dev/null || is_over=yes
    sleep 0.02
  done
}
until_other_waits() { until_other_says "not in it yet: rank $1|leaving the job: waiting"; }
# ended STATUSES: the slow rank prints from now on, to `shown`.
ended() {
  local came=0
  exec 4<held 3>&-
  tr -d '\0' <&4 >shown &
  local reader=$!
  exec 4<&-
  wait $job || came=$?
  wait $reader
  [[ " $1 " = *" $came "* ]] || fail "exit status $came (expected $1), of: $running"
}
# said COUNTS PATTERN: by both ranks together
said() {
  local lines
  lines=$(cat shown out | grep -cE -- "$2")
  [[ " $1 " = *" $lines "* ]] || { cat shown >>out; fail "$lines lines (expected $1) match: $2; of: $running"; }
}
bench=("$bin/farandole-bench" --max-bytes 64 --iterations 3)

# Rank 0's error is that of all ranks.
start 0 none '' "${bench[@]}" --json nowhere/x.json
until_other_waits 0
ended 1
said 1 '^farandole-bench: DataError: rank 0: The results cannot be written to nowhere/x.json: '
if [ -x "$bin/farandole-train" ]; then
  start 0 none '' "$bin/farandole-train" --data-dir nowhere
  until_other_waits 0
  ended 1
  said 1 '^farandole-train: DataError: rank 0: nowhere/train-images'
fi
start 0 none '' "${bench[@]}" --root 2
until_other_waits 0
ended 2
said 1 '^farandole-bench: InvalidArgument: rank 0: --root is 2'

# One rank's own error, before the job is told of it; the other rank has a status and a text of its own then.
start 1 1 --root=5 "${bench[@]}"
until_other_waits 1
ended 2
said 1 '^farandole-bench: InvalidArgument: rank 1: --root is 5'
# The same of a call that the library refuses, which the other rank is told of by the call itself.
start 1 1 --dtype=bool "${bench[@]}" --op average
until_other_waits 1
ended "1 2 $merged"
said 1 '^farandole-bench: InvalidArgument: rank 1: .*no average of bool'
said 1 '^farandole-bench: Mismatch: rank 0: rank 0 .* but rank 1 .* with arguments that it refuses'
# Different calls: rank 0 prints the difference, and the other rank that it is the same error.
start 0 1 --dtype=i64 "${bench[@]}"
until_other_waits 0
ended "1 $merged"
said 1 '^farandole-bench: Mismatch: rank 0: .* but rank 1 '
said 1 "^farandole-bench: Mismatch: rank 1: the same error as rank 0's$"

# Every rank has the error by itself, and whichever is first has printed it.
each_says() { # STATUS PATTERN COMMAND...
  start 0 none '' "${@:3}"
  until_other_says "$2"
  ended "$1 $merged"
  said '1 2' "$2"
}
each_says 1 '^farandole-info: DataError: rank [01]: FARANDOLE_TUNING is' \
  env FARANDOLE_TUNING=missing "$bin/farandole-info" --explain allreduce 60
each_says 2 '^farandole-schedule: InvalidArgument: rank [01]: There is no command' "$bin/farandole-schedule" shwo
[ ! -x "$bin/farandole-train" ] || each_says 2 '^farandole-train: InvalidArgument: rank 1: .*--epochz' "$bin/farandole-train" --epochz 3

# The rank with the reason dies instead, or has not printed it when a deadline has passed: the others know it.
if [[ ${launcher[0]} = *local_job.sh ]]; then
  start 0 none '' "${bench[@]}" --json nowhere/x.json
  until_other_waits 0
  kill -KILL "$(cat slow_pid)"
  until_other_says '^farandole-bench: DataError: rank 1: rank 0 reports: The results cannot be written to nowhere/x.json: '
  ended '1 137'
  said 1 '^farandole-bench: DataError: rank [01]: (rank 0 reports: )?The results cannot be written to nowhere/x.json: '
  start 0 none '' env FARANDOLE_TIMEOUT=5 "${bench[@]}" --json nowhere/x.json
  until_other_says '^farandole-bench: DataError: rank 1: rank 0 reports: The results cannot be written to nowhere/x.json: '
  ended 1
fi
finish
