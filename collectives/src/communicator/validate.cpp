// SPDX-License-Identifier: Apache-2.0
// What makes a call invalid whatever the other ranks do.
#include <fmt/core.h>

#include <string_view>

#include "communicator/collective_operation.h"
#include "farandole/core/error.h"

namespace farandole {
namespace {

void require(bool condition, std::string_view what, std::string_view expected, std::size_t came) {
  if (!condition) throw InvalidArgument(fmt::format("{}: expected {}, got {}", what, expected, came));
}

void require_count(std::string_view what, std::size_t expected, std::size_t came) {
  if (expected != came) throw InvalidArgument(fmt::format("{}: expected {} elements, got {}", what, expected, came));
}

void require_memory(std::string_view what, const void* data, std::size_t count) {
  if (data == nullptr && count > 0) {
    throw InvalidArgument(fmt::format("{}: the address is null, but there are {} elements", what, count));
  }
}

std::size_t total(const std::vector<std::size_t>& counts) {
  std::size_t sum = 0;
  for (const std::size_t count : counts) sum += count;
  return sum;
}

void validate_reduction(const Call& call) {
  if (call.input.dtype != DType::kBool || !reduces(call.collective)) return;
  if (call.op == ReduceOp::kAverage) {
    throw InvalidArgument(
        fmt::format("{}: there is no average of bool; use max (or), min (and), or numbers", name(call.collective)));
  }
  if (call.prescale != 1.0 || call.postscale != 1.0) {
    throw InvalidArgument(
        fmt::format("{}: bool has no factors; leave them at 1, or use numbers", name(call.collective)));
  }
}

}  // namespace

void validate(const Call& call, const Group& group) {
  const auto size = static_cast<std::size_t>(group.size());
  const auto rank = static_cast<std::size_t>(group.rank);
  const bool at_root = call.root < 0 || group.rank == call.root;
  if (is_rooted(call.collective) && (call.root < 0 || call.root >= group.size())) {
    throw InvalidArgument(fmt::format("{}: root {} is not a rank of this communicator, which has 0 … {}",
                                      name(call.collective), call.root, group.size() - 1));
  }
  const bool has_input = call.collective != Collective::kScatter || at_root;
  const bool has_output = (call.collective != Collective::kReduce && call.collective != Collective::kGather) || at_root;
  if (has_input) require_memory("input", call.input.data, call.input.count);
  if (has_output) require_memory("output", call.output.data, call.output.count);
  if (has_input && has_output && call.input.dtype != call.output.dtype) {
    throw InvalidArgument(fmt::format("{}: input is {}, output is {}; they must have the same type",
                                      name(call.collective), name(call.input.dtype), name(call.output.dtype)));
  }
  validate_reduction(call);
  if (!call.counts.empty())
    require(call.counts.size() == size, "counts", fmt::format("{} entries", size), call.counts.size());
  switch (call.collective) {
    case Collective::kAllreduce:
      require_count("output", call.input.count, call.output.count);
      break;
    case Collective::kReduce:
      if (at_root) require_count("output", call.input.count, call.output.count);
      break;
    case Collective::kAllgather:
    case Collective::kGather:
      require_count("input", call.counts[rank], call.input.count);
      if (has_output) require_count("output", total(call.counts), call.output.count);
      break;
    case Collective::kReduceScatter:
    case Collective::kScatter:
      if (has_input) require_count("input", total(call.counts), call.input.count);
      require_count("output", call.counts[rank], call.output.count);
      break;
    case Collective::kAlltoall:
      require(call.recv_counts.size() == size, "receive counts", fmt::format("{} entries", size),
              call.recv_counts.size());
      require_count("input", total(call.counts), call.input.count);
      require_count("output", total(call.recv_counts), call.output.count);
      require_count("what this rank expects from itself", call.counts[rank], call.recv_counts[rank]);
      break;
    case Collective::kBroadcast:
    case Collective::kBarrier:
      break;
  }
}

}  // namespace farandole
