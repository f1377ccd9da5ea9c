#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests torchrun on two hosts that are network namespaces of this machine: both rendezvous of torch, a program that is not
# Python, a restart after a rank was killed.
#
# usage, as root: torchrun.sh PACKAGE_DIRECTORY BENCH      BENCH: farandole-bench
# Uses the torchrun in the variable TORCHRUN, or in PATH. Prints the reason and exits with 77 where the test is impossible. Leaves
# nothing behind.
set -euo pipefail
bench=$2
export PYTHONPATH=$1 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
# shellcheck source=tests/support/network_hosts.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/network_hosts.sh"
need_tools python3
torchrun=$(command -v "${TORCHRUN:-torchrun}") || skip 'there is no torchrun (the package torch); TORCHRUN names one that PATH does not have'
"$torchrun" --no-python --help >/dev/null 2>&1 || skip "$torchrun does not work here"
program=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/torchrun_program.py
make_hosts 2
for host in "${hosts[@]}"; do start_on_host "$host" sleep infinity; done
printf '%s\n' '127.0.0.1 localhost' "$net.1 $name-1" "$net.2 $name-2" >"$directory/names"
for host in "${hosts[@]}"; do
  # Until the namespaces of the host are there.
  until [ "$(on_host "$host" hostname 2>/dev/null)" = "$name-$host" ]; do sleep 0.02; done
  # torchrun looks up the name of its host, and gives it to the ranks as MASTER_ADDR.
  on_host "$host" mount --bind "$directory/names" /etc/hosts
done
(umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$directory/key")
export FARANDOLE_JOB_KEY_FILE=$directory/key

# run ARGUMENTS…: torchrun on both hosts, HOST in an argument being 0 and 1; the output is in $directory/output.1 and .2
run() {
  local host pids=() status=0
  for host in "${hosts[@]}"; do
    FARANDOLE_HOST_ID=$host on_host "$host" timeout --kill-after=5 60 "$torchrun" --nnodes 2 --nproc-per-node 2 \
      "${@//HOST/$((host - 1))}" </dev/null >"$directory/output.$host" 2>&1 &
    pids+=($!)
  done
  for host in "${hosts[@]}"; do wait "${pids[host - 1]}" || status=$?; done
  [ $status = 0 ] || fail "exit status $status of torchrun $*"
}
fail() { echo "FAIL: $*"; for host in "${hosts[@]}"; do sed "s/^/[$host] /" "$directory/output.$host"; done; exit 1; }
says() { grep -qE -- "$2" "$directory/output.$1" || fail "host $1: no line matches: $2"; }
all_ranks_say() { for rank in 0 1 2 3; do says $((rank / 2 + 1)) "rank $rank of 4, local rank $((rank % 2)) of 2: sum 10${1-}"; done; }
c10d=(--rdzv-backend c10d --rdzv-endpoint "$net.1:29400")

run "${c10d[@]}" "$program"
all_ranks_say
run --rdzv-backend static --node-rank HOST --master-addr "$net.1" --master-port 29400 "$program"
all_ranks_say
run "${c10d[@]}" --no-python "$bench" --max-bytes 4KiB
says 1 '4 ranks on 2 hosts, tcp'
# The agent of the second host has seen no failure of its own ranks, and counts no restart.
run "${c10d[@]}" --max-restarts 1 "$program" "$directory"
all_ranks_say ', started again'
says 1 'rank 0 .*TORCHELASTIC_RESTART_COUNT=1'
says 2 'rank 2 .*TORCHELASTIC_RESTART_COUNT=0'
echo 'as expected'
