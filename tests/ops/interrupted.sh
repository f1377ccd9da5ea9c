#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: interrupted.sh BUILD_DIRECTORY [LAUNCHER...]
# Sends signals to farandole-train. Checks that all ranks end after the same training step, with a checkpoint and the status
# 128 + signal (75 for SIGUSR1), even if only one rank gets the signal. Without a launcher the two processes are a job without MPI.
set -u
build=$(cd "$1" && pwd); shift
launcher=("$@")
train=$build/bin/farandole-train
. "$(dirname "$0")/small_data.sh"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
small_data data 6400 64
failures=0
fail() { echo "FAIL: $*"; sed 's/^/  /' out; failures=$((failures + 1)); }
cat >rank <<'RANK'
#!/bin/sh
# usage: rank PROGRAM [ARGUMENT...]: the process that becomes the rank is in pid.RANK. Shells let background programs
# ignore Ctrl-C.
echo $$ >pid.${OMPI_COMM_WORLD_RANK-${PMI_RANK-${FARANDOLE_RANK-0}}}
exec env --default-signal=INT "$@"
RANK
chmod +x rank
endless=(--data-dir data --epochs 1000000 --evaluate-every 0 --json steps.json --log-steps)

# begin RANKS OPTIONS...: a training in the background, which has done a step and is in the next
begin() {
  local ranks=$1 rank; shift
  rm -f pid.* steps.json
  : >out
  if [ "$ranks" = 1 ]; then
    timeout 100 ./rank "$train" "${endless[@]}" "$@" >out 2>&1 </dev/null &
  elif [ ${#launcher[@]} -gt 0 ]; then
    timeout 100 "${launcher[@]}" -n "$ranks" ./rank "$train" "${endless[@]}" "$@" >out 2>&1 </dev/null &
  else
    for ((rank = 1; rank < ranks; ++rank)); do
      FARANDOLE_SIZE=$ranks FARANDOLE_JOB=interrupted-$$ FARANDOLE_RANK=$rank timeout 100 ./rank "$train" "${endless[@]}" "$@" \
        >out.$rank 2>&1 </dev/null &
      other=$!
    done
    FARANDOLE_SIZE=$ranks FARANDOLE_JOB=interrupted-$$ FARANDOLE_RANK=0 timeout 100 ./rank "$train" "${endless[@]}" "$@" \
      >out 2>&1 </dev/null &
  fi
  job=$!
  until [ -s steps.json ]; do
    kill -0 $job 2>/dev/null || { fail "the training ended before a signal: $*"; return; }
    sleep 0.05
  done
}
# ended STATUS: that of the job
ended() {
  local came=0
  wait $job || came=$?
  [ $came = "$1" ] || fail "exit status $came (expected $1)"
  [ -z "${other-}" ] || { came=0; wait "$other" || came=$?; [ $came = "$1" ] || fail "rank 1 has exit status $came (expected $1)"; }
  other=
}
# stopped_at_a_checkpoint DIRECTORY: it is of the step that the program says, and training goes on from there.
stopped_at_a_checkpoint() {
  local step
  step=$(sed -nE 's/^.*interrupted at step ([0-9]+).*/\1/p' out)
  [ -n "$step" ] || { fail "no step"; return; }
  [ -s "$1/$(printf 'step-%06d' "$step")/manifest.json" ] || fail "no checkpoint of step $step: $(ls "$1")"
  grep -qE "; --resume goes on from the checkpoint in $1\$" out || fail "the checkpoint is not named"
  [ "$(grep -c '"training_step"' steps.json)" = "$step" ] || fail "$(grep -c '"training_step"' steps.json) steps are in the file"
  timeout 60 "$train" --model mlp --data-dir data --global-batch 64 --checkpoint-dir "$1" --resume --max-steps $((step + 1)) >out 2>&1 ||
    fail "training does not go on"
  grep -qE "^resumed from .* after $step training steps" out || fail "training goes on from another step than $step"
}

if [ ${#launcher[@]} = 0 ]; then
  for signal in INT:130 TERM:143 USR1:75; do
    begin 1 --model mlp --global-batch 64 --checkpoint-dir "one.$signal"
    kill -${signal%:*} "$(cat pid.0)"
    ended ${signal#*:}
    grep -q 'a second signal ends it at once' out || fail "the signal is not answered"
    stopped_at_a_checkpoint "one.$signal"
  done
  # Threads of one process, in deterministic mode.
  begin 1 --model mlp --global-batch 64 --replicas 2 --deterministic
  kill -INT "$(cat pid.0)"
  ended 130
  grep -qE '^interrupted at step [0-9]+$' out || fail "no step"
  # A second signal, within a step that takes long.
  begin 1 --model cnn --global-batch 3200 --threads 1
  while kill -INT "$(cat pid.0)" 2>/dev/null; do sleep 0.1; done
  ended 130
  grep -q 'a second signal ends it at once' out || fail "the first signal is not answered"
  ! grep -q 'interrupted at step' out || fail "the second signal did not end the training at once"
  # Replicas that share nothing in a step end at the first.
  begin 1 --model mlp --global-batch 64 --replicas 2 --no-averaging
  kill -INT "$(cat pid.0)"
  ended 130
  ! grep -q 'interrupted' out || fail "training without averaging ended in order"
fi
# Only rank 1 has the signal.
begin 2 --model mlp --global-batch 64 --checkpoint-dir both
kill -INT "$(cat pid.1)"
ended 130
stopped_at_a_checkpoint both
[ $failures = 0 ] && echo "as expected"
exit $((failures > 0))
