#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: check_kernels.sh SOURCE_DIRECTORY
# Checks that the kernels use no barriers, shared memory, exchange between threads, or atomics. So the threads of a launch can
# run one after another, in any order, as on the tests' double (docs/testing.md). A reduction over threads needs a second
# launch.
set -u
cd "$1" || exit 2
found=$(grep -rnE --include='*.cu' --include='*.cuh' --include='kernel*.h' --include='arithmetic.h' \
             '__syncthreads|__syncwarp|__shared__|__shfl|__ballot|__threadfence|cooperative_groups|atomic[A-Z][A-Za-z]*\(|cuda::(atomic|barrier)' \
             core/backends/cuda core/internal)
[ -z "$found" ] || { echo "kernels in which threads depend on each other:"; echo "$found"; exit 1; }
echo "the threads of kernels do not depend on each other"
