#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: schedule.sh BUILD_DIRECTORY JSON_FLATTEN [MPI LAUNCHER...]
# Tests the command line of farandole-schedule.
schedule=$(cd "$1" && pwd)/bin/farandole-schedule
# shellcheck source=tests/cli/expect.sh
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# Help and options.
works 'Exit status: 0 done, 1 ' "$schedule" --help
for command in verify show svg cost; do has "farandole-schedule $command "; done
offers 'collective algorithm sizes segments' "$schedule" verify
offers 'collective algorithm size root segments rank svg' "$schedule" show
offers 'collective algorithm size root segments output' "$schedule" svg
offers 'collective algorithm size bytes root segments link latency-us gbps' "$schedule" cost
refused 'farandole-schedule verify' "$schedule"
refused "no command 'shwo'; valid are verify, show, svg, cost.*mean 'show'" "$schedule" shwo
refused 'Which command' "$schedule" --
refused "'--hlep'.*mean '--help'" "$schedule" --hlep
refused "no option '--sice'.*mean '--size'" "$schedule" show ring --sice 4
refused "no option '--siz'.*mean '--size'" "$schedule" show ring --siz 4
refused "no option '--sizes'.*mean '--size'" "$schedule" cost --sizes 4
refused "'bruck' belongs to no option" "$schedule" show ring bruck
refused "argument for option '--size' is missing" "$schedule" show ring --size
refused "'--collective' cannot be specified more than once" "$schedule" cost -c allreduce -c broadcast

# Values.
refused 'Which algorithm.*show ring' "$schedule" show
refused "no algorithm 'rign'; valid are ring, .*, dissemination.*mean 'ring'" "$schedule" show rign
refused "no algorithm 'ring' of broadcast; valid are binomial, scatter_allgather\." "$schedule" cost -c broadcast -a ring
has_lines 1 .
refused "'allgathr' is no collective .*mean 'allgather'.* allreduce, .*, barrier" "$schedule" show ring -c allgathr
refused "'x' is no collective" "$schedule" cost -c x
has_lines 1 .
for size in 0 65537 -1 4x; do
  refused "--size has '$size'; it takes numbers from 1 to 65536" "$schedule" show ring --size "$size"
done
refused '--size is empty; it needs a value' "$schedule" show ring --size ''
refused "--rank has '4'; it takes numbers from 0 to 3" "$schedule" show ring --size 4 --rank 4
refused "--root has '3'; it takes numbers from 0 to 2" "$schedule" show binomial --size 3 --root 3
refused "--root has '8'; it takes numbers from 0 to 7" "$schedule" cost --root 8
refused "--segments has '0'; it takes numbers from 1 to 1024" "$schedule" svg ring --segments 0
refused "--segments has '1025'; it takes numbers from 1 to 1024" "$schedule" cost --segments 1025
has_lines 1 .
refused "halving_doubling does not support 3 ranks; it needs a power of two" "$schedule" show halving_doubling --size 3
refused "--sizes has '3', none of which halving_doubling supports" "$schedule" verify -a halving_doubling --sizes 3
refused "--sizes has the range '3-1', which ends before it begins" "$schedule" verify --sizes 3-1
for sizes in 0 1-2-3 ',' 1,,2 all; do
  refused "--sizes has '.*'; it takes numbers from 1 to 65536" "$schedule" verify --sizes "$sizes"
done
refused "'1Q' is no number of bytes; .* 4MiB" "$schedule" cost --bytes 1Q
for option in --gbps --latency-us; do
  for value in -1 nan inf fast; do refused "$option has '$value'; it takes numbers from 0" "$schedule" cost $option $value; done
done
refused '--gbps is 0; it must be more' "$schedule" cost --gbps 0
refused '--gbps is 0; it must be more' "$schedule" cost --link pcie4 --gbps 0
refused "no link 'nvlink'; valid are nvlink3, .*, 100gbe.*mean 'nvlink" "$schedule" cost --link nvlink
refused 'A picture of 200 ranks .* up to 128' "$schedule" svg ring --size 200

