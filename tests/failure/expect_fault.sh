#!/usr/bin/env bash
# usage: expect_fault.sh FAULT LAUNCHER... PROGRAM
# Runs the program with a fault on rank 1 of 3 and checks the exit status, what is said, and that nothing stays behind.
set -u
fault=$1; shift
case $fault in
  killed)   status=fail text='rank 1 .*died|signal 9|KILLED BY SIGNAL|EXIT CODE: 9|PeerLost' ;;
  stopped)  status=fail text='Timeout: .*not in it yet: rank 1 .*does not answer' ;;
  exits)    status=fail text='rank 1 .*died|exit code: 7|EXIT CODE: 7|status 7|PeerLost' ;;
  throws)   status=fail text='exception: no more data' ;;
  late)     status=ok   text='not in it yet: rank 1 .*does not answer' ;;
  mismatch) status=fail text='Mismatch: rank 0 .*1000 f32.*but rank 1 .*500 f32' ;;
  *) echo "unknown fault $fault"; exit 2 ;;
esac
export FARANDOLE_WARN_AFTER=0.4
[ "$fault" = stopped ] && export FARANDOLE_TIMEOUT=1
tag=farandole-fault-$fault-$$
export FARANDOLE_HOST_ID=$tag
output=$(timeout --kill-after=5 40 "$@" "$fault" 2>&1 </dev/null)
came=$?
echo "$output"
# A stopped rank can not end by itself; the launcher is asked to end it, and this makes sure.
for environment in /proc/[0-9]*/environ; do
  if tr '\0' '\n' <"$environment" 2>/dev/null | grep -q "^FARANDOLE_HOST_ID=$tag$"; then
    pid=${environment#/proc/}; pid=${pid%/environ}
    if [ "$pid" != $$ ] && [ "$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -c faulty_rank)" = 1 ]; then
      if [ "$fault" = stopped ]; then kill -KILL "$pid"; else left="${left-} $pid"; fi
    fi
  fi
done
[ "$came" != 124 ] && [ "$came" != 137 ] || { echo "FAIL: it hung"; exit 1; }
if [ $status = ok ]; then [ "$came" = 0 ] || { echo "FAIL: exit status $came, expected 0"; exit 1; }
else [ "$came" != 0 ] || { echo "FAIL: exit status 0"; exit 1; }; fi
grep -qE "$text" <<<"$output" || { echo "FAIL: nothing that matches: $text"; exit 1; }
[ -z "${left-}" ] || { echo "FAIL: processes are left:$left"; exit 1; }
echo "as expected"
