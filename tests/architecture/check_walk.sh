#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: check_walk.sh SOURCE_DIRECTORY
# Checks that every file named in docs/walk.md exists.
set -euo pipefail
cd "$1"
missing=0 found=0
while IFS= read -r file; do
  if [ -e "$file" ]; then found=$((found + 1)); else echo "docs/walk.md names $file, which does not exist"; missing=1; fi
done < <(grep -oE '`(core|collectives|ops)/[A-Za-z0-9_./-]+`' docs/walk.md | tr -d '`')
[ "$found" -gt 20 ] || { echo "docs/walk.md names $found files only"; exit 1; }
exit "$missing"
