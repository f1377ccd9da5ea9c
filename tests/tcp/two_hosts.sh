#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program without MPI on two hosts that are network namespaces of this machine (tests/support/network_hosts.sh), by
# the variables that torchrun sets: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. The port is in use, as under torchrun, whose
# store uses it.
#
# usage, as root: two_hosts.sh [--kill RANK | --cut] RANKS_PER_HOST SECONDS PROGRAM [ARGUMENTS…]
#   --kill RANK  kills that rank once all ranks have printed "joined PROCESS_ID", and expects that every other rank prints
#                within 3 s that the rank is lost: "PeerLost: … rank RANK …"
#   --cut        cuts the link between the hosts at that time, and expects that each rank reports the loss of a rank of the other host
# Needs iproute2. Prints the reason and exits with 77 where hosts cannot be made. Leaves nothing behind.
set -euo pipefail
killed='' is_cut=''
if [ "${1-}" = --kill ]; then killed=$2; shift 2; fi
if [ "${1-}" = --cut ]; then is_cut=yes; shift; export FARANDOLE_PEER_TIMEOUT=3; fi
ranks_per_host=$1 seconds=$2
shift 2
# shellcheck source=tests/support/network_hosts.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/network_hosts.sh"
need_tools python3
make_hosts 2
write_rank_script
size=$((${#hosts[@]} * ranks_per_host))
for host in "${hosts[@]}"; do start_on_host "$host" sleep infinity; done
# Until the namespaces of each host are there.
for host in "${hosts[@]}"; do until [ "$(on_host "$host" hostname 2>/dev/null)" = "$name-$host" ]; do sleep 0.02; done; done
start_store() {
  on_host 1 python3 -c 'import socket, sys, time
store = socket.create_server(("", 29500)); print("listens", flush=True); time.sleep(3600)' >"$directory/store" &
  until grep -q listens "$directory/store"; do sleep 0.02; done
}
start_store

umask 077
od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$directory/key"
pids=()
for ((rank = 0; rank < size; ++rank)); do
  on_host $((rank / ranks_per_host + 1)) timeout --kill-after=5 "$seconds" env RANK="$rank" WORLD_SIZE="$size" \
    MASTER_ADDR="$net.1" MASTER_PORT=29500 FARANDOLE_JOB_KEY_FILE="$directory/key" \
    "$directory/rank" "$@" </dev/null >"$directory/output.$rank" 2>&1 &
  pids[rank]=$!
done
break_job() {
  local rank
  for ((rank = 0; rank < size; ++rank)); do
    until grep -q '^joined' "$directory/output.$rank" || ! kill -0 "${pids[rank]}" 2>/dev/null; do sleep 0.02; done
  done
  [ -z "$killed" ] || kill -KILL "$(sed -n 's/^joined //p' "$directory/output.$killed")"
  [ -z "$is_cut" ] || ip -n "$name-2" link set eth0 down
}
status=0
[ -z "$killed$is_cut" ] || break_job
start=$EPOCHREALTIME
for ((rank = 0; rank < size; ++rank)); do
  came=0
  wait "${pids[rank]}" || came=$?
  [ "$came" != 124 ] || echo "two_hosts.sh: rank $rank took longer than $seconds s"
  if [ -n "$killed" ]; then
    if [ "$rank" != "$killed" ] && ! grep -qE "PeerLost: .*rank $killed " "$directory/output.$rank"; then
      echo "FAIL: rank $rank does not name rank $killed"
      status=1
    fi
  elif [ -n "$is_cut" ]; then
    if ! grep -qE 'PeerLost: .*rank [0-9]+ .* is lost: ' "$directory/output.$rank"; then
      echo "FAIL: rank $rank does not say which rank is lost"
      status=1
    fi
  elif [ $status = 0 ]; then
    status=$came
  fi
done
took=$(awk -v from="$start" -v to="$EPOCHREALTIME" 'BEGIN { print to - from }')
for ((rank = 0; rank < size; ++rank)); do sed "s/^/[$rank] /" "$directory/output.$rank"; done
if [ -n "$killed" ] && awk -v took="$took" 'BEGIN { exit !(took > 3) }'; then
  echo "FAIL: the last rank ended $took s after rank $killed was killed; the bound is 3 s"
  status=1
fi
exit $status
