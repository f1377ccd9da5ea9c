#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: local_job.sh -n PROCESSES own_host.sh PROGRAM [ARGUMENT...]
# Makes each rank count as the only rank of its host, for NCCL, too, which then accepts ranks that share a device.
FARANDOLE_HOST_ID=${FARANDOLE_HOST_ID-host}-${FARANDOLE_RANK-$RANK}
NCCL_HOSTID=$FARANDOLE_HOST_ID
export FARANDOLE_HOST_ID NCCL_HOSTID
exec "$@"
