#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests Slurm on two nodes that are network namespaces of this machine: srun with PMI-2 and PMIx, farandole-run within an
# allocation, and examples/cluster/slurm.sbatch, which gets SIGUSR1, is requeued, and resumes.
#
# usage, as root: slurm.sh SOURCE BIN [PYTHON PACKAGE_DIRECTORY]     BIN: the directory of Farandole's programs
# Needs slurmctld, slurmd, slurm-client, munge, iproute2. Prints the reason and exits with 77 where the test is impossible. Leaves
# nothing behind.
set -euo pipefail
source_dir=$1 bin=$2 python=${3-}
export PYTHONPATH=${4-} PYTHONDONTWRITEBYTECODE=1
# shellcheck source=tests/support/network_hosts.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/network_hosts.sh"
need_tools munged slurmctld slurmd srun sbatch
readonly seconds=60  # for each thing that is waited for

munged_pid=
# shellcheck disable=SC2317  # called by remove_hosts
remove_more() { [ -z "$munged_pid" ] || kill "$munged_pid"; }
make_hosts 2
readonly nodes=("$name-1" "$name-2")
export SLURM_CONF=$directory/slurm.conf

fail() {
  echo "FAIL: $*"
  tail -n 15 "$directory"/output "$directory"/*.log 2>/dev/null || true
  exit 1
}
# until_true WHAT COMMAND…
until_true() {
  local what=$1 end=$((SECONDS + seconds))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || fail "not within $seconds s: $what"
    sleep 0.1
  done
}

write_configuration() {
  # Munge and Slurm refuse directories that another user can write.
  chmod 755 "$directory"
  mkdir "$directory"/{state,tmp} "$directory/${nodes[0]}" "$directory/${nodes[1]}"
  head -c 128 /dev/urandom >"$directory/munge.key"
  chmod 400 "$directory/munge.key"
  # Control groups are the machine's, and not needed: processes are followed by their parents.
  echo 'CgroupPlugin=cgroup/v1' >"$directory/cgroup.conf"
  cat >"$SLURM_CONF" <<END
ClusterName=farandole
SlurmctldHost=${nodes[0]}($net.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A requeued job waits for its old credentials to expire.
AuthInfo=socket=$directory/munge.socket,cred_expire=5
StateSaveLocation=$directory/state
SlurmdSpoolDir=$directory/%n
SlurmctldPidFile=$directory/slurmctld.pid
SlurmdPidFile=$directory/%n.pid
SlurmctldLogFile=$directory/slurmctld.log
SlurmdLogFile=$directory/%n.log
TmpFS=$directory/tmp
TaskProlog=$directory/prolog
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/linear
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1
MailProg=$(command -v true)
MpiDefault=none
KillWait=5
NodeName=${nodes[0]} NodeAddr=$net.1 CPUs=2
NodeName=${nodes[1]} NodeAddr=$net.2 CPUs=2
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE
END
  # The nodes share one /proc, by which ranks would take them for one host.
  printf '%s\n' '#!/bin/sh' "echo \"export FARANDOLE_HOST_ID=\$(hostname)\"" >"$directory/prolog"
  chmod +x "$directory/prolog"
}

start_slurm() {
  local host
  munged --foreground --force --key-file="$directory/munge.key" --socket="$directory/munge.socket" \
    --pid-file="$directory/munge.pid" --log-file="$directory/munged.log" --seed-file="$directory/munge.seed" \
    >"$directory/munged.out" 2>&1 &
  munged_pid=$!
  until_true 'the socket of munged' test -S "$directory/munge.socket"
  for host in "${hosts[@]}"; do
    # PMIx's directories have names that both nodes would use, so each has a directory for temporary files of its own.
    # shellcheck disable=SC2016  # expanded by that shell
    start_on_host "$host" sh -c 'mount -t tmpfs tmpfs "$0" && exec "$@"' "$directory/tmp" \
      slurmd -D -N "${nodes[host - 1]}" >"$directory/slurmd.$host.log" 2>&1
  done
  until_true 'a slurmd' test -e "$directory/${nodes[0]}.pid"
  on_host 1 slurmctld -D -i >"$directory/slurmctld.out.log" 2>&1 &
  until_true 'two idle nodes' nodes_are_idle
}
nodes_are_idle() { [ "$(on_host 1 sinfo -h -t idle -o %D 2>"$directory/sinfo.log")" = 2 ]; }

# on_cluster COMMAND…: as a user of the first node; the output is in $directory/output
on_cluster() {
  on_host 1 timeout --kill-after=5 $seconds env PATH="$bin:$PATH" "$@" >"$directory/output" 2>&1 </dev/null
}
says() { grep -qE -- "$1" "$directory/output" || fail "no line matches: $1"; }

write_configuration
start_slurm
echo "Slurm $(srun --version | cut -d' ' -f2) on ${nodes[*]}"
[ "$(on_host 1 srun -N 2 hostname | sort | tr '\n' ' ')" = "${nodes[*]} " ] || fail 'srun does not reach both nodes'

try_srun() {
  local mpi=$1 pmi=$2
  compgen -G "$bin/../lib/*/libfarandole_mpi_$mpi.so" >/dev/null ||
    { echo "left out: srun --mpi=$pmi (no plug-in for $mpi)"; return; }
  grep -qw "$pmi" <<<"$(on_host 1 srun --mpi=list 2>&1)" || { echo "left out: srun --mpi=$pmi (this Slurm has none)"; return; }
  FARANDOLE_MPI=$mpi on_cluster srun -N 2 -n 4 --mpi="$pmi" farandole_expect_hosts 2 || fail "srun --mpi=$pmi: status $?"
  says 'host 1 of 2, local rank 1 of 2'
  echo "srun --mpi=$pmi, $mpi: 4 ranks on 2 nodes"
}
try_srun mpich pmi2
try_srun openmpi pmix

