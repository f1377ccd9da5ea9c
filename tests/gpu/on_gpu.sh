#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: on_gpu.sh FARANDOLE_INFO NEED COMMAND...
# Runs a test on the devices of this machine, or ends with 77 after the line of farandole-info that says why it can not.
#   NEED  devices=N      devices, and an NCCL that can be used
#         sharing        an NCCL that lets several processes share a device; they all get device 0
#         tool=PROGRAM   a device that is no double, and this program of NVIDIA's
set -euo pipefail
info=$1 need=$2; shift 2

skip() { echo "skipped: $*"; exit 77; }

report=$("$info")
devices=$(sed -n 's/^devices  *//p' <<<"$report")
[[ $devices != none* ]] || { reason=${devices#none (}; skip "no devices: ${reason%)}"; }
missing=$(sed -n 's/^  no collectives: //p' <<<"$report")
[ -z "$missing" ] || skip "no collectives on devices: $missing"

case $need in
  devices=*)
    # One line for each: "  0: NVIDIA H100, 79.6 GiB, …".
    count=$(grep -cE '^  [0-9]+: ' <<<"$report")
    [ "$count" -ge "${need#*=}" ] || skip "devices that are needed: ${need#*=}; that are there: $count" ;;
  sharing)
    export NCCL_MULTI_RANK_GPU_ENABLE=1 FARANDOLE_DEVICE=0
    nccl=$(sed -n 's/.*NCCL \([0-9.]*\).*/\1/p' <<<"$devices")
    oldest=$(printf '%s\n' 2.30.3 "$nccl" | sort -V | sed -n 1p)
    [ "$oldest" = 2.30.3 ] || skip "NCCL $nccl gives a device to one rank only; 2.30.3 or newer lets several share one" ;;
  tool=*)
    [[ $report != *': fake device '* ]] || skip "the devices are the double's"
    command -v "${need#*=}" >/dev/null || skip "there is no ${need#*=}" ;;
  *) echo "on_gpu.sh: what is '$need'?" >&2; exit 2 ;;
esac
exec "$@"
