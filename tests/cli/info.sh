#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: info.sh BUILD_DIRECTORY JSON_FLATTEN [MPI LAUNCHER...]
# Tests the command line of farandole-info.
info=$(cd "$1" && pwd)/bin/farandole-info
flatten=$(realpath "$2"); shift 2
docs=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../docs" && pwd)
# shellcheck source=tests/cli/expect.sh
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# Options.
offers 'json config explain size memory' "$info"
refused "no option '--explian'.*mean '--explain'" "$info" --explian allreduce 1M
refused "no option '--conf'.*mean '--config'" "$info" --conf
refused "'stray' belongs to no option" "$info" stray
refused "'stray' belongs to no option" "$info" --config=text stray
refused "--config is 'xml'; it must be text or markdown" "$info" --config xml
refused '--json, --config and --explain .*give one' "$info" --json --config
refused '--size is only of use with --explain' "$info" --size 4
refused '--memory is only of use with --explain' "$info" --memory device
refused "--memory is 'gpu'; it must be host or device" "$info" --explain allreduce 1M --memory gpu
refused "argument for option '--explain' is missing" "$info" --explain
refused '--explain needs a collective and a number of bytes, e\.g\.' "$info" --explain allreduce
refused '--explain needs a collective and a number of bytes, e\.g\.' "$info" --explain allreduce 1M 2M
refused "'allredcue' is no collective .*mean 'allreduce'.* allreduce, .*, barrier" "$info" --explain allredcue 1M
refused "'1Q' is no number of bytes; .* 4MiB" "$info" --explain allreduce 1Q
for size in 0 65 -2 x; do
  refused "--size has '$size'; it takes numbers from 1 to 64" "$info" --explain allreduce 1M --size=$size
done
refused 'FARANDOLE_ALREDUCE .*did you mean FARANDOLE_ALLREDUCE' env FARANDOLE_ALREDUCE=ring "$info"
refused "FARANDOLE_TIMEOUT is 'soon'; it must be seconds from 0" env FARANDOLE_TIMEOUT=soon "$info" --config

# The report.
works '^version +[0-9]+\.[0-9]+\.[0-9]+$' "$info"
version=$(sed -nE 's/^version +//p' out)
for label in build 'instruction set' 'allowed cores' plug-ins 'backend +none'; do has "^$label +[^ ]"; done
has '^settings +all have their defaults$'
has '^devices +(none \(.+\)|CUDA: .+)$'
works '^settings +these differ' env FARANDOLE_TIMEOUT=5 FARANDOLE_MPI=off "$info"
has '^  FARANDOLE_TIMEOUT=5 \(default: 0\)$'
has_lines 2 '^  FARANDOLE_'
works '' env FARANDOLE_TIMEOUT=5 "$info" --json
mv out report.json
works "^/version=\"$version\"\$" "$flatten" report.json
for field in build isa backend/plugin backend/reason; do has "^/$field=\""; done
has '^/allowed_cores=[1-9][0-9]*$'
has '^/plugins'
has '^/changed_settings/FARANDOLE_TIMEOUT="5"$'
has_lines 1 '^/changed_settings/'
for field in version reason collectives_missing; do has "^/devices/$field=\""; done
has '^/devices/list'

# Devices, or why there are none; each on a line of its own.
works '^devices +none \(FARANDOLE_CUDA=off\)$' env FARANDOLE_CUDA=off "$info"
works '' env FARANDOLE_CUDA=off "$info" --json
mv out report.json
works '^/devices/reason="FARANDOLE_CUDA=off"$' "$flatten" report.json
works '^devices +none \((no plug-in cuda|FARANDOLE_CUDA_LIBRARY: /nowhere/libcuda.so.1: )' env FARANDOLE_CUDA_LIBRARY=/nowhere/libcuda.so.1 "$info"

# Settings: all that the documentation has, and the documentation itself, also while the environment is wrong.
works '^# Configuration$' env FARANDOLE_ALREDUCE=ring "$info" --config markdown
cmp out "$docs/configuration.md" || fail 'docs/configuration.md is another text'
works '^FARANDOLE_TIMEOUT=5$' env FARANDOLE_TIMEOUT=5 "$info" --config
has 'default: 0; seconds from 0 to '
# shellcheck disable=SC2016  # the backquotes of the table
sed -nE 's/^\| `(FARANDOLE_[A-Z_]+)`.*/\1/p' "$docs/configuration.md" >documented
[ -s documented ] || fail 'docs/configuration.md lists no setting'
sed -nE 's/^(FARANDOLE_[A-Z_]+)=.*/\1/p' out | cmp -s - documented || fail '--config and docs/configuration.md list different settings'

# Which algorithm, and why.
works '^allreduce of 1048576 bytes among 4 ranks: shared_memory$' "$info" --explain allreduce 1MiB --size 4
has '^chosen by Farandole: the ranks live on one host and share memory: two shots, in parts of '
works 'share memory: one shot' "$info" --explain allreduce 64 --size 4
works '^allreduce of 1048576 bytes among 4 ranks: [a-z_]+, [0-9]+ segment' \
  env FARANDOLE_SHARED_MEMORY=off "$info" --explain allreduce 1MiB --size 4
