#!/usr/bin/env bash
# usage: bench.sh BUILD_DIRECTORY JSON_FLATTEN [MPI LAUNCHER...]
# The command line of farandole-bench. What its table looks like is left open.
bench=$(cd "$1" && pwd)/bin/farandole-bench
flatten=$(realpath "$2"); shift 2
# shellcheck source=tests/cli/expect.sh
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
quick=(--max-bytes 64 --iterations 3)

# Options.
works 'farandole-bench' "$bench" --help
for option in help collective algorithm min-bytes max-bytes factor dtype op root replicas iterations place no-check json; do
  has "--$option "
done
refused 'colective.*Did you mean.*--collective' "$bench" --colective allreduce
refused . "$bench" stray

# Values.
refused "'allredcue'.*did you mean 'allreduce'.* barrier" "$bench" --collective allredcue
refused "'rign'.* ring .*circulant" "$bench" --replicas 2 "${quick[@]}" --algorithm rign
refused 'halving_doubling .*3 ranks' "$bench" --replicas 3 "${quick[@]}" --algorithm halving_doubling
refused "'f23'.*did you mean 'f32'.* bool, .*f64" "$bench" --dtype f23
refused "'summ'.*did you mean 'sum'.* sum, .*average" "$bench" --op summ
refused 'average of i32 ' "$bench" --replicas 2 "${quick[@]}" --dtype i32 --op average
for option in --min-bytes --max-bytes; do refused "'1X'.* 4MiB" "$bench" $option 1X; done
refused '--min-bytes .*--max-bytes' "$bench" --min-bytes 8 --max-bytes 4
refused '--factor .*1' "$bench" --factor 1
refused '--factor' "$bench" --factor x
refused '--root .*2.* 0 .*1' "$bench" --replicas 2 "${quick[@]}" --root 2
for replicas in 0 65; do refused "replicas.* $replicas.* 1 .*64" "$bench" --replicas $replicas; done
refused "--place .*'over'.* in, out or both" "$bench" --place over
refused 'FARANDOLE_ALREDUCE .*did you mean FARANDOLE_ALLREDUCE' env FARANDOLE_ALREDUCE=ring "$bench"

# measures COUNT ARGUMENTS...: a JSON array of so many results, each with all documented fields (docs/benchmarks.md).
measures() {
  local count=$1 number='[0-9][0-9.e+-]*'; shift
  rm -f results.json
  works 'allreduce|broadcast|barrier' "$@" --json results.json
  timeout 60 "$flatten" results.json >out 2>&1 || fail "invalid JSON of: $*"
  for field in 'collective="[a-z_]+"' 'algorithm="[a-z_]+"' 'transport=".+"' 'dtype="[a-z0-9]+"' 'op="[a-z]+"' \
    'memory=".+"' 'ranks=2' 'bytes=[0-9]+' 'in_place=(true|false)' "p50_us=$number" "p99_us=$number" \
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
if [ $# -gt 0 ]; then measures 2 "$@" "$bench" --min-bytes 64 "${quick[@]}"; fi

# A file that cannot be written.
ends 1 'nowhere/x\.json' "$bench" --replicas 2 "${quick[@]}" --json nowhere/x.json
[ ! -e /dev/full ] || ends 1 '/dev/full' "$bench" --replicas 2 "${quick[@]}" --json /dev/full
finish
