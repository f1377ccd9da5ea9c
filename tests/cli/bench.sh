#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: bench.sh BUILD_DIRECTORY JSON_FLATTEN [MPI LAUNCHER...]
# Tests the command line of farandole-bench, except for the layout of its table.
bench=$(cd "$1" && pwd)/bin/farandole-bench
flatten=$(realpath "$2"); shift 2
# shellcheck source=tests/cli/expect.sh
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
quick=(--max-bytes 64 --iterations 3)

# Options.
offers 'collective algorithm min-bytes max-bytes factor dtype op root replicas iterations time-of place memory rotate-buffers
  peer mpi-threads beside no-check wide json tune tune-seconds' "$bench"
refused 'colective.*Did you mean.*--collective' "$bench" --colective allreduce
refused . "$bench" stray

# Values.
refused "'allredcue'.*did you mean 'allreduce'.* barrier" "$bench" --collective allredcue
refused "'rign', which allreduce does not have; valid are ring, .*circulant.*vendor.*mean 'ring'" "$bench" --algorithm rign
refused "'bruck', which allreduce does not have" "$bench" --collective allgather,allreduce --algorithm bruck
refused '--algorithm all needs one --collective' "$bench" --collective all --algorithm all
refused 'halving_doubling .*3 ranks' "$bench" --replicas 3 "${quick[@]}" --algorithm ring,halving_doubling
has_lines 1 .
refused "'f23'.*did you mean 'f32'.* bool, .*f64" "$bench" --dtype f23
refused "'summ'.*did you mean 'sum'.* sum, .*average.*bit_xor" "$bench" --op summ
refused 'no average of bool' "$bench" --replicas 2 "${quick[@]}" --dtype bool --op average
has_no '^#'
refused 'no bit_and of f32' "$bench" --replicas 2 "${quick[@]}" --op bit_and
for op in bit_and bit_or bit_xor; do
  for dtype in bool u8 i64 u64; do works $op "$bench" --replicas 2 "${quick[@]}" --dtype $dtype --op $op; done
done
works i32 "$bench" --replicas 2 "${quick[@]}" --dtype i32 --op average
for option in --min-bytes --max-bytes; do refused "'1X'.* 4MiB" "$bench" $option 1X; done
refused '--min-bytes .*--max-bytes' "$bench" --min-bytes 8 --max-bytes 4
refused '--factor .*1' "$bench" --factor 1
refused '--factor' "$bench" --factor x
refused '--root .*2.* 0 .*1' "$bench" --replicas 2 "${quick[@]}" --root 2
for replicas in 0 65; do refused "replicas.* $replicas.* 1 .*64" "$bench" --replicas $replicas; done
refused "--beside is 0; it must be at least 1" "$bench" --beside 0
refused '--beside does not go with --peer' "$bench" --beside 1K --peer mpi
refused '--beside does not go with --tune' "$bench" --replicas 2 --tune t.json --beside 1K
refused "--time-of .*'me'.* rank0, average or slowest" "$bench" --time-of me
refused '--time-of does not go with --tune' "$bench" --replicas 2 --tune t.json --time-of average
refused "--place .*'over'.* in, out or both" "$bench" --place over
refused 'FARANDOLE_ALREDUCE .*did you mean FARANDOLE_ALLREDUCE' env FARANDOLE_ALREDUCE=ring "$bench"

# measures COUNT ARGUMENTS...: a JSON array of so many results, each with all documented fields (docs/benchmarks.md).
measures() {
  local count=$1 number='[0-9][0-9.e+-]*'; shift
  rm -f results.json
  works 'allreduce|broadcast|barrier|sendrecv' "$@" --json results.json
  timeout 60 "$flatten" results.json >out 2>&1 || fail "invalid JSON of: $*"
  for field in 'collective="[a-z_]+"' 'algorithm="[a-z_]+"' 'transport=".+"' 'dtype="[a-z0-9]+"' 'op="[a-z]+"' \
    'memory=".+"' 'time_of="[a-z0-9]+"' 'ranks=2' 'bytes=[0-9]+' 'in_place=(true|false)' "p50_us=$number" "p99_us=$number" \
    "busbw_gbs=$number" 'wrong=0'; do
    has_lines "$count" "^/[0-9]+/$field\$"
  done
  has_no '/p50_us=0(\.0)?$'
}
# One size, out of place and in place; broadcast has no first, barrier has no second.
measures 2 "$bench" --replicas 2 --min-bytes 64 "${quick[@]}"
has '^/0/collective="allreduce"$'
has '^/0/bytes=64$'
has_lines 1 'in_place=true'
measures 6 "$bench" --replicas 2 "${quick[@]}"  # 4, 16 and 64 bytes
measures 16 "$bench" --replicas 2 --min-bytes 64 "${quick[@]}" --collective all
for collective in allreduce broadcast reduce allgather reduce_scatter gather scatter alltoall barrier; do
  has "/collective=\"$collective\""
