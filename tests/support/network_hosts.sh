# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by tests on several hosts. The hosts are network namespaces of this machine, joined by a bridge, each with its own
# name and /dev/shm. They share one /proc, so FARANDOLE_HOST_ID must distinguish them. Needs root and iproute2. If hosts cannot
# be made, the test is skipped with the reason (exit status 77). Leaves nothing behind.

skip() {
  echo "skipped: $*"
  exit 77
}

# need_tools TOOL…: skips the test unless it runs as root and these tools, and those for namespaces, are installed
need_tools() {
  local tool
  [ "$(id -u)" = 0 ] || skip "network namespaces need root"
  export PATH=$PATH:/usr/sbin:/sbin
  for tool in ip nsenter unshare "$@"; do
    command -v "$tool" >/dev/null || skip "there is no $tool; scripts/setup.sh --dev installs it"
  done
}

# shellcheck disable=SC2317  # called by the trap
remove_hosts() {
  local host pids
  # Works even if nobody reads the output any more, and prints nothing about the processes that are killed here.
  trap '' PIPE
  exec >/dev/null 2>&1
  for host in "${hosts[@]}"; do
    # Kill all processes in the namespace: this script has started them.
    pids=$(ip netns pids "$name-$host" || true)
    # shellcheck disable=SC2086  # a list
    [ -z "$pids" ] || kill -KILL $pids || true
    ip netns del "$name-$host" || true
    ip link del "$name-v$host" || true
  done
  if declare -F remove_more; then remove_more || true; fi
  wait
  ip link del "$name" || true
  rm -rf "$directory"
}

attempt() {
  "$@" 2>"$directory/error" || skip "$* failed: $(cat "$directory/error")"
}

# limit_rate HOST RATE: limits what the host may send; before the link lies Linux's usual queue of a network card, which
# knows priorities.
limit_rate() {
  attempt ip netns exec "$name-$1" tc qdisc add dev eth0 root handle 1: tbf rate "$2" burst 128kb latency 20ms
  attempt ip netns exec "$name-$1" tc qdisc add dev eth0 parent 1:1 pfifo_fast
}

# make_hosts NUMBER [RATE]: makes hosts, which may each send RATE, in tc's notation. Sets `hosts` (1, 2, …), `name` (the namespace
# of host 1 is $name-1), `net` (its address is $net.1), and `directory`, for files. When the script ends, hosts and directory are
# removed, and the function remove_more is called if there is one.
make_hosts() {
  local host rate=${2-}
  mapfile -t hosts < <(seq "$1")
  readonly hosts name=fdl$$
  # Addresses from the range for benchmarks of networks (RFC 2544), which no real network uses.
  readonly net=198.18.$(($$ % 250))
  directory=$(mktemp -d)
  host_pids=()
  trap remove_hosts EXIT
  trap 'exit 130' INT TERM HUP
  attempt ip link add "$name" type bridge
  attempt ip link set "$name" up
  for host in "${hosts[@]}"; do
    attempt ip netns add "$name-$host"
    attempt ip link add "$name-v$host" type veth peer name eth0 netns "$name-$host"
    attempt ip link set "$name-v$host" master "$name" up
    attempt ip -n "$name-$host" addr add "$net.$host/24" dev eth0
    attempt ip -n "$name-$host" link set eth0 up
    attempt ip -n "$name-$host" link set lo up
    [ -z "$rate" ] || limit_rate "$host" "$rate"
  done
}

# start_on_host HOST COMMAND…: runs the command in the background, in the host's own namespaces for mounts and its name
start_on_host() {
  local host=$1
  shift
  # Each command replaces the one before, so that the process in the background is COMMAND itself.
  # shellcheck disable=SC2016  # expanded by that shell
  ip netns exec "$name-$host" unshare --mount --uts sh -c '
    hostname "$1" && mount -t tmpfs tmpfs /dev/shm && shift && exec "$@"' _ "$name-$host" "$@" &
  host_pids[host]=$!
}

# on_host HOST COMMAND…: runs the command in the namespaces of what start_on_host has started
on_host() {
  local host=$1
  shift
  nsenter --target "${host_pids[host]}" --net --mount --uts "$@"
}

# start_sshds: starts sshd on each host, for root with the key "$directory/user_key"; sets `ssh`, the arguments of ssh
start_sshds() {
  local host
  ssh-keygen -q -t ed25519 -N '' -f "$directory/user_key"
  ssh-keygen -q -t ed25519 -N '' -f "$directory/host_key"
  for host in "${hosts[@]}"; do
    # sshd needs /run/sshd. Each host gets its own /run, so that no test removes the directory of another test.
    # shellcheck disable=SC2016  # expanded by that shell
    start_on_host "$host" sh -c 'mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec "$0" "$@"' \
      "$(command -v sshd)" -D -f /dev/null -h "$directory/host_key" -o PidFile=none -o UsePAM=no -o StrictModes=no \
      -o ListenAddress="$net.$host" -o AuthorizedKeysFile="$directory/user_key.pub" -o PermitRootLogin=yes
  done
  ssh=(-i "$directory/user_key" -o BatchMode=yes -o ConnectTimeout=10 -o ConnectionAttempts=10
    -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR)
  for host in "${hosts[@]}"; do
    ip netns exec "$name-1" ssh "${ssh[@]}" "$net.$host" true || skip "root cannot log in by ssh"
  done
}

# write_rank_script: writes "$directory/rank", which runs a program as a rank of the host on which it is started
write_rank_script() {
  cat >"$directory/rank" <<'END'
#!/bin/sh
FARANDOLE_HOST_ID=$(hostname) exec "$@"
END
  chmod +x "$directory/rank"
}
