#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program with Open MPI or MPICH on simulated hosts (two by default). Each host is a network namespace of this
# machine with its own sshd, name and /dev/shm; a bridge connects them. The hosts share one /proc, so FARANDOLE_HOST_ID
# distinguishes them.
#
# usage, as root: two_hosts.sh [--hosts NUMBER] [--rate RATE] [--map-by slot] LAUNCHER RANKS_PER_HOST SECONDS PROGRAM [ARGUMENTS…]
#   --rate RATE  what each host may send, as tc writes it: 1gbit, 100mbit. Default: as fast as the kernel copies.
#   --map-by slot  consecutive ranks share a host (mpirun's default). MPICH ignores this option and always places ranks
#                this way. Default with Open MPI: node, round-robin over the hosts. Harder for the library, because
#                neighbouring ranks are on different hosts.
# Needs iproute2 and openssh-server. Prints the reason and exits with 77 where hosts cannot be made. Leaves nothing behind.
set -euo pipefail
number=2 rate= map_by=node
if [ "${1-}" = --hosts ]; then number=$2; shift 2; fi
if [ "${1-}" = --rate ]; then rate=$2; shift 2; fi
if [ "${1-}" = --map-by ]; then map_by=$2; shift 2; fi
launcher=$1 ranks_per_host=$2 seconds=$3
shift 3
# shellcheck source=tests/support/network_hosts.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/network_hosts.sh"
need_tools sshd ssh ssh-keygen
make_hosts "$number" "$rate"
start_sshds
write_rank_script
ranks=$((${#hosts[@]} * ranks_per_host))
case $launcher in
  *mpich)
    printf "$net.%s:$ranks_per_host\n" "${hosts[@]}" >"$directory/hosts"
    printf '#!/bin/sh\nexec ssh %s "$@"\n' "${ssh[*]}" >"$directory/ssh"
    chmod +x "$directory/ssh"
    # The hosts are one machine, which MPICH and UCX would notice and use.
    export MPIR_CVAR_NOLOCAL=1 UCX_TLS=tcp,self
    launch=("$launcher" -f "$directory/hosts" -launcher ssh -launcher-exec "$directory/ssh" -iface eth0 -n "$ranks") ;;
  *)
    printf "$net.%s slots=$ranks_per_host\n" "${hosts[@]}" >"$directory/hosts"
    launch=("$launcher" --allow-run-as-root --hostfile "$directory/hosts" --bind-to none --map-by "$map_by"
            --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 -np "$ranks") ;;
esac
status=0
OMPI_MCA_plm_rsh_args="${ssh[*]}" on_host 1 timeout --kill-after=5 "$seconds" \
  "${launch[@]}" "$directory/rank" "$@" </dev/null || status=$?
[ $status != 124 ] || echo "two_hosts.sh: it took longer than $seconds s"
exit $status
