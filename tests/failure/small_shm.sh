#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: small_shm.sh tiny|none LAUNCHER... PROGRAM
# Checks that ranks share memory although /dev/shm holds only 64 KiB (tiny) or nothing, being read-only (none). The script also
# keeps the MPI from using /dev/shm. Needs root.
set -u
kind=$1; shift
if [ -z "${OWN_SHM-}" ]; then
  [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || { echo "skipped: a mount namespace needs root"; exit 77; }
  OWN_SHM=yes exec unshare -m "$0" "$kind" "$@"
fi
case $kind in
  tiny) mount -t tmpfs -o size=64k tmpfs /dev/shm || exit 1 ;;
  none) mount -t tmpfs -o size=4k,ro tmpfs /dev/shm || exit 1 ;;
esac
# Open MPI, MPICH and UCX keep messages between local ranks in /dev/shm otherwise. (Over TCP, MPICH's MPI_Finalize
# hangs now and then.)
export OMPI_MCA_btl=self,tcp MPIR_CVAR_NOLOCAL=1 UCX_TLS=self,sysv
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir "$work/ranks" "$work/joined"
timeout --kill-after=5 60 "$@" 100 "$work" >"$work/output" 2>&1 </dev/null; status=$?
cat "$work/output"
[ $status = 0 ] || { echo "FAIL: exit status $status"; exit 1; }
[ "$(grep -c 'is done' "$work/output")" = 3 ] || { echo "FAIL: not all ranks are done"; exit 1; }
[ -z "$(ls /dev/shm)" ] || { echo "FAIL: something is left in /dev/shm: $(ls /dev/shm)"; exit 1; }
echo "as expected"
