#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: check_direction.sh SOURCE_DIRECTORY
# Checks that includes go in one direction: examples, tests → bindings → ops → collectives → core; that vendors' headers are
# included only in their folders; and that public headers include no third-party header.
set -u
cd "$1" || exit 2
failures=0
# refuse PLACE FORBIDDEN_INCLUDE WHY: a folder, or one header or source
refuse() {
  local found
  found=$(grep -rnE --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' "^ *# *include *[<\"]($2)" "$1" 2>/dev/null)
  [ -z "$found" ] && return
  echo "$3:"; echo "$found"
  failures=$((failures + 1))
}
# one_way ROOT FOLDER…: each folder includes, of these, itself and those that are named before it.
one_way() {
  local root=$1 later; shift
  for folder in "$root"/*/; do
    [[ " $* " == *" $(basename "$folder") "* ]] || { echo "$folder has no place in the order of $root"; failures=$((failures + 1)); }
  done
  while [ $# -gt 1 ]; do
    later=$(IFS='|'; echo "${*:2}")
    refuse "$root/$1" "($later)/" "$root/$1 must not look at what is above it"
    shift
  done
}

# Between the parts.
refuse core 'farandole/(collectives|gradients|engine|trainer|tensorflow)' 'core must not look upward'
refuse collectives 'farandole/(gradients|engine|trainer|tensorflow)' 'collectives must not look upward'
refuse ops/gradients 'farandole/(engine|trainer|tensorflow)' 'gradients must not look sideways'
refuse ops/engine 'farandole/(gradients|trainer|tensorflow)' 'the engine must not look sideways'
refuse ops/tensorflow 'farandole/(core|sdk|internal|collectives|gradients|trainer)/' 'the op library knows engine.h only'
refuse examples '\.\./|(core|collectives|ops)/src|farandole/(sdk|internal)/' 'examples use public headers only'

# Inside collectives.
one_way collectives/src algorithms schedule selection operation shared_memory messages device point_to_point communicator c_api

# Inside core: backends know the headers, each by itself, and sockets or tcp where they are built on them; the job knows the
# backends.
for directory in core/include/farandole/core collectives/include ops/engine/include ops/gradients/include ops/trainer/include; do
  refuse "$directory" 'farandole/(sdk|internal)/' 'a public header must not need one for plug-ins, or one that is not installed'
done
refuse core/include/farandole/sdk 'farandole/internal/' 'a header for plug-ins must not need one that is not installed'
jobs=$(cd core/src && echo */*.h | tr ' ' '|')
for directory in core/include core/internal collectives ops; do
  refuse "$directory" "($jobs)" 'what core/src keeps to itself'
done
for backend in core/backends/*/; do
  backend=$(basename "$backend")
  refuse "core/backends/$backend" "$jobs" 'a backend must not look at the job'
  others=$(for other in core/backends/*/; do basename "$other"; done | grep -vx "$backend" | paste -sd '|')
  case $backend in
    local | tcp) others=${others/|sockets/} ;;
    pmix) others=${others/|sockets|tcp/} ;;
  esac
  refuse "core/backends/$backend" "($others)/" 'a backend must not look at another one'
done

# Vendors, the network, third parties.
vendor='mpi\.h|pmix(_[a-z]+)?\.h|nccl\.h|cuda_runtime|cuda\.h|cublas|cudnn|tensorflow/'
for directory in core/include core/internal core/src core/backends/{inproc,shm,local,sockets,tcp} collectives \
                 ops/engine ops/gradients ops/trainer/include ops/trainer/src ops/trainer/tools; do
  refuse "$directory" "$vendor" 'a vendor header outside its room'
done
for directory in core/backends/mpi ops/tensorflow; do
  refuse "$directory" 'cublas|cudnn' 'cuBLAS and cuDNN belong to ops/trainer/backends/cuda'
done
# The plug-in for CUDA is built where no toolkit is: it has tables of the vendor's functions.
refuse core/backends/cuda "$vendor" 'a header of a vendor in the plug-in for CUDA'
# Nobody else calls these functions. Comments may name them.
names=$(grep -rnE --include='*.h' --include='*.cpp' '^[^/]*\b(cu[A-Z][A-Za-z]+|nccl[A-Z][A-Za-z]+) ?\(' core/include core/internal core/src \
             core/backends/{inproc,shm,local,sockets,tcp,mpi,pmix} collectives ops/engine ops/gradients ops/tensorflow ops/trainer/{include,src,tools})
[ -z "$names" ] || { echo "functions of CUDA or NCCL outside their room:"; echo "$names"; failures=$((failures + 1)); }
# Addresses of interfaces, by which core/src/job/topology.cpp knows a machine, are no sockets.
network='sys/(socket|un|epoll)\.h|netinet/tcp|arpa/'
for directory in core/include core/internal core/src core/backends/{inproc,shm,mpi,pmix,cuda} collectives ops; do
  refuse "$directory" "$network" 'sockets belong to core/backends/sockets and what is built on it'
done
third_party='fmt/|spdlog/|nlohmann/|boost/|Eigen/|dnnl|oneapi/|zlib|png|jpeglib|jerror|omp\.h'
for directory in core/include collectives/include ops/engine/include ops/gradients/include ops/trainer/include; do
  refuse "$directory" "$third_party" 'a third-party header in a public header'
done
[ "$failures" = 0 ] && echo "includes go one way"
exit "$failures"
