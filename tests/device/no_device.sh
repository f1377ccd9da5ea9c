#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: no_device.sh PROGRAM [VARIABLE=VALUE…]
# Checks that ranks without a device each print the reason in one line, and that all ranks of PROGRAM, an example, end with 77.
# The variables select the double: then a driver without devices, with too few, and with one device for two ranks is tested, too.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/cli/expect.sh
source "$here/../cli/expect.sh"
program=$1; shift
job=("$here/../support/local_job.sh" -n 2 "$program")
no_device='^rank [01] \(host .*\) has no usable device: '

no_driver=(env "$@" FARANDOLE_CUDA_LIBRARY=/none/libcuda.so.1)
ends 77 "${no_device}.*FARANDOLE_CUDA_LIBRARY: /none/libcuda.so.1" "${no_driver[@]}" "$program"
has_lines 1 ''
ends 77 "$no_device" "${no_driver[@]}" "${job[@]}"
has_lines 2 "$no_device"
has_lines 2 ''
if [ $# -gt 0 ]; then
  ends 77 "${no_device}.*no CUDA-capable device" env "$@" FAKE_DEVICE_COUNT=0 "${job[@]}"
  has_lines 2 "$no_device"
  has_lines 2 ''
  ends 77 '^rank 2 .* has no usable device: .*3 ranks and 2 devices' env "$@" FAKE_DEVICE_COUNT=2 \
    "$here/../support/local_job.sh" -n 3 "$program"
  has_lines 1 ''
  ends 1 'use the same device.*FARANDOLE_DEVICE' env "$@" FARANDOLE_DEVICE=0 "${job[@]}"
  has_no 'misuse'
fi
finish
