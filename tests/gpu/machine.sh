#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: machine.sh
# Describes this machine, by the programs that are installed, for readers of a report.
try() { echo "--- $*"; "$@" 2>&1; }
try nvidia-smi
try nvidia-smi topo -m
try nvcc --version
try ldd --version
try uname -srm
try df -h /dev/shm
try nproc
exit 0
