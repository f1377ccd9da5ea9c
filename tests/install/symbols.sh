#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: symbols.sh [--alone] LIBRARY…
# Checks that each library exports only Farandole's API, and each plug-in only its entry and its build id. A library must import
# nothing from spdlog, so that another copy of spdlog in the process cannot interfere; with --alone nothing from fmt, either.
set -euo pipefail
own='6spdlog|8nlohmann'
if [ "$1" = --alone ]; then own+='|3fmt2v'; shift; fi
failures=0

complain() {
  echo "$1:"
  c++filt <<<"$2" | sed -n 1,10p
  failures=$((failures + 1))
}

for library in "$@"; do
  exported=$(nm -D --defined-only "$library" | awk '{print $NF}')
  [ -n "$exported" ] || { echo "$library exports nothing"; exit 1; }
  api='farandole_|_Z(T[ISV])?NK?[RO]?9farandole'
  case $library in */libfarandole_mpi_*.so | */libfarandole_cuda.so) api='farandole_(backend|device)_(v1|build_id)$' ;; esac
  foreign=$(grep -vE "^($api)" <<<"$exported" || true)
  [ -z "$foreign" ] || complain "$library exports what is not its API" "$foreign"
  # Types of others in the arguments of a function do no harm; a function or table of theirs would.
  hidden=$(grep -E '9farandole.*(3fmt2v|6spdlog|8nlohmann)' <<<"$exported" || true)
  [ -z "$hidden" ] || complain "$library exports functions on types of libraries that it hides" "$hidden"
  taken=$(nm -D --undefined-only "$library" | awk '{print $NF}' | grep -E "$own" || true)
  [ -z "$taken" ] || complain "$library takes symbols from elsewhere" "$taken"
  echo "$(basename "$library"): $(wc -l <<<"$exported") symbols"
done
exit $failures
