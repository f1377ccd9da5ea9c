#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: check_licences.sh SOURCE_DIRECTORY
# Checks that every source names its licence in one of its first three lines, so that a copied file keeps its licence, and
# that the notices name each header-only library that is compiled into a binary.
set -euo pipefail
cd "$1"
failures=0
# The sources: in a clone the files that git knows, else all that lie here, but for what users and tools make.
sources() {
  { git ls-files 2>/dev/null ||
    find . \( -path ./build -o -path ./.git -o -path ./.gpu -o -path ./.cache -o -path ./env -o -name __pycache__ \) \
      -prune -o -type f -print; } |
    grep -E '(\.(h|cpp|c|py|sh|cmake|cmake\.in|map)|(^|/)CMakeLists\.txt|^(\./)?\.ci/run)$'
}
while IFS= read -r file; do
  grep -q 'SPDX-License-Identifier: Apache-2.0' <<<"$(head -n 3 "$file")" && continue
  echo "$file does not say 'SPDX-License-Identifier: Apache-2.0' in a comment of its first three lines"
  failures=$((failures + 1))
done < <(sources)
for file in LICENSE NOTICE THIRD_PARTY_LICENSES; do
  [ -s "$file" ] || { echo "there is no $file"; failures=$((failures + 1)); }
done
grep -q 'The Farandole authors' NOTICE || { echo 'NOTICE does not say whose copyright it is'; failures=$((failures + 1)); }
# What libraries are called in the notices. Boost asks binaries for none; what includes torch is compiled where torch is.
declare -A names=([fmt]=fmt [spdlog]=spdlog [nlohmann]='JSON for Modern C++' [Eigen]=Eigen)
names[unsupported]=Eigen  # its modules without a stable interface
while IFS= read -r library; do
  for file in NOTICE THIRD_PARTY_LICENSES; do
    grep -q "^ *${names[$library]-no name}" "$file" && continue
    echo "$file does not name the library of <$library/…>, which is compiled in"
    failures=$((failures + 1))
  done
done < <(grep -rhoE --include='*.h' --include='*.cpp' '^#include <[A-Za-z0-9_]+/' core collectives ops bindings |
  sed 's/.*<//; s/\/$//' | sort -u | grep -vxE 'farandole|arpa|boost|linux|net|netinet|sys|ATen|c10|pybind11|torch')
[ "$failures" != 0 ] || echo 'every source names its licence'
exit "$((failures > 0))"
