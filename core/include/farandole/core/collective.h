// SPDX-License-Identifier: Apache-2.0
// The collectives.
#pragma once

#include <cstdint>
#include <string_view>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

enum class Collective : std::uint8_t {
  kAllreduce,
  kBroadcast,
  kReduce,
  kAllgather,
  kReduceScatter,
  kGather,
  kScatter,
  kAlltoall,
  kBarrier,
};
inline constexpr int kCollectiveCount = 9;
/// "allreduce", "reduce_scatter", …
std::string_view name(Collective collective);
/// Reverse of `name`. @throws InvalidArgument  lists the valid names
Collective parse_collective(std::string_view text);
/// True if the collective has a root: broadcast, reduce, gather, scatter.
inline bool is_rooted(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce ||
         collective == Collective::kGather || collective == Collective::kScatter;
}
/// True if the collective combines values: allreduce, reduce, reduce_scatter.
inline bool reduces(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}
/// True if the collective's input or output has one part per rank: allgather, reduce_scatter, gather, scatter,
/// alltoall.
inline bool has_parts(Collective collective) {
  return collective == Collective::kAllgather || collective == Collective::kReduceScatter ||
         collective == Collective::kGather || collective == Collective::kScatter || collective == Collective::kAlltoall;
}

}  // namespace FARANDOLE_API
