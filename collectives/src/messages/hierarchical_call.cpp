// SPDX-License-Identifier: Apache-2.0
#include "messages/hierarchical_call.h"

#include <algorithm>

namespace farandole {
namespace {

/// True for algorithms that forward data through other ranks, and so may send a byte to the same host more than once.
bool forwards(const Algorithm& algorithm) {
  if (algorithm.collective == Collective::kBroadcast) return algorithm.name == "scatter_allgather";
  const bool is_tree = algorithm.collective == Collective::kGather || algorithm.collective == Collective::kScatter;
  return is_tree && algorithm.name == "binomial";
}

}  // namespace

std::byte* PlanMemory::at(const PlanPlace& place) const {
  const std::size_t first = place.first * element_bytes;
  switch (place.memory) {
    case PlanPlace::Memory::kInput:
      return static_cast<std::byte*>(const_cast<void*>(input)) + first;
    case PlanPlace::Memory::kOutput:
      return static_cast<std::byte*>(output) + first;
    case PlanPlace::Memory::kScratch:
      return static_cast<std::byte*>(scratch) + first;
    case PlanPlace::Memory::kNone:
      break;
  }
  return nullptr;
}

HierarchicalQuery query_of(const Call& call, int size) {
  HierarchicalQuery query;
  query.collective = call.collective;
  query.root = call.root;
  if (has_parts(call.collective)) {
    query.counts = parts_of(call, size).to_vector();
  } else {
    query.count = call.input.count;
  }
  return query;
}

Call call_of(const HierarchicalPhase& phase, const Call& whole, const PlanMemory& memory) {
  const MemorySpace space = space_of(whole);
  Call call;
  call.collective = phase.collective;
  call.root = phase.root;
  call.op = combining_op(whole);
  call.input = {memory.at(phase.input), phase.input_count, whole.input.dtype, space};
  call.output = {memory.at(phase.output), phase.output_count, whole.input.dtype, space};
  call.counts = phase.counts;
  call.recv_counts = phase.recv_counts;
  if (phase.prescales) call.prescale = whole.prescale;
  if (phase.postscales) call.final_scale = whole.final_scale;
  return call;
}

Selection select_across(const Group& across, Collective collective, std::size_t bytes) {
  SelectionQuery query;
  query.collective = collective;
  query.bytes = bytes;
  query.size = across.size();
  query.link = across.route(across.rank == 0 ? 1 : 0).cost();
  const std::vector<Candidate> all = candidates(query, across.endpoint->settings());
  const auto chosen =
      std::find_if(all.begin(), all.end(), [](const Candidate& candidate) { return !forwards(*candidate.algorithm); });
  return Selection::schedule(*chosen->algorithm, chosen->segments);
}

}  // namespace farandole
