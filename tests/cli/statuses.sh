#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: statuses.sh BUILD_DIRECTORY [PYTHON]
# Tests that all programs end with status 1 after a failure and 2 after wrong options and settings, with one line
# "PROGRAM: KIND: TEXT" on standard error and nothing on standard output; and that --help fits 80 columns. With PYTHON also
# tests farandole-run.
build=$(cd "$1" && pwd) python=${2-}
# shellcheck source=tests/cli/expect.sh
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
bin=$build/bin
mkdir "$work/programs"
PATH=$bin:$work/programs:$PATH
programs=(farandole-bench farandole-info farandole-schedule)
[ ! -x "$bin/farandole-train" ] || programs+=(farandole-train)
if [ -n "$python" ]; then
  # As pip installs it.
  cat >"$work/programs/farandole-run" <<RUN
#!/bin/sh
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$build/python exec $python -c "import importlib; importlib.import_module('farandole.run').farandole_run()" "\$@"
RUN
  chmod +x "$work/programs/farandole-run"
  programs+=(farandole-run)
fi

# STATUS KIND TEXT COMMAND...; TEXT is a pattern. A program that was not built is left out.
check() {
  local status=$1 kind=$2 text=$3 came=0 program; shift 3
  for program in "${programs[@]}"; do
    [[ " $* " = *" $program "* ]] || continue
    timeout 60 "$@" >printed 2>out </dev/null || came=$?
    [ $came = "$status" ] || fail "exit status $came (expected $status) of: $*"
    has "^$program: $kind: $text"
    has_lines 1 .
    [ ! -s printed ] || fail "standard output is not empty, of: $*"
  done
}
for program in "${programs[@]}"; do
  check 2 InvalidArgument '[Tt]here is no option .?--nonsense' "$program" --nonsense
done
while IFS='|' read -r status kind text command; do
  # shellcheck disable=SC2086  # a list of words
  check $status $kind "$text" $command
done <<'TABLE'
2|InvalidArgument|The word 'stray' belongs to no option|farandole-bench stray
2|InvalidArgument|The word 'stray' belongs to no option|farandole-info stray
2|InvalidArgument|There is no command 'stray'|farandole-schedule stray
2|InvalidArgument|The word 'stray' belongs to no option|farandole-train stray
2|InvalidArgument|the number of processes is missing|farandole-run stray
2|InvalidArgument|.*replicas|farandole-bench --replicas 0
2|InvalidArgument|--size is only of use with --explain|farandole-info --size 2
2|InvalidArgument|--size has '0'|farandole-schedule show ring --size 0
2|InvalidArgument|--replicas is 0|farandole-train --replicas 0
2|InvalidArgument|.*'two'|farandole-run -np two true
2|InvalidArgument|the environment variable FARANDOLE_ALREDUCE .*mean FARANDOLE_ALLREDUCE|env FARANDOLE_ALREDUCE=ring farandole-bench
2|InvalidArgument|the environment variable FARANDOLE_ALREDUCE .*mean FARANDOLE_ALLREDUCE|env FARANDOLE_ALREDUCE=ring farandole-info
2|InvalidArgument|the environment variable FARANDOLE_ALREDUCE .*mean FARANDOLE_ALLREDUCE|env FARANDOLE_ALREDUCE=ring farandole-train
1|DataError|The results cannot be written to nowhere/x.json: |farandole-bench --max-bytes 4 --json nowhere/x.json
1|DataError|FARANDOLE_TUNING is 'missing'|env FARANDOLE_TUNING=missing farandole-info --explain allreduce 60
1|DataError|The results cannot be written to nowhere/x.svg: |farandole-schedule svg ring --output nowhere/x.svg
1|DataError|nowhere/train-images|farandole-train --data-dir nowhere
TABLE
# An error of a rank of a job names the rank, once for all ranks.
check 2 InvalidArgument 'rank 0: --root is 2' farandole-bench --replicas 2 --root 2
[ ! -x "$bin/farandole-train" ] || check 1 DataError 'rank 0: nowhere/train-images' farandole-train --replicas 2 --data-dir nowhere

for program in "${programs[@]}"; do
  commands=('')
  [ "$program" != farandole-schedule ] || commands=('' verify show svg cost)
  for command in "${commands[@]}"; do
    # shellcheck disable=SC2086  # an empty word is none
    works '' env COLUMNS=80 "$program" $command --help
    [ "$(wc -L <out)" -le 80 ] || fail "$program $command --help has a line of $(wc -L <out) columns"
  done
  [ "$program" != farandole-run ] || continue
  refuses_full_disk "$program" --help
  has "^$program: DataError: "
done

# Nothing resembles this option.
for program in "${programs[@]}"; do
  [ "$program" != farandole-run ] || continue
  refused "no option '--wrong'; --help lists all\.$" "$program" --wrong
done

# What other tools call the options.
while read -r program theirs ours; do
  [ ! -x "$bin/$program" ] || refused "no option '$theirs'.*Did you mean '$ours'\\?" "$program" "$theirs" 1
done <<'TABLE'
farandole-train --batch-size --global-batch
farandole-train --lr --learning-rate
farandole-train --output --checkpoint-dir
farandole-train --epoch --epochs
farandole-train --seeed --seed
farandole-bench --maxbytes --max-bytes
farandole-bench --iters --iterations
TABLE
finish
