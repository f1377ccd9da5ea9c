#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: pages.sh BUILD_DIRECTORY CHANGELOG
# Tests that --version has the same form in all programs, and that manual pages and completion have the options of --help.
build=$(cd "$1" && pwd) completion=$(cd "$(dirname "$0")/../../collectives/tools" && pwd)/bash_completion.sh
version=$(sed -nE '/^## [0-9]+\.[0-9]+\.[0-9]+/ { s/^## ([0-9.]+).*/\1/p; q }' "$2")
# shellcheck source=tests/cli/expect.sh
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
pages=$build/share/man/man1
PATH=$build/bin:$PATH  # the completion runs the programs
programs=(farandole-bench farandole-info farandole-schedule)
[ ! -e "$build/bin/farandole-train" ] || programs+=(farandole-train)
commands=(verify show svg cost)
[ -n "$version" ] || fail "no version in $2"

# same_options PROGRAM [COMMAND]: each option of --help is in the page and is completed, and nothing else is completed.
same_options() {
  local option program=$1
  works '--version' "$build/bin/$program" "${@:2}" --help
  sed -nE 's/^  (-[a-z] \[ )?(--[a-z-]+).*/\2/p' out | sort >shown
  [ "$(wc -l <shown)" -ge 2 ] || fail "$* --help shows no options"
  while read -r option; do
    grep -qF -- "\\fB${option//-/\\-}\\fR" "$pages/$program.1" || fail "$program.1 has no $option"
  done <shown
  complete_words "$@" --
  printf '%s\n' "${COMPREPLY[@]}" | sort | cmp -s - shown || fail "$*: completes other options than --help shows"
}
# What the program's completion offers for the last of these words.
complete_words() {
  # shellcheck disable=SC2034  # they are what bash tells a completion
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
  COMPREPLY=()
  _farandole || fail "the completion of $* fails"
}
# completes EXPECTED WORDS...
completes() {
  local expected=$1; shift
  complete_words "$@"
  [ "${COMPREPLY[*]-}" = "$expected" ] || fail "completes '${COMPREPLY[*]-}' (expected '$expected') for: $*"
}

# shellcheck source=collectives/tools/bash_completion.sh
source "$completion" || fail "bash cannot read the completion"
for program in "${programs[@]}"; do
  # Neither needs a job, nor settings that are right.
  works "^$program \(Farandole\) $version\$" env FARANDOLE_ALREDUCE=ring "$build/bin/$program" --version
  has_lines 1 ''
  refuses_full_disk "$build/bin/$program" --version
  [ -s "$pages/$program.1" ] || fail "$pages/$program.1 is missing"
  "$build/bin/$program" --man-page | cmp -s - "$pages/$program.1" || fail "$program.1 is older than the program"
  grep -q 'mpirun -np' "$pages/$program.1" && fail "$program.1 shows mpirun, which Open MPI refuses to root"
  for title in NAME SYNOPSIS DESCRIPTION OPTIONS 'EXIT STATUS' EXAMPLES 'SEE ALSO'; do
    grep -qx "\.SH $title" "$pages/$program.1" || fail "$program.1 has no section $title"
  done
  if command -v groff >/dev/null; then
    groff -man -Tutf8 -ww -z "$pages/$program.1" >out 2>&1 || fail "groff refuses $program.1"
    [ ! -s out ] || fail "groff warns of $program.1"
  fi
  if command -v mandoc >/dev/null; then
    # Pages have no date: with that of the build, two builds would differ.
    mandoc -T lint -W warning "$pages/$program.1" 2>&1 | grep -v 'missing date' >out
    [ ! -s out ] || fail "mandoc warns of $program.1"
  fi
  [ "$(complete -p "$program")" = "complete -F _farandole $program" ] || fail "$program is not completed"
  [ "$program" = farandole-schedule ] || same_options "$program"
done
for command in "${commands[@]}"; do
  works "^farandole-schedule \(Farandole\) $version\$" "$build/bin/farandole-schedule" "$command" --version
  same_options farandole-schedule "$command"
done

# Options, values that are choices, lists of them, commands and their operands.
completes '--min-bytes --max-bytes --memory --mpi-threads' farandole-bench --m
completes 'in' farandole-bench --place i
completes 'in out both' farandole-bench --place = ''
completes 'in out both' farandole-bench --place =
completes 'product' farandole-bench -o pr
completes 'allreduce,broadcast' farandole-bench --collective allreduce,br
completes 'broadcast barrier' farandole-bench -c b
completes '' farandole-bench --min-bytes ''
completes 'text markdown' farandole-info --config ''
completes 'allreduce allgather alltoall' farandole-info --explain all
completes 'verify show svg cost --help --version' farandole-schedule ''
completes 'show svg' farandole-schedule s
completes 'halving_doubling' farandole-schedule show hal
completes 'halving_doubling' farandole-schedule cost --algorithm hal
completes 'nvlink3 nvlink4 nvlink5' farandole-schedule cost --link nv
completes '--size --segments --svg' farandole-schedule show ring --s
completes '' farandole-schedule nothing ''

# Names of files after an option that takes one, also with blanks; only directories after one that takes these.
mkdir directory && touch 'a file' other
complete_words farandole-bench --json ''
[ "$(printf '%s\n' "${COMPREPLY[@]}" | grep -cxE 'a file|other|directory')" = 3 ] || fail 'files are not completed'
completes 'a file' farandole-schedule show ring --svg a
if [ -e "$build/bin/farandole-train" ]; then
  completes 'cnn cnn_bn' farandole-train --model c
  completes 'directory' farandole-train --checkpoint-dir ''
  refused "no option '--epoch'.*mean '--epochs'" "$build/bin/farandole-train" --epoch 3
  refused "'stray' belongs to no option" "$build/bin/farandole-train" stray
fi

# farandole-run writes its own completion; the rest of its pages is tested with the Python package.
if [ -e "$pages/farandole-run.1" ]; then
  works "^farandole-run \(Farandole\) $version\$" "$build/bin/farandole-run" --version
  "$build/bin/farandole-run" --man-page | cmp -s - "$pages/farandole-run.1" || fail 'farandole-run.1 is older than the program'
  "$build/bin/farandole-run" --bash-completion | cmp -s - "$build/share/farandole-run.bash" || fail 'another completion'
fi
finish
