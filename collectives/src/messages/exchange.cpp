// SPDX-License-Identifier: Apache-2.0
#include "messages/exchange.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <set>

#include "operation/method_inputs.h"

namespace farandole {
namespace {

/// Bytes that a rank gets from its peers, at most; `bytes` of the whole vector.
std::size_t received_bytes(Collective collective, std::size_t bytes, int size) {
  switch (collective) {
    case Collective::kBroadcast:
    case Collective::kScatter:
    case Collective::kAllgather:
    case Collective::kGather:
      return bytes;
    default:
      return bytes * static_cast<std::size_t>(size - 1);
  }
}

bool fits_comparison(const SelectionQuery& query) {
  if (query.bytes > Dissemination::kMostShownBytes) return false;
  const std::size_t received = received_bytes(query.collective, query.bytes, query.size);
  // In a hierarchy the first rank of each host answers with what all ranks show.
  if (query.hosts > 0) return received + query.bytes <= ShmGroup::kRoomBytes;
  return received <= Dissemination::kMostShownBytes;
}

/// A schedule sends less, and only after the rounds of the comparison.
bool is_cheapest_exchange(const SelectionQuery& query) {
  const auto bytes = static_cast<double>(received_bytes(query.collective, query.bytes, query.size));
  const double transfer_us = bytes * query.link.us_per_byte;
  // A hierarchy sends less, too: the ranks of a host share the link.
  if (query.hosts > 0) return transfer_us <= query.link.latency_us;
  return transfer_us <= cheapest_schedule_us(query);
}

std::string explain_exchange(Collective, std::size_t, const Group& group) {
  std::set<int> hosts;
  for (int rank = 0; rank < group.size(); ++rank) hosts.insert(group.host_of(rank));
  return fmt::format("short vectors travel with the comparison of calls; between {} hosts it takes {} rounds",
                     hosts.size(), std::bit_width(hosts.size() - 1));
}

}  // namespace

constinit const Method kExchangeMethod{
    .name = "exchange",
    .number = 0xfa,
    .needs = "ranks that exchange messages, and a vector that is short",
    .is_preferred = true,
    .is_cheapest = is_cheapest_exchange,
    .compares_calls = true,
    .supports = [](Collective collective) { return collective != Collective::kBarrier; },
    .fits = [](const TuningShape& shape) { return shape.ranks > 1; },
    .is_available = [](const SelectionQuery& query,
                       bool) { return !query.shares_memory && query.size > 1 && fits_comparison(query); },
    .make = [](const MethodInputs& inputs) -> std::unique_ptr<Operation> {
      return std::make_unique<Exchange>(inputs.group, inputs.hierarchy, inputs.host, inputs.call, inputs.descriptor,
                                        inputs.sequence);
    },
    .explain = explain_exchange,
};

Exchange::Exchange(const Group& group, const Hierarchy* hierarchy, ShmGroup* host, const Call& call,
                   const Descriptor& descriptor, std::uint64_t sequence)
    : group_(group),
      firsts_(call.is_uneven() ? parts_of(call, group.size()).offsets() : std::vector<std::size_t>{}),
      collective_(call, group.rank, group.size(), firsts_),
      comparison_(
          CallComparison::make(group, hierarchy, host, ShmGroup::first_number(sequence), descriptor, blocks())) {}

ShownBlocks Exchange::blocks() const {
  ShownBlocks blocks;
  for (int rank = 0; rank < group_.size(); ++rank) {
    blocks.bytes.push_back(collective_.bytes(collective_.shown_by(rank)));
  }
  blocks.write = [this](std::byte* to) { collective_.show(to); };
  return blocks;
}

Operation::State Exchange::advance() {
  const State state = comparison_->advance();
  if (state != State::kDone) return state;
  std::vector<const void*> pointers(static_cast<std::size_t>(group_.size()));
  collective_.take([this](int rank) { return comparison_->block(rank); }, pointers);
  return State::kDone;
}

}  // namespace farandole
