#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage, as root: gloo_between_hosts.sh PYTHON [MAX_BYTES]
# Measures PyTorch's allreduce over gloo between the two hosts of tests/mpi/two_hosts.sh, with one rank on each: median and 99th
# percentile. PYTHON belongs to an environment with torch.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# The first host has the address that ends in 1.
# shellcheck disable=SC2016  # expanded on the hosts
exec "$here/../mpi/two_hosts.sh" mpirun.openmpi 1 240 sh -c '
  own=$(ip -4 -o address show eth0 | sed "s/.* inet \\([0-9.]*\\)\\/.*/\\1/")
  RANK=$OMPI_COMM_WORLD_RANK MASTER_ADDR=${own%.*}.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=eth0 exec "$@"' \
  gloo "$1" "$here/torch_allreduce.py" 2 "${2-67108864}"
