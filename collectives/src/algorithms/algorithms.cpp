// SPDX-License-Identifier: Apache-2.0
#include "farandole/collectives/algorithms.h"

#include <algorithm>
#include <vector>

#include "algorithms/families.h"

namespace farandole {
namespace {

std::vector<Algorithm> rows_of_all_families() {
  std::vector<Algorithm> rows;
  for (Family* const family : kFamilies) {
    const auto more = family();
    rows.insert(rows.end(), more.begin(), more.end());
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Algorithm& a, const Algorithm& b) { return a.collective < b.collective; });
  return rows;
}

}  // namespace

std::span<const Algorithm> algorithms() {
  // Never destroyed: collectives may still run while static objects are destroyed.
  static const auto& rows = *new std::vector<Algorithm>(rows_of_all_families());
  return rows;
}

int segments_for_size(const Algorithm& algorithm, int ranks, std::size_t bytes, std::size_t segment_bytes) {
  constexpr std::size_t kMaxChosen = 64;
  if (!algorithm.pipelined) return 1;
  const std::size_t chunk_bytes = bytes / static_cast<std::size_t>(algorithm.chunks(ranks));
  return static_cast<int>(std::clamp<std::size_t>((chunk_bytes + segment_bytes - 1) / segment_bytes, 1, kMaxChosen));
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  const auto table = algorithms();
  const auto found = std::find_if(table.begin(), table.end(), [&](const Algorithm& algorithm) {
    return algorithm.collective == collective && algorithm.name == name;
  });
  return found == table.end() ? nullptr : &*found;
}

}  // namespace farandole
