#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: mirror_directory.sh CMAKE SCRIPT   (SCRIPT is cmake/mirror_directory.cmake)
# Checks that the copy of the Python package in the build tree is updated when source files are added, changed, renamed or deleted.
set -euo pipefail
cmake=$1 script=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

mirror() { "$cmake" -DFROM="$work/source" -DTO="$work/copy" -DKEEP=lib,part/lib -P "$script"; }
# expect_files PATH…: the files of the copy, in alphabetical order
expect_files() {
  local found
  found=$(cd copy && find . ! -type d | LC_ALL=C sort | sed 's|^\./||' | paste -sd' ')
  [ "$found" = "$*" ] || { echo "expected the files '$*' in the copy, found '$found'" >&2; exit 1; }
}

mkdir -p source/part copy/part/lib elsewhere
echo 1 >source/kept.py; echo 1 >source/renamed.py; echo 1 >source/part/deleted.py
touch copy/part/lib/other.so elsewhere/untouched
ln -s "$work/elsewhere" copy/lib
mirror
expect_files kept.py lib part/deleted.py part/lib/other.so renamed.py

touch -d '2001-01-01' copy/kept.py
mv source/renamed.py source/part/new_name.py; rm source/part/deleted.py
mirror
expect_files kept.py lib part/lib/other.so part/new_name.py
[ "$(stat -c %Y copy/kept.py)" = "$(date -d '2001-01-01' +%s)" ] || { echo 'an unchanged file was written again' >&2; exit 1; }
[ -e elsewhere/untouched ] || { echo 'a file behind a symbolic link was deleted' >&2; exit 1; }

echo 2 >source/kept.py
mirror
[ "$(cat copy/kept.py)" = 2 ] || { echo 'a changed file was not copied' >&2; exit 1; }
