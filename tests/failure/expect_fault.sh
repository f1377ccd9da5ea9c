#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: expect_fault.sh [--all-raise] FAULT LAUNCHER... PROGRAM
# PROGRAM may have options of its own. Runs PROGRAM on 3 ranks with FAULT, on rank 1 unless noted below. Checks the exit status, the output, the time that
# survivors and launcher take to end, and that no process is left.
# --all-raise: the launcher does not end the survivors of a fault, so each survivor must detect the fault by itself.
#
# Bounds, in seconds on an idle machine:
raise_bound=2     # from the fault until each surviving rank has raised and left the job
deadline=4        # FARANDOLE_TIMEOUT where a rank stops; it also counts while the ranks join, which a busy machine slows
timeout_bound=$((deadline + raise_bound)) # as raise_bound if the deadline must pass first
launcher_bound=10 # added to the rank's bound: from the fault until the launcher has ended (Open MPI's launcher
                  # gives the ranks some seconds to end)
hang_bound=40     # of the whole test, with a slow start
maximum_seconds=100 # of the whole test, however slow the machine is
# FARANDOLE_TEST_SLOWNESS=N multiplies the bounds. Default: one-minute load average / number of cores, at least 1; the
# larger of the values before and after the job.
set -u
all_raise=no
[ "$1" != --all-raise ] || { all_raise=yes; shift; }
fault=$1; shift
bound=$raise_bound
case $fault in
  killed | crashes | exits_with_0 | quits_with_0 | orphans)
            status=fail text='rank 1 .*died|signal (9|11)|KILLED BY SIGNAL|EXIT CODE: (9|11|139)|without calling' ;;
  stopped)  status=fail text='Timeout: .*(not in it yet: rank 1 .*does not answer|waits for a message of 1000 f32 .*from rank 1 )'
            bound=$timeout_bound ;;
  exits)    status=fail text='rank 1 .*died|exit code: 7|EXIT CODE: 7' ;;
  # A launcher may kill rank 1, which has told the others, before rank 1 has written its exception.
  throws)   status=fail text='exception: no more data|rank 1 .* failed with an exception' ;;
  leaves)   status=fail text='PeerLost: .*(not in it yet: |from )rank 1 .*has left the job' ;;
  late)     status=ok   text='not in it yet: rank 1 .*does not answer' ;;
  # All ranks are stopped for longer than their deadline, and go on.
  suspended) status=ok  text='not in it yet: rank 1 .*does not answer' ;;
  lingers)  status=ok   text='leaving the job: waiting for .*still in it: rank 1 ' ;;
  # Where processes meet without MPI they know who is missing.
  joins_late) status=ok text='joining the job: waiting for |waits for process 1; each|process 1 has not come; each' ;;
  absent)   status=fail text='deadline of 1 s .*(joining the job: waiting for |waits for process 1; each|process 1 has not come; each)' bound=$hang_bound ;;
  # Rank 0 waits in the middle of joining, for a file that the test makes.
  killed_agreeing) status=fail text='joining the job: rank 1 .*died|process 1 .* has gone' ;;
  killed_joining) status=fail text='process 1 (.*pid.* )?has gone before|signal 9|KILLED BY SIGNAL|EXIT CODE: 9' ;;
  # Rank 0, while it waits for rank 1, which does not come.
  terminated_joining) status=fail text='signal 15|KILLED BY SIGNAL|EXIT CODE: 15' ;;
  killed_leaving) status=fail text='leaving the job (failed|when another rank failed): .*rank 1 .*died|signal 9|KILLED BY SIGNAL|EXIT CODE: 9' ;;
  # No fault, but one would not be noticed.
  unwatched) status=ok text="if one of 2 of the 2 other processes of this host dies, .*: pidfd_open is refused .*allow it in the sandbox" ;;
  mismatch) status=fail text='Mismatch: rank 0 .*1000 f32.*but rank 1 .*500 f32' ;;
  *) echo "unknown fault $fault"; exit 2 ;;
esac
# A launcher that leaves the survivors alone forgives the fault.
[ $all_raise = no ] || [ $status = ok ] || status=any
# MPICH's launcher kills the others when the first rank ends without MPI_Finalize, takes that rank's status for the job's,
# and says nothing itself or names a rank that it has killed. Where rank 1 does not wait for the others, they may be gone
# before they have named rank 1.
may_be_silent=no
case "$fault $*" in
  leaves\ *mpich*) status=any ;;
  exits\ *mpich*) may_be_silent=yes text="$text|EXIT CODE: 9" ;;
  # It may also drop what a survivor wrote before it ended with status 1.
  *_with_0\ *mpich*) status=any may_be_silent=yes text="$text|EXIT CODE: 1$" ;;
esac
slowness=${FARANDOLE_TEST_SLOWNESS-}
# Not for the library, which refuses what it does not know.
unset FARANDOLE_TEST_SLOWNESS
measure_slowness() {
  [ -z "$slowness" ] || { echo "$slowness"; return; }
  read -r load rest </proc/loadavg
  awk -v load="$load" -v cores="$(nproc)" 'BEGIN { print (load > cores) ? load / cores : 1 }'
}
slowness_before=$(measure_slowness)
scaled() { awk -v bound="$1" -v before="$slowness_before" -v after="$(measure_slowness)" \
  'BEGIN { print bound * (after > before ? after : before) }'; }
is_above() { awk -v value="$1" -v bound="$2" 'BEGIN { exit !(value > bound) }'; }