# verify: every algorithm of every collective, and only what was asked for.
works '^[0-9]+ algorithms, .*: all correct' "$schedule" verify --sizes 1-8
algorithms=$(sed -nE 's/^([0-9]+) algorithms.*/\1/p' out)
has_lines "$algorithms" 'correct, =formula'
for collective in allreduce broadcast reduce allgather reduce_scatter gather scatter alltoall barrier; do
  has "^$collective "
done
works '^3 algorithms, 9 cases, 33 schedules: all correct' "$schedule" verify --algorithm ring --sizes 2,4-5 --segments 2
works '^1 algorithms, ' "$schedule" verify -c allgather -a ring --sizes 2

# show: a ring of 4 has 2 x 3 rounds of 4 messages.
works '^allreduce ring: rank 3 of 4; 4 chunks of 1 segment, 6 rounds' "$schedule" show ring --size 4
has_lines 4 '^allreduce ring: rank'
has_lines 24 ' send '
has_lines 24 ' recv(_reduce)? '
works '^allreduce ring: rank 2 of 4' "$schedule" show ring --size 4 --rank 2
has_lines 1 'rank . of'
has_lines 6 ' send +to 3 '
works '^reduce binomial: rank 1 of 3, root 2; ' "$schedule" show binomial -c reduce -n 3 --root 2 -r 1
works '4 chunks of 2 segments' "$schedule" show ring --size 4 --segments 2

# Pictures: an arrow with a title for each message.
works '^<svg xmlns' "$schedule" svg ring --size 4
has_lines 24 '<title>round [0-5]: rank [0-3] to rank [0-3]</title>'
[ "$(tail -n 1 out)" = '</svg>' ] || fail 'the picture is not complete'
mv out picture
works '^allreduce ring: rank 3 of 4' "$schedule" show ring --size 4 --svg shown.svg
cmp -s picture shown.svg || fail 'show --svg draws another picture than svg'
ends 0 '' "$schedule" svg ring --size 4 --output drawn.svg
has_no .
cmp -s picture drawn.svg || fail 'svg --output writes another picture than svg prints'
ends 1 "The results cannot be written to nowhere/x.svg: " "$schedule" svg ring --output nowhere/x.svg
ends 1 "The results cannot be written to nowhere/x.svg: " "$schedule" show ring --svg nowhere/x.svg
[ ! -e /dev/full ] || ends 1 "The results cannot be written to /dev/full: " "$schedule" svg ring --output /dev/full
for arguments in 'show ring' 'svg ring' 'cost' 'verify --sizes 2' '--help'; do
  # shellcheck disable=SC2086  # a list
  refuses_full_disk "$schedule" $arguments
done

# cost: two rounds, each of half a MiB at a MiB per millisecond.
works '^ring +1 +2 +4 +1.00 MiB +1.00 ms$' "$schedule" cost --size 2 --bytes 1MiB --latency-us 0 --gbps 8.388608
works '^ring +2 +6 +48 ' "$schedule" cost --size 4 --segments 2
# 2 rounds of 11.8 us and 450 MB at 3600 Gbit/s, then with a round of no time, and at another rate.
works '^ring .* 2.02 ms$' "$schedule" cost --size 2 --bytes 900000000 --link nvlink4
has 'nvlink4|11.8 us a round, 3600 Gbit/s'
works '^ring .* 2.00 ms$' "$schedule" cost --size 2 --bytes 900000000 --link nvlink4 --latency-us 0
works '^ring .* 4.02 ms$' "$schedule" cost --size 2 --bytes 900000000 --link nvlink4 --gbps 1800
works '^halving_doubling +does not support 3 ranks' "$schedule" cost --size 3
works '^bruck ' "$schedule" cost -c allgather
has_no double_tree
finish
