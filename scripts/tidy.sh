#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the C++ sources with clang-tidy 14: first those that changed since main, then the others until the time is up.
#
# usage: scripts/tidy.sh [--build DIRECTORY] [--seconds N] [FILE…]
#   --build    a configured build that compiles each source by itself; if not given, build/tidy, which is configured here
#   --seconds  begin no further file after so many seconds; 0, the default, means no limit
#   FILE…      check these and no others
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=
seconds=0
files=()
while [ $# -gt 0 ]; do
  case $1 in
    --build | --seconds)
      [ $# -ge 2 ] || { echo "tidy.sh: $1 needs a value" >&2; exit 2; }
      if [ "$1" = --build ]; then build=$2; else seconds=$2; fi
      shift ;;
    -*) sed -n '3,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
    *) files+=("$1") ;;
  esac
  shift
done
command -v clang-tidy-14 >/dev/null || { echo "tidy.sh: no clang-tidy-14; scripts/setup.sh --dev installs it" >&2; exit 1; }
if [ -z "$build" ]; then
  build=build/tidy
  # shellcheck source=scripts/tools.sh
  source scripts/tools.sh
  use_tools build/python-venv
  cmake --preset tidy >/dev/null
  cmake --build "$build" --target farandole_revision >/dev/null  # the headers that the build makes
fi
[ -e "$build/compile_commands.json" ] || { echo "tidy.sh: $build is not configured" >&2; exit 1; }

# The sources that the build compiles, relative to the root, each once.
compiled() {
  sed -n "s|^ *\"file\": \"$PWD/\(.*\)\",\{0,1\}\$|\1|p" "$build/compile_commands.json" | sort -u
}

# Files that differ from main and files that git does not track; on main itself, files that the last commit changed.
changed() {
  local base
  base=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null || git rev-parse HEAD)
  if [ "$base" = "$(git rev-parse HEAD)" ]; then base=$(git rev-parse --verify --quiet HEAD~1 || echo "$base"); fi
  { git diff --name-only "$base"; git ls-files --others --exclude-standard; } | sort -u
}

# Reads changed files from standard input. Prints the sources among them, and the sources that include a changed header.
affected() {
  local file
  while read -r file; do
    case $file in
      *.cpp) echo "$file" ;;
      *.h) grep -rlE --include='*.cpp' "^#include \"(.*/)?${file##*/}\"" core collectives ops tests examples || true ;;
    esac
  done
}

if [ ${#files[@]} = 0 ]; then
  mapfile -t all < <(compiled)
  mapfile -t first < <(changed | affected | sort -u | grep -Fxf <(printf '%s\n' "${all[@]}") || true)
  mapfile -t files < <(printf '%s\n' "${first[@]}" "${all[@]}" | awk 'NF && !seen[$0]++')
  echo "${#files[@]} sources, of which ${#first[@]} are touched by changes and come first"
fi

report=$(mktemp -d)
trap 'rm -rf "$report"' EXIT
export build report
deadline=$((seconds > 0 ? $(date +%s) + seconds : 0))
export deadline
# -Wno-unknown-warning-option: clang does not know all warnings of other compilers.
# shellcheck disable=SC2016  # expanded by the shells that xargs starts
printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 1 bash -c '
  if [ "$deadline" != 0 ] && [ "$(date +%s)" -ge "$deadline" ]; then echo "$1" >>"$report/left"; exit 0; fi
  log=$(mktemp -p "$report")
  if ! clang-tidy-14 --quiet -p "$build" --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-error "$1" >"$log" 2>&1
  then
    echo "$1" >>"$report/failed"
    grep -vE "^[0-9]+ warnings? (generated|treated)|^Suppressed|^Use -header-filter" "$log" || true
  fi' _

left=0 failed=0
if [ -e "$report/left" ]; then left=$(wc -l <"$report/left"); fi
if [ -e "$report/failed" ]; then failed=$(wc -l <"$report/failed"); fi
echo "clang-tidy: $((${#files[@]} - left)) of ${#files[@]} sources checked, $failed with findings"
[ "$failed" = 0 ]
