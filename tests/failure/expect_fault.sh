#!/usr/bin/env bash
# usage: expect_fault.sh FAULT LAUNCHER... PROGRAM
# Runs the program with a fault on rank 1 of 3 and checks the exit status, what is said, and that nothing stays behind.
set -u
fault=$1; shift
case $fault in
  killed)   status=fail text='rank 1 .*died|signal 9|KILLED BY SIGNAL|EXIT CODE: 9' ;;
  orphans)  status=fail text='rank 1 .*died' ;;
  stopped)  status=fail text='Timeout: .*not in it yet: rank 1 .*does not answer' ;;
  # MPICH's launcher may end the others before they have said anything, and says nothing itself.
  exits)    status=fail text='rank 1 .*died|exit code: 7|EXIT CODE: 7|^$' ;;
  throws)   status=fail text='exception: no more data' ;;
  late)     status=ok   text='not in it yet: rank 1 .*does not answer' ;;
  lingers)  status=ok   text='leaving the job: waiting for .*still in it: rank 1 ' ;;
  # Where processes meet without MPI they know who is missing.
  joins_late) status=ok text='joining the job: waiting for |waits for process 1; each' ;;
  absent)   status=fail text='deadline of 1 s .*(joining the job: waiting for |waits for process 1; each)' ;;
  mismatch) status=fail text='Mismatch: rank 0 .*1000 f32.*but rank 1 .*500 f32' ;;
  *) echo "unknown fault $fault"; exit 2 ;;
esac
limit=40
export FARANDOLE_WARN_AFTER=0.4
case $fault in stopped | absent) export FARANDOLE_TIMEOUT=1 ;; esac
tag=farandole-fault-$fault-$$
export FARANDOLE_HOST_ID=$tag
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
start=$SECONDS
: >"$work/output"
timeout --kill-after=5 $limit "$@" "$fault" "$work/come" >"$work/output" 2>&1 </dev/null &
job=$!
case $fault in late | lingers | joins_late)
  until grep -qE "$text" "$work/output" || [ $((SECONDS - start)) -ge $limit ]; do sleep 0.05; done
  touch "$work/come" ;;
esac
wait $job; came=$?
cat "$work/output"
left=
for process in /proc/[0-9]*; do
  grep -qz "^FARANDOLE_HOST_ID=$tag" "$process/environ" 2>/dev/null || continue
  grep -qa faulty_rank "$process/cmdline" 2>/dev/null || continue
  # A stopped rank can not end by itself, and not every launcher kills it; an orphan is there for the test.
  if [ "$fault" = stopped ] || [ "$fault" = orphans ]; then kill -KILL "${process#/proc/}"; else left="$left ${process#/proc/}"; fi
done
[ $((SECONDS - start)) -lt $limit ] || { echo "FAIL: it hung"; exit 1; }
if [ $status = ok ]; then [ $came = 0 ] || { echo "FAIL: exit status $came, expected 0"; exit 1; }
else [ $came != 0 ] || { echo "FAIL: exit status 0"; exit 1; }; fi
{ cat "$work/output"; echo; } | grep -qE "$text" || { echo "FAIL: nothing that matches: $text"; exit 1; }
[ -z "$left" ] || { echo "FAIL: processes are left:$left"; exit 1; }
echo "as expected"
