#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/format.sh [--check]
# Formats all C++ files with clang-format 14, or, with --check, says what differs and fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1-} in
  "") mode=(-i) ;;
  --check) mode=(--dry-run -Werror) ;;
  *) echo "usage: scripts/format.sh [--check]" >&2; exit 2 ;;
esac
# Releases of clang-format differ in their output for the same rules.
command -v clang-format-14 >/dev/null || { echo "format.sh: no clang-format-14; scripts/setup.sh --dev installs it" >&2; exit 1; }
# Includes files that are not committed yet.
mapfile -d '' files < <(git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu' '*.cuh')
existing=()
for file in "${files[@]}"; do
  if [ -e "$file" ]; then existing+=("$file"); fi
done
printf '%s\0' "${existing[@]}" | xargs -0 clang-format-14 "${mode[@]}"
