#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: local_job.sh -n PROCESSES own_host.sh PROGRAM [ARGUMENT...]
# Each rank counts as one on a host of its own.
FARANDOLE_HOST_ID=${FARANDOLE_HOST_ID-host}-${FARANDOLE_RANK-$RANK} exec "$@"
