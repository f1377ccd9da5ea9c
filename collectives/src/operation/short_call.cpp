// SPDX-License-Identifier: Apache-2.0
#include "operation/short_call.h"

namespace farandole {

std::size_t total_count(const ShortCall& call, int size) {
  const auto ranks = static_cast<std::size_t>(size);
  switch (call.collective) {
    case Collective::kAllgather:
    case Collective::kGather:
      return call.input.count * ranks;
    case Collective::kScatter:
      return call.output.count * ranks;
    default:
      return call.input.count;
  }
}

bool is_plainly_valid(const ShortCall& call, int rank, int size) {
  const auto& [collective, input, output, op, root] = call;
  const auto ranks = static_cast<std::size_t>(size);
  if (collective == Collective::kBarrier) return true;
  if (is_rooted(collective) && (root < 0 || root >= size)) return false;
  if (reduces(collective) && op == ReduceOp::kAverage && !is_floating_point(input.dtype)) return false;
  const bool has_input = collective != Collective::kScatter || rank == root;
  const bool has_output = (collective != Collective::kReduce && collective != Collective::kGather) || rank == root;
  if ((has_input && input.data == nullptr) || (has_output && output.data == nullptr)) return false;
  if (!has_input || !has_output) return true;
  if (input.dtype != output.dtype) return false;
  switch (collective) {
    case Collective::kAllgather:
    case Collective::kGather:
      return output.count == input.count * ranks;
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return input.count == output.count * ranks;
    case Collective::kAlltoall:
      return input.count == output.count && input.count % ranks == 0;
    default:
      return input.count == output.count;
  }
}

Call in_full(const ShortCall& call, int size) {
  Call full;
  full.collective = call.collective;
  full.input = call.input;
  full.output = call.output;
  full.op = call.op;
  full.root = call.root;
  const auto ranks = static_cast<std::size_t>(size);
  const std::size_t each = total_count(call, size) / ranks;
  switch (call.collective) {
    case Collective::kAlltoall:
      full.recv_counts.assign(ranks, each);
      [[fallthrough]];
    case Collective::kAllgather:
    case Collective::kGather:
    case Collective::kReduceScatter:
    case Collective::kScatter:
      full.counts.assign(ranks, each);
      break;
    default:
      break;
  }
  return full;
}

}  // namespace farandole