done
measures 12 "$bench" --replicas 2 --min-bytes 64 "${quick[@]}" --algorithm all
for algorithm in ring binomial_tree double_tree recursive_doubling halving_doubling circulant; do
  has_lines 2 "/algorithm=\"$algorithm\""
done
measures 2 "$bench" --replicas 2 --min-bytes 64 "${quick[@]}" --collective reduce,gather --place out --root 1 --dtype i64 --op max
has_lines 2 'dtype="i64"'
has_lines 2 'op="max"'
has_no 'in_place=true'
measures 3 "$bench" --replicas 2 "${quick[@]}" --place in --no-check
# Messages in a ring, after the collectives.
measures 3 "$bench" --replicas 2 "${quick[@]}" --collective sendrecv
has_lines 3 'collective="sendrecv"'
has_lines 3 'algorithm="messages"'
has_no 'in_place=true'
measures 6 "$bench" --replicas 2 "${quick[@]}" --collective sendrecv,broadcast --dtype u8 --memory window
has_lines 3 'collective="broadcast"'
has '^/0/collective="broadcast"$'
has '^/5/collective="sendrecv"$'
for ranks in 1 3; do
  works '^ sendrecv +messages +64 ' "$bench" --replicas $ranks "${quick[@]}" --collective sendrecv
  has '^# all results right$'
done
for option in --algorithm=ring --tune=t.json --peer=mpi; do
  refused "${option%=*} is for collectives; --collective sendrecv measures messages" "$bench" --collective sendrecv "$option"
done
for times in average slowest; do
  measures 6 "$bench" --replicas 2 "${quick[@]}" --time-of $times
  has_lines 6 "time_of=\"$times\""
done
# The table: 100 columns, or all with --wide.
fits() { [ "$(wc -L <out)" -le 100 ] || fail "a line of $(wc -L <out) columns"; }
works '^# farandole-bench: 1 rank on 1 host' "$bench" "${quick[@]}"
works '^# farandole-bench: 2 ranks on 1 host' "$bench" --replicas 2 --collective all --max-bytes 1MiB --iterations 1
fits
has '^#collective +algorithm +bytes +p50 us +p99 us +busbw\| +p50 us +p99 us +busbw$'
has '^ reduce_scatter +[a-z_]+ +1048576 +[0-9.]+ +[0-9.]+ +[0-9.]+\| +[0-9.]+ +[0-9.]+ +[0-9.]+$'
has '^# all results right$'
works '^ allreduce' "$bench" "${quick[@]}" --no-check
has_no 'all results right'
# A terminal: one placement; the narrowest, without the 99th percentile.
on_terminal() {
  local columns=$1; shift
  works '^# all results right' script -qec "stty cols $columns; $(printf '%q ' "$bench" --collective all --replicas 2 "${quick[@]}" "$@")" /dev/null
  tr -d '\r' <out | grep -E '^( |#  |#collective|# broadcast)' >table; mv table out
  [ "$(wc -L <out)" -le "$columns" ] || fail "$(wc -L <out) characters in a line of a terminal of $columns"
  has '^ broadcast .*[0-9]$'
}
if command -v script >/dev/null; then
  on_terminal 80
  has '^# broadcast: in place; 100 columns show both placements$'
  has '^#collective +algorithm +bytes +p50 us +p99 us +busbw$'
  on_terminal 60
  has '^#collective +algorithm +bytes +p50 us +busbw$'
  on_terminal 60 --place in
  has '^# +in place$'
  on_terminal 120
  has '^#collective +algorithm +bytes +p50 us +p99 us +busbw\| +p50 us +p99 us +busbw$'