has '^Over inproc .* the cost model expects:$'
for algorithm in ring binomial_tree double_tree recursive_doubling halving_doubling circulant; do
  has "^  $algorithm .* us predicted"
done
works 'among 3 ranks: ring, 1 segment$' env FARANDOLE_ALLREDUCE=ring "$info" --explain allreduce 64 --size 3
has 'forced by a setting'
has_no halving_doubling
works '^barrier .* among 1 ranks' "$info" --explain barrier 0
if [ $# -gt 0 ]; then
  works 'among 2 ranks: shared_memory' "$@" "$info" --explain allreduce 1MiB
  has_lines 1 among
  works '^backend +mpi_' "$@" "$info"
fi

# By a table of measured choices: which entry, or why none.
cat >table.json <<'TABLE'
{"format": 1, "measured_on": {"ranks": 4, "hosts": 1, "transport": "inproc", "version": "0.0.7"},
 "shared_memory": {"one_shot_bytes": 100, "slice_bytes": 8192},
 "collectives": {"allreduce": [{"up_to_bytes": 60, "algorithm": "shared_memory", "segments": 1, "time_us": 0.5},
   {"up_to_bytes": 2000, "algorithm": "double_tree", "segments": 7, "time_us": 12.25}]}}
TABLE
tuned=(env FARANDOLE_TUNING=table.json)
works '^allreduce of 2000 bytes among 4 ranks: double_tree, 7 segments$' "${tuned[@]}" "$info" --explain allreduce 2000 --size 4
has '^chosen by the table table.json: 12.25 us were measured for up to 2000 bytes, with Farandole 0.0.7 on 4 ranks on 1 host, inproc$'
works ': shared_memory$' "${tuned[@]}" "$info" --explain allreduce 60 --size 4
has '^chosen by the table table.json: 0.5 us .* up to 60 bytes'
works ': shared_memory$' "${tuned[@]}" "$info" --explain allreduce 9000 --size 4
has '^chosen by Farandole, because the table table.json ends at 2000 bytes for allreduce$'
has 'two shots, in parts of 8192 bytes'
works 'one shot' "${tuned[@]}" "$info" --explain broadcast 100 --size 4
has 'because the table table.json has nothing for broadcast$'
works 'two shots' "${tuned[@]}" "$info" --explain broadcast 101 --size 4
works 'because the table table.json is for 4 ranks on 1 host, inproc, and this is 3 ranks on 1 host, inproc$' \
  "${tuned[@]}" "$info" --explain allreduce 60 --size 3
works 'in parts of 65536 bytes' "${tuned[@]}" env FARANDOLE_SLICE_BYTES=64K "$info" --explain allreduce 9000 --size 4
works 'because the table table.json says shared_memory, but the ranks share no memory here$' \
  "${tuned[@]}" env FARANDOLE_SHARED_MEMORY=off "$info" --explain allreduce 60 --size 4
works '^forced by a setting \(ring\), which goes before the table table.json$' \
  "${tuned[@]}" env FARANDOLE_ALLREDUCE=ring "$info" --explain allreduce 60 --size 4

# Tables that are none. Every rank says so, unless the launcher ends it because another one has.
# bad PATTERN: the file bad.json is refused, by threads and by processes.
bad() {
  ends 1 "DataError: $1" env FARANDOLE_TUNING=bad.json "$info" --explain allreduce 60 --size 4
  has_lines 1 .
  [ $# = 1 ] || ends 1 "^farandole-info: DataError: rank [01]: $1" "${@:2}" env FARANDOLE_TUNING=bad.json "$info" --explain allreduce 60
}
bad "FARANDOLE_TUNING is 'bad.json', which rank 0 cannot read: No such file" "$@"
mkdir bad.json
bad "FARANDOLE_TUNING is 'bad.json', which rank 0 cannot read: Is a directory" "$@"
rmdir bad.json
: >bad.json; bad 'bad.json: line 1: this is not JSON, the file is empty'
head -n 3 table.json >bad.json; bad 'bad.json: line 4: this is not JSON' "$@"
head -c 2000000 /dev/zero >bad.json; bad '.*which rank 0 cannot read: it has more than 1048576 bytes'
# broken SED_SCRIPT PATTERN
broken() { sed "$1" table.json >bad.json; cmp -s table.json bad.json && fail "sed $1 changes nothing"; bad "bad.json: $2" "${@:3}"; }
broken 's/double_tree/dubble_tree/' "allreduce, entry 2 .up to 2000 bytes, dubble_tree.: there is no algorithm .*did you mean 'double_tree'" "$@"
broken 's/2000/60/' 'allreduce, entry 2 .*up_to_bytes must be more than in the entry before, 60'
broken 's/"ranks": 4/"ranks": "four"/' 'the table, measured_on, ranks is "four"; it must be a whole number'
broken 's/"allreduce"/"allredcue"/' "the table, collectives has 'allredcue' .did you mean 'allreduce'"
broken 's/"time_us": 0.5/"time_us": -1/' 'allreduce, entry 1 .*time_us is -1; it must be a time'
broken 's/"format": 1/"format": 9/' 'the table, format is 9; it must be 1'

refuses_full_disk "$info"
refuses_full_disk "$info" --config markdown
finish
