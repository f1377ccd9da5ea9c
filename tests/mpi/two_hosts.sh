#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program with Open MPI on two hosts that are network namespaces of this machine, joined by a bridge, each with an
# sshd, name and /dev/shm of its own. They share one /proc, so FARANDOLE_HOST_ID tells them apart.
#
# usage, as root: two_hosts.sh [--rate RATE] LAUNCHER RANKS_PER_HOST SECONDS PROGRAM [ARGUMENTS…]
#   --rate RATE  what each host may send, as tc writes it: 1gbit, 100mbit. Default: as fast as the kernel copies.
# Needs iproute2 and openssh-server. Exit status 77: not possible here, with the reason. Leaves nothing behind.
set -euo pipefail
rate=
if [ "${1-}" = --rate ]; then rate=$2; shift 2; fi
launcher=$1 ranks_per_host=$2 seconds=$3
shift 3
readonly hosts=(1 2)
readonly name=fdl$$

skip() {
  echo "skipped: $*"
  exit 77
}

[ "$(id -u)" = 0 ] || skip "network namespaces need root"
export PATH=$PATH:/usr/sbin:/sbin
for tool in ip sshd ssh ssh-keygen; do
  command -v "$tool" >/dev/null || skip "there is no $tool; scripts/setup.sh --dev installs it"
done

directory=$(mktemp -d)
made_run_sshd=no
# shellcheck disable=SC2317  # called by the trap
cleanup() {
  local host pids
  # Even if nobody reads the output any more; and no word about the processes that are killed here.
  trap '' PIPE
  exec >/dev/null 2>&1
  for host in "${hosts[@]}"; do
    # Whatever runs in the namespace was started here.
    pids=$(ip netns pids "$name-$host" || true)
    # shellcheck disable=SC2086  # a list
    [ -z "$pids" ] || kill -KILL $pids || true
    ip netns del "$name-$host" || true
    ip link del "$name-v$host" || true
  done
  wait
  ip link del "$name" || true
  if [ "$made_run_sshd" = yes ]; then rmdir /run/sshd || true; fi
  rm -rf "$directory"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

# Addresses from the range for benchmarks of networks (RFC 2544), which no real network uses.
readonly net=198.18.$(($$ % 250))
attempt() {
  "$@" 2>"$directory/error" || skip "$* failed: $(cat "$directory/error")"
}
attempt ip link add "$name" type bridge
attempt ip link set "$name" up
for host in "${hosts[@]}"; do
  attempt ip netns add "$name-$host"
  attempt ip link add "$name-v$host" type veth peer name eth0 netns "$name-$host"
  attempt ip link set "$name-v$host" master "$name" up
  attempt ip -n "$name-$host" addr add "$net.$host/24" dev eth0
  attempt ip -n "$name-$host" link set eth0 up
  attempt ip -n "$name-$host" link set lo up
  # A queue of 20 ms, as switches have.
  [ -z "$rate" ] || attempt ip netns exec "$name-$host" tc qdisc add dev eth0 root tbf rate "$rate" burst 128kb latency 20ms
done

sshd_pids=()
if [ ! -d /run/sshd ]; then mkdir /run/sshd; made_run_sshd=yes; fi
ssh-keygen -q -t ed25519 -N '' -f "$directory/user_key"
ssh-keygen -q -t ed25519 -N '' -f "$directory/host_key"
for host in "${hosts[@]}"; do
  # Each command replaces the one before, so that the process in the background is sshd itself.
  # shellcheck disable=SC2016  # expanded by that shell
  ip netns exec "$name-$host" unshare --mount --uts sh -c '
    hostname "$1" && mount -t tmpfs tmpfs /dev/shm && shift && exec "$@"' _ "$name-$host" \
    "$(command -v sshd)" -D -f /dev/null -h "$directory/host_key" -o PidFile=none -o UsePAM=no -o StrictModes=no \
    -o ListenAddress="$net.$host" -o AuthorizedKeysFile="$directory/user_key.pub" -o PermitRootLogin=yes &
  sshd_pids[host]=$!
  echo "$net.$host slots=$ranks_per_host" >>"$directory/hosts"
done
ssh=(-i "$directory/user_key" -o BatchMode=yes -o ConnectTimeout=10 -o ConnectionAttempts=10
  -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR)
for host in "${hosts[@]}"; do
  ip netns exec "$name-1" ssh "${ssh[@]}" "$net.$host" true || skip "root can not log in by ssh"
done

cat >"$directory/rank" <<'END'
#!/bin/sh
FARANDOLE_HOST_ID=$(hostname) exec "$@"
END
chmod +x "$directory/rank"
status=0
OMPI_MCA_plm_rsh_args="${ssh[*]}" timeout --kill-after=5 "$seconds" \
  nsenter --target "${sshd_pids[1]}" --net --mount --uts \
  "$launcher" --allow-run-as-root --hostfile "$directory/hosts" --bind-to none --map-by node \
  --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 \
  -np $((${#hosts[@]} * ranks_per_host)) "$directory/rank" "$@" </dev/null || status=$?
[ $status != 124 ] || echo "two_hosts.sh: it took longer than $seconds s"
exit $status
