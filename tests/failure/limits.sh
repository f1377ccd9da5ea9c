#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: limits.sh CASE PROGRAM WITHOUT_CALLS LAUNCHER...
# Runs two ranks (in some cases one) on a machine with a limit. Checks that they work as far as possible, and report what is
# lost. PROGRAM is limited_rank; LAUNCHER starts the command after it twice. Each job has 60 seconds.
set -u
case_=$1 program=$2 without=$3; shift 3
launcher=("$@")
# Open MPI does not bear these limits in its own shared memory; MPICH bears all of these but that of file sizes.
export OMPI_MCA_btl=self,tcp PMIX_MCA_gds=hash
output=$(mktemp); trap 'rm -f "$output"' EXIT

fail() { cat "$output"; echo "FAIL: $*"; exit 1; }
skip() { echo "skipped: $*"; exit 77; }
alone() { timeout --kill-after=5 60 "$@" >"$output" 2>&1 </dev/null || fail "exit status $?"; }
job() { alone "${launcher[@]}" "$@"; }
says() { grep -q -- "$1" "$output" || fail "it does not say '$1'"; }
# One line of each rank at most, and none more.
says_once() { [ "$(grep -c -- "$1" "$output")" -ge 1 ] && [ "$(grep -c -- "$1" "$output")" -le 2 ] || fail "'$1' is not said once by each rank"; }
silent() { ! grep -qi warning "$output" || fail "a warning where nothing is lost"; }
shares() { says 'rank 0 of 2, local rank 0 of 2, shares memory'; says 'rank 1 of 2, local rank 1 of 2, shares memory'; }
exchanges() {
  says 'rank 0 of 2, local rank 0 of 2, exchanges messages'; says 'rank 1 of 2, local rank 1 of 2, exchanges messages'
  says_once 'exchange messages, which is slower, because they cannot share memory'
}
# The loader asks /proc where a program lies, for libraries that are named from there.
without_origin() { LD_LIBRARY_PATH=$(cd "$(dirname "$program")/../lib" && pwd):${LD_LIBRARY_PATH-}; export LD_LIBRARY_PATH; }
needs_root() { [ "$(id -u)" = 0 ] || skip "needs root"; unshare -m true 2>/dev/null || skip "no name spaces here"; }

case $case_ in
  file_size) # in units of 1024 bytes
    job bash -c 'ulimit -f 1000; exec "$@"' _ "$program"; exchanges; says 'ulimit -f'
    job bash -c 'ulimit -f 100000; exec "$@"' _ "$program" --window 1000000; shares; says 'window: filled'; silent
    job bash -c 'ulimit -f 100000; exec "$@"' _ "$program" --window 400000000; shares; says 'window: .*ulimit -f'
    ;;
  address_space)
    job bash -c 'ulimit -v 20000000; exec "$@"' _ "$program"; shares; silent
    job bash -c 'ulimit -v 8000000; exec "$@"' _ "$program" --window 4000000000; shares; says 'window: .*ulimit -v'
    alone bash -c 'ulimit -v 1000000; exec "$@"' _ "$program"; says 'rank 0 of 1'; silent
    ;;
  open_files) # 62 ranks by sockets need more than 64
    FARANDOLE_MPI=off job bash -c 'ulimit -S -n 64; exec "$@"' _ "$program"; shares; silent
    ;;
  locked_memory)
    job bash -c '"$@" --lock; status=$?; exit $status' _ "$program"; shares; silent
    ;;
  no_memory_files) job "$without" refused memfd_create "$program"; exchanges; says 'memfd_create: Operation not permitted' ;;
  no_reading) job "$without" refused process_vm_readv "$program"; shares; silent ;;
  killed_for_reading) FARANDOLE_SINGLE_COPY_BYTES=0 job "$without" killed process_vm_readv "$program"; shares; silent ;;
  killed_for_memory_files)
    FARANDOLE_SHARED_MEMORY=off job "$without" killed memfd_create,process_vm_readv "$program"; silent
    says 'rank 1 of 2, local rank 1 of 2, exchanges messages'
    ;;
  killed_for_all_alone)
    alone "$without" killed memfd_create,process_vm_readv,pidfd_open "$program"; says 'rank 0 of 1'; silent
    ;;
  never_executable)
    needs_root
    unshare -p -f --mount-proc sh -c 'echo 2 >/proc/sys/vm/memfd_noexec' 2>/dev/null || skip "no vm.memfd_noexec here"
    alone unshare -p -f --mount-proc sh -c 'echo 2 >/proc/sys/vm/memfd_noexec; exec "$@"' _ "${launcher[@]}" "$program"
    shares; silent
    ;;
  process_name_spaces) needs_root; job unshare -p -f --mount-proc --kill-child "$program"; exchanges; says 'process name space' ;;
  user_name_spaces)
    needs_root
    unshare -U -r true 2>/dev/null || skip "no user name spaces here"
    # Root of the outer space may read what the inner one's may not; so nobody is it in both.
    job unshare -U -r "$program"; says 'local rank 1 of 2'
    ;;
  no_proc)
    needs_root
    without_origin
    job unshare -m sh -c 'mount -t tmpfs none /proc && exec "$@"' _ "$program"; exchanges; says 'mount /proc'
    ;;
  no_sys) needs_root; job unshare -m sh -c 'mount -t tmpfs none /sys && exec "$@"' _ "$program"; shares; silent ;;
  no_ports) # one port for both ranks
    needs_root
    timeout 60 unshare -n sh -c 'ip link set lo up; echo 40000 40000 >/proc/sys/net/ipv4/ip_local_port_range; exec "$@"' _ \
      env FARANDOLE_TIMEOUT=10 "${launcher[@]}" "$program" >"$output" 2>&1 </dev/null && fail "it has found a port"
    says 'net.ipv4.ip_local_port_range'
    ;;
  hidden_processes)
    needs_root
    alone unshare -m sh -c 'mount -o remount,hidepid=2 /proc && exec "$@"' _ "${launcher[@]}" "$program"; shares; silent
    ;;
  control_group)
    needs_root
    group=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)/farandole-limits-$$
    limit=$group/memory.limit_in_bytes
    [ -d /sys/fs/cgroup/memory ] || { group=/sys/fs/cgroup/farandole-limits-$$; limit=$group/memory.max; }
    mkdir "$group" 2>/dev/null || skip "no control group can be made"
    trap 'rm -f "$output"; rmdir "$group" 2>/dev/null' EXIT
    echo 300000000 >"$limit" 2>/dev/null || skip "the control group takes no limit"
    job sh -c 'echo $$ >"$0"/cgroup.procs; exec "$@"' "$group" "$program" --window 400000000
    shares; says "window: .*memory of the control group"
    ;;
  *) echo "no case $case_" >&2; exit 2 ;;
esac
echo "as expected"
