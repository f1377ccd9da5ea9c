#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: killed_saves.sh BUILD_DIRECTORY
# Kills a training with kill -9 while it saves, and resumes it. Checks each time that the training resumes from the newest or the
# second newest checkpoint, that the checkpoint is undamaged, and that no lock is left. FARANDOLE_KILLED_SAVES is the number of kills;
# FARANDOLE_SEED repeats a run.
set -u
build=$(cd "$1" && pwd)
kills=${FARANDOLE_KILLED_SAVES:-20}
seed=${FARANDOLE_SEED:-$$}
# Not for the library, which refuses what it does not know.
unset FARANDOLE_KILLED_SAVES FARANDOLE_SEED
echo "seed $seed, $kills kills"
RANDOM=$((seed % 32768))
work=$(mktemp -d); trap 'kill -KILL "${training-}" 2>/dev/null; rm -rf "$work"' EXIT
. "$(dirname "$0")/small_data.sh"
cd "$work" || exit 2
# An epoch is one training step, and each is saved: nearly all of the time goes into saving.
small_data data 64 64
limit=20  # seconds for a training to begin, and to save once
resume=()

fail() { echo "FAIL: kill $kill (seed $seed): $*"; cat output; ls -l run; exit 1; }
newest() { find run -name manifest.json -path 'run/step-*' 2>/dev/null | sed 's|run/step-0*\([0-9]*\)/.*|\1|' | sort -n | tail -1; }
in_saves=0
for ((kill = 1; kill <= kills; ++kill)); do
  before=$(newest)
  "$build/bin/farandole-train" --model mlp --data-dir data --global-batch 64 --epochs 1000000 --evaluate-every 0 \
    --checkpoint-dir run --keep-checkpoints 2 "${resume[@]}" >output 2>&1 </dev/null &
  training=$!
  begun=$SECONDS
  until [ "$(newest)" != "$before" ]; do
    kill -0 $training 2>/dev/null || fail "it ended by itself"
    [ $((SECONDS - begun)) -lt $limit ] || fail "no checkpoint within $limit s"
    sleep 0.01
  done
  if [ ${#resume[@]} -gt 0 ]; then
    from=$(sed -nE 's/^resumed from .* after ([0-9]+) training steps$/\1/p' output)
    # A save that moved its checkpoint in place is never lost; what is not in place was not said to be saved.
    [ -n "$from" ] && [ "$from" -ge $((before - 1)) ] && [ "$from" -le "$before" ] || fail "resumed from '$from', the newest was $before"
    ! grep -q damaged output || fail "a checkpoint was damaged"
  fi
  # The time is the test's input; nothing relies on it.
  sleep "0.0$(printf %02d $((RANDOM % 30)))"
  for ((look = 0; look < 1000; ++look)); do compgen -G 'run/.farandole-writing-*' >looked && break; done
  kill -KILL $training
  wait $training 2>/dev/null
  [ -z "$(find run -maxdepth 1 -name '.farandole-writing-*')" ] || in_saves=$((in_saves + 1))
  resume=(--resume)
done
training=
echo "$in_saves of $kills kills met a save or a removal"
[ $in_saves -gt 0 ] || fail "none met a save"
echo "as expected"
