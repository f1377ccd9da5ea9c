#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: bad_input.sh BUILD_DIRECTORY [MPI LAUNCHER...]
# Gives bad input to farandole-train. Checks that it prints an error that quotes the input and says what to do, that the exit status
# is not 0, and that no data is lost.
set -u
build=$(cd "$1" && pwd); shift
train=$build/bin/farandole-train
. "$(dirname "$0")/small_data.sh"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
failures=0
# refused STATUS PATTERN COMMAND...
refused() {
  local status=$1 pattern=$2; shift 2
  timeout 60 "$@" >out 2>&1 </dev/null; local came=$?
  if [ $came != "$status" ] || ! grep -qE -- "$pattern" out; then
    echo "FAIL: exit status $came (expected $status), expected text: $pattern"; echo "  of: $*"; sed 's/^/  /' out
    failures=$((failures + 1))
  fi
}
works() { timeout 100 "$@" >out 2>&1 </dev/null || { echo "FAIL: $*"; cat out; failures=$((failures + 1)); }; }

# Options and settings.
refused 2 "'--epochz'.*Did you mean '--epochs'" "$train" --epochz 3
refused 2 'learning-rate is -1; it must be greater than 0' "$train" --learning-rate -1
refused 2 'replicas is 0; it must be from 1 to 64' "$train" --replicas 0
refused 2 "'resnet'; choose one of mlp, cnn" "$train" --model resnet
refused 2 'micro-batches has no effect without --deterministic' "$train" --micro-batches 4
refused 2 'momentum has no effect without --optimizer sgd' "$train" --optimizer adam --momentum 0.5
refused 2 "'ploynomial'; choose one of constant, step, cosine, polynomial, one-cycle, plateau .did you mean polynomial" \
  "$train" --lr-schedule ploynomial
refused 2 'lr-power has no effect without --lr-schedule polynomial' "$train" --lr-power 2
refused 2 'lr-pct-start has no effect without --lr-schedule one-cycle' "$train" --lr-schedule cosine --lr-pct-start 0.5
refused 2 'lr-plateau-patience has no effect without --lr-schedule plateau' "$train" --lr-plateau-patience 2
refused 2 'lr-minimum has no effect without --lr-schedule cosine, polynomial or plateau' "$train" --lr-minimum 0.01
refused 2 'lr-minimum is 1; it must be at least 0 and at most the learning rate' "$train" --lr-schedule cosine --lr-minimum 1
refused 2 'lr-plateau-factor is 1; it must be greater than 0 and less than 1' "$train" --lr-schedule plateau --lr-plateau-factor 1
refused 2 'ema-decay is 1; it must be at least 0 and less than 1' "$train" --ema-decay 1
refused 2 'evaluate-with-ema has no effect without --ema-decay' "$train" --evaluate-with-ema
refused 2 'sync-batch-norm has no effect without --model cnn_bn' "$train" --sync-batch-norm
refused 2 'resume has no effect without --checkpoint-dir' "$train" --resume
refused 2 'keep-checkpoints has no effect without --checkpoint-dir' "$train" --keep-checkpoints 5
refused 2 'checkpoint-dir is empty' "$train" --checkpoint-dir ''
refused 2 'FARANDOLE_ALREDUCE .*did you mean FARANDOLE_ALLREDUCE' env FARANDOLE_ALREDUCE=ring "$train"
refused 2 "'rign' .*did you mean 'ring'" env FARANDOLE_ALLREDUCE=rign "$train"
refused 2 'FARANDOLE_TIMEOUT' env FARANDOLE_TIMEOUT=soon "$train"
refused 2 '3 samples does not split over 4 replicas' "$train" --replicas 4 --global-batch 3
refused 2 '6 micro-batches.*valid are 2, 4, 8' "$train" --replicas 2 --deterministic --micro-batches 6
refused 2 '3 ranks were expected and 2 are there' "$train" --replicas 2 --expect-ranks 3
refused 2 'profile times layers on the CPU only' "$train" --profile --device cuda
refused 2 'profile has no times for layers in graphs.*leave out --graph' "$train" --profile --device auto --graph
refused 2 'profile has no effect without --json FILE where --quiet prints nothing' "$train" --profile --quiet
refused 2 "'abc'.*--epochs.*expected a whole number" "$train" --epochs abc
refused 2 "'0,9'.*--momentum.*expected a number such as 0.5" "$train" --momentum 0,9
refused 2 'loss-scale is 0; it must be at least 1' "$train" --precision bf16 --loss-scale 0
refused 2 '--resume and --resume-if-any: leave one out' "$train" --checkpoint-dir x --resume --resume-if-any
refused 2 '--json and --csv write to the same file, both; choose two' "$train" --json both --csv both
(ulimit -v 6000000; refused 1 'DataError: out of memory.*smaller batches, models' "$train" --model gpt --synthetic --data text --units 65536
 exit $failures) || failures=$((failures + 1))
