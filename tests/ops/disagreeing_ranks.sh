#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: disagreeing_ranks.sh BUILD_DIRECTORY [LAUNCHER...]
# Gives different options or data to two processes of farandole-train. Checks that they report an error within seconds that names the
# option and both values, and that options that may differ do no harm. Without a launcher the processes are a job without MPI.
set -u
build=$(cd "$1" && pwd); shift
launcher=("$@")
train=$build/bin/farandole-train
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
. "$(dirname "$0")/small_data.sh"
cd "$work" || exit 2
small_data whole 256 64
small_data shard0 128 64
small_data shard1 128 64 128
limit=20  # seconds: what is refused late, or hangs, fails
failures=0

# two "OPTIONS OF PROCESS 0" "OPTIONS OF PROCESS 1": its exit status, its output in `out`
two() {
  local options=(--evaluate-every 0 --quiet) first second default
  read -ra first <<<"$1"
  read -ra second <<<"$2"
  for default in "--model mlp" "--epochs 2" "--global-batch 64" "--data-dir whole"; do
    # shellcheck disable=SC2206  # an option and its value
    [[ $1 = *${default% *}* ]] || options+=($default)
  done
  if [ ${#launcher[@]} -gt 0 ]; then
    timeout $limit "${launcher[@]}" -n 1 "$train" "${options[@]}" "${first[@]}" : \
      -n 1 "$train" "${options[@]}" "${second[@]}" >out 2>&1 </dev/null
    return
  fi
  export FARANDOLE_SIZE=2 FARANDOLE_JOB=disagreeing-$$
  FARANDOLE_RANK=1 timeout $limit "$train" "${options[@]}" "${second[@]}" >out1 2>&1 </dev/null &
  FARANDOLE_RANK=0 timeout $limit "$train" "${options[@]}" "${first[@]}" >out 2>&1 </dev/null
  local status=$? other
  wait $!; other=$?
  cat out1 >>out
  [ $status != 0 ] || status=$other
  return $status
}
fail() { echo "FAIL: $*"; sed 's/^/  /' out; failures=$((failures + 1)); }
# differ OPTION VALUE0 VALUE1
differ() {
  two "--$1 $2" "--$1 $3"; local status=$?
  [ $status != 124 ] || { fail "--$1 $2|$3 hung"; return; }
  [ $status != 0 ] || fail "--$1 $2|$3: exit status 0"
  grep -qF -- "--$1 is $2 on rank 0 (" out && grep -qF -- ") and $3 on rank 1 (" out || fail "--$1 $2|$3 is not named"
  [ "$(grep -c 'ranks disagree' out)" = 1 ] || fail "--$1 $2|$3 is not said once"
}

differ seed 1 2
differ global-batch 64 128
differ optimizer sgd adam
differ learning-rate 0.1 0.2
# Launchers take a second or two for each job that fails, and the comparison does not know them.
if [ ${#launcher[@]} = 0 ]; then
  differ precision f32 f64
  differ model mlp cnn
  differ epochs 3 2
  differ checkpoint-dir a b
  two "" "--checkpoint-dir a"
  grep -qF -- '--checkpoint-dir is not given on rank 0 (' out || fail "a directory on one rank alone"
  two "--deterministic" ""
  grep -qF -- '--deterministic is yes on rank 0 (' out || fail "a mode of one rank alone"
fi
two "--data-dir shard0" "--data-dir shard1" && fail "shards: exit status 0"
grep -qE 'the checksum of the training data is .* on rank 0 .* on rank 1 .*every rank needs the whole data set' out || fail "shards"
cp -r whole copy
two "--threads 1 --data-dir whole" "--threads 2 --data-dir copy --json one.json --replicas 2" || fail "what may differ"
[ $failures = 0 ] && echo "as expected"
exit $((failures > 0))