fi
works '^#collective +algorithm +bytes +count +p50 us +p99 us +algbw +busbw +#wrong \| ' "$bench" --replicas 2 "${quick[@]}" --wide
has '^ allreduce +[a-z_]+ +64 +16 .* 0 \| .* 0$'
if [ $# -gt 0 ]; then
  works '^#collective +algorithm +bytes +p50 us +peer us +ratio\| ' "$@" "$bench" "${quick[@]}" --peer mpi
  grep -E '^[ #]' out >table; mv table out; fits
fi
# While another allreduce runs.
measures 6 "$bench" --replicas 2 "${quick[@]}" --beside 1MiB
has_lines 6 'beside_bytes=1048576'
if [ $# -gt 0 ]; then measures 2 "$@" "$bench" --min-bytes 64 "${quick[@]}"; fi

# A file that cannot be written is noticed before anything is measured, and so is one that can only be opened at the end.
for file in nowhere/x.json .; do
  for option in --json --tune; do
    ends 1 "The results cannot be written to $file: " "$bench" --replicas 2 "${quick[@]}" $option $file
    has_lines 1 .
    [ $# = 0 ] || ends 1 "The results cannot be written to $file: " "$@" "$bench" "${quick[@]}" $option=$file
    has_no 'allreduce|broadcast|barrier|failed'
  done
done
[ ! -e /dev/full ] || ends 1 '/dev/full' "$bench" --replicas 2 "${quick[@]}" --json /dev/full

# What was there stays whole until the new file is, and nothing else is left behind.
echo old >results.json
ends 2 'no average of bool' "$bench" --replicas 2 "${quick[@]}" --json results.json --dtype bool --op average
[ "$(cat results.json)" = old ] || fail 'a run that failed has changed the file'
rm results.json
[ "$(ls -A)" = out ] || fail "files are left behind: $(ls -A)"

# Tables of measured choices.
refused '--tune-seconds is only of use with --tune' "$bench" --replicas 2 --tune-seconds 5
for seconds in 0 -1 nan 1e9; do refused '--tune-seconds is .* more than 0' "$bench" --replicas 2 --tune t.json --tune-seconds $seconds; done
refused '--algorithm does not go with --tune' "$bench" --replicas 2 --tune t.json --algorithm ring
refused '--json does not go with --tune' "$bench" --replicas 2 --tune t.json --json t.json
refused '--peer does not go with --tune' "$bench" --tune t.json --peer mpi
refused '--tune needs several ranks' "$bench" --tune t.json
for setting in FARANDOLE_REDUCE=binomial FARANDOLE_SLICE_BYTES=64K FARANDOLE_ONE_SHOT_BYTES=0; do
  refused "--tune measures what ${setting%=*} would set; unset it" env $setting "$bench" --replicas 2 --tune t.json
done
[ ! -e t.json ] || fail 'a table was written where it was refused'
works 'FARANDOLE_TUNING=t.json uses it' "$bench" --replicas 2 --min-bytes 16 --max-bytes 2M --factor 64 --tune t.json \
  --tune-seconds 20 --iterations 3
for collective in allreduce broadcast reduce allgather reduce_scatter gather scatter alltoall barrier; do
  has "^$collective of [0-9]+ bytes: [a-z_]+, [0-9]+ segments?, [0-9.]+ us"
done
timeout 60 "$flatten" t.json >out 2>&1 || fail 'the table is no JSON'
has '^/format=1$'
has '^/measured_on/ranks=2$'
has '^/measured_on/transport="inproc"$'
has '^/shared_memory/one_shot_bytes=[0-9]+$'
has '^/shared_memory/slice_bytes=[0-9]+$'
# 16 bytes, 1 KiB and 64 KiB, each up to half way to the next one in orders of magnitude.
for entry in 0/up_to_bytes=128 1/up_to_bytes=8192 2/up_to_bytes=524288; do has "^/collectives/allreduce/$entry\$"; done
has_lines 3 '^/collectives/allreduce/[0-9]+/time_us=[0-9]'
has_lines 1 '^/collectives/barrier/[0-9]+/algorithm='
measures 2 env FARANDOLE_TUNING=t.json "$bench" --replicas 2 --min-bytes 64 "${quick[@]}"
# Only what is asked for; one replaces the other.
works 'only.json' "$bench" --replicas 2 "${quick[@]}" --collective reduce,gather --tune only.json
works 'only.json' "$bench" --replicas 2 "${quick[@]}" --collective gather --tune only.json
timeout 60 "$flatten" only.json >out 2>&1 || fail 'the table is no JSON'
has '/gather/'
has_no '/reduce/'
# Time that is up leaves the rest to the built-in choice, and the table whole.
works 'the time is up .--tune-seconds.: ' "$bench" --replicas 2 --tune short.json --tune-seconds 0.001
timeout 60 "$flatten" short.json >out 2>&1 || fail 'the table is no JSON'
if [ $# -gt 0 ]; then
  works 'mpi.json uses it' "$@" "$bench" "${quick[@]}" --collective allreduce --tune=mpi.json
  timeout 60 "$flatten" mpi.json >out 2>&1 || fail 'the table is no JSON'
  has '^/measured_on/transport="mpi"$'
  measures 2 "$@" env FARANDOLE_TUNING=mpi.json "$bench" --min-bytes 64 "${quick[@]}"
fi
finish
