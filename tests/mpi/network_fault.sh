#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: network_fault.sh FAULT LAUNCHER PROGRAM
# Runs farandole_network_fault on two hosts and checks the output of its ranks. Exit status 77: the test is impossible here.
set -u
fault=$1 launcher=$2 program=$3
here=$(cd "$(dirname "$0")" && pwd)
# The launcher leaves the survivors of a fault alone, so that each must find out by itself.
export OMPI_MCA_orte_enable_recovery=1
set -- env FARANDOLE_NETWORK=tcp FARANDOLE_PEER_TIMEOUT=6
# The receiver has nothing to send then, so that only the socket's keepalive can find out.
[ "$fault" != cut_receiving ] || set -- "$@" FARANDOLE_CHECK=off
# Longer than the link stalls, and TCP then takes to try again.
[ "$fault" != stalled ] || set -- "$@" FARANDOLE_PEER_TIMEOUT=30
if [ "$fault" = lossy ] || [ "$fault" = deaf ]; then
  PATH=$PATH:/usr/sbin:/sbin
  command -v iptables >/dev/null || { echo "skipped: there is no iptables"; exit 77; }
fi
output=$("$here/two_hosts.sh" "$launcher" 1 60 "$@" "$program" "$fault" 2>&1)
status=$?
echo "$output"
[ $status != 77 ] || exit 77
! grep -q 'no packets can be lost here' <<<"$output" || { echo "skipped: iptables can lose no packets here"; exit 77; }
case $fault in
  # Rank 1 is dead, or its broadcast is done as soon as the kernel has its data.
  killed | cut_receiving) ranks='0' ;;
  *) ranks='0 1' ;;
esac
for rank in $ranks; do
  grep -q "rank $rank: as expected" <<<"$output" || { echo "FAIL: rank $rank"; exit 1; }
done
