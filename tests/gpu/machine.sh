#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: machine.sh
# What this machine is, as far as its programs say it: what a reader of a report asks first.
try() { echo "--- $*"; "$@" 2>&1; }
try nvidia-smi
try nvidia-smi topo -m
try nvcc --version
try ldd --version
try uname -srm
try df -h /dev/shm
try nproc
exit 0
