#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: check_direction.sh SOURCE_DIRECTORY
# Includes go one way: examples, tests → bindings → ops → collectives → core. Vendor headers stay in their rooms, and
# public headers include no third-party header.
set -u
cd "$1" || exit 2
failures=0
# refuse DIRECTORY FORBIDDEN_INCLUDE WHY
refuse() {
  local found
  found=$(grep -rnE --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' "^ *# *include *[<\"]($2)" "$1" 2>/dev/null)
  [ -z "$found" ] && return
  echo "$3:"; echo "$found"
  failures=$((failures + 1))
}
refuse core 'farandole/(collectives|gradients|engine|trainer|tensorflow)' 'core must not look upward'
refuse collectives 'farandole/(gradients|engine|trainer|tensorflow)' 'collectives must not look upward'
refuse ops/gradients 'farandole/(engine|trainer|tensorflow)' 'gradients must not look sideways'
refuse ops/engine 'farandole/(gradients|trainer|tensorflow)' 'the engine must not look sideways'
refuse ops/tensorflow 'farandole/(core|collectives|gradients|trainer)/' 'the op library knows engine.h only'
refuse examples '\.\./|(core|collectives|ops)/src' 'examples use public headers only'
vendor='mpi\.h|nccl\.h|cuda_runtime|cuda\.h|tensorflow/'
for directory in core/include core/src core/backends/inproc collectives ops/engine ops/gradients ops/trainer; do
  refuse "$directory" "$vendor" 'a vendor header outside its room'
done
third_party='fmt/|spdlog/|nlohmann/|boost/|Eigen/|dnnl|oneapi/|zlib|omp\.h'
for directory in core/include collectives/include ops/engine/include ops/gradients/include ops/trainer/include; do
  refuse "$directory" "$third_party" 'a third-party header in a public header'
done
[ "$failures" = 0 ] && echo "includes go one way"
exit "$failures"
