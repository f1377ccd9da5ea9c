#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests farandole-run over ssh on two hosts that are network namespaces of this machine: different numbers of ranks per host, a
# hostfile, a host that refuses the key, the exit status.
#
# usage, as root: ssh.sh PYTHON PACKAGE_DIRECTORY MPI EXPECT_HOSTS      MPI: openmpi or mpich
# Prints the reason and exits with 77 where the test is impossible. Leaves nothing behind.
set -euo pipefail
python=$1 mpi=$3 expect_hosts=$4
export PYTHONPATH=$2 PYTHONDONTWRITEBYTECODE=1 FARANDOLE_MPI=$3
# shellcheck source=tests/support/network_hosts.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/network_hosts.sh"
need_tools sshd ssh ssh-keygen
make_hosts 2
start_sshds
write_rank_script
# What ~/.ssh/config would say; the key is an option of farandole-run.
readonly quiet='-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR'
export OMPI_MCA_plm_rsh_args=$quiet HYDRA_LAUNCHER_EXTRA_ARGS=$quiet

fail() { echo "FAIL: $*"; cat "$directory/output"; exit 1; }
# run STATUS ARGUMENTS…: on host 1; the output is in $directory/output
run() {
  local status=$1 came=0
  shift
  on_host 1 timeout --kill-after=5 60 "$python" -m farandole.run "$@" >"$directory/output" 2>&1 </dev/null || came=$?
  [ $came = "$status" ] || fail "exit status $came, expected $status, of: $*"
}
says() { grep -qE -- "$1" "$directory/output" || fail "no line matches: $1"; }

run 0 -np 3 -H "$net.1:2,$net.2:2" -i "$directory/user_key" --nics eth0 --verbose "$directory/rank" "$expect_hosts" 2
says "3 ranks on $net.1:2,$net.2:2 by mpi(run|exec) of .*, because FARANDOLE_MPI is $mpi"
says 'host 0 of 2, local rank 1 of 2'
says 'host 1 of 2, local rank 0 of 1'

# A setting of the command line, and a variable of the caller, reach the ranks of the other host; the secret is no argument.
printf '%s\n' "$net.1 slots=1" "$net.2 slots=1" >"$directory/hosts"
# shellcheck disable=SC2016  # expanded by the ranks' shells
API_TOKEN=hush run 0 --hostfile "$directory/hosts" -np 2 -i "$directory/user_key" --log-level debug --nics eth0 --verbose sh -c \
  'echo "$(hostname) $FARANDOLE_LOG ${API_TOKEN:-none}"'
for host in "${hosts[@]}"; do says "$name-$host debug hush"; done
[ "$(grep -c hush "$directory/output")" = 2 ] || fail 'the secret is in a command'

run 7 -np 2 -H "$net.1:1,$net.2:1" -i "$directory/user_key" --nics eth0 sh -c 'exit 7'
# Without the key: no prompt, and the host's name.
run 1 -np 2 -H "$net.1:1,$net.2:1" true
says "$net.2: .*Permission denied.*ssh-copy-id $net.2"
echo 'as expected'