# Not where questions for a warning would hide that there are others.
[ $fault = leaves ] || export FARANDOLE_WARN_AFTER=0.4
case $fault in
  stopped) export FARANDOLE_TIMEOUT=$deadline ;;
  absent) export FARANDOLE_TIMEOUT=1 ;;
  suspended) export FARANDOLE_TIMEOUT=5; suspension=7 ;;
esac
tag=farandole-fault-$fault-$$
export FARANDOLE_HOST_ID=$tag
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
table_writer=
if [ "$fault" = killed_agreeing ]; then
  # Rank 0 reads the table after all ranks have joined and before they agree on settings. The open for writing returns when
  # rank 0 has opened the table for reading.
  mkfifo "$work/table"
  export FARANDOLE_TUNING=$work/table
  (exec 9>"$work/table"; touch "$work/asked"; until [ -e "$work/come" ]; do sleep 0.02; done; echo '{}' >&9) &
  table_writer=$!
fi
start=$SECONDS
# Below the time limit of the test, which would hide the output.
limit=$(awk -v bound="$(scaled $hang_bound)" -v maximum=$maximum_seconds 'BEGIN { print int(bound < maximum ? bound : maximum) }')
: >"$work/output"
timeout --kill-after=5 "$limit" "$@" "$fault" "$work" >"$work/output" 2>&1 </dev/null &
job=$!
until_said() { until grep -qE "$1" "$work/output" || [ $((SECONDS - start)) -ge "$limit" ]; do sleep 0.02; done; }
# Or its bound has passed, or the launcher has ended the job.
until_ended() { # RANK
  local end
  end=$(awk -v now="$EPOCHREALTIME" -v bound="$(scaled $raise_bound)" 'BEGIN { print now + bound }')
  until [ -e "$work/ended.$1" ] || is_above "$EPOCHREALTIME" "$end" || ! kill -0 $job 2>/dev/null; do sleep 0.02; done
}
kill_rank_1() { echo "$EPOCHREALTIME" >"$work/died"; kill -KILL "$(cat "$work/pid.1")"; }
case $fault in
  late | lingers | joins_late)
    until_said "$text"; touch "$work/come" ;;
  suspended)
    until_said "$text"
    kill -STOP $(cat "$work"/pid.?); sleep $suspension; kill -CONT $(cat "$work"/pid.?); touch "$work/come" ;;
  killed_agreeing)
    until [ -e "$work/asked" ] || [ $((SECONDS - start)) -ge "$limit" ]; do sleep 0.02; done
    kill_rank_1; until_ended 2; touch "$work/come" ;;
  killed_joining)
    until_said 'joining the job: waiting for |waits for process|has not come'; kill_rank_1; until_ended 0; touch "$work/come" ;;
  terminated_joining)
    until_said 'joining the job: waiting for '; kill -TERM "$(cat "$work/pid.0")" ;;
  killed_leaving)
    # Rank 2 leaves, too, and finds out; rank 0 comes later.
    until_said 'rank 1 .*leaving the job: waiting'; kill_rank_1
    until_ended 2; touch "$work/come" ;;
esac
wait $job; came=$?
over=$EPOCHREALTIME
[ -z "$table_writer" ] || kill "$table_writer" 2>/dev/null
cat "$work/output"
left=
for process in /proc/[0-9]*; do
  grep -qz "^FARANDOLE_HOST_ID=$tag" "$process/environ" 2>/dev/null || continue
  grep -qa faulty_rank "$process/cmdline" 2>/dev/null || continue
  # A stopped rank cannot end by itself, and not every launcher kills it; an orphan is there for the test.
  if [ "$fault" = stopped ] || [ "$fault" = orphans ]; then kill -KILL "${process#/proc/}"; else left="$left ${process#/proc/}"; fi
done
failed=
fail() { echo "FAIL: $*"; failed=yes; }
[ $((SECONDS - start)) -lt "$limit" ] || fail "it hung"
case $status in
  ok) [ $came = 0 ] || fail "exit status $came, expected 0" ;;
  fail) [ $came != 0 ] || fail "exit status 0" ;;
esac
# A slow start brings warnings, which are not about the fault.
is_silent() { ! grep -qv ' farandole warning ' "$work/output"; }
grep -qE "$text" "$work/output" || { [ $may_be_silent = yes ] && is_silent; } || fail "nothing that matches: $text"
[ -z "$left" ] || fail "processes are left:$left"

# seconds FROM TO
seconds() { awk -v from="$1" -v to="$2" 'BEGIN { printf "%.3f", to - from }'; }
if [ $status != ok ] && [ -e "$work/died" ]; then
  died=$(cat "$work/died")
  for rank in 0 2; do
    if [ ! -e "$work/ended.$rank" ]; then
      [ $all_raise = no ] || fail "rank $rank has not found out by itself"
      continue
    fi
    since=$died
    # It was elsewhere until then.
    case $fault.$rank in killed_leaving.0 | killed_agreeing.0) since=$(stat -c %.6Y "$work/come") ;; esac
    took=$(seconds "$since" "$(cat "$work/ended.$rank")")
    echo "rank $rank had let go of the job $took s after the fault"
    ! is_above "$took" "$(scaled $bound)" || fail "the bound is $bound s, here $(scaled $bound) s"
  done
  took=$(seconds "$died" "$over")
  [ $status = any ] || ! is_above "$took" "$(scaled $((bound + launcher_bound)))" ||
    fail "the job ended $took s after the fault; the bound is $((bound + launcher_bound)) s"
fi
[ -z "$failed" ] || exit 1
echo "as expected"
