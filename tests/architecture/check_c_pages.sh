#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: check_c_pages.sh SOURCE_DIRECTORY
# Checks that the first program of each page on a C header equals the program in examples/c, which is built and run as a test.
set -euo pipefail
cd "$1"
check() { # PAGE PROGRAM
  sed -n '/^```c$/,/^```$/{/^```c$/d;/^```$/q;p}' "$1" | diff - "$2" && return
  echo "$1 has another program than $2: copy it there"
  exit 1
}
check docs/engine.md examples/c/named_allreduce.c
check docs/communicators-in-c.md examples/c/communicator_allreduce.c