# Data files.
refused 1 'nowhere/train-images.*no such file.*apt-get install dataset-fashion-mnist.*--data-dir' "$train" --data-dir nowhere
mkdir cut; cp "$fashion_mnist"/*.gz cut/; head -c 1000000 "$fashion_mnist"/train-images-idx3-ubyte.gz >cut/train-images-idx3-ubyte.gz
refused 1 'cut/train-images.*expected 47040000 bytes.*found.*cut or corrupt' "$train" --data-dir cut
# Checkpoints: another model, a cut file, an altered one; the originals stay.
works "$train" --model mlp --max-steps 2 --checkpoint-dir good
before=$(find good -type f -exec cksum {} + | sort)
refused 2 "another model: .*0.dense.weight.*0.conv2d.weight" "$train" --model cnn --max-steps 4 --checkpoint-dir good --resume
cp -r good short; truncate -s -100 short/*/model.safetensors
refused 1 "tensor '2.dense.weight' is cut" "$train" --model mlp --max-steps 4 --checkpoint-dir short --resume
cp -r good altered; printf '\x55' | dd of="$(echo altered/*/model.safetensors)" bs=1 seek=2000 conv=notrunc 2>/dev/null
refused 1 "tensor '0.dense.weight' is altered" "$train" --model mlp --max-steps 4 --checkpoint-dir altered --resume
refused 1 'is not a number.*What to try' "$train" --model mlp --learning-rate 1e30 --max-steps 50
refused 2 'good holds checkpoints of an earlier training, the newest step-000002. Add --resume' "$train" --model mlp --checkpoint-dir good
# A refused training leaves the logs of the one before as they were; a new one begins new files.
works "$train" --model mlp --max-steps 2 --checkpoint-dir logged --json log.j --csv log.c
logs=$(cksum log.j log.c)
refused 2 'Add --resume' "$train" --model mlp --checkpoint-dir logged --json log.j --csv log.c
[ "$logs" = "$(cksum log.j log.c)" ] || { echo "FAIL: a refused training has changed the logs"; failures=$((failures + 1)); }
works "$train" --model mlp --max-steps 4 --checkpoint-dir logged --resume-if-any --csv log.c
[ "$(cut -d, -f2 log.c | tr '\n' ' ')" = 'training_steps 2 4 ' ] || { echo "FAIL: rows after a resume"; cat log.c; failures=$((failures + 1)); }
works "$train" --model mlp --max-steps 2 --checkpoint-dir new --resume-if-any --csv log.c
[ "$(cut -d, -f2 log.c | tr '\n' ' ')" = 'training_steps 2 ' ] || { echo "FAIL: a new training's rows"; cat log.c; failures=$((failures + 1)); }
refused 2 'nothing holds no checkpoint to resume from' "$train" --model mlp --checkpoint-dir nothing --resume
[ ! -e nothing ] || { echo "FAIL: a training that resumes from nothing has left a directory"; failures=$((failures + 1)); }
cp -r good empty; rm empty/step-000002/manifest.json
refused 1 'no checkpoint of empty is whole: .*step-000002/manifest.json: No such file' "$train" --model mlp --checkpoint-dir empty --resume
# Another training has the directory, until it is killed.
"$train" --model mlp --epochs 1000 --checkpoint-dir used --quiet >other 2>&1 </dev/null & other=$!
until [ -s used/.farandole-lock ]; do kill -0 $other 2>/dev/null || { echo "FAIL: the first training ended"; cat other; break; }; sleep 0.05; done
refused 2 "used is in use by another training .host $(hostname), pid $other, since " "$train" --model mlp --replicas 2 --checkpoint-dir used
[ "$(grep -c 'in use' out)" = 1 ] || { echo "FAIL: not said once"; cat out; failures=$((failures + 1)); }
kill -KILL $other; wait $other 2>/dev/null
rm -rf used/step-*
works "$train" --model mlp --max-steps 2 --checkpoint-dir used
[ "$before" = "$(find good -type f -exec cksum {} + | sort)" ] || { echo "FAIL: a checkpoint was changed"; failures=$((failures + 1)); }
works "$train" --model mlp --max-steps 4 --checkpoint-dir good --resume
works "$train" --model mlp --max-steps 4 --checkpoint-dir good --resume
grep -q '^nothing left to train; .*: 4 training steps' out || { echo "FAIL: a finished training is said to train"; cat out; failures=$((failures + 1)); }
refused 1 'cannot be opened' "$train" --model mlp --max-steps 2 --json nowhere/x.json
[ ! -e /dev/full ] || refused 1 'No space left' "$train" --model mlp --max-steps 2 --json /dev/full
# Limits of OpenMP, as a module file of a cluster may set them: fewer threads, and the same numbers as with so few.
checksum_under() { env "$@" >out 2>&1 </dev/null; sed -nE 's/.*checksum ([0-9a-f]+)$/\1/p' out; }
for model in mlp cnn; do
  one=$(checksum_under timeout 100 "$train" --model $model --max-steps 4 --threads 1)
  limited=$(checksum_under OMP_THREAD_LIMIT=1 timeout 100 "$train" --model $model --max-steps 4 --threads 2)
  [ -n "$one" ] && [ "$one" = "$limited" ] || { echo "FAIL: $model under OMP_THREAD_LIMIT=1: $limited, not $one"; failures=$((failures + 1)); }
  two=$(checksum_under timeout 100 "$train" --model $model --max-steps 4 --threads 2)
  dynamic=$(checksum_under OMP_DYNAMIC=true timeout 100 "$train" --model $model --max-steps 4 --threads 2)
  [ -n "$two" ] && [ "$two" = "$dynamic" ] || { echo "FAIL: $model with OMP_DYNAMIC=true: $dynamic, not $two"; failures=$((failures + 1)); }
done
# An MPI for which no plug-in was built: the same programs without the plug-ins.
if [ $# -gt 0 ]; then
  mkdir -p bare/bin bare/lib
  cp "$train" bare/bin/; cp -P "$build"/lib/libfarandole.so* "$build"/lib/libfarandole_trainer.so* bare/lib/
  timeout 60 "$@" "$work/bare/bin/farandole-train" --model mlp >out 2>&1 </dev/null && { echo "FAIL: no plug-in, exit status 0"; failures=$((failures + 1)); }
  grep -qE 'libfarandole_mpi_(openmpi|mpich)\.so.*' out || { echo "FAIL: the missing plug-in is not named"; cat out; failures=$((failures + 1)); }
fi
[ $failures = 0 ] && echo "all refused as they should be"
exit $((failures > 0))
