#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: check_engine_page.sh SOURCE_DIRECTORY
# Checks that the first program on docs/engine.md equals examples/c/named_allreduce.c, which is built and run as a test.
set -euo pipefail
cd "$1"
page=docs/engine.md program=examples/c/named_allreduce.c
if ! sed -n '/^```c$/,/^```$/{/^```c$/d;/^```$/q;p}' "$page" | diff - "$program"; then
  echo "$page has another program than $program: copy it there"
  exit 1
fi