# Without MPI.
try_pmix() {
  [ -x "$bin/farandole_pmix_share" ] || { echo 'left out: PMIx without MPI (there is no farandole_pmix_share)'; return; }
  grep -qw pmix <<<"$(on_host 1 srun --mpi=list 2>&1)" || { echo 'left out: PMIx without MPI (this Slurm has none)'; return; }
  on_host 1 timeout --kill-after=5 $seconds "$source_dir/tests/pmix/share.sh" 4 - \
    srun -N 2 -n 4 --mpi=pmix "$bin/farandole_pmix_share" >"$directory/output" 2>&1 </dev/null || fail "PMIx: status $?"
  on_cluster env FARANDOLE_TIMEOUT=1 srun -K -N 2 -n 3 --mpi=pmix farandole_pmix_share . absent && fail 'PMIx: process 0 never comes'
  says 'Timeout: .*process [12] of 3 has been waiting for .* for process 0'
  FARANDOLE_MPI=pmix on_cluster srun -N 2 -n 4 --mpi=pmix farandole_expect_hosts 2 || fail "FARANDOLE_MPI=pmix: status $?"
  says 'host 1 of 2, local rank 1 of 2'
  echo 'srun --mpi=pmix, without MPI: 4 processes on 2 nodes have shared, 4 ranks are a job by FARANDOLE_MPI=pmix; process 0 that never comes is a Timeout'
}
try_pmix

if [ -n "$python" ] && "$python" -c 'import numpy' 2>/dev/null; then
  on_cluster salloc -N 2 -n 4 "$python" -m farandole.run --verbose -np 3 -H "${nodes[1]}:2,${nodes[0]}:2" \
    farandole_expect_hosts 2 || fail "farandole-run: status $?"
  says '3 ranks on .* by srun of Slurm .*, because this is within the allocation [0-9]+$'
  says "rank 2 \(host ${nodes[0]},.*local rank 0 of 1"
  came=0
  on_cluster salloc -N 2 -n 4 "$python" -m farandole.run -np 4 sh -c 'exit 7' || came=$?
  [ $came = 7 ] || fail "farandole-run: exit status $came, not the program's 7"
  ! on_cluster salloc -n 2 "$python" -m farandole.run -np 9 true || fail '9 ranks in an allocation of 2'
  says '9 processes were asked for, but the allocation [0-9]+ takes 2 tasks'
  echo 'farandole-run within an allocation: as expected'
fi

[ -x "$bin/farandole-train" ] || { echo 'left out: sbatch (there is no farandole-train)'; exit 0; }
# shellcheck source=tests/ops/small_data.sh
source "$source_dir/tests/ops/small_data.sh"
cd "$directory"
small_data data 2048 64
on_cluster env CHECKPOINT_DIR="$directory/run" sbatch --parsable --output="$directory/job.log" \
  "$source_dir/examples/cluster/slurm.sbatch" --model mlp --data-dir "$directory/data" --epochs 60 --threads 1 ||
  fail 'sbatch'
job=$(tail -n1 output)
restarts() { on_host 1 scontrol show job "$job" | sed -nE 's/.* Restarts=([0-9]+).*/\1/p'; }
is_over() { grep -qE 'JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT)' <<<"$(on_host 1 scontrol show job "$job")"; }
has_checkpoint() { compgen -G "$directory/run/step-*" >/dev/null || { is_over && fail 'the job is over before it was requeued'; }; }
until_true 'the first checkpoint' has_checkpoint
on_host 1 scancel --batch --signal=USR1 "$job"
is_requeued() { [ "$(restarts)" = 1 ]; }
until_true 'the job to be requeued' is_requeued
until_true 'the end of the job' is_over
on_host 1 scontrol show job "$job" >output
says 'JobState=COMPLETED'
cp job.log output
says "job $job: its time is nearly up"
says '^resumed from .* after [0-9]+ training steps'
says 'epoch 60'
echo "sbatch: $(grep -oE 'resumed from .*' output | sed "s|$directory/||") after SIGUSR1"
