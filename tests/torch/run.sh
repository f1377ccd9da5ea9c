#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: run.sh PYTHON PACKAGE PROGRAM [ARGUMENTS…]
# Runs PROGRAM with PYTHON, or the interpreter of the variable TORCH_PYTHON, whichever has torch, and the Python package in the
# directory PACKAGE. Status 77, with the reason, if neither has torch.
set -u
python=$1 package=$2; shift 2
for candidate in ${TORCH_PYTHON:+"$TORCH_PYTHON"} "$python"; do
  "$candidate" -c 'import torch.distributed as c10d; exit(not c10d.is_available())' 2>/dev/null || continue
  PYTHONPATH=$package PYTHONDONTWRITEBYTECODE=1 exec "$candidate" "$@"
done
echo "skipped: neither $python nor TORCH_PYTHON (${TORCH_PYTHON:-not set}) has torch; scripts/setup.sh --python DIR --torch installs it"
exit 77
