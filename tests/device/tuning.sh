#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: tuning.sh BENCH INFO VARIABLE=VALUE…
# Checks that farandole-bench makes tuning tables for device memory, and that programs use the tables. The variables select the
# double.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/cli/expect.sh
source "$here/../cli/expect.sh"
bench=$1 info=$2; shift 2
on_double=(env "$@")
tune=("${on_double[@]}" "$bench" --replicas 2 --memory device --iterations 1 --min-bytes 64 --max-bytes 4K --factor 64)

works 'table.json uses it' "${tune[@]}" --tune table.json --tune-seconds 20
has '^# farandole-bench --tune: 2 ranks on 1 host, inproc, memory device, '
has '^allreduce of 64 bytes: [a-z_]+, [0-9]+ segment'
has_no 'barrier|shared memory'
cp table.json out
has_lines 1 '"device_collectives"'
has_no '"collectives"|"shared_memory"|barrier'
for collective in allreduce broadcast reduce allgather reduce_scatter gather scatter alltoall; do has "^  \"$collective\": \["; done

# A table that says what nothing else would choose.
cat >odd.json <<'END'
{"format": 1, "measured_on": {"ranks":2,"hosts":1,"transport":"inproc","version":"1"},
 "device_collectives": {"allreduce": [{"up_to_bytes":512,"algorithm":"recursive_doubling","segments":1,"time_us":9}],
                        "alltoall": [{"up_to_bytes":512,"algorithm":"pairwise","segments":1,"time_us":9}]}}
END
explains() { works "$1" "${on_double[@]}" FARANDOLE_TUNING=odd.json "$info" --size 2 --explain "$2" "$3" --memory "${4-device}"; }
explains '^allreduce of 512 bytes of device memory among 2 ranks: recursive_doubling, 1 segment$' allreduce 512
has '^chosen by the table odd.json: 9 us were measured for up to 512 bytes, '
explains ': pairwise, 1 segment$' alltoall 512
explains '^allreduce of 513 bytes of device memory among 2 ranks: vendor$' allreduce 513
has '^chosen by Farandole, because the table odd.json ends at 512 bytes for allreduce of device memory$'
explains '^chosen by Farandole, because the table odd.json has nothing for broadcast of device memory$' broadcast 8
explains '^chosen by Farandole, because the table odd.json has nothing for allreduce$' allreduce 8 host
works 'recursive_doubling' "${on_double[@]}" FARANDOLE_TUNING=odd.json "$bench" --replicas 2 --memory device --min-bytes 512 \
  --max-bytes 512 --iterations 1

works '^ sendrecv +messages +64 ' "${on_double[@]}" "$bench" --replicas 3 --memory device --collective sendrecv --iterations 1 \
  --min-bytes 64 --max-bytes 4K --factor 64
has '^# all results right$'
refused '--tune with --memory device does not measure barrier' "${tune[@]}" --tune t.json --collective barrier
sed 's/recursive_doubling/shared_memory/' odd.json >wrong.json
ends 1 'wrong.json: device memory, allreduce, entry 1 .*: shared_memory works on host memory only' "${on_double[@]}" \
  FARANDOLE_TUNING=wrong.json "$bench" --replicas 2 --iterations 1
sed 's/recursive_doubling/hierarchical/' odd.json >wrong.json
ends 1 'hierarchical needs several hosts' "${on_double[@]}" FARANDOLE_TUNING=wrong.json "$bench" --replicas 2 --iterations 1
finish
