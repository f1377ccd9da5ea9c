#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: check_pipes.sh SOURCE_DIRECTORY
# Checks that no script pipes into a reader that ends before its writer (grep -q, head): SIGPIPE may kill the writer, and under
# pipefail the pipe then fails, once in many runs. Here-strings (grep -q … <<<"$(writer)") and sed have no such race.
set -euo pipefail
cd "$1"
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  mapfile -t scripts < <(git ls-files --cached --others --exclude-standard '*.sh' .ci/run)
else
  mapfile -t scripts < <(find . -name '*.sh' -not -path './build*')
fi
if grep -nE '\| *(grep +(-[a-zA-Z]*q|-m)|head( |$))' "${scripts[@]}" | grep -vE '^[^:]*:[0-9]+: *#'; then
  echo 'these readers end before their writers, which fails at times'
  exit 1
fi
echo 'every pipe is read to its end'
